"""Ops that ONNX defines as functions of other ops: the function's ops, with their shapes and the constants that shapes are made of."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, SSAValue

from populus.dialects.data import ConstantOp, constant
from populus.dialects.onnx.protos import function_attributes, function_body, newest_opset
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.structure import YieldOp
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.build import NodeBuilder, Scope, standard
from populus.lowering.onnx.to_popart import Converter
from populus.proof.report import Undecided


def expanded(op: OnnxOp) -> tuple[Block, dict[SSAValue, SSAValue]]:
    """Makes a block of the function's ops, whose last op has the results that are used, and the block's arguments by operand.

    Results that only constants decide are computed. Raises Undecided if ONNX defines no function for the op.
    """
    body = function_body(op)
    if body is None:
        raise Undecided("no definition")
    block = Block(arg_types=op.operand_types)
    values: dict[SSAValue, SSAValue] = dict(zip(op.operands, block.args))
    for value in dict.fromkeys(op.operands):
        if isinstance(value.owner, ConstantOp):
            block.add_op(copy := value.owner.clone())
            values[value] = copy.result
    scope = Scope(block)
    for parameter, value in zip(body.input, op.inputs):
        if value is not None:
            scope.values[parameter] = values[value]
    opsets = {standard(o.domain): o.version for o in body.opset_import}
    opsets.setdefault("", newest_opset())
    nodes, inference = NodeBuilder(opsets, location=op.OP_TYPE), Converter({}).inference
    try:
        nodes.function(body, scope, function_attributes(op))
        block.add_op(YieldOp(*(nodes.output(name, scope) for name, o in zip(body.output, op.outputs) if o is not None)))
        inference.block(block)
        for inner in list(block.ops):
            if isinstance(inner, OnnxOp) and not inner.regions and (arrays := inference.arrays(inner)) is not None:
                for result, array in zip(inner.results, arrays):
                    block.insert_op_before(made := constant(array), inner)
                    result.replace_all_uses_with(made.result)
                inner.detach()
                inner.erase()
    except PopulusError as why:
        raise Undecided(str(why)) from None
    if not all(isinstance(v.type, TensorType) for inner in block.ops for v in inner.results):
        raise Undecided("a function of unknown shapes")
    return block, {v: k for k, v in values.items()}
