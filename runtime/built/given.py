"""Inputs of a run as users have them: by name, or one array alone; tensors of PyTorch as arrays. It needs NumPy alone."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np

from populus.dialects.support.errors import ProgramError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HasArray(Protocol):
    """An array, a tensor of PyTorch, or any other object that NumPy makes an array of."""

    def __array__(self) -> NDArray[Any]:
        """Gives the array."""
        ...


Inputs: TypeAlias = "Mapping[str, Any] | HasArray"
"""Arrays by the names of the inputs, or the array of a program with one input."""


def by_name(inputs: Inputs, names: Collection[str], error: type[ProgramError] = ProgramError) -> Mapping[str, Any]:
    """Gives arrays by name: a lone array or tensor is that of the only input.

    Raises `error` for anything else, and for a lone array where a program has several inputs, or none.
    """
    if isinstance(inputs, Mapping):
        return inputs
    listed = ", ".join(names) or "there are none"
    if not hasattr(inputs, "__array__"):
        alone = ", or its array alone" if len(names) == 1 else ""
        raise error(f"`inputs` is a {type(inputs).__qualname__}; expected a dict by the names of the inputs ({listed}){alone}")
    if len(names) != 1:
        raise error(f"`inputs` is one array, and the program has {len(names)} inputs; expected a dict by their names ({listed})")
    return dict.fromkeys(names, inputs)


def array_of(name: str, value: Any, error: type[ProgramError] = ProgramError) -> NDArray[Any]:
    """Makes an array of what a user gives for an input; a tensor of PyTorch may need a gradient. Raises `error` for what is no array."""
    if isinstance(value, np.ndarray):
        return cast("NDArray[Any]", value)
    try:
        torch: Any = sys.modules.get("torch")  # whoever has a tensor has imported it
        if torch is not None and isinstance(value, torch.Tensor):
            held = value.detach().cpu()
            if held.dtype == torch.bfloat16:  # a type that NumPy lacks
                from ml_dtypes import bfloat16

                return cast("NDArray[Any]", held.view(torch.int16).numpy().view(bfloat16))
            value = held
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as why:
        raise error(f"input '{name}' is a {type(value).__qualname__}, which is no array: {' '.join(str(why).split())}") from why
