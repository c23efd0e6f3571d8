#!/usr/bin/env node
// Runs the program, which npm installed in the optional dependency for this platform.
'use strict';
const { spawn } = require('node:child_process');

const name = `toolfinch-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/toolfinch${process.platform === 'win32' ? '.exe' : ''}`);
} catch {
  console.error(`toolfinch: the package ${name} is not installed.
Either there is none for ${process.platform} on ${process.arch}, or npm left optional dependencies out
(--omit=optional, or a node_modules that was copied from another platform): install again.`);
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: 'inherit' });
// The terminal sends Ctrl-C to both; how it ends is for the program to say.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => signal === 'SIGINT' && process.stdin.isTTY || child.kill(signal));
child.on('error', (error) => {
  console.error(`toolfinch: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
