"""The distance of two arrays, which `--expect` and `--check-levels` compare with a tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

RTOL = 1e-3  # relative to an array's largest element
TINY = 1e-7  # the smallest size that differences are relative to


@dataclass(frozen=True)
class Difference:
    """The largest difference of two arrays of one shape, and its index.

    `absolute`: infinite if one element is NaN or infinite and the other differs. `size`: the largest finite expected
    magnitude. `relative`: absolute / size, so that the rounding of large elements does not count as an error of small
    ones. For integers, which do not round, it is 0 or infinite.
    """

    absolute: float
    size: float
    relative: float
    index: tuple[int, ...]


def largest_difference(actual: NDArray[Any], expected: NDArray[Any]) -> Difference:
    """Computes the Difference of two arrays of one shape. Strings and objects differ by 1 or 0; NaN equals NaN."""
    import numpy as np

    kinds = actual.dtype.kind + expected.dtype.kind
    exact = all(kind in "iubO" for kind in kinds)
    wide = np.dtype(np.complex128 if "c" in kinds else np.float64)
    large = exact and max(actual.dtype.itemsize, expected.dtype.itemsize) == 8
    # Flat, because NumPy returns Python numbers from operations on object arrays without dimensions.
    a, b = (x.reshape(-1).astype(object if large else wide) for x in (actual, expected))
    with np.errstate(invalid="ignore", over="ignore"):
        same = ((a == b) | ((a != a) & (b != b))).astype(np.bool_)  # only NaN differs from itself
        far = same.astype(np.float64) - 1 if "O" in kinds else np.abs(np.where(same, 0, a - b)).astype(np.float64)
    far = np.where(np.isfinite(far), np.abs(far), np.inf)
    if not far.size:
        return Difference(0.0, 0.0, 0.0, ())
    at, size = int(far.argmax()), 0.0
    if "O" not in kinds:
        numbers = np.abs(expected.astype(wide))
        size = float(numbers[np.isfinite(numbers)].max(initial=0))
    absolute = float(far[at])
    relative = (float("inf") if absolute else 0.0) if exact else absolute / max(size, TINY)
    return Difference(absolute, size, relative, tuple(int(i) for i in np.unravel_index(at, actual.shape)))
