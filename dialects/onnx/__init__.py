"""The `onnx` dialect: every version of every op of the standard, generated from `onnx.defs`.

`ONNX` is the dialect; asking for it makes all classes (0.1 s) and imports `onnx`, importing this package does neither.
`op_class(domain, op_type, opset)` makes a single one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from populus.dialects.onnx.schema import OnnxOp, op_class
from populus.dialects.onnx.structure import CustomOp, StringsOp, YieldOp
from populus.dialects.onnx.types import OptionalType, SequenceType, StringType, UnknownType

if TYPE_CHECKING:
    from xdsl.ir import Dialect

    ONNX: Dialect

__all__ = ["ONNX", "CustomOp", "OnnxOp", "OptionalType", "SequenceType", "StringType", "StringsOp", "UnknownType", "YieldOp", "op_class"]


def __getattr__(name: str) -> Dialect:
    if name != "ONNX":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from xdsl.ir import Dialect

    from populus.dialects.onnx.attributes import TensorAttr
    from populus.dialects.onnx.schema import all_classes
    from populus.dialects.onnx.types import TYPES

    globals()["ONNX"] = dialect = Dialect("onnx", [*all_classes(), CustomOp, StringsOp, YieldOp], [*TYPES, TensorAttr])
    return dialect
