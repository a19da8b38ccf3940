"""Lines of a codelet's function: constants, checks, and functions of integers and floats as ops of `arith` and `math`."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import Float64Type
from xdsl.ir import Attribute

from populus.dialects.poplar.tile_functions import FLOATS
from populus.dialects.poplar.tile_program import Apply, Number, TileCode, Value
from populus.dialects.poplar.tile_ranges import WHOLE, Range, Ranges, scratch_shapes
from populus.dialects.poplar.tile_written import tracked_at
from populus.dialects.support.element_types import is_float, is_unsigned, size_in_bytes

FLOAT = {"add": "addf", "div": "divf", "mul": "mulf", "neg": "negf", "sub": "subf"}
INT = {"add": "addi", "bitand": "andi", "bitor": "ori", "bitxor": "xori", "max": "maxsi", "min": "minsi", "mul": "muli", "sub": "subi"}
_MATH = {"abs": "absf", "ceil": "ceil", "floor": "floor", "round": "roundeven", "trunc": "trunc"}
MOST = 9.223372036854775807e18  # 2^63: from there on, a float is no integer of 64 bits


@dataclass(frozen=True)
class Operand:
    """A vector as the function sees it: shape, element type, and strides in elements (row-major without them).

    `halves`: 16-bit floats are seen as their bits, which functions `widen_..` and `narrow_..` convert.
    """

    shape: tuple[int, ...]
    element: Attribute
    strides: tuple[int, ...] | None = None
    halves: bool = False

    def type(self) -> str:
        """Writes the type of the memref. Booleans are bytes."""
        sizes = "".join(f"{n}x" for n in self.shape)
        dense = tuple(math.prod(self.shape[d + 1 :]) for d in range(len(self.shape)))
        strided = "" if self.strides in (None, dense) else f", strided<[{', '.join(map(str, self.strides or ()))}]>"
        return f"memref<{sizes}{'i16' if self.halves else signless(self.element)}{strided}>"


@dataclass(frozen=True)
class Site:
    """A place that may fail: why (`index`, `zero`, `shift`, `int`, `turns`, `unwritten`, `left`), its line, a vector and a dimension."""

    why: str
    line: int
    vector: str = ""
    dim: int = 0


Fields: TypeAlias = "Mapping[str, Operand]"


class LineWriter:
    """Writes lines, and what they need to know of the codelet at given shapes."""

    def __init__(self, code: TileCode, fields: Fields, scalars: Mapping[str, float]):
        self.code, self.fields = code, fields
        wide = any(isinstance(fields[v].element, Float64Type) for v in code.axes)
        self.types = {"float": "f64" if wide else "f32", "int": "index", "bool": "i1"}
        shapes = {v: f.shape for v, f in fields.items()}
        self.scratch = scratch_shapes(code, shapes, scalars)
        self.kinds = {**code.kinds, **{s.vector: s.kind for s in code.scratch()}}
        self.ranges = Ranges(code, {**shapes, **self.scratch}, {v: _range_of(f.element) for v, f in fields.items()})
        self.tracked = tracked_at(code, shapes)
        self.lines: list[str] = []
        self.late: list[str] = []  # blocks of failures, which follow the others
        self.count: int = 0
        self.sites: list[Site] = []
        self.externals: dict[str, str] = {}
        self.env: dict[str, str] = {n: f"%{n}" for n in code.scalars}  # values of names
        self.cells: dict[tuple[str, str], str] = {}  # variables in memory, by name and kind
        self.turns: dict[str, str] = {}  # the variables of the loops around, whose names may be other variables' elsewhere
        self.loop_values: dict[str, str] = {}  # of lanes
        self.known_fails: dict[int, bool] = {}

    # -- lines

    def emit(self, depth: int, text: str) -> str:
        """Writes a line that defines a value; returns the value."""
        self.count += 1
        self.line(depth, f"%{self.count} = {text}")
        return f"%{self.count}"

    def line(self, depth: int, text: str) -> None:
        """Writes a line."""
        self.lines.append(f"{'  ' * depth}{text}")

    def label(self) -> str:
        """Makes the name of a block."""
        self.count += 1
        return f"^b{self.count}"

    def begin(self, label: str, arguments: str = "") -> None:
        """Begins a block."""
        self.line(1, f"{label}{arguments}:")

    def integer(self, n: int, depth: int) -> str:
        """Writes a constant index."""
        return self.emit(depth, f"arith.constant {n} : index")

    def check(self, good: str, site: Site, value: str, depth: int) -> None:
        """Goes on if `good` is true; else reports the site and a value, and returns."""
        assert depth == 2, site
        bad, going = self.label(), self.label()
        self.line(2, f"cf.cond_br {good}, {going}, {bad}")
        lines, self.lines = self.lines, self.late
        self.sites.append(site)
        self.begin(bad)
        found = [self.integer(len(self.sites), 2), value, *(self.loop_values.get(a) or self.integer(-1, 2) for a in self.code.lanes)]
        for place, v in enumerate(found):
            self.line(2, f"memref.store {v}, %report[{self.integer(place, 2)}] : {self.report()}")
        self.line(2, f"func.return {self.emit(2, 'arith.constant 1 : i64')} : i64")
        self.lines = lines
        self.begin(going)

    def report(self) -> str:
        """Writes the type of the report: the number of the site, a value, the index along each lane."""
        return f"memref<{2 + len(self.code.lanes)}xindex>"

    def inside(self, value: Value, low: int, high: int) -> bool:
        """Tells whether an integer is proved to lie between two numbers."""
        a, b = self.ranges.of(value)
        return low <= a and b <= high

    def shape(self, vector: str) -> tuple[int, ...]:
        """Gives the shape of a vector, or of a scratch vector."""
        return self.scratch[vector] if vector in self.scratch else self.fields[vector].shape

    # -- numbers

    def number(self, value: Number, depth: int) -> str:
        """Writes a literal."""
        if value.kind == "bool":
            return self.emit(depth, f"arith.constant {'true' if value.value else 'false'}")
        if value.kind == "int":
            return self.integer(int(value.value), depth)
        number = float(value.value)
        if math.isfinite(number):
            text = f"{number:.17e}"
        else:
            wide = self.types["float"] == "f64"
            text = f"0x{struct.pack('>d' if wide else '>f', number).hex().upper()}"
        return self.emit(depth, f"arith.constant {text} : {self.types['float']}")

    def of_integers(self, value: Apply, args: list[str], depth: int) -> str:
        """Writes a function of integers."""
        name, a = value.function, args[0]
        match name:
            case "neg" | "abs":
                minus = self.emit(depth, f"arith.subi {self.integer(0, depth)}, {a} : index")
                return minus if name == "neg" else self.emit(depth, f"arith.maxsi {a}, {minus} : index")
            case "floordiv" | "mod":
                return self.divided(value, args, depth)
            case "shl" | "shr":
                return self.shifted(value, args, depth)
            case _:
                return self.emit(depth, f"arith.{INT[name]} {a}, {args[1]} : index")

    def divided(self, value: Apply, args: list[str], depth: int) -> str:
        """Writes // and % of integers, which round down. A divisor of -1 is apart: the lowest integer has no opposite."""
        (low, _), (first, last) = self.ranges.of(value.args[0]), self.ranges.of(value.args[1])
        a, b = args
        if first <= 0 <= last:
            good = self.emit(depth, f"arith.cmpi ne, {b}, {self.integer(0, depth)} : index")
            self.check(good, Site("zero", value.line), b, depth)
        is_mod = value.function == "mod"
        if low >= 0 and first >= 0:
            return self.emit(depth, f"arith.{'remui' if is_mod else 'divui'} {a}, {b} : index")
        turned = ""
        if first <= -1 <= last:
            turned = self.emit(depth, f"arith.cmpi eq, {b}, {self.integer(-1, depth)} : index")
            b = self.emit(depth, f"arith.select {turned}, {self.integer(1, depth)}, {b} : index")
        quotient = self.emit(depth, f"arith.floordivsi {a}, {b} : index")
        if is_mod:
            product = self.emit(depth, f"arith.muli {quotient}, {b} : index")
            return self.emit(depth, f"arith.subi {a}, {product} : index")
        if turned:
            minus = self.emit(depth, f"arith.subi {self.integer(0, depth)}, {a} : index")
            return self.emit(depth, f"arith.select {turned}, {minus}, {quotient} : index")
        return quotient

    def shifted(self, value: Apply, args: list[str], depth: int) -> str:
        """Writes << and >>; all bits have left after 64 places."""
        a, b = args
        low, high = self.ranges.of(value.args[1])
        if low < 0:
            good = self.emit(depth, f"arith.cmpi sge, {b}, {self.integer(0, depth)} : index")
            self.check(good, Site("shift", value.line), b, depth)
        op = "shli" if value.function == "shl" else "shrsi"
        if high < 64:
            return self.emit(depth, f"arith.{op} {a}, {b} : index")
        by = self.emit(depth, f"arith.minsi {b}, {self.integer(63, depth)} : index")
        found = self.emit(depth, f"arith.{op} {a}, {by} : index")
        if op == "shrsi":
            return found
        few = self.emit(depth, f"arith.cmpi slt, {b}, {self.integer(64, depth)} : index")
        return self.emit(depth, f"arith.select {few}, {found}, {self.integer(0, depth)} : index")

    def of_floats(self, value: Apply, args: list[str], depth: int) -> str:
        """Writes a function of floats."""
        name, type, a = value.function, self.types["float"], args[0]
        match name:
            case "min" | "max":  # as Python has it: the first one, unless the second is less, or more
                than = self.emit(depth, f"arith.cmpf {'olt' if name == 'min' else 'ogt'}, {args[1]}, {a} : {type}")
                return self.emit(depth, f"arith.select {than}, {args[1]}, {a} : {type}")
            case "int":
                size = self.emit(depth, f"math.absf {a} : {type}")
                good = self.emit(depth, f"arith.cmpf olt, {size}, {self.number(Number(MOST, 'float'), depth)} : {type}")
                self.check(good, Site("int", value.line), self.integer(0, depth), depth)
                return self.emit(depth, f"arith.index_cast {self.emit(depth, f'arith.fptosi {a} : {type} to i64')} : i64 to index")
            case "isnan":
                return self.emit(depth, f"arith.cmpf uno, {a}, {a} : {type}")
            case "isinf" | "isfinite":
                size, most = self.emit(depth, f"math.absf {a} : {type}"), self.number(Number(math.inf, "float"), depth)
                return self.emit(depth, f"arith.cmpf {'oeq' if name == 'isinf' else 'olt'}, {size}, {most} : {type}")
            case "mod" | "floordiv":
                call = f"func.call @{self.external('python_' + name, 2)}"
                return self.emit(depth, f"{call}({a}, {args[1]}) : ({type}, {type}) -> {type}")
            case _ if name in FLOAT:
                return self.emit(depth, f"arith.{FLOAT[name]} {', '.join(args)} : {type}")
            case _ if name in _MATH or FLOATS[name].op:
                return self.emit(depth, f"math.{_MATH.get(name) or FLOATS[name].op} {', '.join(args)} : {type}")
            case _:
                call = f"func.call @{self.external(FLOATS[name].c, len(args))}"
                return self.emit(depth, f"{call}({', '.join(args)}) : ({', '.join([type] * len(args))}) -> {type}")

    def external(self, name: str, arity: int) -> str:
        """Declares a function of C's library, or one of FLOORED; returns its name for the type of floats."""
        type = self.types["float"]
        full = name if type == "f64" else f"{name}f"
        self.externals[full] = f"({', '.join([type] * arity)}) -> {type}"
        return full


def signless(element: Attribute) -> str:
    """Returns the element type in memory: signless, and a byte for a boolean."""
    return str(element) if is_float(element) else f"i{8 * size_in_bytes(element)}"


def _range_of(element: Attribute) -> Range:
    """Returns the interval of an element type's integers."""
    if is_float(element):
        return WHOLE
    bits = 8 * size_in_bytes(element)
    if is_unsigned(element):
        return (0, (1 << bits) - 1) if bits < 64 else WHOLE
    return -(1 << bits - 1), (1 << bits - 1) - 1
