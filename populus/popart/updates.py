"""New weights and optimizer states from gradients: PopART's optimizers as ops of the `train` dialect, and the program that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from xdsl.builder import Builder
from xdsl.dialects.builtin import ModuleOp, TensorType, f16, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.expr import Arg, cast, maximum, sqrt
from populus.dialects.popart import calls, train
from populus.dialects.popart import optimizer_formulas as formulas
from populus.dialects.popart.optimizer import mapped
from populus.dialects.signature import state_names
from populus.dialects.support.diagnostics import PopulusError, named
from populus.dialects.support.element_types import dtype_of, element_of, tensor
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.bucket import PopartBucketPass
from populus.lowering.popart.training_names import gradient_name, updated_name
from populus.popart.optimizers import SGD, Adam, Adaptive, Optimizer
from populus.popart.reserved import STATES, STEP

if TYPE_CHECKING:
    from populus.program.program import Program
    from populus.program.source import Arrays

SCALING, DECAY = "lossScaling", "weightDecay"


class Formula(NamedTuple):
    """An op of the `train` dialect for a kind of PopART's optimizer.

    `states`: prefixes of the names of its states, in the op's order. `decay`: of the weight itself before the step (`weight`), or of the
    gradient before the op (`gradient`), or by the op's scalar (`op`).
    """

    op: type[train.OptimizerOp]
    states: tuple[str, ...]
    decay: str = "op"
    flags: tuple[tuple[str, bool | str], ...] = ()


_ADAM = {"Adam": train.AdamOp, "AdaMax": train.AdaMaxOp, "Lamb": train.LambOp}
_ADAPTIVE: dict[str, tuple[tuple[str, bool | str], ...]] = {
    "AdaGrad": (("squares", "sum"),), "RMSProp": (), "CenteredRMSProp": (("centered", True),), "AdaDelta": (("moving", True),),
}  # fmt: skip


def formula_of(o: Optimizer) -> Formula:
    """Gives the op of an optimizer. Raises PopulusError for one that there is not."""
    if isinstance(o, SGD):
        if not o.uses("momentum"):
            return Formula(train.SgdOp, ())
        return Formula(train.VelocityOp, STATES[:1], flags=(("nesterov", True),) if o.uses("nesterov") else ())
    if isinstance(o, Adam):
        op = _ADAM[kind := o.mode.removesuffix("NoBias")]
        own = "op" if (o.decay == "Decay") == (kind == "Lamb") else "weight" if o.decay == "Decay" else "gradient"
        flags = (("biased", True),) if kind != o.mode else ()
        return Formula(op, (*STATES[:2], STEP), own, (*flags, *((("outside", True),) if kind == "AdaMax" else ())))
    if isinstance(o, Adaptive):
        inside = (("inside", True),) if o.inside else ()
        return Formula(train.RmsPropOp, STATES, "weight" if o.decay == "Decay" else "op", (*_ADAPTIVE[o.mode], *inside))
    raise PopulusError(f"there is no optimizer {type(o).__name__}")


# Scalars of ops, from PopART's hyperparameters. Shares of averages are subtracted from 1 in double precision.
_SCALARS: dict[str, Callable[[Mapping[str, float]], float]] = {
    "rate": lambda h: h["learningRate"],
    "decay": lambda h: h[DECAY],
    "momentum": lambda h: h["momentum"],
    "damping": lambda h: 0.0 if h["nesterov"] else h["dampening"],
    "rest": lambda h: 1 - h["alpha"],
    "rest1": lambda h: 1 - h["beta1"],
    "rest2": lambda h: 1 - h["beta2"],
    "epsilon": lambda h: h["eps"],
    "limit": lambda h: h["maxWeightNorm"],
    SCALING: lambda h: h[SCALING],
}


def _names(formula: Formula) -> tuple[str, ...]:
    return (*formula.op.SCALARS, SCALING)


class Update:
    """A program from weights, gradients, states and hyperparameters to new weights and states, and these states.

    `compile`: compiles a module. `copies`: the replicas, whose gradients meet in it. `parts`: what their sum is divided by.
    """

    def __init__(self, optimizer: Optimizer, weights: Arrays, compile: Callable[[ModuleOp], Program], copies: int = 1, parts: int = 1):
        self.weights, self.kind = tuple(weights), _kind(optimizer)
        self.state = begun(optimizer, weights)
        self.program = compile(module_of(optimizer, weights, copies, parts))
        self.changes = {name: updated_name(name) for name in (*self.weights, *self.state)}

    def fits(self, optimizer: Optimizer) -> bool:
        """Tells whether another optimizer differs in numbers alone."""
        return _kind(optimizer) == self.kind

    def scalars(self, optimizer: Optimizer, changes: Mapping[str, float] | None = None) -> Arrays:
        """Gives the hyperparameters. `changes`: those of this update alone, the same for all weights."""
        import numpy as np

        found: Arrays = {}
        for w in self.weights:
            values = {**optimizer.of(w), **(changes or {})}
            for name in _names(formula_of(optimizer)):
                found[f"{name}/{w}"] = np.array(_SCALARS[name](values), np.float32)
            if isinstance(optimizer, SGD) and f"momentum/{w}" not in found:  # a step of SGD without momentum is dampened too
                found[f"rate/{w}"] *= np.float32(1 - values["dampening"])
        return found


def _kind(optimizer: Optimizer) -> tuple[Any, ...]:
    return (formula_of(optimizer), optimizer.clips, tuple(sorted(optimizer.state_types.items())))


def same_states(optimizer: Optimizer, other: Optimizer) -> bool:
    """Tells whether the states of one optimizer fit another."""
    return type(optimizer) is type(other) and formula_of(optimizer).states == formula_of(other).states


def begun(optimizer: Optimizer, weights: Arrays) -> Arrays:
    """Gives the states before the first update: zeros."""
    import numpy as np

    types = {n: t for w, array in weights.items() for n, t in _states(optimizer, w, array.shape).items()}
    return {name: np.zeros(type.get_shape(), dtype_of(type.element_type)) for name, type in types.items()}


def _states(optimizer: Optimizer, w: str, shape: tuple[int, ...]) -> dict[str, TensorType[Attribute]]:
    """Gives the types of a weight's states by name."""
    halves = optimizer.state_types
    return {p + w: tensor(() if p == STEP else shape, f16 if p in halves else f32) for p in formula_of(optimizer).states}


