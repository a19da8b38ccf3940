"""Steps a second of two ranks with one thread each over one rank with one thread, interleaved, and the time in collectives.

python -m benchmarks.replica_scaling --rounds 7
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])) or "mpiexec"


class Net:
    """A net under construction: nodes and weights."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._rng = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node; gives its output."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int, scale: float = 0.0) -> str:
        """Adds a weight of random numbers."""
        name = f"w{len(self.weights)}"
        array = self._rng.normal(size=shape) * (scale or 1 / np.sqrt(np.prod(shape[:-1])))
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def constant(self, *values: int) -> str:
        """Adds a constant of whole numbers."""
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def model(self, shape: list[Any], y: str, classes: list[Any]) -> ModelProto:
        """Gives the model of input x."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, classes)
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        graph = helper.make_graph(self.nodes, "net", [x], [out], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def mlp(features: int, hidden: int, classes: int) -> ModelProto:
    """Gives a net of two dense layers."""
    n = Net()
    h = n.op("Tanh", n.op("MatMul", "x", n.weight(features, hidden)))
    return n.model(["n", features], n.op("MatMul", h, n.weight(hidden, classes)), ["n", classes])


def bert_layer(sequence: int = 128, hidden: int = 768, heads: int = 12) -> ModelProto:
    """Gives a layer of BERT base with a head of two classes."""
    n = Net()

    def dense(x: str, a: int, b: int) -> str:
        return n.op("Add", n.op("MatMul", x, n.weight(a, b)), n.weight(b, scale=0.01))

    def split(x: str) -> str:
        cut = n.op("Reshape", x, n.constant(0, sequence, heads, hidden // heads))
        return n.op("Transpose", cut, perm=[0, 2, 1, 3])

    q, k, v = (split(dense("x", hidden, hidden)) for _ in range(3))
    scores = n.op("MatMul", q, n.op("Transpose", k, perm=[0, 1, 3, 2]))
    scale = n.weight(1, scale=1.0)
    n.weights[-1] = numpy_helper.from_array(np.array(np.sqrt(heads / hidden), np.float32), scale)
    mixed = n.op("MatMul", n.op("Softmax", n.op("Mul", scores, scale), axis=-1), v)
    joined = n.op("Reshape", n.op("Transpose", mixed, perm=[0, 2, 1, 3]), n.constant(0, sequence, hidden))
    x = n.op("LayerNormalization", n.op("Add", dense(joined, hidden, hidden), "x"), n.weight(hidden), n.weight(hidden), axis=-1)
    inner = n.op("Tanh", dense(x, hidden, 4 * hidden))
    x = n.op("LayerNormalization", n.op("Add", dense(inner, 4 * hidden, hidden), x), n.weight(hidden), n.weight(hidden), axis=-1)
    pooled = n.op("ReduceMean", x, axes=[1], keepdims=0)
    return n.model(["n", sequence, hidden], n.op("MatMul", pooled, n.weight(hidden, 2)), ["n", 2])


def conv_net(size: int = 32) -> ModelProto:
    """Gives a net of four convolutions on images of three channels."""
    n, x, channels = Net(), "x", 3
    for out, stride in ((32, 1), (64, 2), (64, 1), (128, 2)):
        w = n.weight(out, channels, 3, 3, scale=1 / np.sqrt(9 * channels))
        x, channels = n.op("Relu", n.op("Conv", x, w, pads=[1, 1, 1, 1], strides=[stride, stride])), out
    pooled = n.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    return n.model(["n", 3, size, size], n.op("MatMul", pooled, n.weight(channels, 10)), ["n", 10])


NETS: dict[str, tuple[Callable[[], ModelProto], tuple[int, ...], int, int]] = {  # model, input of a sample, classes, batch of a rank
    "bert": (bert_layer, (128, 768), 2, 8),
    "conv": (conv_net, (3, 32, 32), 10, 32),
}


def rank(name: str, steps: int) -> None:
    """Runs training steps on this rank, after two to warm up; rank 0 prints their times as JSON."""
    import populus
    from populus.runtime import ranks

    make, shape, classes, batch = NETS[name]
    world = ranks.world()
    all, g = batch * world.size, np.random.default_rng(1)
    session = populus.TrainingSession(make(), optimizer="sgd", batch=all, threads=1, engine="native", replicas=world.size)
    x, labels = g.normal(size=(all, *shape)).astype(np.float32), g.integers(0, classes, all).astype(np.int32)
    for _ in range(2):
        session.step({"x": x}, labels)
    wire = ranks.MpiWire.of(1) if world.size > 1 else None
    sent, waits, times = 0 if wire is None else wire.bytes, list[float](), list[float]()
    for _ in range(steps):
        begun, waited = time.perf_counter(), 0.0 if wire is None else wire.seconds
        session.step({"x": x}, labels)
        times.append(time.perf_counter() - begun)
        waits.append(0.0 if wire is None else wire.seconds - waited)
    if world.rank == 0:
        profile = session.program.profile()
        predicted = profile.summary.get("collective_cycles", 0) / profile.target.clock_hz
        bytes = 0 if wire is None else (wire.bytes - sent) // steps
        seconds, waiting = statistics.mean(times), statistics.median(waits)
        print(json.dumps({"seconds": seconds, "waiting": waiting, "least": min(waits), "predicted": predicted, "bytes": bytes}))


def measured(name: str, size: int, steps: int) -> dict[str, float]:
    """Runs so many ranks with one thread each; gives what rank 0 measured."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POPULUS_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.replica_scaling", "--rank", name, "--steps", str(steps)]
    found = subprocess.run([MPIEXEC, "-n", str(size), *command], check=True, capture_output=True, text=True, env=environment)
    return json.loads(found.stdout.splitlines()[-1])


def main() -> None:
    """Measures each net in rounds of one rank and then two, and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank(args.rank, args.steps)
        return
    for name in args.nets.split(","):
        rounds = [(measured(name, 1, args.steps), measured(name, 2, args.steps)) for _ in range(args.rounds)]
        one, two = (min(r[i]["seconds"] for r in rounds) for i in range(2))
        ratios = [2 * a["seconds"] / b["seconds"] for a, b in rounds]
        waits = [b["waiting"] / b["seconds"] for _, b in rounds]
        least, predicted = min(b["least"] for _, b in rounds), rounds[0][1]["predicted"]
        print(
            f"{name}: samples/s of 2 ranks over 1: {2 * one / two:.2f} (least times), {statistics.median(ratios):.2f} (median of rounds); "
            f"a step takes {1e3 * one:.1f} and {1e3 * two:.1f} ms, {statistics.median(waits):.0%} of it in collectives; "
            f"{rounds[0][1]['bytes'] / 1e6:.1f} MB sent in {1e3 * least:.1f} ms at least, predicted {1e3 * predicted:.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
