"""PopTorch's optimizers: PyTorch's, with the arguments that a machine of tiles adds. `converted` gives their formulas here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, isnan
from typing import Any, ClassVar

import torch

from populus.dialects.support.diagnostics import PopulusError
from populus.popart import optimizers as popart
from populus.popart.enums import ENUMS
from populus.popart.optimizers import ClipNormSettings
from populus.poptorch.notes import ignored

# Element types of states: they are f32 here, whatever is asked for.
_TYPES = ("accum_type", "velocity_accum_type", "first_order_momentum_accum_type", "second_order_momentum_accum_type")


class VariableAttributes:
    """The hyperparameters that may change between steps; all may here, so the marks are only remembered."""

    def __init__(self, variable_attributes: Sequence[str], allowed_attributes: Sequence[str]):
        self._variable = set(variable_attributes)
        self._allowed = list(allowed_attributes)

    def isConstant(self, attr: str) -> bool:
        """Tells whether a hyperparameter is marked as constant."""
        return attr not in self._variable

    def markAsConstant(self, attr: str) -> None:
        """Marks a hyperparameter as constant."""
        self._check(attr)
        self._variable.discard(attr)

    def markAsVariable(self, attr: str) -> None:
        """Marks a hyperparameter as one that changes."""
        self._check(attr)
        self._variable.add(attr)

    def _check(self, attr: str) -> None:
        assert attr in self._allowed, f"Unknown attribute {attr}, allowed values: {self._allowed}"


class Optimizer:
    """The state of an optimizer on the machine, beside that of PyTorch: `ipu_state` and `ipu_param`, by the weights' names."""

    OWN: ClassVar[Sequence[str]] = ()

    def _begin(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keeps our own arguments as attributes; gives those of PyTorch's optimizer."""
        stated = {n: v for n, v in given.items() if v is not None and n not in ("self", "params", "__class__")}
        self.variable_attrs = VariableAttributes(list(stated), [n for n in given if n not in ("self", "params", "__class__")])
        self._ipu: dict[str, Any] = {"ipu_state": None, "ipu_param": None}
        self.connection: tuple[Callable[[], Mapping[str, Any]], Callable[[Mapping[str, Any]], None]] | None = None
        return {n: v for n, v in stated.items() if n not in self.OWN}

    def _keep(self, given: Mapping[str, Any], **defaults: Any) -> None:
        for name in self.OWN:
            value = given[name] if given[name] is not None else defaults.get(name)
            setattr(self, name, value)
            if name in _TYPES and value not in (None, torch.float32):
                ignored(f"optim.{type(self).__name__}.{name}", "states are f32")

    def state_dict(self) -> dict[str, Any]:
        """Gives PyTorch's state with that of the machine."""
        if self.connection is not None:
            self._ipu = dict(self.connection[0]())
        return {**self._ipu, **torch.optim.Optimizer.state_dict(self)}  # pyright: ignore[reportArgumentType], mixed in

    get_state_dict = state_dict

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes a state that `state_dict` gave. Raises RuntimeError for another."""
        if not state or "ipu_state" not in state or "ipu_param" not in state:
            raise RuntimeError("Only IPU optimizer states can be loaded onto the IPU.")
        torch.optim.Optimizer.load_state_dict(self, {n: state[n] for n in ("state", "param_groups")})  # pyright: ignore[reportArgumentType]
        self._ipu = {n: state[n] for n in ("ipu_state", "ipu_param")}
        if self.connection is not None and self.has_state():
            self.connection[1](self._ipu)

    set_state_dict = load_state_dict

    def has_state(self) -> bool:
        """Tells whether there is a state of the machine."""
        return self._ipu["ipu_state"] is not None


class SGD(Optimizer, torch.optim.SGD):
    """`v = momentum v + (1 - dampening) (g + weight_decay w)`, `w -= lr v`; the first step takes no dampening, as PyTorch's."""

    OWN = ("loss_scaling", "velocity_scaling", "use_combined_accum", "accum_type", "velocity_accum_type", "max_grad_norm")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        velocity_scaling: float | None = None,
        use_combined_accum: bool | None = None,
        accum_type: Any = None,
        velocity_accum_type: Any = None,
        max_grad_norm: float | None = None,
    ):
        given = dict(locals())
        torch.optim.SGD.__init__(self, params, **self._begin(given))
        self._keep(given, loss_scaling=1.0, velocity_scaling=1.0, use_combined_accum=False, max_grad_norm=inf)


