"""Executes a tile program symbolically: what each variable holds after each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from xdsl.ir import Attribute, Block, Operation, SSAValue

from populus.dialects import expr
from populus.dialects.poplar import affine
from populus.dialects.poplar.affine import box
from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, root_of, type_of
from populus.dialects.poplar.outside import OutsideOp
from populus.dialects.poplar.program import (
    CallOp,
    FuncOp,
    GraphOp,
    IfOp,
    RepeatOp,
    SequenceOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    WhileOp,
)
from populus.dialects.poplar.task import TaskOp
from populus.dialects.support.diagnostics import where
from populus.dialects.support.element_types import is_float
from populus.proof.codelets import Family, Operand, outside
from populus.proof.loops import Part, chosen, looped
from populus.proof.pieces import domain, over, united
from populus.proof.report import Undecided
from populus.proof.terms import Terms
from populus.proof.trees import Number, Pieces


class Tiles:
    """A tile program: what each variable holds."""

    def __init__(self, terms: Terms):
        self.terms, self.views = terms, affine.Views(terms.composed)
        self.memory: dict[SSAValue, Pieces] = {}
        self.results: dict[str, tuple[Pieces, tuple[int, ...]]] = {}

    def executed(self, graph: GraphOp) -> dict[str, tuple[Pieces, tuple[int, ...]]]:
        """Gives what the program sends to the host."""
        self.block(graph.body.block)
        return self.results

    def content(self, root: SSAValue) -> Pieces:
        """Gives what a variable holds."""
        if root not in self.memory:
            owner = root.owner
            self.memory[root] = self.terms.stored(owner.value, type_of(root).shape, owner.array) if isinstance(owner, ConstOp) else NOTHING
        return self.memory[root]

    def read(self, value: SSAValue) -> Pieces:
        """Gives what a view shows."""
        content, view = self.content(root_of(value)), self.views.of(value)
        return self.terms.once.of("read", (content, view), lambda: self.terms.seen(content, view))

    def write(self, value: SSAValue, pieces: Pieces) -> None:
        """Writes what a view shows."""
        root = root_of(value)
        old, view = self.content(root), self.views.of(value)
        made = lambda: united(over(old, self.terms.seen(pieces, view.reverse())))  # noqa: E731
        self.memory[root] = self.terms.once.of("write", (old, view, pieces), made)

    def block(self, block: Block) -> None:
        """Executes steps in order."""
        for op in block.ops:
            match op:
                case StreamInOp():
                    self.write(op.dst, self.terms.input(op.stream.data, type_of(op.dst).shape, is_float(type_of(op.dst).element)))
                case StreamOutOp():
                    self.results[op.stream.data] = (self.read(op.src), type_of(op.src).shape)
                case CopyOp():
                    self.write(op.dst, self.read(op.src))
                case ExecuteOp():
                    for family in op.families():
                        self.family(op, family)
                case CallOp():
                    self.call(op)
                case SequenceOp() | TaskOp():
                    self.block(op.body.block)
                case IfOp() | SwitchOp():
                    self.branch(op)
                case OutsideOp():
                    self.outside(op)
                case RepeatOp() | WhileOp():
                    self.loop(op)
                case FuncOp():
                    pass
                case _ if op.regions:
                    raise Undecided(op.name)
                case _:
                    pass

    def call(self, op: CallOp) -> None:
        """Runs a function on what its arguments hold."""
        for parameter, value in op.bindings():
            self.memory[parameter.result] = self.read(value) if parameter.read else NOTHING
        self.block(op.target().body.block)
        for parameter, value in op.bindings():
            if parameter.written:
                self.write(value, self.memory[parameter.result])

    def family(self, op: ExecuteOp, family: FamilyOp) -> None:
        """Runs a family: what it wrote for the same contents, if it was met."""
        connections = sorted(family.connections(), key=lambda c: c[0].kind != "in")  # the output last, for `inout` too
        if sum(f.kind != "in" for f, _ in connections) != 1:
            raise Undecided(f"'{op.label.data}' @{family.codelet.data}")
        contents = tuple(NOTHING if f.kind == "out" else self.read(v) for f, v in connections)
        fields = tuple((f.name, f.access, type_of(v).shape, type_of(v).element) for f, v in connections)
        key = (family.codelet, family.space, family.params, fields)

        def written() -> Pieces:
            operands = {name: Operand(x, shape, element, access) for x, (name, access, shape, element) in zip(contents, fields)}
            return Family(self.terms, family.codelet.data, family.space, family.params.data, operands).written()

        try:
            self.write(connections[-1][1], self.terms.once.of(key, contents, written))
        except Undecided as why:
            raise Undecided(f"'{op.label.data}': {why}") from None

    # -- branches and loops

    def outside(self, op: OutsideOp) -> None:
        """Runs a function of the host, or a collective, by its name."""
        count = op.inputs.value.data
        inputs = [(self.read(v), type_of(v).shape) for v in op.views[:count]]
        written = [(v, type_of(v)) for v in op.views[count:]]
        params: Mapping[str, Attribute] = {} if op.params is None else op.params.data
        found = outside(self.terms, op.function.data, params, inputs, [(t.shape, t.element) for _, t in written])
        for (view, _), pieces in zip(written, found):
            self.write(view, pieces)

    def branch(self, op: IfOp | SwitchOp) -> None:
        """Runs all programs on the same memory, and chooses by the predicate, or by the case that the control is."""
        given, before = self.read(op.operands[0]), self.memory
        ends: list[dict[SSAValue, Pieces]] = []
        for region in op.regions:
            _pure(op, region.block)
            self.memory = dict(before)
            self.block(region.block)
            ends.append(self.memory)
        self.memory = before
        *ends, last = ends
        conditions = [given]
        if isinstance(op, SwitchOp):
            one = box(type_of(op.control).shape)
            conditions = [self.terms.elementwise(expr.call("equal", expr.Arg(1), c), one, [given], False) for c in op.cases.get_values()]
        for root in dict.fromkeys(root for end in (*ends, last) for root in end):
            found = last.get(root, before.get(root, NOTHING))
            for condition, end in zip(reversed(conditions), reversed(ends)):
                a = end.get(root, before.get(root, NOTHING))
                choose = partial(chosen, self.terms, condition, a, found, box(type_of(root).shape))
                found = self.terms.once.of("choose", (condition, a, found), choose)
            self.memory[root] = found

    def loop(self, op: RepeatOp | WhileOp) -> None:
        """Runs a loop by its recurrence: the variables that its body writes are what it carries."""
        body, conditional = op.body.block, isinstance(op, WhileOp)
        _pure(op, body)
        trips = op.turns if isinstance(op, WhileOp) else op.count.value.data
        if trips == 0 and not conditional:
            return
        roots = list(dict.fromkeys(root_of(v) for v in _written(body)))
        tables = {root_of(v) for v in _row_tables(body)}
        if isinstance(op, WhileOp):
            flag = root_of(op.predicate)
            if next(iter(op.before.block.ops), None) is not None or type_of(flag).shape or flag not in roots or trips == 0:
                raise Undecided(f"{op.name} ({where(op)}): its predicate is no flag that its body writes")
            roots = [flag, *(r for r in roots if r is not flag)]
        parts = [self.part(root, trips, root in tables, conditional and number == 0) for number, root in enumerate(roots)]

        def turn(_: Pieces, states: Sequence[Pieces]) -> tuple[list[Pieces], list[Pieces]]:
            outer, self.memory = self.memory, {**self.memory, **dict(zip(roots, states))}
            try:
                self.block(body)
                return [self.memory[root] for root in roots], []
            finally:
                self.memory = outer

        try:
            finals, _ = looped(self.terms, trips, conditional, parts, turn, [])
        except Undecided as why:
            raise Undecided(f"{op.name} ({where(op)}): {why}") from None
        self.memory.update(zip(roots, finals))

    def part(self, root: SSAValue, trips: int | None, table: bool, flag: bool) -> Part:
        """Gives what a loop's body finds in a variable first, and what that may be."""
        first, shape, element = self.content(root), type_of(root).shape, type_of(root).element
        whole = bool(first) and domain(first).is_equal(box(shape))
        roles: list[str] = []
        if not flag and not shape and not is_float(element) and whole and all(self.terms.plain(p.tree) == ZERO for p in first):
            roles.append("index")
        if not flag and table and shape[:1] == (trips,):
            roles.append("rows")
        if whole:
            roles.append("state")
        return Part(first, shape, is_float(element), (*roles, "stale"))


