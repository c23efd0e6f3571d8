// A client that uses everything the server of @modelcontextprotocol/
// server-everything offers, and writes down what it saw as one JSON object, by
// feature. It does the same through a proxy; names that start with `prefix` are
// then written down without it, others belong to the proxy and are left out.
// What is never the same twice (times, random IDs) is written down as a mark.
//
// The one argument is JSON: {sdk: 1 | 2, modern, command, args, env, url, prefix}.
import { connectV1, connectV2 } from './sdks.mjs';

const { sdk, prefix = '', ...target } = JSON.parse(process.argv[2]);
const patience = 120_000;
const name = 'Ada of the features';
const png = /^iVBORw0KGgo/;

// What the server said without being asked, and what it asked.
const said = [];
const asked = [];
let roots = [{ uri: 'file:///one', name: 'one' }, { uri: 'file:///two', name: 'two' }];
const form = {
  name, check: true, firstLine: 'Call me Ishmael.', email: 'ada@example.com', homepage: 'https://example.com/ada', birthdate: '1815-12-10',
  integer: 7, number: 2.5, untitledSingleSelectEnum: 'Ross', untitledMultipleSelectEnum: ['Drums', 'Bass'],
  titledSingleSelectEnum: 'hero-2', titledMultipleSelectEnum: ['fish-3'], legacyTitledEnum: 'pet-4',
};
let action = 'accept';
const answers = {
  'elicitation/create': (params) => (action === 'accept' && params.mode !== 'url' ? { action, content: form } : { action }),
  'sampling/createMessage': () => ({ role: 'assistant', model: 'a model of the features', content: { type: 'text', text: `${name} thinks so` }, stopReason: 'endTurn' }),
  'roots/list': () => ({ roots }),
};

const client = await (sdk === 1 ? connectV1 : connectV2)({
  ...target,
  // A client of 2026-07-28 is another with each call, so a legacy server would
  // ask for its roots in each.
  capabilities: { ...(!target.modern && { roots: { listChanged: true } }), sampling: {}, elicitation: { form: {}, url: {} } },
  answer(method, params) {
    if (method !== 'roots/list') asked.push({ method, params: bare(params) });
    return answers[method](params);
  },
  notified(method, params) {
    said.push({ method, params: bare(params) });
  },
});

// bare is a value without what is never the same twice, and without what the
// protocol adds to a request for its own use.
function bare(value, key) {
  if (typeof value === 'string') {
    if (key === 'blob') {
      const text = Buffer.from(value, 'base64').toString();
      return text.startsWith('Resource ') ? bare(text) : value;
    }
    return value
      .replace(/\d{1,2}:\d\d:\d\d [AP]M/g, '<time>')
      .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<uuid>');
  }
  if (Array.isArray(value)) return value.map((v) => bare(v));
  if (value === null || typeof value !== 'object') return value;
  const out = {};
  for (const [k, v] of Object.entries(value)) {
    if (k === '_meta') {
      const own = Object.entries(v).filter(([m]) => m !== 'progressToken' && !m.startsWith('io.modelcontextprotocol/'));
      if (own.length > 0) out[k] = bare(Object.fromEntries(own));
    } else if (!(k === 'resultType' && v === 'complete') && k !== 'ttlMs' && k !== 'cacheScope') {
      out[k] = bare(v, k);
    }
  }
  return out;
}

// attempt is a promise's result, or the error it fails with.
async function attempt(promise) {
  try {
    return bare(await promise);
  } catch (error) {
    return { error: { code: error.code, message: bare(error.message), data: bare(error.data) } };
  }
}

