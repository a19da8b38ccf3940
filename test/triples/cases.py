"""Cases: a producer, a layout op and a consumer with sizes, values and readers; the whole list of them, and a sample."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from triples import consumers, layouts, producers
from triples.chain import SIZES, VALUES, Array, Chain, Infeasible, Size, model_of
from triples.consumers import CONSUMERS, Consumer
from triples.producers import PRODUCERS, Producer

READERS = ("one", "two", "output", "two-behind")
SHORT = tuple(n for n in SIZES if n not in ("long", "large"))
MOST = 400_000
"""Elements of a value behind the layout op."""


@dataclass(frozen=True)
class Case:
    """One row: its text is what `CASE=` takes."""

    producer: str
    layout: str
    consumer: str
    size: str
    values: str
    readers: str

    def __str__(self) -> str:
        return f"{self.producer}:{self.layout}:{self.consumer}:{self.size}:{self.values}:{self.readers}"

    @staticmethod
    def read(text: str) -> Case:
        return Case(*text.split(":"))

    @property
    def rows(self) -> tuple[Producer, Consumer]:
        return PRODUCERS[self.producer], CONSUMERS[self.consumer]

    @property
    def exact(self) -> bool:
        """Tells if the value in the middle has no rounding."""
        producer = self.rows[0]
        return producer.exact and (VALUES[self.values].grid or producer.integers)


@dataclass
class Built:
    """A case as a chain of nodes: the names of the value in the middle, of that behind the layout op, and of the result."""

    case: Case
    chain: Chain
    middle: str
    behind: str
    result: str
    shape: tuple[int, ...]


def build(case: Case, prefix: str = "", dry: bool = False, batch: int | None = None) -> Built:
    """Makes the chain of a case, `dry` without numbers, `batch`: with another batch. Raises Infeasible."""
    producer, consumer = case.rows
    size = SIZES[case.size] if batch is None else replace(SIZES[case.size], b=batch)
    c = Chain(size, VALUES[case.values], prefix, salt=str(case.producer), dry=dry)
    middle = producer.add(c)
    shape = middle_shape(case.producer, size)
    if not np.prod(shape):
        raise Infeasible("empty")
    behind, at = layouts.apply(case.layout, c, middle, shape)
    if np.prod(at) > MOST:
        raise Infeasible("too large")
    read = behind
    if consumer.floats and c.types[behind].kind in "iub":
        read = _floats(c, behind)
    result = consumer.add(c, read, at)
    if result == middle and case.readers != "output":
        result = c.op("Identity", middle)
    c.output(result)
    if case.readers == "output":
        c.output(middle)
    elif case.readers != "one":
        c.output(_second(c, middle if case.readers == "two" else behind, case))
    return Built(case, c, middle, behind, result, at)


def _floats(c: Chain, x: str) -> str:
    """Integers as floats of a moderate size."""
    kind = c.types[x]
    if kind.itemsize == 1:
        zero = c.constant(0 if kind.kind == "i" else 128, kind)
        return c.op("DequantizeLinear", x, c.constant(2.0**-4, np.float32), zero, dtype=np.float32)
    made = c.op("Cast", x, to=TensorProto.FLOAT, dtype=np.float32)
    return c.op("Mul", made, c.constant(2.0**-15 if kind == np.int32 else 0.25, np.float32))


def _second(c: Chain, x: str, case: Case) -> str:
    """Another reader of a value."""
    if c.types[x].kind != "f":
        return c.op("Abs", x) if c.types[x].kind == "i" else c.op("Identity", x)
    return c.op(("Relu", "Neg", "LeakyRelu", "Abs")[digest(str(case)) % 4], x)


def digest(text: str) -> int:
    return zlib.crc32(text.encode())


# -- the value in the middle, from onnxruntime


def session(model: ModelProto) -> ort.InferenceSession:
    """Loads a model into onnxruntime without any optimisation of the graph."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def widened(model: ModelProto, types: Mapping[str, np.dtype[Any]]) -> ModelProto:
    """The model with f32 in the place of f16, and each result that was f16 rounded to it: onnxruntime has few kernels of f16."""
    made = ModelProto()
    made.CopyFrom(model)
    for value in (*made.graph.input, *made.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for t in made.graph.initializer:
        if t.data_type == TensorProto.FLOAT16:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float32), t.name))
    del made.graph.node[:]
    for node in model.graph.node:
        copy = made.graph.node.add()
        copy.CopyFrom(node)
        for a in copy.attribute:
            if a.name == "to" and a.i == TensorProto.FLOAT16:
                a.i = TensorProto.FLOAT
        for i, out in enumerate(node.output):
            if types.get(out.removesuffix(".made")) == np.float16:
                copy.output[i] = f"{out}.wide"
                made.graph.node.append(helper.make_node("Cast", [f"{out}.wide"], [f"{out}.half"], to=TensorProto.FLOAT16))
                made.graph.node.append(helper.make_node("Cast", [f"{out}.half"], [out], to=TensorProto.FLOAT))
    return made


FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


def doubled(model: ModelProto) -> ModelProto:
    """The model with f64 in the place of its floats."""
    made = ModelProto()
    made.CopyFrom(model)
    for info in (*made.graph.input, *made.graph.output):
        if info.type.tensor_type.elem_type in FLOATS:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for t in made.graph.initializer:
        if t.data_type in FLOATS:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float64), t.name))
    reads = {n for node in made.graph.node for n in _scales(node)}
    for t in made.graph.initializer:
        if t.name in reads:  # scales are f32 whatever the data are
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float32), t.name))
    nodes = list(made.graph.node)
    del made.graph.node[:]
    for node in nodes:
        for a in node.attribute:
            if a.name == "to" and a.i in FLOATS:
                a.i = TensorProto.DOUBLE
        made.graph.node.append(node)
        if node.op_type == "DequantizeLinear":
            made.graph.node[-1].output[0] += ".f32"
            made.graph.node.append(helper.make_node("Cast", [f"{node.output[0]}.f32"], [node.output[0]], to=TensorProto.DOUBLE))
    return made


def _scales(node: NodeProto) -> list[str]:
    """Lists the operands of a node that are f32 beside data of f64."""
    return list(node.input[1:3] if node.op_type == "Resize" else node.input[1:2] if node.op_type == "DequantizeLinear" else [])