def module_of(optimizer: Optimizer, weights: Arrays, copies: int = 1, parts: int = 1) -> ModuleOp:
    """Builds the module of an update, at the level `popart`. All is computed in f32."""
    formula = formula_of(optimizer)
    types: dict[str, Attribute] = {w: tensor(a.shape, element_of(a.dtype)) for w, a in weights.items()}
    types |= {gradient_name(w): types[w] for w in weights}
    states = {w: _states(optimizer, w, a.shape) for w, a in weights.items()}
    types |= {name: type for each in states.values() for name, type in each.items()}
    types |= {f"{name}/{w}": tensor((), f32) for w in weights for name in _names(formula)}
    block = Block(arg_types=list(types.values()))
    for name, argument in zip(types, block.args):
        argument.location = named(name)
    given: dict[str, SSAValue] = dict(zip(types, block.args))
    b = Builder(InsertPoint.at_end(block))

    gradients: dict[str, SSAValue] = {}
    for w in weights:
        g = given[gradient_name(w)]
        if copies > 1:
            g = calls.insert(b, popart.AllReduceOp(g, reduction="add", size=copies))
        g = _as(b, g, f32)
        g = g if parts == 1 else calls.map(b, Arg(1) / parts, g)
        gradients[w] = calls.map(b, Arg(1) / Arg(2), g, given[f"{SCALING}/{w}"])
    for clip in optimizer.clips:
        chosen = {w: g for w, g in gradients.items() if not clip.weightIds or w in clip.weightIds}
        gradients |= _clipped(b, chosen, clip.maxNorm) if chosen else {}

    results: dict[str, SSAValue] = {}
    for w in weights:
        scalars = {name: given[f"{name}/{w}"] for name in formula.op.SCALARS}
        weight, g = _as(b, given[w], f32), gradients[w]
        if formula.decay == "weight":
            weight = mapped(b, formulas.shrink, weight, scalars["rate"], scalars["decay"])
        elif formula.decay == "gradient":
            g = mapped(b, formulas.plus_decay, g, weight, scalars["decay"])
        if formula.decay != "op":
            scalars["decay"] = calls.fill(b, 0, f32)
        old = [_as(b, given[name], f32) for name in states[w]]
        made = b.insert(formula.op(weight, g, *old, *scalars.values(), **dict(formula.flags)))
        made.location = named(w)
        for name, value in zip((w, *states[w]), made.results, strict=True):
            results[updated_name(name)] = _as(b, value, calls.element(given[name]))
    b.insert(ReturnOp(*results.values()))
    function = FuncOp("main", (list(types.values()), [v.type for v in results.values()]), Region(block))
    state_names(function, inputs=list(types), outputs=list(results))
    return ModuleOp([function])


def update_pipeline() -> Pipeline:
    """Gives the passes of an update: small gradients of replicas meet together."""
    pipeline = Pipeline.named("inference")
    return pipeline.insert_before("popart-to-popops", PopartBucketPass())


def _as(b: Builder, x: SSAValue, element: Attribute) -> SSAValue:
    return x if calls.element(x) == element else calls.map(b, cast(Arg(1), element), x)


def _clipped(b: Builder, gradients: Mapping[str, SSAValue], limit: float) -> dict[str, SSAValue]:
    """Computes gradients times `limit / max(norm, limit)`, with the norm of all together."""
    squares = [calls.reduce(b, "square_add", g, range(len(calls.shape(g)))) for g in gradients.values()]
    total = squares[0]
    for square in squares[1:]:
        total = calls.map(b, Arg(1) + Arg(2), total, square)
    factor = calls.map(b, limit / maximum(sqrt(Arg(1)), limit), total)
    return {w: calls.map(b, Arg(1) * Arg(2), g, factor) for w, g in gradients.items()}
