"""`--replicas` of `populus run`: inputs dealt to replicas by samples, and their outputs joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from populus.program.program import Program
from populus.program.replicas import Replicas
from populus.tools.command import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays: TypeAlias = dict[str, NDArray[Any]]


def dealt(inputs: Mapping[str, Any], count: int) -> list[Arrays]:
    """Gives each replica an equal part of each input, along its first dimension; a scalar is for all.

    Raises UsageError for a first dimension that is not a multiple of the replicas.
    """
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    for name, array in arrays.items():
        if array.ndim and len(array) % count:
            raise UsageError(f"input '{name}' is {list(array.shape)}; its first dimension is not a multiple of {count} replicas")
    return [
        {name: a[k * len(a) // count : (k + 1) * len(a) // count] if a.ndim else a for name, a in arrays.items()} for k in range(count)
    ]


def run_dealt(program: Program, inputs: Sequence[Arrays]) -> Arrays:
    """Runs each replica on its part, and joins their outputs along the first dimension; scalars become rows."""
    found = Replicas(program, len(inputs)).run(inputs)
    return {name: np.concatenate([np.atleast_1d(each[name]) for each in found]) for name in found[0]}
