// Threads: `populus build --threads N` appends this to populus.mjs. step_loop.py says how they share a launch.

const MOST_THREADS = +"@THREADS@", STACK = 1 << 17, STATE = 512, TICKET = 32, THREADS = 49; // bytes; words, as in steps.py

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
    if (!shared) return false;
    const words = new BigInt64Array(memory.buffer, state, STATE / 8);
    [words[TICKET], words[THREADS]] = [1n, BigInt(this.size)];
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

  close() {
    for (const worker of this.#workers ?? []) worker.terminate();
    this.#workers = undefined;
  }
}
