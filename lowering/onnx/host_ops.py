"""Ops that run on the host, their host functions, and the ops that move strings on tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import DenseArrayBase, StringAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from populus.dialects.onnx.attributes import plain
from populus.dialects.onnx.schema import SEGMENTS, OnnxOp
from populus.dialects.onnx.structure import CustomOp
from populus.dialects.onnx.types import SequenceType, as_tensor, string
from populus.dialects.signature.string_table import HANDLE
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of, element_type_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SizeUnknown(PopulusError):
    """The size of a result depends on values that are not known when compiling."""


FUNCTIONS: Mapping[str, str] = {
    "ImageDecoder": "image.decode",
    "RegexFullMatch": "text.match",
    "StringConcat": "text.concat",
    "StringNormalizer": "text.normalize",
    "StringSplit": "text.split",
}

CUSTOM: Mapping[tuple[str, str], str] = {("com.microsoft", "Tokenizer"): "text.tokenize"}

SIZED_BY_VALUES = ("image.decode", "text.normalize", "text.split", "text.tokenize")  # the shapes of their results depend on the data

# Ops that move strings or compare them for equality: on tiles, these are handles.
MOVING = frozenset(
    (
        "ArrayFeatureExtractor", "CategoryMapper", "Compress", "Concat", "ConcatFromSequence", "DepthToSpace", "Equal", "Expand", "Flatten",
        "Gather", "GatherElements", "GatherND", "Identity", "If", "LabelEncoder", "Loop", "NonZero", "OneHot", "OneHotEncoder", "Pad",
        "Reshape", "ReverseSequence", "Scan", "Scatter", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "SpaceToDepth", "Split",
        "Squeeze", "TfIdfVectorizer", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
    )
)  # fmt: skip


def is_text(value: SSAValue) -> bool:
    """Tells whether a value is a tensor of strings."""
    type = as_tensor(value.type)
    return type is not None and type.element_type == string


def function_of(op: OnnxOp | CustomOp) -> str | None:
    """Gives the name of an op's host function; None if it runs on tiles."""
    if isinstance(op, CustomOp):
        return CUSTOM.get((op.domain.data, op.op_type.data))
    if not op.DOMAIN and op.OP_TYPE in FUNCTIONS:
        return FUNCTIONS[op.OP_TYPE]
    if not op.DOMAIN and op.OP_TYPE in ("Cast", "CastLike") and op.operands and is_text(op.operands[0]) != is_text(op.results[0]):
        return "text.to_numbers" if is_text(op.operands[0]) else "text.from_numbers"
    return None


def check_strings(op: OnnxOp) -> None:
    """Raises PopulusError, with the op's location, if the op reads the content of strings."""
    if op.OP_TYPE not in MOVING and any(map(is_text, op.operands)):
        raise PopulusError(f"{where(op)}: {op.title()}: on strings it is not supported; tiles move and compare them, and do not order them")


def handled(type: Attribute) -> Attribute:
    """Replaces strings by handles in a type."""
    if isinstance(type, SequenceType):
        return SequenceType(handled(type.element))
    ranked = as_tensor(type)
    return TensorType(HANDLE, ranked.get_shape()) if ranked is not None and ranked.element_type == string else type


def params_of(op: OnnxOp | CustomOp) -> dict[str, Attribute]:
    """Gives the parameters of an op's host function: attributes, positions of string operands, and a cast's dtype."""
    attributes = op.node_attributes.data if isinstance(op, CustomOp) else {**op.DEFAULTS, **op.properties}
    params = {name: value for name, value in attributes.items() if name not in SEGMENTS}
    params["texts_in"] = DenseArrayBase.from_list(i64, [int(is_text(v)) for v in op.operands])
    if function_of(op) == "text.to_numbers":
        params["dtype"] = StringAttr(dtype_of(element_type_of(op.results[0].type)).name)
    return params


def host_results(op: OnnxOp | CustomOp, known: Callable[[SSAValue], NDArray[Any] | None]) -> list[NDArray[Any]] | None:
    """Computes the results of an op whose result shapes depend on its operands' values; None for another op.

    Raises SizeUnknown if the values are not known at compile time.
    """
    function = function_of(op)
    if function not in SIZED_BY_VALUES:
        return None
    from populus.runtime.host import function_named

    arrays = [known(v) for v in op.operands]
    operands = [a for a in arrays if a is not None]
    if len(operands) < len(arrays):
        if isinstance(op, OnnxOp) and function == "text.normalize" and not op.property("stopwords"):
            return None
        raise SizeUnknown(
            "the size of its result depends on the values that it reads; they have to be known when compiling "
            "(populus.onnx_backend compiles for those that arrive)"
        )
    return function_named(function)({name: plain(value) for name, value in params_of(op).items()}, operands)
