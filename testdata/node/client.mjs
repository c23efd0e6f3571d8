// A client made of the TypeScript SDK, driven line by line: a request is one
// JSON object on standard input, its answer one on standard output. It lists
// the tools again whenever it is told that they changed, as agents do.
import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LoggingMessageNotificationSchema, ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const patience = 60_000;
let client;

// What arrived without being asked for, in order.
const relisted = []; // the tools, once for each list_changed
const logged = [];
let wake = () => {};
function fresh() {
  const one = new Client({ name: 'toolfinch-sdk-client', version: '1.0.0' });
  relisted.length = logged.length = 0;
  one.setNotificationHandler(ToolListChangedNotificationSchema, async () => {
    relisted.push((await one.listTools()).tools);
    wake();
  });
  one.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
    logged.push(params);
    wake();
  });
  return one;
}

// first answers the list's first element, waiting for it, and removes it.
async function first(list) {
  const timeout = setTimeout(() => wake(new Error('nothing came')), patience);
  try {
    while (list.length === 0) {
      await new Promise((resolve, reject) => { wake = (error) => (error ? reject(error) : resolve()); });
    }
  } finally {
    clearTimeout(timeout);
  }
  return list.shift();
}

const operations = {
  // It leaves what it was connected to.
  async connect({ command, args, env, cwd, url, sse }) {
    const transport = command
      ? new StdioClientTransport({ command, args, env, cwd, stderr: 'inherit' })
      : sse ? new SSEClientTransport(new URL(sse)) : new StreamableHTTPClientTransport(new URL(url));
    await operations.close();
    client = fresh();
    await client.connect(transport);
    return { server: client.getServerVersion(), instructions: client.getInstructions(), capabilities: client.getServerCapabilities(), pid: transport.pid };
  },
  async list() {
    return (await client.listTools()).tools;
  },
  relisted: () => first(relisted),
  logged: () => first(logged),
  async logLevel({ level }) {
    return client.setLoggingLevel(level);
  },
  // A call is given up after as many progress notifications as abortAfter says.
  async call({ name, arguments: args, abortAfter }) {
    const progress = [];
    const abort = new AbortController();
    const answer = (more) => ({ progress, ...more });
    try {
      const result = await client.callTool({ name, arguments: args }, undefined, {
        timeout: patience,
        signal: abort.signal,
        onprogress(p) {
          progress.push(p);
          if (progress.length === abortAfter) abort.abort('the client has lost interest');
        },
      });
      return answer({ result });
    } catch (error) {
      return answer({ error: { code: error.code, message: error.message, data: error.data } });
    }
  },
  async close() {
    await client?.transport?.terminateSession?.();
    await client?.close();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { operation, ...parameters } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await operations[operation](parameters)) ?? null };
  } catch (error) {
    answer = { failure: `${operation}: ${error.stack ?? error}` };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}
process.exit(0);
