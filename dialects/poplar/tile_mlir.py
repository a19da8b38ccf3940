"""Codelets that were written in Python as functions of `scf`, `cf`, `arith`, `math` and `memref`: what `native` compiles.

print(function_of(code, {"x": Operand((4,), f32), "y": Operand((4,), f32)}).text)

Statements that are left at their end only are `scf.for` and `scf.if`; those that may fail, `break` or `return` are blocks of `cf`.
Indices and other values are checked where their intervals (`tile_ranges.py`) prove nothing. A function with such checks has the
argument `%report` and a result: 0, or 1 after it has reported the place, a value, and the index along each lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from populus.dialects.poplar.tile_mlir_lines import Fields, Operand, Site
from populus.dialects.poplar.tile_mlir_values import ValueWriter, assignments
from populus.dialects.poplar.tile_program import (
    Assign,
    Call,
    Exit,
    For,
    If,
    Number,
    Scratch,
    Statement,
    Store,
    TileCode,
    While,
    blocks,
    from_data,
    roots,
)

__all__ = ["Function", "Operand", "Site", "function_of"]

_MOD = """  func.func private @python_mod{s}(%a: {t}, %b: {t}) -> {t} {{
    %zero = arith.constant 0.0 : {t}
    %r = func.call @fmod{s}(%a, %b) : ({t}, {t}) -> {t}
    %some = arith.cmpf une, %r, %zero : {t}
    %low = arith.cmpf olt, %b, %zero : {t}
    %under = arith.cmpf olt, %r, %zero : {t}
    %apart = arith.xori %low, %under : i1
    %sum = arith.addf %r, %b : {t}
    %moved = arith.select %apart, %sum, %r : {t}
    %none = math.copysign %zero, %b : {t}
    %exact = arith.cmpf oeq, %r, %zero : {t}
    %m = arith.select %exact, %none, %moved : {t}
    func.return %m : {t}
  }}
"""  # %, as Python has it: the sign is that of the divisor
_FLOORDIV = """  func.func private @python_floordiv{s}(%a: {t}, %b: {t}) -> {t} {{
    %zero = arith.constant 0.0 : {t}
    %one = arith.constant 1.0 : {t}
    %half = arith.constant 0.5 : {t}
    %r = func.call @fmod{s}(%a, %b) : ({t}, {t}) -> {t}
    %rest = arith.subf %a, %r : {t}
    %quotient = arith.divf %rest, %b : {t}
    %some = arith.cmpf une, %r, %zero : {t}
    %low = arith.cmpf olt, %b, %zero : {t}
    %under = arith.cmpf olt, %r, %zero : {t}
    %apart = arith.xori %low, %under : i1
    %below = arith.andi %some, %apart : i1
    %less = arith.subf %quotient, %one : {t}
    %q = arith.select %below, %less, %quotient : {t}
    %floor = math.floor %q : {t}
    %off = arith.subf %q, %floor : {t}
    %far = arith.cmpf ogt, %off, %half : {t}
    %next = arith.addf %floor, %one : {t}
    %near = arith.select %far, %next, %floor : {t}
    %plain = arith.divf %a, %b : {t}
    %sign = math.copysign %zero, %plain : {t}
    %null = arith.cmpf oeq, %q, %zero : {t}
    %signed = arith.select %null, %sign, %near : {t}
    %by_zero = arith.cmpf oeq, %b, %zero : {t}
    %result = arith.select %by_zero, %plain, %signed : {t}
    func.return %result : {t}
  }}
