// A server of skills (SEP-2640), made with the official TypeScript SDK: skills.mjs FOLDER [http].
// Each directory of the folder with a SKILL.md is a skill. What it says of the files is what they were
// at its start, and what it reads is what they are. Over HTTP it prints its URL first.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { Server, ResourceNotFoundError, ProtocolError, createMcpHandler } from 'typescript-server';
import { serveStdio } from 'typescript-server/stdio';
import { z } from 'zod';

const [folder, mode] = process.argv.slice(2);
const kept = { ttlMs: 60000, cacheScope: 'public' };
const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1)).sort();
const uri = (path) => `skill://${path.split('/').map(encodeURIComponent).join('/')}`;
const bytes = (path) => readFileSync(join(folder, path));
const markdown = (path) => (path.endsWith('.md') ? { mimeType: 'text/markdown' } : {});
const skills = files.filter((path) => path.endsWith('/SKILL.md')).map((path) => ({
  uri: uri(path),
  frontmatter: Object.fromEntries(bytes(path).toString().split(/^---$/m)[1].trim().split('\n').map((line) => line.split(/: (.*)/))),
  resources: files.filter((file) => file.startsWith(dirname(path) + '/')).map((file) => ({ uri: uri(file), digest: `sha256:${createHash('sha256').update(bytes(file)).digest('hex')}`, size: bytes(file).length })),
}));

function read({ params }) {
  const path = files.find((file) => uri(file) === params.uri);
  if (!path) throw new ResourceNotFoundError(params.uri);
  const text = bytes(path).toString();
  const content = Buffer.from(text).equals(bytes(path)) ? { text } : { blob: bytes(path).toString('base64') };
  return { contents: [{ uri: params.uri, ...markdown(path), ...content }] };
}

function get({ uri }) {
  const skill = skills.find((skill) => skill.uri === uri);
  if (!skill) throw new ProtocolError(-32602, `no skill ${uri}`);
  return { skill, ...kept };
}

// list answers one skill a page.
function list({ cursor }) {
  const at = Number(cursor ?? 0);
  return { skills: skills.slice(at, at + 1), ...(at + 1 < skills.length && { nextCursor: String(at + 1) }), ...kept };
}

function directory({ uri: of }) {
  const inside = files.map((file) => uri(file)).filter((file) => file.startsWith(`${of}/`)).map((file) => file.slice(of.length + 1).split('/'));
  if (inside.length === 0) throw new ProtocolError(-32602, `no directory ${of}`);
  const children = new Map(inside.map(([name, ...below]) => [name, { uri: `${of}/${name}`, name: decodeURIComponent(name), ...(below.length > 0 ? { mimeType: 'inode/directory' } : markdown(name)) }]));
  return { resources: [...children.values()], ...kept };
}

function make() {
  const server = new Server({ name: 'skills', version: '1.0.0' }, { capabilities: { resources: {}, extensions: { 'io.modelcontextprotocol/skills': { directoryRead: true } } } });
  server.setRequestHandler('resources/list', () => ({ resources: skills.map(({ uri, frontmatter: { name, description } }) => ({ uri, name, description, mimeType: 'text/markdown' })) }));
  server.setRequestHandler('resources/read', read);
  server.setRequestHandler('skills/list', { params: z.object({ cursor: z.string().optional() }) }, list);
  server.setRequestHandler('skills/get', { params: z.object({ uri: z.string() }) }, get);
  server.setRequestHandler('resources/directory/read', { params: z.object({ uri: z.string() }) }, directory);
  return server;
}

if (mode !== 'http') await serveStdio(make);
else {
  const handler = createMcpHandler(make);
  const server = createServer(async (req, res) => {
    const body = ['GET', 'DELETE'].includes(req.method) ? undefined : Readable.toWeb(req);
    const response = await handler.fetch(new Request(`http://${req.headers.host}${req.url}`, { method: req.method, headers: req.headers, body, duplex: 'half' }));
    res.writeHead(response.status, Object.fromEntries(response.headers));
    if (!response.body) return res.end();
    Readable.fromWeb(response.body).on('error', () => res.destroy()).pipe(res);
  });
  server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
  process.on('SIGTERM', () => { server.closeAllConnections(); server.close(); process.exit(0); });
}
