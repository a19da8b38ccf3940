"""Parts of tensors: the shape and type that one is stated by, of which others it is a view, and values that outlive a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import SSAValue

from populus.popxl import dtypes
from populus.popxl.dealing import Dealing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.popxl.tensor import Tensor


@dataclass(frozen=True)
class TensorSpec:
    """The shape and element type of a tensor; a mapping of its fields' names too. `meta_shape`: of the whole, for one of its shards."""

    shape: tuple[int, ...]
    dtype: dtypes.dtype
    meta_shape: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Gives the fields by name."""
        return {"shape": self.shape, "dtype": self.dtype, "meta_shape": self.meta_shape}

    def to_tuple(self) -> tuple[Any, ...]:
        """Gives the fields in order."""
        return self.shape, self.dtype, self.meta_shape

    def keys(self) -> Iterable[str]:
        """Gives the names of the fields, so that `**spec` passes them on."""
        return self.to_dict().keys()

    def __iter__(self) -> Any:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]


@dataclass(frozen=True)
class View:
    """Of which tensors a tensor is a view: what its value is of theirs, and what theirs become when it is given another."""

    of: tuple[Tensor, ...]
    read: Callable[[Sequence[SSAValue]], SSAValue]
    write: Callable[[Sequence[SSAValue], SSAValue], Sequence[SSAValue]]


@dataclass(eq=False)
class State:
    """A value that outlives a run, or passes through all graphs: a variable, a remote buffer, the rows of a stream, a position in them."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data: NDArray[Any] | None = None  # at first, as the host has it
    dealing: Dealing | None = None  # to the replicas; None: all have the same
    rows: dict[int, tuple[Dealing, NDArray[Any]]] = field(default_factory=dict[int, "tuple[Dealing, NDArray[Any]]"])  # of a remote buffer
    in_sync: bool = False  # whether a session's host and device have the same value
    mark: int | None = None  # of a table whose number of rows is known when the whole program is: what stands for it in graphs

    @property
    def shape_in_graphs(self) -> tuple[int, ...]:
        """The shape, with the mark in place of the number of rows."""
        return self.shape if self.mark is None else (self.mark, *self.shape[1:])
