"""Whether values are what a test program expects of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.check import CloseOp
from populus.dialects.diagnostics import PopulusError, where


def check_close(op: CloseOp, found: NDArray[Any]) -> None:
    """Raises PopulusError, naming the element that is furthest off, unless `found` is close to what `op` expects."""
    expected = op.expected_array()
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    x, y = found.astype(np.float64), expected.astype(np.float64)
    rtol, atol = op.rtol.value.data, op.atol.value.data
    with np.errstate(all="ignore"):
        same = (found == expected) | (np.isnan(x) & np.isnan(y))
        excess = np.where(same, 0.0, np.abs(x - y) - atol - rtol * np.abs(y))
        excess = np.where(np.isfinite(y) | same, excess, np.inf)
    excess = np.where(np.isnan(excess), np.inf, excess)
    if excess.size and excess.max() > 0:
        worst = np.unravel_index(int(excess.argmax()), excess.shape)
        at = f" at [{', '.join(map(str, worst))}]" if worst else ""
        count = int((excess > 0).sum())
        raise PopulusError(
            f"{where(op)}: check.close: {found[worst]} was found{at}, {expected[worst]} is expected "
            f"within {atol:g} + {rtol:g} of it; {count} of {excess.size} elements differ"
        )
