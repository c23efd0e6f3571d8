// A client made of the TypeScript SDK that logs in, and more once a server wants more
// scopes, through a browser without a human. Its only argument is JSON: the url, the calls
// to make, and which protocol versions it speaks. It prints what it asked for and what it got.
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';

const { url, calls, modern } = JSON.parse(process.argv[2]);
const redirect = 'http://127.0.0.1:1/callback'; // nothing listens: the browser stops before it
const asked = [];
let information, tokens, verifier, arrived;

// browse follows redirects with cookies until one leads back to the client.
async function browse(from) {
  const jar = new Map();
  let at = new URL(from);
  for (let hops = 0; hops < 20; hops += 1) {
    const response = await fetch(at, { redirect: 'manual', headers: { accept: 'text/html', cookie: [...jar].map((pair) => pair.join('=')).join('; ') } });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      jar.set(name, value);
    }
    const location = response.headers.get('location');
    if (!location) throw new Error(`${at} answers ${response.status}: ${await response.text()}`);
    at = new URL(location, at);
    if (at.href.startsWith(redirect)) return at;
  }
  throw new Error('too many redirects');
}

const provider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: 'an agent', redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'], token_endpoint_auth_method: 'none', application_type: 'native',
  },
  clientInformation: () => information,
  saveClientInformation(given) { information = given; },
  tokens: () => tokens,
  saveTokens(given) { tokens = given; },
  saveCodeVerifier(given) { verifier = given; },
  codeVerifier: () => verifier,
  async redirectToAuthorization(to) {
    const query = to.searchParams;
    asked.push({ scope: query.get('scope'), resource: query.get('resource') });
    arrived = (await browse(to)).searchParams;
  },
};

let client;
let transport;
async function connect() {
  client = new Client({ name: 'oauth-client', version: '1.0.0' }, modern ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {});
  transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  await client.connect(transport);
}

// loggedIn does something, once more after each login that it takes.
async function loggedIn(what, logins = 3) {
  try {
    return await what();
  } catch (error) {
    if (!(error instanceof UnauthorizedError) || logins === 0) throw error;
    await transport.finishAuth(arrived);
    return loggedIn(what, logins - 1);
  }
}

const results = [];
try {
  await loggedIn(connect);
  for (const { name, arguments: args } of calls) {
    try {
      results.push(await loggedIn(() => client.callTool({ name, arguments: args })));
    } catch (error) {
      results.push({ failed: String(error) });
    }
  }
  console.log(JSON.stringify({ asked, registered: information?.client_id !== undefined, scope: tokens?.scope, results }));
} catch (error) {
  console.log(JSON.stringify({ asked, failed: String(error?.stack ?? error) }));
}
process.exit(0);
