// Loads changed pairs of a module and its weights: node changed_web.mjs FILE, with {folder, other, seed, pairs}. Prints what came of them.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const { folder, other, seed, pairs } = JSON.parse(fs.readFileSync(process.argv[2]));
const { load } = await import(pathToFileURL(path.join(folder, "populus.mjs")));
const files = (from) => ["model.wasm", "model.bin"].map((file) => new Uint8Array(fs.readFileSync(path.join(from, file))));
const own = files(folder), foreign = files(other);
let state = seed;
const draw = (n) => Math.floor(((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32) * n);
const filled = (bytes, begin, end) => bytes.slice().fill(draw(256), begin, end);
const CHANGES = [
  (b) => { const c = b.slice(); c[draw(b.length)] ^= 1 << draw(8); return c; },
  (b) => { const c = b.slice(); c[draw(Math.min(b.length, 256))] ^= 1 + draw(255); return c; }, // in the header
  (b) => b.slice(0, draw(b.length)),
  (b) => { const c = new Uint8Array(b.length + 1 + draw(99)); c.set(b); return c; },
  (b) => { const at = draw(b.length); return filled(b, at, at + 1 + draw(64)); },
  (b) => { const at = draw(b.length - 16), to = draw(b.length - 16); return b.slice().copyWithin(to, at, at + 16); },
];
const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);
const x = Float32Array.from({ length: 384 }, () => draw(1000) / 500 - 1);
const run = async ([module, weights]) => (await load({ module, weights })).run({ x });
const expected = (await run(own)).y;
const found = { refused: 0, taken: 0, crashed: [], texts: [] };
for (let i = 0; i < pairs; ) {
  const pair = own.slice(), which = draw(2);
  pair[which] = draw(50) ? CHANGES[draw(CHANGES.length)](own[which]) : foreign[which];
  if (same(pair[which], own[which])) continue;
  i++;
  try {
    await run(pair);
    found.taken++;
  } catch (error) {
    if (error.constructor === Error && !error.message.includes("\n")) found.refused++;
    else found.crashed.push(`${error.constructor.name}: ${error.message}`);
    const text = error.message.replace(/\d+/g, "N");
    if (!found.texts.includes(text)) found.texts.push(text);
  }
}
found.right = same((await run(own)).y, expected) ? "the results of the files as they were" : "other results";
console.log(JSON.stringify(found));
