"""`onnx-to-popart`: every op of the `onnx` level becomes `popart` ops; afterwards none is left.

`RULES` has what each op becomes, by ONNX's categories in files of their names. An op without a rule that ONNX states as a
function of other ops is written out as that function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import constant, constant_value
from populus.dialects.onnx.protos import function_attributes, function_body, newest_opset
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.structure import CustomOp, YieldOp
from populus.dialects.onnx.types import as_tensor, string
from populus.dialects.support.diagnostics import PopulusError, place
from populus.dialects.support.element_types import is_known
from populus.lowering.onnx.constant_evaluation import ConstantEvaluation
from populus.lowering.onnx.custom_ops import Customs, build_custom, build_overriding, custom_ops, overriding
from populus.lowering.onnx.dynamic_sizes import MEASURES, Bound, passed_on
from populus.lowering.onnx.importer.build import Builder as NodeBuilder
from populus.lowering.onnx.importer.build import Scope, standard
from populus.lowering.onnx.inference import WRITE_OUT, Inference, erase_unused, placed
from populus.lowering.onnx.structure import is_control
from populus.lowering.onnx.to_popart import (
    bounded,
    cast,
    control_flow,
    determinant,
    einsum,
    fourier,
    lookup,
    math,
    ml,
    nn,
    quantization,
    random,
    reduction,
    resize,
    rnn,
    sample,
    scatter,
    tensor,
    training,
    trees,
)
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rule

RULES: Mapping[str, Rule] = {
    **bounded.RULES,
    **cast.RULES,
    **determinant.RULES,
    **einsum.RULES,
    **fourier.RULES,
    **lookup.RULES,
    **math.RULES,
    **ml.RULES,
    **nn.RULES,
    **quantization.RULES,
    **random.RULES,
    **reduction.RULES,
    **resize.RULES,
    **rnn.RULES,
    **sample.RULES,
    **scatter.RULES,
    **tensor.RULES,
    **training.RULES,
    **trees.RULES,
}


@dataclass(frozen=True)
class OnnxToPopartPass(ModulePass):
    """ONNX's ops of all opsets as the few general ones of `popart`. Every shape is static before."""

    name = "onnx-to-popart"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in op.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                erase_unused(function.body.block)
                Converter(custom_ops(ctx)).function(function)


