"""Open dimensions of a frozen program: what its file says of them, and the program that takes arrays of any sizes within their bounds.

    {"bounds": {"n": [1, 64]}, "inputs": {"x": [{"text": "n", "terms": [[1, ["n"]]]}, null]}, ..}

`sizes.mjs` reads the same note in a browser. A size is its text and its terms: a factor and atoms, each of them a dimension, or a
function of sizes by name. Buffers of the program have the bounds; an input `size.n` says how much of them is valid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from populus.dialects.support.errors import ProgramError
from populus.dialects.support.guard import Guard
from populus.runtime.built.given import Inputs, array_of, by_name

if TYPE_CHECKING:
    from populus.dialects.onnx.sizes import Size
    from populus.runtime.built.library import Array, Runner, Type

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
Part: TypeAlias = tuple[slice, ...]
SEEN = 256  # sets of shapes whose sizes are remembered


@dataclass(frozen=True)
class OpenSizes:
    """Open dimensions of a program: its buffers have their bounds, the loader pads what is smaller, and says each size by an input.

    `bounds`: the least and the greatest size of each dimension. `inputs`, `outputs`: the size of each axis, None for one of a single size;
    a state is among both. `equal`: sizes that have to be equal in a run. `limits`: the greatest number that a size may be.
    """

    bounds: Mapping[str, tuple[int, int]]
    inputs: Mapping[str, Sequence[Size | None]]
    outputs: Mapping[str, Sequence[Size | None]]
    equal: Sequence[tuple[Size, Size]]
    limits: Sequence[tuple[Size, int]]

    def note(self, states: Mapping[str, str] = {}) -> bytes:
        """Gives what `Padded` and sizes.mjs read: JSON, in one line."""
        named = {
            "inputs": {name: [axis and _size(axis) for axis in axes] for name, axes in self.inputs.items()},
            "outputs": {
                name: [axis and _size(axis) for axis in axes] for name, axes in self.outputs.items() if name not in states.values()
            },
            "after": {name: [axis and _size(axis) for axis in self.outputs[output]] for name, output in states.items()},
        }
        pairs = {"equal": [[_size(a), _size(b)] for a, b in self.equal], "limits": [[_size(a), most] for a, most in self.limits]}
        return json.dumps({"bounds": self.bounds, **named, **pairs}, separators=(",", ":")).encode()


def _size(size: Size) -> dict[str, Any]:
    return {"text": size.dimension or str(size), "terms": _terms(size)}


def _terms(size: Size) -> list[Any]:
    return [[factor, [[a.name, *map(_size, a.arguments)] if a.arguments else a.name for a in product]] for product, factor in size.terms]


@dataclass(frozen=True)
class Fit:
    """The common part of runs of these shapes: the size of each dimension, and the valid parts of inputs and outputs that are not whole."""

    at: Mapping[str, int]
    given: Mapping[str, Part]
    taken: Mapping[str, Part]


class Padded:
    """A kept program of open dimensions. Threads may share it; their runs take turns.

    `inputs`, `outputs`: (shape, dtype) by name, in order, with the bounds as shapes.
    """

    def __init__(self, built: Runner, note: Mapping[str, Any]):
        self._built, self.note = built, note
        self._sizes = {f"size.{name}": name for name in note["bounds"]}  # inputs that are sizes
        self.inputs: dict[str, Type] = {name: type for name, type in built.inputs.items() if name not in self._sizes}
        self.outputs: dict[str, Type] = built.outputs
        self._fits: dict[Shapes, Fit] = {}
        self._shapes: Shapes | None = None  # of the run before, whose buffers are kept: what lies behind their valid parts stays zero
        self._buffers: list[Array | None] = []  # for the inputs of `built`; None where the caller's array is whole
        self._lock = Guard()

    def rest(self) -> None:
        """Gives memory that only runs need back to the system, until the next run."""
        with self._lock.lock:
            self._shapes, self._buffers = None, []
            self._built.rest()

    def run(self, inputs: Inputs) -> dict[str, Array]:
        """Runs the program and gives the outputs by name, as new arrays. Raises ProgramError for inputs that it does not take."""
        named = by_name(inputs, self.inputs)
        if named.keys() != self.inputs.keys():
            raise ProgramError(f"inputs are {', '.join(named)}; the program has {', '.join(self.inputs)}")
        arrays = {name: array_of(name, named[name]) for name in self.inputs}
        for name, (_, dtype) in self.inputs.items():
            if arrays[name].dtype != dtype:
                raise ProgramError(f"input '{name}' is {arrays[name].dtype}, expected {dtype}")
        shapes = tuple([array.shape for array in arrays.values()])
        if (fit := self._fits.get(shapes)) is None:
            if len(self._fits) >= SEEN:
                self._fits.clear()
            fit = self._fits[shapes] = self._fit(shapes)
        taken = [np.empty(shape, dtype) for shape, dtype in self.outputs.values()]
        with self._lock.lock:
            if shapes != self._shapes:
                self._shapes, self._buffers = shapes, self._padded(fit)
            given: list[Array] = []
            for name, buffer in zip(self._built.inputs, self._buffers):
                if buffer is None:
                    array = arrays[name]
                    given.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
                    continue
                if (part := fit.given.get(name)) is not None:
                    buffer[part] = arrays[name]
                given.append(buffer)
            self._built.start(given, taken)
        parts = fit.taken
        return {name: array[parts[name]].copy() if name in parts else array for name, array in zip(self.outputs, taken)}

    def _padded(self, fit: Fit) -> list[Array | None]:
        """Makes buffers of zeros for the inputs that are not whole, and the sizes."""
        made: list[Array | None] = []
        for name, (shape, dtype) in self._built.inputs.items():
            if name in self._sizes:
                made.append(np.array(fit.at[self._sizes[name]], dtype))
            else:
                made.append(np.zeros(shape, dtype) if name in fit.given else None)
        return made

    def _fit(self, shapes: Shapes) -> Fit:
        """Computes the sizes of a run. Raises ProgramError for shapes that the program does not take."""
        at: dict[str, int] = {}
        if [*map(len, shapes)] != [len(full) for full, _ in self.inputs.values()]:
            raise ProgramError("an input has another rank")
        axes = [axis for name in self.inputs for axis in self._axes("inputs", name)]
        sizes = [n for shape in shapes for n in shape]
        for axis, n in zip(axes, sizes):
            if axis is not None and axis["text"] in self.note["bounds"]:
                low, high = self.note["bounds"][axis["text"]]
                if not low <= n <= high or at.setdefault(axis["text"], n) != n:
                    raise ProgramError(f"'{axis['text']}' is {n}, {low} to {high} or the size of another input is expected")
        if at.keys() != self.note["bounds"].keys():
            raise ProgramError("no input has a dimension alone, so its size is not known")
        fits = [(n, value(axis, at)) for axis, n in zip(axes, sizes) if axis is not None]
        fits += [(value(a, at), value(b, at)) for a, b in self.note["equal"]]
        whole = [n for full, _ in self.inputs.values() for n in full]
        if any(m != n for m, n in fits) or any(m != n for m, n, axis in zip(sizes, whole, axes) if axis is None):
            raise ProgramError("sizes disagree")
        if any(value(size, at) > most for size, most in self.note["limits"]):
            raise ProgramError("a size is above its bound")
        given = {name: shape for (name, (full, _)), shape in zip(self.inputs.items(), shapes) if shape != full}
        taken = {name: self._shape(name, at) for name in self.outputs if any(self._axes("outputs", name))}
        if any(n < 0 for shape in taken.values() for n in shape):
            raise ProgramError("an output would have a negative size")
        return Fit(at, *({name: tuple(slice(0, n) for n in shape) for name, shape in side.items()} for side in (given, taken)))

    def _shape(self, output: str, at: Mapping[str, int]) -> tuple[int, ...]:
        full = self.outputs[output][0]
        return tuple(n if axis is None else value(axis, at) for n, axis in zip(full, self._axes("outputs", output)))

    def _axes(self, side: str, name: str) -> Sequence[Any]:
        """Gives the size of each axis of an input or output, None for one of a single size."""
        rank = len((self.inputs if side == "inputs" else self.outputs)[name][0])
        return self.note[side].get(name) or (None,) * rank


def value(size: Mapping[str, Any], at: Mapping[str, int]) -> int:
    """Computes the number of a size of the note for these sizes of dimensions. Raises ProgramError for a division by 0."""
    total = 0
    for factor, atoms in size["terms"]:
        total += factor * prod(at[atom] if isinstance(atom, str) else _atom(atom, at) for atom in atoms)
    return total


def _atom(atom: Sequence[Any], at: Mapping[str, int]) -> int:
    name, numbers = atom[0], [value(size, at) for size in atom[1:]]
    if name != "floordiv":
        return min(numbers) if name == "min" else max(numbers)
    if not numbers[1]:
        raise ProgramError("a size is divided by 0")
    return numbers[0] // numbers[1]
