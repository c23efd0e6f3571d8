// Lists the skills of a server with a client of a version of the TypeScript SDK, which verifies nothing, and
// reads the files of each until a read is refused. It writes down what came: the digest of each file, or why
// it was refused. The argument is JSON: {sdk: 1 | 2, modern, command, args, env, url, query}. The conformance
// suite gives a URL alone.
import { createHash } from 'node:crypto';
import { connectV1, connectV2 } from './sdks.mjs';

const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const { sdk, query, ...target } = scenario ? { sdk: 2, modern: true, url: process.argv[2] } : JSON.parse(process.argv[2]);
const client = await (sdk === 1 ? connectV1 : connectV2)({ ...target, capabilities: {}, answer() {}, notified() {} });

async function read(uri) {
  try {
    const { contents: [{ text, blob }] } = await client.readResource({ uri });
    const bytes = text === undefined ? Buffer.from(blob, 'base64') : Buffer.from(text);
    return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  } catch (error) {
    return `refused: ${error.message}`;
  }
}

const out = { extension: client.capabilities().extensions?.['io.modelcontextprotocol/skills'], skills: [], files: {} };
for (let cursor; ;) {
  const page = await client.request('skills/list', { cursor });
  out.skills.push(...page.skills);
  if (!(cursor = page.nextCursor)) break;
}
for (const skill of scenario === 'sep-2640-client-no-prefetch' ? [] : out.skills) {
  for (const uri of [skill.uri, ...skill.resources.map((file) => file.uri).filter((uri) => uri !== skill.uri)]) {
    out.files[uri] = await read(uri);
    if (out.files[uri].startsWith('refused')) break;
  }
}
if (!scenario) {
  const [skill] = out.skills;
  out.same = JSON.stringify((await client.request('skills/get', { uri: skill.uri })).skill) === JSON.stringify(skill);
  out.directory = (await client.request('resources/directory/read', { uri: skill.uri.replace('/SKILL.md', '') })).resources.map(({ uri }) => uri);
  const said = async (name, args) => (await client.callTool({ name, arguments: args })).content.map(({ text }) => text).join('\n');
  out.found = await said('retrieve_tools', { query, kind: 'skill' });
  out.read = await said('read_skill', { uri: skill.uri });
}
await client.close();
console.log(JSON.stringify(out));
process.exit(0);
