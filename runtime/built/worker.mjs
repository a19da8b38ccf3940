// A thread of a program in populus.mjs: it takes chunks of launches, and sleeps while there are none.

const DONE = 16, FAILED = 17; // words of the state, as in steps.py

function begin({ data: { module, memory, state, stack } }) {
  const { exports } = new WebAssembly.Instance(module, { env: { memory, fmod: (a, b) => a % b, fmodf: (a, b) => a % b } });
  exports.stack.value = stack;
  for (;;)
    try {
      exports.worker(state, 1n);
      return;
    } catch { // a kernel that traps has done its chunk, as the caller waits for all
      const words = new BigInt64Array(memory.buffer, state, 64);
      Atomics.store(words, FAILED, 1n);
      Atomics.add(words, DONE, 1n);
    }
}

if (globalThis.process?.versions?.node) import("node:worker_threads").then(({ parentPort }) => parentPort.once("message", (data) => begin({ data })));
else onmessage = begin;
