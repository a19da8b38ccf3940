"""Checks of the tensors that an op is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from populus.popxl.errors import UndefinedValue, WrongType, WrongValue
from populus.popxl.tensor import Tensor

if TYPE_CHECKING:
    from populus.popxl.graph import Graph


def check_tensor_ipu_and_tile_set(**tensors: Tensor) -> None:
    """Raises ValueError for tensors of different chips or sets of tiles, by name; those that are of none yet go with any."""
    _check("IPUs", tensors, lambda t: t.ipu)
    _check("tile sets", tensors, lambda t: t.tile_set)


def check_in_graph(graph: Graph, **tensors: Tensor) -> None:
    """Raises TypeError for what is no tensor, and ValueError for a tensor of another graph, by name."""
    for name, t in tensors.items():
        if not isinstance(cast("object", t), Tensor):
            raise WrongType(f"the input `{name}` is no tensor: {t!r}")
        if t not in graph:
            raise WrongValue(f"the input `{name}`, {t.id}, is no tensor of graph '{graph.name}'")


def convert_optional_float(v: float | None) -> float | None:
    """Gives a number, or none, as it is: an optional number has no class of its own here."""
    return v


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
