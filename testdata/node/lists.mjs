// Lists everything with a client of a version of the TypeScript SDK and writes
// down the names, or why the client refused a list. The one argument is JSON:
// {sdk: 1 | 2, modern, command, args, env}.
import { connectV1, connectV2 } from './sdks.mjs';

const { sdk, ...target } = JSON.parse(process.argv[2]);
const client = await (sdk === 1 ? connectV1 : connectV2)({ ...target, capabilities: { elicitation: {}, sampling: {}, roots: {} }, answer() {}, notified() {} });
const out = {};
for (const [list, member, key] of [['listTools', 'tools', 'name'], ['listPrompts', 'prompts', 'name'], ['listResources', 'resources', 'uri'], ['listResourceTemplates', 'resourceTemplates', 'uriTemplate']]) {
  try {
    out[member] = { names: (await client[list]())[member].map((definition) => definition[key]) };
  } catch (error) {
    out[member] = { failure: String(error?.message ?? error).slice(0, 2000) };
  }
}
await client.close();
console.log(JSON.stringify(out));
process.exit(0);
