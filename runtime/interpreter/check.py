"""The comparison of `check.close`: a value of a test program against its expected elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import FloatAttr, TensorType

from populus.dialects.check import CloseOp
from populus.dialects.data import attribute_array
from populus.dialects.poplar.outside import HostCallOp
from populus.dialects.poplar.program import element_of
from populus.dialects.support.diagnostics import PopulusError, where


def check_close(op: CloseOp, actual: NDArray[Any]) -> None:
    """Raises PopulusError, which names the worst element, unless `actual` is close to the elements that `op` expects."""
    _check(where(op), actual, op.expected_array(), op.rtol.value.data, op.atol.value.data)


def host_check_close(op: HostCallOp, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Runs the host call that `check.close` is lowered to, with the op's properties as parameters."""
    (actual,) = arrays
    assert op.params is not None, op
    expected, rtol, atol = (op.params.data[name] for name in ("expected", "rtol", "atol"))
    assert isinstance(rtol, FloatAttr), rtol
    assert isinstance(atol, FloatAttr), atol
    type = TensorType(element_of(op.views[0]), actual.shape)
    _check(where(op), actual, attribute_array(expected, type), rtol.value.data, atol.value.data)
    return []


def _check(place: str, actual: NDArray[Any], expected: NDArray[Any], rtol: float, atol: float) -> None:
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), (actual.dtype, expected.dtype)
    x, y = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (actual == expected) | (np.isnan(x) & np.isnan(y))
        excess = np.where(same, 0.0, np.abs(x - y) - atol - rtol * np.abs(y))
        excess = np.where(np.isfinite(y) | same, excess, np.inf)
    excess = np.where(np.isnan(excess), np.inf, excess)
    if excess.size and excess.max() > 0:
        worst = np.unravel_index(int(excess.argmax()), excess.shape)
        at = f" at [{', '.join(map(str, worst))}]" if worst else ""
        count = int((excess > 0).sum())
        raise PopulusError(
            f"{place}: check.close: {actual[worst]} was found{at}, {expected[worst]} is expected "
            f"within {atol:g} + {rtol:g} of it; {count} of {excess.size} elements differ"
        )
