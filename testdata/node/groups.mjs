// A client of the TypeScript SDK that declares the draft extension groups, reads every group, and calls a tool in one.
// The one argument is JSON: {modern, command, args, env} or {modern, url}.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const { modern, url, ...command } = JSON.parse(process.argv[2]);
const capabilities = { extensions: { 'io.modelcontextprotocol/groups': {} } };
const client = new Client({ name: 'groups', version: '1' }, { capabilities, versionNegotiation: { mode: modern ? { pin: '2026-07-28' } : 'legacy' } });
await client.connect(url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport({ ...command, stderr: 'inherit' }));
const any = { '~standard': { version: 1, vendor: 'any', validate: (value) => ({ value }) } };
const names = (all) => all.map(({ name }) => name);
const out = { declared: client.getServerCapabilities().extensions, listed: names((await client.listTools()).tools), groups: {} };
for (const { name, description } of (await client.request({ method: 'groups/list', params: {} }, any)).groups) {
  const { contents } = await client.request({ method: 'groups/get', params: { name } }, any);
  out.groups[name] = { description, tools: names(contents.tools) };
}
out.unknown = await client.request({ method: 'groups/get', params: { name: 'unknown' } }, any).catch((error) => error.code);
out.said = (await client.callTool({ name: 'everything_echo', arguments: { message: 'hello' } })).content[0].text;
await client.close();
console.log(JSON.stringify(out));
process.exit(0);
