"""Codelets of a user, for codelet.mlir."""

from math import sqrt

from populus.dialects.poplar.tile_code import IntVector, Vector, codelet


@codelet(axes={"x": "row n", "y": "row"})
def norm(x: Vector, y: Vector) -> None:
    for r in range(len(y)):
        total = 0.0
        for k in range(x.shape[1]):
            total += x[r, k] * x[r, k]
        y[r] = sqrt(total)


@codelet(axes={"x": "n", "at": "row", "y": "row"})
def pick(x: Vector, at: IntVector, y: Vector) -> None:
    for r in range(len(y)):
        y[r] = x[at[r]]
