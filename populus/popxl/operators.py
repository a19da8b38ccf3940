"""Python's operators and the methods of tensors, which call ops of the same names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from populus.popxl import dtypes
from populus.popxl.errors import WrongType, WrongValue

if TYPE_CHECKING:
    from populus.popxl.tensor import Tensor


class Operators:
    """The operators and methods of `Tensor`. Numbers and arrays on either side become constants of the tensor's element type.

    `OPS`: the functions that they call, which the package of ops states.
    """

    OPS: ClassVar[Any] = None

    def _with(self, op: str, other: Any, reflected: bool = False) -> Tensor:
        mine = cast("Tensor", self)
        pair = mine, mine.operand(other)
        return getattr(self.OPS, op)(*(pair[::-1] if reflected else pair))

    def __add__(self, other: Any) -> Tensor:
        return self._with("add", other)

    def __radd__(self, other: Any) -> Tensor:
        return self._with("add", other, reflected=True)

    def __iadd__(self, other: Any) -> Tensor:
        self._with("add_", other)
        return cast("Tensor", self)

    def __sub__(self, other: Any) -> Tensor:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._with("sub", other, reflected=True)

    def __mul__(self, other: Any) -> Tensor:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._with("mul", other, reflected=True)

    def __truediv__(self, other: Any) -> Tensor:
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._with("div", other, reflected=True)

    def __pow__(self, other: Any) -> Tensor:
        return self._with("pow", other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._with("pow", other, reflected=True)

    def __mod__(self, other: Any) -> Tensor:
        return self._with("fmod", other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._with("fmod", other, reflected=True)

    def __matmul__(self, other: Any) -> Tensor:
        return self._with("matmul", other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return self._with("matmul", other, reflected=True)

    def __and__(self, other: Any) -> Tensor:
        return self._with("logical_and", other)

    def __rand__(self, other: Any) -> Tensor:
        return self._with("logical_and", other, reflected=True)

    def __or__(self, other: Any) -> Tensor:
        return self._with("logical_or", other)

    def __ror__(self, other: Any) -> Tensor:
        return self._with("logical_or", other, reflected=True)

    def __invert__(self) -> Tensor:
        return Operators.OPS.logical_not(self)

    def __neg__(self) -> Tensor:
        return Operators.OPS.negate(self)

    @property
    def T(self) -> Tensor:
        """The tensor with its dimensions in reverse order."""
        return self.transpose()

    @property
    def T_(self) -> Tensor:
        """A view of the tensor with its dimensions in reverse order."""
        return self.transpose_()

    def transpose(self, permutation: Iterable[int] | None = None) -> Tensor:
        """Calls `ops.transpose`."""
        return Operators.OPS.transpose(self, permutation)

    def transpose_(self, permutation: Iterable[int] | None = None) -> Tensor:
        """Calls `ops.transpose_`."""
        return Operators.OPS.transpose_(self, permutation)

    def reshape(self, shape: Iterable[int]) -> Tensor:
        """Calls `ops.reshape`."""
        return Operators.OPS.reshape(self, shape)

    def reshape_(self, shape: Iterable[int]) -> Tensor:
        """Calls `ops.reshape_`."""
        return Operators.OPS.reshape_(self, shape)

    def flatten(self) -> Tensor:
        """Calls `ops.flatten`."""
        return Operators.OPS.flatten(self)

    def flatten_(self) -> Tensor:
        """Calls `ops.flatten_`."""
        return Operators.OPS.flatten_(self)

    def detach(self) -> Tensor:
        """Calls `ops.detach`."""
        return Operators.OPS.detach(self)

    def detach_(self) -> Tensor:
        """Calls `ops.detach_`."""
        return Operators.OPS.detach_(self)

    def copy_to_ipu(self, destination: int, source: int | None = None) -> Tensor:
        """Calls `ops.ipu_copy`."""
        return Operators.OPS.ipu_copy(self, destination, source)

    def diag(self) -> Tensor:
        """Gives the elements whose two indices are equal. Raises ValueError for what is not a matrix."""
        mine = cast("Tensor", self)
        if mine.rank != 2:
            raise WrongValue(f"{mine.id} has {mine.rank} dimensions; diag takes a matrix")
        rows, columns = mine.shape
        flat = mine.flatten()
        return flat[: min(rows, columns) * (columns + 1) : columns + 1] if rows > columns else flat[:: columns + 1]

    def __getitem__(self, key: Any) -> Tensor:
        """Gives elements by numbers and ranges, one for each dimension; rows by a tensor of integers; by one of booleans, the others zero.

        A number takes its dimension away. Raises TypeError for keys of other kinds.
        """
        mine = cast("Tensor", self)
        parts = cast("tuple[Any, ...]", key if type(key) is tuple else (key,))
        if all(isinstance(p, int | slice) and not isinstance(p, bool) for p in parts):
            if len(parts) > mine.rank:
                raise WrongValue(f"{mine.id} has {mine.rank} dimensions, not {len(parts)}")
            return _sliced(mine, parts)
        if isinstance(key, np.ndarray | list) or type(cast("object", key)).__module__ == "torch":
            key = mine.made_constant(key)
        if isinstance(key, Operators):
            key = cast("Tensor", key)
            if key.dtype.is_int:
                return Operators.OPS.gather(mine, key)
            if key.dtype is dtypes.bool:
                return Operators.OPS.where(key, mine, mine.made_constant(0, mine.dtype))
        raise WrongType(f"{key!r} is no index of a tensor; give numbers, ranges, or a tensor of integers or booleans")


def _sliced(t: Tensor, parts: tuple[int | slice, ...]) -> Tensor:
    starts, stops, steps, single = list[int | None](), list[int | None](), list[int | None](), list[int]()
    for d, part in enumerate(parts):
        if isinstance(part, int):
            starts.append(part)
            stops.append(None if part == -1 else part + 1)
            steps.append(1)
            single.append(d)
        else:
            starts.append(part.start)
            stops.append(part.stop)
            steps.append(part.step)
    found = Operators.OPS.slice(t, starts, stops, steps)
    return Operators.OPS.squeeze(found, single) if single else found
