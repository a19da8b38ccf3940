"""Inputs and outputs that are complex for the caller: a program has pairs of floats, [.., 2], the real part first.

func.func @main(..) attributes {complex_inputs = ["x"], complex_outputs = ["y"]}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Operation

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEYS = ("complex_inputs", "complex_outputs")


@dataclass(frozen=True)
class Pairs:
    """Names of inputs and outputs that are pairs."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


NO_PAIRS = Pairs()


def note(op: Operation, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Records on a function which of its arguments and results are pairs."""
    for key, names in zip(KEYS, (inputs, outputs)):
        if found := [StringAttr(name) for name in names]:
            op.attributes[key] = ArrayAttr(found)


def pairs(op: Operation) -> Pairs:
    """Gives the names recorded on a function."""
    stated = [cast("ArrayAttr[StringAttr]", op.attributes[key]) if key in op.attributes else () for key in KEYS]
    return Pairs(*(tuple(name.data for name in names) for names in stated))


def as_pairs(array: NDArray[Any]) -> NDArray[Any]:
    """Makes pairs, [.., 2], of complex numbers."""
    import numpy as np

    wide = np.dtype(np.float64 if array.dtype == np.complex128 else np.float32)
    return np.ascontiguousarray(array).view(wide).reshape(*array.shape, 2)


def as_complex(array: NDArray[Any]) -> NDArray[Any]:
    """Makes complex numbers of pairs, [.., 2]."""
    import numpy as np

    wide = np.dtype(np.complex128 if array.dtype == np.float64 else np.complex64)
    return np.ascontiguousarray(array).view(wide).reshape(array.shape[:-1])
