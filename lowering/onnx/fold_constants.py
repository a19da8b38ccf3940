"""`onnx-fold-constants`: what follows from constants and shapes alone becomes constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import ConstantOp, constant, constant_value
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.types import is_static, unknown
from populus.dialects.signature.string_table import KEY
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import is_known, shape_of, size_in_bytes
from populus.lowering.onnx.custom_ops import Customs, custom_ops, overriding
from populus.lowering.onnx.dynamic_sizes import is_marked
from populus.lowering.onnx.host_ops import handled, is_text
from populus.lowering.onnx.inference import Inference, erase_unused, placed
from populus.lowering.onnx.structure import is_control

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 1 << 24  # bytes: a result that is larger, and larger than what it is computed from, stays computed


@dataclass(frozen=True)
class OnnxFoldConstantsPass(ModulePass):
    """Ops whose operands are all constants become constants, shapes of tensors too.

    A result of more than 16 MiB that is larger than the operands stays as it is.
    """

    name = "onnx-fold-constants"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in op.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                inference = Inference(custom_ops(ctx))
                _fold(function.body.block, inference)
                erase_unused(function.body.block)
                function.update_function_type()


def _fold(block: Block, inference: Inference) -> None:
    for op in list(block.ops):
        if not isinstance(op, OnnxOp):
            continue
        if any(map(is_marked, (*op.operands, *op.results))):
            continue  # its size is not what its type says
        try:
            if is_control(op):
                for region in op.regions:
                    _fold(region.block, inference)
            elif (arrays := _arrays(op, inference)) is not None:
                _replace(op, arrays)
        except (PopulusError, VerifyException) as error:
            raise placed(op, error) from error


def _arrays(op: OnnxOp, inference: Inference) -> list[NDArray[Any]] | None:
    """The values of an op's results if they follow from constants and are not too large."""
    if not all(is_static(r.type) for r in op.results):
        return None
    types = [getattr(r.type, "element_type", None) for r in op.results]
    if any(t is None or not is_known(t) for t in types):
        return None
    given = [constant_value(v) for v in op.operands]
    large = sum(_bytes(r) for r in op.results)
    one = op.OP_TYPE == "ConstantOfShape" or (op.OP_TYPE == "Expand" and given[0] is not None and given[0].size == 1)
    if large > LARGEST and large > sum(_bytes(v) for v in op.operands) and not one:
        return None
    if (arrays := inference.arrays(op)) is not None:
        return arrays
    if not given or any(a is None for a in given):
        return None
    return evaluate_constant(op, inference.customs)


def _bytes(value: SSAValue) -> int:
    elements = 1
    for n in shape_of(value.type):
        elements *= n
    return elements * size_in_bytes(getattr(value.type, "element_type"))  # noqa: B009, checked above


def evaluate_constant(op: OnnxOp, customs: Customs, given: Sequence[NDArray[Any]] | None = None) -> list[NDArray[Any]] | None:
    """An op of constants, computed as the op that it becomes: converted in a function of its own and interpreted.

    `customs`: ops that may take its place. `given`: the values of its operands, where they are no constants of the module.
    None if it cannot be converted (then `onnx-to-popart` says why) or draws random numbers.
    """
    from populus.lowering.onnx.to_popart import Converter
    from populus.runtime.interpreter import run_function

    if not op.has_trait(Pure) or any(is_text(v) for v in (*op.operands, *op.results)):
        return None
    if (own := overriding(op, customs)) is not None and own.SEED is not None:
        return None
    block = Block()
    mapper: dict[SSAValue, SSAValue] = {}
    for value, array in zip(op.operands, given or [None] * len(op.operands)):
        if value not in mapper:
            if array is None:
                assert isinstance(value.owner, ConstantOp), value
                copy = value.owner.clone()
            else:
                copy = constant(array)
            block.add_op(copy)
            mapper[value] = copy.result
    block.add_op(copy := op.clone(mapper))
    block.add_op(ReturnOp(*copy.results))
    function = FuncOp("folded", ([], [r.type for r in op.results]), Region(block))
    home = function_around(op)
    if home is not None and KEY in home.attributes:  # strings among its attributes have the same handles there
        function.attributes[KEY] = home.attributes[KEY]
    module = ModuleOp([function])
    try:
        Converter(customs).function(function)
        found = list(run_function(module, {}, function="folded").values())
    except (PopulusError, VerifyException):
        return None
    if home is not None and KEY in function.attributes:
        home.attributes[KEY] = function.attributes[KEY]
    return found


def converted_types(op: OnnxOp, customs: Customs, known: Callable[[SSAValue], NDArray[Any] | None]) -> list[Attribute]:
    """The types of an op's results, from the ops that it becomes. Raises PopulusError if it cannot be converted."""
    from populus.lowering.onnx.to_popart import Converter

    function = FuncOp("scratch", ([handled(v.type) for v in op.operands], []))
    block = function.body.block
    mapper: dict[SSAValue, SSAValue] = dict(zip(op.operands, block.args))
    for value in op.operands:
        if (array := known(value)) is not None and array.dtype != object:
            block.add_op(made := constant(array))
            mapper[value] = made.result
    block.add_op(copy := op.clone(mapper))
    for result in list(copy.results):
        Rewriter.replace_value_with_new_type(result, unknown)
    block.add_op(end := ReturnOp(*copy.results))
    Converter(customs).operation(copy, typed=False)
    return [v.type for v in end.operands]


def function_around(op: Operation) -> FuncOp | None:
    """The function that an op is in; None if it is in none."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, FuncOp):
        parent = parent.parent_op()
    return parent


def _replace(op: OnnxOp, arrays: list[NDArray[Any]]) -> None:
    new: list[Operation] = [constant(a) for a in arrays]
    for c, result in zip(new, op.results):
        c.location = op.location
        assert c.results[0].type == result.type, (op.name, c.results[0].type, result.type)
        c.results[0].name_hint = result.name_hint
    Rewriter.replace_op(op, new, [c.results[0] for c in new])
