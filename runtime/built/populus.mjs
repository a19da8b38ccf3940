// Loads and runs a program that `populus build --cpu wasm32` wrote. form.py describes the file of weights, step_loop.py the steps.

const NAME = "@NAME@", RELAXED = "@RELAXED@", DIGESTS = '@DIGESTS@'; // RELAXED: empty without a relaxed module; DIGESTS: of the modules
const HEAD = ["magic", "version", "id0", "id1", "machine", "features", "size", "sum0", "sum1", "steps", "words", "relocs", "memory",
  "inputs", "outputs", "states", "atWords", "atRelocs", "atTensors", "atTexts", "texts", "atData", "shared", "kernels", "loading", "atRaw", "packed"];
const HEADER = 256, PAGE = 65536, IN = 16, OUT = 17, SUMS = 7, RECORD = 56, VERSION = 2n, PIECE = 1 << 20;
const MAGIC = 0x0073756c75706f70n, MACHINE = 0x6d736177n;
const FORMS = [["float32", Float32Array], ["uint8", Uint8Array], ["int8", Int8Array], ["uint16", Uint16Array], ["int16", Int16Array],
  ["int32", Int32Array], ["int64", BigInt64Array], , ["bool", Uint8Array], ["float16", Uint16Array], ["float64", Float64Array],
  ["uint32", Uint32Array], ["uint64", BigUint64Array], , , ["bfloat16", Uint16Array], ["float8_e4m3fn", Uint8Array],
  ["float8_e4m3fnuz", Uint8Array], ["float8_e5m2", Uint8Array], ["float8_e5m2fnuz", Uint8Array], ["uint4", Uint8Array], ["int4", Int8Array],
  ["float4_e2m1fn", Uint8Array], ["float8_e8m0fnu", Uint8Array], ["uint2", Uint8Array], ["int2", Int8Array]]; // of element types, from 1 on
const FLOAT32 = 1;
// A module with one function of v128.const, and one with f32x4.relaxed_madd.
const SIMD = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 22, 1, 20, 0, 253, 12, ...Array(16).fill(0), 11];
const MADD = [0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 123, 123, 1, 123, 3, 2, 1, 0, 10, 13, 1, 11, 0, 32, 0, 32, 1, 32, 0, 253, 133, 2, 11];
const SHARED = [3, 101, 110, 118, 6, 109, 101, 109, 111, 114, 121, 2, 3]; // of a module: that it imports env.memory, which is shared
const accepted = (code) => WebAssembly.validate(new Uint8Array(code));
const up = (n, to) => Math.ceil(n / to) * to;
const product = (shape) => shape.reduce((a, b) => a * b, 1);
const listed = (tensors) => tensors.map((t) => t.name).join(", ") || "none";
const inNode = () => Boolean(globalThis.process?.versions?.node);

async function* pieces(source, what) { // of a file, as they come
  if (!(source instanceof URL)) {
    if (!(source instanceof ArrayBuffer) && !ArrayBuffer.isView(source)) throw new Error(`${what}: a URL or bytes are expected`);
    yield ArrayBuffer.isView(source) ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength) : new Uint8Array(source);
    return;
  }
  try {
    if (source.protocol === "file:" && inNode()) {
      const file = await (await import("node:fs/promises")).open(source);
      try { // into two pieces in turn, as new pages of memory cost more than their bytes
        for (let read = file.read(new Uint8Array(PIECE)), other = new Uint8Array(PIECE); ; ) {
          const { bytesRead: n, buffer } = await read;
          if (!n) return;
          read = file.read(other);
          yield buffer.subarray(0, n);
          other = buffer;
        }
      } finally {
        await file.close();
      }
    }
    const answer = await fetch(source);
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    const reader = answer.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw new Error(`${what} cannot be read: ${error.message}`);
  }
}

async function whole(source, what) {
  const found = [];
  for await (const piece of pieces(source, what)) found.push(piece.slice());
  const bytes = new Uint8Array(found.reduce((n, piece) => n + piece.length, 0));
  let at = 0;
  for (const piece of found) bytes.set(piece, at), (at += piece.length);
  return bytes;
}

function checked(bytes) { // of a module that is whole: its identity and its weights' digest, with which and the sum of all before it ends
  let sum = 0x811c9dc5;
  const end = bytes.length - 4;
  for (let i = 0; i < end; i++) sum = Math.imul(sum ^ bytes[i], 0x01000193);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (end < 40 || view.getUint32(end, true) !== sum >>> 0) throw new Error("the module is cut or changed; build it again");
  return [32, 24, 16, 8].map((before) => view.getBigUint64(end - before, true));
}