ZERO = Number(0)

NOTHING: Pieces = []
"""Pieces of a variable that nothing has written: one object, so that steps on it are known again."""


def _written(block: Block) -> Iterator[SSAValue]:
    """Lists the views that the steps of a block write, in inner blocks and functions too."""
    for op in block.walk():
        match op:
            case FamilyOp():
                yield from (v for f, v in op.connections() if f.kind != "in")
            case CopyOp():
                yield op.dst
            case OutsideOp():
                yield from op.views[op.inputs.value.data :]
            case CallOp():
                target = op.target()
                yield from (v for p, v in op.bindings() if p.written)
                yield from (root for root, written in target.captured().items() if written)
                yield from (p.result for p in target.parameters())
                yield from (v for v in _written(target.body.block))
            case _:
                pass


def _row_tables(block: Block) -> Iterator[SSAValue]:
    """Lists the tables of which steps of a block write one row."""
    for op in block.walk():
        if isinstance(op, FamilyOp) and op.codelet.data == "dynamic_update":
            yield from (v for f, v in op.connections() if f.kind != "in")


def _pure(op: Operation, block: Block) -> None:
    """Raises Undecided for steps of a branch or loop that the host sees."""
    for inner in block.walk():
        if isinstance(inner, StreamInOp | StreamOutOp):
            raise Undecided(f"{op.name} ({where(op)}): {inner.name} inside")
