"""A chain of nodes under construction: its nodes, inputs, constants and outputs, and the sizes and values that they are drawn with."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

Array = NDArray[Any]

OPSET, CONTRIB = 21, "com.microsoft"


class Infeasible(Exception):
    """These rows do not fit together; the text says why."""


@dataclass(frozen=True)
class Size:
    """The sizes that a producer takes: batch, channels in, channels out, side of an image, rows and depth of a product."""

    name: str
    b: int
    c: int
    o: int
    s: int
    m: int
    k: int


SIZES = {
    size.name: size
    for size in (
        Size("below", 1, 3, 5, 5, 3, 5),  # less than a vector everywhere
        Size("vector", 2, 16, 16, 8, 16, 32),  # whole vectors
        Size("prime", 3, 7, 13, 11, 17, 37),  # neither vectors nor panels
        Size("equal", 8, 8, 8, 8, 8, 8),  # a swapped axis is no error of shapes
        Size("block", 2, 34, 72, 20, 70, 272),  # above a panel and a block, and a rest
        Size("large", 2, 40, 64, 30, 130, 520),  # above the size at which the native engine is the default
        Size("long", 1, 2, 2, 100_000, 2, 2),  # rows of 100,000
    )
}


@dataclass(frozen=True)
class Values:
    """How inputs are drawn: integers of a small grid, or normal numbers with a deviation and a mean; and what is planted in them."""

    name: str
    deviation: float = 1.0
    mean: float = 0.0
    planted: float | None = None
    grid: bool = False
    equal: bool = False


VALUES = {
    values.name: values
    for values in (
        Values("grid", grid=True),  # every sum is exact, so integers and indices are compared exactly
        Values("dev1"),
        Values("dev10", deviation=10),
        Values("dev100", deviation=100),
        Values("mean", mean=50),
        Values("same", equal=True, mean=3),
        Values("inf", planted=np.inf),
        Values("nan", planted=np.nan),
        Values("halves", deviation=12_000),  # products near the largest f16
    )
}


@dataclass
class Chain:
    """Nodes from inputs to outputs. Names begin with `prefix`, so that chains stand beside each other in one model."""

    size: Size
    values: Values
    prefix: str = ""
    float_type: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    nodes: list[NodeProto] = field(default_factory=list[NodeProto])
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    types: dict[str, np.dtype[Any]] = field(default_factory=dict[str, "np.dtype[Any]"])
    outputs: list[str] = field(default_factory=list[str])
    batched: set[str] = field(default_factory=set[str])
    salt: str = ""
    dry: bool = False
    """No numbers are drawn: for shapes alone."""

    def rng(self, *more: object) -> np.random.Generator:
        """Makes a generator that depends on the names of rows alone, so that a case has the same numbers in any model."""
        return np.random.default_rng(zlib.crc32(repr((self.salt, self.size.name, self.values.name, *more)).encode()))

    def _named(self, what: str) -> str:
        return f"{self.prefix}{what}{len(self.types)}"

    def input(self, *shape: int, dtype: Any = None, draw: str = "values", batch: bool = True) -> str:
        """Adds an input. `draw`: by the case's values, or `positive` from 0.5 to 2, or `bytes` of all values, or `unit` in [-1, 1]."""
        name = self._named("x")
        dtype = np.dtype(dtype or self.float_type)
        self.inputs[name] = self._drawn(self.rng("input", len(self.types)), shape, dtype, draw)
        self.types[name] = dtype
        if batch:
            self.batched.add(name)
        return name

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], draw: str) -> Array:
        values = self.values
        if self.dry:
            return np.broadcast_to(np.zeros((), dtype), shape)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            return rng.integers(max(limits.min, -128), min(limits.max, 255) + 1, shape).astype(dtype)
        if draw == "positive":
            return rng.uniform(0.5, 2, shape).astype(dtype)
        if draw == "unit":
            return rng.uniform(-1, 1, shape).astype(dtype)
        if values.equal:
            return np.full(shape, values.mean, dtype)
        if values.grid:
            return rng.integers(-4, 5, shape).astype(dtype)
        a = values.mean + values.deviation * rng.standard_normal(shape)
        a = a.astype(dtype)
        if values.planted is not None and a.size:
            a.reshape(-1)[int(rng.integers(a.size))] = values.planted
        return a

    def weight(self, *shape: int, terms: int = 1, dtype: Any = None) -> str:
        """Adds a constant of a product of `terms` terms: normal numbers that keep the deviation, or integers from -2 to 2."""
        dtype = np.dtype(dtype or self.float_type)
        if self.dry:
            return self.constant(np.broadcast_to(np.zeros((), dtype), shape))
        rng = self.rng("weight", len(self.types))
        if dtype.kind in "iu":
            return self.constant(rng.integers(-60 if dtype.kind == "i" else 0, 61, shape).astype(dtype))
        if self.values.grid:
            return self.constant(rng.integers(-2, 3, shape).astype(dtype))
        return self.constant((rng.standard_normal(shape) / np.sqrt(terms)).astype(dtype))

    def scale(self, *shape: int) -> str:
        """Adds a constant of positive factors, powers of two on the grid."""
        rng = self.rng("scale", len(self.types))
        a = 2.0 ** rng.integers(-1, 2, shape) if self.values.grid else rng.uniform(0.5, 1.5, shape)
        return self.constant(np.asarray(a, self.float_type))

    def constant(self, array: Any, dtype: Any = None) -> str:
        """Adds a constant."""
        name = self._named("c")
        self.constants[name] = np.asarray(array, dtype)
        self.types[name] = self.constants[name].dtype
        return name

    def ints(self, *numbers: int) -> str:
        """Adds a constant vector of i64."""
        return self.constant(np.array(numbers, np.int64))

    def op(self, op: str, *inputs: str, dtype: Any = None, outputs: int = 1, at: int = 0, domain: str = "", **attributes: Any) -> str:
        """Adds a node; gives its result `at`. `dtype`: of the results, by default of the first input."""
        index = len(self.types)
        names = [f"{self.prefix}v{index}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{self.prefix}{op}{index}", domain=domain, **attributes))
        for name in names:
            self.types[name] = np.dtype(dtype) if dtype is not None else self.types[inputs[0]]
        return names[at]

    def output(self, name: str) -> None:
        """Makes a value an output, once."""
        if name not in self.outputs:
            self.outputs.append(name)


def info(name: str, array: Array, open_batch: bool = False) -> Any:
    """Describes an input, with a first dimension `N` if that is open."""
    shape: list[int | str] = list(array.shape)
    if open_batch and shape:
        shape[0] = "N"
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def model_of(chains: list[Chain], outputs: list[str] | None = None, open_batch: bool = False) -> ModelProto:
    """Makes one model of chains that share nothing."""
    nodes = [n for c in chains for n in c.nodes]
    inputs = [info(n, a, open_batch and n in c.batched) for c in chains for n, a in c.inputs.items()]
    constants = [numpy_helper.from_array(a, n) for c in chains for n, a in c.constants.items()]
    named = outputs if outputs is not None else [o for c in chains for o in c.outputs]
    types = {n: t for c in chains for n, t in c.types.items()}
    ends = [helper.make_tensor_value_info(o, helper.np_dtype_to_tensor_dtype(types[o]), None) for o in named]
    graph = helper.make_graph(nodes, "triples", inputs, ends, constants)
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)
