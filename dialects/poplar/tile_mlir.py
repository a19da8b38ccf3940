"""Codelets that were written in Python as functions of `scf`, `cf`, `arith`, `math` and `memref`: what `native` compiles.

print(function_of(code, {"x": Operand((4,), f32), "y": Operand((4,), f32)}).module())

Statements that are left at their end only are `scf.for` and `scf.if`; those that may fail, `break` or `return` are blocks of `cf`.
Indices and other values are checked where their intervals (`tile_ranges.py`) prove nothing. A function with such checks has the
argument `%report` and a result: 0, or 1 after it has reported the place, a value, and the index along each lane.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import cast

from xdsl.dialects import arith, cf, func, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, ModuleOp, f64, i64
from xdsl.ir import Attribute, Block, SSAValue

from populus.dialects.poplar.tile_floored import FLOORED, floored
from populus.dialects.poplar.tile_mlir_ops import BYTE, INDEX, Fields, Operand
from populus.dialects.poplar.tile_mlir_values import ValueWriter, assignments
from populus.dialects.poplar.tile_program import (
    Assign,
    Call,
    Exit,
    For,
    If,
    Number,
    Scratch,
    Site,
    Statement,
    Store,
    TileCode,
    While,
    blocks,
    from_data,
    roots,
)

__all__ = ["Function", "Operand", "function_of"]


@dataclass(frozen=True)
class Function:
    """A codelet's function. Its ops are made when they are asked for, which takes a hundred times as long as the rest.

    Its arguments: the vectors, the scratch vectors, a byte for each element of the `tracked` outputs, and the scalars. Then
    follow the report, if the function `reports` failures, and the range of `lane`, if one is shared out.
    `key`: a hash of what determines the ops.
    """

    name: str
    scratch: Mapping[str, tuple[int, ...]]
    tracked: tuple[str, ...]
    reports: bool
    lane: str
    key: str
    write: Callable[[], tuple[ModuleOp, tuple[Site, ...]]] = field(repr=False, compare=False)

    def module(self) -> ModuleOp:
        """Makes a module, whose last op is the function."""
        return self.write()[0]

    @property
    def sites(self) -> tuple[Site, ...]:
        """The places that may fail, in the order of their numbers in reports."""
        return self.write()[1]


def function_of(code: TileCode, fields: Fields, scalars: Mapping[str, float] | None = None, lane: str = "") -> Function:
    """Describes the function of a codelet for vectors of given shapes.

    `scalars`: the parameters, where sizes of scratch vectors depend on them. `lane`: an axis whose loops run over arguments' range.
    """
    made = _Writer(code, fields, scalars or {}, lane)
    operands = [(v, str(fields[v].element), str(fields[v].type())) for v in code.axes]
    key = hashlib.sha256(f"{code.name} {code.digest} {operands} {made.scratch} {lane}".encode()).hexdigest()
    return Function(
        code.name, made.scratch, made.outputs, made.reports, lane, key, lambda: _Writer(code, fields, scalars or {}, lane).written()
    )


class _Writer(ValueWriter):
    """Inserts statements. A variable that is assigned once is a value; others are memory, which LLVM puts into registers."""

    def __init__(self, code: TileCode, fields: Fields, scalars: Mapping[str, float], lane: str):
        super().__init__(code, fields, scalars)
        self.lane = lane
        self.counts = assignments(code)
        self.variables = {name for name, _ in self.counts}
        self.exits: list[dict[str, Block | None]] = []  # of loops and helpers: the blocks to which their exits lead
        self._flat: dict[int, bool] = {}
        self.outputs = tuple(v for v in code.outputs if v in self.tracked)
        self.reports = bool(self.outputs) or self.needs_blocks(code.body, of_failures=True)

    def written(self) -> tuple[ModuleOp, tuple[Site, ...]]:
        """Makes the module, and the places that may fail."""
        code = self.code
        self.vectors = {v: self.argument(v, self.memref(v)) for v in (*code.axes, *self.scratch)}
        self.marks = {v: self.argument(f"{v}.written", MemRefType(BYTE, self.shape(v))) for v in self.outputs}
        self.env = {n: self.argument(n, self.types[k]) for n, k in code.scalars.items()}
        if self.reports:
            self.report = self.argument("report", MemRefType(INDEX, [2 + len(code.lanes)]))
        self.range = [self.argument(n, INDEX) for n in ("first", "end")] if self.lane else []
        for (name, kind), count in self.counts.items():
            if count > 1 and kind in self.types:
                cell = self.cells[name, kind] = self.cell(self.types[kind])
                cell.name_hint = f"{name}.{kind}"
        for mark in self.marks.values():
            self.fill(mark)
        if self.block(code.body):
            self.end()
        for block in self.late:
            self.body.add_block(block)
        types = list(self.entry.arg_types), [i64] if self.reports else []
        module = ModuleOp([*self.declarations(), func.FuncOp(code.name, types, self.body)])
        return module, tuple(self.sites)

    def argument(self, name: str, type: Attribute) -> SSAValue:
        """Adds an argument."""
        added = self.entry.insert_arg(type, len(self.entry.args))
        added.name_hint = name
        return added

    def declarations(self) -> list[func.FuncOp]:
        """Makes the functions that the codelet calls."""
        suffix = "" if self.float == f64 else "f"
        used = [name for name in FLOORED if self.externals.pop(name + suffix, None)]
        if used:
            self.externals[f"fmod{suffix}"] = [self.float] * 2, self.float
        declared = [func.FuncOp.external(n, types, [result]) for n, (types, result) in sorted(self.externals.items(), key=lambda e: e[0])]
        return [*declared, *(floored(name, self.float) for name in used)]

    def cell(self, type: Attribute) -> SSAValue:
        """Inserts memory of one element."""
        return self.op(memref.AllocaOp.get(type, shape=[]))

    def end(self) -> None:
        """Inserts the function's end: all outputs are written."""
        for v in self.outputs:
            self.check_written(v)
        self.add(func.ReturnOp(self.integer(0, i64)) if self.reports else func.ReturnOp())

    def check_written(self, vector: str) -> None:
        """Counts the elements of an output that are not written."""
        cell = self.cell(INDEX)
        self.write(self.integer(0), cell)

        def count(at: list[SSAValue]) -> None:
            mark, counted = self.read(self.marks[vector], at), self.read(cell)
            wide = self.op(arith.IndexCastOp(self.op(arith.ExtUIOp(mark, i64)), INDEX))
            self.write(self.op(arith.AddiOp(counted, wide)), cell)

        self.each(self.shape(vector), count)
        left = self.op(arith.SubiOp(self.integer(prod(self.shape(vector))), self.read(cell)))
        good = self.compare("eq", left, self.integer(0))
        self.check(good, Site("left", int(self.code.place.rpartition(":")[2]), vector), left)

    def each(self, shape: Sequence[int], inner: Callable[[list[SSAValue]], None], *at: SSAValue) -> None:
        """Inserts loops over all elements, and what `inner` inserts for one."""
        if not shape:
            return inner([*at])
        turn = Block(arg_types=[INDEX])
        bounds = self.integer(0), self.integer(shape[0]), self.integer(1)
        with self.into(turn):
            self.each(shape[1:], inner, *at, turn.args[0])
            self.add(scf.YieldOp())
        return self.add(scf.ForOp(*bounds, [], turn))

    def fill(self, memory: SSAValue) -> None:
        """Fills memory with zeros."""
        type = cast("MemRefType[Attribute]", memory.type)
        element = type.element_type
        floats = element == self.float
        zero = self.number(Number(0.0, "float")) if floats else self.integer(0, cast("IndexType | IntegerType", element))
        self.each(type.get_shape(), lambda at: self.write(zero, memory, at))

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

    def block(self, body: Sequence[Statement]) -> bool:
        """Inserts statements. Returns False if their end is not reached."""
        return all(map(self.statement, body))

    def statement(self, s: Statement) -> bool:
        """Inserts one statement."""
        match s:
            case Assign(name, Call(kind="nothing") as call):
                self.inline(call)
            case Assign(name, value):
                self.assign(name, value.kind, self.value(value))
            case Store():
                self.store(s)
            case Scratch(vector):
                self.fill(self.vectors[vector])
            case For():
                self.flat_loop(s) if self.is_flat(s) else self.loop(s)
            case While():
                return self.while_(s)
            case If():
                return self.flat_branch(s) if self.is_flat(s) else self.branch(s)
            case Exit(kind):
                return self.leave(kind)
        return True

    def assign(self, name: str, kind: str, value: SSAValue) -> None:
        """Gives a variable its value."""
        cell = self.cells.get((name, kind))
        if cell is None:
            self.env[name] = value
        else:
            self.write(value, cell)

    def store(self, s: Store) -> None:
        """Inserts a store."""
        value = self.value(s.value)
        at = self.place(s.vector, s.index, s.line)
        self.write(self.narrowed(value, s.vector), self.vectors[s.vector], at)
        if s.vector in self.tracked:
            self.write(self.integer(1, BYTE), self.marks[s.vector], at)

    def leave(self, kind: str) -> bool:
        """Inserts a `break`, `continue` or `return`."""
        for exits in reversed(self.exits):
            if kind in exits:
                target = exits[kind]
                if target is not None:
                    self.add(cf.BranchOp(target))
                return False
        self.end()
        return False

    def bounds(self, s: For) -> tuple[SSAValue, SSAValue, SSAValue]:
        """Inserts the bounds of a loop."""
        if self.lane and self.code.loops.get(s.var) == self.lane:
            return self.range[0], self.range[1], self.integer(1)
        return self.value(s.start), self.value(s.stop), self.integer(s.step)

    def within(self, s: For, variable: SSAValue) -> None:
        """Makes a loop's variable known in its body."""
        self.turns[s.var] = variable
        if s.var in self.code.loops:
            self.loop_values[self.code.loops[s.var]] = variable

    def after(self, s: For) -> None:
        """Forgets a loop's variable."""
        del self.turns[s.var]
        self.loop_values.pop(self.code.loops.get(s.var, ""), None)

    def loop(self, s: For) -> None:
        """Inserts a loop as `scf.for`. A loop downward counts its turns."""
        start, stop, step = self.bounds(s)
        low, high, by = start, stop, step
        if s.step < 0:
            span = self.op(arith.SubiOp(start, stop))
            more = self.op(arith.AddiOp(span, self.integer(-s.step - 1)))
            some = self.op(arith.MaxSIOp(more, self.integer(0)))
            high = self.op(arith.DivUIOp(some, self.integer(-s.step)))
            low, by = self.integer(0), self.integer(1)
        turn = Block(arg_types=[INDEX])
        with self.into(turn):
            variable: SSAValue = turn.args[0]
            if s.step < 0:
                variable = self.op(arith.AddiOp(start, self.op(arith.MuliOp(variable, step))))
            self.within(s, variable)
            self.block(s.body)
            self.after(s)
            self.add(scf.YieldOp())
        self.add(scf.ForOp(low, high, by, [], turn))

    def flat_loop(self, s: For) -> None:
        """Inserts a loop as blocks."""
        start, stop, step = self.bounds(s)
        if self.is_limited(s):
            span = self.op(arith.SubiOp(*((stop, start) if s.step > 0 else (start, stop))))
            good = self.compare("sle", span, self.integer(self.code.steps * abs(s.step)))
            self.check(good, Site("turns", s.line), span)
        head, body, following, exit = Block(arg_types=[INDEX]), Block(), Block(), Block()
        self.add(cf.BranchOp(head, start))
        self.begin(head)
        variable = head.args[0]
        more = self.compare("slt" if s.step > 0 else "sgt", variable, stop)
        self.add(cf.ConditionalBranchOp(more, body, [], exit, []))
        self.begin(body)
        self.within(s, variable)
        self.turn(s.body, following, exit)
        self.after(s)
        self.begin(following)
        self.add(cf.BranchOp(head, self.op(arith.AddiOp(variable, step))))
        self.begin(exit)

    def turn(self, body: Sequence[Statement], following: Block, exit: Block) -> None:
        """Inserts one turn of a loop of blocks."""
        self.exits.append({"break": exit, "continue": following})
        if self.block(body):
            self.add(cf.BranchOp(following))
        self.exits.pop()

    def while_(self, s: While) -> bool:
        """Inserts a `while`, which counts its turns."""
        head, body, following, exit, going = Block(arg_types=[INDEX]), Block(), Block(), Block(), Block()
        self.add(cf.BranchOp(head, self.integer(0)))
        self.begin(head)
        turn = head.args[0]
        if s.condition == Number(True, "bool"):
            self.add(cf.BranchOp(going))
        else:
            self.add(cf.ConditionalBranchOp(self.value(s.condition), going, [], exit, []))
        self.begin(going)
        self.check(self.compare("slt", turn, self.integer(self.code.steps)), Site("turns", s.line), turn)
        self.add(cf.BranchOp(body))
        self.begin(body)
        self.turn(s.body, following, exit)
        self.begin(following)
        self.add(cf.BranchOp(head, self.op(arith.AddiOp(turn, self.integer(1)))))
        reached = exit.first_use is not None
        if reached:
            self.begin(exit)
        return reached

    def branch(self, s: If) -> bool:
        """Inserts a branch as `scf.if`."""
        condition = self.value(s.condition)
        then, otherwise = Block(), Block()
        for block, body in ((then, s.then), (otherwise, s.otherwise)):
            with self.into(block):
                self.block(body)
                self.add(scf.YieldOp())
        self.add(scf.IfOp(condition, [], [then], [otherwise] if s.otherwise else None))
        return True

    def flat_branch(self, s: If) -> bool:
        """Inserts a branch as blocks."""
        then, otherwise, end = Block(), Block(), Block()
        self.add(cf.ConditionalBranchOp(self.value(s.condition), then, [], otherwise if s.otherwise else end, []))
        for block, body in ((then, s.then), (otherwise, s.otherwise)):
            if block is then or body:
                self.begin(block)
                if self.block(body):
                    self.add(cf.BranchOp(end))
        reached = end.first_use is not None
        if reached:
            self.begin(end)
        return reached

    def inline(self, call: Call) -> None:
        """Inserts the statements of a helper. Its returns lead to a block after it; a last one leads nowhere."""
        flat = self.part_fails(call)
        end = Block() if flat else None
        self.exits.append({"return": end})
        reached = self.block(call.body)
        self.exits.pop()
        if end is not None:
            if reached:
                self.add(cf.BranchOp(end))
            self.begin(end)
