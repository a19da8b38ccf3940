"""Measures models with open sizes against onnxruntime: compilations, time of a run, memory. Prints the tables of docs/open-sizes.md.

    python -m benchmarks.open_sizes                     all rows, about 15 minutes
    python -m benchmarks.open_sizes encoder images      these rows

Each row has its own process. Our runs alternate with onnxruntime's, both on one thread; times are of the processor, the best of three.
"""

# pyright: basic
from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import populus
from benchmarks.open_models import GPT2, LLAMA, Decoder, encoder, gpt2, images, llama

ROUNDS, TOKENS, SAMPLE = 3, 256, 48
LENGTHS = 512
LAYERS = {"gpt2": GPT2, "llama": LLAMA}
DECODERS: dict[str, Callable[[], onnx.ModelProto]] = {"gpt2": gpt2, "llama": llama}
Inputs = dict[str, Any]


def text(length: int) -> Inputs:
    """Draws ids of one length, all of which count."""
    return {"input_ids": np.random.default_rng(length).integers(0, 30000, (1, length)), "attention_mask": np.ones((1, length), np.int64)}


def picture(size: tuple[int, int]) -> Inputs:
    """Draws an image."""
    return {"x": np.random.default_rng(sum(size)).standard_normal((1, 3, *size)).astype(np.float32)}


def rival(path: Path) -> Any:
    """Loads onnxruntime's session on one thread."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options)


def alternating(path: Path, first: list[Inputs], again: list[Inputs]) -> dict[str, Any]:
    """Compiles for all of `first`, then runs `again`, and times it beside onnxruntime."""
    program, other = populus.compile(path, threads=1, engine="native"), rival(path)
    worst = 0.0
    for inputs in first:
        program.program_for(inputs)
    ratios: list[float] = []
    for inputs in again:
        program.run(inputs)  # loads the program
        ours, theirs = [], []
        for _ in range(ROUNDS):
            began = time.process_time()
            found = program.run(inputs)
            middle = time.process_time()
            expected = other.run(None, inputs)
            ours.append(middle - began)
            theirs.append(time.process_time() - middle)
        ratios.append(min(ours) / min(theirs))
        worst = max(worst, *(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found.values(), expected)))
    return {
        "sizes": len(first),
        "compilations": getattr(program, "compilations", 1),
        "median ratio": float(np.median(ratios)),
        "worst ratio": max(ratios),
        "difference": worst,
    }


def lengths(folder: Path) -> dict[str, Any]:
    """Compiles BERT-base for each length from 1 to 512 in random order, and times 48 of them."""
    onnx.save(encoder(), path := folder / "encoder.onnx")
    order = [int(n) for n in np.random.default_rng(0).permutation(np.arange(1, LENGTHS + 1))]
    return alternating(path, [text(n) for n in order], [text(n) for n in order[:SAMPLE]])


def tiny(bound: bool, folder: Path) -> dict[str, Any]:
    """Times a BERT of two layers of 128 at two lengths, and over onnxruntime. `bound`: by a program for one length each."""
    onnx.save(encoder(2, 128, 2, 512), path := folder / "tiny.onnx")
    other, found = rival(path), dict[str, Any]()
    for length in (8, 40):
        program = populus.compile(path, threads=1, dims={"batch": 1, "seq": length} if bound else None)
        runs, inputs, best = (program.run, partial(other.run, None)), text(length), [float("inf")] * 2
        for _ in range(50):
            for i, run in enumerate(runs):
                began = time.perf_counter()
                for _ in range(10):
                    run(inputs)
                best[i] = min(best[i], (time.perf_counter() - began) / 10)
        found |= {f"{length}: ms": 1e3 * best[0], f"{length}: ratio": best[0] / best[1]}
    return found


def pictures(folder: Path) -> dict[str, Any]:
    """Runs a convolutional net on 40 image sizes, both sides from 192 to 384."""
    onnx.save(images(), path := folder / "images.onnx")
    sizes = [(int(h), int(w)) for h, w in np.random.default_rng(0).integers(192, 385, (40, 2))]
    return alternating(path, [picture(s) for s in sizes], [picture(s) for s in sizes])


def pairs_of(d: Decoder) -> dict[str, str]:
    """Lists the caches of a decoder."""
    return {f"past_{kind}_{i}": f"present_{kind}_{i}" for i in range(d.layers) for kind in ("key", "value")}


def decoding(name: str, bounded: bool, folder: Path) -> dict[str, Any]:
    """Decodes 256 tokens, each the most likely after the one before, and compares them with onnxruntime's."""
    onnx.save(DECODERS[name](), path := folder / f"{name}.onnx")
    d = LAYERS[name]
    dims = {"past": (0, TOKENS), "cur": 1} if bounded else {}
    program, other = populus.compile(path, threads=1, engine="native", dims=dims), rival(path)
    pairs = pairs_of(d)
    cached, cache = program.stateful(pairs), {n: np.zeros((1, d.kept_heads, 0, d.size), np.float32) for n in pairs}
    outputs = [o.name for o in other.get_outputs()]
    ours, theirs, tokens, expected = [], [], [17], [17]
    for turn in range(2):  # the second time, all programs exist
        cached.reset()
        cache = {n: np.zeros((1, d.kept_heads, 0, d.size), np.float32) for n in pairs}
        ours, theirs, tokens, expected = [], [], [17], [17]
        for _ in range(TOKENS):
            began = time.process_time()
            logits = cached.run({"input_ids": np.array([tokens[-1:]])})["logits"]
            middle = time.process_time()
            if turn:
                results = dict(zip(outputs, other.run(None, {"input_ids": np.array([expected[-1:]]), **cache})))
                theirs.append(time.process_time() - middle)
                cache = {n: results[o] for n, o in pairs.items()}
                expected.append(int(results["logits"][0, -1].argmax()))
            ours.append(middle - began)
            tokens.append(int(logits[0, -1].argmax()))
    return {
        "tokens": TOKENS,
        "compilations": getattr(program, "compilations", 1),
        "equal tokens": tokens == expected,
        "ms per token": float(np.median(ours)) * 1e3,
        "onnxruntime ms": float(np.median(theirs)) * 1e3,
        "ratio of totals": sum(ours) / sum(theirs),
    }


