// Clients of both versions of the TypeScript SDK, legacy ones and of 2026-07-28, which call
// one thing after another until standard input ends, and check that what they are answered,
// asked and told is their own. Each line of output is one JSON object: {ready}, {failed: a
// call, began, end, error}, {wrong} and at the end of each client {client, ...}.
//
// The one argument is JSON: {url, each, upstreams, timeout}; each is the clients of each era.
import { connectV1, connectV2 } from './sdks.mjs';

const { url, each, upstreams, timeout } = JSON.parse(process.argv[2]);
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let working = true;
process.stdin.resume().on('end', () => { working = false; });

async function join(connect, modern, name) {
  const seen = { client: name, modern, calls: 0, told: 0, asked: 0, changed: 0 };
  const own = (message) => message?.startsWith(`${name} `) || say({ wrong: `${name} got ${JSON.stringify(message)}` });
  const client = await connect({
    name, url, modern,
    capabilities: { elicitation: { form: {} } },
    transport: { reconnectionOptions: { initialReconnectionDelay: 200, maxReconnectionDelay: 2000, reconnectionDelayGrowFactor: 1.5, maxRetries: 50 } },
    answer(method, { message }) {
      seen.asked += 1;
      own(message);
      return { action: 'accept', content: { answer: message } };
    },
    notified(method) {
      if (method !== 'notifications/tools/list_changed') return;
      seen.changed += 1;
      client.listTools().catch(() => {}); // for a client that never does nothing is registered
    },
  });
  const search = { name: 'retrieve_tools', arguments: { query: 'say an identifier again', limit: 1, server: 'up0' } };
  await client.listTools(); // who never did is not told of changes
  await client.callTool(search);
  const session = client.session();
  return async () => {
    for (let n = 0; working; n += 1) {
      const id = `${name} ${n}`;
      const server = `up${n % upstreams}`;
      let [call, wanted] = [{ name: `${server}_echo`, arguments: { id } }, id];
      if (n % 8 === 2) call.name = `${server}_steps`;
      if (n % 8 === 4) call.name = `${server}_ask`;
      if (n % 8 === 6) [call, wanted] = [search, 'up0_echo'];
      const began = Date.now();
      try {
        const text = JSON.stringify(await client.callTool(call, {
          timeout,
          ...(n % 8 === 2 && { onprogress({ message }) { seen.told += 1; own(message); } }),
        }));
        if (text.includes('"isError":true')) throw new Error(text);
        if (!text.includes(wanted)) say({ wrong: `${call.name} with ${id} is answered ${text}` });
      } catch (error) {
        say({ failed: `${call.name} ${id}`, began, end: Date.now(), error: String(error?.message ?? error) });
      }
      seen.calls += 1;
      await pause(20); // the SDK keeps a listener for each call
    }
    const { tools } = await client.listTools();
    say({ ...seen, kept: client.session() === session, registered: tools.some((tool) => tool.name === 'up0_echo') });
    await client.close();
  };
}

const all = [];
for (let i = 0; i < each; i += 1) {
  all.push(await join(connectV1, false, `v1-${i}`), await join(connectV2, true, `v2-${i}`));
}
say({ ready: true });
await Promise.all(all.map((work) => work()));
process.exit(0);
