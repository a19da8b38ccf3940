"""Asking `onnx` about an op of ours: the op as a NodeProto, its result types, its function body."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, TensorType, i1
from xdsl.ir import Attribute, SSAValue

from populus.dialects.onnx.attributes import write_attribute
from populus.dialects.onnx.schema import SEGMENTS, OnnxOp
from populus.dialects.onnx.types import as_tensor, from_proto, is_static, to_proto, unknown
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import tensor
from populus.dialects.support.shapes import broadcast

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

# What ONNX states no inference for: in these versions, a result like the first input.
LIKE_FIRST = frozenset(
    (name, version)
    for version, names in {
        1: "Abs Add BatchNormalization Ceil Clip Div Dropout Elu Exp Floor HardSigmoid InstanceNormalization LeakyRelu Log Max Mean Min "
        "Mul Neg PRelu Reciprocal Relu Selu Sigmoid Sqrt Sub Sum Tanh",
        9: "MeanVarianceNormalization",
        13: "MeanVarianceNormalization",
        18: "GroupNormalization",
        21: "GroupNormalization",
    }.items()
    for name in names.split()
)
# The commonest ops whose result types no element of an operand decides.
BY_TYPES = {"Add", "BatchNormalization", "Conv", "Div", "Gemm", "LayerNormalization", "MatMul", "Mul", "PRelu", "Pow", "Sub", "Where"}
PLAIN = (DenseArrayBase, FloatAttr, IntegerAttr, StringAttr)  # attributes of a few bytes
INFERENCE_ELEMENTS = 1024  # a constant of more elements is no shape, and is not shown to ONNX's inference


def to_node(op: OnnxOp) -> NodeProto:
    """Makes the NodeProto of an op without subgraphs; input i is named `i0`, `i1`, .., output i `o0`, `o1`, .."""
    from onnx import NodeProto

    node = NodeProto(op_type=op.OP_TYPE, domain=op.DOMAIN)
    node.input.extend("" if v is None else f"i{i}" for i, v in enumerate(op.inputs))
    node.output.extend("" if v is None else f"o{i}" for i, v in enumerate(op.outputs))
    for name, value in op.properties.items():
        if name not in SEGMENTS:
            write_attribute(node, name, value)
    return node


def input_protos(op: OnnxOp) -> dict[str, TypeProto]:
    """Converts the types of an op's inputs to TypeProtos, by the names `i0`, `i1`, .."""
    return {f"i{i}": to_proto(v.type) for i, v in enumerate(op.inputs) if v is not None}


def infer_types(op: OnnxOp, known: Callable[[SSAValue], NDArray[Any] | None]) -> list[Attribute]:
    """Infers the types of an op's results with ONNX; `unknown` where ONNX infers none. `known`: known values of operands.

    Raises PopulusError with ONNX's reason and the operands' types if they do not fit.
    """
    from onnx import checker, helper, numpy_helper, shape_inference

    if (stated := _like_operands(op)) is not None:
        return stated
    _check_outputs(op)
    values = () if op.OP_TYPE in BY_TYPES and not op.DOMAIN else enumerate(op.inputs)
    data = {
        f"i{i}": numpy_helper.from_array(array)
        for i, v in values
        if v is not None and (array := known(v)) is not None and array.size <= INFERENCE_ELEMENTS
    }
    key = None if data else _question(op)
    if key is not None and (answer := _ANSWERS.get(key)) is not None:
        return list(answer)
    try:
        found = shape_inference.infer_node_outputs(
            op.schema(), to_node(op), input_protos(op), data, opset_imports=[helper.make_opsetid(op.DOMAIN, op.VERSION)]
        )
    except (shape_inference.InferenceError, checker.ValidationError, ValueError) as error:  # ValueError: an element type of no number
        reason = str(error).split("]", 1)[-1].strip() if str(error).startswith("[") else str(error)
        operands = ", ".join("none" if v is None else str(v.type) for v in op.inputs)
        raise PopulusError(f"{' '.join(reason.split())}; its inputs are {operands}") from error
    types = [from_proto(found[name]) if (name := f"o{i}") in found else unknown for i, v in enumerate(op.outputs) if v is not None]
    if key is not None and len(_ANSWERS) < MOST_ANSWERS:
        _ANSWERS[key] = tuple(types)
    return types


