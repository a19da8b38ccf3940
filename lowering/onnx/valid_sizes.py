"""Valid parts of tensors whose dimensions are bounded: sizes for each axis, through broadcasts and reshapes.

    [b of 4, s of 512, 768]  ->  [(b of 4) (s of 512), 768]  ->  [b of 4, s of 512, 12, 64]

An axis is a product of factors, each with its bound and its size. The first elements of a factor are valid. `batch * seq` that a
Reshape merges is an axis of two factors: nothing moves, and splitting it again is free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import Operation, SSAValue

from populus.dialects.onnx.sizes import Limited, Size, as_size, parse, size
from populus.dialects.signature.bounded_dimensions import set_sizes, sizes
from populus.dialects.support.element_types import shape_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


COUNTED = "#"  # begins the name of a size that the data decide; no dimension of a model is called so


def is_counted(name: str) -> bool:
    """Tells whether a name is that of a size that the data decide."""
    return name.startswith(COUNTED) and name.removeprefix(COUNTED).isdecimal()


@dataclass(frozen=True)
class Factor:
    """`bound` positions, of which the first `size` are valid."""

    bound: int
    size: Size

    @property
    def static(self) -> bool:
        """Tells whether all positions are valid."""
        return self.size.constant == self.bound


Axis: TypeAlias = tuple[Factor, ...]
Axes: TypeAlias = tuple[Axis, ...]


@dataclass
class ValidSizes:
    """The knowledge of a walk over a function: bounds of dimensions, valid parts of values, and values that are sizes.

    `axes` has the values that are not valid as a whole. `symbols` has integer tensors made of sizes, as arrays of `Size`.
    `bounds` has dimensions of the inputs, and sizes that the data decide (`counted`), which have their bounds too.
    """

    bounds: Limited = field(default_factory=Limited)
    axes: dict[SSAValue, Axes] = field(default_factory=dict[SSAValue, Axes])
    symbols: dict[SSAValue, NDArray[Any]] = field(default_factory=dict[SSAValue, Any])

    @property
    def has_ranges(self) -> bool:
        """Tells whether a dimension of the inputs is bounded."""
        return not all(map(is_counted, self.bounds))

    def counted(self, most: int) -> str:
        """Makes the name of a size that the data decide, at most `most`."""
        numbers = [int(name.removeprefix(COUNTED)) for name in self.bounds if is_counted(name)]
        name = f"{COUNTED}{max(numbers, default=-1) + 1}"
        self.bounds[name] = (0, most)
        return name

    def upper(self, size: Size) -> int:
        """Gives the greatest value of a size, at least 0."""
        return max(size.upper(self.bounds), 0)

    def of(self, value: SSAValue) -> Axes:
        """Gives the axes of a value."""
        return self.axes.get(value) or whole(shape_of(value.type))

    def concerns(self, values: Iterable[SSAValue]) -> bool:
        """Tells whether a value is partly valid, or made of sizes."""
        return bool(self.axes or self.symbols) and any(v in self.axes or v in self.symbols for v in values)

    def state(self, value: SSAValue, axes: Axes) -> None:
        """Records the axes of a value."""
        assert tuple(bound_of(a) for a in axes) == shape_of(value.type), (value, axes)
        if all(map(is_whole, axes)):
            self.axes.pop(value, None)
        else:
            self.axes[value] = axes

    def sized(self, value: SSAValue) -> list[int]:
        """Lists the axes of a value that are partly valid."""
        return [d for d, a in enumerate(self.of(value)) if not is_whole(a)]


def symbol(name: str, shape: Sequence[int] = ()) -> NDArray[Any]:
    """Makes the value of a dimension's size: one element."""
    import numpy as np

    array = np.empty(shape, object)
    array.fill(size(name))
    return array


def whole(shape: Sequence[int]) -> Axes:
    """Makes the axes of a tensor that is valid as a whole."""
    return tuple(axis_of([Factor(n, as_size(n))]) for n in shape)


def axis_of(factors: Iterable[Factor]) -> Axis:
    """Makes an axis of factors, outermost first. A static factor joins the one outside it; factors of 1 vanish."""
    found: list[Factor] = []
    for f in factors:
        if f.static and f.bound == 1:
            continue
        if found and f.static:
            last = found.pop()
            f = Factor(last.bound * f.bound, last.size * f.bound)
        found.append(f)
    return tuple(found)


def prefix(bound: int, size: Size | int) -> Axis:
    """Makes an axis whose first `size` elements are valid."""
    return axis_of([Factor(bound, as_size(size))])


def is_whole(axis: Axis) -> bool:
    """Tells whether all elements along an axis are valid."""
    return all(f.static for f in axis)


def is_prefix(axis: Axis) -> bool:
    """Tells whether the valid elements along an axis come first."""
    return len(axis) <= 1


def bound_of(axis: Axis) -> int:
    """Gives the number of positions along an axis."""
    return math.prod(f.bound for f in axis)


def size_of(axis: Axis) -> Size:
    """Gives the number of valid elements along an axis."""
    return reduce(lambda x, f: x * f.size, axis, as_size(1))


def broadcast(shapes: Sequence[Axes]) -> Axes:
    """Broadcasts axes, right-aligned. A partly valid axis takes the place of a whole one of its bound."""
    rank = max(map(len, shapes), default=0)
    result: list[Axis] = []
    for d in range(rank):
        axes = [s[d - rank + len(s)] for s in shapes if d - rank + len(s) >= 0]
        wide = [a for a in axes if bound_of(a) != 1] or axes
        result.append(next((a for a in wide if not is_whole(a)), wide[0]))
    return tuple(result)


