"""Codelets from Python: the code of one tile is a function on vectors, whose source `@codelet` reads.

    @codelet(axes={"x": "row n", "y": "row"})
    def row_norm(x: Vector, y: Vector) -> None:
        for i in range(len(y)):
            total = 0.0
            for k in range(x.shape[1]):
                total += x[i, k] * x[i, k]
            y[i] = sqrt(total)

The function is never called: its syntax tree is checked and becomes the statements of `tile_program.py`, which engines run,
cycles are counted from, and `tile_mlir.py` writes as `scf` and `memref`. Allowed are `for` over `range`, `if`, assignments,
indexing, arithmetic, comparisons, `and`, `or`, `not`, conditional expressions, `min`, `max`, `abs`, `int`, `float`, `len(x)`,
`x.shape[d]` and the functions of FUNCTIONS. Vectors are `Vector` (floats), `IntVector`, `BoolVector`; scalars `float`, `int`,
`bool` are parameters. The vector that is written is the output; it is read only where it has been written before. Floats are
computed in double precision if a vector has it, else in single; integers have 64 bits.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol, TypeAlias

from populus.dialects.poplar.tile_lanes import Lanes
from populus.dialects.poplar.tile_program import Apply, Assign, For, If, Load, Name, Number, Size, Statement, Store, TileCode, Value, parts
from populus.dialects.support.diagnostics import PopulusError

Index: TypeAlias = "int | tuple[int, ...]"


class Vector(Protocol):
    """Floats of one dimension or more."""

    shape: tuple[int, ...]

    def __len__(self) -> int: ...
    def __getitem__(self, index: Index, /) -> float: ...
    def __setitem__(self, index: Index, value: float, /) -> None: ...


class IntVector(Protocol):
    """Integers of one dimension or more."""

    shape: tuple[int, ...]

    def __len__(self) -> int: ...
    def __getitem__(self, index: Index, /) -> int: ...
    def __setitem__(self, index: Index, value: int, /) -> None: ...


class BoolVector(Protocol):
    """Booleans of one dimension or more."""

    shape: tuple[int, ...]

    def __len__(self) -> int: ...
    def __getitem__(self, index: Index, /) -> bool: ...
    def __setitem__(self, index: Index, value: bool, /) -> None: ...


VECTORS = {"Vector": "float", "IntVector": "int", "BoolVector": "bool"}
SCALARS = {"float": "float", "int": "int", "bool": "bool"}
FUNCTIONS = frozenset(("ceil", "cos", "exp", "expm1", "floor", "log", "log1p", "sin", "sqrt", "tan", "tanh"))  # of a float

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
}
_COMPARE: dict[type[ast.cmpop], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


def codelet(
    function: Callable[..., None] | None = None,
    *,
    axes: Mapping[str, str] | None = None,
    whole: str = "",
    cycles: Callable[..., Any] | None = None,
) -> Any:
    """Makes a codelet of a function: see this file's beginning.

    `axes`: for each vector the names of its dimensions' axes; equal names are equal sizes; `i` for all without it. `whole`: axes that are
    not to be cut, beside those that cannot be. `cycles`: tile cycles of one vertex from the sizes of axes, by the names of its
    parameters; counted from the body without it.
    Raises PopulusError, with file and line, for what is not allowed.
    """
    if function is None:
        return partial(codelet, axes=axes, whole=whole, cycles=cycles)
    return _Reader(function, axes, whole, cycles).read()


# -- reading the source ----------------------------------------------------------------------------------------------


@dataclass
class _Scope:
    """The state at a point of the function: kinds of names, and the output elements written so far."""

    names: dict[str, str]
    written: set[tuple[Value, ...]]

    def copy(self) -> _Scope:
        return _Scope(dict(self.names), set(self.written))


class _Reader:
    """Turns a function's source into a TileCode."""

    def __init__(self, function: Callable[..., None], axes: Mapping[str, str] | None, whole: str, cycles: Callable[..., Any] | None):
        self.function, self.stated, self.whole, self.cycles = function, axes, whole.split(), cycles
        self.file, self.first = function.__code__.co_filename, function.__code__.co_firstlineno
        self.name = function.__name__
        self.axes: dict[str, tuple[str, ...]] = {}
        self.kinds: dict[str, str] = {}
        self.scalars: dict[str, str] = {}
        self.output = ""

    def refuse(self, node: ast.AST | None, message: str) -> NoReturn:
        """Raises PopulusError with file, line and codelet."""
        line = self.first + getattr(node, "lineno", 1) - 1
        raise PopulusError(f"{self.file}:{line}: codelet {self.name}: {message}")

    def read(self) -> TileCode:
        """Reads the function's source and makes the codelet's code."""
        try:
            text = textwrap.dedent(inspect.getsource(self.function))
        except OSError:
            raise PopulusError(f"codelet {self.name}: its source is not there to read; define it in a file") from None
        tree = ast.parse(text).body[0]
        if not isinstance(tree, ast.FunctionDef):
            self.refuse(tree, "a function defined by `def` is expected")
        self.parameters(tree)
        stores = [t.value.id for n in ast.walk(tree) for t in _targets(n) if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name)]
        if len(found := list(dict.fromkeys(stores))) != 1:
            self.refuse(tree, f"one vector is to be written, found {', '.join(found) or 'none'}")
        self.output = found[0]
        body = self.block(tree.body, _Scope(dict(self.scalars), set()))
        analysis = Lanes(self.axes, self.output, body)
        lanes, loops = analysis.found()
        if strange := [a for a in self.whole if a not in {x for axes in self.axes.values() for x in axes}]:
            self.refuse(tree, f"whole names axis '{strange[0]}', which no vector has")
        lanes = tuple(a for a in lanes if a not in self.whole)
        loops = {v: a for v, a in loops.items() if a in lanes}
        doc = inspect.cleandoc(self.function.__doc__ or "")
        place = f"{self.file}:{self.first}"
        return TileCode(
            self.name,
            doc,
            self.axes,
            self.kinds,
            self.scalars,
            self.output,
            body,
            lanes,
            loops,
            analysis.covered(),
            self.cycles,
            place,
            text,
        )

    def parameters(self, tree: ast.FunctionDef) -> None:
        if tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs or tree.args.posonlyargs or tree.args.defaults:
            self.refuse(tree, "parameters are plain names with a type")
        for p in tree.args.args:
            kind = p.annotation.id if isinstance(p.annotation, ast.Name) else ""
            if kind in VECTORS:
                self.kinds[p.arg] = VECTORS[kind]
                self.axes[p.arg] = tuple((self.stated or {}).get(p.arg, "i").split())
                if not self.axes[p.arg] or len(set(self.axes[p.arg])) < len(self.axes[p.arg]):
                    self.refuse(p, f"{p.arg} has axes '{' '.join(self.axes[p.arg])}'; one or more different ones are expected")
                if odd := [a for a in self.axes[p.arg] if not a.isidentifier() or a in ("on", "for", "in", "at", "by")]:
                    self.refuse(p, f"{p.arg} has axis '{odd[0]}', which is no name for one")
            elif kind in SCALARS:
                self.scalars[p.arg] = SCALARS[kind]
            else:
                self.refuse(p, f"{p.arg} is to be annotated with one of {', '.join((*VECTORS, *SCALARS))}")
        if strange := [v for v in self.stated or {} if v not in self.axes]:
            self.refuse(tree, f"axes names '{strange[0]}', which is no vector of it")

    # -- statements

    def block(self, body: Sequence[ast.stmt], scope: _Scope) -> tuple[Statement, ...]:
        return tuple(s for node in body for s in self.statement(node, scope))

    def statement(self, node: ast.stmt, scope: _Scope) -> list[Statement]:
        """Reads one statement of Python."""
        match node:
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                return []
            case ast.Assign([target], value):
                return [self.assignment(node, target, self.value(value, scope), scope)]
            case ast.AugAssign(target, op, value):
                old = self.value(target, scope)
                return [self.assignment(node, target, self.arithmetic(node, op, old, self.value(value, scope)), scope)]
            case ast.For(ast.Name(var), ast.Call(ast.Name("range"), bounds, []), body, []):
                return [self.loop(node, var, [self.bound(b, scope) for b in bounds], body, scope)]
            case ast.If(test, then, otherwise):
                condition, one, two = self.condition(test, scope), scope.copy(), scope.copy()
                made = If(condition, self.block(then, one), self.block(otherwise, two))
                scope.names = {n: k for n, k in one.names.items() if two.names.get(n) == k}
                scope.written = one.written & two.written
                return [made]
            case _:
                self.refuse(node, f"`{ast.unparse(node).splitlines()[0]}` is not allowed; for over range, if and assignments are")

    def assignment(self, node: ast.stmt, target: ast.expr, value: Value, scope: _Scope) -> Statement:
        match target:
            case ast.Name(name):
                if name in self.kinds or name in self.scalars:
                    self.refuse(node, f"{name} is a parameter, which is not assigned; take another name")
                known = scope.names.get(name)
                if known == "loop":
                    self.refuse(node, f"{name} is the variable of a loop, which is not assigned")
                if known == "float" and value.kind == "int":
                    value = _float(value)
                if known is not None and known != value.kind:
                    self.refuse(node, f"{name} is {known} and gets {value.kind}; start it as {value.kind}")
                scope.names[name] = value.kind
                return Assign(name, value)
            case ast.Subscript(ast.Name(vector), index):
                at = self.index(node, vector, index, scope)
                kind = self.kinds[vector]
                if kind == "float" and value.kind == "int":
                    value = _float(value)
                if value.kind != kind:
                    self.refuse(node, f"{vector} holds {kind}, and gets {value.kind}")
                if all(isinstance(i, Number) or (isinstance(i, Name) and scope.names.get(i.name) == "loop") for i in at):
                    scope.written.add(at)
                return Store(vector, at, value, self.first + node.lineno - 1)
            case _:
                self.refuse(node, f"`{ast.unparse(target)}` is not assigned to; names and elements of vectors are")

    def loop(self, node: ast.For, var: str, bounds: Sequence[Value], body: Sequence[ast.stmt], scope: _Scope) -> Statement:
        if var in scope.names or var in self.kinds:
            self.refuse(node, f"{var} has a meaning already; give the loop's variable another name")
        start, stop, step = {
            1: lambda: (Number(0, "int"), bounds[0], Number(1, "int")),
            2: lambda: (bounds[0], bounds[1], Number(1, "int")),
            3: lambda: (bounds[0], bounds[1], bounds[2]),
        }.get(len(bounds), lambda: self.refuse(node, "range takes one to three bounds"))()
        if not isinstance(step, Number) or step.value < 1:
            self.refuse(node, "the step of a range is a positive number")
        inner = scope.copy()
        inner.names[var] = "loop"
        made = self.block(body, inner)
        if any(scope.names.get(n) not in (None, k) for n, k in inner.names.items()):
            self.refuse(node, "a variable changes its kind in the loop")
        return For(var, start, stop, int(step.value), made)

    # -- values

    def bound(self, node: ast.expr, scope: _Scope) -> Value:
        value = self.value(node, scope)
        odd = [
            p
            for p in parts(value)
            if isinstance(p, Load) or (isinstance(p, Name) and p.name not in self.scalars and scope.names.get(p.name) != "loop")
        ]
        if value.kind != "int" or odd:
            self.refuse(node, f"range({ast.unparse(node)}): bounds are integers made of sizes, numbers, parameters and variables of loops")
        return value

    def condition(self, node: ast.expr, scope: _Scope) -> Value:
        value = self.value(node, scope)
        if value.kind != "bool":
            self.refuse(node, f"`{ast.unparse(node)}` is {value.kind}; a comparison is expected")
        return value

    def value(self, node: ast.expr, scope: _Scope) -> Value:
        match node:
            case ast.Constant(bool() | int() | float() as number):
                return Number(number, type(number).__name__)
            case ast.Name(name):
                return self.named(node, name, scope)
            case ast.BinOp(left, op, right):
                return self.arithmetic(node, op, self.value(left, scope), self.value(right, scope))
            case ast.UnaryOp(ast.USub(), operand):
                value = self.value(operand, scope)
                if isinstance(value, Number) and value.kind != "bool":
                    return Number(-value.value, value.kind)
                return Apply("neg", (self.number(node, value),), value.kind)
            case ast.UnaryOp(ast.Not(), operand):
                return Apply("not", (self.condition(operand, scope),), "bool")
            case ast.BoolOp(op, values):
                found = [self.condition(v, scope) for v in values]
                result = found[0]
                for v in found[1:]:
                    result = Apply("and" if isinstance(op, ast.And) else "or", (result, v), "bool")
                return result
            case ast.Compare(left, [op], [right]) if type(op) in _COMPARE:
                a, b = self.alike(node, self.value(left, scope), self.value(right, scope))
                return Apply(_COMPARE[type(op)], (a, b), "bool")
            case ast.IfExp(test, then, otherwise):
                a, b = self.alike(node, self.value(then, scope), self.value(otherwise, scope))
                return Apply("select", (a, b, self.condition(test, scope)), a.kind)
            case ast.Call(ast.Name("len"), [ast.Name(vector)], []) if vector in self.axes:
                return Size(vector, 0)
            case ast.Subscript(ast.Attribute(ast.Name(vector), "shape"), ast.Constant(int() as dim)) if vector in self.axes:
                if not 0 <= dim < len(self.axes[vector]):
                    self.refuse(node, f"{vector} has {len(self.axes[vector])} dimensions; there is no shape[{dim}]")
                return Size(vector, dim)
            case ast.Subscript(ast.Name(vector), index):
                at = self.index(node, vector, index, scope)
                if vector == self.output and at not in scope.written:
                    self.refuse(node, f"`{ast.unparse(node)}` is read before it is written; start with an assignment to it")
                return Load(vector, at, self.kinds[vector], self.first + node.lineno - 1)
            case ast.Call(ast.Name(function) | ast.Attribute(ast.Name("math"), function), args, []):
                return self.call(node, function, [self.value(a, scope) for a in args])
            case _:
                self.refuse(node, f"`{ast.unparse(node)}` is not allowed")

    def named(self, node: ast.expr, name: str, scope: _Scope) -> Value:
        if name in scope.names:
            return Name(name, "int" if scope.names[name] == "loop" else scope.names[name])
        if name in self.kinds:
            self.refuse(node, f"{name} is a vector; its elements have values")
        constant = self.function.__globals__.get(name)
        if isinstance(constant, bool | int | float):
            return Number(constant, type(constant).__name__)
        self.refuse(node, f"{name} may have no value here; assign it before, on every way")

    def index(self, node: ast.AST, vector: str, index: ast.expr, scope: _Scope) -> tuple[Value, ...]:
        if vector not in self.axes:
            self.refuse(node, f"{vector} is no vector")
        at = tuple(self.value(i, scope) for i in (index.elts if isinstance(index, ast.Tuple) else [index]))
        if len(at) != len(self.axes[vector]):
            self.refuse(
                node, f"{vector} has {len(self.axes[vector])} dimensions ({' '.join(self.axes[vector])}) and gets {len(at)} indices"
            )
        if any(i.kind != "int" for i in at):
            self.refuse(node, f"an index of {vector} is {next(i.kind for i in at if i.kind != 'int')}; int(..) makes an integer")
        return at

    def number(self, node: ast.AST, value: Value) -> Value:
        if value.kind == "bool":
            self.refuse(node, "a boolean is no number; `1.0 if condition else 0.0` makes one")
        return value

    def alike(self, node: ast.AST, a: Value, b: Value) -> tuple[Value, Value]:
        """Converts two values to one kind: an integer with a float becomes a float."""
        if {a.kind, b.kind} == {"int", "float"}:
            return _float(a), _float(b)
        if a.kind != b.kind:
            self.refuse(node, f"{a.kind} and {b.kind} do not mix")
        return a, b

    def arithmetic(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        a, b = self.alike(node, self.number(node, left), self.number(node, right))
        function = _BINARY.get(type(op))
        if function is None:
            self.refuse(node, "of the operators, + - * / // % ** are allowed")
        if function == "div" and a.kind == "int":
            self.refuse(node, "/ of integers is not allowed; // divides them, float(..) makes one a float")
        if function in ("floordiv", "mod") and a.kind != "int":
            self.refuse(node, "// and % are of integers")
        if function == "pow" and a.kind != "float":
            self.refuse(node, "** is of floats")
        return Apply(function, (a, b), a.kind)

    def call(self, node: ast.expr, function: str, args: Sequence[Value]) -> Value:
        match function, args:
            case (("min" | "max"), [first, second, *rest]):
                a, b = self.alike(node, self.number(node, first), self.number(node, second))
                found = Apply(function, (a, b), a.kind)
                return self.call(node, function, [found, *rest]) if rest else found
            case "abs", [x]:
                return Apply("abs", (self.number(node, x),), x.kind)
            case "float", [x]:
                return _float(self.number(node, x))
            case "int", [x]:
                return self.number(node, x) if x.kind == "int" else Apply("int", (x,), "int")
            case _, [x] if function in FUNCTIONS:
                return Apply(function, (_float(self.number(node, x)),), "float")
            case _:
                known = ", ".join(sorted(("abs", "float", "int", "len", "max", "min", *FUNCTIONS)))
                self.refuse(node, f"`{ast.unparse(node)}` is not allowed; the functions are {known}")


def _float(value: Value) -> Value:
    match value:
        case Number(number, "int"):
            return Number(float(number), "float")
        case _:
            return value if value.kind == "float" else Apply("float", (value,), "float")


def _targets(node: ast.AST) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
