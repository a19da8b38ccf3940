"""`TensorInfo`: an element type and a shape, and how PopART and NumPy spell element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.enums import DataType

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

TYPES = {t.name: int(t) for t in DataType}
CLASS = type
SPELLING = {int(t): t.name for t in DataType}


class TensorInfo:
    """Element type (`FLOAT`, `FLOAT16`, `INT32`, .., or NumPy's) and shape; or those of an array.

    Raises PopulusError for a type that there is not.
    """

    def __init__(self, type: object, shape: Sequence[int] | None = None):
        import numpy as np
        from onnx.helper import np_dtype_to_tensor_dtype

        if isinstance(type, str):
            if type not in TYPES:
                raise PopulusError(f"there is no type '{type}'{did_you_mean(type, TYPES)}")
            self.type, self._shape = TYPES[type], tuple(shape or ())
        elif isinstance(type, np.dtype | CLASS):
            self.type, self._shape = np_dtype_to_tensor_dtype(np.dtype(cast("Any", type))), tuple(shape or ())
        else:
            array = np.asarray(cast("ArrayLike", type))
            self.type, self._shape = np_dtype_to_tensor_dtype(array.dtype), array.shape

    def shape(self) -> list[int]:
        """Gives the shape."""
        return [int(n) for n in self._shape]

    def data_type(self) -> str:
        """Gives the element type as PopART spells it."""
        return SPELLING[self.type]

    def data_type_lcase(self) -> str:
        """Gives the element type in NumPy's spelling."""
        return dtype_of_number(self.type).name


def dtype_of_number(number: int) -> Any:
    """Gives NumPy's dtype for ONNX's number of an element type."""
    from onnx.helper import tensor_dtype_to_np_dtype

    return tensor_dtype_to_np_dtype(number)


def getTensorInfo(array: NDArray[Any]) -> TensorInfo:
    """Gives the element type and shape of an array."""
    return TensorInfo(array)