def _joined(axes: Axes) -> list[Factor]:
    """Lists the factors of all axes; neighbours that are static are one."""
    found: list[Factor] = []
    for f in (f for a in axes for f in a):
        if found and f.static and found[-1].static:
            last = found.pop()
            f = Factor(last.bound * f.bound, last.size * f.size)
        found.append(f)
    return found


def reshaped(axes: Axes, shape: Sequence[int]) -> Axes | None:
    """Reshapes axes to `shape`, in positions; None if a factor would be split where its valid part ends between."""
    rest = _joined(axes)
    result: list[Axis] = []
    for n in shape:
        taken: list[Factor] = []
        if n == 1 and rest and rest[0].bound == 1:  # none or one
            taken.append(rest.pop(0))
        while n != 1:
            if not rest or n == 0:
                return None
            f = rest.pop(0)
            if n % f.bound == 0:
                taken.append(f)
                n //= f.bound
                continue
            split = _split(f, n) if f.bound % n == 0 else None
            if split is None:
                return None
            taken.append(split[0])
            rest.insert(0, split[1])
            n = 1
        result.append(axis_of(taken))
    if rest and result and all(f.bound == 1 for f in rest):
        result[-1] = axis_of([*result[-1], *rest])
        rest.clear()
    return tuple(result) if all(f.bound == 1 and f.static for f in rest) else None


def _split(f: Factor, bound: int) -> tuple[Factor, Factor] | None:
    """Splits a factor into an outer one of `bound` positions and an inner one that is static; None if that is not possible."""
    inner = f.bound // bound
    outer = as_size(bound) if f.static else f.size.exactly(as_size(inner))
    return None if outer is None else (Factor(bound, outer), Factor(inner, as_size(inner)))


def resized(axes: Axes, sizes: Sequence[Size]) -> Axes | None:
    """Reshapes axes to valid `sizes`; None if the valid part would move."""
    rest = _joined(axes)
    result: list[Axis] = []
    for wanted in sizes:
        taken: list[Factor] = []
        while wanted.constant != 1:
            if not rest:
                return None
            f = rest.pop(0)
            if (left := wanted.exactly(f.size)) is not None:
                taken.append(f)
                wanted = left
                continue
            inner = f.size.exactly(wanted)
            k = None if inner is None else inner.constant
            if k is None or k <= 0 or f.bound % k:
                return None
            taken.append(Factor(f.bound // k, wanted))
            rest.insert(0, Factor(k, as_size(k)))
            wanted = as_size(1)
        result.append(axis_of(taken))
    return tuple(result) if not rest else None


def texts(axes: Axes) -> tuple[str, ...]:
    """Gives the sizes of axes as texts, empty for those that are whole."""
    return tuple("" if is_whole(a) else str(size_of(a)) for a in axes)


def stated(axes: Axes) -> tuple[str, ...]:
    """Gives the sizes of axes as texts, empty for those that are whole and those that the data decide."""
    return tuple("" if any(map(is_counted, size_of(a).names())) else text for a, text in zip(axes, texts(axes)))


def described(axes: Axes) -> str:
    """Describes axes for a message: `4x(seq)x64`."""
    return "x".join(str(bound_of(a)) if is_whole(a) else f"({size_of(a)})" for a in axes) or "scalar"


def names_of(axes: Axes) -> list[str]:
    """Lists the dimensions on which the valid part depends."""
    return sorted({n for a in axes for f in a if not f.static for n in f.size.names()})


def bounded_names(sizes: Mapping[SSAValue, Axes], values: Iterable[SSAValue]) -> list[str]:
    """Lists the names of the bounded sizes of values, of which some may be sizes that the data decide."""
    return sorted({n for v in values for n in names_of(sizes.get(v, ()))})


def dimensions(sizes: Mapping[SSAValue, Axes], values: Iterable[SSAValue]) -> str:
    """Names the bounded dimensions of values for a message: `'batch' and 'seq'`."""
    names = bounded_names(sizes, values)
    return " and ".join("that the data decide" if is_counted(n) else f"'{n}'" for n in names) or "of a computed size"


VALID = "valid_sizes"  # the sizes of an op's results, for each axis that is partly valid


def record(op: Operation, valid: ValidSizes) -> None:
    """Records the sizes of an op's results on it, for later passes and readers."""
    if any(r in valid.axes for r in op.results):
        set_sizes(op, VALID, [texts(valid.of(r)) for r in op.results])


def recall(op: Operation, valid: ValidSizes) -> None:
    """Reads the sizes that `record` wrote."""
    for result, stated in zip(op.results, sizes(op, VALID)):
        state_texts(result, stated, valid)


def state_texts(value: SSAValue, stated: Sequence[str], valid: ValidSizes) -> None:
    """Records the sizes of a value that texts state, empty for an axis that is whole."""
    found = zip(shape_of(value.type), stated, strict=True)
    valid.state(value, tuple(prefix(n, parse(text) if text else n) for n, text in found))


def recall_results(op: Operation, values: Sequence[SSAValue | None], valid: ValidSizes) -> None:
    """Reads the sizes that `record` wrote, for the values that replace an op's results; None replaces one without a use."""
    for value, stated in zip(values, sizes(op, VALID)):
        if value is not None:
            state_texts(value, stated, valid)
