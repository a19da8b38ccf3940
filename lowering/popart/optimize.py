"""Optimizers (`popart-optimize`): gradients among the results of `@main` become new weights and optimizer states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, bf16, f16, f32, f64
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.expr import Arg, Expr, absolute, cast, maximum, minimum, select, sqrt, substitute
from populus.dialects.popart import calls, train
from populus.dialects.popart.optimizer import wide
from populus.dialects.signature import add_argument, input_names, main_of, output_names, replace_results, return_of
from populus.dialects.support.diagnostics import PopulusError, between, did_you_mean, locate, named
from populus.dialects.support.element_types import element_type_of, tensor
from populus.lowering.popart.autodiff.sparse_rows import merged, occurrences, updated_rows
from populus.lowering.popart.training_names import (
    CLIP_NORM,
    CLIP_VALUE,
    LOSS_SCALE,
    OVERFLOW,
    gradient_name,
    rows_name,
    scalar_name,
    state_name,
    updated_name,
)


@dataclass(frozen=True)
class Optimizer:
    """Optimizer op with its hyperparameters, by the names that users write, and their defaults (PyTorch's)."""

    op: type[train.OptimizerOp]
    hyper: Mapping[str, float]
    flags: Mapping[str, bool] = field(default_factory=dict[str, bool])
    of_whole: bool = False  # the update of an element depends on other elements of its weight

    def scalars(self, hyperparameters: Mapping[str, float]) -> dict[str, float]:
        """Computes the values of the op's scalars from hyperparameters. Missing ones take their defaults."""
        values = {**self.hyper, **hyperparameters}
        return {s: 1 - values[SPELLING[s]] if s.startswith("rest") else values[SPELLING[s]] for s in self.names()}

    def names(self) -> tuple[str, ...]:
        """Lists the names of the op's scalars."""
        return self.op.SCALARS


LARGEST: dict[Attribute, float] = {f16: 65504.0, bf16: 3.3895313892515355e38, f32: 3.4028234663852886e38, f64: 1.7976931348623157e308}

SPELLING = {  # scalar of an op -> user's name of it; `rest` is 1 - that
    "rate": "lr",
    "decay": "weight_decay",
    "momentum": "momentum",
    "damping": "dampening",
    "rest1": "beta1",
    "rest2": "beta2",
    "rest": "rho",
    "epsilon": "eps",
    "slowing": "lr_decay",
    "limit": "max_weight_norm",
}
_ADAM = {"lr": 1e-3, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
_MOMENTUM = {"lr": 1e-2, "weight_decay": 0.0, "momentum": 0.9, "dampening": 0.0}
_RMSPROP = {"lr": 1e-2, "weight_decay": 0.0, "rho": 0.99, "eps": 1e-8, "momentum": 0.0}

OPTIMIZERS: dict[str, Optimizer] = {
    "adadelta": Optimizer(train.AdadeltaOp, {"lr": 1.0, "weight_decay": 0.0, "rho": 0.9, "eps": 1e-6}),
    "adagrad": Optimizer(train.AdagradOp, {"lr": 1e-2, "weight_decay": 0.0, "lr_decay": 0.0, "eps": 1e-10}),
    "adam": Optimizer(train.AdamOp, _ADAM),
    "adamax": Optimizer(train.AdaMaxOp, {**_ADAM, "lr": 2e-3}),
    "adamw": Optimizer(train.AdamWOp, {**_ADAM, "weight_decay": 1e-2}),
    "lamb": Optimizer(train.LambOp, {**_ADAM, "eps": 1e-6, "max_weight_norm": inf}, of_whole=True),
    "momentum": Optimizer(train.MomentumOp, _MOMENTUM),
    "nesterov": Optimizer(train.MomentumOp, _MOMENTUM, {"nesterov": True}),
    "rmsprop": Optimizer(train.RmsPropOp, _RMSPROP),
    "rmsprop_centered": Optimizer(train.RmsPropOp, _RMSPROP, {"centered": True}),
    "sgd": Optimizer(train.SgdOp, {"lr": 1e-2, "weight_decay": 0.0}),
}


def optimizer_of(name: str) -> Optimizer:
    """Looks up an optimizer. Raises PopulusError, with the nearest name, if there is none."""
    if name not in OPTIMIZERS:
        raise PopulusError(f"no optimizer '{name}'{did_you_mean(name, OPTIMIZERS)}")
    return OPTIMIZERS[name]


@dataclass(frozen=True)
class PopartOptimizePass(ModulePass):
    """Replaces each result `Gradient___w` of an input w by `Updated___w` and `State___w___<state>`, computed by the
    optimizer's op.

    The states are inputs of the same names. Hyperparameters are scalar inputs `Hyper___<scalar>`, shared by all
    weights. Options change the gradients first, in this order, each by a scalar `Hyper___<option>`.

    - `loss_scale` divides them. If an element is then not finite, no weight or state changes, and the result
      `Overflow` is 1.
    - `clip_value` limits the magnitude of each element.
    - `clip_norm` limits the norm of all gradients together.

    `stages`: the replicas, next to each other, that each have some of the weights: norm and overflow are of all.

    A gradient with a result `Rows___w` consists of these rows of the weight. Equal rows are summed first. Only
    these rows and their states change.

    Raises PopulusError for an unknown optimizer, and if no result is a gradient. Also raises it if weights differ
    in type, or if the optimizer needs whole weights but a gradient has rows. Bit for bit.
    """

    name = "popart-optimize"

    optimizer: str = "sgd"
    clip_norm: bool = False
    clip_value: bool = False
    loss_scale: bool = False
    stages: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_of(op)
        optimizer = optimizer_of(self.optimizer)
        inputs = dict(zip(input_names(function), function.body.block.args))
        results = dict(zip(output_names(function), return_of(function).operands))
        weights = {name: inputs[name] for name in inputs if gradient_name(name) in results}
        if not weights:
            raise PopulusError("no result is a gradient of an input; popart-autodiff comes before this pass")
        inside = {wide(element_type_of(w.type)) for w in weights.values()}
        if len(inside) > 1:
            raise PopulusError(f"weights of {' and '.join(sorted(map(str, inside)))} cannot share hyperparameters; train those of one type")
        scalar = tensor((), inside.pop())

        def scalar_input(name: str) -> SSAValue:
            return inputs.get(scalar_name(name)) or add_argument(function, scalar_name(name), scalar, name)

        scalars = [scalar_input(s) for s in optimizer.names()]
        gradients = {name: results.pop(gradient_name(name)) for name in weights}
        rows = {name: results.pop(rows_name(name)) for name in weights if rows_name(name) in results}
        if rows and optimizer.of_whole:
            raise PopulusError(
                f"{self.optimizer} scales by the norm of a whole weight, so the rows of '{next(iter(rows))}' cannot move alone"
            )
        last = return_of(function)
        before, b = last.prev_op, Builder(InsertPoint.before(last))
        overflow: SSAValue | None = None
        if self.loss_scale:
            gradients = _mapped(b, gradients, Arg(1) / Arg(2), scalar_input(LOSS_SCALE))
            overflow = self._of_all(b, _overflow(b, gradients, scalar.element_type), "max")
            results[OVERFLOW] = overflow
        counts: dict[str, SSAValue] = {}
        for name, indices in rows.items():
            gradients[name], place = merged(b, indices, gradients[name], calls.shape(weights[name])[0])
            if self.clip_norm:
                counts[name] = occurrences(b, place)
        if self.clip_value:
            gradients = _mapped(b, gradients, maximum(minimum(Arg(1), Arg(2)), -Arg(2)), scalar_input(CLIP_VALUE))
        if self.clip_norm:
            gradients = self._clipped(b, gradients, counts, scalar_input(CLIP_NORM))
        for name, weight in weights.items():
            types = optimizer.op.state_types(tensor(calls.shape(weight), calls.element(weight)))
            states = [add_argument(function, state_name(name, s), t, s) for s, t in zip(optimizer.op.STATE, types)]

            def update(before: Sequence[SSAValue], name: str = name) -> list[SSAValue]:
                made = b.insert(optimizer.op(before[0], gradients[name], *before[1:], *scalars, **optimizer.flags))
                made.location = named(name)
                if overflow is None:
                    return list(made.results)
                return [calls.map(b, select(Arg(1), Arg(2), Arg(3) > 0), old, n, overflow) for old, n in zip(before, made.results)]

            tables = [weight, *states]
            new = update(tables) if name not in rows else updated_rows(b, rows[name], tables, update)
            results.update(zip([updated_name(name), *(state_name(name, s) for s in optimizer.op.STATE)], new))
        locate(between(function.body.block, before, last), named("gradients"))
        replace_results(function, results)

    def _of_all(self, b: Builder, x: SSAValue, reduction: str) -> SSAValue:
        """Builds the reduction of a scalar over stages."""
        return x if self.stages == 1 else calls.insert(b, popart.AllReduceOp(x, reduction=reduction, size=self.stages))

    def _clipped(
        self, b: Builder, gradients: Mapping[str, SSAValue], counts: Mapping[str, SSAValue], limit: SSAValue
    ) -> dict[str, SSAValue]:
        """Scales gradients by `min(1, limit / (norm + 1e-6))`, as PyTorch's clip_grad_norm_ does.

        `counts`: for sparse gradients, the number of times that each row occurs; each distinct row counts once.
        """
        inside = calls.element(limit)
        total: SSAValue | None = None
        for name, g in gradients.items():
            x = g if calls.element(g) == inside else calls.map(b, cast(Arg(1), inside), g)
            if name in counts:
                share = calls.reshape(b, counts[name], (*calls.shape(counts[name]), *(1,) * (len(calls.shape(x)) - 1)))
                x = calls.map(b, Arg(1) / sqrt(cast(Arg(2), inside)), x, share)
            s = calls.reduce(b, "square_add", x, range(len(calls.shape(x))))
            total = s if total is None else calls.map(b, Arg(1) + Arg(2), total, s)
        assert total is not None
        total = self._of_all(b, total, "add")
        factor = calls.map(b, minimum(Arg(2) / (sqrt(Arg(1)) + 1e-6), 1), total, limit)
        return _mapped(b, gradients, Arg(1) * Arg(2), factor)


def _mapped(b: Builder, gradients: Mapping[str, SSAValue], formula: Expr, scalar: SSAValue) -> dict[str, SSAValue]:
    """Evaluates a formula on each gradient element and a scalar, in the scalar's type."""
    inside = calls.element(scalar)
    widened = substitute(formula, {1: cast(Arg(1), inside), 2: Arg(2)})
    return {name: calls.map(b, formula if calls.element(g) == inside else widened, g, scalar) for name, g in gradients.items()}


def _overflow(b: Builder, gradients: Mapping[str, SSAValue], element: Attribute) -> SSAValue:
    """Computes 1 if an element is NaN or infinite, else 0."""
    total: SSAValue | None = None
    for g in gradients.values():
        bad = ~(absolute(Arg(1)) <= LARGEST[calls.element(g)])  # true for NaN
        bad_anywhere = calls.reduce(b, "max", calls.map(b, cast(bad, element), g), range(len(calls.shape(g))))
        total = bad_anywhere if total is None else calls.map(b, maximum(Arg(1), Arg(2)), total, bad_anywhere)
    assert total is not None
    return total
