"""The spread of a result, which a comparison can see: a saturated one, such as a one-hot softmax, is the same whatever comes before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEAR = 1e-3  # of an output's span, which comparisons allow
LEAST = 0.2  # of the elements
FEW = 16  # elements, of which a share says nothing


def spread(outputs: Mapping[str, NDArray[Any]]) -> float | None:
    """Returns the share of elements that lie inside of their output's span, by more than 1/1000 of it.

    Outputs of other types than floats, and of fewer than 16 elements, are passed over; None if all are.
    """
    inside = total = 0
    for output in outputs.values():
        y = output.astype(np.float64).reshape(-1) if output.dtype.kind in "fV" and output.size >= FEW else np.zeros(0)
        finite = y[np.isfinite(y)]
        total += y.size
        if finite.size and (span := float(finite.max() - finite.min())) > 0:
            far = np.minimum(finite - finite.min(), finite.max() - finite)
            inside += int((far > NEAR * span).sum())
    return inside / total if total else None


def check_spread(outputs: Mapping[str, NDArray[Any]], what: str) -> None:
    """Asserts that an oracle's outputs show a mistake: that a fifth of their elements lie inside of the outputs' spans."""
    found = spread(outputs)
    assert found is not None, f"{what} has no output of floats with {FEW} elements"
    assert found >= LEAST, f"{what} has saturated outputs, which hide mistakes: {found:.1%} of the elements lie inside of their spans"
