// Times of one model in one Node process, the engines in turns: node web.mjs FILE, with {folder, model, inputs, ort, rounds, threads}. Prints JSON.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const { folder, model, inputs, ort, rounds, threads } = JSON.parse(fs.readFileSync(process.argv[2]));
const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, uint8: Uint8Array, int8: Int8Array };
const given = inputs.map(({ name, type, shape, file }) => {
  const bytes = fs.readFileSync(file);
  return { name, type, shape, data: new ARRAYS[type](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)) };
});
const lanes = [], starts = {};
const { load } = await import(pathToFileURL(path.join(folder, "populus.mjs")));
const arrays = Object.fromEntries(given.map(({ name, data }) => [name, data]));
for (const [label, options] of [["relaxed", {}], ["plain", { relaxed: false }], ...(threads > 1 ? [["threads", { threads }]] : [])]) {
  const begun = performance.now(), program = await load(undefined, { threads: 1, ...options });
  const run = () => program.run(arrays);
  run();
  starts[label] = performance.now() - begun;
  lanes.push({ label, run, bits: program.bits, times: [] });
}
const begun = performance.now(), dist = path.join(ort, "dist"), web = await import(pathToFileURL(path.join(dist, "ort.wasm.min.mjs")));
Object.assign(web.env.wasm, { numThreads: 1, wasmPaths: `${pathToFileURL(dist).href}/` });
web.env.logLevel = "error";
const session = await web.InferenceSession.create(new Uint8Array(fs.readFileSync(model)), { executionProviders: ["wasm"], graphOptimizationLevel: "all" });
const tensors = Object.fromEntries(given.map(({ name, type, shape, data }) => [name, new web.Tensor(type, data, shape)]));
const run = async () => Object.fromEntries(Object.entries(await session.run(tensors)).map(([name, tensor]) => [name, tensor.data]));
await run();
starts.ort = performance.now() - begun;
lanes.push({ label: "ort", run, times: [] });
for (const lane of lanes) for (let i = 0; i < 4; i++) lane.last = await lane.run(); // until the optimising compiler is done
for (let round = 0; round < rounds; round++)
  for (const lane of lanes) {
    const from = performance.now();
    lane.last = await lane.run();
    lane.times.push(performance.now() - from);
  }
const expected = lanes.at(-1).last;
const apart = (found) => Object.entries(expected).reduce((worst, [name, wanted]) => {
  let most = 0, difference = 0;
  for (let i = 0; i < wanted.length; i++) {
    most = Math.max(most, Math.abs(Number(wanted[i])));
    difference = Math.max(difference, Math.abs(Number(wanted[i]) - Number(found[name][i])));
  }
  return Math.max(worst, difference / (most || 1));
}, 0);
console.log(JSON.stringify(lanes.map(({ label, times, bits, last }) => ({ label, times, bits: bits ?? "", start: starts[label], apart: apart(last) }))));
process.exit(0);
