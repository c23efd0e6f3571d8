// The clients of both versions of the TypeScript SDK, and of both protocol eras,
// behind one set of methods. Each connects to {command, args, env} or {url};
// `answer` answers what the server asks, `notified` gets what it says, and `transport`
// are options of the SDK's for HTTP.
const info = { name: 'toolfinch-features', version: '1.0.0' };
const timeout = 170_000;
const methods = ['elicitation/create', 'sampling/createMessage', 'roots/list'];
const answered = (capabilities) => methods.filter((method) => capabilities[method.split('/')[0]]);
const notifications = ['message', 'resources/updated', 'resources/list_changed', 'tools/list_changed', 'prompts/list_changed'].map((n) => `notifications/${n}`);

// common are the methods that the SDKs agree on.
function common(client) {
  return {
    lacks: [],
    session: () => client.transport.sessionId,
    instructions: () => client.getInstructions(),
    capabilities: () => client.getServerCapabilities(),
    listTools: () => client.listTools(),
    listPrompts: () => client.listPrompts(),
    listResources: () => client.listResources(),
    listResourceTemplates: () => client.listResourceTemplates(),
    getPrompt: (params) => client.getPrompt(params, { timeout }),
    readResource: (params) => client.readResource(params, { timeout }),
    complete: (params) => client.complete(params, { timeout }),
    subscribe: (uri) => client.subscribeResource({ uri }),
    unsubscribe: (uri) => client.unsubscribeResource({ uri }),
    logLevel: (level) => client.setLoggingLevel(level),
    sendRootsListChanged: () => client.sendRootsListChanged(),
    async close() {
      await client.transport.terminateSession?.();
      await client.close();
    },
  };
}

export async function connectV1({ name = info.name, command, args, env, url, transport, capabilities, answer, notified }) {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const types = await import('@modelcontextprotocol/sdk/types.js');
  const client = new Client({ ...info, name }, { capabilities });
  const schemas = Object.values(types).filter((value) => value?.shape?.method?.value);
  const schema = (method) => schemas.find((value) => value.shape.method.value === method);
  for (const method of answered(capabilities)) client.setRequestHandler(schema(method), ({ params }) => answer(method, params));
  for (const method of notifications) client.setNotificationHandler(schema(method), ({ params = {} }) => notified(method, params));
  await client.connect(command ? new StdioClientTransport({ command, args, env, stderr: 'inherit' }) : new StreamableHTTPClientTransport(new URL(url), transport));
  return {
    ...common(client),
    callTool: (params, options) => client.callTool(params, undefined, { timeout, ...options }),
    callRaw: (params) => client.request({ method: 'tools/call', params }, types.CallToolResultSchema, { timeout }),
    request: (method, params) => client.request({ method, params }, types.ResultSchema, { timeout }),
  };
}

export async function connectV2({ name = info.name, modern, command, args, env, url, transport, capabilities, answer, notified }) {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const { z } = await import('zod');
  const client = new Client({ ...info, name }, { capabilities, versionNegotiation: { mode: modern ? { pin: '2026-07-28' } : 'legacy' } });
  for (const method of answered(capabilities)) client.setRequestHandler(method, ({ params }) => answer(method, params));
  for (const method of notifications) client.setNotificationHandler(method, ({ params = {} }) => notified(method, params));
  await client.connect(command ? new StdioClientTransport({ command, args, env, stderr: 'inherit' }) : new StreamableHTTPClientTransport(new URL(url), transport));
  const methodsOf2 = {
    ...common(client),
    callTool: (params, options) => client.callTool(params, { timeout, ...options }),
    callRaw: (params) => client.request({ method: 'tools/call', params }, { timeout }),
    request: (method, params) => client.request({ method, params }, z.looseObject({}), { timeout }),
  };
  return modern ? stateless(client, methodsOf2) : methodsOf2;
}

// stateless is what differs in the 2026-07-28 era: a log level comes with each
// call, and changes are told on a stream that says which of them it wants.
function stateless(client, methodsOf2) {
  let level;
  let stream;
  const wanted = new Set();
  const listen = async () => {
    const before = stream;
    stream = await client.listen({ resourcesListChanged: true, resourceSubscriptions: [...wanted] });
    await before?.close();
  };
  return {
    ...methodsOf2,
    // A client of this era does not say that its roots have changed, and gets log lines with a call only.
    lacks: ['roots', 'roots/list_changed', 'log levels'],
    callTool: (params, options) => methodsOf2.callTool(level ? { ...params, _meta: { 'io.modelcontextprotocol/logLevel': level } } : params, options),
    // Answers are kept as long as the server allows, but changes must show here.
    listResources: () => client.listResources(undefined, { cacheMode: 'refresh' }),
    listTools: () => client.listTools(undefined, { cacheMode: 'refresh' }),
    logLevel: async (wantedLevel) => { level = wantedLevel; },
    subscribe: (uri) => { wanted.add(uri); return listen(); },
    unsubscribe: (uri) => { wanted.delete(uri); return listen(); },
    listen,
    async close() {
      await stream?.close();
      await client.close();
    },
  };
}
