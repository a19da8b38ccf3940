"""Values of codelets as ops of `arith`, `math`, `memref`, `scf` and `cf`, with the checks that nothing proves away."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, cf, func, scf
from xdsl.dialects.builtin import MemRefType, f32, i1, i64
from xdsl.ir import Attribute, Block, SSAValue

from populus.dialects.poplar.tile_functions import ROUNDED
from populus.dialects.poplar.tile_mlir_ops import BYTE, FLOAT, HALF, INDEX, INT, OpWriter, signless
from populus.dialects.poplar.tile_program import (
    Apply,
    Assign,
    Call,
    Load,
    Name,
    Number,
    Site,
    Size,
    Statement,
    TileCode,
    Value,
    parts,
    statements,
)
from populus.dialects.poplar.tile_ranges import WHOLE
from populus.dialects.support.element_types import dtype_of, is_unsigned, size_in_bytes

_PREDICATES = {
    "eq": ("oeq", "eq"),
    "ge": ("oge", "sge"),
    "gt": ("ogt", "sgt"),
    "le": ("ole", "sle"),
    "lt": ("olt", "slt"),
    "ne": ("une", "ne"),
}
_CHEAP = frozenset((*FLOAT, *INT, *_PREDICATES, "abs", "and", "float", "not", "or", "select")) - {"div"}


class ValueWriter(OpWriter):
    """Inserts values. `fails` tells which of them need a check, which takes blocks of `cf` at the function's top."""

    # -- what may fail

    def fails(self, value: Value) -> bool:
        """Tells whether a value needs a check, in itself or in its parts, or has statements that need blocks."""
        found = self.known_fails.get(id(value))
        if found is None:
            found = self.known_fails[id(value)] = any(map(self.part_fails, parts(value)))
        return found

    def part_fails(self, p: Value) -> bool:
        """Tells whether a part of a value needs a check of its own."""
        match p:
            case Load(vector, index):
                return vector in self.tracked or not self.in_bounds(vector, index)
            case Call():
                return self.needs_blocks(p.body[:-1] if p.body else p.body) or self.last_needs_blocks(p)
            case Apply("floordiv" | "mod", (_, b), "int"):
                low, high = self.ranges.of(b)
                return low <= 0 <= high
            case Apply("shl" | "shr", (_, b)):
                return not self.inside(b, 0, WHOLE[1])
            case Apply("int"):
                return True
            case _:
                return False

    def in_bounds(self, vector: str, index: Sequence[Value]) -> bool:
        """Tells whether an index is proved to be inside of its vector."""
        return all(self.inside(i, 0, n - 1) for i, n in zip(index, self.shape(vector)))

    def needs_blocks(self, body: Sequence[Statement]) -> bool:
        """Tells whether statements leave their block other than at its end."""
        raise NotImplementedError

    def last_needs_blocks(self, call: Call) -> bool:
        """Tells whether the last statement of a helper is more than its return."""
        raise NotImplementedError

    def inline(self, call: Call) -> None:
        """Inserts the statements of a helper."""
        raise NotImplementedError

    # -- values

    def value(self, value: Value) -> SSAValue:
        """Inserts a value; returns it."""
        match value:
            case Number():
                return self.number(value)
            case Name(name) if name in self.turns:
                return self.turns[name]
            case Name(name, kind):
                cell = self.cells.get((name, kind))
                return self.env[name] if cell is None else self.read(cell)
            case Size(vector, dim):
                return self.integer(self.shape(vector)[dim])
            case Load():
                return self.load(value)
            case Call():
                self.inline(value)
                return self.value(value.result)
            case Apply("and" | "or" | "select"):
                return self.lazy(value)
            case Apply():
                return self.apply(value, [self.value(a) for a in value.args])

    def load(self, load: Load) -> SSAValue:
        """Inserts a load, after the checks of its index."""
        at = self.place(load.vector, load.index, load.line)
        if load.vector in self.tracked:
            good = self.compare("ne", self.read(self.marks[load.vector], at), self.integer(0, BYTE))
            self.check(good, Site("unwritten", load.line, load.vector), at[0])
        return self.widened(self.read(self.vectors[load.vector], at), load.vector)

    def memref(self, vector: str) -> MemRefType[Attribute]:
        """Makes the type of a vector."""
        if vector not in self.scratch:
            return self.fields[vector].type()
        return MemRefType(BYTE if self.kinds[vector] == "bool" else self.types[self.kinds[vector]], self.scratch[vector])

    def place(self, vector: str, index: Sequence[Value], line: int) -> list[SSAValue]:
        """Inserts the values of an index, and the checks that they are inside."""
        at: list[SSAValue] = []
        for d, (i, n) in enumerate(zip(index, self.shape(vector))):
            at.append(self.value(i))
            if not self.inside(i, 0, n - 1):
                self.check(self.compare("ult", at[-1], self.integer(n)), Site("index", line, vector, d), at[-1])
        return at

    def lazy(self, value: Apply) -> SSAValue:
        """Inserts `and`, `or` and `select`, whose operands are computed only where they are needed."""
        if value.function == "select":
            a, b, condition = value.args
        elif value.function == "and":
            condition, a, b = value.args[0], value.args[1], Number(False, "bool")
        else:
            condition, a, b = value.args[0], Number(True, "bool"), value.args[1]
        type, c = self.types[value.kind], self.value(condition)
        if all(_cheap(v) for v in (a, b)):
            if value.function == "select":
                return self.op(arith.SelectOp(c, self.value(a), self.value(b)))
            return self.op((arith.AndIOp if value.function == "and" else arith.OrIOp)(c, self.value(value.args[1])))
        one, two = Block(), Block()
        if any(map(self.fails, (a, b))):
            end = Block(arg_types=[type])
            self.add(cf.ConditionalBranchOp(c, one, [], two, []))
            for block, v in ((one, a), (two, b)):
                self.begin(block)
                self.add(cf.BranchOp(end, self.value(v)))
            self.begin(end)
            return end.args[0]
        for block, v in ((one, a), (two, b)):
            with self.into(block):
                self.add(scf.YieldOp(self.value(v)))
        return self.op(scf.IfOp(c, [type], [one], [two]))

    def apply(self, value: Apply, args: list[SSAValue]) -> SSAValue:
        """Inserts a function of values."""
        kind, name = value.args[0].kind, value.function
        match name:
            case "not":
                return self.op(arith.XOrIOp(args[0], self.integer(1, i1)))
            case "eq" | "ge" | "gt" | "le" | "lt" | "ne":
                of_floats, of_integers = _PREDICATES[name]
                return (
                    self.op(arith.CmpfOp(args[0], args[1], of_floats)) if kind == "float" else self.compare(of_integers, args[0], args[1])
                )
            case "float":
                return self.op(arith.SIToFPOp(self.op(arith.IndexCastOp(args[0], i64)), self.float))
            case "bitand" | "bitor" | "bitxor" if kind == "bool":
                return self.op(INT[name](*args))
            case _ if kind == "int":
                return self.of_integers(value, args)
            case _:
                return self.of_floats(value, args)

    # -- elements

    def half(self, verb: str, element: Attribute, value: SSAValue) -> SSAValue:
        """Inserts a conversion between a 16-bit float's bits and f32."""
        name, type = f"{verb}_{dtype_of(element).name}", f32 if verb == "widen" else HALF
        self.externals[name] = [value.type], type
        return self.op(func.CallOp(name, [value], [type]))

    def widened(self, value: SSAValue, vector: str) -> SSAValue:
        """Converts an element to the type of the computation."""
        kind = self.kinds[vector]
        if kind == "bool":
            return self.compare("ne", value, self.integer(0, BYTE))
        if vector in self.scratch:
            return value
        element = self.fields[vector].element
        if self.fields[vector].halves:
            return self.half("widen", element, value)
        if kind == "float":
            return value if element == self.float else self.op(arith.ExtFOp(value, self.float))
        if is_unsigned(element) and size_in_bytes(element) < 8:
            value = self.op(arith.ExtUIOp(value, i64))
        return self.op(arith.IndexCastOp(value, INDEX))

    def narrowed(self, value: SSAValue, vector: str) -> SSAValue:
        """Converts a computed value to an element."""
        kind = self.kinds[vector]
        if kind == "bool":
            return self.op(arith.ExtUIOp(value, BYTE))
        if vector in self.scratch:
            return value
        element = self.fields[vector].element
        if self.fields[vector].halves:
            return self.half("narrow", element, value)
        if kind == "float":
            return value if element == self.float else self.op(arith.TruncFOp(value, element))
        return self.op(arith.IndexCastOp(value, signless(element)))


def _cheap(value: Value) -> bool:
    """Tells whether a value may be computed where it is not needed."""
    return all(
        not isinstance(p, Load | Call) and (not isinstance(p, Apply) or p.function in _CHEAP or p.function in ROUNDED) for p in parts(value)
    )


def assignments(code: TileCode) -> dict[tuple[str, str], int]:
    """Counts the assignments of each variable, by name and kind."""
    found: dict[tuple[str, str], int] = {}
    for s in statements(code.body):
        if isinstance(s, Assign):
            found[s.name, s.value.kind] = found.get((s.name, s.value.kind), 0) + 1
    return found
