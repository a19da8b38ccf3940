// Threads: `populus build --threads N` appends this to populus.mjs. step_loop.py says how they share a launch.

const MOST_THREADS = +"@THREADS@", STACK = 1 << 20, STATE = 512, CHUNKS = 5, TICKET = 32; // bytes; words, as in steps.py
const WOKEN = 60000, SHARE = 6000, PART = 4000, PARTS = 4; // ns of a run from which workers help, of a shared launch, of a chunk; chunks each

class Team { // the caller and workers, which sleep until a run has work to share
  #workers = [];

  static async of(module, at, threads) { // `bytes`: the module for `memory`, which is shared if there are several threads
    const team = new Team(), isolated = inNode() || globalThis.crossOriginIsolated;
    if (threads !== undefined && !(Number.isInteger(threads) && threads >= 1 && threads <= MOST_THREADS))
      throw new Error(`threads is ${threads}; the program was built for 1 to ${MOST_THREADS}`);
    const cores = inNode() ? (await import("node:os")).availableParallelism() : globalThis.navigator?.hardwareConcurrency ?? 1;
    team.size = isolated ? threads ?? Math.min(cores, MOST_THREADS) : 1;
    let place = at + 1;
    const number = () => { // LEB128
      let n = 0, shift = 0;
      for (;;) {
        const byte = module[place++];
        n += (byte & 127) * 2 ** shift;
        shift += 7;
        if (byte < 128) return n;
      }
    };
    team.memory = { initial: number(), maximum: number(), shared: team.size > 1 };
    team.bytes = module;
    if (team.size === 1) (team.bytes = module.slice())[at] = 1;
    return team;
  }

  end(state) { // of memory: the state, then a stack for each worker
    return state + STATE + (this.size - 1) * STACK;
  }

  started(module, memory, state, { shared }) {
    if (shared < WOKEN) return false;
    new BigInt64Array(memory.buffer, state, STATE / 8)[TICKET] = 1n;
    this.#begin({ module, memory, state }).catch(() => this.close()); // the caller alone does all then
    return true;
  }

  async #begin(given) {
    const own = inNode() ? (await import("node:worker_threads")).Worker : Worker;
    for (let n = 1; n < this.size && this.#workers; n++) {
      const worker = new own(new URL("./worker.mjs", import.meta.url), { type: "module" });
      if (inNode()) worker.on("error", () => {}).unref();
      else worker.onerror = (event) => event.preventDefault();
      worker.postMessage({ ...given, stack: given.state + STATE + n * STACK });
      this.#workers.push(worker);
    }
  }

  cut(words) { // each launch into chunks
    for (let row = 0; row < words.length; row += 8) {
      if (words[row] !== 0n) continue;
      const units = Number(words[row + 3]), work = Number(words[row + 4]);
      let most = Math.min(PARTS * this.size, Math.max(this.size, Math.floor(work / PART)));
      if (most < units) most -= most % this.size;
      words[row + CHUNKS] = BigInt(work < SHARE ? 1 : Math.min(most, units));
    }
  }

  close() {
    for (const worker of this.#workers ?? []) worker.terminate();
    this.#workers = undefined;
  }
}
