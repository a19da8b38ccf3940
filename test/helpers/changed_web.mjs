// Loads changed pairs of a module and its weights: node changed_web.mjs FILE, with {folder, other, seed, pairs, way}. Prints what came of them.
// `way`: `digests`; `sums`, as in a page without HTTPS; `forged`: the sums are made right, and the identities.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const { folder, other, seed, pairs, way } = JSON.parse(fs.readFileSync(process.argv[2]));
if (way === "sums") Object.defineProperty(globalThis, "crypto", { value: undefined });
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
const SUMS = 7, IDENTITY = 36; // words of the header; bytes before a module's end
const long = (value) => BigInt.asUintN(64, value);
const folded = (columns) => columns.reduce((found, column) => ((found = long((found ^ column) * 0xbf58476d1ce4e5b9n)), found ^ (found >> 31n)), 0n);
function summed(module) { // a module with a right sum at its end
  const bytes = module.slice(), end = bytes.length - 4;
  new DataView(bytes.buffer).setUint32(end, bytes.subarray(0, end).reduce((sum, byte) => Math.imul(sum ^ byte, 0x01000193), 0x811c9dc5) >>> 0, true);
  return bytes;
}
function totalled(weights) { // a file with right sums, and the identity of the module
  const words = new BigUint64Array(weights.slice().buffer), one = Array(8).fill(0n), two = one.slice();
  words.set(new BigUint64Array(own[0].slice(-IDENTITY, -IDENTITY + 16).buffer), 2);
  words.fill(0n, SUMS, SUMS + 2);
  words.forEach((word, i) => ((one[i % 8] = long(one[i % 8] + word)), (two[i % 8] = long(two[i % 8] + one[i % 8]))));
  words.set([folded(one), folded(two)], SUMS);
  return new Uint8Array(words.buffer);
}
const forged = ([module, weights]) => [module.length > 40 ? summed(module) : module, weights.length % 64 || !weights.length ? weights : totalled(weights)];
const place = fs.mkdtempSync(path.join(folder, "forged-"));
fs.copyFileSync(path.join(folder, "populus.mjs"), path.join(place, "populus.mjs"));
const { load: beside } = await import(pathToFileURL(path.join(place, "populus.mjs")));
const run = async (pair) => {
  if (way !== "forged") return (await load({ module: pair[0], weights: pair[1] })).run({ x });
  pair.forEach((bytes, i) => fs.writeFileSync(path.join(place, ["model.wasm", "model.bin"][i]), bytes));
  return (await beside(undefined, { relaxed: false })).run({ x });
};
const expected = (await run(own)).y;
const found = { refused: 0, taken: 0, crashed: [], texts: [] };
for (let i = 0; i < pairs; ) {
  const which = draw(2), changed = own.with(which, draw(50) ? CHANGES[draw(CHANGES.length)](own[which]) : foreign[which]);
  const pair = way === "forged" ? forged(changed) : changed;
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
