"""`POPULUS_CHECK=1`: the elements that a program's launches touch, held against the accesses of the families and copies that they compute.

Launches compute a family, a copy, or a `poplar.task` without storing what is between its families. Each of these is checked, with the
launches that are to compute it, memory by memory, whatever variables are called.

- The launches read all that the families read from before; further elements that they read lie in the families' operands.
- The launches write all that the families write and somebody may read later, each element once; they write nothing else of the variables.
- Scratch memory is written before it is read.

Each kernel states what a launch touches, from its arguments (`codegen/touched.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ParamOp, StorageOp, storage_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.partition import Access, Domain
from populus.dialects.poplar.program import StreamInOp
from populus.dialects.poplar.types import Field, TensorType
from populus.dialects.support.diagnostics import where
from populus.runtime.engine.native.codegen.touched import Elements, Touched, address_of
from populus.runtime.engine.native.kernels.launch import Launch

Array = NDArray[Any]
Bits = NDArray[np.bool_]
HOLDING: ContextVar[bool] = ContextVar("HOLDING", default=False)


@contextmanager
def holding() -> Generator[None, None, None]:
    """Checks the launches of each program that is loaded inside, whatever the environment says."""
    token = HOLDING.set(True)
    try:
        yield
    finally:
        HOLDING.reset(token)


@dataclass(frozen=True)
class Touch:
    """Elements of a view that a step touches, and all of the view."""

    value: SSAValue
    elements: Elements
    view: Elements
    name: str


@dataclass
class Step:
    """A family or a copy: what it reads, and what it writes."""

    op: Operation
    reads: list[Touch]
    writes: list[Touch]


Memory = Callable[[SSAValue], "Array | None"]  # a view's array; None for a constant


def step_of(op: FamilyOp | CopyOp, memory: Memory) -> Step:
    """Lists what a family or copy touches, by its accesses."""
    if isinstance(op, CopyOp):
        found = [(v, memory(v), n) for v, n in ((op.src, "the source"), (op.dst, "the destination"))]
        reads, writes = ([Touch(v, Elements.of(a), Elements.of(a), n)] if a is not None else [] for v, a, n in found)
        return Step(op, reads, writes)
    step = Step(op, [], [])
    lengths = _lengths(op)
    for item, value in op.connections():
        array = memory(value)
        if array is None or array.size == 0:
            continue
        touch = Touch(value, _accessed(op.space, lengths, item, array), Elements.of(array), item.name)
        (step.reads if item.kind == "in" else step.writes).append(touch)
    if op.codelet.data == "random":
        step.reads = [replace(t, elements=_none(t.elements)) for t in step.reads]
    return step


def _lengths(op: FamilyOp) -> dict[str, int]:
    """Gives the number of places of each axis that matter: a point outside of one view is padding, and reads none of the others."""
    lengths = {axis: split.n for axis, split in op.space.axes}
    for item, value in op.connections():
        assert isinstance(value.type, TensorType), value.type
        for access, n in zip(item.access, value.type.shape):
            if not access.whole and not access.part and len(access.terms) == 1 and access.terms[0][1] == 1 and access.offset >= 0:
                axis = access.terms[0][0]
                lengths[axis] = min(lengths[axis], max(n - access.offset, 0))
    return lengths


def _accessed(space: Domain, lengths: Mapping[str, int], item: Field, array: Array) -> Elements:
    """Lists the elements of a field that the vertices touch; padding is none."""

    def along(access: Access, n: int) -> NDArray[np.int64]:
        if access.whole:
            return np.arange(n, dtype=np.int64)
        if access.part:
            return np.arange(space[access.terms[0][0]].parts, dtype=np.int64)
        at = np.array([access.offset], np.int64)
        reach = [sorted((0, c * (lengths[axis] - 1))) for axis, c in access.terms]
        for k, (axis, c) in enumerate(access.terms):  # only what the other terms can bring into the view, as an axis may be far longer
            others = reach[k + 1 :]
            ends = (-int(at.max()) - sum(high for _, high in others), n - 1 - int(at.min()) - sum(low for low, _ in others))
            first, last = (-(-ends[0] // c), ends[1] // c) if c > 0 else (-(ends[1] // -c), -ends[0] // -c)
            steps = np.arange(max(first, 0), min(last + 1, lengths[axis]), dtype=np.int64)
            if not steps.size:
                return steps
            at = np.unique(np.add.outer(at, steps * c))
        return at[(at >= 0) & (at < n)]

    places = [along(a, n) * s for a, n, s in zip(item.access, array.shape, array.strides)]
    found = Elements.at(array, array.itemsize, *places)
    return found if all(lengths.values()) or item.kind != "in" else _none(found)  # a sum over no points is written all the same


def _none(elements: Elements) -> Elements:
    return replace(elements, tables=(np.zeros(0, np.int64),))


Sets = dict[int, Bits]  # by stretch of memory: which of its grains


class Stretches:
    """Stretches of memory, each in grains that divide all elements there."""

    def __init__(self, elements: Iterable[Elements]):
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.grains: list[int] = []
        for low, high, e in sorted(((*e.span, e) for e in elements if e.count), key=lambda found: found[:2]):
            grain = int(np.gcd.reduce([e.item, *(int(np.gcd.reduce(t)) for t in e.tables)]))
            if self.ends and low < self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], high)
                self.grains[-1] = int(np.gcd.reduce([self.grains[-1], grain, low - self.begins[-1]]))
            else:
                self.begins.append(low)
                self.ends.append(high)
                self.grains.append(grain)

    def sets(self, elements: Iterable[Elements]) -> tuple[Sets, bool]:
        """Gives the set of some elements, and whether each is there once."""
        sets: Sets = {}
        count = 0
        for e in elements:
            if not e.count:
                continue
            i = int(np.searchsorted(self.begins, e.span[0], side="right")) - 1
            begin, grain = self.begins[i], self.grains[i]
            bits = sets.setdefault(i, np.zeros((self.ends[i] - begin) // grain, np.bool_))
            each = e.item // grain
            for piece in e.pieces():
                at = (piece - begin) // grain
                bits[at if each == 1 else np.add.outer(at, np.arange(each))] = True
            count += e.count * each
        return sets, count == sum(int(np.count_nonzero(b)) for b in sets.values())


def without(a: Sets, *others: Sets) -> Sets:
    """Takes the elements of sets away from a set."""
    left = {i: bits.copy() for i, bits in a.items()}
    for other in others:
        for i in left.keys() & other.keys():
            left[i] &= ~other[i]
    return left


def both(a: Sets, b: Sets) -> Sets:
    """Gives the elements that are in both sets."""
    return {i: a[i] & b[i] for i in a.keys() & b.keys()}


def put(into: Sets, more: Sets) -> None:
    """Adds a set to another."""
    for i, bits in more.items():
        into[i] = into[i] | bits if i in into else bits


def size(a: Sets) -> int:
    """Counts the grains of a set."""
    return sum(int(np.count_nonzero(bits)) for bits in a.values())


class LaunchCheck:
    """The check of a program while its steps are bound.

    `memory`: gives a view's array, None for a constant. `users`: the steps that touch a variable. `scratch`, `variables`: the memories of
    the workspace, which may become more, and of variables. `unstated`: keys of kernels that state nothing, whose tasks
    are not checked.
    """

    def __init__(
        self,
        memory: Memory,
        users: Callable[[StorageOp], set[Operation]],
        scratch: Iterable[Array],
        variables: Iterable[Array],
    ):
        self.memory, self.users, self.scratch, self.variables = memory, users, scratch, variables
        self.unstated: set[str] = set()
        self.tasks = 0

    def task(self, ops: Sequence[FamilyOp | CopyOp], launches: Sequence[Launch]) -> None:
        """Checks the launches of a task. Raises AssertionError, which names the step, the operand and the number of bytes."""
        stated = [launch.touched for launch in launches]
        self.unstated |= {launch.kernel.key for launch, touched in zip(launches, stated) if touched is None}
        if None in stated:
            return
        self.tasks += 1
        steps = [step_of(op, self.memory) for op in ops]
        scratch, variables = _spans(self.scratch), _spans(self.variables)
        known = scratch + variables  # other memory is that of constants and tables
        told = [
            replace(t, reads=[e for e in t.reads if _within(e, known)], writes=[e for e in t.writes if _within(e, known)])
            for t in stated
            if t is not None
        ]
        everything = [e for t in told for e in (*t.reads, *t.writes)]
        everything += [e for step in steps for touch in (*step.reads, *step.writes) for e in (touch.elements, touch.view)]
        held = Stretches(everything)
        temporary = {i for i, begin in enumerate(held.begins) if any(low <= begin < high for low, high in scratch)}
        task = _Task(", ".join(dict.fromkeys(_label(op) for op in ops)), held, temporary)
        read, written = task.run(told, [launch.kernel.key.split(maxsplit=1)[0] for launch in launches])
        task.hold(steps, read, written, [[self._is_read(touch, ops) for touch in step.writes] for step in steps])

    def _is_read(self, touch: Touch, task: Sequence[Operation]) -> bool:
        """Tells whether a step that is not of the task may read some of what a step of it writes."""
        storage, view = storage_of(touch.value), view_of(touch.value)
        if isinstance(storage, ParamOp):
            return True
        for op in self.users(storage) - set(task):
            views = [v for f, v in op.connections() if f.kind != "out"] if isinstance(op, FamilyOp) else list(op.operands)
            views = [op.src] if isinstance(op, CopyOp) else [] if isinstance(op, StreamInOp) else views
            shown = [v for v in views if isinstance(v.type, TensorType)]
            if any(storage_of(v) is storage and not disjoint(view_of(v), view) for v in shown):
                return True
        return False


@dataclass
class _Task:
    """The memory of one task: `held`, of which the stretches `temporary` are scratch memory."""

    label: str
    held: Stretches
    temporary: set[int]

    def run(self, told: Sequence[Touched], names: Sequence[str]) -> tuple[Sets, Sets]:
        """Goes through what launches state. Gives what they read from before the task, and what they write."""
        before: Sets = {}
        written: Sets = {}
        seen: Sets = {}  # what was read since it was written
        for touched, name in zip(told, names, strict=True):
            read, _ = self.held.sets(touched.reads)
            fresh, once = self.held.sets(touched.writes)
            left = without(read, written)
            unset = {} if touched.unset else {i: b for i, b in left.items() if i in self.temporary}
            self.hold_none(unset, f"launch '{name}' reads scratch memory that none wrote:")
            put(before, left)
            assert once or touched.again, f"{self.label}: launch '{name}' writes elements more than once"
            put(seen, read)
            if not touched.again:
                self.hold_none(self._lasting(both(without(fresh, seen), written)), f"launch '{name}' writes again")
            seen = without(seen, fresh)
            put(written, fresh)
        return self._lasting(before), self._lasting(written)

    def _lasting(self, sets: Sets) -> Sets:
        """Leaves out scratch memory."""
        return {i: bits for i, bits in sets.items() if i not in self.temporary}

    def hold_none(self, wrong: Sets, what: str) -> None:
        """Raises AssertionError if a set has elements."""
        bytes = sum(int(np.count_nonzero(bits)) * self.held.grains[i] for i, bits in wrong.items())
        assert not bytes, f"{self.label}: {what} {bytes} bytes"

    def hold(self, steps: Sequence[Step], read: Sets, written: Sets, needed: Sequence[Sequence[bool]]) -> None:
        """Holds what launches read and write to the accesses of the steps. `needed`: which writes somebody may read later."""
        inside: Sets = {}
        shown: Sets = {}
        for step, wanted in zip(steps, needed):
            for touch in step.reads:
                expected = without(self.held.sets([touch.elements])[0], inside)
                self.hold_none(without(expected, read), f"{touch.name} is not read:")
                if len(steps) > 1 and not (isinstance(step.op, FamilyOp) and step.op.codelet.data == "map"):
                    self.hold_none(both(expected, written), f"{touch.name} is written while it is read:")
            for touch in (*step.reads, *step.writes):
                put(shown, self.held.sets([touch.view])[0])
            for touch, is_needed in zip(step.writes, wanted):
                expected, _ = self.held.sets([touch.elements])
                put(inside, expected)
                if is_needed:
                    self.hold_none(without(expected, written), f"{touch.name} is not written:")
        self.hold_none(without(read, shown), "reads beside the operands:")
        self.hold_none(without(written, inside), "writes beside the results:")


def _spans(arrays: Iterable[Array]) -> list[tuple[int, int]]:
    return [(address_of(a), address_of(a) + a.nbytes) for a in arrays]


def _within(elements: Elements, spans: Sequence[tuple[int, int]]) -> bool:
    return elements.count > 0 and any(_overlap(elements.span, span) for span in spans)


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _label(op: Operation) -> str:
    parent = op.parent_op()
    step = parent if isinstance(parent, ExecuteOp) else op
    text = f"'{step.label.data}'" if isinstance(step, ExecuteOp) else op.name
    return f"{where(step)}: {text} @{op.codelet.data}" if isinstance(op, FamilyOp) else f"{where(step)}: {text}"
