// A server, without an SDK, that lists the definitions of a file whatever they
// are: {"tools": [...], "prompts": [...], ...}, each as the text of its JSON, so
// that no writer of JSON puts it right.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const lists = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const say = (id, member, value) => process.stdout.write(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"${member}":${value}}\n`);
const members = { 'tools/list': 'tools', 'prompts/list': 'prompts', 'resources/list': 'resources', 'resources/templates/list': 'resourceTemplates' };
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method } = JSON.parse(line);
  if (id === undefined) continue;
  if (method === 'initialize') {
    say(id, 'result', '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"odd","version":"1"}}');
  } else if (members[method]) {
    say(id, 'result', `{"${members[method]}":[${lists[members[method]].join(',')}]}`);
  } else {
    say(id, 'error', '{"code":-32601,"message":"method not found"}');
  }
}
