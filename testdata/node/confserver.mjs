// A server of the conformance suite's scenarios, made with either version of the
// TypeScript SDK: confserver.mjs v1|v2 [stdio|stateless]. It asks its client the
// way that SDK documents: in the legacy era with a request in the middle of a
// call, in the 2026-07-28 era with an input_required result. Over HTTP it prints
// its URL first; legacy clients have sessions there, except with stateless, which
// is the plain handler of version 2.
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { randomUUID } from 'node:crypto';

const [version, mode] = process.argv.slice(2);
const info = { name: `typescript-${version}`, version: '1.0.0' };
const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const silence = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==';
const text = (value) => ({ type: 'text', text: value });
const image = { type: 'image', data: pixel, mimeType: 'image/png' };
const embedded = (uri, value = 'A resource.', mimeType = 'text/plain') => ({ type: 'resource', resource: { uri, mimeType, text: value } });
const says = (...content) => async () => ({ content });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const titled = ['1', '2', '3'].map((n) => ({ const: `value${n}`, title: `Choice ${n}` }));
const options = ['option1', 'option2', 'option3'];

// elicits is a tool that shows the user a form.
const elicits = (intro, properties, required, message = () => 'Please review.') => async (args, client) => {
  const answer = await client.ask('form', 'elicitation/create', { mode: 'form', message: message(args), requestedSchema: { type: 'object', properties, ...(required && { required }) } });
  return answer.pending ?? { content: [text(`${intro}action=${answer.action}, content=${JSON.stringify(answer.content)}`)] };
};

const tools = {
  test_simple_text: says(text('This is a simple text response for testing.')),
  test_image_content: says(image),
  test_audio_content: says({ type: 'audio', data: silence, mimeType: 'audio/wav' }),
  test_embedded_resource: says(embedded('test://embedded-resource')),
  test_multiple_content_types: says(text('Multiple content types test:'), image, embedded('test://mixed-content-resource', '{"test":"data","value":123}', 'application/json')),
  // What reached the server: the _meta of the request, and the names of the environment.
  test_request_meta: async (_, client) => ({ content: [text(JSON.stringify({ meta: client.meta, environment: Object.keys(process.env) }))] }),
  test_error_handling: async () => ({ content: [text('This tool intentionally returns an error for testing')], isError: true }),
  async test_tool_with_logging(_, client) {
    for (const line of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await client.log('info', line);
      await pause(50);
    }
    return { content: [text('three lines logged')] };
  },
  async test_tool_with_progress(_, client) {
    for (const progress of [0, 50, 100]) {
      if (client.token !== undefined) await client.notify('notifications/progress', { progressToken: client.token, progress, total: 100 });
      await pause(50);
    }
    return { content: [text('progress reported')] };
  },
  async test_sampling({ prompt }, client) {
    const answer = await client.ask('model', 'sampling/createMessage', { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 });
    return answer.pending ?? { content: [text(`LLM response: ${answer.content?.text}`)] };
  },
  test_elicitation: elicits('User response: ', { username: { type: 'string', description: "User's response" }, email: { type: 'string', description: "User's email address" } }, ['username', 'email'], ({ message }) => message),
  test_elicitation_sep1034_defaults: elicits('Elicitation completed: ', {
    name: { type: 'string', default: 'John Doe' }, age: { type: 'integer', default: 30 }, score: { type: 'number', default: 95.5 },
    status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' }, verified: { type: 'boolean', default: true },
  }),
  test_elicitation_sep1330_enums: elicits('Elicitation completed: ', {
    untitledSingle: { type: 'string', enum: options }, titledSingle: { type: 'string', oneOf: titled },
    legacyEnum: { type: 'string', enum: options, enumNames: ['Option One', 'Option Two', 'Option Three'] },
    untitledMulti: { type: 'array', items: { type: 'string', enum: options } }, titledMulti: { type: 'array', items: { anyOf: titled } },
  }),
  async test_input_required_result_elicitation(_, client) {
    const answer = await client.ask('user_name', 'elicitation/create', { mode: 'form', message: 'What is your name?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } });
    return answer.pending ?? { content: [text(`Hello, ${answer.content?.name}!`)] };
  },
  async test_input_required_result_list_roots(_, client) {
    const answer = await client.ask('client_roots', 'roots/list', {});
    return answer.pending ?? { content: [text(JSON.stringify(answer.roots))] };
  },
};
tools.test_logging_tool = tools.test_tool_with_logging;
tools.test_streaming_elicitation = tools.test_input_required_result_elicitation;
tools.test_missing_capability = says(text('no capability is needed'));
tools.json_schema_2020_12_tool = says(text('ok'));
const rich = {
  $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object',
  $defs: { address: { $anchor: 'addressDef', type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
  properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' }, contactMethod: { type: 'string', enum: ['phone', 'email'] }, phone: { type: 'string' }, email: { type: 'string' } },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] }, then: { required: ['phone'] }, else: { required: ['email'] },
  additionalProperties: false,
};
const parameters = { test_sampling: ['prompt'], test_elicitation: ['message'] };
const schema = (names = []) => ({ type: 'object', properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])) });

const prompts = {
  test_simple_prompt: () => [text('This is a simple prompt for testing.')],
  test_prompt_with_image: () => [image, text('Please analyze the image above.')],
  test_prompt_with_arguments: ({ arg1, arg2 }) => [text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  test_prompt_with_embedded_resource: ({ resourceUri }) => [embedded(resourceUri), text('Please process the embedded resource above.')],
};
const promptArguments = { test_prompt_with_arguments: ['arg1', 'arg2'], test_prompt_with_embedded_resource: ['resourceUri'] };

const resources = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: pixel },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Nothing new.' },
};
const template = /^test:\/\/template\/(.*)\/data$/;