# ONNX's answers, as many nodes of a net ask the same. Only to questions without tensors and graphs, so that it holds no data.
_ANSWERS: dict[tuple[object, ...], tuple[Attribute, ...]] = {}
MOST_ANSWERS = 4096


def _question(op: OnnxOp) -> tuple[object, ...] | None:
    """Gives all that the types of the results depend on; None if that is too much to keep, or if the schema is not ONNX's own."""
    if op.DOMAIN or op.regions or not all(isinstance(value, PLAIN) for value in op.properties.values()):
        return None
    inputs = tuple(None if v is None else v.type for v in op.inputs)
    return type(op), tuple(op.properties.items()), inputs, tuple(v is None for v in op.outputs)


def _check_outputs(op: OnnxOp) -> None:
    """Raises PopulusError for attributes at which ONNX's inference would leave its memory.

    That is a Split into another number of parts than it has outputs, a GatherND with fewer than no leading dimensions, and a
    LayerNormalization from a dimension that x has not.
    """
    parts = op.property("num_outputs") if op.OP_TYPE == "Split" and not op.DOMAIN and op.VERSION >= 18 else None
    if parts is not None and parts != len(op.outputs):
        raise PopulusError(f"num_outputs is {parts}; the node has {len(op.outputs)} outputs")
    leading = op.property("batch_dims") if op.OP_TYPE == "GatherND" and not op.DOMAIN else None
    if isinstance(leading, int) and leading < 0:
        raise PopulusError(f"batch_dims is {leading}; at least 0 is expected")
    axis = op.property("axis") if op.OP_TYPE == "LayerNormalization" and not op.DOMAIN else None
    x = first.type if axis is not None and (first := next(iter(op.inputs), None)) is not None else None
    if isinstance(axis, int) and isinstance(x, TensorType) and not -x.get_num_dims() <= axis < x.get_num_dims():
        raise PopulusError(f"axis is {axis}; x has {x.get_num_dims()} dimensions")


def _like_operands(op: OnnxOp) -> list[Attribute] | None:
    """Returns the result types of ops that ONNX has no inference for; None for other ops."""
    if op.DOMAIN:
        return None
    if (op.OP_TYPE, op.VERSION) in LIKE_FIRST:
        return [op.operands[0].type, *(unknown for _ in op.results[1:])]
    if op.VERSION == 12 and op.OP_TYPE in ("GreaterOrEqual", "LessOrEqual"):
        types = [as_tensor(v.type) for v in op.operands]
        if all(t is not None and is_static(t) for t in types):
            return [tensor(broadcast(*(t.get_shape() for t in types if t is not None)), i1)]
    return None


def function_body(op: OnnxOp) -> FunctionProto | None:
    """Returns ONNX's definition of an op as a function of other ops; None if there is none.

    Its inputs and outputs have the schema's names.
    """
    schema: Any = op.schema()
    if schema.has_context_dependent_function:
        from onnx import FunctionProto

        versions = schema.context_dependent_function_opset_versions
        body = schema.get_context_dependent_function_with_opset_version(
            max(versions),
            to_node(op).SerializeToString(),
            [to_proto(v.type).SerializeToString() if v is not None else b"" for v in op.inputs],
        )
        if not body:
            return None
        function = FunctionProto()
        function.ParseFromString(body)
        return function
    return schema.function_body if schema.has_function else None


def has_function(op: OnnxOp) -> bool:
    """Tells whether ONNX defines the op as a function of others, at least for some inputs."""
    schema: Any = op.schema()
    return bool(schema.has_function or schema.has_context_dependent_function)


def newest_opset() -> int:
    """Returns the newest version of ONNX's own domain that the installed package has."""
    from onnx import defs

    return defs.onnx_opset_version()


def function_attributes(op: OnnxOp) -> dict[str, AttributeProto]:
    """Returns the attributes of an op and its defaults, as its function body refers to them."""
    from onnx import NodeProto

    node = NodeProto()
    for name, value in {**op.DEFAULTS, **op.properties}.items():
        if name not in SEGMENTS:
            write_attribute(node, name, value)
    return {a.name: a for a in node.attribute}
