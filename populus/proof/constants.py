"""Constants: whether their elements are equal to rounding, which of them are one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from ml_dtypes import finfo

from populus.dialects.poplar.affine import Map, read_map
from populus.dialects.poplar.arrays import strides, values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Sizes: TypeAlias = tuple[Array | None, Array | None]
    """Of two constants: of what size each element is computed, whose rounding it may have; None for that of the element."""

FEW = 512  # elements of a constant that are compared first
PART = 1 << 15  # elements of a constant that are read at a time, so that they stay in a cache
SAME = read_map("{ [i] -> [i] }")
OF_SUMS = 1e-9  # relative error of sums of large integers in floats of 64 bits


def equal(x: Array, y: Array, relation: Map, rounding: float, sizes: Sizes = (None, None)) -> bool:
    """Tells whether flat constants are equal to rounding, as `near` does, where a relation of their elements says so."""
    if y.size < x.size or not relation.is_single_valued():  # all elements of the smaller are looked at
        back = relation.reverse()
        if back.is_single_valued():
            x, y, relation, sizes = y, x, back, (sizes[1], sizes[0])
        elif not relation.is_single_valued():
            return False
    for some in (np.arange(0, x.size, x.size // FEW), None) if x.size > 8 * FEW else (None,):  # most are told apart by some elements
        if some is None and (way := strides(relation, x.size)) is not None:
            of_x, of_y = sizes
            size = joined(None if of_x is None else of_x.reshape(way.shape), None if of_y is None else way.of(of_y))
            return near(x.reshape(way.shape), way.of(y), rounding, size)
        at = np.arange(x.size) if some is None else some
        to = values(relation, [at])
        at, to = at[to >= 0], to[to >= 0]
        if not near(x[at], y[to], rounding, sizes_at(sizes, at, to)):
            return False
    return True


def sizes_at(sizes: Sizes, at: Any, to: Any) -> Array | None:
    """Gives the sizes of elements of two constants together."""
    x, y = sizes
    return joined(None if x is None else x[at], None if y is None else y[to])


def joined(x: Array | None, y: Array | None) -> Array | None:
    """Adds sizes; None is 0."""
    return y if x is None else x if y is None else x + y


@dataclass(frozen=True)
class Size:
    """Sums of a constant that no order of its elements changes, to rounding: their number, the largest magnitude, and that of the mean."""

    count: int
    largest: float
    mean: float
    rounding: float

    @staticmethod
    def of(flat: Array, rounding: float) -> Size:
        """Measures a constant."""
        largest = total = 0.0
        with np.errstate(all="ignore"):
            for begin in range(0, flat.size, PART):
                part = flat[begin : begin + PART]
                if part.dtype.name not in ("float32", "float64"):
                    part = part.astype(np.float64)
                largest, total = float(np.max([largest, part.max(), -part.min()])), total + float(part.sum())
        return Size(flat.size, largest, abs(total) / flat.size, rounding)

    def like(self, other: Size, multiple: bool) -> bool:
        """Tells whether two constants may have equal elements in some order; with `multiple`, to a factor."""
        if not all(map(math.isfinite, (self.largest, other.largest))):
            return True
        by = (self.largest / other.largest if other.largest else 0.0) if multiple else 1.0
        within = 4 * max(self.rounding, other.rounding, OF_SUMS) * self.largest  # equal elements differ by half of that at most
        same_mean = self.count != other.count or abs(self.mean - by * other.mean) <= within
        return same_mean and abs(self.largest - by * other.largest) <= within


def ratio(x: Array, y: Array, relation: Map) -> float:
    """Returns the ratio of flat constants, y / x, where x is the largest of some; 0 if there is none."""
    if not relation.is_single_valued() or not floating(x.dtype) or not floating(y.dtype):
        return 0.0
    some = np.arange(0, x.size, max(x.size // FEW, 1))
    to = values(relation, [some])
    numbers, others = x[some][to >= 0].astype(np.float64), y[to[to >= 0]].astype(np.float64)
    if not numbers.size:
        return 0.0
    k = int(np.argmax(np.abs(numbers)))
    found = float(others[k] / numbers[k]) if numbers[k] else 0.0
    return found if math.isfinite(found) else 0.0


def near(x: Array, y: Array, rounding: float, size: Array | None = None) -> bool:
    """Tells whether numbers are equal to rounding: of their own, and of `size`, that of what they were computed from.

    A number that is not finite is only itself.
    """
    if not x.size or (x.dtype == y.dtype and np.array_equal(x, y)):
        return True
    if not floating(x.dtype) and not floating(y.dtype):  # as they are: floats of 64 bits do not tell large integers apart
        return bool((x == y).all())
    if rounding and size is None and x.shape == y.shape and _close(x, y, rounding):
        return True
    least = max(smallest(x.dtype), smallest(y.dtype)) if rounding else 0.0  # what a type does not have is rounded to it
    if not x.dtype == y.dtype == np.float32:
        x, y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        differs = np.abs(x - y)
        near = (differs <= rounding * (np.abs(x) if size is None else np.abs(x) + size) + least) & np.isfinite(differs)
    return bool(near.all() or (near | (x == y) | (np.isnan(x) & np.isnan(y))).all())


def _close(x: Array, y: Array, rounding: float) -> bool:
    """Tells whether all differences are roundings: one look at both. All are finite."""
    if not (x.flags.c_contiguous and y.flags.c_contiguous):
        return False
    x, y = x.reshape(-1), y.reshape(-1)
    narrow = x.dtype == y.dtype == np.float32
    with np.errstate(all="ignore"):
        for begin in range(0, x.size, PART):
            a, b = x[begin : begin + PART], y[begin : begin + PART]
            if not narrow:
                a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
            differs = np.abs(a - b)
            if not (differs <= rounding * np.abs(a)).all() or not math.isfinite(float(differs.max())):
                return False
    return True


def uniform(flat: Array, rounding: float) -> float | int | bool | None:
    """Returns the number that all elements of a constant are, floats to a part of their rounding; None if they differ."""
    first, last = flat[0], flat[-1]
    if flat.dtype.kind in "iub":
        return first.item() if first == last and (flat == first).all() else None
    if not floating(flat.dtype):
        return None
    value = float(first)
    if not math.isfinite(value):
        numbers = flat.astype(np.float64)
        return value if (np.isnan(numbers) if math.isnan(value) else numbers == value).all() else None
    within = rounding * 0.1 * abs(value) if flat.dtype.kind == "f" else 0.0
    if not abs(float(last) - value) <= within:
        return None
    return value if (np.abs(flat.astype(np.float64, copy=False) - value) <= within).all() else None


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Returns the relative error that some operations on a type may have. Nothing computes in types of 8 bits and less."""
    if not floating(dtype) or dtype.itemsize == 1:
        return 0.0
    return (4 if dtype.itemsize == 2 else 16) * float(cast("Any", finfo(dtype)).eps)


def smallest(dtype: np.dtype[Any]) -> float:
    """Returns the least positive number of a float type; 0 of another."""
    return float(cast("Any", finfo(dtype)).smallest_subnormal) if floating(dtype) else 0.0


def floating(dtype: np.dtype[Any]) -> bool:
    """Tells whether elements of a type are floats: of NumPy, or narrow ones."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.name.startswith(("float", "bfloat")))
