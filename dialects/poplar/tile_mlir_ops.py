"""Ops of a codelet's function: constants, checks, and functions of integers and floats in `arith` and `math`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, prod
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.dialects import arith, cf, func, math, memref
from xdsl.dialects.builtin import (
    Float64Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StridedLayoutAttr,
    f32,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects.poplar.tile_functions import FLOATS
from populus.dialects.poplar.tile_program import MOST, Apply, Number, Site, TileCode, Value
from populus.dialects.poplar.tile_ranges import WHOLE, Range, Ranges, scratch_shapes
from populus.dialects.poplar.tile_written import tracked_at
from populus.dialects.support.element_types import is_float, is_unsigned, size_in_bytes

INDEX, BYTE, HALF = IndexType(), IntegerType(8), IntegerType(16)
FLOAT: dict[str, Callable[..., Operation]] = {
    "add": arith.AddfOp,
    "div": arith.DivfOp,
    "mul": arith.MulfOp,
    "neg": arith.NegfOp,
    "sub": arith.SubfOp,
}
INT: dict[str, Callable[..., Operation]] = {
    "add": arith.AddiOp,
    "bitand": arith.AndIOp,
    "bitor": arith.OrIOp,
    "bitxor": arith.XOrIOp,
    "max": arith.MaxSIOp,
    "min": arith.MinSIOp,
    "mul": arith.MuliOp,
    "sub": arith.SubiOp,
}
_NAMED = {op.name.removeprefix("math."): op for op in math.Math.operations}
_MATH: dict[str, Callable[..., Operation]] = {
    **{name: _NAMED[f.op] for name, f in FLOATS.items() if f.op},
    "abs": math.AbsFOp,
    "ceil": math.CeilOp,
    "floor": math.FloorOp,
    "round": math.RoundEvenOp,
    "trunc": math.TruncOp,
}


@dataclass(frozen=True)
class Operand:
    """A vector as the function sees it: shape, element type, and strides in elements (row-major without them).

    `halves`: 16-bit floats are seen as their bits, which functions `widen_..` and `narrow_..` convert.
    """

    shape: tuple[int, ...]
    element: Attribute
    strides: tuple[int, ...] | None = None
    halves: bool = False

    def type(self) -> MemRefType[Attribute]:
        """Makes the type of the memref. Booleans are bytes."""
        element = HALF if self.halves else signless(self.element)
        if self.strides in (None, tuple(prod(self.shape[d + 1 :]) for d in range(len(self.shape)))):
            return MemRefType(element, self.shape)
        return MemRefType(element, self.shape, StridedLayoutAttr(self.strides or ()))


Fields: TypeAlias = "Mapping[str, Operand]"


class OpWriter:
    """Inserts ops into a function, and knows what they need of the codelet at given shapes."""

    def __init__(self, code: TileCode, fields: Fields, scalars: Mapping[str, float]):
        self.code, self.fields = code, fields
        self.float = f64 if any(isinstance(fields[v].element, Float64Type) for v in code.axes) else f32
        self.types: dict[str, Attribute] = {"float": self.float, "int": INDEX, "bool": i1}
        shapes = {v: f.shape for v, f in fields.items()}
        self.scratch = scratch_shapes(code, shapes, scalars)
        self.kinds = {**code.kinds, **{s.vector: s.kind for s in code.scratch()}}
        self.ranges = Ranges(code, {**shapes, **self.scratch}, {v: _range_of(f.element) for v, f in fields.items()})
        self.tracked = tracked_at(code, shapes)
        self.entry = Block()
        self.body = Region(self.entry)
        self.builder = Builder(InsertPoint.at_end(self.entry))
        self.late: list[Block] = []  # of failures, which follow the others
        self.sites: list[Site] = []
        self.externals: dict[str, tuple[list[Attribute], Attribute]] = {}
        self.vectors: dict[str, SSAValue] = {}  # the memory of vectors and scratch vectors
        self.marks: dict[str, SSAValue] = {}  # a byte for each element of a tracked output
        self.report: SSAValue | None = None  # the number of the site, a value, the index along each lane
        self.env: dict[str, SSAValue] = {}  # values of names
        self.cells: dict[tuple[str, str], SSAValue] = {}  # variables in memory, by name and kind
        self.turns: dict[str, SSAValue] = {}  # the variables of the loops around, whose names may be other variables' elsewhere
        self.loop_values: dict[str, SSAValue] = {}  # of lanes
        self.known_fails: dict[int, bool] = {}

    # -- ops

    def op(self, made: Operation) -> SSAValue:
        """Inserts an op; returns its result."""
        self.builder.insert(made)
        return made.results[0]

    def add(self, made: Operation) -> None:
        """Inserts an op without a result."""
        self.builder.insert(made)

    def begin(self, block: Block) -> None:
        """Goes on in the next block of the function."""
        self.body.add_block(block)
        self.builder = Builder(InsertPoint.at_end(block))

    @contextmanager
    def into(self, block: Block) -> Generator[None]:
        """Inserts into a block meanwhile."""
        outer, self.builder = self.builder, Builder(InsertPoint.at_end(block))
        yield
        self.builder = outer

    def integer(self, n: int, type: IndexType | IntegerType = INDEX) -> SSAValue:
        """Inserts a constant, an index by default."""
        return self.op(arith.ConstantOp(IntegerAttr(n, type)))

    def read(self, memory: SSAValue, at: Sequence[SSAValue] = ()) -> SSAValue:
        """Inserts a load."""
        return self.op(memref.LoadOp.get(memory, at))

    def write(self, value: SSAValue, memory: SSAValue, at: Sequence[SSAValue] = ()) -> None:
        """Inserts a store."""
        self.add(memref.StoreOp.get(value, memory, at))

    def compare(self, how: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """Inserts a comparison of integers."""
        return self.op(arith.CmpiOp(a, b, how))

    def check(self, good: SSAValue, site: Site, value: SSAValue) -> None:
        """Goes on if `good` is true; else reports the site and a value, and returns."""
        assert self.builder.insertion_point.block.parent is self.body, site
        assert self.report is not None, site
        bad, going = Block(), Block()
        self.add(cf.ConditionalBranchOp(good, going, [], bad, []))
        self.late.append(bad)
        self.sites.append(site)
        with self.into(bad):
            found = [self.integer(len(self.sites)), value]
            found += [self.loop_values.get(a) or self.integer(-1) for a in self.code.lanes]
            for place, v in enumerate(found):
                self.write(v, self.report, [self.integer(place)])
            self.add(func.ReturnOp(self.integer(1, i64)))
        self.begin(going)

    def inside(self, value: Value, low: int, high: int) -> bool:
        """Tells whether an integer is proved to lie between two numbers."""
        a, b = self.ranges.of(value)
        return low <= a and b <= high

    def shape(self, vector: str) -> tuple[int, ...]:
        """Gives the shape of a vector, or of a scratch vector."""
        return self.scratch[vector] if vector in self.scratch else self.fields[vector].shape

    # -- numbers

    def number(self, value: Number) -> SSAValue:
        """Inserts a literal."""
        if value.kind == "float":
            return self.op(arith.ConstantOp(FloatAttr(float(value.value), self.float)))
        return self.integer(int(value.value), INDEX if value.kind == "int" else i1)

    def of_integers(self, value: Apply, args: list[SSAValue]) -> SSAValue:
        """Inserts a function of integers."""
        name, a = value.function, args[0]
        match name:
            case "neg" | "abs":
                minus = self.op(arith.SubiOp(self.integer(0), a))
                return minus if name == "neg" else self.op(arith.MaxSIOp(a, minus))
            case "floordiv" | "mod":
                return self.divided(value, args)
            case "shl" | "shr":
                return self.shifted(value, args)
            case _:
                return self.op(INT[name](a, args[1]))

    def divided(self, value: Apply, args: list[SSAValue]) -> SSAValue:
        """Inserts // and % of integers, which round down. A divisor of -1 is apart: the lowest integer has no opposite."""
        (low, _), (first, last) = self.ranges.of(value.args[0]), self.ranges.of(value.args[1])
        a, b = args
        if first <= 0 <= last:
            self.check(self.compare("ne", b, self.integer(0)), Site("zero", value.line), b)
        is_mod = value.function == "mod"
        if low >= 0 and first >= 0:
            return self.op(arith.RemUIOp(a, b) if is_mod else arith.DivUIOp(a, b))
        turned = None
        if first <= -1 <= last:
            turned = self.compare("eq", b, self.integer(-1))
            b = self.op(arith.SelectOp(turned, self.integer(1), b))
        quotient = self.op(arith.FloorDivSIOp(a, b))
        if is_mod:
            return self.op(arith.SubiOp(a, self.op(arith.MuliOp(quotient, b))))
        if turned is not None:
            return self.op(arith.SelectOp(turned, self.op(arith.SubiOp(self.integer(0), a)), quotient))
        return quotient

    def shifted(self, value: Apply, args: list[SSAValue]) -> SSAValue:
        """Inserts << and >>; all bits have left after 64 places."""
        a, b = args
        low, high = self.ranges.of(value.args[1])
        if low < 0:
            self.check(self.compare("sge", b, self.integer(0)), Site("shift", value.line), b)
        left = value.function == "shl"
        by = b if high < 64 else self.op(arith.MinSIOp(b, self.integer(63)))
        found = self.op(arith.ShLIOp(a, by) if left else arith.ShRSIOp(a, by))
        if high < 64 or not left:
            return found
        return self.op(arith.SelectOp(self.compare("slt", b, self.integer(64)), found, self.integer(0)))

    def of_floats(self, value: Apply, args: list[SSAValue]) -> SSAValue:
        """Inserts a function of floats."""
        name, a = value.function, args[0]
        match name:
            case "min" | "max":  # as Python has it: the first one, unless the second is less, or more
                than = self.op(arith.CmpfOp(args[1], a, "olt" if name == "min" else "ogt"))
                return self.op(arith.SelectOp(than, args[1], a))
            case "int":
                good = self.op(arith.CmpfOp(self.op(math.AbsFOp(a)), self.number(Number(MOST, "float")), "olt"))
                self.check(good, Site("int", value.line), self.integer(0))
                return self.op(arith.IndexCastOp(self.op(arith.FPToSIOp(a, i64)), INDEX))
            case "isnan":
                return self.op(arith.CmpfOp(a, a, "uno"))
            case "isinf" | "isfinite":
                size, most = self.op(math.AbsFOp(a)), self.number(Number(inf, "float"))
                return self.op(arith.CmpfOp(size, most, "oeq" if name == "isinf" else "olt"))
            case "mod" | "floordiv":
                return self.call(f"python_{name}", args)
            case _ if name in FLOAT:
                return self.op(FLOAT[name](*args))
            case _ if name in _MATH:
                return self.op(_MATH[name](*args))
            case _:
                return self.call(FLOATS[name].c, args)

    def call(self, name: str, args: list[SSAValue]) -> SSAValue:
        """Inserts a call of C's library, or of what `tile_floored.py` has, by the name for the type of floats."""
        full = name if self.float == f64 else f"{name}f"
        self.externals[full] = [self.float] * len(args), self.float
        return self.op(func.CallOp(full, args, [self.float]))


def signless(element: Attribute) -> Attribute:
    """Returns the element type in memory: signless, and a byte for a boolean."""
    return element if is_float(element) else IntegerType(8 * size_in_bytes(element))


def _range_of(element: Attribute) -> Range:
    """Returns the interval of an element type's integers."""
    if is_float(element):
        return WHOLE
    bits = 8 * size_in_bytes(element)
    if is_unsigned(element):
        return (0, (1 << bits) - 1) if bits < 64 else WHOLE
    return -(1 << bits - 1), (1 << bits - 1) - 1
