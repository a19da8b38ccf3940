"""How far two arrays are from each other: what `--expect` and `--check-levels` go by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

RTOL = 1e-3  # of an array's largest element
TINY = 1e-7  # what is smaller has no size of its own


@dataclass(frozen=True)
class Difference:
    """How far two arrays of one shape are from each other: the largest difference, and where it is.

    `absolute`: infinite where one element is NaN or infinite and the other is not the same. `size`: the largest finite element that was
    expected. `relative`: of that, so that rounding of large elements is no mistake in small ones; of integers, which do not round, 0
    or infinite.
    """

    absolute: float
    size: float
    relative: float
    index: tuple[int, ...]


def largest_difference(found: NDArray[Any], expected: NDArray[Any]) -> Difference:
    """The Difference of two arrays of one shape; strings and objects differ by 1 or not at all. NaN is near NaN."""
    import numpy as np

    kinds = found.dtype.kind + expected.dtype.kind
    exact = all(kind in "iubO" for kind in kinds)
    wide = np.dtype(object) if exact and max(found.dtype.itemsize, expected.dtype.itemsize) == 8 else np.dtype(np.float64)
    # Flat, since NumPy makes Python numbers of what it computes from an object array without dimensions.
    a, b = found.reshape(-1).astype(wide), expected.reshape(-1).astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        same = ((a == b) | ((a != a) & (b != b))).astype(np.bool_)  # what differs from itself is NaN
        far = same.astype(np.float64) - 1 if "O" in kinds else np.where(same, 0, a - b).astype(np.float64)
    far = np.where(np.isfinite(far), np.abs(far), np.inf)
    if not far.size:
        return Difference(0.0, 0.0, 0.0, ())
    at, size = int(far.argmax()), 0.0
    if "O" not in kinds:
        numbers = np.abs(expected.astype(np.float64))
        size = float(numbers[np.isfinite(numbers)].max(initial=0))
    absolute = float(far[at])
    relative = (float("inf") if absolute else 0.0) if exact else absolute / max(size, TINY)
    return Difference(absolute, size, relative, tuple(int(i) for i in np.unravel_index(at, found.shape)))
