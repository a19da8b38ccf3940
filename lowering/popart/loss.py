"""Loss (`popart-loss`): adds the mean loss of an output as a result of `@main`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.popart import calls, train
from populus.dialects.signature import add_argument, input_names, main_of, output_names, replace_results, return_of
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError, between, did_you_mean, locate, named
from populus.dialects.support.element_types import is_float, tensor
from populus.lowering.popart.training_names import updated_name

LABELS, LOSS, LOSSES_EACH = "labels", "loss", "losses"  # names of the new input and results

LOSSES: dict[str, Callable[..., train.CrossEntropyOp | popart.BinaryOp]] = {
    "absolute_error": train.AbsoluteErrorOp,
    "binary_cross_entropy": train.BinaryCrossEntropyOp,
    "cross_entropy": train.CrossEntropyOp,
    "mean_squared_error": train.SquaredErrorOp,
}
IDENTITY = "identity"  # the model computes the losses itself, from inputs of its own
LOSS_NAMES = (*LOSSES, IDENTITY)


@dataclass(frozen=True)
class PopartLossPass(ModulePass):
    """Adds the input `labels`, and after the other results `losses`, one for each label, and `loss`, their mean.

    `loss` is one of these. `cross_entropy` takes logits, with the classes in dimension `axis`, and 32-bit class
    numbers. `mean_squared_error`, `absolute_error` and `binary_cross_entropy` (of logits) take labels of the
    output's type. With `identity`, the output is the losses, and there are no labels. `output`: the output, if
    there are several.

    If a softmax or its logarithm produces the output, cross entropy takes that op's operand instead. The loss is
    the same, without the logarithm of a rounded probability.

    Raises PopulusError for an unknown loss or output, and for an output that is not of floats or lacks dimension
    `axis`. Bit for bit.
    """

    name = "popart-loss"

    loss: str = "cross_entropy"
    output: str | None = None
    axis: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_of(op)
        if self.loss not in LOSS_NAMES:
            raise PopulusError(f"no loss '{self.loss}'{did_you_mean(self.loss, LOSS_NAMES)}")
        outputs = dict(zip(output_names(function), return_of(function).operands))
        name, value = self._chosen({n: v for n, v in outputs.items() if not n.startswith(updated_name(""))})
        if not is_float(calls.element(value)):
            raise PopulusError(f"the output '{name}' is {value.type}; a loss is of floats")
        if self.loss == IDENTITY:  # the output may have the same name as the loss that it is
            outputs = {n: v for n, v in outputs.items() if n != name}
        if clash := {LABELS} & set(input_names(function)) if self.loss != IDENTITY else set[str]():
            raise PopulusError(f"the model has a tensor '{min(clash)}' already; rename it")
        if clash := {LOSS, LOSSES_EACH} & set(outputs):
            raise PopulusError(f"the model has a tensor '{min(clash)}' already; rename it")
        last = return_of(function)
        b = Builder(InsertPoint.before(last))
        before = last.prev_op
        each = value
        if self.loss != IDENTITY:
            logits, properties, type = self._of(name, value)
            each = calls.insert(b, LOSSES[self.loss](logits, add_argument(function, LABELS, type, LABELS), **properties))
        mean = calls.insert(b, popart.ReduceMeanOp(each, axes=tuple(range(len(calls.shape(each))))))
        locate(between(function.body.block, before, last), named(LOSS))
        replace_results(function, {**outputs, LOSSES_EACH: each, LOSS: mean})

    def _chosen(self, outputs: dict[str, SSAValue]) -> tuple[str, SSAValue]:
        if self.output is None:
            if len(outputs) != 1:
                raise PopulusError(f"the model has {len(outputs)} outputs, so say of which the loss is: {', '.join(outputs)}")
            return next(iter(outputs.items()))
        if self.output not in outputs:
            raise PopulusError(f"there is no output '{self.output}'{did_you_mean(self.output, outputs)}")
        return self.output, outputs[self.output]

    def _of(self, name: str, value: SSAValue) -> tuple[SSAValue, dict[str, int], TensorType[Attribute]]:
        """Returns the operand of the loss, the loss op's properties, and the type of the labels."""
        type = tensor(calls.shape(value), calls.element(value))
        if self.loss != "cross_entropy":
            return value, {}, type
        shape = calls.shape(value)
        if not -len(shape) <= self.axis < len(shape):
            raise PopulusError(f"the output '{name}' is {type} and has no dimension {self.axis} of classes")
        axis = self.axis % len(shape)
        while isinstance(value.owner, popart.SoftmaxOp | popart.LogSoftmaxOp) and value.owner.axis == axis:
            value = value.owner.x
        return value, {"axis": axis}, tensor(shapes.reduced(shape, [axis], keep=False), i32)