// until asks again until the answer is right.
async function until(what, get, right) {
  for (const end = Date.now() + patience; ;) {
    const got = await get();
    if (right(got)) return got;
    if (Date.now() > end) throw new Error(`${what}: still ${JSON.stringify(got)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const heard = (what, right) => until(what, () => said.find(right), Boolean);
const call = (tool, args = {}, options) => client.callTool({ name: prefix + tool, arguments: args }, options);
const ownNames = (list) => list.filter((one) => one.name.startsWith(prefix) && !['retrieve_tools', 'call_tool'].includes(one.name))
  .map((one) => bare({ ...one, name: one.name.slice(prefix.length) }));

// asking is a call's result with what was asked meanwhile.
async function asking(promise) {
  asked.length = 0;
  const result = await attempt(promise);
  return { result, asked: asked.splice(0) };
}

const features = {
  async instructions() {
    const text = client.instructions() ?? '';
    const start = text.indexOf('# Everything Server');
    return start < 0 ? text : text.slice(start, start + 300);
  },

  async capabilities() {
    const { tools, prompts, resources, completions, logging } = client.capabilities();
    return { tools, prompts, resources, completions, logging };
  },

  // The server adds tools once it knows its client.
  async 'tools/list'() {
    const tools = await until('the tools of the server', async () => ownNames((await client.listTools()).tools), (list) => list.length >= 17);
    return tools.sort((a, b) => (a.name < b.name ? -1 : 1)); // a proxy has an order of its own
  },
  'prompts/list': async () => ownNames((await client.listPrompts()).prompts),
  'resources/list': async () => bare((await client.listResources()).resources),
  'resources/templates/list': async () => bare((await client.listResourceTemplates()).resourceTemplates),

  echo: () => attempt(call('echo', { message: 'über 😀' })),
  'a tool with arguments that do not fit': async () => /message/.test(JSON.stringify(await attempt(call('echo', { message: 7 })))),
  sum: () => attempt(call('get-sum', { a: 20, b: 22.5 })),
  async environment() {
    const [block, ...more] = (await call('get-env')).content;
    return { path: typeof JSON.parse(block.text).PATH, more };
  },
  async annotations() {
    const all = {};
    for (const messageType of ['error', 'success', 'debug']) all[messageType] = await attempt(call('get-annotated-message', { messageType, includeImage: true }));
    return all;
  },
  async image() {
    const result = await attempt(call('get-tiny-image'));
    if (!result.content.some((block) => block.type === 'image' && png.test(block.data))) throw new Error('there is no image');
    return result;
  },
  'structured content': () => attempt(call('get-structured-content', { location: 'Chicago' })),
  'a tool that insists on a task': () => attempt(client.callRaw({ name: `${prefix}simulate-research-query`, arguments: { topic: 'tea' } })),

  async 'resource links'() {
    const result = await attempt(call('get-resource-links', { count: 4 }));
    const links = result.content.filter((block) => block.type === 'resource_link');
    if (links.length !== 4) throw new Error(`there are ${links.length} links`);
    const behind = [];
    for (const { uri } of links) behind.push(await attempt(client.readResource({ uri })));
    return { result, behind };
  },
  async 'embedded resources'() {
    return [await attempt(call('get-resource-reference', { resourceType: 'Text', resourceId: 3 })), await attempt(call('get-resource-reference', { resourceType: 'Blob', resourceId: 4 }))];
  },

  async 'prompts/get'() {
    return [
      await attempt(client.getPrompt({ name: `${prefix}simple-prompt` })),
      await attempt(client.getPrompt({ name: `${prefix}args-prompt`, arguments: { city: 'Köln', state: 'NRW' } })),
      await attempt(client.getPrompt({ name: `${prefix}completable-prompt`, arguments: { department: 'Sales', name: 'Eve' } })),
      await attempt(client.getPrompt({ name: `${prefix}resource-prompt`, arguments: { resourceType: 'Blob', resourceId: '5' } })),
      'error' in await attempt(client.getPrompt({ name: `${prefix}args-prompt`, arguments: {} })),
      'error' in await attempt(client.getPrompt({ name: `${prefix}no-such-prompt` })),
    ];
  },

  async 'resources/read'() {
    const all = [];
    for (const { uri } of (await client.listResources()).resources) all.push(await attempt(client.readResource({ uri })));
    for (const uri of ['demo://resource/dynamic/text/6', 'demo://resource/dynamic/blob/7']) all.push(await attempt(client.readResource({ uri })));
    all.push('error' in await attempt(client.readResource({ uri: 'demo://resource/dynamic/text/zero' })));
    all.push('error' in await attempt(client.readResource({ uri: 'demo://nowhere' })));
    return all;
  },

  async completion() {
    const prompt = (name, argument, value, args) => attempt(client.complete({
      ref: { type: 'ref/prompt', name: prefix + name }, argument: { name: argument, value }, ...(args && { context: { arguments: args } }),
    }));
    const template = (uri, value) => attempt(client.complete({ ref: { type: 'ref/resource', uri }, argument: { name: 'resourceId', value } }));
    const all = [
      await prompt('completable-prompt', 'department', 'S'),
      await prompt('completable-prompt', 'name', '', { department: 'Sales' }),
      await prompt('completable-prompt', 'name', 'I', { department: 'Marketing' }),
      await prompt('resource-prompt', 'resourceType', 'B'),
      await template('demo://resource/dynamic/text/{resourceId}', '12'),
      await template('demo://resource/dynamic/blob/{resourceId}', 'no number'),
    ];
    if (all[1].completion.values.length !== 3) throw new Error('the context did not arrive');
    return all;
  },

  async progress() {
    let seen, result;
    for (let n = 0; n < 5 && !(seen?.length > 1); n += 1) { // the SDK drops what it reads together with the result: the last one, and on a busy machine more
      seen = [];
      result = await attempt(call('trigger-long-running-operation', { duration: 0.3, steps: 3 }, { onprogress: (p) => seen.push(p) }));
    }
    return { result, seen: seen.slice(0, 2) };
  },

  async cancellation() {
    const abort = new AbortController();
    let seen = 0;
    const result = await attempt(call('trigger-long-running-operation', { duration: 1, steps: 10 }, {
      signal: abort.signal,
      onprogress() {
        seen += 1;
        if (seen === 1) abort.abort('the client has lost interest');
      },
    }));
    return { result, alive: await attempt(call('echo', { message: 'still here' })) };
  },

  sampling: () => asking(call('trigger-sampling-request', { prompt: 'Is it so?', maxTokens: 20 })),

  async elicitation() {
    const all = [];
    for (action of ['accept', 'decline', 'cancel']) all.push(await asking(call('trigger-elicitation-request')));
    action = 'accept';
    return all;
  },

  async 'URL elicitation'() {
    const all = [];
    for (action of ['accept', 'decline', 'cancel']) {
      all.push(await asking(call('trigger-url-elicitation', { url: 'https://example.com/sign', message: 'Please sign.', elicitationId: `sign-${action}` })));
    }
    action = 'accept';
    return all;
  },

  // Of the legacy era the client gets an error with what to do first, and calls
  // again; in the other this is one call.
  async 'URL elicitation by error'() {
    const args = { url: 'https://example.com/pay', message: 'Please pay.', elicitationId: 'pay', errorPath: true };
    return { first: target.modern ? undefined : await asking(call('trigger-url-elicitation', args)), last: (await asking(call('trigger-url-elicitation', args))).result };
  },

  // The server may have asked for roots before there was a client to ask.
  async roots() {
    return (await until('the roots', () => attempt(call('get-roots-list')), ({ content }) => content?.[0].text.includes('file:///two')));
  },

  async 'roots/list_changed'() {
    roots = [...roots, { uri: 'file:///three', name: 'three' }];
    await client.sendRootsListChanged();
    return (await until('the new roots', () => attempt(call('get-roots-list')), ({ content }) => content?.[0].text.includes('file:///three')));
  },

  async 'log lines of a call'() {
    await client.logLevel('debug');
    said.length = 0;
    await call('toggle-simulated-logging');
    const { params: { level, data } } = await heard('a log line', ({ method, params }) => method === 'notifications/message' && / ?level[ -]message|-level message/.test(params.data));
    await call('toggle-simulated-logging');
    return { level: typeof level, data: typeof data };
  },

  // The server logs each subscription with level info.
  async 'log levels'() {
    const [quiet, loud] = ['demo://resource/dynamic/text/80', 'demo://resource/dynamic/text/81'];
    said.length = 0;
    await client.logLevel('error');
    await client.subscribe(quiet);
    await client.logLevel('info');
    await client.subscribe(loud);
    const line = await heard('a log line', ({ params }) => params.data?.includes?.(loud));
    if (said.some(({ params }) => params.data?.includes?.(quiet))) throw new Error('a line came that was not wanted');
    await client.unsubscribe(quiet);
    await client.unsubscribe(loud);
    return line;
  },

  async 'resources/updated'() {
    const uri = 'demo://resource/dynamic/text/9';
    const [updated, other] = [{ uri }, { uri: 'demo://resource/static/document/features.md' }];
    said.length = 0;
    await client.subscribe(updated.uri);
    await client.subscribe(other.uri);
    await client.unsubscribe(other.uri);
    const toggled = await attempt(call('toggle-subscriber-updates'));
    const update = await heard('an update', ({ method }) => method === 'notifications/resources/updated');
    await call('toggle-subscriber-updates');
    await client.unsubscribe(updated.uri);
    return { toggled, update, others: said.filter(({ method, params }) => method === 'notifications/resources/updated' && params.uri !== uri).length };
  },

  async 'resources/list_changed'() {
    await client.listen?.();
    said.length = 0;
    const args = { name: 'made.gz', data: 'data:text/plain,features', outputType: 'resourceLink' };
    const link = await attempt(call('gzip-file-as-resource', args));
    await heard('a list_changed', ({ method }) => method === 'notifications/resources/list_changed');
    const { uri } = link.content[0];
    const made = await until('the new resource', async () => (await client.listResources()).resources.find((one) => one.uri === uri), Boolean);
    return { link, made: bare(made), read: await attempt(client.readResource({ uri })), embedded: await attempt(call('gzip-file-as-resource', { ...args, name: 'other.gz', outputType: 'resource' })) };
  },
};

const seen = {};
for (const [feature, use] of Object.entries(features)) {
  if (client.lacks.includes(feature)) continue;
  try {
    seen[feature] = await use();
  } catch (error) {
    seen[feature] = { failure: String(error.stack ?? error) };
  }
}
await client.close();
process.stdout.write(JSON.stringify(seen), () => process.exit(0));
