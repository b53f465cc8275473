// Translates lines with Bergamot's engine: node bergamot.cjs WORKER.js FOLDER < lines > lines
// FOLDER holds model.bin, lex.bin, vocab.spm and engine.json, as the engine's settings.
const {readFileSync} = require('node:fs');
const {join, resolve} = require('node:path');
const {Worker} = require('node:worker_threads');

const [worker, folder] = process.argv.slice(2);
const thread = new Worker(resolve(worker));
const waiting = new Map();
thread.on('message', ({id, result, error}) => {
  const {accept, reject} = waiting.get(id);
  error === undefined ? accept(result) : reject(new Error(error.message));
});
thread.on('error', fail);

function fail(error) {
  console.error(error);
  process.exit(1);
}

function call(name, ...args) {
  return new Promise((accept, reject) => {
    const id = waiting.size;
    waiting.set(id, {accept, reject});
    thread.postMessage({id, name, args});
  });
}

function buffer(name) {
  const bytes = readFileSync(join(folder, name));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
}

async function main() {
  const pair = {from: 'xx', to: 'yy'};
  await call('initialize', {cacheSize: 0});
  await call('loadTranslationModel', pair, {
    model: buffer('model.bin'),
    shortlist: buffer('lex.bin'),
    vocabs: [buffer('vocab.spm')],
    config: JSON.parse(readFileSync(join(folder, 'engine.json'), 'utf-8')),
  });
  const lines = readFileSync(0, 'utf-8').trimEnd().split('\n');
  const texts = lines.map(text => ({text, html: false, qualityScores: false}));
  const found = await call('translate', {models: [pair], texts});
  console.log(found.map(each => each.target.text).join('\n'));
  thread.terminate();
}

main().catch(fail);
