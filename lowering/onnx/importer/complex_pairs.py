"""Complex numbers as pairs of floats: ops of users take and give them so; no op of ONNX computes on them."""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects.builtin import ComplexType, TensorType, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, SSAValue
from xdsl.rewriter import Rewriter

from populus.dialects.data import ConstantOp
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.structure import CustomOp
from populus.dialects.onnx.types import as_tensor, unknown
from populus.dialects.signature import input_names, output_names
from populus.dialects.signature.complex_pairs import note
from populus.dialects.support.diagnostics import PopulusError, where

COMPLEX = "complex"  # an attribute of a constant whose numbers are pairs
MOVING = ("Identity",)  # ops of ONNX that read pairs as they read numbers


def is_complex(type: Attribute) -> bool:
    """Tells whether a type is a tensor of complex numbers."""
    ranked = as_tensor(type)
    return ranked is not None and isinstance(ranked.element_type, ComplexType)


def paired(type: Attribute) -> Attribute:
    """Gives the type of pairs for a tensor of complex numbers; another type stays."""
    if (ranked := as_tensor(type)) is None or not isinstance(ranked.element_type, ComplexType):
        return type
    return TensorType(cast("Any", ranked.element_type).element_type, [*ranked.get_shape(), 2])


def to_pairs(function: FuncOp) -> None:
    """Replaces complex numbers by pairs in the types of a function, and records which of its ends are complex.

    Raises PopulusError for an op of ONNX that reads or gives them. A result of a user's op on them counts as complex too, unless the
    model states its type.
    """
    block = function.body.block
    found: set[SSAValue] = set()
    for argument in list(block.args):
        if is_complex(argument.type):
            found.add(_retyped(argument, paired(argument.type)))
    for op in list(function.body.walk()):
        read = [v for v in op.operands if v in found]
        if isinstance(op, ConstantOp):
            if op.attributes.pop(COMPLEX, None) is not None:
                found.add(op.result)
            continue
        if isinstance(op, ReturnOp):
            continue
        gives = [r for r in op.results if is_complex(r.type)]
        if not read and not gives:
            continue
        if not isinstance(op, CustomOp) and not (isinstance(op, OnnxOp) and op.OP_TYPE in MOVING and not op.DOMAIN):
            title = op.title() if isinstance(op, OnnxOp) else op.name
            raise PopulusError(f"{where(op)}: {title} is not computed on complex numbers; an op of your own takes them as pairs, [.., 2]")
        for result in list(op.results):
            if is_complex(result.type) or result.type == unknown:
                found.add(_retyped(result, paired(result.type)))
    last = block.last_op
    results = zip(output_names(function), last.operands) if last is not None else ()
    inputs = (name for name, argument in zip(input_names(function), block.args) if argument in found)
    note(function, inputs, [name for name, value in results if value in found])
    function.update_function_type()


def marked() -> dict[str, Attribute]:
    """Gives the attributes of a constant of pairs."""
    return {COMPLEX: UnitAttr()}


def _retyped(value: SSAValue, type: Attribute) -> SSAValue:
    name, location = value.name_hint, getattr(value, "location", None)
    new = value if value.type == type else Rewriter.replace_value_with_new_type(value, type)
    new.name_hint = name
    if location is not None:
        new.location = location  # pyright: ignore[reportAttributeAccessIssue], a block argument
    return new