async function digest(bytes) { // as words; a page without HTTPS has no digests, and its scripts can be changed too
  const { subtle } = globalThis.crypto ?? {};
  return subtle && new BigUint64Array(await subtle.digest("SHA-256", bytes.buffer instanceof ArrayBuffer ? bytes : bytes.slice()));
}

function folded(columns) { // as in form.py
  let found = 0n;
  for (const column of columns) {
    found = BigInt.asUintN(64, (found ^ column) * 0xbf58476d1ce4e5b9n);
    found ^= found >> 31n;
  }
  return found;
}

function shared(bytes) { // the place where a module says that its memory is shared; 0: it is not
  for (let at = 0; at < bytes.length - SHARED.length; at++) if (SHARED.every((byte, i) => bytes[at + i] === byte)) return at + SHARED.length - 1;
  return 0;
}

function arraysOf(type) {
  const own = FORMS[type - 1][1];
  if (own === Uint16Array && FORMS[type - 1][0] === "float16" && globalThis.Float16Array) return [own, globalThis.Float16Array];
  return own === Uint8Array ? [own, Uint8ClampedArray] : [own];
}

function* fronts(shape, full) { // runs of elements: where each begins in an array, and in a buffer whose front the array is; their number
  let whole = shape.length;
  while (whole && shape[whole - 1] === full[whole - 1]) whole--;
  const turns = whole > 1 ? product(shape.slice(0, whole - 1)) : 1, count = product(shape) / (turns || 1);
  for (let turn = 0; turn < turns; turn++) {
    let to = 0, step = product(full.slice(whole - 1)), rest = turn;
    for (let d = whole - 2; d >= 0; step *= full[d--]) (to += (rest % shape[d]) * step), (rest = Math.floor(rest / shape[d]));
    yield [turn * count, to, count];
  }
}

class Program {
  #memory; #exports; #at; #h = {}; #words; #tensors = {}; #sizes; #team; #job = 0; // address of the job that threads share; 0: one thread

