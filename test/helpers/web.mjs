// Runs programs that `populus build --cpu wasm32` wrote: node web.mjs FILE, a list of {folder, runs, options, states}. Prints what came of each.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const ARRAYS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array, uint64: BigUint64Array, int32: Int32Array, uint32: Uint32Array,
  int16: Int16Array, uint16: Uint16Array, float16: Uint16Array, bfloat16: Uint16Array, int8: Int8Array, int4: Int8Array, int2: Int8Array };
const plain = ({ type, bytes }) => new (ARRAYS[type] ?? Uint8Array)(Uint8Array.from(Buffer.from(bytes, "base64")).buffer);
const array = (entry) => (entry.shape ? { data: plain(entry), shape: entry.shape } : plain(entry));
const bytes = (a) => Buffer.from(a.buffer, a.byteOffset, a.byteLength).toString("base64");
const named = (entries, of) => Object.fromEntries(Object.entries(entries).map(([name, entry]) => [name, of(entry)]));

const found = [];
for (const { folder, runs, options, states } of JSON.parse(fs.readFileSync(process.argv[2]))) {
  const came = { runs: [] };
  found.push(came);
  try {
    const { load } = await import(pathToFileURL(path.join(folder, "populus.mjs")));
    const program = await load(undefined, options);
    Object.assign(came, { bits: program.bits, relaxed: program.relaxed });
    for (const inputs of runs) {
      try {
        came.runs.push({ outputs: named(program.run(named(inputs, array)), bytes) });
      } catch (error) {
        came.runs.push({ error: `${error.constructor.name}: ${error.message}` });
      }
    }
    came.states = Object.fromEntries((states ?? []).map((name) => [name, bytes(program.state(name))]));
  } catch (error) {
    came.error = `${error.constructor.name}: ${error.message}`;
  }
}
console.log(JSON.stringify(found));
