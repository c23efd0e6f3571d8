// A certified authorization server (oidc-provider), in which everybody who comes is logged
// in and agrees to everything, so that no human is needed. Its only argument is its settings
// as JSON; see internal/authserver, which starts it. It prints one line of JSON when it
// listens, and one for each line of commands that it reads. It ends with its standard input.
import { createInterface } from 'node:readline';
import { errors, Provider } from 'oidc-provider';

console.info = console.error; // standard output is for answers

const settings = JSON.parse(process.argv[2] ?? '{}');
const { scopes = ['mcp:read', 'mcp:write'], algorithm = 'RS256', keys, clients = [], rotate = true, port = 0 } = settings;
// These can be changed while it runs.
const now = { user: 'alice', groups: {}, lifetime: 3600, opaque: false, deny: false, skew: 0 };
Object.assign(now, Object.fromEntries(Object.entries(settings).filter(([key]) => key in now)));

const machineClock = Date.now;
Date.now = () => machineClock() + now.skew * 1000;

const seen = []; // what was asked of it, in order
const note = (what) => (ctx, err) => seen.push({
  what, client: ctx.oidc?.client?.clientId, params: { ...ctx.oidc?.params, ...(what === 'registered' ? ctx.oidc?.body : {}) },
  error: err?.error, reason: err?.error_description ?? err?.message,
});

const features = {
  devInteractions: { enabled: false },
  registration: { enabled: settings.registration !== false },
  registrationManagement: { enabled: true },
  introspection: { enabled: true, allowedPolicy: () => true },
  revocation: { enabled: true, allowedPolicy: () => true },
  deviceFlow: { enabled: true },
  clientCredentials: { enabled: true },
  userinfo: { enabled: true },
  resourceIndicators: {
    enabled: true,
    useGrantedResource: () => settings.granted === true,
    getResourceServerInfo(ctx, resource) {
      if (settings.resources && !settings.resources.includes(resource)) throw new errors.InvalidTarget();
      return {
        scope: scopes.join(' '), audience: resource, accessTokenTTL: now.lifetime,
        ...(now.opaque ? { accessTokenFormat: 'opaque' } : { accessTokenFormat: 'jwt', jwt: { sign: { alg: algorithm } } }),
      };
    },
  },
};
if (settings.metadataDocuments) {
  features.clientIdMetadataDocument = { enabled: true, ack: 'individual-draft-01', allowFetch: () => true, allowClient: () => true };
}

const signing = async () => {
  const parameters = { RS256: { name: 'RSASSA-PKCS1-v1_5', modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]), hash: 'SHA-256' }, ES256: { name: 'ECDSA', namedCurve: 'P-256' }, EdDSA: { name: 'Ed25519' } };
  const one = async (alg) => {
    const { privateKey } = await crypto.subtle.generateKey(parameters[alg], true, ['sign', 'verify']);
    return { ...(await crypto.subtle.exportKey('jwk', privateKey)), alg, use: 'sig', kid: crypto.randomUUID(), key_ops: undefined, ext: undefined };
  };
  return { keys: await Promise.all([...new Set(['RS256', algorithm])].map(one)) }; // RS256 signs ID tokens
};

const start = async (port) => {
  const { createServer } = await import('node:http');
  const server = createServer();
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve));
  return server;
};
let server = await start(port);
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients,
  jwks: keys ?? await signing(),
  scopes: ['openid', 'offline_access', ...scopes],
  claims: { openid: ['sub'] },
  features,
  rotateRefreshToken: rotate,
  clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt'],
  issueRefreshToken: (_, client, source) => client.grantTypeAllowed('refresh_token') && (settings.offline !== true || source.scopes.has('offline_access')),
  expiresWithSession: () => false,
  ttl: { AccessToken: () => now.lifetime, ClientCredentials: () => now.lifetime, Grant: 86400, IdToken: 3600, Interaction: 3600, Session: 86400, RefreshToken: 86400, DeviceCode: 600 },
  extraTokenClaims: (_, token) => (now.groups[token.accountId] ? { groups: now.groups[token.accountId] } : undefined),
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: now.groups[id] }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  cookies: { keys: ['of a test'] },
  renderError(ctx, out) { ctx.type = 'json'; ctx.body = out; },
});
provider.on('grant.success', note('granted'));
provider.on('grant.error', note('refused'));
provider.on('authorization.success', note('authorized'));
provider.on('authorization.error', note('not authorized'));
provider.on('registration_create.success', note('registered'));
provider.on('registration_create.error', note('not registered'));
provider.on('device_authorization.success', note('device'));
provider.on('introspection.error', note('not introspected'));
provider.on('grant.revoked', note('revoked'));
provider.on('server_error', (_, err) => console.error(err));

// interact logs the user in and agrees, in place of pages.
async function interact(request, response) {
  const { prompt: { name, details }, params, session, grantId } = await provider.interactionDetails(request, response);
  if (now.deny) return provider.interactionFinished(request, response, { error: 'access_denied', error_description: 'the user said no' }, { mergeWithLastSubmission: false });
  if (name === 'login') return provider.interactionFinished(request, response, { login: { accountId: params.login_hint ?? now.user } }, { mergeWithLastSubmission: false });
  const grant = grantId ? await provider.Grant.find(grantId) : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  if (details.missingOIDCScope) grant.addOIDCScope(details.missingOIDCScope.join(' '));
  if (details.missingOIDCClaims) grant.addOIDCClaims(details.missingOIDCClaims);
  for (const [resource, missing] of Object.entries(details.missingResourceScopes ?? {})) grant.addResourceScope(resource, missing.join(' '));
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
}

// register takes clients in for all scopes: the TypeScript SDK registers for those that it
// wants first, and this server would never give more.
async function register(request, response) {
  let text = '';
  for await (const part of request) text += part;
  request.body = { ...JSON.parse(text), scope: undefined };
  return callback(request, response);
}

const callback = provider.callback();
const serve = (request, response) => {
  if (request.url === '/reg' && request.method === 'POST' && settings.heldToScopes !== true) return register(request, response);
  if (!request.url.startsWith('/interaction/')) return callback(request, response);
  return interact(request, response).catch((err) => { response.statusCode = 500; response.end(String(err)); });
};
server.on('request', serve);

const commands = {
  set(values) { Object.assign(now, values); },
  seen() { return seen.splice(0); },
  async down() { server.closeAllConnections(); await new Promise((resolve) => { server.close(resolve); server.closeAllConnections(); }); },
  async up() { server = await start(new URL(issuer).port); server.on('request', serve); },
};

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
say({ issuer });
for await (const line of createInterface({ input: process.stdin })) {
  const { command, values } = JSON.parse(line);
  try {
    say({ result: await commands[command](values) ?? null });
  } catch (err) {
    say({ error: String(err) });
  }
}
process.exit(0);
