"""A graph under construction: the values that there are, and nodes and constants drawn onto it.

Every value has an interval that holds its elements and, where no rounding has happened, a step that they are multiples of. So
nodes stay within what their types hold, and a discontinuous op is given only what every implementation has bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper, shape_inference

F32, F64, F16, BF16 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16
I8, I16, I32, I64 = TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64
U8, U16, U32, U64 = TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64
BOOL = TensorProto.BOOL
FLOATS, SIGNED, UNSIGNED = (F32, F32, F32, F64, F16), (I32, I64, I8, I16), (U8, U16, U32, U64)
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
ANY = (*NUMBERS, BOOL)
MANTISSA = {F32: 24, F64: 53, F16: 11, BF16: 8}
LARGEST = {F32: 1e5, F64: 1e5, F16: 500.0, BF16: 1e5}
ELEMENTS = 160  # the most that a tensor has
SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 7)
WIDE_ELEMENTS, WIDE_SIZES = 500_000, (1, 3, 8, 16, 17, 40, 72, 131, 256)  # of graphs that the default engine compiles

TYPE_NAMES = {t: "tensor(" + TensorProto.DataType.Name(t).lower() + ")" for t in (*MANTISSA, *INTS, BOOL)}

Array = np.ndarray


class Unfit(Exception):
    """This kind of node does not fit here; another one is drawn."""


@dataclass(frozen=True)
class Span:
    """An interval that holds all elements. `step`: they are multiples of it; 0: no rounding happened; None: rounding may have."""

    low: float
    high: float
    step: float | None = None

    @property
    def size(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def exact(self) -> bool:
        return self.step is not None

    def rounded(self, low: float, high: float) -> Span:
        return Span(low, high)

    def over(self, *others: Span) -> Span:
        """A span that holds these, too."""
        step = self.step
        for other in others:
            step = None if step is None or other.step is None else min(step, other.step)
        return Span(min(self.low, *(o.low for o in others)), max(self.high, *(o.high for o in others)), step) if others else self

    def with_zero(self) -> Span:
        return self.over(Span(0, 0, self.step if self.step is not None else 0))


@dataclass(frozen=True)
class Value:
    """A tensor of the graph; `data` if it is a constant."""

    name: str
    type: int
    shape: tuple[int, ...]
    span: Span
    data: Array | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def is_float(type: int) -> bool:
    return type in MANTISSA


def holds(type: int) -> tuple[float, float]:
    """The least and largest value that nodes may give in this type."""
    if type == BOOL:
        return 0, 1
    if is_float(type):
        return -LARGEST[type], LARGEST[type]
    info = np.iinfo(helper.tensor_dtype_to_np_dtype(type))
    return max(int(info.min), -(2**53)), min(int(info.max), 2**53)


def fitted(type: int, span: Span) -> Span:
    """The span as a type holds it: steps too fine for it mean rounding. Raises Unfit where its values are too large."""
    low, high = holds(type)
    if span.low < low or span.high > high:
        if is_float(type):
            raise Unfit
        return Span(low, high, 1)  # integers wrap around
    if span.step and is_float(type) and span.size / span.step > 2 ** MANTISSA[type]:
        return Span(span.low, span.high)
    return span if is_float(type) else Span(span.low, span.high, 1)


def drawn(rng: Random, type: int, shape: Sequence[int], span: Span) -> Array:
    """Elements within a span, multiples of its step."""
    step = span.step or 2.0**-10
    first, last = int(np.ceil(span.low / step)), int(np.floor(span.high / step))
    if (count := int(np.prod(shape, dtype=np.int64))) > 20_000:
        many = np.random.default_rng(rng.getrandbits(64)).integers(first, last, count, endpoint=True)
        return (many * (step if is_float(type) else 1)).reshape(shape).astype(helper.tensor_dtype_to_np_dtype(type))
    flat = [rng.randint(first, last) * (step if is_float(type) else 1) for _ in range(count)]
    return np.array(flat).reshape(shape).astype(helper.tensor_dtype_to_np_dtype(type))


@dataclass
class Draw:
    """A graph that grows. `outer`: the values that a body sees of the graphs around it."""

    rng: Random
    opset: int
    prefix: str = ""
    outer: list[Value] = field(default_factory=list[Value])
    depth: int = 0
    nodes: list[NodeProto] = field(default_factory=list[NodeProto])
    initializers: list[TensorProto] = field(default_factory=list[TensorProto])
    inputs: list[ValueInfoProto] = field(default_factory=list[ValueInfoProto])
    pool: list[Value] = field(default_factory=list[Value])
    made: int = 0
    draw_node: Callable[[Draw], None] | None = None
    wide: bool = False

    @property
    def most(self) -> int:
        """The most elements that a value has."""
        return WIDE_ELEMENTS if self.wide else ELEMENTS

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def name(self) -> str:
        self.made += 1
        return f"{self.prefix}v{self.made}"

    # Values

    def shape(self, least: int = 0, most: int = 4, empty: bool = True) -> tuple[int, ...]:
        """A small shape of a rank within these."""
        while True:
            rank = self.rng.choice([r for r in (0, 1, 2, 2, 3, 3, 4, 4, 5) if least <= r <= most])
            dims = [self.rng.choice(WIDE_SIZES if self.wide else SIZES) for _ in range(rank)]
            if dims and empty and self.chance(0.03):
                dims[self.rng.randrange(rank)] = 0
            if int(np.prod(dims, dtype=np.int64)) <= self.most:
                return tuple(dims)

    def span(self, type: int, low: float = -4.0, high: float = 4.0) -> Span:
        """A span of this type within an interval; of floats, often of coarse steps, sums of which are exact."""
        if type == BOOL:
            return Span(0, 1, 1)
        if is_float(type):
            return Span(low, high, self.rng.choice([0.125, 2.0**-6]))
        low, high = (-9.0, 9.0) if (low, high) == (-4.0, 4.0) else (float(np.ceil(low)), float(np.floor(high)))
        least, most = holds(type)
        low, high = max(low, float(least)), min(high, float(most))
        if low > high:
            raise Unfit
        return Span(low, high, 1)

    def constant(self, array: Array, span: Span | None = None) -> Value:
        """A constant: an initializer or the result of a Constant node."""
        name = self.name()
        tensor = numpy_helper.from_array(array, name)
        if self.chance(0.6):
            self.initializers.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        if span is None:
            wide = array.astype(np.float64)
            span = Span(float(wide.min(initial=0)), float(wide.max(initial=0)), 0.0 if array.dtype.kind not in "iub" else 1)
        return Value(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, span, array)

    def ints(self, values: Sequence[int] | Array, type: int = I64) -> Value:
        """A constant of integers: axes, sizes, indices."""
        return self.constant(np.array(values, helper.tensor_dtype_to_np_dtype(type)))

    def scalar(self, value: float, type: int) -> Value:
        return self.constant(np.array(value, helper.tensor_dtype_to_np_dtype(type)))

    def new(self, type: int, shape: Sequence[int], low: float = -4.0, high: float = 4.0, constant: float = 0.35) -> Value:
        """A new input of the graph, or a constant."""
        span = self.span(type, low, high)
        if self.depth or type == BF16 or self.chance(constant):  # onnxruntime takes no arrays of bfloat16
            value = self.constant(drawn(self.rng, type, shape, span), span)
        else:
            name = self.name()
            value = Value(name, type, tuple(shape), span)
            said = json.dumps([span.low, span.high, span.step])
            self.inputs.append(helper.make_tensor_value_info(name, type, shape, doc_string=said))
        self.pool.append(value)
        return value

    def seen(self) -> list[Value]:
        return [*self.outer, *self.pool]

    def value(
        self,
        types: Collection[int] = ANY,
        fits: Callable[[Value], bool] = lambda _: True,
        *,
        least: int = 0,
        most: int = 4,
        low: float = -np.inf,
        high: float = np.inf,
        exact: bool = False,
        shape: Sequence[int] | None = None,
        empty: bool = True,
    ) -> Value:
        """A value of one of these types that fits: one that there is, or a new one."""

        def good(v: Value) -> bool:
            if v.type not in types or not least <= v.rank <= most or (exact and not v.span.exact):
                return False
            if shape is not None and v.shape != tuple(shape):
                return False
            return low <= v.span.low and v.span.high <= high and (empty or v.size > 0) and fits(v)

        found = [v for v in self.seen() if good(v)]
        if found and self.chance(0.85):
            return self.rng.choice(found[-3:]) if self.chance(0.6) else self.rng.choice(found)
        for _ in range(20):
            type = self.rng.choice(list(types))
            new = Value("", type, tuple(self.shape(least, most, empty) if shape is None else shape), Span(0, 0, 0))
            if fits(new):
                ends = (max(low, -4.0), min(high, 4.0))
                return self.new(type, new.shape, *(ends if ends[0] < ends[1] else (low, low + 1)))
        raise Unfit

    def beside(self, x: Value, types: Collection[int], **limits: Any) -> Value:
        """A value that broadcasts with `x`, or that `x` broadcasts to."""

        def broadcasts(v: Value) -> bool:
            try:
                return int(np.prod(np.broadcast_shapes(x.shape, v.shape), dtype=np.int64)) <= self.most
            except ValueError:
                return False

        found = list(types)
        if self.chance(0.5):
            try:
                return self.value(found, broadcasts, **limits)
            except Unfit:
                pass
        dims = [1 if self.chance(0.25) else d for d in x.shape]
        return self.value(found, shape=dims[self.rng.randint(0, len(dims)) if self.chance(0.4) else 0 :], **limits)

    # What attributes say

    def axis(self, rank: int) -> int:
        """An axis, from the front or from the end."""
        return self.rng.randrange(-rank, rank)

    def axes(self, rank: int, least: int = 1) -> list[int]:
        """Different axes, in any order, some counted from the end."""
        chosen = self.rng.sample(range(rank), self.rng.randint(min(least, rank), rank))
        return [a - rank if self.chance(0.3) else a for a in chosen]

    # Nodes

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        spans: Sequence[Span | None],
        shapes: Sequence[Sequence[int]] | None = None,
        **said: Any,
    ) -> list[Value]:
        """A node and its results, one for each span; None for one that is left out. Shapes are those that ONNX infers, or `shapes`."""
        names = [v.name if v is not None else "" for v in inputs]
        while names and not names[-1]:
            names.pop()
        outputs = [self.name() if s is not None else "" for s in spans]
        while outputs and not outputs[-1]:
            outputs.pop()
        node = helper.make_node(op, names, outputs, **said)
        types = self.inferred(node, [v for v in inputs if v is not None])
        values: list[Value] = []
        for i, (name, span) in enumerate(zip(outputs, spans)):
            if span is None:
                continue
            inferred = types[name].tensor_type
            dims = [d.dim_value for d in inferred.shape.dim]
            if shapes is None:
                assert inferred.HasField("shape") and all(d.HasField("dim_value") for d in inferred.shape.dim), (node, types)
            else:
                dims = list(shapes[i])
            if int(np.prod(dims, dtype=np.int64)) > 2 * self.most or len(dims) > 6:
                raise Unfit
            values.append(Value(name, inferred.elem_type, tuple(dims), fitted(inferred.elem_type, span)))
        self.nodes.append(node)
        self.pool.extend(values)
        return values

    def inferred(self, node: NodeProto, inputs: Sequence[Value]) -> dict[str, TypeProto]:
        """What ONNX infers of a node's results. Raises Unfit for a node that its schema of this opset does not allow."""
        schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        formal = dict(zip(node.input, [*schema.inputs, *[schema.inputs[-1]] * len(node.input)]))
        for v in inputs:
            said = formal[v.name].type_str
            if TYPE_NAMES[v.type] not in allowed.get(said, [said]):
                raise Unfit
        given = {v.name: helper.make_tensor_type_proto(v.type, v.shape) for v in inputs}
        # Axes of int32 stop ONNX's inference, which reads int64.
        data = {v.name: numpy_helper.from_array(v.data, v.name) for v in inputs if v.data is not None and v.type != I32}
        return shape_inference.infer_node_outputs(schema, node, given, data, opset_imports=[helper.make_opsetid("", self.opset)])


@dataclass(frozen=True)
class Kind:
    """A kind of node: the opsets that have it, and how one is drawn."""

    op: str
    draw: Callable[[Draw], object]
    since: int = 7
    until: int = 23
    weight: int = 2
