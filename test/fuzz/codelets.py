"""Random codelets: plain Python, the interpreter, each engine and emitted LLVM compute the same bits, or all refuse.

    make fuzz FUZZERS=codelets

A seed gives the same codelet and inputs on every machine. Functions whose last bits differ between libraries stand only where a value
is stored and never read again; such codelets are compared with a tolerance, all others bit by bit.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from helpers import codelet_engines as engines
from populus.dialects.support.diagnostics import PopulusError

HEADER = """from math import atan, ceil, cos, cosh, erf, exp, expm1, floor, hypot, isnan, log1p, sin, sqrt, tanh, trunc

from populus.dialects.poplar.tile_code import IntVector, Vector, bools, codelet, floats, ints, random_bits, uniform

"""
VECTOR_HELPERS = """def larger(v: Vector, i: int, j: int) -> float:
    if v[i] > v[j]:
        return v[i]
    last = v[j]
    return last - 0.5


def exchange(v: Vector, i: int, j: int) -> None:
    if i == j:
        return
    v[i], v[j] = v[j], v[i]


"""
SMOOTH = ("atan", "cos", "erf", "exp", "expm1", "sin", "tanh", "log1p")


@dataclass
class Case:
    """A codelet's source, its inputs, its outputs as (shape, dtype), its scalars, and whether its results are exact."""

    text: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    scalars: dict[str, Any]
    exact: bool