class Converter:
    """One walk over a function, in which each op is replaced by what its rule gives."""

    def __init__(self, customs: Customs, write_out: int = WRITE_OUT):
        self.customs = customs
        self.inference = Inference(customs, ConstantEvaluation(customs, Converter), write_out)
        self.converted: list[Operation] = []
        self.bounds: dict[SSAValue, Bound] = {}  # of values that are valid in part

    def function(self, function: FuncOp) -> None:
        block = function.body.block
        for argument in block.args:
            type = as_tensor(argument.type)
            if type is None or not is_known(type.element_type):
                strings = type is not None and type.element_type == string
                reason = "strings are handles here (onnx-host-calls)" if strings else "tiles cannot hold it yet"
                raise PopulusError(f"{place(argument.location) or 'an argument'}: the model's input is {argument.type}; {reason}")
        for op in list(block.ops):
            self.operation(op)
        bounded.give_counts(function, self.bounds)
        self.finish()
        erase_unused(block)
        function.update_function_type()

    def finish(self) -> None:
        """Erases the ops that were converted."""
        self.inference.finish()
        for op in reversed(self.converted):
            op.detach()
            op.erase()

    def operation(self, op: Operation, typed: bool = True) -> None:
        """Converts an op. `typed`: its results have their types already, which those of what it becomes have to be."""
        if not isinstance(op, OnnxOp | CustomOp) or op in self.inference.resolved:
            return
        try:
            outputs = self.custom(op) if isinstance(op, CustomOp) else self.outputs(op)
            self.replace(op, outputs, typed)
        except (PopulusError, VerifyException) as error:
            raise placed(op, error) from error

    def replace(self, op: Operation, outputs: list[Output], typed: bool = True) -> None:
        results: list[SSAValue | None] = list(op.outputs) if isinstance(op, OnnxOp) else list(op.results)
        assert len(outputs) >= len(results), (op.name, len(outputs))
        for result, output in zip(results, outputs):
            if result is None or output is None:
                assert result is None or not result.uses, op.name
            else:
                if typed and output.type != result.type:
                    raise PopulusError(f"its result is {result.type} by ONNX's inference, and {output.type} by what computes it")
                output.name_hint = output.name_hint or result.name_hint
                result.replace_all_uses_with(output)
        self.converted.append(op)

    def custom(self, op: CustomOp) -> list[Output]:
        built = build_custom(op, self.customs)
        built.location = op.location
        assert op.parent is not None
        op.parent.insert_op_before(built, op)
        return list(built.results)

    def outputs(self, op: OnnxOp) -> list[Output]:
        """What replaces the outputs of an op: constants, what its rule gives, or what the function that it is gives."""
        c = Conversion(op, Builder(InsertPoint.before(op)), self.bounds)
        bounds = {i: self.bounds[v] for i, v in enumerate(op.inputs) if v is not None and v in self.bounds}
        if bounds:
            return self.partly_valid(c, bounds)
        outputs = self.converted_to(c)
        self.bounds.update({v: c.counts[i] for i, v in enumerate(outputs) if v is not None and i in c.counts})
        return outputs

    def partly_valid(self, c: Conversion, bounds: Mapping[int, Bound]) -> list[Output]:
        """The same, of an op that reads what is valid in part."""
        passed = passed_on(c.op, bounds, constant_value)
        if c.op.OP_TYPE in MEASURES:
            return [bounded.measured(c, bounds[0])]
        new = {c.input(i): bounded.filled(c, c.input(i), bounds[i], fill) for i, fill in passed.fill.items()}
        c.op.operands = [new.get(v, v) for v in c.op.operands]
        outputs = self.converted_to(Conversion(c.op, c.builder, self.bounds))
        self.bounds.update({v: passed.outputs[i] for i, v in enumerate(outputs) if v is not None and i in passed.outputs})
        return outputs

    def converted_to(self, c: Conversion) -> list[Output]:
        """What replaces the outputs of an op, whatever of its inputs is valid."""
        op = c.op
        if is_control(op):
            return control_flow.RULES[op.OP_TYPE](c, self.block)
        if (own := overriding(op, self.customs)) is not None:
            return list(c.builder.insert(build_overriding(own, op)).results)
        arrays = self.inference.arrays(op)
        if arrays is not None:
            made = [c.builder.insert(constant(a)) for a in arrays]
            for new in made:
                new.location = op.location
            return [new.result for new in made]
        rule = RULES.get(f"{op.DOMAIN}.{op.OP_TYPE}" if op.DOMAIN else op.OP_TYPE)
        if rule is not None:
            outputs = rule(c)
            return outputs if isinstance(outputs, list) else [outputs]
        return self.expanded(op)

    def expanded(self, op: OnnxOp) -> list[Output]:
        """The op as the function of other ops that ONNX states it to be."""
        body = function_body(op)
        if body is None:
            raise PopulusError(f"there is no conversion of {op.OP_TYPE} (opset {op.VERSION} of '{op.DOMAIN or 'ai.onnx'}') yet")
        scratch = Block()
        scope = Scope(scratch)
        for parameter, value in zip(body.input, op.inputs):
            if value is not None:
                scope.values[parameter] = value
        opsets = {standard(o.domain): o.version for o in body.opset_import}
        opsets.setdefault("", newest_opset())  # functions of other domains are written for the ONNX that ships them
        nodes = NodeBuilder(opsets, location=op.OP_TYPE)
        nodes.function(body, scope, function_attributes(op))
        scratch.add_op(end := YieldOp(*(nodes.output(name, scope) for name, o in zip(body.output, op.outputs) if o is not None)))
        for inner in scratch.walk():
            inner.location = op.location
        self.inference.block(scratch)
        values = self.inline(scratch, op, end)
        return [None if o is None else values.pop(0) for o in op.outputs]

    def inline(self, block: Block, before: Operation, end: YieldOp) -> list[SSAValue]:
        """Moves a block's ops in front of an op, converts them there, and gives what the block yields."""
        assert before.parent is not None
        moved = [op for op in block.ops if op is not end]
        for op in moved:
            op.detach()
            before.parent.insert_op_before(op, before)
        for op in moved:
            self.operation(op)
        values = list(end.operands)
        end.detach()
        end.erase()  # it would count as a use of them
        return values

    def block(self, block: Block) -> list[SSAValue]:
        """Converts the ops of a region where they stand; what it gives, without the op that gives it."""
        end = block.last_op
        assert isinstance(end, YieldOp), end
        for op in list(block.ops):
            if op is not end:
                self.operation(op)
        values = list(end.operands)
        end.detach()
        end.erase()
        return values
