"""ONNX's node attributes as properties of ops, and back.

| ONNX | attribute |
|---|---|
| INT, INTS | `3 : i64`, `array<i64: 1, 2>` |
| FLOAT, FLOATS | `0.5 : f32`, `array<f32: 0.5, 1.0>` |
| STRING, STRINGS | `"same"`, `["a", "b"]` |
| TENSOR | `dense<..> : tensor<..>`, or `#onnx.tensor<#data.stored<..>, tensor<..>>` |
| TYPE_PROTO | the type |
| GRAPH | no property but a region |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    f32,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition

from populus.dialects.base.tensor_op import integers
from populus.dialects.data import StoredAttr, array_attribute, attribute_array
from populus.dialects.onnx.types import from_proto, string, to_proto
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_of, shape_of
from populus.dialects.support.element_types import tensor as tensor_type

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import AttributeProto, NodeProto


@irdl_attr_definition
class TensorAttr(ParametrizedAttribute):
    """`#onnx.tensor<#data.stored<"70ba..">, tensor<99xf32>>`: a tensor that is too large to be written as dense, or is of strings."""

    name = "onnx.tensor"
    value: Attribute
    type: Attribute


FLAGS = {
    *("align_corners", "allowzero", "antialias", "broadcast", "ceil_mode", "center_point_box", "count_include_pad", "detect_negative"),
    *("detect_positive", "exclude_outside", "exclusive", "fmod", "input_forget", "interleaved", "inverse", "is_case_sensitive"),
    *("is_causal", "is_test", "keepdims", "largest", "layout", "linear_before_reset", "multi_class", "new_axis", "noop_with_empty_axes"),
    *("one_class", "onesided", "output_sequence", "periodic", "reverse", "saturate", "select_last_index", "sorted", "spatial"),
    *("storage_order", "training_mode", "transA", "transB", "upper", "zeros"),
}
"""Attributes of ONNX that are 0 or 1, by its documentation of ops."""


def tensor_attribute(array: NDArray[Any]) -> Attribute:
    """Makes the property of a node's tensor attribute."""
    if array.dtype == object:
        return TensorAttr(ArrayAttr([StringAttr(_decoded(v)) for v in array.reshape(-1)]), TensorType(string, list(array.shape)))
    value = array_attribute(array)
    if not isinstance(value, StoredAttr):
        return value
    return TensorAttr(value, tensor_type(array.shape, element_of(array.dtype)))


def numbers(value: Attribute) -> list[Any]:
    """Returns the elements of an `array<..>` property."""
    return list(cast("DenseArrayBase[Any]", value).get_values())


def floats(values: Sequence[float]) -> Attribute:
    """Makes an `array<f32: ..>` property."""
    return DenseArrayBase.from_list(f32, [float(v) for v in values])


def read_attribute(proto: AttributeProto) -> Attribute:
    """Converts a node's attribute, other than a graph, to a property. Raises PopulusError for sparse tensors and lists of tensors."""
    from onnx import AttributeProto as A
    from onnx import numpy_helper

    match proto.type:
        case A.INT:
            return IntegerAttr(proto.i, i64)
        case A.FLOAT:
            return FloatAttr(proto.f, f32)
        case A.STRING:
            return StringAttr(_text(proto.name, proto.s))
        case A.INTS:
            return integers(proto.ints)
        case A.FLOATS:
            return floats(proto.floats)
        case A.STRINGS:
            return ArrayAttr([StringAttr(_text(proto.name, s)) for s in proto.strings])
        case A.TENSOR:
            try:
                return tensor_attribute(numpy_helper.to_array(proto.t))
            except KeyError as error:
                said = f"is a tensor of data type {proto.t.data_type}, which ONNX does not have"
                raise PopulusError(f"attribute '{proto.name}' {said}") from error
            except (TypeError, ValueError) as error:
                raise PopulusError(f"attribute '{proto.name}': {error}") from error
        case A.TYPE_PROTO:
            return from_proto(proto.tp)
        case _:
            raise PopulusError(f"attribute '{proto.name}' is of type {A.AttributeType.Name(proto.type)}, which is not supported")


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise PopulusError(f"attribute '{name}' is not UTF-8: {value[:20]!r}") from error


def _decoded(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _tensor_array(value: TensorAttr) -> NDArray[Any]:
    """Returns the elements of a tensor attribute that is not dense; strings are objects."""
    if not isinstance(value.value, ArrayAttr):
        return attribute_array(value.value, value.type)
    import numpy as np

    texts = cast("ArrayAttr[StringAttr]", value.value)
    found = np.empty(len(texts), object)
    found[:] = [text.data for text in texts]
    return found.reshape(shape_of(value.type))


def write_attribute(node: NodeProto, name: str, value: Attribute) -> None:
    """Adds a property to a NodeProto."""
    from onnx import AttributeProto as A
    from onnx import numpy_helper

    proto = node.attribute.add()
    proto.name = name
    match value:
        case IntegerAttr():
            proto.type, proto.i = A.INT, value.value.data
        case FloatAttr():
            proto.type, proto.f = A.FLOAT, value.value.data
        case StringAttr():
            proto.type, proto.s = A.STRING, value.data.encode()
        case DenseArrayBase() if value.elt_type == i64:
            proto.type = A.INTS
            proto.ints.extend(numbers(value))
        case DenseArrayBase():
            proto.type = A.FLOATS
            proto.floats.extend(numbers(value))
        case ArrayAttr():
            proto.type = A.STRINGS
            proto.strings.extend([v.data.encode() for v in value.data if isinstance(v, StringAttr)])
        case DenseIntOrFPElementsAttr():
            proto.type = A.TENSOR
            proto.t.CopyFrom(numpy_helper.from_array(attribute_array(value, value.type)))
        case TensorAttr():
            proto.type = A.TENSOR
            proto.t.CopyFrom(numpy_helper.from_array(_tensor_array(value)))
        case TypeAttribute():
            proto.type = A.TYPE_PROTO
            proto.tp.CopyFrom(to_proto(value))
        case _:
            raise AssertionError(f"{name} = {value}")


def filling(value: Any) -> NDArray[Any]:
    """Gives the number of a ConstantOfShape, as an array without dimensions, of its plain `value`; 0 of f32 without one.

    Raises PopulusError unless `value` has one element. Source: ONNX ConstantOfShape-9.
    """
    import numpy as np

    array = np.zeros((), np.float32) if value is None else np.asarray(value)
    if array.size != 1:
        raise PopulusError(f"its attribute 'value' has {array.size} elements; one is expected")
    return array.reshape(())


def plain(value: Attribute) -> Any:
    """Converts a property to a Python value: int, float, str, list of them, or array; a type stays an attribute."""
    match value:
        case IntegerAttr():
            return value.value.data
        case FloatAttr():
            return value.value.data
        case StringAttr():
            return value.data
        case DenseArrayBase():
            return numbers(value)
        case ArrayAttr():
            return [plain(v) for v in value.data]
        case DenseIntOrFPElementsAttr():
            return attribute_array(value, value.type)
        case TensorAttr():
            return _tensor_array(value)
        case _:
            return value