class Writer:
    """Writes statements and expressions over the variables in scope."""

    def __init__(self, random: Random):
        self.random, self.lines = random, list[str]()
        self.floats, self.ints, self.bools = list[str](), list[str](), list[str]()  # in scope
        self.vectors = list[tuple[str, str]]()  # of one dimension, with their sizes
        self.loads: list[str] = []  # float elements, with {i} for an index that is inside
        self.int_loads: list[str] = []
        self.stores: list[str] = []
        self.size = "len(x)"
        self.may_return = False
        self.helpers: list[tuple[str, str, str]] = []
        self.count = 0
        self.loops = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # -- expressions

    def number(self) -> str:
        return self.random.choice(("0.5", "2.0", "-1.5", "3.0", "0.25", "-0.0", "1"))

    def integer(self, depth: int = 2) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.3:
            pool = [*self.ints, *self.ints, str(r.randint(-4, 9)), self.size]
            if self.int_loads:
                pool.append(r.choice(self.int_loads).format(i=self.index(0)))
            return r.choice(pool)
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        match r.randint(0, 11):
            case 0:
                return f"({a} // {r.choice((2, 3, -5))})"
            case 1:
                return f"({a} % {r.choice((2, 7, -3))})"
            case 2:
                return f"(({a}) & {r.choice((3, 12, -2))})"
            case 3:
                return f"(({a}) ^ ({b}))"
            case 4:
                return f"(({a} | {b}) % 64)"
            case 5:
                return f"(({a}) >> {r.choice(('1', f'({b}) % 5', f'({b}) % 80'))})"
            case 6:
                return f"(({a}) % 16 << ({b}) % 6)"
            case 7:
                return f"{r.choice(('min', 'max'))}({a}, {b})"
            case 8:
                return f"({a} if {self.condition(depth - 1)} else {b})"
            case 9 if self.helpers and r.random() < 0.5:
                return self.call("int", depth)
            case 10 if r.random() < 0.3:
                return f"int({self.condition(depth - 1)})"
            case 10:
                return f"abs({a})" if r.random() < 0.5 else f"(~{self.ints[0] if self.ints else 3})"
            case _:
                return f"({a} {r.choice('+-*')} {b}) % 1009"

    def index(self, depth: int = 1) -> str:
        r = self.random
        if depth == 0:
            return f"{r.choice([*self.ints, '0', '2'])} % {self.size}"
        if self.ints and r.random() < 0.3:
            return f"{r.choice(self.ints)} % {self.size}"
        if r.random() < 0.5:  # what intervals prove, or nearly so
            a, name = self.integer(depth), r.choice([*self.ints, "2"])
            least, most = r.choice((0, 0, 0, -1)), r.choice((f"{self.size} - 1",) * 6 + (self.size,))
            return r.choice(
                (
                    f"min(max({a}, {least}), {most})",
                    f"({name} if 0 <= {name} <= {most} else 0)",
                    f"({name} - 1 if {name} > {least} and {name} <= {self.size} else 0)",
                    f"(0 if {name} < {least} or not {name} < {self.size} else {name})",
                    f"abs({a}) // 2 % {self.size}",
                    f"(({a}) & 3) * ({self.size} - 1) // 3",
                    f"({self.size} - 1 - {name} % {self.size})",
                )
            )
        return f"({self.integer(depth)}) % {self.size}" if r.random() < 0.97 else self.integer(depth)

    def value(self, depth: int = 2) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.25:
            pool = [*self.floats, *self.floats]
            if self.loads:
                pool.append(r.choice(self.loads).format(i=self.index(1)))
            return r.choice(pool) if pool else f"float({self.integer(0)})"
        a = self.value(depth - 1)
        b = self.number() if r.random() < 0.4 else self.value(depth - 1)
        match r.randint(0, 12):
            case 0:
                return f"{r.choice(('min', 'max'))}({a}, {b})"
            case 1:
                return f"({a} if {self.condition(depth - 1)} else {self.value(depth - 1)})"
            case 2:
                return f"abs({a})"
            case 3:
                return f"float({r.choice(('floor', 'ceil', 'trunc', 'round', 'int'))}({a}))"
            case 4:
                return f"({a} / {b})" if r.random() < 0.5 else f"sqrt(abs({a}))"
            case 5:
                return f"({a} {r.choice(('//', '%'))} {r.choice(('2.0', '-0.75', b))})"
            case 6 if self.helpers:
                return self.call("float", depth)
            case 9:
                return f"(-{a})"
            case 7 if self.vectors:
                vector, size = r.choice(self.vectors)
                return f"larger({vector}, ({self.integer(1)}) % {size}, ({self.integer(0)}) % {size})"
            case 8:
                return f"uniform({self.integer(0)}, {self.integer(1)}) * {a}" if r.random() < 0.3 else f"({a} * {a})"
            case _:
                return f"({a} {r.choice('+-*')} {b})"

    def call(self, kind: str, depth: int) -> str:
        fitting = [h for h in self.helpers if h[2] == kind]
        if not fitting:
            return self.value(0) if kind == "float" else self.integer(0)
        name, kinds, _ = self.random.choice(fitting)
        return f"{name}({', '.join(self.value(depth - 1) if k == 'f' else self.integer(depth - 1) for k in kinds)})"

    def condition(self, depth: int = 1) -> str:
        r = self.random
        match r.randint(0, 7):
            case 7 if self.bools:
                return r.choice(self.bools)
            case 0 if depth:
                return f"({self.condition(depth - 1)} {r.choice(('and', 'or'))} {self.condition(depth - 1)})"
            case 1 if depth:
                return f"not {self.condition(depth - 1)}"
            case 2:
                return f"{self.integer(1)} {r.choice(('<', '==', '!=', '>='))} {self.integer(1)}"
            case 3:
                return f"{r.randint(-3, 3)} {r.choice(('<', '<='))} {self.integer(1)} < {r.randint(2, 9)}"
            case 4 if self.loads:
                # The second operand is computed only where the first holds.
                i = self.integer(1)
                return f"(0 <= {i} < {self.size} and {r.choice(self.loads).format(i=i)} > {self.number()})"
            case _:
                return f"{self.value(1)} {r.choice(('<', '>', '<=', '!='))} {self.number() if r.random() < 0.5 else self.value(0)}"

    # -- statements

    def block(self, depth: int, room: int, in_loop: bool) -> None:
        known = len(self.floats), len(self.ints), len(self.bools)
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, room, in_loop)
        del self.floats[known[0] :], self.ints[known[1] :], self.bools[known[2] :]

    def statement(self, depth: int, room: int, in_loop: bool) -> None:
        r = self.random
        kinds = ("assign", "assign", "new", "store", "store", "if", "for", "while", "swap", "exit", "augment", "bool", "exchange")
        kind = r.choice(kinds)
        if room == 0 and kind in ("if", "for", "while"):
            kind = "assign"
        match kind:
            case "new" if r.random() < 0.4:
                made = self.reused("w")
                self.line(depth, f"{made} = 0 + {self.integer()}")
                self.ints.append(made)
            case "new":
                made = self.name("v")
                self.line(depth, f"{made} = {self.value()}")
                self.kind_of().append(made)
            case "bool":
                made = r.choice(self.bools) if self.bools and r.random() < 0.5 else self.name("c")
                self.line(depth, f"{made} = {self.condition()}")
                if made not in self.bools:
                    self.bools.append(made)
            case "exchange" if writable := [v for v in self.vectors if v[0] != "x"]:
                vector, size = r.choice(writable)
                self.line(depth, f"exchange({vector}, ({self.integer(1)}) % {size}, ({self.integer(0)}) % {size})")
            case "exit" if self.may_return and r.random() < 0.2:
                self.line(depth, f"if {self.condition()}:")
                self.line(depth + 1, "return")
            case "assign" if self.floats:
                self.line(depth, f"{r.choice(self.floats)} = {self.value()}")
            case "augment" if self.floats:
                self.line(depth, f"{r.choice(self.floats)} {r.choice(('+=', '-=', '*='))} {self.value(1)}")
            case "swap" if len(self.floats) > 1:
                a, b = r.sample(self.floats, 2)
                self.line(depth, f"{a}, {b} = {b}, {self.value(1)}")
            case "store" if self.stores:
                target = r.choice(self.stores).format(i=self.index(1))
                whole = target.startswith(("z[", "u"))
                self.line(depth, f"{target} {r.choice(('=', '=', '+='))} {self.integer() + ' % 97' if whole else self.value()}")
            case "if":
                self.line(depth, f"if {self.condition()}:")
                self.block(depth + 1, room - 1, in_loop)
                if r.random() < 0.5:
                    self.line(depth, "else:")
                    self.block(depth + 1, room - 1, in_loop)
            case "for":
                self.loop(depth, room)
            case "while" if r.random() < 0.4:
                n = self.name("w")
                down = r.random() < 0.5
                self.line(depth, f"{n} = {self.size if down else 0}")
                self.line(depth, f"while {n} > 0:" if down else f"while {n} < {self.size} and {self.condition()}:")
                self.line(depth + 1, f"{n} {'-' if down else '+'}= {r.choice((1, 1, 2))}")
                if self.loads:
                    i = r.choice((n, f"{n} - 1", f"max({n}, 0)", f"min({n}, {self.size} - 1)", f"max(min({n}, {self.size} - 1), 0)"))
                    self.line(depth + 1, f"if {r.choice(self.loads).format(i=i)} > {self.value(0)}:")
                    self.line(depth + 2, r.choice(("break", "continue", "pass")))
                self.block(depth + 1, room - 1, True)
            case "while":
                n = self.name("w")
                self.line(depth, f"{n} = {r.randint(1, 5)}")
                self.line(depth, f"while {n} > 0 and {self.condition()}:" if r.random() < 0.7 else "while True:")
                forever = self.lines[-1].endswith("True:")
                self.line(depth + 1, f"{n} -= 1")
                if forever:
                    self.line(depth + 1, f"if {n} <= 0:")
                    self.line(depth + 2, "break")
                self.block(depth + 1, room - 1, True)
            case "exit" if in_loop and room < 3:
                self.line(depth, f"if {self.condition()}:")
                self.line(depth + 1, r.choice(("break", "continue")))
            case _:
                self.line(depth, "pass")

    def kind_of(self) -> list[str]:
        """Finds the list for a new variable: its value's expression begins with what only a float's has."""
        value = self.lines[-1].split(" = ", 1)[1]
        return self.floats if Kinds(self).of(value) == "float" else self.ints

    def reused(self, letter: str) -> str:
        """Gives a name that may stand for other variables elsewhere, or a new one."""
        free = [n for n in ("i", "j", "n") if n not in (*self.ints, *self.floats)]
        return self.random.choice(free) if free and self.random.random() < 0.5 else self.name(letter)

    def loop(self, depth: int, room: int) -> None:
        r, i = self.random, self.reused("i")
        bounds = r.choice(
            (
                self.size,
                "3",
                f"1, {self.size}",
                f"{self.size} - 1, -1, -1",
                f"{self.size}, 0, -2",
                f"0, {self.size}, 2",
                f"{self.integer(1)} % 6",
                f"{self.integer(1)} % 4, {self.integer(0)} % 7",
            )
        )
        self.line(depth, f"for {i} in range({bounds}):")
        self.ints.append(i)
        self.block(depth + 1, room - 1, True)
        self.ints.remove(i)

    def helper(self, number: int) -> None:
        """Writes a helper function."""
        r, inner = self.random, Writer(self.random)
        inner.size, kind = "5", r.choice(("float", "int"))
        kinds = "".join(r.choice("fi") for _ in range(r.randint(1, 2)))
        names = [f"p{i}" for i in range(len(kinds))]
        inner.floats = [n for n, k in zip(names, kinds) if k == "f"]
        inner.ints = [n for n, k in zip(names, kinds) if k == "i"]
        types = ", ".join(f"{n}: {'float' if k == 'f' else 'int'}" for n, k in zip(names, kinds))
        inner.line(0, f"def h{number}({types}) -> {kind}:")
        result = inner.value if kind == "float" else inner.integer
        if r.random() < 0.6:
            inner.line(1, f"if {inner.condition()}:")
            inner.line(2, f"return {result(1)}")
        if r.random() < 0.3:
            inner.line(1, "for k in range(4):")
            inner.line(2, f"if {inner.condition()}:")
            inner.line(3, f"return {result(1)}")
        inner.line(1, f"return {result()}")
        self.lines += [*inner.lines, "", ""]
        self.helpers.append((f"h{number}", kinds, kind))


