"""8-bit models beside onnxruntime, which quantises them by random calibration data: a table of docs/performance-small-types.md.

    python -m benchmarks.quantized                    all rows
    python -m benchmarks.quantized squeezenet bert_layer --rounds 40

Each row has its own process. The runs take turns, one thread each; ratios are of best CPU times.
"""

# pyright: basic
from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import populus
from benchmarks.models import LIGHT, Graph, lstm, randomised, transformer
from benchmarks.spread import check_spread
from populus.runtime.session import Session

BLOCK = 5  # consecutive runs of one side
FORMS = ("QOperator", "QDQ", "dynamic")
HEAD = (
    "| 8-bit model | form | compile s | ours ms 1t | onnxruntime ms 1t | **ratio** 1t | largest difference | unoptimised |\n"
    "|---|---|---|---|---|---|---|---|"
)


def mobilenet(classes: int = 1000) -> onnx.ModelProto:
    """Builds the layers of MobileNet v1 at 224 by 224: depthwise 3x3 and 1x1 convolutions, each with a Relu."""
    g = Graph()

    def conv(x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        scale = math.sqrt(2 / (inputs // group * kernel**2))
        w, pads = g.weight(outputs, inputs // group, kernel, kernel, scale=scale), [kernel // 2] * 4
        return g.op("Relu", g.op("Conv", x, w, g.weight(outputs), pads=pads, strides=[stride] * 2, group=group))

    y, channels = conv("x", 3, 32, 3, 2), 32
    for outputs, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)):
        y = conv(conv(y, channels, channels, 3, stride, channels), channels, outputs, 1)
        channels = outputs
    y = g.op("Reshape", g.op("GlobalAveragePool", y), g.constant([1, channels], np.int64))
    return g.model("mobilenet", g.linear(y, channels, classes), [1, classes], inputs=[1, 3, 224, 224])


def _net(name: str) -> onnx.ModelProto:
    """Loads a light net, in the first opset that has scales for each channel."""
    return onnx.version_converter.convert_version(randomised(LIGHT / f"light_{name}.onnx", logits=True), 13)


MODELS = {
    "resnet50": partial(_net, "resnet50"),
    "mobilenet": mobilenet,
    "squeezenet": partial(_net, "squeezenet"),
    "bert_layer": transformer,
    "lstm": lstm,
}
ROWS = [(name, form) for name in MODELS for form in FORMS if name != "lstm" or form == "dynamic"]  # the others leave an LSTM in floats


def build(name: str, form: str, path: Path) -> None:
    """Writes the quantized model: ui8 activations, and i8 weights with a scale for each output channel."""
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        source, ready = Path(folder, "source.onnx"), Path(folder, "ready.onnx")
        onnx.save(MODELS[name](), source)
        quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
        if form == "dynamic":
            q.quantize_dynamic(ready, path, weight_type=q.QuantType.QInt8)
            return
        model = onnx.load(ready)
        constants = {i.name for i in model.graph.initializer}
        inputs = [i for i in model.graph.input if i.name not in constants]
        sizes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs}
        types = {"activation_type": q.QuantType.QUInt8, "weight_type": q.QuantType.QInt8, "per_channel": True}
        samples: Any = _Samples(sizes)  # its base class, which onnxruntime recognises by its methods, would need the import
        q.quantize_static(ready, path, samples, quant_format=getattr(q.QuantFormat, form), **types)


class _Samples:
    """Calibration data: three normal inputs."""

    def __init__(self, sizes: dict[str, list[int]]):
        rng = np.random.default_rng(0)
        self._left = [{n: rng.standard_normal(s).astype(np.float32) for n, s in sizes.items()} for _ in range(3)]

    def get_next(self) -> dict[str, Any] | None:
        return self._left.pop() if self._left else None

    def __iter__(self) -> _Samples:
        return self

    def __next__(self) -> dict[str, Any]:
        if not self._left:
            raise StopIteration
        return self._left.pop()


def rival_of(path: Path, optimised: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs)))


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Measures one row, with differences relative to the largest element."""
    began = time.perf_counter()
    program = populus.compile(path, target="host", tiles=16)
    compiled = time.perf_counter() - began
    inputs = {n: np.random.default_rng(0).standard_normal(t.get_shape()).astype(np.float32) for n, t in program.signature.inputs.items()}
    session = Session(program.module("poplar"), "native", threads=1)
    assert not session.fallbacks, session.fallbacks
    rival, found = rival_of(path, True), session.run(inputs)

    def difference(expected: dict[str, Any]) -> float:
        return max(float(np.abs(found[n] - e).max() / max(np.abs(e).max(), 1e-30)) for n, e in expected.items())

    expected = rival(inputs)
    check_spread(expected, str(path))
    apart = difference(expected), difference(rival_of(path, False)(inputs))
    ours, theirs = best_of((partial(session.run, inputs), partial(rival, inputs)), rounds)
    return {"compile": compiled, "ours": ours, "theirs": theirs, "difference": apart[0], "unoptimised": apart[1]}


def best_of(runs: Iterable[Callable[[], object]], rounds: int) -> list[float]:
    """Runs functions of one thread in turn. Gives the best milliseconds of CPU time of each, which other work disturbs least."""
    runs = list(runs)
    best = [math.inf] * len(runs)
    for _ in range(-(-rounds // BLOCK)):
        for i, run in enumerate(runs):
            for _ in range(BLOCK):
                began = time.thread_time()
                run()
                best[i] = min(best[i], (time.thread_time() - began) * 1e3)
    return best


def measured_alone(module: str, *arguments: str) -> dict[str, Any] | str:
    """Measures one row in a process of one thread: `python -m benchmarks.MODULE ARGUMENTS`, or gives its last line of error."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else json.loads(done.stdout.splitlines()[-1])


def times_of(r: dict[str, Any]) -> str:
    """Formats the cells of times, and of the ratio."""
    return f"{r['compile']:.2f} | {r['ours']:.2f} | {r['theirs']:.2f} | **{r['ours'] / r['theirs']:.2f}**"


def mean_of(kind: str, ratios: list[float]) -> str:
    """Formats the geometric mean of a table's ratios."""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    return f"{kind}, 1 thread: geometric mean {mean:.2f}, largest {max(ratios, default=math.nan):.2f} ({len(ratios)} rows)"


def rows(rounds: int, names: Iterable[str] = (), folder: str | None = None) -> Iterator[str]:
    """Yields the table, and the geometric mean of its ratios."""
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            yield from rows(rounds, names, made)
        return
    yield HEAD
    chosen, ratios = list(names), list[float]()
    for name, form in ROWS:
        if chosen and name not in chosen:
            continue
        file = Path(folder, f"{name}.{form}.onnx")
        r = measured_alone("quantized", name, "--form", form, "--rounds", str(rounds), "--one", str(file))
        if isinstance(r, str):
            yield f"| {name} | {form} | {r} |"
            continue
        ratios.append(r["ours"] / r["theirs"])
        same = "equal" if r["unoptimised"] == 0 else f"{r['unoptimised']:.0e}"
        yield f"| {name} | {form} | {times_of(r)} | {r['difference']:.0e} | {same} |"
    yield mean_of("8-bit", ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of models (all)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", help="keep the quantized models here, and use those that are there")
    parser.add_argument("--form", choices=FORMS, help=argparse.SUPPRESS)
    parser.add_argument("--one", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is None:
        for line in rows(args.rounds, args.models, args.folder):
            print(line, flush=True)
        return 0
    path = Path(args.one)
    if not path.exists():
        build(args.models[0], args.form, path)
    print(json.dumps(measure(path, args.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