"""  # //, as Python has it: exact, where a rounded quotient might be one too many
FLOORED = {"python_mod": _MOD, "python_floordiv": _FLOORDIV}


@dataclass(frozen=True)
class Function:
    """A codelet's function, in the text of its module.

    Its arguments: the vectors, the scratch vectors, a byte for each element of the `tracked` outputs, and the scalars. Then
    follow the report, if the function `reports` failures at its `sites`, and the range of `lane`, if one is shared out.
    """

    name: str
    text: str
    scratch: Mapping[str, tuple[int, ...]]
    tracked: tuple[str, ...]
    reports: bool
    sites: tuple[Site, ...]
    lane: str


def function_of(code: TileCode, fields: Fields, scalars: Mapping[str, float] | None = None, lane: str = "") -> Function:
    """Writes a module with the function of a codelet for vectors of given shapes.

    `scalars`: the parameters, where sizes of scratch vectors depend on them. `lane`: an axis whose loops run over arguments' range.
    """
    return _Writer(code, fields, scalars or {}, lane).function()


class _Writer(ValueWriter):
    """Writes statements. A variable that is assigned once is a value; others are memory, which LLVM puts into registers."""

    def __init__(self, code: TileCode, fields: Fields, scalars: Mapping[str, float], lane: str):
        super().__init__(code, fields, scalars)
        self.lane = lane
        self.counts = assignments(code)
        self.variables = {name for name, _ in self.counts}
        self.exits: list[dict[str, str]] = []  # of loops and helpers: the blocks to which their exits lead
        self._flat: dict[int, bool] = {}
        self.reports = False

    def function(self) -> Function:
        """Writes the function and its module."""
        code, tracked = self.code, tuple(v for v in self.code.outputs if v in self.tracked)
        for (name, kind), count in self.counts.items():
            if count > 1 and kind in self.types:
                self.cells[name, kind] = f"%{name}.{kind}"
                self.line(2, f"%{name}.{kind} = memref.alloca() : memref<{self.types[kind]}>")
        self.reports = bool(tracked) or self.needs_blocks(code.body, of_failures=True)
        for v in tracked:
            self.fill(f"%{v}.written", self.mask(v), "i8", self.shape(v), 2)
        if self.block(code.body, 2):
            self.end(2)
        arguments = [f"%{v}: {self.memref(v)}" for v in (*code.axes, *self.scratch)]
        arguments += [f"%{v}.written: {self.mask(v)}" for v in tracked]
        arguments += [f"%{n}: {self.types[k]}" for n, k in code.scalars.items()]
        arguments += [f"%report: {self.report()}"] if self.reports else []
        arguments += ["%first: index", "%end: index"] if self.lane else []
        body = "\n".join((*self.lines, *self.late))
        head = f"func.func @{code.name}({', '.join(arguments)}){' -> i64' if self.reports else ''}"
        text = f"builtin.module {{\n{self.declarations()}  {head} {{\n{body}\n  }}\n}}\n"
        return Function(code.name, text, self.scratch, tracked, self.reports, tuple(self.sites), self.lane)

    def declarations(self) -> str:
        """Writes the functions that the codelet calls."""
        text, type = "", self.types["float"]
        suffix = "" if type == "f64" else "f"
        for name, body in FLOORED.items():
            if self.externals.pop(name + suffix, None):
                text += body.format(s=suffix, t=type)
                self.externals[f"fmod{suffix}"] = f"({type}, {type}) -> {type}"
        return "".join(f"  func.func private @{n}{signature}\n" for n, signature in sorted(self.externals.items())) + text

    def end(self, depth: int) -> None:
        """Writes the function's end: all outputs are written."""
        for v in (v for v in self.code.outputs if v in self.tracked):
            self.check_written(v)
        self.line(depth, f"func.return {self.emit(depth, 'arith.constant 0 : i64')} : i64" if self.reports else "func.return")

    def check_written(self, vector: str) -> None:
        """Counts the elements of an output that are not written."""
        cell, zero = self.emit(2, "memref.alloca() : memref<index>"), self.integer(0, 2)
        self.line(2, f"memref.store {zero}, {cell}[] : memref<index>")
        at, depth = self.nest(self.shape(vector), 2)
        mark = self.emit(depth, f"memref.load %{vector}.written[{', '.join(at)}] : {self.mask(vector)}")
        count = self.emit(depth, f"memref.load {cell}[] : memref<index>")
        wide = self.emit(depth, f"arith.index_cast {self.emit(depth, f'arith.extui {mark} : i8 to i64')} : i64 to index")
        self.line(depth, f"memref.store {self.emit(depth, f'arith.addi {count}, {wide} : index')}, {cell}[] : memref<index>")
        self.close(depth, 2)
        total = 1
        for n in self.shape(vector):
            total *= n
        left = self.emit(2, f"arith.subi {self.integer(total, 2)}, {self.emit(2, f'memref.load {cell}[] : memref<index>')} : index")
        good = self.emit(2, f"arith.cmpi eq, {left}, {self.integer(0, 2)} : index")
        self.check(good, Site("left", int(self.code.place.rpartition(":")[2]), vector), left, 2)

    def nest(self, shape: Sequence[int], depth: int) -> tuple[list[str], int]:
        """Opens loops over all elements; returns their variables and the depth inside."""
        at: list[str] = []
        for n in shape:
            low, high, one = self.integer(0, depth), self.integer(n, depth), self.integer(1, depth)
            self.count += 1
            at.append(f"%{self.count}")
            self.line(depth, f"scf.for {at[-1]} = {low} to {high} step {one} {{")
            depth += 1
        return at, depth

    def close(self, depth: int, to: int) -> None:
        """Closes loops."""
        for d in range(depth - 1, to - 1, -1):
            self.line(d, "}")

    def fill(self, memory: str, memref: str, element: str, shape: Sequence[int], depth: int) -> None:
        """Fills memory with zeros."""
        zero = self.emit(depth, f"arith.constant {'0.0' if element.startswith('f') else 0} : {element}")
        at, inner = self.nest(shape, depth)
        self.line(inner, f"memref.store {zero}, {memory}[{', '.join(at)}] : {memref}")
        self.close(inner, depth)

    # -- statements

    def needs_blocks(self, body: Sequence[Statement], of_failures: bool = False) -> bool:
        """Tells whether statements leave their block other than at its end. `of_failures`: by a failure."""
        return any(self.fails_in(s) if of_failures else self.is_flat(s) for s in body)

    def last_needs_blocks(self, call: Call) -> bool:
        last = call.body[-1] if call.body else None
        return last is not None and not (isinstance(last, Exit) and last.kind == "return") and self.is_flat(last)

    def is_flat(self, s: Statement) -> bool:
        """Tells whether a statement takes blocks of `cf`."""
        found = self._flat.get(id(s))
        if found is None:
            found = isinstance(s, Exit | While) or self.own_failure(s) or any(map(self.fails, roots(s)))
            found = self._flat[id(s)] = found or any(self.needs_blocks(b) for b in blocks(s))
        return found

    def own_failure(self, s: Statement) -> bool:
        """Tells whether a statement itself is checked."""
        match s:
            case Store(vector, index):
                return vector in self.kinds and not self.in_bounds(vector, index)
            case While():
                return True
            case For():
                return self.is_limited(s)
            case _:
                return False

    def fails_in(self, s: Statement) -> bool:
        """Tells whether a statement has a check, in itself or inside."""
        if self.own_failure(s) or any(self.fails(v) for v in roots(s)):
            return True
        return any(self.fails_in(inner) for b in blocks(s) for inner in b)

    def is_limited(self, s: For) -> bool:
        """Tells whether the turns of a loop are held against the limit: data decide them, and they may be more."""
        if not from_data(s, self.variables):
            return False
        (low, _), (_, high) = (self.ranges.of(v) for v in ((s.start, s.stop) if s.step > 0 else (s.stop, s.start)))
        return (high - low) // abs(s.step) > self.code.steps

    def block(self, body: Sequence[Statement], depth: int) -> bool:
        """Writes statements. Returns False if their end is not reached."""
        return all(self.statement(s, depth) for s in body)

    def statement(self, s: Statement, depth: int) -> bool:
        """Writes one statement."""
        match s:
            case Assign(name, value):
                self.assign(name, value.kind, self.value(value, depth), depth)
            case Store():
                self.store(s, depth)
            case Scratch(vector, kind):
                element = "i8" if kind == "bool" else self.types[kind]
                self.fill(f"%{vector}", self.memref(vector), element, self.scratch[vector], depth)
            case For():
                self.flat_loop(s) if self.is_flat(s) else self.loop(s, depth)
            case While():
                return self.while_(s)
            case If():
                return self.flat_branch(s) if self.is_flat(s) else self.branch(s, depth)
            case Exit(kind):
                return self.leave(kind)
        return True

    def assign(self, name: str, kind: str, value: str, depth: int) -> None:
        """Gives a variable its value."""
        cell = self.cells.get((name, kind))
        if cell is None:
            self.env[name] = value
        else:
            self.line(depth, f"memref.store {value}, {cell}[] : memref<{self.types[kind]}>")

    def store(self, s: Store, depth: int) -> None:
        """Writes a store."""
        value = self.value(s.value, depth)
        at = ", ".join(self.place(s.vector, s.index, s.line, depth))
        stored = self.narrowed(value, s.vector, depth)
        self.line(depth, f"memref.store {stored}, %{s.vector}[{at}] : {self.memref(s.vector)}")
        if s.vector in self.tracked:
            one = self.emit(depth, "arith.constant 1 : i8")
            self.line(depth, f"memref.store {one}, %{s.vector}.written[{at}] : {self.mask(s.vector)}")

    def leave(self, kind: str) -> bool:
        """Writes a `break`, `continue` or `return`."""
        target = next((e[kind] for e in reversed(self.exits) if kind in e), None)
        if target is None:
            self.end(2)
        elif target:
            self.line(2, f"cf.br {target}")
        return False

    def bounds(self, s: For, depth: int) -> tuple[str, str, str]:
        """Writes the bounds of a loop."""
        if self.lane and self.code.loops.get(s.var) == self.lane:
            return "%first", "%end", self.integer(1, depth)
        return self.value(s.start, depth), self.value(s.stop, depth), self.integer(s.step, depth)

    def within(self, s: For, variable: str) -> None:
        """Makes a loop's variable known in its body."""
        self.turns[s.var] = variable
        if s.var in self.code.loops:
            self.loop_values[self.code.loops[s.var]] = variable

    def after(self, s: For) -> None:
        """Forgets a loop's variable."""
        del self.turns[s.var]
        self.loop_values.pop(self.code.loops.get(s.var, ""), None)

    def loop(self, s: For, depth: int) -> None:
        """Writes a loop as `scf.for`. A loop downward counts its turns."""
        start, stop, step = self.bounds(s, depth)
        if s.step < 0:
            span = self.emit(depth, f"arith.subi {start}, {stop} : index")
            more = self.emit(depth, f"arith.addi {span}, {self.integer(-s.step - 1, depth)} : index")
            some = self.emit(depth, f"arith.maxsi {more}, {self.integer(0, depth)} : index")
            turns = self.emit(depth, f"arith.divui {some}, {self.integer(-s.step, depth)} : index")
            low, high, by = self.integer(0, depth), turns, self.integer(1, depth)
        else:
            low, high, by = start, stop, step
        self.count += 1
        variable = f"%{self.count}"
        self.line(depth, f"scf.for {variable} = {low} to {high} step {by} {{")
        if s.step < 0:
            moved = self.emit(depth + 1, f"arith.muli {variable}, {step} : index")
            variable = self.emit(depth + 1, f"arith.addi {start}, {moved} : index")
        self.within(s, variable)
        self.block(s.body, depth + 1)
        self.after(s)
        self.line(depth, "}")

    def flat_loop(self, s: For) -> None:
        """Writes a loop as blocks."""
        start, stop, step = self.bounds(s, 2)
        if self.is_limited(s):
            span = self.emit(2, f"arith.subi {stop}, {start} : index" if s.step > 0 else f"arith.subi {start}, {stop} : index")
            good = self.emit(2, f"arith.cmpi sle, {span}, {self.integer(self.code.steps * abs(s.step), 2)} : index")
            self.check(good, Site("turns", s.line), span, 2)
        head, body, following, exit = (self.label() for _ in range(4))
        self.line(2, f"cf.br {head}({start} : index)")
        self.count += 1
        variable = f"%{self.count}"
        self.begin(head, f"({variable} : index)")
        more = self.emit(2, f"arith.cmpi {'slt' if s.step > 0 else 'sgt'}, {variable}, {stop} : index")
        self.line(2, f"cf.cond_br {more}, {body}, {exit}")
        self.begin(body)
        self.within(s, variable)
        self.turn(s.body, following, exit)
        self.after(s)
        self.begin(following)
        self.line(2, f"cf.br {head}({self.emit(2, f'arith.addi {variable}, {step} : index')} : index)")
        self.begin(exit)

    def turn(self, body: Sequence[Statement], following: str, exit: str) -> None:
        """Writes one turn of a loop of blocks."""
        self.exits.append({"break": exit, "continue": following})
        if self.block(body, 2):
            self.line(2, f"cf.br {following}")
        self.exits.pop()

    def while_(self, s: While) -> bool:
        """Writes a `while`, which counts its turns."""
        head, body, following, exit, going = (self.label() for _ in range(5))
        self.line(2, f"cf.br {head}({self.integer(0, 2)} : index)")
        self.count += 1
        turn = f"%{self.count}"
        self.begin(head, f"({turn} : index)")
        if s.condition == Number(True, "bool"):
            self.line(2, f"cf.br {going}")
        else:
            self.line(2, f"cf.cond_br {self.value(s.condition, 2)}, {going}, {exit}")
        self.begin(going)
        good = self.emit(2, f"arith.cmpi slt, {turn}, {self.integer(self.code.steps, 2)} : index")
        self.check(good, Site("turns", s.line), turn, 2)
        self.line(2, f"cf.br {body}")
        self.begin(body)
        mark = len(self.lines)
        self.turn(s.body, following, exit)
        reached = s.condition != Number(True, "bool") or any(f"cf.br {exit}" in line for line in self.lines[mark:])
        self.begin(following)
        self.line(2, f"cf.br {head}({self.emit(2, f'arith.addi {turn}, {self.integer(1, 2)} : index')} : index)")
        if reached:
            self.begin(exit)
        return reached

    def branch(self, s: If, depth: int) -> bool:
        """Writes a branch as `scf.if`."""
        self.line(depth, f"scf.if {self.value(s.condition, depth)} {{")
        self.block(s.then, depth + 1)
        if s.otherwise:
            self.line(depth, "} else {")
            self.block(s.otherwise, depth + 1)
        self.line(depth, "}")
        return True

    def flat_branch(self, s: If) -> bool:
        """Writes a branch as blocks."""
        then, otherwise, end = (self.label() for _ in range(3))
        self.line(2, f"cf.cond_br {self.value(s.condition, 2)}, {then}, {otherwise if s.otherwise else end}")
        reached = not s.otherwise
        for label, body in ((then, s.then), (otherwise, s.otherwise)):
            if label == then or s.otherwise:
                self.begin(label)
                if self.block(body, 2):
                    reached = True
                    self.line(2, f"cf.br {end}")
        if reached:
            self.begin(end)
        return reached

    def inline(self, call: Call, depth: int) -> None:
        """Writes the statements of a helper. Its returns lead to a block after it; a last one leads nowhere."""
        if not self.part_fails(call):
            self.exits.append({"return": ""})
            self.block(call.body, depth)
            self.exits.pop()
            return
        end = self.label()
        self.exits.append({"return": end})
        if self.block(call.body, 2):
            self.line(2, f"cf.br {end}")
        self.exits.pop()
        self.begin(end)
