// A server made of the TypeScript SDK that asks nobody anything until its one
// tool is called, and writes to the file ASKER_LOG when a call was given up: it
// was cancelled, or got no answer to its question.
import { appendFileSync } from 'node:fs';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { ElicitResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

const server = new McpServer({ name: 'asker', version: '1.0.0' });

server.registerTool('ask', {
  description: 'Ask the user for a name.',
  inputSchema: { message: z.string() },
}, async ({ message }, extra) => {
  const givenUp = () => appendFileSync(process.env.ASKER_LOG, `given up: ${message}\n`);
  extra.signal.addEventListener('abort', givenUp);
  const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
  try {
    const answer = await extra.sendRequest({ method: 'elicitation/create', params: { message, requestedSchema } }, ElicitResultSchema);
    return { content: [{ type: 'text', text: answer.content.name }] };
  } catch (error) {
    givenUp();
    throw error;
  }
});

server.registerTool('echo', {
  description: 'Say it again.',
  inputSchema: { message: z.string() },
}, async ({ message }) => ({ content: [{ type: 'text', text: message }] }));

await server.connect(new StdioServerTransport());