class Kinds:
    """Tells whether an expression that a Writer wrote is a float, by Python's own reading of it."""

    def __init__(self, writer: Writer):
        self.floats, self.helpers = set(writer.floats), {h[0]: h[2] for h in writer.helpers}

    def of(self, text: str) -> str:
        import ast

        return self.node(ast.parse(text, mode="eval").body)

    def node(self, node: Any) -> str:
        import ast

        match node:
            case ast.Constant(value):
                return "float" if isinstance(value, float) else "int"
            case ast.Name(name):
                return "float" if name in self.floats else "int"
            case ast.BinOp(left, op, right):
                return "float" if "float" in (self.node(left), self.node(right)) or isinstance(op, ast.Div) else "int"
            case ast.UnaryOp(_, operand):
                return self.node(operand)
            case ast.IfExp(_, a, b):
                return "float" if "float" in (self.node(a), self.node(b)) else "int"
            case ast.Subscript(ast.Attribute()):
                return "int"
            case ast.Subscript(ast.Name(name), _):
                return "int" if name in ("k", "z", "u") else "float"
            case ast.Call(ast.Name("min" | "max" | "abs"), args):
                return "float" if "float" in map(self.node, args) else "int"
            case ast.Call(ast.Name(name)):
                return self.helpers.get(name) or ("int" if name in ("int", "floor", "ceil", "round", "trunc", "len") else "float")
            case _:
                raise AssertionError(ast.dump(node))


