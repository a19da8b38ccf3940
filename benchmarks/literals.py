"""Formulas whose numbers are operands of their kernels, beside kernels with the numbers in their code.

    python -m benchmarks.literals

Both run in turns in one thread, on the same arrays. A ratio is that of the least times; below 1, operands are faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from populus.dialects.expr import Arg, Expr, erf, maximum, minimum, select, sigmoid, tanh
from populus.runtime.engine.native.codegen.jit import library
from populus.runtime.engine.native.kernels import elementwise
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.tape import Tape

X = Arg(1)
FORMULAS: dict[str, Expr] = {
    "scale": X * 1.7,
    "scale and shift": X * 1.7 + 0.3,
    "divide": X / 3.1,
    "clip": minimum(maximum(X, -0.7), 0.9),
    "leaky relu": select(X, X * 0.013, X >= 0.0),
    "hard swish": X * minimum(maximum(X * 0.16667 + 0.5, 0.0), 1.0),
    "gelu (erf)": X * 0.5 * (erf(X * 0.70710678) + 1.0),
    "gelu (tanh)": X * 0.5 * (tanh((X + X * X * X * 0.044715) * 0.79788456) + 1.0),
    "swish": X * sigmoid(X * 1.702),
    "twelve numbers": ((((X + 1.1) * 1.2 + 1.3) * 0.4 + 0.7) * 0.6 + 0.3) * 0.8 + 0.9 - X / 1.9 + minimum(X, 1.3) * 0.11,
}
SHAPES = ((128, 3072), (64, 56, 56), (16, 100, 7))


def launch(e: Expr, x: NDArray[Any], y: NDArray[Any], lifts: bool) -> Launch:
    """Binds the kernel of a formula, with its numbers as operands or in its code."""

    def kept(tape: Tape) -> tuple[Tape, list[NDArray[Any]]]:
        return tape, []

    with mock.patch.object(elementwise, "lifted", elementwise.lifted if lifts else kept):
        made = elementwise.formula(library(), e, [x], y)
    assert made is not None, e
    return made[0]


def least(runs: list[Callable[[], None]], turns: int) -> list[float]:
    """Measures the least time of each in turns."""
    times = [float("inf")] * len(runs)
    for _ in range(turns):
        for i, run in enumerate(runs):
            begun = time.perf_counter()
            run()
            times[i] = min(times[i], time.perf_counter() - begun)
    return times


def main() -> None:
    """Prints a row for each formula."""
    rng = np.random.default_rng(0)
    print("| formula | " + " | ".join("x".join(map(str, shape)) for shape in SHAPES) + " |")
    print("|---|" + "---|" * len(SHAPES))
    for name, e in FORMULAS.items():
        ratios: list[str] = []
        for shape in SHAPES:
            x = rng.standard_normal(shape).astype(np.float32)
            y = np.empty_like(x)
            fast, slow = least([launch(e, x, y, lifts) for lifts in (True, False)], 300)
            ratios.append(f"{fast / slow:.2f}")
        print(f"| {name} | " + " | ".join(ratios) + " |", flush=True)


if __name__ == "__main__":
    main()
