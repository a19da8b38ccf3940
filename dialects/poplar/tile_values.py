"""The reader of expressions in codelets: a tree of Python's syntax becomes values, or is refused by name at its line."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, NoReturn

from populus.dialects.poplar.tile_functions import FLOATS, KNOWN, ROUNDED, TESTS
from populus.dialects.poplar.tile_program import Apply, Call, Load, Name, Number, Size, Store, Value, parts, statements
from populus.dialects.poplar.tile_source import Source
from populus.dialects.poplar.tile_written import Written
from populus.dialects.support.diagnostics import PopulusError

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.LShift: "shl",
    ast.Mod: "mod",
    ast.Mult: "mul",
    ast.Pow: "pow",
    ast.RShift: "shr",
    ast.Sub: "sub",
}
_BITS = frozenset(("bitand", "bitor", "bitxor", "shl", "shr"))
_COMPARE: dict[type[ast.cmpop], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


@dataclass
class Scope:
    """The state at a point of a function: kinds of names, and the elements written so far. `dead`: no way leads here."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    written: Written = field(default_factory=Written)
    dead: bool = False

    def copy(self) -> Scope:
        """Copies the state, for a branch of its own."""
        return replace(self, names=dict(self.names))

    def set(self, other: Scope) -> None:
        """Takes over another state."""
        self.names, self.written, self.dead = dict(other.names), other.written, other.dead

    def end(self) -> Scope:
        """Marks the rest as unreachable; returns the state that left."""
        left = self.copy()
        self.dead = True
        return left


def meet(scopes: Sequence[Scope]) -> Scope:
    """Joins the states of several ways that lead to one point."""
    alive = [s for s in scopes if not s.dead]
    if not alive:
        return replace(scopes[0], dead=True)
    first, *others = alive
    found = first.copy()
    for other in others:
        found.names = {n: k for n, k in found.names.items() if other.names.get(n) == k}
        found.written = found.written.meet(other.written)
    return found


@dataclass(eq=False)
class Loop:
    """A loop that is being read: the states that leave it, and the vectors that it writes."""

    var: str = ""
    breaks: list[Scope] = field(default_factory=list[Scope])
    continues: list[Scope] = field(default_factory=list[Scope])


@dataclass
class Function:
    """A function that is being read: the codelet, or a helper at one of its calls.

    `prefix`: of its local names; `vectors`: the vector that each name stands for; `result`: the variable of a helper's value.
    """

    name: str
    globals: Mapping[str, Any]
    first: int
    prefix: str = ""
    vectors: dict[str, str] = field(default_factory=dict[str, str])
    result: str = ""
    kind: str = ""
    returns: list[Scope] = field(default_factory=list[Scope])
    loops: list[Loop] = field(default_factory=list[Loop])


