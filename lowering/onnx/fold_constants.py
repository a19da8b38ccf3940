"""The pass `onnx-fold-constants`: results that depend on constants and shapes alone become constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import constant, is_loaded
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.types import is_static
from populus.dialects.support.budget import elements
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, is_byte, is_known, shape_of, value_bytes
from populus.lowering.onnx.custom_ops import custom_ops
from populus.lowering.onnx.inference import Inference, erase_unused, placed
from populus.lowering.onnx.structure import is_control
from populus.lowering.onnx.to_popart import Converter
from populus.lowering.onnx.valid_sizes import recall

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 1 << 24  # bytes: a larger result is folded only if its operands are at least as large


@dataclass(frozen=True)
class OnnxFoldConstantsPass(ModulePass):
    """Replaces ops whose operands are all constants by constants; shapes of tensors too.

    A result of more than 16 MiB that is larger than the operands is not folded.
    """

    name = "onnx-fold-constants"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Folds every function of the module that has a body."""
        for function in op.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                inference = Converter(custom_ops(ctx)).inference
                inference.enter(function)
                _fold(function.body.block, inference)
                erase_unused(function.body.block)
                function.update_function_type()


def _fold(block: Block, inference: Inference) -> None:
    """Folds the ops of a block, and of its branches and loops."""
    for op in list(block.ops):
        if not isinstance(op, OnnxOp):
            continue
        recall(op, inference.valid)
        if inference.valid.concerns((*op.operands, *op.results)):
            continue  # only part of it is valid
        try:
            if is_control(op):
                for region in op.regions:
                    _fold(region.block, inference)
            elif (arrays := _arrays(op, inference)) is not None:
                _replace(op, arrays)
        except (PopulusError, VerifyException) as error:
            raise placed(op, error) from error


def _arrays(op: OnnxOp, inference: Inference) -> list[NDArray[Any]] | None:
    """Gives the results of an op if they depend on constants alone and are not too large; else None."""
    if not all(is_static(r.type) for r in op.results):
        return None
    types = [getattr(r.type, "element_type", None) for r in op.results]
    if any(t is None or not is_known(t) for t in types):
        return None
    large = sum(value_bytes(r) for r in op.results)
    one = op.OP_TYPE == "ConstantOfShape" or (op.OP_TYPE == "Expand" and elements(shape_of(op.operands[0].type)) == 1)
    if large > LARGEST and large > sum(value_bytes(v) for v in op.operands) and not one:
        return None
    if (arrays := inference.arrays(op)) is not None:
        return arrays
    if not op.operands or not all(map(is_loaded, op.operands)) or _is_weight(op):
        return None
    return inference.evaluation.values(op)


def _is_weight(op: OnnxOp) -> bool:
    """Tells whether an op dequantizes weights, which products take as integers (`popart-fuse`)."""
    x = op.operands[0].type
    rank, element = len(shape_of(x)), element_type_of(x)
    return op.OP_TYPE == "DequantizeLinear" and (rank > 1 if is_byte(element) else rank > 0 and element == i32)


def _replace(op: OnnxOp, arrays: list[NDArray[Any]]) -> None:
    """Replaces an op by constants with its location and name hints."""
    new: list[Operation] = [constant(a) for a in arrays]
    for c, result in zip(new, op.results):
        c.location = op.location
        assert c.results[0].type == result.type, (op.name, c.results[0].type, result.type)
        c.results[0].name_hint = result.name_hint
    Rewriter.replace_op(op, new, [c.results[0] for c in new])