class Adam(Optimizer, torch.optim.Adam):
    """PyTorch's Adam, whose weight decay is added to the gradient."""

    OWN = ("loss_scaling", *_TYPES[:1], *_TYPES[2:], "max_grad_norm")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: Any = None,
        first_order_momentum_accum_type: Any = None,
        second_order_momentum_accum_type: Any = None,
        max_grad_norm: float | None = None,
    ):
        given = dict(locals())
        torch.optim.Adam.__init__(self, params, **self._begin(given))
        self._keep(given, loss_scaling=1.0, max_grad_norm=inf)


class AdamW(Optimizer, torch.optim.AdamW):
    """PyTorch's AdamW, whose weight decay is a part of the step; `bias_correction` False leaves out the correction of first steps."""

    OWN = ("loss_scaling", "bias_correction", *_TYPES[:1], *_TYPES[2:], "max_grad_norm")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        bias_correction: bool | None = None,
        accum_type: Any = None,
        first_order_momentum_accum_type: Any = None,
        second_order_momentum_accum_type: Any = None,
        max_grad_norm: float | None = None,
    ):
        given = dict(locals())
        torch.optim.AdamW.__init__(self, params, **self._begin(given))
        self._keep(given, loss_scaling=1.0, bias_correction=True, max_grad_norm=inf)


class RMSprop(Optimizer, torch.optim.RMSprop):
    """PyTorch's RMSprop; `use_tf_variant` adds eps inside of the root, as TensorFlow's."""

    OWN = ("loss_scaling", *_TYPES[:1], *_TYPES[2:], "use_tf_variant")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        alpha: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        centered: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: Any = None,
        first_order_momentum_accum_type: Any = None,
        second_order_momentum_accum_type: Any = None,
        use_tf_variant: bool | None = None,
    ):
        given = dict(locals())
        torch.optim.RMSprop.__init__(self, params, **self._begin(given))
        self._keep(given, loss_scaling=1.0, use_tf_variant=False)


