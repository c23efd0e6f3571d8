// A client made of either version of the TypeScript SDK that makes calls with the params
// that it was told, _meta among them, and writes down the results as one JSON array.
//
// The one argument is JSON: {sdk: 1 | 2, modern, command, args, env, url, calls: [params]}.
import { connectV1, connectV2 } from './sdks.mjs';

const { sdk, calls, ...target } = JSON.parse(process.argv[2]);
const client = await (sdk === 1 ? connectV1 : connectV2)({ ...target, capabilities: { elicitation: { form: {} }, sampling: {}, ...(sdk === 1 && { roots: {} }) }, answer() {}, notified() {} });
const results = [];
for (const params of calls) results.push(await client.callRaw(params));
await client.close();
process.stdout.write(JSON.stringify(results));
process.exit(0);
