"""Runner of codelets written in Python: their statements become closures on NumPy values.

Loops over lanes (axes whose elements are computed independently) are vectorised: their variables stand for all
elements at once. All other statements run one after the other, as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.tile_program import Apply, Assign, For, If, Load, Name, Number, Size, Statement, Store, TileCode, Value
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Array, Run, Task
from populus.runtime.cycles.tile_code import flops, tile_code_cycles

Values: TypeAlias = Any  # a NumPy number, or an array with one dimension for each lane
Mask: TypeAlias = "NDArray[np.bool_] | None"  # the lanes that take a branch; None: all


def bind(code: TileCode, task: Task) -> Run:
    """Binds the codelet to a task.

    The run raises PopulusError for an index outside its vector, or an output element that is left unwritten.
    """
    arrays = {v: task[v] for v in code.axes}
    return Program(code, arrays, {name: task.number(name) for name in code.scalars}).run


def run(code: TileCode, arrays: Mapping[str, Array], scalars: Mapping[str, float | int | bool]) -> None:
    """Runs the codelet once on whole arrays, the output among them."""
    Program(code, dict(arrays), scalars).run()


@dataclass
class Frame:
    """State of a run: local variables and, if coverage is checked, the mask of written output elements."""

    values: dict[str, Values] = field(default_factory=dict[str, Any])
    written: NDArray[np.bool_] | None = None


_where: Callable[[Any, Any, Any], Any] = np.where  # its own overloads are narrower

Step: TypeAlias = Callable[[Frame, Mask], None]
Get: TypeAlias = Callable[[Frame, Mask], Values]


class Program:
    """Codelet bound to arrays."""

    def __init__(self, code: TileCode, arrays: dict[str, Array], scalars: Mapping[str, float | int | bool]):
        self.code, self.arrays = code, arrays
        wide = any(arrays[v].dtype == np.float64 for v, kind in code.kinds.items() if kind == "float")
        self.types: dict[str, Any] = {"float": np.float64 if wide else np.float32, "int": np.int64, "bool": np.bool_}
        self.scalars = {n: self.types[code.scalars[n]](v) for n, v in scalars.items()}
        self.sizes = {axis: arrays[v].shape[d] for v, axes in code.axes.items() for d, axis in enumerate(axes)}
        self.steps = self._block(code.body)

    def run(self) -> None:
        """Computes the output from the current contents of the inputs."""
        out = self.arrays[self.code.output]
        if any(self.sizes[a] == 0 for a in self.code.lanes):
            return
        frame = Frame(dict(self.scalars), None if self.code.covered else np.zeros(out.shape, np.bool_))
        for axis in self.code.lanes:
            frame.values[f" {axis}"] = self._lane(axis)
        with np.errstate(all="ignore"):
            for step in self.steps:
                step(frame, None)
        if frame.written is not None and not frame.written.all():
            count = int(frame.written.size - frame.written.sum())
            raise PopulusError(f"{self.code.place}: codelet {self.code.name} leaves {count} elements of {self.code.output} unwritten")

    def _lane(self, axis: str) -> NDArray[np.int64]:
        """Gives 0, 1, ... along the axis's own dimension."""
        shape = [1] * len(self.code.lanes)
        shape[self.code.lanes.index(axis)] = self.sizes[axis]
        return np.arange(self.sizes[axis], dtype=np.int64).reshape(tuple(shape))

    # -- statements

    def _block(self, body: Sequence[Statement]) -> list[Step]:
        return [self._step(s) for s in body]

    def _step(self, s: Statement) -> Step:
        match s:
            case Assign():
                return self._assign(s)
            case Store():
                return self._store(s)
            case For():
                return self._loop(s)
            case If():
                return self._branch(s)

    def _assign(self, s: Assign) -> Step:
        get, name = self._get(s.value), s.name

        def assign(frame: Frame, mask: Mask) -> None:
            value = get(frame, mask)
            # Lanes outside the branch keep their value; a value that they never had is never read.
            if mask is not None and name in frame.values:
                value = _where(mask, value, frame.values[name])
            frame.values[name] = value

        return assign

    def _store(self, s: Store) -> Step:
        get, out = self._get(s.value), self.arrays[s.vector]
        at = self._place(s.vector, s.index, s.line)

        def store(frame: Frame, mask: Mask) -> None:
            value = get(frame, mask)
            index, order, shape = at(frame, mask)
            if order is not None and mask is None:
                part = out[(*index, ...)].transpose(order).reshape(shape, copy=False)
                np.copyto(part, value, casting="unsafe")
                if frame.written is not None:
                    frame.written[(*index, ...)] = True
                return
            index = self._listed(index, order)
            if mask is not None:
                full = np.broadcast_shapes(mask.shape, *(np.shape(i) for i in index))
                chosen = np.broadcast_to(mask, full)
                index = tuple(np.broadcast_to(i, full)[chosen] for i in index)
                value = np.broadcast_to(value, full)[chosen]
            out[index] = np.asarray(value).astype(out.dtype)
            if frame.written is not None:
                frame.written[index] = True

        return store

    def _loop(self, s: For) -> Step:
        body = self._block(s.body)
        if s.var in self.code.loops:

            def lanes(frame: Frame, mask: Mask) -> None:
                for step in body:
                    step(frame, mask)

            return lanes
        start, stop = self._get(s.start), self._get(s.stop)

        def loop(frame: Frame, mask: Mask) -> None:
            for i in range(int(start(frame, mask)), int(stop(frame, mask)), s.step):
                frame.values[s.var] = np.int64(i)
                for step in body:
                    step(frame, mask)

        return loop

    def _branch(self, s: If) -> Step:
        condition, then, otherwise = self._get(s.condition), self._block(s.then), self._block(s.otherwise)

        def branch(frame: Frame, mask: Mask) -> None:
            chosen = condition(frame, mask)
            if np.ndim(chosen) == 0:
                for step in then if chosen else otherwise:
                    step(frame, mask)
                return
            for steps, part in ((then, chosen), (otherwise, ~chosen)):
                both = part if mask is None else part & mask
                if both.any():
                    for step in steps:
                        step(frame, both)

        return branch

    # -- values

    def _get(self, value: Value) -> Get:
        match value:
            case Number():
                number = self.types[value.kind](value.value)
                return lambda frame, mask: number
            case Name():
                name = value.name
                return lambda frame, mask: frame.values[name]
            case Size():
                size = np.int64(self.arrays[value.vector].shape[value.dim])
                return lambda frame, mask: size
            case Load():
                return self._load(value)
            case Apply():
                function, args = self._function(value), [self._get(a) for a in value.args]
                if len(args) == 2:
                    first, second = args
                    return lambda frame, mask: function(first(frame, mask), second(frame, mask))
                return lambda frame, mask: function(*(a(frame, mask) for a in args))

    def _load(self, load: Load) -> Get:
        array, dtype = self.arrays[load.vector], self.types[load.kind]
        at = self._place(load.vector, load.index, load.line)

        def get(frame: Frame, mask: Mask) -> Values:
            index, order, shape = at(frame, mask)
            if order is not None:
                return array[(*index, ...)].transpose(order).reshape(shape).astype(dtype)
            return array[index].astype(dtype)

        return get

    def _place(self, vector: str, index: Sequence[Value], line: int) -> Callable[[Frame, Mask], tuple[Any, Any, Any]]:
        """Builds the function that locates an access.

        It returns an index. If the index consists of slices, it also returns the order and the shape that bring its
        dimensions to the lanes'.
        """
        shape, lanes = self.arrays[vector].shape, self.code.lanes
        own = [self.code.loops.get(i.name) if isinstance(i, Name) else None for i in index]
        gets = [self._get(i) for i in index]
        named = [a for a in own if a is not None]
        regular = len(set(named)) == len(named)
        dims = [lanes.index(a) for a in named]
        order = tuple(sorted(range(len(dims)), key=lambda d: dims[d]))
        seen = tuple(self.sizes[a] if a in named else 1 for a in lanes) if named else ()

        def check(i: Values, n: int, d: int) -> None:
            low, high = (i, i) if np.ndim(i) == 0 else (i.min(), i.max())
            if low < 0 or high >= n:
                raise PopulusError(
                    f"{self.code.place.rpartition(':')[0]}:{line}: codelet {self.code.name}: index {low if low < 0 else high} of {vector} "
                    f"is outside of the {n} elements of dimension {d}"
                )

        def at(frame: Frame, mask: Mask) -> tuple[Any, Any, Any]:
            entries: list[Any] = []
            slices = regular
            for d, (get, axis, n) in enumerate(zip(gets, own, shape)):
                if axis is not None:
                    entries.append(slice(None))
                    continue
                i = get(frame, mask)
                if mask is not None and np.ndim(i):
                    i = np.where(mask, i, 0)  # indices of other lanes are undefined
                check(i, n, d)
                single = np.ndim(i) == 0
                slices = slices and single
                # A Python int: NumPy's indexing by a 0-d array gives a copy, and a store into a copy is lost.
                entries.append(int(i) if single else i)
            if slices:
                return tuple(entries), order, seen
            return tuple(frame.values[f" {a}"] if a is not None else i for a, i in zip(own, entries)), None, None

        return at

    def _listed(self, index: tuple[Any, ...], order: Any) -> tuple[Any, ...]:
        """Converts an index of slices to one of arrays."""
        if order is None:
            return index
        axes = iter(self.code.axes[self.code.output])
        return tuple(self._lane(a) if isinstance(i, slice) else i for i, a in zip(index, axes))

    def _function(self, value: Apply) -> Callable[..., Values]:
        if value.function == "float":
            return partial(_converted, dtype=self.types["float"])
        return FUNCTIONS[value.function]