  static async _loaded(module, weights, { relaxed, progress, threads, known }) {
    const given = await module, identity = checked(given), at = shared(given), p = new Program(), own = known && (await digest(given));
    if (at && typeof Team === "undefined") throw new Error("the program has threads; load it by the populus.mjs of its own build");
    if (own && String(own.slice(0, 2)) !== known) throw new Error("the module is not that of this populus.mjs; both come from one build");
    const team = at ? await Team.of(given, at, threads) : undefined, bytes = team?.bytes ?? given;
    if (!at && threads !== undefined && threads !== 1) throw new Error(`threads is ${threads}; the program was built for 1`);
    p.#memory = new WebAssembly.Memory(team?.memory ?? { initial: 32 });
    const env = { memory: p.#memory, fmod: (a, b) => a % b, fmodf: (a, b) => a % b };
    const { instance, module: compiled } = await WebAssembly.instantiate(bytes, { env });
    p.#exports = instance.exports;
    const [sizes] = WebAssembly.Module.customSections(compiled, "populus.sizes");
    if (sizes && typeof Sizes === "undefined") throw new Error("the program has open sizes; load it by the populus.mjs of its own build");
    if (sizes) p.#sizes = new Sizes(JSON.parse(new TextDecoder().decode(sizes)), p.#tensors, (name) => p.state(name), (t, value) => p.#fill(t, value));
    const one = 1 + 2 ** -12; // its square has a bit that a product which is rounded before it is added does not have
    p.bits = p.#exports.fused(one, one, -1 - 2 ** -11) === 2 ** -24 ? "native" : "unfused";
    p.relaxed = relaxed;
    await p.#store(weights, identity, progress);
    p.#bind();
    p.#pack();
    p.threads = 1;
    if (team?.size > 1) p.#share(team, compiled);
    return p;
  }

  #reserve(end) {
    const more = Math.ceil((end - this.#memory.buffer.byteLength) / PAGE);
    try {
      if (more > 0) this.#memory.grow(more);
    } catch {
      throw new Error(`the program needs ${Math.ceil(end / 2 ** 20)} MiB of memory, which the browser does not give`);
    }
  }

  async #store(weights, identity, progress) {
    const at = (this.#at = up(this.#exports.heap.value, 4096)), h = this.#h, parts = [];
    let known = 0, begin = 0, stop = HEADER; // of the part that comes
    this.#reserve(at + HEADER);
    for await (const piece of weights) {
      let from = 0;
      while (from < piece.length) {
        const take = Math.min(piece.length - from, stop - known);
        if (take <= 0) throw new Error(`the weights have more than ${h.size} bytes; both files come from one build`);
        new Uint8Array(this.#memory.buffer).set(piece.subarray(from, from + take), this.#place(known));
        from += take;
        known += take;
        if (known === HEADER) this.#readHead(identity);
        else if (known < stop) continue;
        else {
          parts.push(digest(new Uint8Array(this.#memory.buffer, this.#place(begin), stop - begin))); // while more comes
          await parts.at(-8); // each has a copy
          begin = stop;
        }
        stop = Math.min(begin + PIECE, begin < h.atRaw ? h.atRaw : h.size);
      }
      if (progress) progress(known, h.size ?? known);
    }
    if (known !== h.size) throw new Error(`the weights have ${known} bytes instead of ${h.size ?? "more"}; the file is cut`);
    const found = await Promise.all(parts), { buffer } = this.#memory, changed = "the weights are changed; build them again";
    if (found[0]) {
      const all = await digest(BigUint64Array.from(found.flatMap((part) => [...part])));
      if (all[0] !== identity[2] || all[1] !== identity[3]) throw new Error(changed);
      return;
    }
    const head = new BigUint64Array(buffer, at, HEADER / 8), sums = head.slice(SUMS, SUMS + 2);
    head.fill(0n, SUMS, SUMS + 2);
    this.#exports.sums(at, BigInt(h.atRaw / 64), this.#words); // which is 0 as yet
    this.#exports.sums(this.#place(h.atRaw), BigInt((h.size - h.atRaw) / 64), this.#words);
    const total = new BigUint64Array(buffer, this.#words, 16).slice();
    if (folded(total.subarray(0, 8)) !== sums[0] || folded(total.subarray(8)) !== sums[1]) throw new Error(changed);
  }

  #place(offset) { // of the file in memory: what loading packs is at its end
    const h = this.#h;
    return offset < (h.atRaw ?? HEADER) ? this.#at + offset : h.arena + h.memory - (h.size - offset);
  }

  #readHead(identity) {
    const head = new BigUint64Array(this.#memory.buffer, this.#at, HEADER / 8), h = this.#h;
    HEAD.forEach((name, i) => (h[name] = Number(head[i])));
    if (head[0] !== MAGIC || head[1] !== VERSION || head[4] !== MACHINE) throw new Error("the weights are no file of a program for wasm32");
    if (head[2] !== identity[0] || head[3] !== identity[1]) throw new Error("the weights are those of another module; both come from one build");
    const places = [h.size, h.atRaw, h.memory, h.size - h.atRaw].every((n) => n >= 0 && n % 64 === 0) && h.size - h.atRaw <= h.memory;
    if (!places || h.atRaw < HEADER || h.size > 2 ** 32 || h.words > 2 ** 29) throw new Error("the weights are changed; build them again");
    this.#words = this.#at + h.atRaw;
    h.arena = up(this.#words + 8 * Math.max(h.words, 16), 128);
    this.#reserve(h.arena + h.memory);
  }

  #bind() { // adds addresses to the words
    const h = this.#h, at = this.#at, buffer = this.#memory.buffer;
    new Uint8Array(buffer).copyWithin(this.#words, at + h.atWords, at + h.atWords + 8 * h.words);
    const low = new Int32Array(buffer, this.#words, 2 * h.words), bases = [1, at, h.arena, this.#words]; // a kernel is a slot of the table, from 1 on
    for (const r of new Uint32Array(buffer, at + h.atRelocs, h.relocs)) {
      const word = 2 * (r >>> 2), value = low[word] >>> 0;
      low[word] = (r & 3) === 1 ? this.#place(value) : value + bases[r & 3];
      low[word + 1] = 0;
    }
    let first = 0;
    for (const role of ["inputs", "outputs", "states"]) {
      this.#tensors[role] = Array.from({ length: h[role] }, (_, i) => this.#tensor(first + i, role));
      this[role] = this.#given(role).map(({ name, type, shape, most }) => Object.freeze({ name, type, shape, ...(shape !== most && { most }) }));
      first += h[role];
    }
  }

  #pack() { // fills the memory's front from its end, which then is 0
    const h = this.#h;
    if (!h.loading) return;
    this.#walked(h.loading);
    new Uint8Array(this.#memory.buffer).fill(0, h.arena + h.packed, h.arena + h.memory);
  }

  #share(team, module) {
    const h = this.#h, state = up(h.arena + h.memory, 128);
    this.#reserve(team.end(state));
    if (team.started(module, this.#memory, state, h)) [this.#job, this.#team, this.threads] = [state, team, team.size];
  }

  close() { // ends the workers; further runs have one thread
    this.#team?.close();
    [this.#job, this.#team, this.threads] = [0, undefined, 1];
  }

  #given(role) { // what the caller knows of
    return this.#sizes?.given(role) ?? this.#tensors[role];
  }

  #tensor(number, role) {
    const longs = new DataView(this.#memory.buffer), at = this.#at;
    const long = (offset) => Number(longs.getBigInt64(at + offset, true));
    const [name, shape, code, rank, , place, kept] = Array.from({ length: 7 }, (_, i) => long(this.#h.atTensors + RECORD * number + 8 * i));
    const most = Object.freeze(Array.from({ length: rank }, (_, i) => long(shape + 8 * i))), named = this.#text(name);
    return { name: named, type: FORMS[code - 1][0], shape: this.#sizes?.shape(role, named, most) ?? most, most, code, place, kept };
  }

  #text(offset) {
    const bytes = new Uint8Array(this.#memory.buffer), begin = this.#at + offset;
    return new TextDecoder().decode(bytes.slice(begin, bytes.indexOf(0, begin)));
  }

  #fitting(what, tensor, given) { // the elements of an argument that fits a tensor, and their shape
    const named = `${what} '${tensor.name}'`, { shape: expected, most } = tensor;
    const array = given && !ArrayBuffer.isView(given) && ArrayBuffer.isView(given.data) ? given.data : given, [own] = arraysOf(tensor.code);
    if (!arraysOf(tensor.code).some((a) => array instanceof a))
      throw new Error(`${named} is ${array?.constructor?.name ?? array}; ${tensor.type} needs ${own.name}`);
    if (array !== given && !given.shape) throw new Error(`${named} has no shape; the program has [${expected}]`);
    const shape = given.shape ?? (expected === most ? most : this.#sizes.guessed(named, expected, array.length));
    if (shape.length !== most.length || most.some((n, i) => (expected[i] === n ? shape[i] !== n : !Number.isInteger(shape[i]) || shape[i] < 0)))
      throw new Error(`${named} has shape [${shape}]; the program has [${expected}]`);
    if (array.length !== product(shape)) throw new Error(`${named} has ${array.length} elements; the program has ${product(shape)}, [${shape}]`);
    return { array: array instanceof own ? array : new own(array.buffer, array.byteOffset, array.length), shape: [...shape] };
  }

  #put(named, { array, shape }, full, place, from, to) {
    const target = new FORMS[to - 1][1](this.#memory.buffer, place, product(full));
    if (array.length < target.length) new Uint8Array(target.buffer, place, target.byteLength).fill(0);
    for (const [begin, at, n] of fronts(shape, full)) {
      if (from === to) {
        target.set(array.subarray(begin, begin + n), at);
        continue;
      }
      for (let i = 0; i < n; i++) {
        const given = array[begin + i], value = Number(given);
        target[at + i] = value;
        if (to === FLOAT32 ? Number.isFinite(value) && !Number.isFinite(target[at + i]) : BigInt(target[at + i]) !== given)
          throw new Error(`${named} has a value that the program cannot hold; it was built for narrower types`);
      }
    }
  }

  #taken(shape, full, place, from, to) {
    const source = new FORMS[from - 1][1](this.#memory.buffer, place, product(full)), found = new FORMS[to - 1][1](product(shape));
    const wide = (part) => (from === to ? part : found.constructor.from(part, from === FLOAT32 ? Number : BigInt));
    for (const [begin, at, n] of fronts(shape, full)) found.set(wide(source.subarray(at, at + n)), begin);
    return Object.defineProperty(found, "shape", { value: Object.freeze([...shape]) });
  }

  run(inputs) {
    const known = this.#given("inputs"), given = inputs ?? {}, arrays = new Map();
    for (const name of Object.keys(given))
      if (!known.some((t) => t.name === name)) throw new Error(`there is no input '${name}'; there are ${listed(known)}`);
    for (const t of known) {
      if (!Object.hasOwn(given, t.name)) throw new Error(`input '${t.name}' is missing`);
      arrays.set(t.name, this.#fitting("input", t, given[t.name]));
    }
    const sizes = this.#sizes?.fit(arrays);
    const rows = new Int32Array(this.#memory.buffer, this.#words, 16 * this.#h.steps), outputs = {};
    for (let step = sizes?.begin ?? 0; ; step++) {
      const came = this.#walked(step);
      step = came >>> 2;
      if (came & 3) throw new Error(this.#refusal(step));
      const [kind, number, place, , from, to] = Array.from({ length: 6 }, (_, i) => rows[16 * step + 2 * i] >>> 0);
      if (kind === IN) {
        const t = this.#tensors.inputs[number];
        this.#put(`input '${t.name}'`, arrays.get(t.name), t.most, place, from, to);
      } else if (kind === OUT) {
        const t = this.#tensors.outputs[number];
        outputs[t.name] = this.#taken(sizes?.shapes.get(t) ?? t.most, t.most, place, from, to);
      } else {
        this.#sizes?.done(sizes.shapes);
        return outputs;
      }
    }
  }

  #fill(t, value) {
    this.#put(`state '${t.name}'`, value, t.most, this.#h.arena + t.place, t.code, t.kept);
  }

  #walked(step) {
    try {
      return Number(this.#exports.walk(this.#words, this.#job, BigInt(step), 1n << 62n));
    } catch (error) {
      throw new Error(`the program failed at or after step ${step}: ${error.message}`);
    }
  }

  #refusal(step) {
    const longs = new DataView(this.#memory.buffer), begin = this.#at + this.#h.atTexts;
    for (let i = 0; i < this.#h.texts; i++)
      if (Number(longs.getBigInt64(begin + 16 * i, true)) === step) return this.#text(Number(longs.getBigInt64(begin + 16 * i + 8, true)));
    return `step ${step} refused a value`;
  }

  #state(name) {
    const found = (this.#sizes?.of("states") ?? this.#tensors.states).find((t) => t.name === name);
    if (!found) throw new Error(`there is no state '${name}'; there are ${listed(this.states)}`);
    return found;
  }

  state(name) {
    const t = this.#state(name);
    return this.#taken(this.#sizes?.now(t) ?? t.most, t.most, this.#h.arena + t.place, t.kept, t.code);
  }

  setState(name, value) {
    const t = this.#state(name), fitting = this.#fitting("state", t, value);
    this.#sizes?.hold(t, fitting.shape);
    this.#fill(this.#state(name), fitting);
  }

  reset() { // makes all states what they were before the first run
    for (const t of this.#sizes?.of("states") ?? this.#tensors.states)
      new Uint8Array(this.#memory.buffer, this.#h.arena + t.place, product(t.most) * FORMS[t.kept - 1][1].BYTES_PER_ELEMENT).fill(0);
    this.#sizes?.done();
  }
}

export async function load(given, options = {}) {
  if (!accepted(SIMD)) throw new Error("this browser has no WebAssembly SIMD; Chromium 91, Firefox 89, Safari 16.4 and later have it");
  const source = given ?? new URL(`./${NAME}.wasm`, import.meta.url), bytes = !(source instanceof URL) && typeof source === "object";
  const base = bytes ? source : new URL(source, globalThis.location?.href ?? import.meta.url);
  const both = bytes ? Boolean(base.relaxed) : Boolean(RELAXED), relaxed = (options.relaxed ?? both) && accepted(MADD);
  if (options.relaxed && !accepted(MADD)) throw new Error("this browser has no relaxed SIMD; Chromium 114 and later have it");
  if (options.relaxed && !both) throw new Error("this build has no relaxed module; build it with --relaxed");
  const stem = bytes ? "" : base.href.replace(/\.wasm$/, "");
  const module = whole(bytes ? (relaxed ? base.relaxed : base.module) : new URL(`${stem}.${relaxed ? RELAXED : ""}wasm`), "the module");
  const weights = pieces(bytes ? base.weights : new URL(`${stem}.bin`), "the weights");
  const begun = weights.next(); // while the module comes
  begun.catch(() => {});
  const rest = (async function* () {
    const { done, value } = await begun;
    if (!done) yield value;
    yield* weights;
  })();
  const known = given ? undefined : JSON.parse(DIGESTS)[relaxed ? RELAXED : ""];
  const program = await Program._loaded(module, rest, { ...options, relaxed, known });
  if (options.bits && program.bits !== options.bits) throw new Error(`the program has ${program.bits} bits here, and ${options.bits} ones are asked for`);
  return program;
}
