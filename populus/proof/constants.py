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

FEW = 512  # elements of a constant that are compared first
PART = 1 << 15  # elements of a constant that are read at a time, so that they stay in a cache
SAME = read_map("{ [i] -> [i] }")
OF_SUMS = 1e-9  # relative error of sums of large integers in floats of 64 bits


def equal(x: Array, y: Array, relation: Map, rounding: float, of: float | None = None) -> bool:
    """Tells whether flat constants are equal to rounding, as `near` does, where a relation of their elements says so."""
    if y.size < x.size or not relation.is_single_valued():  # all elements of the smaller are looked at
        back = relation.reverse()
        if back.is_single_valued():
            x, y, relation = y, x, back
        elif not relation.is_single_valued():
            return False
    if x.size > 8 * FEW:  # others of one shape are told apart by some elements
        some = np.arange(0, x.size, x.size // FEW)
        to = values(relation, [some])
        with np.errstate(invalid="ignore"):
            largest = max(abs(float(np.nanmax(x))), abs(float(np.nanmin(x))))
        if not near(x[some][to >= 0], y[to[to >= 0]], rounding, largest if of is None else of):
            return False
    if (way := strides(relation, x.size)) is not None:
        return near(x.reshape(way.shape), way.of(y), rounding, of)
    to = values(relation, [np.arange(x.size)])
    return near(x, y[to], rounding, of) if (to >= 0).all() else near(x[to >= 0], y[to[to >= 0]], rounding, of)


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


def near(x: Array, y: Array, rounding: float, largest: float | None = None) -> bool:
    """Tells whether numbers are equal to rounding: of their own, and of the largest."""
    if not x.size or (x.dtype == y.dtype and np.array_equal(x, y)):
        return True
    if not floating(x.dtype) and not floating(y.dtype):  # as they are: floats of 64 bits do not tell large integers apart
        return bool((x == y).all())
    if x.shape == y.shape and largest is None and _close(x, y, rounding):
        return True
    if not x.dtype == y.dtype == np.float32:
        x, y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        differs = np.abs(x - y)
        if largest is None or not math.isfinite(largest):
            largest = max(float(x.max()), -float(x.min()))
            largest = largest if math.isfinite(largest) else float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
        if float(differs.max()) <= 0.1 * rounding * largest:
            return True
        near = differs <= rounding * (np.abs(x) + 0.1 * largest)
    return bool(near.all() or (near | (x == y) | (np.isnan(x) & np.isnan(y))).all())


def _close(x: Array, y: Array, rounding: float) -> bool:
    """Tells whether no difference exceeds a part of the rounding of the largest number: one look at both. All are finite."""
    if not (x.flags.c_contiguous and y.flags.c_contiguous):
        return False
    x, y, differs, largest = x.reshape(-1), y.reshape(-1), 0.0, 0.0
    narrow = x.dtype == y.dtype == np.float32
    with np.errstate(all="ignore"):
        for begin in range(0, x.size, PART):
            a, b = x[begin : begin + PART], y[begin : begin + PART]
            if not narrow:
                a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
            own = float(np.abs(a - b).max())
            largest = max(largest, float(a.max()), -float(a.min()))
            if not (math.isfinite(own) and own <= 0.5 * largest):  # other numbers, or none
                return False
            differs = max(differs, own)
    return differs <= 0.1 * rounding * largest


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
    """Returns the relative error that some operations on a type may have."""
    if not floating(dtype):
        return 0.0
    return 16 * float(cast("Any", finfo(dtype)).eps)


def smallest(dtype: np.dtype[Any]) -> float:
    """Returns the least positive number of a float type."""
    return float(cast("Any", finfo(dtype)).smallest_subnormal)


def floating(dtype: np.dtype[Any]) -> bool:
    """Tells whether elements of a type are floats: of NumPy, or narrow ones."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.name.startswith(("float", "bfloat")))
