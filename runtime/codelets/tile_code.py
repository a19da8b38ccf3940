"""Runner of codelets written in Python: their statements become closures on NumPy values.

Loops over lanes (axes whose elements are computed independently) are vectorised: their variables stand for all
elements at once. A step runs on the lanes of a mask, and returns those that go on with the next statement: `break`,
`continue` and `return` let none go on. All other statements run one after the other, as written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from populus.dialects.poplar.tile_program import (
    Assign,
    Exit,
    For,
    If,
    Scratch,
    Site,
    Statement,
    Store,
    TileCode,
    While,
    assigned,
    from_data,
)
from populus.dialects.poplar.tile_ranges import scratch_shapes
from populus.dialects.poplar.tile_written import tracked_at
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Array, Run, Task, sequence
from populus.runtime.codelets.tile_failures import CodeletError
from populus.runtime.codelets.tile_values import Frame, Mask, Step, ValueProgram, Values, as_mask, both, either, merged, without
from populus.runtime.cycles.tile_code import flops, tile_code_cycles

SCRATCH_BYTES = 1 << 26  # of all lanes that run at once


def bind(code: TileCode, task: Task) -> Run:
    """Binds the codelet to a task. The run raises CodeletError as `run` does."""
    return _bound(code, {v: task[v] for v in code.axes}, {name: task.number(name) for name in code.scalars})


def run(code: TileCode, arrays: Mapping[str, Array], scalars: Mapping[str, float | int | bool]) -> None:
    """Runs the codelet once on whole arrays, the outputs among them.

    Raises CodeletError for an index outside its vector, and an output's element that is left unwritten or read before.
    It does so too for an integer division by 0, a float that has no integer, and a loop of too many turns.
    """
    _bound(code, arrays, scalars)()


def _bound(code: TileCode, arrays: Mapping[str, Array], scalars: Mapping[str, float | int | bool]) -> Run:
    """Binds the codelet. Where scratch vectors are large, a part of the lanes runs at a time."""
    shapes = {v: a.shape for v, a in arrays.items()}
    bytes = sum(8 * int(np.prod(shape)) for shape in scratch_shapes(code, shapes, scalars).values())
    sizes = {axis: n for v, axes in code.axes.items() for axis, n in zip(axes, shapes[v])}
    lanes = [sizes[a] for a in code.lanes]
    if not lanes or bytes * int(np.prod(lanes)) <= SCRATCH_BYTES:
        return Program(code, dict(arrays), scalars, {}).run
    axis = code.lanes[int(np.argmax(lanes))]
    others = int(np.prod(lanes)) // sizes[axis]
    step = max(1, SCRATCH_BYTES // (bytes * others))
    runs: list[Run] = []
    for first in range(0, sizes[axis], step):
        parts = {v: a[tuple(slice(first, first + step) if x == axis else slice(None) for x in code.axes[v])] for v, a in arrays.items()}
        runs.append(Program(code, parts, scalars, {axis: first}).run)
    return sequence(runs)


class Program(ValueProgram):
    """Codelet bound to arrays. `first`: the index along an axis at which these arrays begin."""

    def __init__(self, code: TileCode, arrays: dict[str, Array], scalars: Mapping[str, float | int | bool], first: Mapping[str, int]):
        shapes = {v: a.shape for v, a in arrays.items()}
        super().__init__(code, arrays, tracked_at(code, shapes))
        self.first = first
        self.variables = assigned(code.body)
        self.scalars = {n: self.types[code.scalars[n]](v) for n, v in scalars.items()}
        own = tuple(self.sizes[a] for a in code.lanes)
        kinds = {s.vector: s.kind for s in code.scratch()}
        for v, shape in scratch_shapes(code, shapes, scalars).items():
            self.scratch.add(v)
            self.arrays[v] = np.zeros((*own, *shape), self.types[kinds[v]])
        self.step = self.block(code.body)

    def run(self) -> None:
        """Computes the outputs from the current contents of the inputs."""
        if any(self.sizes[a] == 0 for a in self.code.lanes):
            return
        frame = Frame(dict(self.scalars), {v: np.zeros(self.arrays[v].shape, np.bool_) for v in self.tracked})
        for axis in self.code.lanes:
            frame.values[f" {axis}"] = self.lane(axis)
        with np.errstate(all="ignore"):
            self.step(frame, True)
        for vector in (v for v in self.code.outputs if v in self.tracked):
            marks = frame.written[vector]
            if not marks.all():
                count = marks.size - int(marks.sum())
                self.fail(Site("left", int(self.code.place.rpartition(":")[2]), vector), True, count)

    def fail(self, site: Site, bad: Values, values: Values) -> NoReturn:
        at: dict[str, int] = {}
        value = values
        if np.ndim(bad):
            place = tuple(int(i[0]) for i in np.nonzero(bad))
            at = {a: i for a, i, n in zip(self.code.lanes, place, np.shape(bad)) if n > 1 or self.sizes[a] == 1}
            value = np.broadcast_to(values, np.shape(bad))[place]
        at = {a: i + self.first.get(a, 0) for a, i in at.items()}
        size = self.shape(site.vector)[site.dim] if site.vector else 0
        raise CodeletError(self.code, site, 0 if site.why == "int" else int(value), size, at)

    # -- statements

    def block(self, body: Sequence[Statement]) -> Step:
        steps = [self.statement(s) for s in body]
        if len(steps) == 1:
            return steps[0]

        def block(frame: Frame, mask: Mask) -> Mask:
            for step in steps:
                mask = step(frame, mask)
                if mask is False:
                    return False
            return mask

        return block

    def statement(self, s: Statement) -> Step:
        """Turns a statement into a step."""
        match s:
            case Assign():
                return self.assign(s)
            case Store():
                return self.store(s)
            case Scratch():
                return self.clear(s)
            case For():
                return self.lanes(s) if s.var in self.code.loops else self.loop(s)
            case While():
                return self.while_(s)
            case If():
                return self.branch(s)
            case Exit():
                return self.leave(s)

    def assign(self, s: Assign) -> Step:
        """Assigns to a variable. Lanes outside the mask keep their value; one that they never had is never read."""
        get, name = self.get(s.value), s.name

        def assign(frame: Frame, mask: Mask) -> Mask:
            value = get(frame, mask)
            frame.values[name] = merged(mask, value, frame.values[name]) if mask is not True and name in frame.values else value
            return mask

        return assign

    def clear(self, s: Scratch) -> Step:
        """Begins a scratch vector."""
        array = self.arrays[s.vector]
        dims = tuple(range(len(self.code.lanes), array.ndim))

        def clear(frame: Frame, mask: Mask) -> Mask:
            if mask is True:
                array[...] = 0
            else:
                np.copyto(array, 0, where=np.expand_dims(mask, tuple(dims)), casting="unsafe")
            return mask

        return clear

    def store(self, s: Store) -> Step:
        """Stores elements."""
        get, out, tracked = self.get(s.value), self.arrays[s.vector], s.vector in self.tracked
        at = self.place(s.vector, s.index, s.line)
        axes = self.code.axes.get(s.vector, ())

        def store(frame: Frame, mask: Mask) -> Mask:
            value = get(frame, mask)
            index, order, shape = at(frame, mask)
            if order is not None and mask is True:
                part = out[(*index, ...)].transpose(order).reshape(shape, copy=False)
                np.copyto(part, value, casting="unsafe")
                if tracked:
                    frame.written[s.vector][(*index, ...)] = True
                return mask
            if order is not None:
                own = iter(axes)
                index = tuple(self.lane(a) if isinstance(i, slice) else i for i, a in zip(index, own))
            if mask is not True:
                full = np.broadcast_shapes(np.shape(mask), *(np.shape(i) for i in index))
                chosen = np.broadcast_to(mask, full)
                index = tuple(np.broadcast_to(i, full)[chosen] for i in index)
                value = np.broadcast_to(value, full)[chosen]
            out[index] = np.asarray(value).astype(out.dtype)
            if tracked:
                frame.written[s.vector][index] = True
            return mask

        return store

    def lanes(self, s: For) -> Step:
        """Runs the body for all elements of a lane at once. None leaves it but by `continue`."""
        body = self.block(s.body)

        def lanes(frame: Frame, mask: Mask) -> Mask:
            frame.continued.append(False)
            body(frame, mask)
            frame.continued.pop()
            return mask

        return lanes

    def loop(self, s: For) -> Step:
        """Runs a loop turn by turn. Lanes whose turns are over, or that leave it, wait for the others."""
        body, start, stop = self.block(s.body), self.get(s.start), self.get(s.stop)
        limited = from_data(s, self.variables)

        def loop(frame: Frame, mask: Mask) -> Mask:
            first, last = start(frame, mask), stop(frame, mask)
            if np.ndim(first) == 0 and np.ndim(last) == 0:
                numbers = range(int(first), int(last), s.step)
                if limited and len(numbers) > self.code.steps:
                    self.fail(Site("turns", s.line), True, 0)
                return self.turns(frame, mask, ((True, np.int64(i)) for i in numbers), s.var, body)
            turns = -((first - last) // s.step)
            here = both(mask, True)
            if np.any(bad := (turns > self.code.steps) & here):
                self.fail(Site("turns", s.line), bad, turns)
            count = int(np.max(_on(turns, here), initial=0))
            return self.turns(frame, mask, ((as_mask(turns > k), first + k * s.step) for k in range(count)), s.var, body)

        return loop

    def turns(self, frame: Frame, mask: Mask, turns: Any, var: str, body: Step) -> Mask:
        """Runs turns: for each the lanes that take part as long as they have not left the loop, and the variable's value."""
        frame.continued.append(False)
        live = mask
        for here, value in turns:
            live = both(live, here)
            if live is False:
                break
            frame.values[var] = value
            frame.continued[-1] = False
            live = either(body(frame, live), frame.continued[-1])
        frame.continued.pop()
        return without(mask, frame.returned[-1])

    def while_(self, s: While) -> Step:
        """Runs a `while`. Lanes whose condition fails, or that leave it, wait for the others."""
        condition, body = self.get(s.condition), self.block(s.body)

        def loop(frame: Frame, mask: Mask) -> Mask:
            frame.continued.append(False)
            live, count = mask, 0
            while (live := both(live, as_mask(condition(frame, live)))) is not False:
                if count == self.code.steps:
                    self.fail(Site("turns", s.line), live if np.ndim(live) else True, count)
                count += 1
                frame.continued[-1] = False
                live = either(body(frame, live), frame.continued[-1])
                if live is False:
                    break
            frame.continued.pop()
            return without(mask, frame.returned[-1])

        return loop

    def branch(self, s: If) -> Step:
        """Runs both sides of a branch, each on its lanes."""
        condition, then, otherwise = self.get(s.condition), self.block(s.then), self.block(s.otherwise)

        def branch(frame: Frame, mask: Mask) -> Mask:
            chosen = condition(frame, mask)
            if np.ndim(chosen) == 0:
                return then(frame, mask) if chosen else otherwise(frame, mask)
            left: Mask = False
            for step, part in ((then, chosen), (otherwise, ~chosen)):
                here = both(mask, as_mask(part))
                if here is not False:
                    left = either(left, step(frame, here))
            return left

        return branch

    def leave(self, s: Exit) -> Step:
        """Runs `break`, `continue` or `return`."""
        kind = s.kind

        def leave(frame: Frame, mask: Mask) -> Mask:
            if kind == "continue":
                frame.continued[-1] = either(frame.continued[-1], mask)
            elif kind == "return":
                frame.returned[-1] = either(frame.returned[-1], mask)
            return False

        return leave


def _on(values: Values, mask: Mask) -> Values:
    """Selects the values on the lanes of a mask."""
    if mask is True:
        return np.asarray(values)
    full = np.broadcast_shapes(np.shape(values), np.shape(mask))
    return np.broadcast_to(values, full)[np.broadcast_to(mask, full)]


def implementation(code: TileCode) -> Implementation:
    """Builds the record of a codelet written in Python. Its cycles are the author's, else counted from its body."""
    return Implementation(
        kernel=partial(bind, code),
        cycles=lambda v, sizes: tile_code_cycles(code, sizes, dict(v.scalars), v.target.workers),
        flops=lambda v: flops(code, {a: s.n for a, s in v.domain.axes}, dict(v.scalars)),
        native="tile_code.tile_code",
    )
