"""A node with the numbers that it has to give: what `test_numerics.py` makes its tables of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node

from populus import onnx_backend

Array = np.ndarray
F, D = np.float32, np.float64
INF, NAN = np.inf, np.nan
TINY = float(np.finfo(F).tiny)
SPECIAL = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, INF, -INF, NAN, 1e-45, -1e-40, 3.4e38, -3.4e38], F)
BACKENDS = {name: type(name, (onnx_backend.Backend,), {"engine": name, "tiles": 4}) for name in ("numpy", "native")}


@dataclass(frozen=True)
class Row:
    """A node, and what it gives. `engines` agree on it within `rtol`, infinities and NaN being themselves."""

    op: str
    inputs: Sequence[Array]
    expected: Array | Sequence[Array]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    rtol: float = 0.0
    atol: float = 0.0
    name: str = ""

    def __str__(self) -> str:
        return self.op + (f" {self.name}" if self.name else "")


def run(row: Row, engine: str) -> list[Array]:
    expected = row.expected if isinstance(row.expected, list) else [row.expected]
    names = [f"x{i}" for i in range(len(row.inputs))]
    node = make_node(row.op, names, [f"y{i}" for i in range(len(expected))], **row.attributes)
    before = [x.copy() for x in row.inputs]
    found = list(BACKENDS[engine].run_node(node, list(row.inputs)))
    for x, was in zip(row.inputs, before):
        np.testing.assert_array_equal(x, was)
    return found


def judged(row: Row, engine: str) -> None:
    expected = row.expected if isinstance(row.expected, list) else [row.expected]
    with np.errstate(all="ignore"):
        for found, wanted in zip(run(row, engine), expected, strict=True):
            assert found.shape == wanted.shape
            if row.rtol:
                wanted = wanted.astype(found.dtype).astype(D)
                np.testing.assert_allclose(found.astype(D), wanted, rtol=row.rtol, atol=row.atol)
            else:
                assert found.dtype == wanted.dtype
                np.testing.assert_array_equal(found, wanted)
                if found.dtype.kind == "f":
                    there = ~np.isnan(wanted)
                    np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(wanted)[there])


def rows(table: Sequence[Row]) -> Callable[[Any], Any]:
    assert len({str(row) for row in table}) == len(table), "two rows have one name"
    both = pytest.mark.parametrize("engine", BACKENDS)
    return lambda test: both(pytest.mark.parametrize("row", table, ids=str)(test))


def wide(low: float = -38, high: float = 38, seed: int = 0, special: bool = True) -> Array:
    """Both signs, magnitudes from 10^low to 10^high, and special values."""
    rng = np.random.default_rng(seed)
    x = (rng.choice([-1, 1], 400) * 10 ** rng.uniform(low, high, 400)).astype(F)
    return np.concatenate([x, np.linspace(-20, 20, 101, dtype=F), SPECIAL if special else []]).astype(F)


def positive(low: float = -38, high: float = 38) -> Array:
    near = 1 + np.array([-1e-3, -1e-6, 0, 1e-6, 1e-3])
    return np.concatenate([np.abs(wide(low, high)), near]).astype(F)


def between(low: float, high: float) -> Array:
    """Evenly within the interval, and near zero."""
    small = wide(-30, -2, special=False)[:400]
    return np.concatenate([np.linspace(low, high, 401), small, [0.0, -0.0, NAN]]).astype(F)
