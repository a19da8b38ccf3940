"""Codelets that were written in Python as functions of `scf`, `arith`, `math` and `memref`, to look at and to hand to other compilers.

print(function_of(code, {"x": ((4,), f32), "y": ((4,), f32)}))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import Float64Type, i1
from xdsl.ir import Attribute

from populus.dialects.poplar.tile_program import (
    Apply,
    Assign,
    For,
    If,
    Load,
    Name,
    Number,
    Size,
    Statement,
    Store,
    TileCode,
    Value,
    assigned,
)
from populus.dialects.support.element_types import is_float, is_unsigned, size_in_bytes

Fields: TypeAlias = Mapping[str, tuple[tuple[int, ...], Attribute]]

_FLOAT = {"add": "addf", "div": "divf", "max": "maximumf", "min": "minimumf", "mul": "mulf", "neg": "negf", "sub": "subf"}
_INT = {"add": "addi", "floordiv": "floordivsi", "max": "maxsi", "min": "minsi", "mul": "muli", "sub": "subi"}
_MATH = {"pow": "powf", "abs": "absf"}
_PREDICATES = {
    "eq": ("oeq", "eq"),
    "ge": ("oge", "sge"),
    "gt": ("ogt", "sgt"),
    "le": ("ole", "sle"),
    "lt": ("olt", "slt"),
    "ne": ("une", "ne"),
}


def function_of(code: TileCode, fields: Fields) -> str:
    """Writes a module with the function: vectors in order as memrefs, then scalars. `fields`: shape and element type of each."""
    return _Writer(code, fields).module()


class _Writer:
    """Writes statements in static single assignment: what a loop or branch assigns is carried through it."""

    def __init__(self, code: TileCode, fields: Fields):
        self.code, self.fields = code, fields
        wide = any(isinstance(fields[v][1], Float64Type) for v in code.axes)
        self.types = {"float": "f64" if wide else "f32", "int": "index", "bool": "i1"}
        self.lines: list[str] = []
        self.count = 0
        self.kinds: dict[str, str] = dict(code.scalars)

    def module(self) -> str:
        arguments = [f"%{v}: {self.memref(v)}" for v in self.code.axes]
        arguments += [f"%{n}: {self.types[k]}" for n, k in self.code.scalars.items()]
        self.block(self.code.body, {n: f"%{n}" for n in self.code.scalars}, 2)
        body = "\n".join(self.lines)
        return f"builtin.module {{\n  func.func @{self.code.name}({', '.join(arguments)}) {{\n{body}\n    func.return\n  }}\n}}\n"

    def memref(self, vector: str) -> str:
        shape, element = self.fields[vector]
        return f"memref<{''.join(f'{n}x' for n in shape)}{_signless(element)}>"

    def emit(self, depth: int, text: str) -> str:
        """Writes a line that defines a value; returns the value."""
        self.count += 1
        self.lines.append(f"{'  ' * depth}%t{self.count} = {text}")
        return f"%t{self.count}"

    # -- statements

    def block(self, body: Sequence[Statement], env: dict[str, str], depth: int) -> None:
        """Writes statements, and updates `env`, the values of names."""
        for s in body:
            match s:
                case Assign(name, value):
                    env[name] = self.value(value, env, depth)
                    self.kinds[name] = value.kind
                case Store(vector, index, value):
                    at = [self.value(i, env, depth) for i in index]
                    stored = self.narrowed(self.value(value, env, depth), vector, depth)
                    self.lines.append(f"{'  ' * depth}memref.store {stored}, %{vector}[{', '.join(at)}] : {self.memref(vector)}")
                case For():
                    self.loop(s, env, depth)
                case If():
                    self.branch(s, env, depth)

    def loop(self, s: For, env: dict[str, str], depth: int) -> None:
        start, stop = (self.value(v, env, depth) for v in (s.start, s.stop))
        step = self.emit(depth, f"arith.constant {s.step} : index")
        carried = sorted(assigned(s.body) & env.keys())
        self.count += 1
        n = self.count
        pairs = ", ".join(f"%{name}_{n} = {env[name]}" for name in carried)
        types = ", ".join(self.types[self.kinds[name]] for name in carried)
        head = f"scf.for %{s.var}_{n} = {start} to {stop} step {step}"
        if carried:
            result = f"%r{n}" + (f":{len(carried)}" if len(carried) > 1 else "")
            self.lines.append(f"{'  ' * depth}{result} = {head} iter_args({pairs}) -> ({types}) {{")
        else:
            self.lines.append(f"{'  ' * depth}{head} {{")
        inner = {**env, s.var: f"%{s.var}_{n}", **{name: f"%{name}_{n}" for name in carried}}
        self.block(s.body, inner, depth + 1)
        if carried:
            self.lines.append(f"{'  ' * (depth + 1)}scf.yield {', '.join(inner[name] for name in carried)} : {types}")
        self.lines.append(f"{'  ' * depth}}}")
        env.update(self._results(n, carried))

    def branch(self, s: If, env: dict[str, str], depth: int) -> None:
        condition = self.value(s.condition, env, depth)
        one, two = assigned(s.then), assigned(s.otherwise)
        given = sorted(((one | two) & env.keys()) | (one & two))
        self.count += 1
        n = self.count
        at = len(self.lines)
        self.lines.append("")
        for i, body in enumerate((s.then, s.otherwise)):
            if i:
                self.lines.append(f"{'  ' * depth}}} else {{")
            inner = dict(env)
            self.block(body, inner, depth + 1)
            if given:
                types = ", ".join(self.types[self.kinds[name]] for name in given)
                self.lines.append(f"{'  ' * (depth + 1)}scf.yield {', '.join(inner[name] for name in given)} : {types}")
        self.lines.append(f"{'  ' * depth}}}")
        head = f"scf.if {condition}"
        if given:
            types = ", ".join(self.types[self.kinds[name]] for name in given)
            result = f"%r{n}" + (f":{len(given)}" if len(given) > 1 else "")
            head = f"{result} = {head} -> ({types})"
        self.lines[at] = f"{'  ' * depth}{head} {{"
        env.update(self._results(n, given))

    def _results(self, n: int, names: Sequence[str]) -> dict[str, str]:
        return {name: f"%r{n}#{i}" if len(names) > 1 else f"%r{n}" for i, name in enumerate(names)}

    # -- values

    def value(self, value: Value, env: Mapping[str, str], depth: int) -> str:
        match value:
            case Number():
                return self.number(value, depth)
            case Name(name):
                return env[name]
            case Size(vector, dim):
                return self.emit(depth, f"arith.constant {self.fields[vector][0][dim]} : index")
            case Load(vector, index):
                at = [self.value(i, env, depth) for i in index]
                loaded = self.emit(depth, f"memref.load %{vector}[{', '.join(at)}] : {self.memref(vector)}")
                return self.widened(loaded, vector, depth)
            case Apply():
                return self.apply(value, [self.value(a, env, depth) for a in value.args], depth)

    def number(self, value: Number, depth: int) -> str:
        if value.kind == "bool":
            return self.emit(depth, f"arith.constant {'true' if value.value else 'false'}")
        text = f"{float(value.value):.17e}" if value.kind == "float" else str(int(value.value))
        return self.emit(depth, f"arith.constant {text} : {self.types[value.kind]}")

    def apply(self, value: Apply, args: list[str], depth: int) -> str:
        kind, name = value.args[0].kind, value.function
        type = self.types[kind]
        match name:
            case "select":
                return self.emit(depth, f"arith.select {args[2]}, {args[0]}, {args[1]} : {self.types[value.kind]}")
            case "and" | "or":
                return self.emit(depth, f"arith.{name}i {args[0]}, {args[1]} : i1")
            case "not":
                return self.emit(depth, f"arith.xori {args[0]}, {self.emit(depth, 'arith.constant true')} : i1")
            case "eq" | "ge" | "gt" | "le" | "lt" | "ne":
                of = _PREDICATES[name][kind != "float"]
                return self.emit(depth, f"arith.cmp{'f' if kind == 'float' else 'i'} {of}, {args[0]}, {args[1]} : {type}")
            case "float":
                whole = self.emit(depth, f"arith.index_cast {args[0]} : index to i64")
                return self.emit(depth, f"arith.sitofp {whole} : i64 to {self.types['float']}")
            case "int":
                whole = self.emit(depth, f"arith.fptosi {args[0]} : {type} to i64")
                return self.emit(depth, f"arith.index_cast {whole} : i64 to index")
            case "mod":
                quotient = self.emit(depth, f"arith.floordivsi {args[0]}, {args[1]} : index")
                product = self.emit(depth, f"arith.muli {quotient}, {args[1]} : index")
                return self.emit(depth, f"arith.subi {args[0]}, {product} : index")
            case "neg" | "abs" if kind == "int":
                zero = self.emit(depth, "arith.constant 0 : index")
                minus = self.emit(depth, f"arith.subi {zero}, {args[0]} : index")
                return minus if name == "neg" else self.emit(depth, f"arith.maxsi {args[0]}, {minus} : index")
            case _ if kind == "int":
                return self.emit(depth, f"arith.{_INT[name]} {args[0]}, {args[1]} : index")
            case _ if name in _FLOAT:
                return self.emit(depth, f"arith.{_FLOAT[name]} {', '.join(args)} : {type}")
            case _:
                return self.emit(depth, f"math.{_MATH.get(name, name)} {', '.join(args)} : {type}")

    def widened(self, value: str, vector: str, depth: int) -> str:
        """Converts an element to the type of the computation."""
        element = self.fields[vector][1]
        match self.code.kinds[vector]:
            case "float":
                same = _signless(element) == self.types["float"]
                return value if same else self.emit(depth, f"arith.extf {value} : {element} to {self.types['float']}")
            case "int":
                if is_unsigned(element) and size_in_bytes(element) < 8:
                    wide = self.emit(depth, f"arith.extui {value} : {_signless(element)} to i64")
                    return self.emit(depth, f"arith.index_cast {wide} : i64 to index")
                return self.emit(depth, f"arith.index_cast {value} : {_signless(element)} to index")
            case _:
                return value

    def narrowed(self, value: str, vector: str, depth: int) -> str:
        """Converts a computed value to an element."""
        element = self.fields[vector][1]
        match self.code.kinds[vector]:
            case "float":
                same = _signless(element) == self.types["float"]
                return value if same else self.emit(depth, f"arith.truncf {value} : {self.types['float']} to {element}")
            case "int":
                return self.emit(depth, f"arith.index_cast {value} : index to {_signless(element)}")
            case _:
                return value


def _signless(element: Attribute) -> str:
    """Returns the signless element type, as memrefs have it."""
    return str(element) if is_float(element) or element == i1 else f"i{8 * size_in_bytes(element)}"