def case(seed: int) -> Case:
    """Writes the codelet of a seed."""
    r = Random(seed)
    w = Writer(r)
    w.lines += VECTOR_HELPERS.splitlines()
    for i in range(r.randint(0, 2)):
        w.helper(i)
    dtype = np.float64 if r.random() < 0.6 else np.float32
    n, m = r.choice((1, 2, 5, 8)), r.choice((1, 3, 6))
    in_lanes = r.random() < 0.6
    plane = in_lanes and r.random() < 0.5
    second = r.random() < 0.4
    axes = {"x": "r n" if plane else "n", "k": "r m" if plane else "m" if not in_lanes else "n", "y": "r" if plane else "n"}
    if second:
        axes["z"] = axes["y"]
    types = {"x": "Vector", "k": "IntVector", "y": "Vector", "z": "IntVector"}
    w.line(0, f"@codelet(axes={axes})")
    w.line(0, f"def own({', '.join(f'{v}: {types[v]}' for v in axes)}, s: float, q: int) -> None:")
    w.floats, w.ints = ["s"], ["q"]
    exact = True
    if in_lanes:
        w.line(1, "for e in range(len(y)):")
        depth, w.size = 2, "x.shape[1]" if plane else "1"
        w.loads, w.int_loads = (["x[e, {i}]"], ["k[e, 0]"]) if plane else (["x[e]"], ["k[e]"])
        w.line(depth, f"a, b = {w.loads[0].format(i=0)}, float({w.int_loads[0]}) * 0.5")
    else:
        w.line(1, "for e in range(len(y)):")
        w.line(2, f"y[e] = {r.choice(('x[e]', 'float(e) * s'))}")
        if second:
            w.line(1, "for e in range(len(z)):")
            w.line(2, "z[e] = e * 2")
        depth = 1
        w.loads, w.int_loads, w.stores = ["x[{i}]", "y[{i}]"], ["k[0]"], ["y[{i}]", *(["z[{i}]"] if second else [])]
        w.line(1, "a, b = x[0], float(len(k)) * 0.5")
        w.vectors, w.may_return = [("x", "len(x)"), ("y", "len(y)")], True
    w.floats.remove("s")
    w.ints.remove("q")
    w.floats += ["a", "b"]
    if r.random() < 0.4:
        w.line(depth, f"t = floats({r.choice(('3', 'x.shape[0] + 1' if not in_lanes else '4'))})")
        w.loads.append("t[({i}) % 3]")
        w.stores.append("t[({i}) % 3]")
        w.vectors.append(("t", "3"))
    if r.random() < 0.3:
        w.line(depth, "u = ints(2, 2)")
        w.int_loads.append("u[({i}) % 2, 1]")
        w.stores.append("u[1, ({i}) % 2]")
    for _ in range(r.randint(1, 4)):
        w.statement(depth, 3, False)
    w.floats.append("s")
    w.ints.append("q")
    if in_lanes:
        if r.random() < 0.3:
            w.line(depth, f"if {w.condition()}:")
            w.line(depth + 1, f"y[e] = {w.value()}")
            if second:
                w.line(depth + 1, f"z[e] = {w.integer()}")
            w.line(depth + 1, "continue")
        value = w.value()
        if r.random() < 0.3:
            value, exact = f"{r.choice(SMOOTH)}({value} % 4.0)", False
        w.line(depth, f"y[e] = {value}")
        if second:
            w.line(depth, f"z[e] = {w.integer()}")
    g = np.random.default_rng(seed)
    shapes = {"r": r.choice((1, 3, 4)), "n": n, "m": m}
    extents = {v: tuple(shapes[a] for a in a_.split()) for v, a_ in axes.items()}
    x = (g.integers(-24, 24, extents["x"]) / 8).astype(dtype)
    k = g.integers(-5, 12, extents["k"]).astype(r.choice(("i4", "i8", "u1", "i2")) if r.random() < 0.8 else "i8")
    wider = r.random() < 0.2  # one vector of doubles makes all floats doubles
    outputs: dict[str, Any] = {"y": (extents["y"], np.float64 if wider else dtype)}
    if second:
        outputs["z"] = (extents["z"], r.choice(("i4", "i8")))
    return Case("\n".join(w.lines) + "\n", {"x": x, "k": k}, outputs, {"s": 1.25, "q": r.randint(0, 9)}, exact)


