"""`popart-optimize`: gradients among the results of `@main` become new weights and optimizer states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects.diagnostics import PopulusError, did_you_mean, named
from populus.dialects.element_types import element_type_of, tensor
from populus.dialects.expr import Arg, cast, minimum, sqrt
from populus.dialects.popart import calls, train
from populus.dialects.popart.optimizer import wide
from populus.lowering.onnx_expose_weights import add_argument, main_of, return_of, retype, set_strings, strings
from populus.lowering.popart_autodiff import gradient_name


@dataclass(frozen=True)
class Optimizer:
    """An op with its hyperparameters by the names that users give, and their defaults (PyTorch's)."""

    op: type[train.OptimizerOp]
    hyper: Mapping[str, float]
    flags: Mapping[str, bool] = field(default_factory=dict[str, bool])

    def scalars(self, given: Mapping[str, float]) -> dict[str, float]:
        """The values of the op's scalars, by their names."""
        values = {**self.hyper, **given}
        return {s: 1 - values[SPELLING[s]] if s.startswith("rest") else values[SPELLING[s]] for s in self.names()}

    def names(self) -> tuple[str, ...]:
        """The op's scalars."""
        return self.op.SCALARS


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
    "lamb": Optimizer(train.LambOp, {**_ADAM, "eps": 1e-6}),
    "momentum": Optimizer(train.MomentumOp, _MOMENTUM),
    "nesterov": Optimizer(train.MomentumOp, _MOMENTUM, {"nesterov": True}),
    "rmsprop": Optimizer(train.RmsPropOp, _RMSPROP),
    "rmsprop_centered": Optimizer(train.RmsPropOp, _RMSPROP, {"centered": True}),
    "sgd": Optimizer(train.SgdOp, {"lr": 1e-2, "weight_decay": 0.0}),
}

CLIP = "clip_norm"


def optimizer_of(name: str) -> Optimizer:
    """The optimizer of a name. Raises PopulusError if there is none."""
    if name not in OPTIMIZERS:
        raise PopulusError(f"no optimizer '{name}'{did_you_mean(name, OPTIMIZERS)}")
    return OPTIMIZERS[name]


def scalar_name(scalar: str) -> str:
    """The name of the input for a hyperparameter."""
    return f"Hyper___{scalar}"


def state_name(weight: str, state: str) -> str:
    """The name of the input and output for a state of a weight."""
    return f"State___{weight}___{state}"


def updated_name(weight: str) -> str:
    """The name of the output for a new weight."""
    return f"Updated___{weight}"


@dataclass(frozen=True)
class PopartOptimizePass(ModulePass):
    """Each result `Gradient___w` of an input w gives way to `Updated___w` and `State___w___<state>`, by the optimizer's op.

    The states are inputs of the same names, and the hyperparameters scalar inputs `Hyper___<scalar>`, shared by all
    weights. With `clip_norm`, gradients are first scaled so that the norm of all together is at most the scalar
    `Hyper___clip_norm`. Raises PopulusError for an unknown optimizer and where there are no gradients.
    """

    name = "popart-optimize"

    optimizer: str = "sgd"
    clip_norm: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_of(op)
        optimizer = optimizer_of(self.optimizer)
        inputs = dict(zip(strings(function, "input_names"), function.body.block.args))
        results = dict(zip(strings(function, "output_names"), return_of(function).operands))
        weights = {name: inputs[name] for name in inputs if gradient_name(name) in results}
        if not weights:
            raise PopulusError("no result is a gradient of an input; popart-autodiff comes before this pass")
        inside = {wide(element_type_of(w.type)) for w in weights.values()}
        if len(inside) > 1:
            raise PopulusError(f"weights of {' and '.join(sorted(map(str, inside)))} cannot share hyperparameters; train those of one type")
        scalar = tensor((), inside.pop())
        scalars = [add_argument(function, scalar_name(s), scalar, s) for s in optimizer.names()]
        limit = add_argument(function, scalar_name(CLIP), scalar, CLIP) if self.clip_norm else None
        gradients = {name: results.pop(gradient_name(name)) for name in weights}
        last = return_of(function)
        before, b = last.prev_op, Builder(InsertPoint.before(last))
        if limit is not None:
            gradients = _clipped(b, gradients, limit)
        for name, weight in weights.items():
            types = optimizer.op.state_types(tensor(calls.shape(weight), calls.element(weight)))
            states = [add_argument(function, state_name(name, s), t, s) for s, t in zip(optimizer.op.STATE, types)]
            made = b.insert(optimizer.op(weight, gradients[name], *states, *scalars, **optimizer.flags))
            made.location = named(name)
            results.update(zip([updated_name(name), *(state_name(name, s) for s in optimizer.op.STATE)], made.results))
        new = function.body.block.first_op if before is None else before.next_op
        while new is not None and new is not last:
            if isinstance(new.location, UnknownLoc):
                new.location = named(CLIP)
            new = new.next_op
        _return(function, last, results)


def _clipped(b: Builder, gradients: Mapping[str, SSAValue], limit: SSAValue) -> dict[str, SSAValue]:
    """Gradients times `min(1, limit / (norm + 1e-6))`, as PyTorch's clip_grad_norm_."""
    inside = calls.element(limit)
    total: SSAValue | None = None
    for g in gradients.values():
        x = g if calls.element(g) == inside else calls.map(b, cast(Arg(1), inside), g)
        s = calls.reduce(b, "square_add", x, range(len(calls.shape(x))))
        total = s if total is None else calls.map(b, Arg(1) + Arg(2), total, s)
    assert total is not None
    factor = calls.map(b, minimum(Arg(2) / (sqrt(Arg(1)) + 1e-6), 1), total, limit)
    clipped: dict[str, SSAValue] = {}
    for name, g in gradients.items():
        if calls.element(g) == inside:
            clipped[name] = calls.map(b, Arg(1) * Arg(2), g, factor)
        else:
            clipped[name] = calls.map(b, cast(cast(Arg(1), inside) * Arg(2), calls.element(g)), g, factor)
    return clipped


def _return(function: FuncOp, last: ReturnOp, results: Mapping[str, Any]) -> None:
    new = ReturnOp(*results.values())
    new.location = last.location
    function.body.block.insert_op_before(new, last)
    last.detach()
    last.erase()
    set_strings(function, "output_names", list(results))
    retype(function)
