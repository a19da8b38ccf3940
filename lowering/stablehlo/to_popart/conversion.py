"""Conversion of one op: the values that its rule reads, and the place where it inserts `popart` ops.

A rule is a function of a `Conversion` that gives the values of the op's results: one, or a list. A complex value is a `Pair`
of real ones, and a tuple is a Python tuple of values; a token is the empty tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from xdsl.builder import Builder
from xdsl.dialects.builtin import ComplexType, TensorType, bf16, f16
from xdsl.ir import Attribute, Block, Operation, SSAValue

from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import constant, constant_value
from populus.dialects.popart import BitCastOp, CastOp, ExpandOp, ReshapeOp, SliceOp, TransposeOp
from populus.dialects.poplar.target import sum_type
from populus.dialects.stablehlo.ops import HloOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of, size_in_bytes, ui8, ui16, ui32, ui64

if TYPE_CHECKING:
    from numpy.typing import NDArray

BITS = {1: ui8, 2: ui16, 4: ui32, 8: ui64}  # unsigned integers by bytes


@dataclass(frozen=True)
class Pair:
    """A complex value: its real and its imaginary part, of one type."""

    real: SSAValue
    imag: SSAValue


Value: TypeAlias = "SSAValue | Pair | tuple[Value, ...]"
Rule: TypeAlias = "Callable[[Conversion], Value | list[Value]]"
Rules: TypeAlias = Mapping[str, Rule]


class Regions(Protocol):
    """The walk over a function, as rules see it. `claimed`: the loaded ops by the custom_call's target that they claim."""

    claimed: Mapping[str, type[TensorOp]]

    def inline(self, block: Block, values: Sequence[Value], builder: Builder, lifted: bool) -> list[Value]: ...

    def call(self, name: str, values: Sequence[Value], builder: Builder, lifted: bool) -> list[Value]: ...