def load(text: str, folder: Path, seed: int) -> Any:
    """Loads a codelet from a file of its own."""
    path = folder / f"codelet_{seed}.py"
    path.write_text(HEADER + "\n" + text)
    spec = importlib.util.spec_from_file_location(f"fuzz_codelet_{seed}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.own


def ways(seed: int) -> dict[str, Any]:
    """Lists the ways to run a codelet. The number of tiles alternates."""
    tiles = (1, 2, 3, 1472)[seed % 4]
    return {
        "plain Python": engines.by_plain_python,
        "interpreter": engines.by_interpreter,
        "emitted LLVM": engines.by_emitted_llvm,
        **{e: (lambda *a, e=e: engines.by_engine(*a, e, tiles)) for e in ("numpy", "strict", "native")},
    }


def outcome(way: Any, code: Any, c: Case) -> Any:
    """Gives the outputs; None where the codelet is refused while it runs."""
    try:
        return way(code, c.inputs, c.outputs, c.scalars)
    except PopulusError:
        return None
    except (IndexError, ValueError, OverflowError, ZeroDivisionError):
        if way is not engines.by_plain_python:
            raise
        return None


def equal(a: Any, b: Any, exact: bool) -> bool:
    """Compares two arrays: bit for bit but for NaN, or within a tolerance."""
    if a.dtype.kind == "f" and exact:
        same = (a == b) & (np.signbit(a) == np.signbit(b))
        return bool(np.all(same | (np.isnan(a) & np.isnan(b))))
    if a.dtype.kind == "f":
        return bool(
            np.allclose(a, b, rtol=1e-12 if a.dtype == np.float64 else 4e-6, atol=1e-12 if a.dtype == np.float64 else 1e-6, equal_nan=True)
        )
    return bool(np.array_equal(a, b))


def judge(seed: int, folder: Path) -> str:
    """Runs a seed every way. Returns how it ended: `agrees`, `refused`, or what is wrong, with the source."""
    c = case(seed)
    try:
        code = load(c.text, folder, seed)
    except PopulusError as error:
        if "has no negative index" in str(error):
            return "refused"
        return f"not read: {error}\n{c.text}"
    expected = None
    for number, (name, way) in enumerate(ways(seed).items()):
        try:
            found = outcome(way, code, c)
        except Exception as error:
            return f"failed: {name}: {type(error).__name__}: {str(error)[:400]}\n{c.text}"
        if number == 0:
            expected = found
        elif (found is None) != (expected is None):
            return f"wrong: {name} {'refuses' if found is None else 'computes'}, and plain Python does not\n{c.text}"
        elif found is not None and expected is not None:
            for v in c.outputs:
                if not equal(found[v], expected[v], c.exact):
                    return f"wrong: {v} of {name} is {found[v]}, of plain Python {expected[v]}\n{c.text}"
    return "refused" if expected is None else "agrees"
