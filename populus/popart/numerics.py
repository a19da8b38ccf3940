"""`NumericsReport`: two trainings compared by the weights before and after each. Source: PopART's Python API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.read import read_model

if TYPE_CHECKING:
    from numpy.typing import NDArray


class NumericsReport:
    """The weights of four ONNX files: `A0`, `A1` before and after one training, `B0`, `B1` before and after another.

    A weight's relative error is `|dA - dB|^2 / (|dA| |dB|)`, with dA and dB its changes; 0 where both are 0.
    Raises PopulusError if the files have other weights.
    """

    def __init__(self, A0: str, A1: str, B0: str, B1: str):
        files = [_weights(name) for name in (A0, A1, B0, B1)]
        for name, other in zip((A1, B0, B1), files[1:]):
            if [(n, w.shape) for n, w in other.items()] != [(n, w.shape) for n, w in files[0].items()]:
                raise PopulusError(f"'{name}' has other weights than '{A0}'")
        self._changes = {n: (files[1][n] - w, files[3][n] - files[2][n]) for n, w in files[0].items()}

    def getRelativeErrors(self) -> dict[str, float]:
        """Gives the relative error of each weight."""
        import numpy as np

        found: dict[str, float] = {}
        for name, (a, b) in self._changes.items():
            between, size = float(np.sum((a - b) ** 2)), float(np.sqrt(np.sum(a**2)) * np.sqrt(np.sum(b**2)))
            found[name] = between / size if size else 0.0 if not between else float("inf")
        return found

    def report(self, id: str) -> str:
        """Describes the changes of one weight. Raises PopulusError if there is none of this name."""
        if id not in self._changes:
            raise PopulusError(f"there is no weight '{id}'")
        a, b = self._changes[id]
        return f"{id}: |dA|^2 = {float((a**2).sum()):g}, |dB|^2 = {float((b**2).sum()):g}, relative error {self.getRelativeErrors()[id]:g}"

    def fullReport(self) -> str:
        """Describes the changes of all weights, a line for each."""
        return "\n".join(self.report(name) for name in self._changes)


def _weights(file: str) -> dict[str, NDArray[Any]]:
    import numpy as np
    from onnx import numpy_helper

    arrays = {t.name: numpy_helper.to_array(t) for t in read_model(file).graph.initializer}
    return {n: a.astype(np.float64) for n, a in arrays.items() if a.dtype.kind == "f"}
