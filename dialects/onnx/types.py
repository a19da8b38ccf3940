"""ONNX's types as attributes: tensors, and what only this level has: sequences, optionals, strings, types not known yet.

tensor<2x?xf32>   !onnx.sequence<tensor<?xi64>>   !onnx.optional<tensor<f32>>   tensor<3x!onnx.string>   !onnx.unknown
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BFloat16Type,
    ComplexType,
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    IntegerType,
    Signedness,
    TensorType,
    UnrankedTensorType,
    f32,
    f64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition

from populus.dialects.support.element_types import shape_of, tensor

if TYPE_CHECKING:
    from onnx import TensorShapeProto, TypeProto


@irdl_attr_definition
class SequenceType(ParametrizedAttribute, TypeAttribute):
    """`!onnx.sequence<tensor<2xf32>>`: a list of tensors."""

    name = "onnx.sequence"
    element: Attribute


@irdl_attr_definition
class OptionalType(ParametrizedAttribute, TypeAttribute):
    """`!onnx.optional<tensor<2xf32>>`: a tensor or sequence, or nothing."""

    name = "onnx.optional"
    element: Attribute


@irdl_attr_definition
class StringType(ParametrizedAttribute, TypeAttribute):
    """`!onnx.string`: the element type of a tensor of strings."""

    name = "onnx.string"


@irdl_attr_definition
class UnknownType(ParametrizedAttribute, TypeAttribute):
    """`!onnx.unknown`: what a model's file doesn't state; `onnx-infer-shapes` leaves none."""

    name = "onnx.unknown"


# Longer names first: `ai_onnx_ml_Scaler_1` is told apart by them.
DOMAINS = ("ai.onnx.preview.training", "ai.onnx.preview", "ai.onnx.ml", "")

TYPES = [OptionalType, SequenceType, StringType, UnknownType]

string = StringType()
unknown = UnknownType()


def _unsigned(width: int) -> IntegerType:
    return IntegerType(width, Signedness.UNSIGNED)


# ONNX's spelling in schemas, the number in TensorProto.DataType, the attribute. Source: onnx.proto3, version 1.23.
_ELEMENTS: list[tuple[str, int, Attribute]] = [
    ("float", 1, f32),
    ("uint8", 2, _unsigned(8)),
    ("int8", 3, IntegerType(8)),
    ("uint16", 4, _unsigned(16)),
    ("int16", 5, IntegerType(16)),
    ("int32", 6, IntegerType(32)),
    ("int64", 7, IntegerType(64)),
    ("string", 8, string),
    ("bool", 9, IntegerType(1)),
    ("float16", 10, Float16Type()),
    ("double", 11, f64),
    ("uint32", 12, _unsigned(32)),
    ("uint64", 13, _unsigned(64)),
    ("complex64", 14, ComplexType(f32)),
    ("complex128", 15, ComplexType(f64)),
    ("bfloat16", 16, BFloat16Type()),
    ("float8e4m3fn", 17, Float8E4M3FNType()),
    ("float8e4m3fnuz", 18, Float8E4M3FNUZType()),
    ("float8e5m2", 19, Float8E5M2Type()),
    ("float8e5m2fnuz", 20, Float8E5M2FNUZType()),
    ("uint4", 21, _unsigned(4)),
    ("int4", 22, IntegerType(4)),
    ("float4e2m1", 23, Float4E2M1FNType()),
    ("float8e8m0", 24, Float8E8M0FNUType()),
    ("uint2", 25, _unsigned(2)),
    ("int2", 26, IntegerType(2)),
    ("float6e2m3", 27, Float6E2M3FNType()),
    ("float6e3m2", 28, Float6E3M2FNType()),
]

_BY_NUMBER = {number: element for _, number, element in _ELEMENTS}
_NUMBER = {element: number for _, number, element in _ELEMENTS}
_NAME = {element: name for name, _, element in _ELEMENTS}


def as_tensor(type: Attribute) -> TensorType[Attribute] | None:
    """Narrows a type to a ranked tensor type; None for any other."""
    return cast("TensorType[Attribute]", type) if isinstance(type, TensorType) else None


def element_numbered(number: int) -> Attribute | None:
    """Returns the element type of a TensorProto.DataType; None for an unknown number."""
    return _BY_NUMBER.get(number)


def number_of(element: Attribute) -> int:
    """Returns the TensorProto.DataType of an element type."""
    assert element in _NUMBER, element
    return _NUMBER[element]


def spelled(type: Attribute) -> str:
    """Names a type as ONNX's schemas do, without its shape: `tensor(float)`, `seq(tensor(int64))`."""
    match type:
        case TensorType() | UnrankedTensorType():
            return f"tensor({_NAME.get(type.element_type, str(type.element_type))})"
        case SequenceType():
            return f"seq({spelled(type.element)})"
        case OptionalType():
            return f"optional({spelled(type.element)})"
        case _:
            return str(type)


def dimension_name(dimension: TensorShapeProto.Dimension) -> str:
    """Returns the name of an open dimension; "" if it has none. Some exporters write "?" for any dimension, which is no name."""
    return "" if dimension.dim_param == "?" else dimension.dim_param


def is_open(dimension: TensorShapeProto.Dimension) -> bool:
    """Tells whether a dimension has no size; exporters also write -1 for that."""
    return not dimension.HasField("dim_value") or dimension.dim_value < 0


def from_proto(type: TypeProto, dimension: Callable[[str], int] = lambda name: -1) -> Attribute:
    """Converts a TypeProto to an attribute; `unknown` if the file states no type, or for a map.

    `dimension` maps the name of a symbolic dimension to its size, -1 while that is open.
    """
    match type.WhichOneof("value"):
        case "tensor_type":
            element = element_numbered(type.tensor_type.elem_type)
            if element is None:
                return unknown
            if not type.tensor_type.HasField("shape"):
                return UnrankedTensorType(element)
            dims = [
                d.dim_value if d.WhichOneof("value") == "dim_value" else dimension(name) if (name := dimension_name(d)) else -1
                for d in type.tensor_type.shape.dim
            ]
            return tensor([n if n >= 0 else DYNAMIC_INDEX for n in dims], element)
        case "sequence_type":
            return SequenceType(from_proto(type.sequence_type.elem_type, dimension))
        case "optional_type":
            return OptionalType(from_proto(type.optional_type.elem_type, dimension))
        case _:
            return unknown


def to_proto(type: Attribute) -> TypeProto:
    """Converts an attribute to a TypeProto; an empty one for `unknown`."""
    from onnx import TypeProto

    proto = TypeProto()
    match type:
        case TensorType():
            proto.tensor_type.elem_type = number_of(type.element_type)
            dims = proto.tensor_type.shape.dim
            proto.tensor_type.shape.SetInParent()
            for n in type.get_shape():
                d = dims.add()
                if n >= 0:
                    d.dim_value = n
        case UnrankedTensorType():
            proto.tensor_type.elem_type = number_of(type.element_type)
        case SequenceType():
            proto.sequence_type.elem_type.CopyFrom(to_proto(type.element))
        case OptionalType():
            proto.optional_type.elem_type.CopyFrom(to_proto(type.element))
        case _:
            assert isinstance(type, UnknownType), type
    return proto


def is_static(type: Attribute) -> bool:
    """Tells whether a type is fully known, including the elements of sequences and optionals."""
    match type:
        case TensorType():
            return min(shape_of(type), default=0) >= 0
        case SequenceType() | OptionalType():
            return is_static(type.element)
        case _:
            return False
