"""Gradient accumulation (`popart-accumulate`): sums the gradients of several batches before a weight update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects.expr import Arg, cast
from populus.dialects.popart import calls
from populus.dialects.popart.optimizer import wide
from populus.dialects.signature import add_argument, input_names, main_of, output_names, replace_results, return_of, state_names
from populus.dialects.support.diagnostics import PopulusError, named
from populus.dialects.support.element_types import tensor
from populus.lowering.popart.replicate import REDUCTIONS
from populus.lowering.popart.training_names import accumulated_name, gradient_name, rows_name


@dataclass(frozen=True)
class PopartAccumulatePass(ModulePass):
    """Replaces each result `Gradient___w` of an input w by `Accl___w = Accl___w + gradient / steps`.

    The old `Accl___w` is a new input. The caller starts with zeros; after `steps` runs, each result is the
    gradient of the mean loss over their batches. 16-bit gradients are summed in f32. A sparse gradient is not summed here, since
    each batch has other rows: `Accl___w` and the numbers of its rows, `Accl___Rows___w`, have room for those of `steps` batches,
    of which a run drops the first and adds its own at the end.

    `reduction`: `mean`, or `add` for the sum. `wide` False sums 16-bit gradients as they are. `weights`: those whose gradients are
    summed, all by default. `kept`: those of them whose gradients of one run remain results.
    Raises PopulusError if `steps` is below 1, for an unknown reduction, and if no result is a gradient. Bit for bit.
    """

    name = "popart-accumulate"

    steps: int = 1
    reduction: str = "mean"
    wide: bool = True
    weights: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.steps < 1:
            raise PopulusError(f"steps = {self.steps}; gradients of at least 1 batch are summed")
        if self.reduction not in REDUCTIONS:
            raise PopulusError(f"reduction = {self.reduction}; one of {', '.join(REDUCTIONS)} is expected")
        function = main_of(op)
        results = dict(zip(output_names(function), return_of(function).operands))
        weights = [name for name in input_names(function) if gradient_name(name) in results and name in (self.weights or (name,))]
        share = 1 / self.steps if self.reduction == "mean" else 1
        if not weights:
            raise PopulusError("no result is a gradient of an input; popart-autodiff comes before this pass")
        last = return_of(function)
        b = Builder(InsertPoint.before(last))
        summed: dict[str, SSAValue] = {}
        for name in weights:
            gradient = results[gradient_name(name)] if name in self.kept else results.pop(gradient_name(name))
            element = wide(calls.element(gradient)) if self.wide else calls.element(gradient)
            if rows_name(name) in results:
                each = Arg(1) if element == calls.element(gradient) else cast(Arg(1), element)
                own = calls.map(b, each * share, gradient)
                numbers = results.pop(rows_name(name))
                for place, added in ((accumulated_name(name), own), (accumulated_name(rows_name(name)), numbers)):
                    summed[place] = self._appended(function, b, place, added)
                continue
            before = add_argument(function, accumulated_name(name), tensor(calls.shape(gradient), element), "sum")
            part = Arg(2) if element == calls.element(gradient) else cast(Arg(2), element)
            made = calls.map(b, Arg(1) + (part if share == 1 else part * share), before, gradient)
            made.owner.location = named(accumulated_name(name))  # pyright: ignore[reportAttributeAccessIssue], a result
            summed[accumulated_name(name)] = made
        replace_results(function, {**results, **summed})

    def _appended(self, function: FuncOp, b: Builder, name: str, rows: SSAValue) -> SSAValue:
        """Adds the argument `name`, rows of `steps` runs, and gives it without the first run's and with `rows` at its end."""
        count, *rest = calls.shape(rows)
        before = add_argument(function, name, tensor((self.steps * count, *rest), calls.element(rows)), "rows")
        made = calls.concat(b, [calls.slice_dim(b, before, 0, count, self.steps * count), rows], 0) if self.steps > 1 else rows
        made.owner.location = named(name)  # pyright: ignore[reportAttributeAccessIssue], a result
        return made


def update_module(weights: Mapping[str, Attribute], taken: Mapping[str, Attribute]) -> ModuleOp:
    """Builds a module whose `@main` takes weights and other tensors, and returns the latter.

    `popart-optimize` turns it into a weight update. `taken`: gradients, the row numbers of sparse ones, and what `popart-replicate`
    reduces beside them.
    """
    types, names = [*weights.values(), *taken.values()], [*weights, *taken]
    block = Block(arg_types=types)
    for argument, name in zip(block.args, names):
        argument.location = named(name)
    results = block.args[len(weights) :]
    block.add_op(ReturnOp(*results))
    function = FuncOp("main", (types, [r.type for r in results]), Region(block))
    state_names(function, inputs=names, outputs=[*taken])
    return ModuleOp([function])