def decoder_memory(name: str, folder: Path) -> dict[str, Any]:
    """Decodes 256 tokens within a bound, without onnxruntime in the process; MiB of memory beside the weights and caches."""
    onnx.save(DECODERS[name](), path := folder / f"{name}.onnx")
    return json.loads(_child("decoder_memory_of", name, path))


def decoder_memory_of(name: str, path: Path) -> dict[str, Any]:
    """Measures `decoder_memory` in a process that did not build the model."""
    base, d = _peak_mib(), LAYERS[name]
    program = populus.compile(path, threads=1, engine="native", dims={"past": (0, TOKENS), "cur": 1})
    cached = program.stateful(pairs_of(d))
    for token in range(TOKENS):
        cached.run({"input_ids": np.array([[token]])})
    weights = path.stat().st_size / 2**20
    caches = 2 * d.layers * d.kept_heads * d.size * TOKENS * 4 / 2**20
    return {"MiB": _peak_mib() - base, "weights MiB": weights, "caches MiB": caches, "ratio": (_peak_mib() - base) / (weights + caches)}


def memory(exact: bool, folder: Path) -> dict[str, Any]:
    """Compares the peak memory for 20 lengths of BERT-base with that for one, the longest."""
    onnx.save(encoder(), path := folder / "encoder.onnx")
    one, many = (json.loads(_child("memory_of", str(exact), path, str(n)))["MiB"] for n in (1, 20))
    return {"one MiB": one, "20 sizes MiB": many, "ratio": many / one}


def memory_of(exact: str, path: Path, sizes: str) -> dict[str, Any]:
    """Runs BERT-base at so many lengths up to 512, the longest first."""
    base = _peak_mib()
    program = populus.compile(path, threads=1, engine="native", exact=exact == "True")
    for n in np.linspace(LENGTHS, 7, 20).astype(int)[: int(sizes)]:
        program.run(text(int(n)))
    return {"MiB": _peak_mib() - base}


def _peak_mib() -> float:
    """Reads the peak of this process (Linux); `getrusage` would include that of the process that started it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


ROWS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "encoder": lengths,
    "tiny": partial(tiny, False),
    "tiny bound": partial(tiny, True),
    "images": pictures,
    "gpt2": lambda folder: decoding("gpt2", False, folder),
    "gpt2 bounded": lambda folder: decoding("gpt2", True, folder),
    "llama": lambda folder: decoding("llama", False, folder),
    "llama bounded": lambda folder: decoding("llama", True, folder),
    "gpt2 memory": lambda folder: decoder_memory("gpt2", folder),
    "llama memory": lambda folder: decoder_memory("llama", folder),
    "memory of buckets": lambda folder: memory(False, folder),
    "memory of exact sizes": lambda folder: memory(True, folder),
}
PARTS: dict[str, Callable[..., dict[str, Any]]] = {"decoder_memory_of": decoder_memory_of, "memory_of": memory_of}


def _child(part: str, first: str, path: Path, *rest: str) -> str:
    """Runs a part in a process of its own; gives what it prints."""
    command = [sys.executable, "-m", "benchmarks.open_sizes", "--part", part, first, str(path), *rest]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rows(names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measures rows, each in a process of its own."""
    for name in names:
        command = [sys.executable, "-m", "benchmarks.open_sizes", "--row", name]
        yield name, json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--row", name]:
            with tempfile.TemporaryDirectory() as folder:
                print(json.dumps(ROWS[name](Path(folder))))
        case ["--part", part, first, path, *rest]:
            print(json.dumps(PARTS[part](first, Path(path), *rest)))
        case _:
            for name, found in rows(arguments or list(ROWS)):
                print(name, {k: round(v, 3) if isinstance(v, float) and v > 0.001 else v for k, v in found.items()}, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
