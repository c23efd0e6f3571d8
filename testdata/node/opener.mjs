// A client of the TypeScript SDK whose user opens the pages that calls ask for. Its only
// argument is JSON: {sdk: 1|2, modern, url, name}. It prints {"open": URL} for each page, and
// {"result"} or {"failed"} of the call in the end. A line on its standard input
// says that the page is open.
import { createInterface } from 'node:readline';
import { connectV1, connectV2 } from './sdks.mjs';

const { sdk, modern, url, name } = JSON.parse(process.argv[2]);
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function open(page) {
  say({ open: page });
  await input.next();
}

try {
  const client = await { 1: connectV1, 2: connectV2 }[sdk]({
    modern, url, capabilities: { ...(!modern && { roots: {} }), sampling: {}, elicitation: { url: {} } }, notified() {},
    async answer(method, { mode, url: page }) {
      if (method !== 'elicitation/create' || mode !== 'url') return { action: 'decline' };
      await open(page);
      return { action: 'accept' };
    },
  });
  const call = () => client.callTool({ name, arguments: {} });
  let result;
  try {
    result = await call();
  } catch (error) { // 2025-11-25: the client opens them, and calls again
    if (error.code !== -32042) throw error;
    for (const elicitation of error.elicitations) await open(elicitation.url);
    result = await call();
  }
  say({ result });
} catch (error) {
  say({ failed: String(error?.stack ?? error) });
}
process.exit(0);
