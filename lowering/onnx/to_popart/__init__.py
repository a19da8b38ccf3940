"""The pass `onnx-to-popart`: every op of the `onnx` level becomes `popart` ops, and none is left.

`RULES` maps an op type to its conversion; the files follow ONNX's categories. An op without a rule that ONNX defines as
a function of other ops is expanded to that function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, bf16, f16, f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import ConstantOp, constant, constant_value
from populus.dialects.onnx.protos import function_attributes, function_body, newest_opset
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.structure import CustomOp, YieldOp
from populus.dialects.onnx.types import as_tensor, string
from populus.dialects.popart.base import PopartOp
from populus.dialects.signature.bounded_dimensions import RESULTS, set_sizes
from populus.dialects.support.diagnostics import PopulusError, between, place
from populus.dialects.support.element_types import element_type_of, is_known, shape_of
from populus.dialects.support.uses import LateUses, replace_uses
from populus.lowering.onnx.constant_evaluation import ConstantEvaluation
from populus.lowering.onnx.counted_masks import marked_sum
from populus.lowering.onnx.custom_ops import Customs, build_custom, build_overriding, custom_ops, overriding
from populus.lowering.onnx.dynamic_sizes import reads_sizes
from populus.lowering.onnx.importer.build import NodeBuilder, Scope, standard
from populus.lowering.onnx.inference import WRITE_OUT, Inference, erase_unused, placed
from populus.lowering.onnx.size_arithmetic import sizes_of
from populus.lowering.onnx.structure import is_control
from populus.lowering.onnx.to_popart import (
    bounded,
    cast,
    control_flow,
    determinant,
    einsum,
    fourier,
    lookup,
    masked_ops,
    masked_windows,
    math,
    ml,
    nn,
    open_counts,
    open_custom,
    open_shapes,
    open_sizes,
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
from populus.lowering.onnx.to_popart.masks import Masks, Place, by_class
from populus.lowering.onnx.valid_sizes import ValidSizes, recall_results, size_of, stated

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

SUMMED_WIDE = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")  # functions whose sums are not their results


@dataclass(frozen=True)
class OnnxToPopartPass(ModulePass):
    """Converts ONNX's ops of all opsets to the smaller set of `popart`. Every shape has to be static.

    gradients: floats are zero beyond the valid part of bounded dimensions, so that gradients are.
    """

    name = "onnx-to-popart"
    gradients: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Converts every function of the module that has a body."""
        for function in op.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                erase_unused(function.body.block)
                Converter(custom_ops(ctx), zeroed=self.gradients).function(function)


def of_half(value: SSAValue) -> bool:
    """Tells whether a value is a tensor of 16-bit floats."""
    ranked = as_tensor(value.type)
    return ranked is not None and ranked.element_type in (f16, bf16)