class ValueReader:
    """Reads values in the context of `function`, the innermost function, and of a scope."""

    def __init__(self, source: Source):
        self.file, self.name = source.file, source.name
        self.functions = [Function(self.name, source.names, source.first)]
        self.used: dict[str, Any] = {}  # names outside of the file's functions, with the values that were read
        self.ranks: dict[str, int] = {}  # dimensions of vectors, scratch ones too
        self.kinds: dict[str, str] = {}  # of their elements
        self.given: dict[str, str] = {}  # the kinds of the codelet's scalars
        self.scratch: set[str] = set()
        self.loads: list[tuple[Load, ast.AST, tuple[Loop, ...], int, bool]] = []  # of parameters: place, stores before, whether proved
        self.stores: list[tuple[str, tuple[Value, ...], tuple[Loop, ...]]] = []

    @property
    def function(self) -> Function:
        """The innermost function that is being read."""
        return self.functions[-1]

    def outside(self, name: str) -> Any:
        """Returns the value of a name outside of the function; None if there is none."""
        found = self.function.globals.get(name)
        if found is not None and self.function.globals is self.functions[0].globals:
            self.used[name] = found
        return found

    def helper(self, node: ast.Call, source: Source, scope: Scope) -> Call:
        """Reads the call of a helper function."""
        raise NotImplementedError

    def refuse(self, node: ast.AST | None, message: str) -> NoReturn:
        """Raises PopulusError with file, line and codelet."""
        raise PopulusError(f"{self.file}:{self.line(node)}: codelet {self.name}: {message}")

    def line(self, node: ast.AST | None) -> int:
        """Gives the line of a node in its file."""
        return self.function.first + getattr(node, "lineno", 1) - 1

    def around(self) -> tuple[Loop, ...]:
        """Lists the loops around, those around calls of helpers too."""
        return tuple(loop for f in self.functions for loop in f.loops)

    # -- values

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """Reads an expression."""
        match node:
            case ast.Constant(bool() | int() | float() as number):
                return self.literal(node, number)
            case ast.Name(name):
                return self.named(node, name, scope)
            case ast.BinOp(left, op, right):
                return self.arithmetic(node, op, self.value(left, scope), self.value(right, scope))
            case ast.UnaryOp(op, operand):
                return self.unary(node, op, operand, scope)
            case ast.BoolOp(op, values):
                found = [self.condition(v, scope) for v in values]
                result = found[-1]
                for v in reversed(found[:-1]):
                    result = Apply("and" if isinstance(op, ast.And) else "or", (v, result), "bool")
                return result
            case ast.Compare(left, ops, rest):
                return self.comparison(node, ops, [self.value(v, scope) for v in (left, *rest)])
            case ast.IfExp(test, then, otherwise):
                condition = self.condition(test, scope)
                a, b = self.alike(node, self.value(then, scope), self.value(otherwise, scope))
                return Apply("select", (a, b, condition), a.kind)
            case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), index) if name in self.function.vectors:
                return self.shape(node, self.function.vectors[name], index)
            case ast.Subscript(ast.Name(name), index):
                return self.element(node, name, index, scope)
            case ast.Attribute(ast.Name("math"), name) if self.outside("math") is math:
                return self.constant(node, name, getattr(math, name, None))
            case ast.Call():
                value = self.called(node, scope)
                if value.kind == "nothing":
                    self.refuse(node, f"`{ast.unparse(node)}` returns nothing, and a value is expected")
                return value
            case _:
                self.refuse(node, f"`{ast.unparse(node)}` is not allowed")

    def literal(self, node: ast.AST, number: float) -> Value:
        if isinstance(number, int) and not -(1 << 63) <= number < 1 << 63:
            self.refuse(node, f"{number} does not fit 64 bits, which integers have")
        return Number(number, type(number).__name__)

    def unary(self, node: ast.expr, op: ast.unaryop, operand: ast.expr, scope: Scope) -> Value:
        if isinstance(op, ast.Not):
            return Apply("not", (self.condition(operand, scope),), "bool")
        value = self.number(node, self.value(operand, scope))
        match op, value:
            case ast.USub(), Number():
                return Number(-value.value, value.kind)
            case ast.USub(), _:
                return Apply("neg", (value,), value.kind)
            case ast.Invert(), _ if value.kind == "int":
                return Apply("bitxor", (value, Number(-1, "int")), "int")
            case ast.UAdd(), _:
                return value
            case _:
                self.refuse(node, "~ is of integers")

    def comparison(self, node: ast.expr, ops: Sequence[ast.cmpop], values: Sequence[Value]) -> Value:
        helpers = [p for v in values[1:-1] for p in parts(v) if isinstance(p, Call)]
        if any(isinstance(s, Store) for call in helpers for s in statements(call.body)):  # the middle is computed twice
            self.refuse(node, "a helper that writes is called in the middle of a chained comparison; give its value a name first")
        found: list[Value] = []
        for op, left, right in zip(ops, values, values[1:]):
            if type(op) not in _COMPARE:
                self.refuse(node, f"`{ast.unparse(node)}` is not allowed; comparisons are < <= > >= == !=")
            a, b = self.alike(node, left, right)
            if a.kind == "bool" and not isinstance(op, ast.Eq | ast.NotEq):
                self.refuse(node, "booleans are compared by == and !=")
            found.append(Apply(_COMPARE[type(op)], (a, b), "bool"))
        result = found[-1]
        for v in reversed(found[:-1]):
            result = Apply("and", (v, result), "bool")
        return result

    def condition(self, node: ast.expr, scope: Scope) -> Value:
        """Reads an expression that is true or false."""
        value = self.value(node, scope)
        if value.kind != "bool":
            self.refuse(node, f"`{ast.unparse(node)}` is {value.kind}; a comparison is expected")
        return value

    def named(self, node: ast.expr, name: str, scope: Scope) -> Value:
        """Reads a name: a variable, a parameter, or a number of the file."""
        full = self.function.prefix + name
        if full in scope.names:
            return Name(full, "int" if scope.names[full] == "loop" else scope.names[full])
        if name in self.function.vectors:
            self.refuse(node, f"{name} is a vector; its elements have values")
        return self.constant(node, name, self.outside(name))

    def constant(self, node: ast.expr, name: str, value: object) -> Value:
        """Reads a number that a name outside the function has."""
        if isinstance(value, bool | int | float):
            return self.literal(node, value)
        self.refuse(node, f"{name} may have no value here; assign it before, on every way")

    # -- elements of vectors

    def shape(self, node: ast.expr, vector: str, index: ast.expr) -> Value:
        match index:
            case ast.Constant(int() as dim):
                pass
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as dim)):
                dim = self.ranks[vector] - dim
            case _:
                self.refuse(node, f"`{ast.unparse(node)}` is not allowed; the index of a shape is a literal")
        if not 0 <= dim < self.ranks[vector]:
            self.refuse(node, f"{vector} has {self.ranks[vector]} dimensions; there is no shape[{ast.unparse(index)}]")
        return Size(vector, dim)

    def element(self, node: ast.expr, name: str, index: ast.expr, scope: Scope) -> Load:
        vector, at = self.index(node, name, index, scope)
        load = Load(vector, at, self.kinds[vector], self.line(node))
        if vector not in self.scratch:
            self.loads.append((load, node, self.around(), len(self.stores), scope.written.has(vector, at)))
        return load

    def index(self, node: ast.AST, name: str, index: ast.expr, scope: Scope) -> tuple[str, tuple[Value, ...]]:
        """Reads an index: the vector, and the values."""
        vector = self.function.vectors.get(name)
        if vector is None:
            self.refuse(node, f"{name} is no vector")
        entries = index.elts if isinstance(index, ast.Tuple) else [index]
        at = tuple(self.value(i, scope) for i in entries)
        if len(at) != self.ranks[vector]:
            self.refuse(node, f"{name} has {self.dimensions(vector)} and gets {len(at)} indices")
        if any(i.kind != "int" for i in at):
            self.refuse(node, f"an index of {name} is {next(i.kind for i in at if i.kind != 'int')}; int(..) makes an integer")
        if any(isinstance(i, Number) and i.value < 0 for i in at):
            self.refuse(node, f"{name} has no negative index; `{name}.shape[d] - n` counts from the end of dimension d")
        return vector, at

    def dimensions(self, vector: str) -> str:
        """Describes a vector's dimensions in messages."""
        return f"{self.ranks[vector]} dimensions"

    # -- arithmetic

    def number(self, node: ast.AST, value: Value) -> Value:
        """Refuses a boolean where a number is expected."""
        if value.kind == "bool":
            self.refuse(node, "a boolean is no number; `1.0 if condition else 0.0` makes one")
        return value

    def alike(self, node: ast.AST, a: Value, b: Value) -> tuple[Value, Value]:
        """Converts two values to one kind: an integer with a float becomes a float."""
        if {a.kind, b.kind} == {"int", "float"}:
            return as_float(a), as_float(b)
        if a.kind != b.kind:
            self.refuse(node, f"{a.kind} and {b.kind} do not mix")
        return a, b

    def arithmetic(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        """Makes the value of an operator."""
        function = _BINARY.get(type(op))
        if function is None:
            self.refuse(node, "of the operators, + - * / // % ** & | ^ << >> are allowed")
        if function in ("bitand", "bitor", "bitxor") and left.kind == right.kind == "bool":
            return Apply(function, (left, right), "bool")
        a, b = self.alike(node, self.number(node, left), self.number(node, right))
        if function in _BITS and a.kind != "int":
            self.refuse(node, "& | ^ << >> are of integers")
        if function == "div":
            return Apply("div", (as_float(a), as_float(b)), "float")
        if function == "pow":
            return self.power(node, a, right, b)
        return Apply(function, (a, b), a.kind, self.line(node))

    def power(self, node: ast.AST, base: Value, exponent: Value, converted: Value) -> Value:
        """Makes a power. That of an integer has a literal exponent, as its kind depends on the exponent's sign in Python."""
        if isinstance(exponent, Number) and exponent.kind == "int" and 0 <= exponent.value <= 16 and isinstance(base, Name | Number | Load):
            found: Value = Number(1 if base.kind == "int" else 1.0, base.kind)
            for turn in range(int(exponent.value)):
                found = base if turn == 0 else Apply("mul", (found, base), base.kind)
            if base.kind == "int" or exponent.value <= 2:
                return found
        if base.kind == "int":
            self.refuse(node, "** of integers is that of a variable with a literal exponent of 0 to 16; float(..) makes it one of floats")
        return Apply("pow", (base, converted), "float")

    # -- functions

    def called(self, node: ast.Call, scope: Scope) -> Value:
        """Reads a call."""
        match node.func:
            case ast.Name(name):
                found = self.outside(name)
            case ast.Attribute(ast.Name("math"), name):
                self.outside("math")
                found = getattr(math, name, None)
            case _:
                self.refuse(node, f"`{ast.unparse(node)}` is not allowed")
        if node.keywords:
            self.refuse(node, f"`{ast.unparse(node)}` is not allowed; arguments are given by place")
        if isinstance(found, FunctionType | Source):
            return self.helper(node, found if isinstance(found, Source) else Source.of(found), scope)
        match name, node.args:
            case "len", [ast.Name(vector)] if vector in self.function.vectors:
                return Size(self.function.vectors[vector], 0)
            case _:
                return self.call(node, name, [self.value(a, scope) for a in node.args])

    def call(self, node: ast.expr, function: str, args: Sequence[Value]) -> Value:
        """Makes the value of a function of Python or of `math`."""
        line = self.line(node)
        match function, args:
            case (("min" | "max"), [first, second, *rest]):
                a, b = self.alike(node, self.number(node, first), self.number(node, second))
                found = Apply(function, (a, b), a.kind)
                return self.call(node, function, [found, *rest]) if rest else found
            case (("abs" | "fabs"), [x]):
                x = as_float(self.number(node, x)) if function == "fabs" else self.number(node, x)
                return Apply("abs", (x,), x.kind)
            case (("int" | "float"), [x]) if x.kind == "bool":
                one, zero = (Number(n, "int") if function == "int" else Number(float(n), "float") for n in (1, 0))
                return Apply("select", (one, zero, x), function)
            case "float", [x]:
                return as_float(self.number(node, x))
            case "bool", [x]:
                return x if x.kind == "bool" else Apply("ne", (x, Number(0 if x.kind == "int" else 0.0, x.kind)), "bool")
            case "degrees" | "radians", [x]:
                factor = 180.0 / math.pi if function == "degrees" else math.pi / 180.0
                return Apply("mul", (as_float(self.number(node, x)), Number(factor, "float")), "float")
            case "log", [x, base]:
                return Apply("div", (self.call(node, "log", [x]), self.call(node, "log", [base])), "float")
            case _, [x] if function == "int" or function in ROUNDED:
                x = self.number(node, x)
                if x.kind == "int":
                    return x
                return Apply("int", (x if function in ("int", "trunc") else Apply(function, (x,), "float"),), "int", line)
            case _, [x] if function in TESTS:
                return Apply(function, (as_float(self.number(node, x)),), "bool")
            case _ if function in FLOATS and len(args) == FLOATS[function].arity:
                return Apply(function, tuple(as_float(self.number(node, x)) for x in args), "float")
            case _:
                self.refuse(node, f"`{ast.unparse(node)}` is not allowed; the functions are {', '.join(KNOWN)}")


def as_float(value: Value) -> Value:
    """Converts a value to a float. A float that was rounded to an integer needs no way through integers."""
    match value:
        case Number(number, "int"):
            return Number(float(number), "float")
        case Apply("int", (x,), "int"):
            rounded = x if isinstance(x, Apply) and x.function in ROUNDED else Apply("trunc", (x,), "float")
            return Apply("add", (rounded, Number(0.0, "float")), "float")  # an integer has no -0
        case _:
            return value if value.kind == "float" else Apply("float", (value,), "float")
