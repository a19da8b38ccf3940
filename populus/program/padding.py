"""Arrays of any size for a program with bounded dimensions: inputs are padded to the bounds, and outputs are trimmed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from populus.dialects.onnx.sizes import Size, parse
from populus.dialects.onnx.sizes import size as named
from populus.dialects.signature import input_names, output_names
from populus.dialects.signature.bounded_dimensions import ARGUMENTS, PREFIX, RESULTS, bounds, equal_sizes, limits, sizes
from populus.dialects.support.diagnostics import PopulusError, option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays: TypeAlias = dict[str, NDArray[Any]]

Axes: TypeAlias = "tuple[Size | None, ...]"


class UnequalSizesError(PopulusError):
    """Sizes that a bounded program needs to be equal, or not negative, and that are not in this run."""


Shapes: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"
SEEN = 256  # sets of shapes whose sizes are remembered


@dataclass(frozen=True)
class Fit:
    """The common part of runs of these shapes: the size of each dimension, and the valid parts of the outputs that are not valid whole."""

    at: Mapping[str, int]
    parts: Mapping[str, tuple[slice, ...]]


@dataclass(frozen=True)
class Padding:
    """The valid sizes of a program's inputs and outputs by name, None for an axis that is valid as a whole.

    `bounds`: the least and the greatest size of each dimension. `equal`: pairs of sizes that have to be equal in a run.
    `limits`: sizes with the greatest number that each may be. `buffers`: the shapes of inputs and outputs at the bounds.
    """

    bounds: Mapping[str, tuple[int, int]]
    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]
    equal: tuple[tuple[Size, Size], ...]
    limits: tuple[tuple[Size, int], ...]
    buffers: Mapping[str, tuple[int, ...]]
    _seen: dict[Shapes, Fit] = field(default_factory=dict["Shapes", "Fit"], compare=False, repr=False)

    @staticmethod
    def of(function: FuncOp) -> Padding | None:
        """Reads what `onnx-infer-shapes` recorded on `@main`; None if no dimension is bounded."""
        found = bounds(function)
        if not found:
            return None
        inputs = dict(zip(input_names(function), map(_axes, sizes(function, ARGUMENTS))))
        types = function.function_type
        ranked = [*zip(input_names(function), types.inputs), *zip(output_names(function), types.outputs)]
        return Padding(
            found,
            {name: axes for name, axes in inputs.items() if not name.startswith(PREFIX)},
            dict(zip(output_names(function), map(_axes, sizes(function, RESULTS)))),
            tuple((parse(a), parse(b)) for a, b in equal_sizes(function)),
            tuple((parse(text), most) for text, most in limits(function).items()),
            {name: type.get_shape() for name, type in ranked if isinstance(type, TensorType)},
        )

    @staticmethod
    def noted(note: Mapping[str, Any], types: Mapping[str, TensorType[Attribute]]) -> Padding:
        """Reads the note of a kept program (`runtime/built/open_sizes.py`). `types`: of its inputs and outputs."""

        def size(given: Mapping[str, Any]) -> Size:
            return named(text) if (text := given["text"]) in note["bounds"] else parse(text)

        def sizes(side: str) -> dict[str, Axes]:
            return {name: tuple(axis and size(axis) for axis in axes) for name, axes in note[side].items()}

        return Padding(
            {name: (low, high) for name, (low, high) in note["bounds"].items()},
            sizes("inputs"),
            sizes("outputs"),
            tuple((size(a), size(b)) for a, b in note["equal"]),
            tuple((size(a), most) for a, most in note["limits"]),
            {name: type.get_shape() for name, type in types.items()} | {PREFIX + name: () for name in note["bounds"]},
        )

    def is_size(self, name: str) -> bool:
        """Tells whether an input of the program is the size of a dimension, which the host adds."""
        return name.startswith(PREFIX) and name.removeprefix(PREFIX) in self.bounds

    def fit(self, arrays: Arrays) -> Fit:
        """Gives what runs of these shapes have in common, from the shapes of inputs. Raises PopulusError as `sizes` and `check` do."""
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        if (found := self._seen.get(shapes)) is None:
            self.check(at := self.sizes(arrays))
            if len(self._seen) >= SEEN:
                self._seen.clear()
            found = self._seen[shapes] = Fit(at, self._parts(at))
        return found

    def sizes(self, arrays: Arrays) -> dict[str, int]:
        """Gives the size of each dimension, from the shapes of inputs.

        Raises PopulusError for a rank or size that the model does not have, for a size out of bounds, and for inputs that disagree.
        """
        found: dict[str, tuple[int, str]] = {}
        present = {name: axes for name, axes in self.inputs.items() if name in arrays}
        for name, axes in present.items():
            shape, full = arrays[name].shape, self.buffers[name]
            text = ", ".join(str(n) if s is None else str(s) for n, s in zip(full, axes)) if axes else ", ".join(map(str, full))
            if len(shape) != len(full) or any(m != n for m, n, s in zip(shape, full, axes or (None,) * len(full)) if s is None):
                raise PopulusError(f"input '{name}' has shape {list(shape)}, expected [{text}]")
            for n, axis in zip(shape, axes):
                if axis is not None and (dimension := axis.dimension) in self.bounds:
                    self._check(dimension, n, name)
                    size, first = found.setdefault(dimension, (n, name))
                    if size != n:
                        raise PopulusError(f"dimension '{dimension}' is {size} in input '{first}' and {n} in '{name}'")
        at = {dimension: size for dimension, (size, _) in found.items()}
        if missing := [d for d in self.bounds if d not in at]:
            raise PopulusError(f"no input has the dimension '{missing[0]}' alone, so its size is not known")
        for name, axes in present.items():
            for n, axis in zip(arrays[name].shape, axes):
                if axis is not None and axis.evaluate(at) != n:
                    where = ", ".join(f"{d} = {at[d]}" for d in sorted(axis.names()))
                    raise PopulusError(f"input '{name}' has {n} elements along '{axis}', which is {axis.evaluate(at)} for {where}")
        return at

    def check(self, at: Mapping[str, int]) -> None:
        """Raises UnequalSizesError if sizes that have to be equal are not, or an output would have a negative size.

        Raises PopulusError for a size above the limit that the user stated for it.
        """
        for size, most in self.limits:
            if size.evaluate(at) > most:
                where = ", ".join(f"{d} = {at[d]}" for d in sorted(size.names()))
                raise PopulusError(f"'{size}' is {size.evaluate(at)} for {where}, above its bound {most}; compile with a larger bound")
        for a, b in self.equal:
            if a.evaluate(at) != b.evaluate(at):
                raise UnequalSizesError(f"'{a}' is {a.evaluate(at)} and '{b}' is {b.evaluate(at)}; the model needs them equal")
        for name, axes in self.outputs.items():
            for axis in axes:
                if axis is not None and axis.evaluate(at) < 0:
                    raise UnequalSizesError(f"output '{name}' has the size '{axis}', which is {axis.evaluate(at)}")

    def shape(self, output: str, at: Mapping[str, int]) -> tuple[int, ...]:
        """Gives the shape of the valid part of an output."""
        full = self.buffers[output]
        axes = self.outputs.get(output) or (None,) * len(full)
        return tuple(n if axis is None else axis.evaluate(at) for n, axis in zip(full, axes))

    def outgrown(self, name: str, shape: tuple[int, ...]) -> list[int]:
        """Gives the axes along which the buffer of an input does not hold an array of this shape."""
        return [d for d, (n, most) in enumerate(zip(shape, self.buffers[name], strict=True)) if n > most]

    def _check(self, dimension: str, n: int, name: str) -> None:
        low, high = self.bounds[dimension]
        if low <= n <= high:
            return
        bound = f"above its bound {high}" if n > high else f"below its least size {low}"
        least, most = min(low, n), max(high, n)
        wider = option(f"--dim {dimension}={least}..{most}", f"dims={{'{dimension}': ({least}, {most})}}")
        raise PopulusError(f"input '{name}': dimension '{dimension}' is {n}, {bound}; compile with {wider}")

    def padded(self, arrays: Arrays, at: Mapping[str, int]) -> Arrays:
        """Gives the inputs of the program: arrays with zeros up to the bounds, and the sizes."""
        given: Arrays = {}
        for name, array in arrays.items():
            full = self.buffers[name]
            given[name] = array
            if array.shape != full:
                given[name] = np.zeros(full, array.dtype)
                given[name][tuple(slice(0, n) for n in array.shape)] = array
        return {**given, **{PREFIX + dimension: np.array(at[dimension], np.int32) for dimension in self.bounds}}

    def trimmed(self, outputs: Arrays, at: Mapping[str, int]) -> Arrays:
        """Gives the valid parts of outputs, as arrays of their own."""
        return valid_parts(outputs, self._parts(at))

    def _parts(self, at: Mapping[str, int]) -> dict[str, tuple[slice, ...]]:
        return {name: _part(axes, at) for name, axes in self.outputs.items() if any(axis is not None for axis in axes)}


def valid_parts(outputs: Arrays, parts: Mapping[str, tuple[slice, ...]]) -> Arrays:
    """Gives the valid parts of outputs, as arrays of their own; those without a part are whole."""
    return {name: array[parts[name]].copy() if name in parts else array for name, array in outputs.items()}


def _part(axes: Axes, at: Mapping[str, int]) -> tuple[slice, ...]:
    return tuple(slice(None) if axis is None else slice(0, axis.evaluate(at)) for axis in axes)


def _axes(texts: tuple[str, ...]) -> Axes:
    return tuple(parse(text) if text else None for text in texts)
