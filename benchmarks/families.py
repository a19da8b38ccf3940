"""The rate of each family of vertices, compared with the machine's limits: the last table of docs/performance-native.md."""

# pyright: basic
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

import populus
from benchmarks.launches import launches
from benchmarks.models import Graph

HEAD = "| family | what | ours | limit | share |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class Family:
    """One op with its `flops` or `bytes`, and the reason if it is far from the limit."""

    name: str
    what: str
    build: Callable[[Graph], str]
    inputs: Sequence[int]
    outputs: Sequence[int]
    flops: float = 0
    bytes: float = 0
    reason: str = ""


def _conv(oc: int, ic: int, kernel: int, side: int, stride: int = 1, group: int = 1) -> tuple[Callable[[Graph], str], float]:
    def build(g: Graph) -> str:
        pads = [kernel // 2] * 4
        return g.op("Conv", "x", g.weight(oc, ic // group, kernel, kernel), pads=pads, strides=[stride] * 2, group=group)

    return build, 2 * oc * (ic // group) * kernel**2 * (side // stride) ** 2


M = 1 << 22  # elements of the arrays below: 16 MiB, more than the caches hold
BIG = [4, 1024, 1024]
_wide, _pointwise, _deep = _conv(64, 64, 3, 56), _conv(256, 64, 1, 56), _conv(64, 64, 3, 56, group=64)
LOOKUP = "rows of 256 bytes at random places"
FAMILIES = (
    Family("matmul", "1024 by 1024 by 1024", lambda g: g.op("MatMul", "x", g.weight(1024, 1024)), [1024, 1024], [1024, 1024], 2 * 1024**3),
    Family("matmul", "1 by 4096 by 4096", lambda g: g.op("MatMul", "x", g.weight(4096, 4096)), [1, 4096], [1, 4096], bytes=4 * 4096**2),
    Family("conv", "3x3, 64 to 64, 56x56", _wide[0], [1, 64, 56, 56], [1, 64, 56, 56], _wide[1]),
    Family("conv", "1x1, 64 to 256, 56x56", _pointwise[0], [1, 64, 56, 56], [1, 256, 56, 56], _pointwise[1]),
    Family("conv", "3x3 depthwise, 64, 56x56", _deep[0], [1, 64, 56, 56], [1, 64, 56, 56], bytes=8 * 64 * 56 * 56),
    Family("map", "add", lambda g: g.op("Add", "x", g.weight(M)), [M], [M], bytes=12 * M),
    Family("map", "tanh", lambda g: g.op("Tanh", "x"), [M], [M], bytes=8 * M,
           reason="31 operations for each element, none fused, and a division"),
    Family("map", "gelu with erf", lambda g: g.op("Mul", "x", g.op("Add", g.op("Erf", "x"), g.constant(1.0))), [M], [M], bytes=8 * M,
           reason="some thirty operations for each element, none fused"),
    Family("reduce", "sum of rows", lambda g: g.op("ReduceSum", "x", g.constant([2], np.int64), keepdims=0), BIG, BIG[:2], bytes=4 * M),
    Family("reduce", "sum of columns", lambda g: g.op("ReduceSum", "x", g.constant([1], np.int64), keepdims=0), BIG, [4, 1024],
           bytes=4 * M),
    Family("softmax", "rows of 1024", lambda g: g.op("Softmax", "x", axis=-1), BIG, BIG, bytes=8 * M,
           reason="four passes over a row in the first cache, one with an exponential"),
    Family("whiten", "rows of 1024", lambda g: g.op("LayerNormalization", "x", g.constant(np.ones(1024)), axis=-1), BIG, BIG, bytes=8 * M),
    Family("pool", "max 3x3/2, 64x112x112", lambda g: g.op("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
           [1, 64, 112, 112], [1, 64, 56, 56], bytes=4 * 64 * (112**2 + 56**2)),
    Family("multi_slice", LOOKUP, lambda g: g.op("Gather", g.weight(1 << 16, 64), g.op("Cast", "x", to=7)), [1 << 15], [1 << 15, 64],
           bytes=2 * 256 * (1 << 15), reason="memory at random"),
    Family("copy", "transposed", lambda g: g.op("Relu", g.op("Transpose", "x", perm=[0, 2, 1])), BIG, BIG, bytes=8 * M,
           reason="one side accesses memory by columns"),
)  # fmt: skip


def _best(run: Callable[[], object], seconds: float = 1.0) -> float:
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best


def limits() -> tuple[float, float]:
    """Measures GFLOP/s of a BLAS product and GB/s of NumPy's `a = b + c`, one thread each."""
    b, c = (np.random.default_rng(i).standard_normal((1024, 1024)).astype(np.float32) for i in range(2))
    flops = 2 * 1024**3 / _best(lambda: np.matmul(b, c))
    x, y, z = (np.ones(1 << 24, np.float32) for _ in range(3))
    return flops / 1e9, 12 * (1 << 24) / _best(lambda: np.add(x, y, out=z)) / 1e9


def _row(family: Family, gflops: float, gbytes: float) -> str:
    g = Graph()
    model: onnx.ModelProto = g.model("family", family.build(g), list(family.outputs), inputs=list(family.inputs))
    program = populus.compile(model, tiles=16, engine="native", threads=1)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 16, family.inputs) if family.what == LOOKUP else rng.standard_normal(family.inputs)
    program.run({"x": x.astype(np.float32)})
    seconds = _best(launches(program))
    rate, unit, limit = (family.flops, "GFLOP/s", gflops) if family.flops else (family.bytes, "GB/s", gbytes)
    share = rate / seconds / 1e9 / limit
    why = f": {family.reason}" if share < 0.75 else ""
    return f"| {family.name} | {family.what} | {rate / seconds / 1e9:.1f} {unit} | {limit:.1f} | {share:.2f}{why} |"


def rows() -> list[str]:
    """Measures the lines of the table. OMP_NUM_THREADS must be 1."""
    gflops, gbytes = limits()
    return [HEAD, *(_row(family, gflops, gbytes) for family in FAMILIES)]
