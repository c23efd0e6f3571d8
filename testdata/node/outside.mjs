// A streamable HTTP server of the TypeScript SDK, version 1 or 2 (the first argument), with a session for each client.
// What it asks and says in a call belongs to no call: it goes over the stream of GET, and is dropped if there is none.
// `add` adds the tool `added`. It prints its port.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { z } from 'zod';

const sdks = {
  v1: async () => [(await import('@modelcontextprotocol/sdk/server/mcp.js')).McpServer, (await import('@modelcontextprotocol/sdk/server/streamableHttp.js')).StreamableHTTPServerTransport],
  v2: async () => [(await import('@modelcontextprotocol/server')).McpServer, (await import('@modelcontextprotocol/node')).NodeStreamableHTTPServerTransport],
};
const [McpServer, Transport] = await sdks[process.argv[2]]();

function serve() {
  const mcp = new McpServer({ name: 'outside', version: '1.0.0' }, { capabilities: { logging: {}, tools: { listChanged: true } } });
  const text = (text) => ({ content: [{ type: 'text', text }] });
  mcp.registerTool('ask', { description: 'Asks the user for a name.', inputSchema: z.object({}) }, async () => {
    const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } };
    await mcp.server.sendLoggingMessage({ level: 'info', data: 'it asks' });
    const answer = await mcp.server.elicitInput({ message: 'Who?', requestedSchema }, { timeout: 5000 });
    return text(answer.content.name);
  });
  mcp.registerTool('add', { description: 'Adds a tool.', inputSchema: z.object({}) }, async () => {
    mcp.registerTool('added', { description: 'Was added.', inputSchema: z.object({}) }, async () => text('it was added'));
    return text('done');
  });
  return mcp;
}

const sessions = new Map();
const http = createServer(async (request, response) => {
  let transport = sessions.get(request.headers['mcp-session-id']);
  if (!transport) {
    transport = new Transport({ sessionIdGenerator: randomUUID, onsessioninitialized: (id) => sessions.set(id, transport) });
    await serve().connect(transport);
  }
  await transport.handleRequest(request, response);
});
http.listen(0, '127.0.0.1', () => console.log(http.address().port));