def in_f64(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Gives arrays with floats as f64."""
    return {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in arrays.items()}


@lru_cache(maxsize=4096)
def middle_shape(producer: str, size: Size) -> tuple[int, ...]:
    """Gives the shape of a producer's value. Raises Infeasible."""
    row = PRODUCERS[producer]
    if size.name == "long" and not row.long:
        raise Infeasible("no rows of 100,000")
    c = Chain(size, VALUES[(row.values or ("grid",))[0]], salt=producer)
    y = row.add(c)
    c.output(y)
    model = model_of([c])
    halves = any(t == np.float16 for t in c.types.values())
    found = session(widened(model, c.types) if halves else model).run(None, wide(c.inputs) if halves else c.inputs)[0]
    return np.asarray(found).shape


def wide(inputs: dict[str, Array]) -> dict[str, Array]:
    """Inputs of f16 as f32."""
    return {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in inputs.items()}


# -- lists


def variants(producer: str, consumer: str) -> tuple[str, ...]:
    """Lists the values that a producer and a consumer can take together."""
    p, q = PRODUCERS[producer], CONSUMERS[consumer]
    known = p.values or tuple(n for n in VALUES if n != "halves")
    known = tuple(n for n in known if q.values is None or n in q.values)
    if q.jumps and not p.integers:
        known = tuple(n for n in known if n == ("grid" if p.exact else "dev1"))
    return known


def case_of(producer: str, layout: str, consumer: str, turn: int) -> Case | None:
    """Gives the case of a triple in a turn: its size, values and readers change from turn to turn. None if the rows do not fit together."""
    known = variants(producer, consumer)
    if not known:
        return None
    number = digest(f"{producer}:{layout}:{consumer}") + 7919 * turn
    sizes = (*SHORT, *(["large"] if number % 3 == 0 else []), *(["long"] if PRODUCERS[producer].long and number % 2 else []))
    readers = READERS[number // 3 % len(READERS)]
    values = known[number // 17 % len(known)]
    for i in range(len(sizes)):
        case = Case(producer, layout, consumer, sizes[(number + i) % len(sizes)], values, readers)
        try:
            build(case, dry=True)
        except Infeasible:
            continue
        return case
    return None


def whole(turn: int = 0) -> Iterator[Case]:
    """Gives each triple of the rows in CORE, and each other pair of a producer and a consumer with one layout, which the turn chooses."""
    for place, producer in enumerate(PRODUCERS):
        names = layouts.rows_for(rank(producer), turn + place)
        for number, consumer in enumerate(CONSUMERS):
            core = producer in producers.CORE and consumer in consumers.CORE
            found = (case_of(producer, layout, consumer, turn) for layout in (names if core else turned(names, place + 3 * number + turn)))
            yield from (c for c in (found if core else [next((c for c in found if c), None)]) if c)


def sample(turn: int) -> list[Case]:
    """Gives cases of a turn: each pair of rows in CORE, with the kinds of layouts as third, and each other row once.

    Producers, consumers and layouts stand on a Latin square, which moves from turn to turn; what does not fit is added after.
    """
    found: dict[Case, None] = {}
    pairs: set[tuple[str, str, str]] = set()

    def take(producer: str, kinds: Sequence[str], consumer: str) -> bool:
        for kind in kinds:
            case = case_of(producer, _layout(kind, producer, turn + digest(consumer)), consumer, turn)
            if case is not None:
                found[case] = None
                pairs.update({("pc", producer, consumer), ("pl", producer, kind), ("lc", kind, consumer)})
                return True
        return False

    for i, producer in enumerate(producers.CORE):
        for j, consumer in enumerate(consumers.CORE):
            take(producer, turned(KINDS, i + j + turn), consumer)
    for producer, kind in ((p, k) for p in producers.CORE for k in KINDS if ("pl", p, k) not in pairs):
        for consumer in turned(consumers.CORE, digest(producer + kind) + turn):
            if ("pl", producer, kind) not in pairs:
                take(producer, [kind], consumer)
    for kind, consumer in ((k, c) for k in KINDS for c in consumers.CORE if ("lc", k, c) not in pairs):
        for producer in turned(producers.CORE, digest(consumer + kind) + turn):
            if ("lc", kind, consumer) not in pairs:
                take(producer, [kind], consumer)
    for i, producer in enumerate(p for p in PRODUCERS if p not in producers.CORE):
        for consumer in turned(consumers.CORE, i + turn):
            if take(producer, turned(KINDS, i + turn), consumer):
                break
    for i, consumer in enumerate(c for c in CONSUMERS if c not in consumers.CORE):
        for producer in turned(producers.CORE, i + turn):
            if take(producer, turned(KINDS, i + turn), consumer):
                break
    return list(found)


def turned(names: Sequence[str], by: int) -> list[str]:
    """Gives names from the `by`-th on, and then the first ones."""
    by %= len(names)
    return [*names[by:], *names[:by]]


def _layout(kind: str, producer: str, number: int) -> str:
    if kind != "transpose":
        return kind
    digits = layouts.permutations_of(rank(producer))
    return f"transpose-{digits[number % len(digits)]}" if digits else "none"


@cache
def rank(producer: str) -> int:
    """Gives the rank of a producer's value."""
    return len(middle_shape(producer, SIZES["vector"]))


KINDS = (*layouts.OTHERS, "transpose")
