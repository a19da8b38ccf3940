"""Tensors of a graph, with Python's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import SSAValue

from populus.builder import Builder, current
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Tensor:
    """A value of a graph. `shape`, `dtype`; `+ - * / @` and `-x` call the ops of these names."""

    def __init__(self, ssa: SSAValue, graph: Builder):
        self.ssa, self.graph = ssa, graph

    def of(self, value: SSAValue) -> Tensor:
        """Another value of the same graph."""
        return Tensor(value, self.graph)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.ssa.type)

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtype_of(element_type_of(self.ssa.type))

    def __add__(self, other: Tensor | float) -> Tensor:
        return self._with("add", other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self._with("sub", other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self._with("mul", other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self._with("div", other)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self._with("matmul", other)

    def __neg__(self) -> Tensor:
        return self.of(current().op("neg", self.ssa)[0])

    def _with(self, op: str, other: Tensor | float) -> Tensor:
        value = other if isinstance(other, Tensor) else constant(other, self.dtype)
        return self.of(current().op(op, self.ssa, value.ssa)[0])


def constant(data: ArrayLike, dtype: np.dtype[Any] | None = None, name: str = "") -> Tensor:
    """An array as a tensor of the current graph; Python's floats are single precision."""
    array = np.asarray(data, dtype)
    if dtype is None and not isinstance(data, np.ndarray):
        array = array.astype({"f": np.float32, "i": np.int32}.get(array.dtype.kind, array.dtype))
    graph = current()
    return Tensor(graph.constant(array, name), graph)
