"""Checks of the tensors that an op is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from populus.popxl.errors import UndefinedValue, WrongValue
from populus.popxl.tensor import Tensor


def check_tensor_ipu_and_tile_set(**tensors: Tensor) -> None:
    """Raises ValueError for tensors of different chips or sets of tiles, by name; those that are of none yet go with any."""
    _check("IPUs", tensors, lambda t: t.ipu)
    _check("tile sets", tensors, lambda t: t.tile_set)


def _check(kind: str, tensors: dict[str, Tensor], place: Callable[[Tensor], Any]) -> None:
    first: tuple[str, Any] | None = None
    for name, t in tensors.items():
        try:
            found = place(t)
        except UndefinedValue:
            continue
        if first is None:
            first = name, found
        elif found != first[1]:
            raise WrongValue(f"the tensors `{first[0]}` and `{name}` are on different {kind}: {first[1]} and {found}; copy one of them")
