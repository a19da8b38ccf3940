"""Values of codelets as ops of `arith`, `math` and `memref`, with the checks that nothing proves away."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from populus.dialects.poplar.tile_functions import ROUNDED
from populus.dialects.poplar.tile_mlir_lines import FLOAT, INT, LineWriter, Site, signless
from populus.dialects.poplar.tile_program import (
    Apply,
    Assign,
    Call,
    Load,
    Name,
    Number,
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


class ValueWriter(LineWriter):
    """Writes values. `fails` tells which of them need a check, which takes blocks of `cf` at the function's top."""

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

    def inline(self, call: Call, depth: int) -> None:
        """Writes the statements of a helper."""
        raise NotImplementedError

    # -- values

    def value(self, value: Value, depth: int) -> str:
        """Writes a value; returns its name."""
        match value:
            case Number():
                return self.number(value, depth)
            case Name(name) if name in self.turns:
                return self.turns[name]
            case Name(name, kind):
                cell = self.cells.get((name, kind))
                return self.env[name] if cell is None else self.emit(depth, f"memref.load {cell}[] : memref<{self.types[kind]}>")
            case Size(vector, dim):
                return self.integer(self.shape(vector)[dim], depth)
            case Load():
                return self.load(value, depth)
            case Call():
                self.inline(value, depth)
                return self.value(value.result, depth) if value.kind != "nothing" else ""
            case Apply("and" | "or" | "select"):
                return self.lazy(value, depth)
            case Apply():
                return self.apply(value, [self.value(a, depth) for a in value.args], depth)

    def load(self, load: Load, depth: int) -> str:
        """Writes a load, after the checks of its index."""
        at = self.place(load.vector, load.index, load.line, depth)
        if load.vector in self.tracked:
            mask = self.mask(load.vector)
            mark = self.emit(depth, f"memref.load %{load.vector}.written[{', '.join(at)}] : {mask}")
            good = self.emit(depth, f"arith.cmpi ne, {mark}, {self.emit(depth, 'arith.constant 0 : i8')} : i8")
            self.check(good, Site("unwritten", load.line, load.vector), at[0], depth)
        loaded = self.emit(depth, f"memref.load %{load.vector}[{', '.join(at)}] : {self.memref(load.vector)}")
        return self.widened(loaded, load.vector, depth)

    def mask(self, vector: str) -> str:
        """Writes the type of the marks of written elements."""
        return f"memref<{''.join(f'{n}x' for n in self.shape(vector))}i8>"

    def memref(self, vector: str) -> str:
        """Writes the type of a vector."""
        if vector not in self.scratch:
            return self.fields[vector].type()
        element = "i8" if self.kinds[vector] == "bool" else self.types[self.kinds[vector]]
        return f"memref<{''.join(f'{n}x' for n in self.scratch[vector])}{element}>"

    def place(self, vector: str, index: Sequence[Value], line: int, depth: int) -> list[str]:
        """Writes the values of an index, and the checks that they are inside."""
        at: list[str] = []
        for d, (i, n) in enumerate(zip(index, self.shape(vector))):
            at.append(self.value(i, depth))
            if not self.inside(i, 0, n - 1):
                good = self.emit(depth, f"arith.cmpi ult, {at[-1]}, {self.integer(n, depth)} : index")
                self.check(good, Site("index", line, vector, d), at[-1], depth)
        return at

    def lazy(self, value: Apply, depth: int) -> str:
        """Writes `and`, `or` and `select`, whose operands are computed only where they are needed."""
        if value.function == "select":
            a, b, condition = value.args
        elif value.function == "and":
            condition, a, b = value.args[0], value.args[1], Number(False, "bool")
        else:
            condition, a, b = value.args[0], Number(True, "bool"), value.args[1]
        type, c = self.types[value.kind], self.value(condition, depth)
        if all(_cheap(v) for v in (a, b)):
            if value.function == "select":
                return self.emit(depth, f"arith.select {c}, {self.value(a, depth)}, {self.value(b, depth)} : {type}")
            return self.emit(depth, f"arith.{value.function}i {c}, {self.value(value.args[1], depth)} : i1")
        if any(map(self.fails, (a, b))):
            one, two, end = self.label(), self.label(), self.label()
            self.line(depth, f"cf.cond_br {c}, {one}, {two}")
            for label, v in ((one, a), (two, b)):
                self.begin(label)
                self.line(depth, f"cf.br {end}({self.value(v, depth)} : {type})")
            self.count += 1
            result = f"%{self.count}"
            self.begin(end, f"({result} : {type})")
            return result
        result = self.emit(depth, f"scf.if {c} -> ({type}) {{")
        for v, close in ((a, "} else {"), (b, "}")):
            self.line(depth + 1, f"scf.yield {self.value(v, depth + 1)} : {type}")
            self.line(depth, close)
        return result

    def apply(self, value: Apply, args: list[str], depth: int) -> str:
        """Writes a function of values."""
        kind, name = value.args[0].kind, value.function
        type = self.types[kind]
        match name:
            case "not":
                return self.emit(depth, f"arith.xori {args[0]}, {self.emit(depth, 'arith.constant true')} : i1")
            case "eq" | "ge" | "gt" | "le" | "lt" | "ne":
                of = _PREDICATES[name][kind != "float"]
                return self.emit(depth, f"arith.cmp{'f' if kind == 'float' else 'i'} {of}, {args[0]}, {args[1]} : {type}")
            case "float":
                whole = self.emit(depth, f"arith.index_cast {args[0]} : index to i64")
                return self.emit(depth, f"arith.sitofp {whole} : i64 to {self.types['float']}")
            case "bitand" | "bitor" | "bitxor" if kind == "bool":
                return self.emit(depth, f"arith.{INT[name]} {args[0]}, {args[1]} : i1")
            case _ if kind == "int":
                return self.of_integers(value, args, depth)
            case _:
                return self.of_floats(value, args, depth)

    # -- elements

    def half(self, verb: str, element: Attribute) -> str:
        """Declares a function between a 16-bit float's bits and f32."""
        name = f"{verb}_{dtype_of(element).name}"
        self.externals[name] = "(i16) -> f32" if verb == "widen" else "(f32) -> i16"
        return name

    def widened(self, value: str, vector: str, depth: int) -> str:
        """Converts an element to the type of the computation."""
        kind = self.kinds[vector]
        if kind == "bool":
            return self.emit(depth, f"arith.cmpi ne, {value}, {self.emit(depth, 'arith.constant 0 : i8')} : i8")
        if vector in self.scratch:
            return value
        element = self.fields[vector].element
        if self.fields[vector].halves:
            return self.emit(depth, f"func.call @{self.half('widen', element)}({value}) : (i16) -> f32")
        if kind == "float":
            same = signless(element) == self.types["float"]
            return value if same else self.emit(depth, f"arith.extf {value} : {element} to {self.types['float']}")
        if is_unsigned(element) and size_in_bytes(element) < 8:
            wide = self.emit(depth, f"arith.extui {value} : {signless(element)} to i64")
            return self.emit(depth, f"arith.index_cast {wide} : i64 to index")
        return self.emit(depth, f"arith.index_cast {value} : {signless(element)} to index")

    def narrowed(self, value: str, vector: str, depth: int) -> str:
        """Converts a computed value to an element."""
        kind = self.kinds[vector]
        if kind == "bool":
            return self.emit(depth, f"arith.extui {value} : i1 to i8")
        if vector in self.scratch:
            return value
        element = self.fields[vector].element
        if self.fields[vector].halves:
            return self.emit(depth, f"func.call @{self.half('narrow', element)}({value}) : (f32) -> i16")
        if kind == "float":
            same = signless(element) == self.types["float"]
            return value if same else self.emit(depth, f"arith.truncf {value} : {self.types['float']} to {element}")
        return self.emit(depth, f"arith.index_cast {value} : index to {signless(element)}")


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