def _apart(function: np.ufunc) -> Callable[[Values], Values]:
    """Wraps a function so that a single element rounds as a vector does.

    NumPy's loop for one element rounds differently from its loop for two or more.
    """

    def apply(x: Values) -> Values:
        flat = np.ascontiguousarray(x).reshape(-1)
        if flat.size == 1:
            flat = np.repeat(flat, 2)
        result = function(flat)[: math.prod(np.shape(x))]
        return result.reshape(np.shape(x)) if np.ndim(x) else result[0]

    return apply


def _converted(x: Values, dtype: Any) -> Values:
    return x.astype(dtype)


def _select(a: Values, b: Values, condition: Values) -> Values:
    return _where(condition, a, b) if np.ndim(condition) else a if condition else b


def _power(a: Values, b: Values) -> Values:
    one, two = np.broadcast_arrays(a, b)
    flat = [np.ascontiguousarray(v).reshape(-1) for v in (one, two)]
    if flat[0].size == 1:
        flat = [np.repeat(v, 2) for v in flat]
    result = np.power(*flat)[: one.size]
    return result.reshape(one.shape) if one.ndim else result[0]


FUNCTIONS: dict[str, Callable[..., Values]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.logical_and,
    "ceil": np.ceil,
    "cos": _apart(np.cos),
    "div": np.divide,
    "eq": np.equal,
    "exp": _apart(np.exp),
    "expm1": _apart(np.expm1),
    "floor": np.floor,
    "floordiv": np.floor_divide,
    "ge": np.greater_equal,
    "gt": np.greater,
    "int": partial(_converted, dtype=np.int64),  # rounds towards 0
    "le": np.less_equal,
    "log": _apart(np.log),
    "log1p": _apart(np.log1p),
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mod": np.mod,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.logical_not,
    "or": np.logical_or,
    "pow": _power,
    "select": _select,
    "sin": _apart(np.sin),
    "sqrt": np.sqrt,
    "sub": np.subtract,
    "tan": _apart(np.tan),
    "tanh": _apart(np.tanh),
}


def implementation(code: TileCode) -> Implementation:
    """Builds the record of a codelet written in Python. Its cycles are the author's, else counted from its body."""
    return Implementation(
        kernel=partial(bind, code),
        cycles=lambda v, sizes: tile_code_cycles(code, sizes, dict(v.scalars), v.target.workers),
        flops=lambda v: flops(code, {a: s.n for a, s in v.domain.axes}, dict(v.scalars)),
    )