class LAMB(Optimizer, torch.optim.Optimizer):
    """Adam's step x with weight decay, scaled for each weight by `min(|w|, max_weight_norm) / |x|`. Source: arXiv 1904.00962."""

    OWN = ("loss_scaling", "bias_correction", *_TYPES[:1], *_TYPES[2:])

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        bias_correction: bool | None = None,
        loss_scaling: float | None = None,
        max_weight_norm: float | None = None,
        accum_type: Any = None,
        first_order_momentum_accum_type: Any = None,
        second_order_momentum_accum_type: Any = None,
    ):
        given = dict(locals())
        defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "max_weight_norm": 65500.0}
        torch.optim.Optimizer.__init__(self, params, {**defaults, **self._begin(given)})
        self._keep(given, loss_scaling=1.0, bias_correction=True)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Raises PopulusError: a step is taken by the model."""
        raise PopulusError("LAMB.step() is not there; a call of the poptorch.trainingModel takes a step")


# -- formulas ---------------------------------------------------------------------------------------------------------

_ADAM, _DECAY, _RMS = (ENUMS[n].__members__ for n in ("AdamMode", "WeightDecayMode", "AdaptiveMode"))
_KINDS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, LAMB)
_SAME = ("maximize", "amsgrad", "differentiable")  # group members that would change results


def _betas(group: Mapping[str, Any]) -> dict[str, float]:
    return {"beta1": group["betas"][0], "beta2": group["betas"][1]}


def _values(group: Mapping[str, Any], optimizer: Any) -> dict[str, float]:
    """Gives the hyperparameters of a group by our names."""
    found = {"learningRate": group["lr"], "weightDecay": group["weight_decay"]}
    if isinstance(optimizer, torch.optim.SGD):
        dampening = group["dampening"] if group["momentum"] else 0.0  # PyTorch has none without momentum
        return {**found, "momentum": group["momentum"], "dampening": dampening, "nesterov": float(group["nesterov"])}
    if isinstance(optimizer, torch.optim.RMSprop):
        return {**found, "momentum": group["momentum"], "alpha": group["alpha"], "eps": group["eps"]}
    norm = {"maxWeightNorm": group["max_weight_norm"]} if isinstance(optimizer, LAMB) else {}
    return {**found, **_betas(group), "eps": group["eps"], **norm}


def _pair(name: str, value: float) -> tuple[float, bool]:
    """Gives a hyperparameter and whether it is constant: momentum is, as there is no state for it if it is 0."""
    return float(value), name in ("momentum", "nesterov")


def _empty(optimizer: Any, values: Mapping[str, Any]) -> popart.Optimizer:
    """Makes our optimizer of the same kind."""
    norm = getattr(optimizer, "max_grad_norm", inf)
    clips = [] if norm == inf or isnan(norm) else [ClipNormSettings.clipAllWeights(norm)]
    if isinstance(optimizer, torch.optim.SGD):
        return popart.SGD(values, clips)
    if isinstance(optimizer, LAMB):
        mode = _ADAM["Lamb" if optimizer.bias_correction else "LambNoBias"]  # pyright: ignore[reportAttributeAccessIssue], of OWN
        return popart.Adam(values, mode, _DECAY["Decay"], clip_norm_settings=clips)
    if isinstance(optimizer, torch.optim.AdamW):
        mode = _ADAM["Adam" if getattr(optimizer, "bias_correction", True) else "AdamNoBias"]
        return popart.Adam(values, mode, _DECAY["Decay"], clip_norm_settings=clips)
    if isinstance(optimizer, torch.optim.Adam):
        decay = "Decay" if optimizer.defaults.get("decoupled_weight_decay") else "L2Regularization"
        return popart.Adam(values, _ADAM["Adam"], _DECAY[decay], clip_norm_settings=clips)
    if isinstance(optimizer, torch.optim.RMSprop):
        mode = _RMS["CenteredRMSProp" if optimizer.param_groups[0]["centered"] else "RMSProp"]
        tf = bool(getattr(optimizer, "use_tf_variant", False))
        return popart.Adaptive(values, mode, _DECAY["L2Regularization"], rmsprop_tf_variant=tf)
    raise AssertionError(optimizer)


def converted(optimizer: Any, names: Mapping[int, str]) -> popart.Optimizer:
    """Gives the formulas and hyperparameters of PyTorch's optimizer. `names`: of weights, by `id` of the parameter.

    A hyperparameter that differs between groups is that of each weight. Raises PopulusError for what would change results and is not
    there: another optimizer, `maximize`, `amsgrad`, `differentiable`.
    """
    if not isinstance(optimizer, _KINDS):
        known = "SGD, Adam, AdamW, RMSprop and poptorch.optim.LAMB"
        raise PopulusError(f"there is no optimizer {type(optimizer).__name__} on the machine; there are {known}")
    groups = optimizer.param_groups
    for group in groups:
        if refused := [n for n in _SAME if group.get(n)]:
            raise PopulusError(f"{type(optimizer).__name__}: {refused[0]}=True is not there; leave it as it is by default")
        if group.get("centered") != groups[0].get("centered"):
            raise PopulusError("RMSprop: centered is the same for all groups of weights")
    scaling = float(getattr(optimizer, "loss_scaling", None) or 1.0)
    first = {f"default{n[0].upper()}{n[1:]}": _pair(n, v) for n, v in _values(groups[0], optimizer).items()}
    found = _empty(optimizer, {**first, "lossScaling": (scaling, False)})
    for group in groups:
        values = {n: _pair(n, v) for n, v in _values(group, optimizer).items()}
        for parameter in group["params"]:
            if id(parameter) in names:
                found.insertSpecific(names[id(parameter)], values)
    return found
