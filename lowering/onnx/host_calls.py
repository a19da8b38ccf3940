"""The pass `onnx-host-calls`: strings become handles, and ops for the host become `host.call`."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.data import constant
from populus.dialects.host import CallOp
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.structure import CustomOp, StringsOp
from populus.dialects.signature import input_names, output_names
from populus.dialects.signature.string_table import Texts, handles, set_texts, texts
from populus.lowering.onnx.host_ops import check_strings, function_of, handled, is_text, params_of
from populus.lowering.onnx.inference import set_type


@dataclass(frozen=True)
class OnnxHostCallsPass(ModulePass):
    """Replaces ops that tiles cannot run by `host.call`, and strings by handles, which tiles move and compare.

    A handle is the index of a string in a table of the host. Attributes of the function record the strings of
    constants, and the inputs and outputs that are strings. Raises PopulusError for an op that needs the order
    of strings.
    """

    name = "onnx-host-calls"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites every function of the module that has a body."""
        for function in op.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                _function(function)


def _function(function: FuncOp) -> None:
    """Rewrites one function; does nothing if it has no strings and no op for the host."""
    ops = [op for op in function.body.walk() if isinstance(op, OnnxOp | CustomOp | StringsOp)]
    if not any(isinstance(op, StringsOp) or function_of(op) or any(map(is_text, (*op.operands, *op.results))) for op in ops) and not any(
        map(is_text, function.body.block.args)
    ):
        return
    _note_streams(function)
    params = {op: params_of(op) for op in ops if not isinstance(op, StringsOp) and function_of(op)}  # before types lose their strings
    names = {op: function_of(op) for op in params}
    for op in ops:
        if isinstance(op, StringsOp):
            import numpy as np

            numbers = handles(function, (s.data for s in op.value))
            new: Operation = constant(np.array(numbers, np.int32).reshape(op.array().shape))
        elif (name := names.get(op)) is not None:
            new = CallOp(name, list(op.operands), [handled(r.type) for r in op.results], params[op])
        else:
            if isinstance(op, OnnxOp):
                check_strings(op)
            continue
        new.location = op.location
        for old, result in zip(op.results, new.results):
            result.name_hint = old.name_hint
        Rewriter.insert_op(new, InsertPoint.before(op))
        for old, result in zip(list(op.results), new.results):
            old.replace_all_uses_with(result)
        Rewriter.erase_op(op)
    _retype(function)


def _note_streams(function: FuncOp) -> None:
    """Records the inputs and outputs that are strings."""
    last = function.body.block.last_op
    assert isinstance(last, ReturnOp), last
    inputs = (n for n, a in zip(input_names(function), function.body.block.args) if is_text(a))
    outputs = (n for n, r in zip(output_names(function), last.operands) if is_text(r))
    set_texts(function, Texts(texts(function).table or ("",), tuple(inputs), tuple(outputs)))


def _retype(function: FuncOp) -> None:
    """Replaces strings by handles in all types."""
    for region in [function.body, *(r for op in function.body.walk() for r in op.regions)]:
        for block in region.blocks:
            for argument in list(block.args):
                set_type(argument, handled(argument.type))
            for op in block.ops:
                for result in list(op.results):
                    set_type(result, handled(result.type))
    function.update_function_type()
