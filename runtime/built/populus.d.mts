/** Elements of a tensor in order. Of 16-bit floats, and of floats and integers of fewer bits, these are the bits. */
export type Elements =
  | Float32Array | Float64Array | Uint8Array | Uint8ClampedArray | Int8Array | Uint16Array | Int16Array | Int32Array | Uint32Array
  | BigInt64Array | BigUint64Array;

/** Elements, or elements with a shape, which is checked then. */
export type Argument = Elements | { data: Elements; shape: readonly number[] };

export interface Tensor {
  readonly name: string;
  /** NumPy's name of the element type, such as "float32". */
  readonly type: string;
  /** Its sizes; of an open dimension the name, or the sum that it is. */
  readonly shape: readonly (number | string)[];
  /** The greatest sizes, where some are open. */
  readonly most?: readonly number[];
}

/** Elements in order, with their shape. Given to a program again, the shape is checked. */
export type Result = Elements & { readonly shape: readonly number[] };

export interface Program {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly states: readonly Tensor[];
  /** "native": products are fused here, so results have the bits of the native engine. "unfused": they may differ in the last bits. */
  readonly bits: "native" | "unfused";
  /** True if the relaxed module runs. */
  readonly relaxed: boolean;
  /** Those that compute: more than one if the build has them (`--threads N`), where memory can be shared. */
  readonly threads: number;
  /** Ends the workers; further runs have one thread. */
  close(): void;
  /** Computes the outputs by name. Throws an Error of one sentence for an input of another name, shape or type. */
  run(inputs: Record<string, Argument>): Record<string, Result>;
  /** Returns a copy of a state, which stays from run to run. */
  state(name: string): Result;
  setState(name: string, value: Argument): void;
  /** Makes all states zeros, and those of open sizes empty, as before the first run. */
  reset(): void;
}

export interface Options {
  /** Takes the relaxed module or not; by default it is taken if the build has one and the browser runs it. */
  relaxed?: boolean;
  /** Refuses a program whose bits are others. */
  bits?: "native" | "unfused";
  /** At most so many, by default as many as there are processors and the program was built for. */
  threads?: number;
  /** Is called with the bytes of weights that came, and with all. */
  progress?: (bytes: number, all: number) => void;
}

export interface Bytes {
  module: ArrayBuffer | ArrayBufferView;
  relaxed?: ArrayBuffer | ArrayBufferView;
  weights: ArrayBuffer | ArrayBufferView;
}

/** Loads a program: the one beside this file, that of a URL (of NAME.wasm, with NAME.bin beside it), or bytes. */
export function load(source?: string | URL | Bytes, options?: Options): Promise<Program>;
