// A server made of the TypeScript SDK of which one process runs in all replicas. It has the tools of
// the other servers of TestReplicasUnderChaos, asks nobody anything, and writes to the file KEPT_LOG
// the identifier of each call, in one line.
import { appendFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';

const server = new McpServer({ name: 'kept', version: '1.0.0' });

for (const name of ['echo', 'steps', 'ask']) {
  server.registerTool(name, { description: 'Say an identifier again.', inputSchema: { id: z.string() } }, async ({ id }, extra) => {
    appendFileSync(process.env.KEPT_LOG, `${id}\n`);
    const progressToken = extra._meta?.progressToken;
    for (let progress = 0; name === 'steps' && progress < 3; progress++) {
      if (progressToken !== undefined) await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, message: id } });
      await setTimeout(20);
    }
    return { content: [{ type: 'text', text: id }] };
  });
}

await server.connect(new StdioServerTransport());
