"""`popart-optimize`: gradients among the results of `@main` become new weights and optimizer states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, bf16, f16, f32, f64
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects.expr import Arg, Expr, absolute, cast, maximum, minimum, select, sqrt, substitute
from populus.dialects.popart import calls, train
from populus.dialects.popart.optimizer import wide
from populus.dialects.signature import add_argument, input_names, main_of, output_names, replace_results, return_of
from populus.dialects.support.diagnostics import PopulusError, between, did_you_mean, locate, named
from populus.dialects.support.element_types import element_type_of, tensor
from populus.lowering.popart.autodiff.sparse_rows import merged, updated_rows
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
    """An op with its hyperparameters by the names that users give, and their defaults (PyTorch's)."""

    op: type[train.OptimizerOp]
    hyper: Mapping[str, float]
    flags: Mapping[str, bool] = field(default_factory=dict[str, bool])
    of_whole: bool = False  # an element's update depends on the others of its weight

    def scalars(self, given: Mapping[str, float]) -> dict[str, float]:
        """The values of the op's scalars, by their names."""
        values = {**self.hyper, **given}
        return {s: 1 - values[SPELLING[s]] if s.startswith("rest") else values[SPELLING[s]] for s in self.names()}

    def names(self) -> tuple[str, ...]:
        """The op's scalars."""
        return self.op.SCALARS


LARGEST: dict[Attribute, float] = {f16: 65504.0, bf16: 3.3895313892515355e38, f32: 3.4028234663852886e38, f64: 1.7976931348623157e308}

SPELLING = {  # scalar of an op -> what users call it; `rest` is 1 less that
    "rate": "lr",
    "decay": "weight_decay",
    "momentum": "momentum",
    "damping": "dampening",
    "rest1": "beta1",
    "rest2": "beta2",
    "rest": "rho",
    "epsilon": "eps",
    "slowing": "lr_decay",
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
    "lamb": Optimizer(train.LambOp, {**_ADAM, "eps": 1e-6}, of_whole=True),
    "momentum": Optimizer(train.MomentumOp, _MOMENTUM),
    "nesterov": Optimizer(train.MomentumOp, _MOMENTUM, {"nesterov": True}),
    "rmsprop": Optimizer(train.RmsPropOp, _RMSPROP),
    "rmsprop_centered": Optimizer(train.RmsPropOp, _RMSPROP, {"centered": True}),
    "sgd": Optimizer(train.SgdOp, {"lr": 1e-2, "weight_decay": 0.0}),
}


def optimizer_of(name: str) -> Optimizer:
    """The optimizer of a name. Raises PopulusError if there is none."""
    if name not in OPTIMIZERS:
        raise PopulusError(f"no optimizer '{name}'{did_you_mean(name, OPTIMIZERS)}")
    return OPTIMIZERS[name]


@dataclass(frozen=True)
class PopartOptimizePass(ModulePass):
    """Each result `Gradient___w` of an input w gives way to `Updated___w` and `State___w___<state>`, by the optimizer's op.

    The states are inputs of the same names, and the hyperparameters scalar inputs `Hyper___<scalar>`, shared by all
    weights. What is done to gradients before, in this order, each by a scalar `Hyper___<option>`: `loss_scale` divides them, and where
    one is not finite then, no weight or state changes, and the result `Overflow` is 1; `clip_value` keeps each element within it;
    `clip_norm` scales them so that the norm of all together is at most it. A gradient with a result `Rows___w` is of these rows only:
    rows of one number are summed first, and only they and their states change.
    Raises PopulusError for an unknown optimizer and where there are no gradients.
    """

    name = "popart-optimize"

    optimizer: str = "sgd"
    clip_norm: bool = False
    clip_value: bool = False
    loss_scale: bool = False

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

        def given(name: str) -> SSAValue:
            return inputs.get(scalar_name(name)) or add_argument(function, scalar_name(name), scalar, name)

        scalars = [given(s) for s in optimizer.names()]
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
            gradients = _mapped(b, gradients, Arg(1) / Arg(2), given(LOSS_SCALE))
            overflow = _overflow(b, gradients, scalar.element_type)
            results[OVERFLOW] = overflow
        counts: dict[str, SSAValue] = {}
        for name, indices in rows.items():
            gradients[name], same = merged(b, indices, gradients[name])
            if self.clip_norm:
                counts[name] = calls.reduce(b, "add", same, (1,))
        if self.clip_value:
            gradients = _mapped(b, gradients, maximum(minimum(Arg(1), Arg(2)), -Arg(2)), given(CLIP_VALUE))
        if self.clip_norm:
            gradients = _clipped(b, gradients, counts, given(CLIP_NORM))
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


def _mapped(b: Builder, gradients: Mapping[str, SSAValue], formula: Expr, scalar: SSAValue) -> dict[str, SSAValue]:
    """A formula of each element and of a scalar, computed and kept in the scalar's type."""
    inside = calls.element(scalar)
    widened = substitute(formula, {1: cast(Arg(1), inside), 2: Arg(2)})
    return {name: calls.map(b, formula if calls.element(g) == inside else widened, g, scalar) for name, g in gradients.items()}


def _overflow(b: Builder, gradients: Mapping[str, SSAValue], element: Attribute) -> SSAValue:
    """1 where an element is NaN or infinite, else 0."""
    total: SSAValue | None = None
    for g in gradients.values():
        bad = ~(absolute(Arg(1)) <= LARGEST[calls.element(g)])  # true for NaN
        found = calls.reduce(b, "max", calls.map(b, cast(bad, element), g), range(len(calls.shape(g))))
        total = found if total is None else calls.map(b, maximum(Arg(1), Arg(2)), total, found)
    assert total is not None
    return total


def _clipped(b: Builder, gradients: Mapping[str, SSAValue], counts: Mapping[str, SSAValue], limit: SSAValue) -> dict[str, SSAValue]:
    """Gradients times `min(1, limit / (norm + 1e-6))`, as PyTorch's clip_grad_norm_.

    `counts`: of sparse gradients, how often each row is among them; it is to count once.
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
    factor = calls.map(b, minimum(Arg(2) / (sqrt(Arg(1)) + 1e-6), 1), total, limit)
    return _mapped(b, gradients, Arg(1) * Arg(2), factor)