class Conversion:
    """The op, whose operands are converted already, and the insertion point of its replacement.

    `lifted`: the op is in a region on scalars that is computed on whole tensors.
    """

    def __init__(self, op: Operation, inputs: Sequence[Value], builder: Builder, regions: Regions, lifted: bool = False):
        self.any = op
        self.inputs = list(inputs)
        self.builder = builder
        self.regions = regions
        self.lifted = lifted
        self.which = 0  # the region that combines values

    @property
    def op(self) -> HloOp:
        """The op, which is one of `stablehlo` or `chlo`."""
        assert isinstance(self.any, HloOp), self.any
        return self.any

    def at(self, builder: Builder) -> Conversion:
        """Makes the same conversion with another insertion point."""
        made = copy(self)
        made.builder = builder
        return made

    def of(self, count: int) -> Conversion:
        """Makes the same conversion with the first operands alone."""
        made = copy(self)
        made.inputs = self.inputs[:count]
        return made

    def by(self, which: int) -> Conversion:
        """Makes the same conversion, of which another region combines values."""
        made = copy(self)
        made.which = which
        return made

    def input(self, i: int) -> SSAValue:
        """Gives an operand that is a tensor. Raises PopulusError for a complex one, or a tuple."""
        return real(self.inputs[i])

    def get(self, name: str, default: Any = None) -> Any:
        """Gives an attribute as a Python value; `default` if it is left out."""
        return self.op.get(name, default)

    def ints(self, name: str, count: int = 0, default: int = 1) -> tuple[int, ...]:
        """Gives a list of integers; `count` times `default` if it is left out."""
        found = self.get(name)
        return (default,) * count if found is None else tuple(int(v) for v in found)

    def known(self, i: int) -> NDArray[Any]:
        """Gives the array of an operand. Raises PopulusError if it is not a constant."""
        array = constant_value(self.input(i))
        if array is None:
            raise PopulusError(f"its operand {self.op.FORM.operands[i]} is computed when the program runs; it has to be a constant here")
        return array

    def shape(self, i: int = 0) -> tuple[int, ...]:
        """Gives the stated shape of a result."""
        return shape_of(self.any.results[i].type)

    def element(self, i: int = 0) -> Attribute:
        """Gives the stated element type of a result; that of the parts if it is complex."""
        return part_type(self.any.results[i].type)

    def is_complex(self, i: int = 0) -> bool:
        """Tells whether a result is complex."""
        return is_complex(self.any.results[i].type)

    def __call__(self, kind: type[TensorOp], *operands: SSAValue | None, **properties: Any) -> SSAValue:
        """Inserts a `popart` op, and gives its first result."""
        return self.insert(kind(*operands, **properties))

    def insert(self, op: Operation) -> SSAValue:
        """Inserts an op with the location of the op that is converted, and gives its first result."""
        op.location = self.any.location
        return self.builder.insert(op).results[0]

    def constant(self, array: NDArray[Any]) -> SSAValue:
        """Inserts a constant."""
        return self.insert(constant(array))

    def scalar(self, value: float | int, like: SSAValue | Attribute) -> SSAValue:
        """Inserts a scalar constant of the element type of `like`. Integers keep their low bits."""
        import numpy as np

        dtype = dtype_of(element(like) if isinstance(like, SSAValue) else like)
        if dtype.kind in "iu" and isinstance(value, int):
            value = int(np.array(value & ((1 << 8 * dtype.itemsize) - 1), f"u{dtype.itemsize}").view(dtype))
        return self.constant(np.array(value, dtype))

    def filled(self, value: float, like: SSAValue) -> SSAValue:
        """Inserts a tensor of the type of `like`, all of whose elements are equal."""
        return self.expand(self.scalar(value, like), shape(like))

    def reshape(self, x: SSAValue, to: Sequence[int]) -> SSAValue:
        """Reshapes `x`, unless it has the shape already."""
        return x if shape(x) == tuple(to) else self(ReshapeOp, x, shape=tuple(to))

    def transpose(self, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
        """Transposes `x`, unless the permutation is the identity."""
        same = list(permutation) == list(range(len(permutation)))
        return x if same else self(TransposeOp, x, permutation=tuple(permutation))

    def expand(self, x: SSAValue, to: Sequence[int]) -> SSAValue:
        """Broadcasts `x` to a shape, unless it has the shape already."""
        return x if shape(x) == tuple(to) else self(ExpandOp, x, shape=tuple(to))

    def cast(self, x: SSAValue, to: Attribute) -> SSAValue:
        """Casts `x` to an element type, unless it has the type already."""
        return x if element(x) == to else self(CastOp, x, to=to)

    def bits(self, x: SSAValue, to: Attribute | None = None) -> SSAValue:
        """Takes the bits of `x` for elements of a type of the same size, by default the unsigned integer of it."""
        to = to or BITS[size_in_bytes(element(x))]
        return x if element(x) == to else self(BitCastOp, x, to=to)

    def wide(self, x: SSAValue) -> SSAValue:
        """Casts halves to the type that they are summed in, f32."""
        return self.cast(x, sum_type(element(x))) if element(x) in (f16, bf16) else x

    def slice(self, x: SSAValue, dims: Mapping[int, tuple[int, int, int]]) -> SSAValue:
        """Slices `x`: begin, end and step of some dimensions."""
        full = [dims.get(d, (0, n, 1)) for d, n in enumerate(shape(x))]
        if all(bound == (0, n, 1) for bound, n in zip(full, shape(x))):
            return x
        begins, ends, steps = zip(*full)
        return self(SliceOp, x, begins=begins, ends=ends, steps=steps)

    @property
    def body(self) -> Block:
        """The block of the region that combines values."""
        return self.op.body(self.which)

    def region(self, i: int, values: Sequence[Value]) -> list[Value]:
        """Converts a region in place, with `values` for its arguments, and gives what it returns."""
        return self.regions.inline(self.op.body(i), values, self.builder, self.lifted)

    def combine(self, values: Sequence[Value]) -> list[Value]:
        """Computes the region that combines values, which is on scalars, on whole tensors."""
        return self.regions.inline(self.body, values, self.builder, lifted=True)


def shape(value: SSAValue) -> tuple[int, ...]:
    """Gives the shape of a value."""
    return shape_of(value.type)


def element(value: SSAValue) -> Attribute:
    """Gives the element type of a value."""
    return element_type_of(value.type)


def is_complex(type: Attribute) -> bool:
    """Tells whether a type is a tensor of complex numbers."""
    return isinstance(type, TensorType) and isinstance(cast("TensorType[Attribute]", type).element_type, ComplexType)


def part_type(type: Attribute) -> Attribute:
    """Gives the element type of a tensor, or that of the parts of complex elements."""
    found = element_type_of(type)
    return cast("ComplexType[Any]", found).element_type if isinstance(found, ComplexType) else found


def real(value: Value) -> SSAValue:
    """Gives a value that is a tensor of real numbers. Raises PopulusError for another."""
    if isinstance(value, SSAValue):
        return value
    raise PopulusError(f"an operand is {'complex' if isinstance(value, Pair) else 'a tuple'}; a tensor of real numbers is expected")


def as_pair(c: Conversion, value: Value) -> Pair:
    """Gives a complex value, with zeros for the imaginary part of a real one."""
    if isinstance(value, Pair):
        return value
    x = real(value)
    return Pair(x, c.filled(0, x))


def leaves(values: Sequence[Value]) -> Iterator[SSAValue]:
    """Lists the tensors that values are made of, in order."""
    for value in values:
        if isinstance(value, SSAValue):
            yield value
        else:
            yield from leaves((value.real, value.imag) if isinstance(value, Pair) else value)


def rebuilt(values: Sequence[Value], tensors: Iterator[SSAValue]) -> list[Value]:
    """Makes values of the same structure from other tensors."""

    def one(value: Value) -> Value:
        if isinstance(value, SSAValue):
            return next(tensors)
        if isinstance(value, Pair):
            return Pair(next(tensors), next(tensors))
        return tuple(one(v) for v in value)

    return [one(v) for v in values]


def apart(rule: Callable[..., SSAValue]) -> Callable[[Conversion], Value]:
    """Makes the rule of an op that treats real and imaginary parts alike: `rule` takes the conversion and the operands."""

    def both(c: Conversion) -> Value:
        if not any(isinstance(v, Pair) for v in c.inputs):
            return rule(c, *(real(v) for v in c.inputs))
        pairs = [as_pair(c, v) for v in c.inputs]
        return Pair(rule(c, *(p.real for p in pairs)), rule(c, *(p.imag for p in pairs)))

    return both