// read answers resources/read; absent makes the error of the SDK.
const read = (absent) => ({ uri }) => {
  const id = template.exec(uri)?.[1];
  if (id) return { contents: [{ uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) }] };
  if (!resources[uri]) throw absent(uri);
  return { contents: [{ uri, ...resources[uri] }] };
};

// answers are the handlers by method, of the params and the client.
const answers = (absent) => ({
  'tools/list': () => ({ tools: Object.keys(tools).map((name) => ({ name, description: name, inputSchema: name === 'json_schema_2020_12_tool' ? rich : schema(parameters[name]) })) }),
  'tools/call': ({ name, arguments: args }, client) => tools[name]?.(args ?? {}, client) ?? { content: [text(`unknown tool ${name}`)], isError: true },
  'prompts/list': () => ({ prompts: Object.keys(prompts).map((name) => ({ name, description: name, arguments: (promptArguments[name] ?? []).map((argument) => ({ name: argument, required: true })) })) }),
  'prompts/get': ({ name, arguments: args }) => ({ messages: prompts[name](args ?? {}).map((content) => ({ role: 'user', content })) }),
  'resources/list': () => ({ resources: Object.entries(resources).map(([uri, { mimeType }]) => ({ uri, name: uri, mimeType })) }),
  'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }] }),
  'resources/read': read(absent),
  'resources/subscribe': () => ({}),
  'resources/unsubscribe': () => ({}),
  'completion/complete': ({ argument }) => {
    const values = ['paris', 'park', 'party', 'test', 'testing'].filter((word) => word.startsWith(argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  },
});
const capabilities = { tools: {}, prompts: {}, resources: { subscribe: true }, completions: {}, logging: {} };

async function makeV1() {
  const { Server } = await import('@modelcontextprotocol/sdk/server/index.js');
  const types = await import('@modelcontextprotocol/sdk/types.js');
  const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
  const { WebStandardStreamableHTTPServerTransport: Transport } = await import('@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js');
  const requests = Object.values(types).filter((value) => value?.shape?.method?.value);
  const results = { 'elicitation/create': types.ElicitResultSchema, 'sampling/createMessage': types.CreateMessageResultSchema, 'roots/list': types.ListRootsResultSchema };
  const make = () => {
    const server = new Server(info, { capabilities });
    for (const [method, answer] of Object.entries(answers((uri) => new types.McpError(-32002, 'Resource not found', { uri })))) {
      server.setRequestHandler(requests.find((one) => one.shape.method.value === method), ({ params }, extra) => answer(params ?? {}, {
        meta: extra._meta,
        token: extra._meta?.progressToken,
        notify: (method, params) => extra.sendNotification({ method, params }),
        log: (level, data) => extra.sendNotification({ method: 'notifications/message', params: { level, data } }),
        ask: (_, method, params) => extra.sendRequest({ method, params }, results[method]),
      }));
    }
    return server;
  };
  return { stdio: () => make().connect(new StdioServerTransport()), fetch: sessions(make, Transport) };
}

async function makeV2() {
  const sdk = await import('typescript-server');
  const { serveStdio } = await import('typescript-server/stdio');
  const make = ({ era } = {}) => {
    const server = new sdk.Server(info, { capabilities });
    for (const [method, answer] of Object.entries(answers((uri) => new sdk.ResourceNotFoundError(uri)))) {
      server.setRequestHandler(method, ({ params }, { mcpReq }) => answer(params ?? {}, {
        meta: mcpReq._meta,
        token: mcpReq._meta?.progressToken,
        notify: (method, params) => mcpReq.notify({ method, params }),
        log: mcpReq.log,
        async ask(key, method, params) {
          // Without a session no answer can come.
          if (era !== 'modern') return mcpReq.send({ method, params }, mode === 'stateless' ? { timeout: 1000 } : undefined);
          return mcpReq.inputResponses?.[key] ?? { pending: { resultType: 'input_required', inputRequests: { [key]: { method, params } } } };
        },
      }));
    }
    return server;
  };
  if (mode === 'stateless') return sdk.createMcpHandler(make);
  const modern = sdk.createMcpHandler(make, { legacy: 'reject' });
  const legacy = sessions(() => make(), sdk.WebStandardStreamableHTTPServerTransport);
  return { stdio: () => serveStdio(make), fetch: async (request) => ((await sdk.isLegacyRequest(request)) ? legacy(request) : modern.fetch(request)) };
}

// sessions serves a server for each session of the legacy era.
function sessions(make, Transport) {
  const open = new Map();
  return async (request) => {
    const id = request.headers.get('mcp-session-id');
    if (id) return open.get(id)?.handleRequest(request) ?? new Response(null, { status: 404 });
    const transport = new Transport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => { open.set(id, transport); },
      onsessionclosed: (id) => { open.delete(id); },
    });
    await make().connect(transport);
    return transport.handleRequest(request);
  };
}

// serve answers HTTP requests with fetch, if their Host is this machine.
function serve(fetch) {
  const server = createServer(async (req, res) => {
    const closed = new AbortController();
    res.on('close', () => closed.abort());
    const local = (name) => ['localhost', '127.0.0.1', '[::1]'].includes(name);
    const origin = req.headers.origin;
    if (!local(req.headers.host.replace(/:\d+$/, '')) || (origin && !local(new URL(origin).hostname))) return res.writeHead(403).end();
    const body = ['GET', 'DELETE'].includes(req.method) ? undefined : Readable.toWeb(req);
    const response = await fetch(new Request(`http://${req.headers.host}${req.url}`, { method: req.method, headers: req.headers, body, duplex: 'half', signal: closed.signal }));
    res.writeHead(response.status, Object.fromEntries(response.headers));
    res.flushHeaders();
    if (!response.body) return res.end();
    Readable.fromWeb(response.body).on('error', () => res.destroy()).pipe(res);
  });
  server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
  process.on('SIGTERM', () => { server.closeAllConnections(); server.close(); process.exit(0); });
}

const made = await { v1: makeV1, v2: makeV2 }[version]();
if (mode === 'stdio') await made.stdio();
else serve(made.fetch);
