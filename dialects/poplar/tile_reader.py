"""The reader of codelets: the source of a Python function becomes a TileCode.

Each construct means what it means in Python, or is refused by name at its line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from populus.dialects.poplar.tile_functions import SCRATCH
from populus.dialects.poplar.tile_lanes import Lanes
from populus.dialects.poplar.tile_program import (
    STEPS,
    Apply,
    Assign,
    Call,
    Exit,
    For,
    If,
    Load,
    Name,
    Number,
    Scratch,
    Statement,
    Store,
    TileCode,
    Value,
    While,
    parts,
)
from populus.dialects.poplar.tile_ranges import SIZES
from populus.dialects.poplar.tile_source import Source, file_of
from populus.dialects.poplar.tile_values import Function, Loop, Scope, ValueReader, as_float, meet
from populus.dialects.poplar.tile_written import Written
from populus.dialects.support.diagnostics import PopulusError

VECTORS = {"Vector": "float", "IntVector": "int", "BoolVector": "bool"}
MOST_CALLS = 4096  # names that helpers take: a text of a few lines could call two of them that call two more, and so on
SCALARS = {"float": "float", "int": "int", "bool": "bool"}


class Reader(ValueReader):
    """Turns a function's source into a TileCode."""

    def __init__(
        self,
        source: Source,
        axes: Mapping[str, str] | None,
        whole: str,
        cycles: Callable[..., Any] | None,
        steps: int | None,
        library: Sequence[object],
    ):
        super().__init__(source)
        self.source, self.stated, self.whole, self.cycles = source, axes, whole.split(), cycles
        self.texts: dict[str, str] = {}  # of helpers, by their names
        self.steps = STEPS if steps is None else steps
        self.library = library  # functions of ours that a codelet may call as helpers, or for scratch vectors
        self.axes: dict[str, tuple[str, ...]] = {}
        self.written = Written()  # at the end of the last helper
        self.count = 0  # of calls of helpers and of tuples, for names of their own

    def read(self) -> TileCode:
        """Reads the function's source and makes the codelet's code."""
        text, tree = self.parsed(self.source)
        self.parameters(tree)
        scope = Scope(dict(self.given))
        body = self.block(tree.body, scope)
        outputs = tuple(dict.fromkeys(v for v, _, _ in self.stores if v in self.axes))
        outputs = tuple(v for v in self.axes if v in outputs)
        if not outputs:
            self.refuse(tree, "it writes no vector")
        self.check_reads(outputs)
        end = meet([scope, *self.function.returns])
        unread = {load.vector for load, _, _, _, proved in self.loads if not proved}
        tracked = {v: None if v in unread else end.written.patterns for v in outputs if v in unread or not end.written.has_all(v)}
        analysis = Lanes(self.axes, outputs, body)
        lanes, loops = analysis.found()
        if strange := [a for a in self.whole if a not in {x for axes in self.axes.values() for x in axes}]:
            self.refuse(tree, f"whole names axis '{strange[0]}', which no vector has")
        lanes = tuple(a for a in lanes if a not in self.whole)
        return TileCode(
            name=self.name,
            doc=self.source.doc,
            axes=self.axes,
            kinds={v: self.kinds[v] for v in self.axes},
            scalars=self.given,
            outputs=outputs,
            body=body,
            lanes=lanes,
            loops={v: a for v, a in loops.items() if a in lanes},
            tracked=tracked,
            cycles=self.cycles,
            steps=self.steps,
            place=f"{self.file}:{self.function.first}",
            text=self.file_text(text),
            function=self.source.function,
        )

    def file_text(self, text: str) -> str:
        """Writes the file that a tile program carries."""
        library = [n for n, v in self.used.items() if v in self.library]
        numbers = {n: v for n, v in self.used.items() if isinstance(v, bool | int | float)}
        given = {"axes": dict(self.stated or {}), "whole": " ".join(self.whole), "steps": self.steps if self.steps != STEPS else 0}
        options = {name: value for name, value in given.items() if value}
        return file_of([*self.texts.values(), text], numbers, ["math"] if "math" in self.used else [], library, options)

    def parsed(self, source: Source) -> tuple[str, ast.FunctionDef]:
        """Gives a function's source and its syntax tree."""
        try:
            text = source.text()
        except OSError:
            raise PopulusError(f"codelet {self.name}: its source is not there to read; define it in a file") from None
        tree = ast.parse(text).body[0]
        if not isinstance(tree, ast.FunctionDef):
            self.refuse(tree, "a function defined by `def` is expected")
        return text, tree

    def parameters(self, tree: ast.FunctionDef) -> None:
        """Reads the codelet's parameters."""
        if tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs or tree.args.posonlyargs or tree.args.defaults:
            self.refuse(tree, "parameters are plain names with a type")
        for p in tree.args.args:
            kind = p.annotation.id if isinstance(p.annotation, ast.Name) else ""
            if kind in VECTORS:
                axes = tuple((self.stated or {}).get(p.arg, "i").split())
                self.axes[p.arg], self.kinds[p.arg], self.ranks[p.arg] = axes, VECTORS[kind], len(axes)
                self.function.vectors[p.arg] = p.arg
                if not axes or len(set(axes)) < len(axes):
                    self.refuse(p, f"{p.arg} has axes '{' '.join(axes)}'; one or more different ones are expected")
                if odd := [a for a in axes if not a.isidentifier() or a in ("on", "for", "in", "at", "by")]:
                    self.refuse(p, f"{p.arg} has axis '{odd[0]}', which is no name for one")
            elif kind in SCALARS:
                self.given[p.arg] = SCALARS[kind]
            else:
                self.refuse(p, f"{p.arg} is to be annotated with one of {', '.join((*VECTORS, *SCALARS))}")
        if strange := [v for v in self.stated or {} if v not in self.axes]:
            self.refuse(tree, f"axes names '{strange[0]}', which is no vector of it")

    def dimensions(self, vector: str) -> str:
        axes = f" ({' '.join(self.axes[vector])})" if vector in self.axes else ""
        return f"{super().dimensions(vector)}{axes}"

    def check_reads(self, outputs: Sequence[str]) -> None:
        """Refuses an output's element that is certainly read before it is written."""
        for load, node, loops, before, proved in self.loads:
            if proved or load.vector not in outputs:
                continue
            if any(v == load.vector for v, _, _ in self.stores[:before]):
                continue
            around = [(at, mine) for v, at, mine in self.stores if v == load.vector and any(loop in loops for loop in mine)]
            names = {i.name for i in load.index if isinstance(i, Name)}
            shared = {loop.var for _, mine in around for loop in mine if loop in loops}
            if all(at == load.index for at, _ in around) and shared <= names:
                text = ast.unparse(node)
                self.refuse(node, f"`{text}` is read before it is written; an output is written first, and an input is never written")

    # -- statements

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> tuple[Statement, ...]:
        """Reads statements. Those after an exit are read too, and left out."""
        made: list[Statement] = []
        for node in body:
            dead = scope.dead
            found = self.statement(node, scope)
            made += [] if dead else found
            scope.dead = scope.dead or dead
        return tuple(made)

    def statement(self, node: ast.stmt, scope: Scope) -> list[Statement]:
        """Reads one statement of Python."""
        match node:
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                return []
            case ast.Assign(targets, value):
                return self.assignments(node, targets, value, scope)
            case ast.AnnAssign(ast.Name() as target, _, ast.expr() as value):
                return self.assignments(node, [target], value, scope)
            case ast.AugAssign(target, op, value):
                old = self.value(target, scope)
                return [self.assignment(node, target, self.arithmetic(node, op, old, self.value(value, scope)), scope)]
            case ast.For(ast.Name(var), ast.Call(ast.Name("range"), bounds, []), body, []):
                return [self.loop(node, var, [self.bound(b, scope) for b in bounds], body, scope)]
            case ast.While(test, body, []):
                return [self.while_(node, test, body, scope)]
            case ast.If(test, then, otherwise):
                condition, one, two = self.condition(test, scope), scope.copy(), scope.copy()
                made = If(condition, self.block(then, one), self.block(otherwise, two))
                scope.set(meet([one, two]))
                return [made]
            case ast.Break() | ast.Continue():
                return [self.leave(node, scope)]
            case ast.Return(value):
                return self.returned(node, value, scope)
            case ast.For(orelse=[_, *_]) | ast.While(orelse=[_, *_]):
                self.refuse(node, "`else` of a loop is not allowed; a boolean that the loop sets does the same")
            case ast.Expr(ast.Call() as call):
                return [Assign(self.fresh("unused"), self.helper_only(call, scope))]
            case _:
                text = ast.unparse(node).splitlines()[0]
                self.refuse(node, f"`{text}` is not allowed; for over range, while, if, assignments, break, continue and return are")

    def helper_only(self, node: ast.Call, scope: Scope) -> Value:
        """Reads the call of a helper for what it does."""
        value = self.called(node, scope)
        if not isinstance(value, Call):
            self.refuse(node, f"`{ast.unparse(node)}` has a value that nothing uses")
        scope.written = self.written  # it is certainly called, unlike one within an expression
        return value

    def fresh(self, name: str) -> str:
        """Makes a name that the source cannot have."""
        self.count += 1
        return f"{self.function.prefix}{name}.{self.count}"

    def assignments(self, node: ast.stmt, targets: Sequence[ast.expr], value: ast.expr, scope: Scope) -> list[Statement]:
        """Reads `a = b = value` and `a, b = value, value`: all values come before all targets."""
        made: list[Statement] = []
        match targets, value:
            case [ast.Name(name)], ast.Call(ast.Name(function), args, []) if self.is_scratch(function):
                return [self.scratch_vector(node, name, SCRATCH[function], args, scope)]
            case [ast.Tuple(elements) | ast.List(elements)], ast.Tuple(values) | ast.List(values):
                if len(elements) != len(values):
                    self.refuse(node, f"{len(elements)} targets get {len(values)} values")
                pairs = list(zip(elements, [self.value(v, scope) for v in values]))
            case [ast.Tuple() | ast.List()], _:
                self.refuse(node, f"`{ast.unparse(value)}` is one value; several targets get as many values")
            case _:
                read = self.value(value, scope)
                pairs = [(t, read) for t in targets]
        if len(pairs) > 1:
            held = [v if isinstance(v, Number) else Name(self.fresh("held"), v.kind) for _, v in pairs]
            made += [Assign(h.name, v) for h, (_, v) in zip(held, pairs) if isinstance(h, Name)]
            pairs = [(t, h) for h, (t, _) in zip(held, pairs)]
        return [*made, *(self.assignment(node, target, v, scope) for target, v in pairs)]

    def is_scratch(self, name: str) -> bool:
        """Tells whether a name is our function for scratch vectors."""
        return name in SCRATCH and self.outside(name) in self.library

    def scratch_vector(self, node: ast.stmt, name: str, kind: str, args: Sequence[ast.expr], scope: Scope) -> Statement:
        """Reads `t = floats(n, m)`."""
        full = self.function.prefix + name
        if name in self.function.vectors or full in scope.names:
            self.refuse(node, f"{name} has a meaning already; give the scratch vector another name")
        shape = tuple(self.value(a, scope) for a in args)
        odd = [
            p
            for n in shape
            for p in parts(n)
            if isinstance(p, Load | Call)
            or (isinstance(p, Name) and self.given.get(p.name) != "int")
            or (isinstance(p, Apply) and p.function not in SIZES)
        ]
        if not shape or odd or any(n.kind != "int" for n in shape):
            self.refuse(node, f"{name}: the sizes of a scratch vector are made of sizes, whole numbers and parameters")
        self.function.vectors[name] = full
        self.ranks[full], self.kinds[full] = len(shape), kind
        self.scratch.add(full)
        return Scratch(full, kind, shape, self.line(node))

    def assignment(self, node: ast.stmt, target: ast.expr, value: Value, scope: Scope) -> Statement:
        """Assigns a value to a name or an element."""
        match target:
            case ast.Name(name):
                full = self.function.prefix + name
                if name in self.function.vectors or (not self.function.prefix and name in self.given):
                    what = "parameter" if name in self.axes or name in self.given else "vector"
                    self.refuse(node, f"{name} is a {what}, which is not assigned; take another name")
                known = scope.names.get(full)
                if known == "loop":
                    self.refuse(node, f"{name} is the variable of a loop, which is not assigned")
                if known == "float" and value.kind == "int":
                    value = as_float(value)
                if known is not None and known != value.kind:
                    self.refuse(node, f"{name} is {known} and gets {value.kind}; start it as {value.kind}")
                scope.names[full] = value.kind
                return Assign(full, value)
            case ast.Subscript(ast.Name(name), index):
                vector, at = self.index(node, name, index, scope)
                kind = self.kinds[vector]
                if kind == "float" and value.kind == "int":
                    value = as_float(value)
                if value.kind != kind:
                    self.refuse(node, f"{name} holds {kind}, and gets {value.kind}")
                if vector not in self.scratch:
                    self.stores.append((vector, at, self.around()))
                    scope.written = scope.written.store(vector, at, [n for n, k in scope.names.items() if k == "loop"])
                return Store(vector, at, value, self.line(node))
            case _:
                self.refuse(node, f"`{ast.unparse(target)}` is not assigned to; names and elements of vectors are")

    # -- loops and exits

    def loop(self, node: ast.For, var: str, bounds: Sequence[Value], body: Sequence[ast.stmt], scope: Scope) -> Statement:
        """Reads `for var in range(..)`."""
        full = self.function.prefix + var
        if full in scope.names or var in self.function.vectors:
            self.refuse(node, f"{var} has a meaning already; give the loop's variable another name")
        start, stop, step = {
            1: lambda: (Number(0, "int"), bounds[0], Number(1, "int")),
            2: lambda: (bounds[0], bounds[1], Number(1, "int")),
            3: lambda: (bounds[0], bounds[1], bounds[2]),
        }.get(len(bounds), lambda: self.refuse(node, "range takes one to three bounds"))()
        if not isinstance(step, Number) or step.value == 0:
            self.refuse(node, "the step of a range is a literal other than 0")
        inner, context = scope.copy(), Loop(full)
        inner.names[full] = "loop"
        self.function.loops.append(context)
        made = For(full, start, stop, int(step.value), self.block(body, inner), self.line(node))
        self.function.loops.pop()
        self.check_kinds(node, scope, inner)
        written = scope.written.after(made, meet([inner, *context.continues]).written, self.axes)
        scope.written = scope.written if context.breaks else written
        return made

    def while_(self, node: ast.While, test: ast.expr, body: Sequence[ast.stmt], scope: Scope) -> Statement:
        """Reads `while`."""
        condition = self.condition(test, scope)
        inner, context = scope.copy(), Loop()
        self.function.loops.append(context)
        made = While(condition, self.block(body, inner), self.line(node))
        self.function.loops.pop()
        self.check_kinds(node, scope, inner)
        forever = condition == Number(True, "bool")
        if forever and not context.breaks:
            scope.dead = True
        else:
            scope.set(meet(context.breaks if forever else [scope, *context.breaks]))
        return made

    def check_kinds(self, node: ast.stmt, scope: Scope, inner: Scope) -> None:
        """Refuses a variable that is of another kind after a turn."""
        if any(scope.names.get(n) not in (None, k) for n, k in inner.names.items()):
            self.refuse(node, "a variable changes its kind in the loop")

    def leave(self, node: ast.Break | ast.Continue, scope: Scope) -> Statement:
        """Reads `break` or `continue`."""
        loop = self.function.loops[-1]
        is_break = isinstance(node, ast.Break)
        (loop.breaks if is_break else loop.continues).append(scope.end())
        return Exit("break" if is_break else "continue")

    def returned(self, node: ast.Return, value: ast.expr | None, scope: Scope) -> list[Statement]:
        """Reads `return`."""
        made: list[Statement] = []
        f = self.function
        if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            if not f.result:
                self.refuse(node, f"`{ast.unparse(node)}` is not allowed: a codelet's results are the vectors that it writes")
            found = self.value(value, scope)
            if f.kind == "float" and found.kind == "int":
                found = as_float(found)
            if f.kind not in ("", found.kind):
                self.refuse(node, f"{f.name} returns {f.kind}, and here {found.kind}")
            f.kind = found.kind
            made.append(Assign(f.result, found))
        elif f.kind not in ("", "none"):
            self.refuse(node, f"{f.name} returns {f.kind}, and here nothing")
        else:
            f.kind = "none"
        f.returns.append(scope.end())
        return [*made, Exit("return")]

    def bound(self, node: ast.expr, scope: Scope) -> Value:
        """Reads a bound of a range."""
        value = self.value(node, scope)
        if value.kind != "int":
            self.refuse(node, f"range({ast.unparse(node)}): a bound is {value.kind}; int(..) makes an integer")
        return value

    # -- helpers

    def helper(self, node: ast.Call, source: Source, scope: Scope) -> Call:
        """Reads the body of a helper for one of its calls: what it is given decides the kinds of its variables."""
        name, ours = source.name, source.function in self.library
        if not ours and source.file != self.file:
            self.refuse(node, f"`{ast.unparse(node)}` is not allowed: {name} is of another file; helpers stand in the codelet's own")
        if any(f.globals is source.names and f.name == name for f in self.functions):
            self.refuse(node, f"{name} calls itself, which is not allowed; a loop with a scratch vector as its stack does the same")
        if self.count > MOST_CALLS:
            self.refuse(node, f"helpers are called more than {MOST_CALLS} times, each of which is read apart")
        text, tree = self.parsed(source)
        if not ours:
            self.texts.setdefault(name, text)
        spec = tree.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.defaults or len(spec.args) != len(node.args):
            self.refuse(node, f"{name} takes {len(spec.args)} arguments by place, and gets {len(node.args)}")
        inner = Function(name, source.names, source.first, f"{self.fresh(name)}.")
        inner.result = f"{inner.prefix}result"
        local, made = Scope(written=scope.written), list[Statement]()
        for parameter, argument in zip(spec.args, node.args):
            if isinstance(argument, ast.Name) and argument.id in self.function.vectors:
                inner.vectors[parameter.arg] = self.function.vectors[argument.id]
                continue
            value = self.value(argument, scope)
            stated = parameter.annotation.id if isinstance(parameter.annotation, ast.Name) else value.kind
            if stated == "float" and value.kind == "int":
                value = as_float(value)
            if stated != value.kind:
                self.refuse(node, f"{name} takes {parameter.arg}: {stated}, and gets {value.kind}")
            local.names[inner.prefix + parameter.arg] = value.kind
            made.append(Assign(inner.prefix + parameter.arg, value))
        self.functions.append(inner)
        made += self.block(tree.body, local)
        if not local.dead and inner.kind not in ("", "none"):
            self.refuse(tree, f"{name} returns {inner.kind} on some ways, and nothing on others")
        self.functions.pop()
        self.written = meet([local, *inner.returns]).written
        kind = "nothing" if inner.kind in ("", "none") else inner.kind
        return Call(name, tuple(made), Name(inner.result, kind), kind)
