// Runs a program with workers: node web_threads.mjs FILE, with {folder, threads, x}. Prints its outputs' bits, and what its workers did.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { setTimeout as slept } from "node:timers/promises";
import { Worker } from "node:worker_threads";

const { folder, threads, x } = JSON.parse(fs.readFileSync(process.argv[2]));
const { load } = await import(pathToFileURL(path.join(folder, "populus.mjs")));
const own = Worker.prototype.postMessage, ends = Worker.prototype.terminate, found = { threads: [], outputs: [], asleep: 0, taken: 0, ended: 0 };
let given;
Worker.prototype.postMessage = function (message) {
  given = message;
  return own.call(this, message);
};
Worker.prototype.terminate = function () {
  found.ended++;
  return ends.call(this);
};
const input = Object.fromEntries(Object.entries(x).map(([name, text]) => [name, new Float32Array(Uint8Array.from(Buffer.from(text, "base64")).buffer)]));
const program = await load(undefined, { threads });
const run = () => {
  const bits = Object.values(program.run(input)).map((y) => Buffer.from(y.buffer).toString("base64")).join();
  if (!found.outputs.includes(bits)) found.outputs.push(bits);
};
found.threads.push(program.threads);
run();
const asleep = () => Atomics.notify(new Int32Array(given.memory.buffer), given.state / 4);
const until = async (met) => {
  for (let i = 0; i < 1000 && !met(); i++) await slept(20);
};
await until(() => given && (found.asleep = Math.max(found.asleep, asleep())) === threads - 1);
await until(() => { // chunks of the last job that workers took
  run();
  found.taken = Number((Atomics.load(new BigInt64Array(given.memory.buffer), given.state / 8) >> 10n) & 1023n);
  return found.taken > 0;
});
await until(() => (found.again = Math.max(found.again ?? 0, asleep())) === threads - 1);
const words = new BigInt64Array(given.memory.buffer, given.state, 64); // a job of a kernel that there is not, which a worker takes
for (const [word, value] of [[16, 0n], [17, 0n], [1, 99999n], [2, 0n], [3, 1n], [4, 1n]]) Atomics.store(words, word, value);
Atomics.store(words, 0, ((words[0] >> 20n) + 1n) << 20n);
await until(() => (asleep(), Atomics.load(words, 16) === 1n));
found.failed = Number(words[17]);
run();
program.close();
run();
found.threads.push(program.threads);
console.log(JSON.stringify(found));
