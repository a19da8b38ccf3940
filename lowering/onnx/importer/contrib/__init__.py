"""Functions of ONNX ops for `com.microsoft` ops, which onnxruntime's quantizer and optimizer write.

    QLinearAdd(A, a, az, B, b, bz, c, cz)
      = QuantizeLinear(DequantizeLinear(A, a, az) + DequantizeLinear(B, b, bz), c, cz)

A function is written for one node, so its inputs and attributes are known. Source: onnxruntime, ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import TensorType

from populus.lowering.onnx.importer.contrib import (
    attention,
    channels_last,
    fused,
    grouped,
    norms,
    quantized,
    recurrent,
    tensors,
    weights,
)
from populus.lowering.onnx.importer.contrib.call import Body, Call

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, NodeProto

DOMAIN = "com.microsoft"
BLOCKED = "com.microsoft.nchwc"  # the layout in blocks of channels, which depends on the CPU that wrote the file
OPSET = 23  # RMSNormalization's
EVERYWHERE = frozenset(("SimplifiedLayerNormalization", "ConstantFill"))  # that onnxruntime and PyTorch write in ONNX's own domain
HOST = frozenset(("Tokenizer",))  # ops of the domain that run on the host

_FUNCTIONS: Mapping[str, Body] = {
    **attention.FUNCTIONS,
    **channels_last.FUNCTIONS,
    **fused.FUNCTIONS,
    **grouped.FUNCTIONS,
    **norms.FUNCTIONS,
    **quantized.FUNCTIONS,
    **recurrent.FUNCTIONS,
    **tensors.FUNCTIONS,
    **weights.FUNCTIONS,
}
NAMES = HOST | _FUNCTIONS.keys()  # the ops of the domain


def contrib(node: NodeProto, attributes: Mapping[str, AttributeProto], types: Sequence[TensorType | None] = ()) -> FunctionProto | None:
    """Gives the function of a `com.microsoft` node; None if unknown. Raises PopulusError for unsupported attributes.

    `types`: the type of each input, None where the file does not state it.
    """
    body = _FUNCTIONS.get(node.op_type)
    if body is None:
        return None
    from onnx import helper

    values: dict[str, Any] = {name: helper.get_attribute_value(a) for name, a in attributes.items()}
    inputs, outputs = [bool(name) for name in node.input], [bool(name) for name in node.output]
    return _parsed(body(Call(node.op_type, inputs, outputs, values, types)), node.op_type, len(inputs), len(outputs))


@cache
def _parsed(body: str, op_type: str, inputs: int, outputs: int) -> FunctionProto:
    """Parses the body of a function with inputs x0, x1, .. and outputs y0, y1, .."""
    from onnx import parser

    names = ", ".join(f"x{i}" for i in range(inputs))
    results = ", ".join(f"y{i}" for i in range(outputs))
    opsets = f'<opset_import: ["": {OPSET}, "populus": 1], domain: "{DOMAIN}">'
    return parser.parse_function(f"{opsets} {op_type} ({names}) => ({results}) {{\n{body}\n}}")
