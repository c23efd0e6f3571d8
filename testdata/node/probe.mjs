// A server made of the TypeScript SDK whose tools show what reached them.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';

const server = new McpServer({ name: 'probe', version: '1.0.0' }, { capabilities: { logging: {} } });
const text = (value) => ({ content: [{ type: 'text', text: JSON.stringify(value) }] });
const given = []; // the reasons why waits were given up
let tell;

server.registerTool('wait_until_cancelled', {
  description: 'Report progress once, then wait until the caller gives up.',
}, async (extra) => {
  const cancelled = new Promise((resolve) => extra.signal.addEventListener('abort', resolve));
  await extra.sendNotification({
    method: 'notifications/progress',
    params: { progressToken: extra._meta.progressToken, progress: 1, message: 'waiting' },
  });
  await cancelled;
  given.push(String(extra.signal.reason));
  tell?.();
  return text('cancelled');
});

server.registerTool('cancelled_waits', {
  description: 'Wait until a wait has been cancelled, and tell the reasons so far.',
  annotations: { readOnlyHint: true },
}, async () => {
  while (given.length === 0) await new Promise((resolve) => { tell = resolve; });
  return text(given);
});

server.registerTool('log_line', {
  description: 'Write one line to the log of the caller.',
  inputSchema: { line: z.string() },
}, async ({ line }, extra) => {
  await extra.sendNotification({ method: 'notifications/message', params: { level: 'warning', logger: 'probe', data: line } });
  return text('logged');
});

server.registerTool('learn_trick', {
  description: 'Offer one more tool from now on.',
  inputSchema: { name: z.string(), description: z.string() },
}, async ({ name, description }) => {
  server.registerTool(name, { description }, async () => text(`${name} done`));
  return text('learned');
});

await server.connect(new StdioServerTransport());
