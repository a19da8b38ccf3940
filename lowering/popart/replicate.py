"""Data parallelism (`popart-replicate`): results of one replica become those of all."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.signature import input_names, main_of, output_names, replace_results, return_of
from populus.dialects.support.diagnostics import PopulusError, named
from populus.lowering.popart.loss import LOSS
from populus.lowering.popart.training_names import gradient_name, rows_name, updated_name

REDUCTIONS = ("mean", "add")


@dataclass(frozen=True)
class PopartReplicatePass(ModulePass):
    """Reduces each result `Gradient___w` of an input w over groups of replicas, before an optimizer reads it.

    `replicas`: the size of a group, `stride`: the distance of its members. `reduction`: `mean`, or `add` for the sum.
    The result `loss` and the running statistics `Updated___..` become means over the group, whatever the reduction.
    Of a gradient with a result `Rows___w`, the rows of all members are gathered. A collective is where its operand
    is made, so that the rest of the backward pass can overlap with it; `popart-bucket` joins small ones.

    With `popart-accumulate`, this pass belongs to the program that updates the weights, so that replicas meet once
    for each update. Raises PopulusError for an unknown reduction, and if no result is to be reduced. To rounding.
    """

    name = "popart-replicate"

    replicas: int = 1
    stride: int = 1
    reduction: str = "mean"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_group(self.replicas, self.stride)
        if self.reduction not in REDUCTIONS:
            raise PopulusError(f"reduction = {self.reduction}; one of {', '.join(REDUCTIONS)} is expected")
        function = main_of(op)
        inputs, names = input_names(function), output_names(function)
        results = dict(zip(names, return_of(function).operands))
        gradients = [name for name in inputs if gradient_name(name) in results]
        means = [name for name in names if name == LOSS or name.startswith(updated_name(""))]
        if not gradients and not means:
            raise PopulusError("no result is a gradient, a loss or a statistic; popart-autodiff comes before this pass")
        if self.replicas == 1:
            return
        made: dict[tuple[SSAValue, str], SSAValue] = {}

        def reduced(value: SSAValue, reduction: str, name: str) -> SSAValue:
            if (value, reduction) not in made:
                b = after(function, value)
                found = calls.insert(b, popart.AllReduceOp(value, reduction=reduction, size=self.replicas, stride=self.stride))
                found.owner.location = named(name)  # pyright: ignore[reportAttributeAccessIssue], a result
                made[value, reduction] = found
            return made[value, reduction]

        for name in means:
            results[name] = reduced(results[name], "mean", name)
        for weight in gradients:
            name = gradient_name(weight)
            if rows_name(weight) in results:
                results[rows_name(weight)] = self._gathered(function, results[rows_name(weight)])
                share = 1 / self.replicas if self.reduction == "mean" else 1
                all = self._gathered(function, results[name])
                results[name] = calls.map(after(function, all), Arg(1) * share, all)
            else:
                results[name] = reduced(results[name], self.reduction, name)
        replace_results(function, results)

    def _gathered(self, function: FuncOp, x: SSAValue) -> SSAValue:
        """Builds the rows of all members of the group, one member's after another's."""
        b = after(function, x)
        all = calls.insert(b, popart.AllGatherOp(x, size=self.replicas, stride=self.stride))
        return calls.reshape(b, all, (self.replicas * calls.shape(x)[0], *calls.shape(x)[1:]))


def check_group(replicas: int, stride: int) -> None:
    """Raises PopulusError for less than one replica, or a stride below 1."""
    if replicas < 1 or stride < 1:
        raise PopulusError(f"replicas = {replicas}, stride = {stride}; at least 1 is expected of both")


def after(function: FuncOp, value: SSAValue) -> Builder:
    """Gives a builder that inserts where a value of `@main` has just been made."""
    block = function.body.block
    if isinstance(value.owner, Operation):
        return Builder(InsertPoint.after(value.owner))
    return Builder(InsertPoint.at_start(block))