class Converter:
    """One walk over a function that replaces each op by the result of its conversion."""

    def __init__(self, customs: Customs, write_out: int = WRITE_OUT, zeroed: bool = False):
        self.customs = customs
        self.valid = ValidSizes()
        self.masks = Masks(self.valid, by_class({**masked_ops.RULES, **masked_windows.RULES}), zeroed)
        self.inference = Inference(customs, ConstantEvaluation(customs, Converter), write_out, self.valid)
        self.converted: list[Operation] = []
        self.uses: LateUses | None = None  # of a function without bounded dimensions

    def function(self, function: FuncOp) -> None:
        """Converts all ops of a function, and adds the valid lengths of its outputs as results.

        Raises PopulusError for an argument that is no tensor, or whose element type tiles cannot hold.
        """
        block = function.body.block
        for argument in block.args:
            type = as_tensor(argument.type)
            if type is None or not is_known(type.element_type):
                strings = type is not None and type.element_type == string
                reason = "strings are handles here (onnx-host-calls)" if strings else "tiles cannot hold it yet"
                raise PopulusError(f"{place(argument.location) or 'an argument'}: the model's input is {argument.type}; {reason}")
        self.enter(function)
        self.uses = None if self.valid.bounds else LateUses(block)
        for op in list(block.ops):
            self.operation(op)
        if self.uses:
            self.uses.settle_all()
        self.leave(function)
        self.finish()
        erase_unused(block)
        function.update_function_type()

    def enter(self, function: FuncOp) -> None:
        """Begins with a function: the sizes of its arguments are known."""
        self.inference.enter(function)
        self.masks.enter(function)
        first = function.body.block.first_op
        for argument in function.body.block.args:
            value = argument if first is None else self.masks.safe(Place.before(first, self.masks), argument)
            if value is not argument:
                argument.replace_uses_with_if(value, lambda use, new=value: use.operation is not new.owner)

    def leave(self, function: FuncOp) -> None:
        """Ends a function with bounded dimensions: moves valid elements of its results to the front, and records their sizes.

        A size that the data decide becomes a result, `NAME.count`.
        """
        last = function.body.block.last_op
        if not self.valid.bounds or last is None:
            return
        end = Place.before(last, self.masks)
        values = [open_shapes.compacted(end, v) for v in last.operands]
        last.operands = values
        if self.valid.has_ranges:
            set_sizes(function, RESULTS, [stated(self.valid.of(v)) for v in values])
        bounded.give_counts(function, end, values)

    def finish(self) -> None:
        """Erases the converted ops."""
        self.inference.finish()
        for op in reversed(self.converted):
            op.detach()
            op.erase()

    def operation(self, op: Operation, typed: bool = True) -> None:
        """Converts one op.

        `typed`: the op's results have types already, which the types of its replacement have to equal.
        Raises PopulusError, with the op's location, if the op cannot be converted.
        """
        if not isinstance(op, OnnxOp | CustomOp) or op in self.inference.resolved:
            return
        if self.uses:
            self.uses.settle(op)
        try:
            outputs = self.custom(op) if isinstance(op, CustomOp) else self.outputs(op)
            self.replace(op, outputs, typed)
        except (PopulusError, VerifyException) as error:
            raise placed(op, error) from error

    def replace(self, op: Operation, outputs: list[Output], typed: bool = True) -> None:
        """Replaces the results of an op by `outputs`. Raises PopulusError if a type differs and `typed` is set."""
        results: list[SSAValue | None] = list(op.outputs) if isinstance(op, OnnxOp) else list(op.results)
        if len(outputs) < len(results):
            raise PopulusError(f"it has {len(results)} outputs, and gives {len(outputs)}")
        replaced: list[tuple[SSAValue, SSAValue]] = []
        for result, output in zip(results, outputs):
            if result is None or output is None:
                assert result is None or not result.uses, op.name
            else:
                if typed and output.type != result.type:
                    raise PopulusError(f"its result is {result.type} by ONNX's inference, and {output.type} by its conversion")
                output.name_hint = output.name_hint or result.name_hint
                replaced.append((result, output))
        if self.uses:
            for result, output in replaced:
                self.uses.replace(result, output)
        else:
            replace_uses(replaced)
        self.converted.append(op)

    def custom(self, op: CustomOp) -> list[Output]:
        """Builds the op of a user's class in place of a custom node, and gives its results."""
        built = build_custom(op, self.customs, self.inference.known)
        built.location = op.location
        assert op.parent is not None
        constants = [v.owner for v in built.operands if isinstance(v.owner, ConstantOp) and v.owner.parent is None]
        concerned = self.valid.concerns(op.operands)
        if not concerned and any(r.uses for r in op.results) and (arrays := self.inference.folded(built)) is not None:
            new: list[Operation] = [constant(a) for a in arrays]
        else:
            new = [*dict.fromkeys(constants), *([] if concerned else [built])]
        for made in new:
            made.location = op.location
            op.parent.insert_op_before(made, op)
        if concerned:
            assert isinstance(built, PopartOp)
            return [*open_custom.converted(Place.before(op, self.masks), built)]
        return [r for made in new for r in made.results] if built.parent is None else list(built.results)

    def outputs(self, op: OnnxOp) -> list[Output]:
        """Gives the replacements of an op's outputs: constants, the result of its rule, or of its function."""
        if reads_sizes(op, self.valid):
            return self.open_sized(op)
        c = Conversion(op, Builder(InsertPoint.before(op)), self.masks if is_control(op) else None)
        if self.valid.concerns(op.operands) and not is_control(op):
            open_counts.prepare(Conversion(op, c.builder, self.masks))
            c.inputs = op.inputs
        if (name := marked_sum(op)) is not None and name in self.masks.sizes:
            return [bounded.count_named(Conversion(op, c.builder, self.masks), name)]
        outputs = self.converted_to(c)
        if c.counts:
            self.count(c, outputs)
        return outputs

    def count(self, c: Conversion, outputs: list[Output]) -> None:
        """Defines the sizes of results that the data decide, by the names that the op records; `outputs` replace its results."""
        recall_results(c.op, [v for i, v in enumerate(outputs) if c.op.output(i) is not None], self.valid)
        for i, length in c.counts.items():
            value = outputs[i]
            assert value is not None, (c.op, i)
            ((_, times),) = (count := size_of(self.valid.of(value)[length.axis])).terms
            (name,) = count.names()
            if name not in self.masks.sizes:
                self.masks.define(name, bounded.divided(c, bounded.count_of(length), times), c.op)
            outputs[i] = self.masks.safe(Conversion(c.op, c.builder, self.masks), value)

    def open_sized(self, op: OnnxOp) -> list[Output]:
        """Converts an op whose operands have bounded dimensions, or are made of sizes. Raises PopulusError if it is not known how."""
        c = Conversion(op, Builder(InsertPoint.before(op)), self.masks)
        if (found := sizes_of(op, self.valid, constant_value)) is not None:
            array, kind = found
            if array.dtype != object:
                return [self.masks.plain(c, constant(array))]
            return [self.masks.materialised(c, array, kind)]
        if (own := overriding(op, self.customs)) is not None:
            raise open_shapes.refused(c, own.name)
        assert op.parent is not None
        before = op.prev_op
        rule, prepare = (None, None) if op.DOMAIN else (open_sizes.rule_of(c), open_sizes.UNIFORM.get(op.OP_TYPE))
        if rule is not None:
            outputs = rule(c)
            outputs = outputs if isinstance(outputs, list) else [outputs]
        elif prepare is not None:
            prepare(c)
            outputs = self.converted_to(c)
            if op.OP_TYPE in open_sizes.KEEPING:
                outputs = [None if v is None else self.masks.state(v, self.valid.of(c.input(0))) for v in outputs]
        elif function_body(op) is not None and (op.OP_TYPE not in RULES or op.DOMAIN):
            outputs = self.expanded(op)
        else:
            raise open_shapes.refused(c)
        outputs = [None if v is None else self.masks.safe(c, v) for v in outputs]
        for made in between(op.parent, before, op):
            if any(v in self.valid.axes for v in made.operands) and made not in self.masks.handled and made not in self.converted:
                raise open_shapes.refused(c)
        return outputs

    def converted_to(self, c: Conversion) -> list[Output]:
        """Converts an op without regard to the valid lengths of its inputs."""
        op = c.op
        if is_control(op):
            outputs = control_flow.RULES[op.OP_TYPE](c, self.block)
            recall_results(op, [v for i, v in enumerate(outputs) if op.output(i) is not None], self.valid)
            return [v if v is None or i in c.counts else self.masks.safe(c, v) for i, v in enumerate(outputs)]
        if (own := overriding(op, self.customs)) is not None:
            return list(c.builder.insert(build_overriding(own, op)).results)
        arrays = None if self.valid.concerns(op.operands) else self.inference.arrays(op)
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
        """Expands an op to the function by which ONNX defines it, and converts that.

        Raises PopulusError if ONNX defines no function for the op.
        """
        if op.OP_TYPE in SUMMED_WIDE and not op.DOMAIN and any(of_half(v) for v in op.operands):
            return self.widened(op)
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

    def widened(self, op: OnnxOp) -> list[Output]:
        """Expands an op on halves as that on floats, whose results are rounded."""
        c = Conversion(op, Builder(InsertPoint.before(op)), self.masks if self.valid.concerns(op.operands) else None)
        operands = [c.wide(v) if of_half(v) else v for v in op.operands]
        types = [TensorType(f32, shape_of(v.type)) if of_half(v) else v.type for v in op.results]
        wide = type(op).create(operands=operands, result_types=types, properties=op.properties.copy())
        wide.location = op.location
        c.builder.insert(wide)
        outputs = self.expanded(wide)
        self.converted.append(wide)
        pairs = zip(outputs, op.outputs)
        return [v if v is None or stated is None else c.cast(v, element_type_of(stated.type)) for v, stated in pairs]

    def inline(self, block: Block, before: Operation, end: YieldOp) -> list[SSAValue]:
        """Moves a block's ops in front of `before`, converts them there, and gives the values that `end` yields."""
        assert before.parent is not None
        moved = [op for op in block.ops if op is not end]
        for op in moved:
            op.detach()
            before.parent.insert_op_before(op, before)
        for op in moved:
            self.operation(op)
        values = list(end.operands)
        end.detach()
        end.erase()  # else it counts as a use of the values
        return values

    def block(self, block: Block) -> list[SSAValue]:
        """Converts the ops of a region in place. Erases its terminator, and gives the values that it yielded.

        Raises PopulusError; then the caller may erase the block.
        """
        end = block.last_op
        assert isinstance(end, YieldOp), end
        converted, resolved = len(self.converted), len(self.inference.resolved)
        try:
            for op in list(block.ops):
                if op is not end:
                    self.operation(op)
        except (PopulusError, VerifyException):
            del self.converted[converted:], self.inference.resolved[resolved:]
            raise
        values = list(end.operands)
        end.detach()
        end.erase()
        return values
