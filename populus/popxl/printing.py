"""The text of a tensor's values, in the manner of Poplar's `PrintTensor`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from populus.popxl.errors import WrongKey, WrongValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

FloatFormat = Literal["auto", "fixed", "scientific", "none"]
FORMATS = ("auto", "fixed", "scientific", "none")


@dataclass(frozen=True)
class PrintFormat:
    """Options of the text of values: from how many elements on edges stand for all, length of a line, digits, and signs.

    0 stands for no limit of elements, of a line's length, or of digits. Raises ValueError for signs of another length than 1, and
    KeyError for a format of floats that there is not. Source: Graphcore, PopXL API, `print_tensor`.
    """

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 75
    digits: int = 8
    float_format: FloatFormat = "auto"
    separator: str = " "
    open_bracket: str = "["
    close_bracket: str = "]"

    def __post_init__(self) -> None:
        for name in ("separator", "open_bracket", "close_bracket"):
            if len(sign := getattr(self, name)) != 1:
                raise WrongValue(f"{name} is one character, not '{sign}'")
        if self.float_format not in FORMATS:
            raise WrongKey(f"float_format is one of {', '.join(FORMATS)}, not '{self.float_format}'")

    def text(self, array: NDArray[Any]) -> str:
        """Writes an array; lines of more dimensions are nested and indented."""
        found = np.array2string(
            array,
            max_line_width=self.max_line_width or sys.maxsize,
            threshold=self.summarise_threshold or sys.maxsize,
            edgeitems=self.edge_items,
            separator=self.separator,
            floatmode="maxprec" if self._loose else "fixed",
            precision=self._precision(array),
            suppress_small=self.float_format == "fixed",
            formatter={"float_kind": self._scientific} if self.float_format == "scientific" and self.digits else None,
        )
        return found.translate(str.maketrans("[]", self.open_bracket + self.close_bracket))

    @property
    def _loose(self) -> bool:
        return self.float_format == "none" or not self.digits

    def _precision(self, array: NDArray[Any]) -> int | None:
        """Counts the digits after the point: those that the largest number's whole part leaves."""
        if self._loose or array.dtype.kind != "f":
            return None
        finite = np.abs(array[np.isfinite(array)])
        whole = len(str(int(finite.max()))) if finite.size else 1
        return max(0, self.digits - whole)

    def _scientific(self, x: Any) -> str:
        return f"{x:.{max(0, self.digits - 1)}e}"
