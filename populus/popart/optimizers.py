"""Optimizers with PopART's hyperparameters: each has a default and values for single weights, constant or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.enums import ENUMS, DataType
from populus.popart.reserved import STATES


@dataclass(frozen=True)
class OptimizerValue:
    """A hyperparameter. `isConst`: it never changes."""

    value: float
    const: bool = True

    def val(self) -> float:
        """Gives the number."""
        return self.value

    def isConst(self) -> bool:
        """Tells whether it never changes."""
        return self.const

    @staticmethod
    def of(given: Any) -> OptimizerValue:
        """Reads a number, or a number and whether it is constant."""
        if isinstance(given, OptimizerValue):
            return given
        if isinstance(given, tuple | list):
            value, const = cast("Sequence[Any]", given)
            return OptimizerValue(float(value), bool(const))
        return OptimizerValue(float(given))


@dataclass(frozen=True)
class ClipNormSettings:
    """The norm of the gradients of these weights (all, if none is named) together is at most `maxNorm`."""

    weightIds: Sequence[str]
    maxNorm: float

    @staticmethod
    def clipWeights(weightIds: Sequence[str], maxNorm: float) -> ClipNormSettings:
        """Makes the setting for these weights."""
        return ClipNormSettings(weightIds, maxNorm)

    @staticmethod
    def clipAllWeights(maxNorm: float) -> ClipNormSettings:
        """Makes the setting for all weights."""
        return ClipNormSettings((), maxNorm)


@dataclass(frozen=True)
class OptimizerValueMap:
    """A hyperparameter of all weights: its default, and values of single ones."""

    default: OptimizerValue
    specific: Mapping[str, OptimizerValue]

    def getDefault(self) -> OptimizerValue:
        """Gives the value of weights without one of their own."""
        return self.default

    def get(self, id: str) -> OptimizerValue:
        """Gives the value of a weight."""
        return self.specific.get(id, self.default)


class Optimizer:
    """Hyperparameters by name. Raises PopulusError for one that there is not."""

    DEFAULTS: ClassVar[Mapping[str, float]] = {}

    def __init__(self, values: Mapping[str, Any], clip_norm_settings: Sequence[ClipNormSettings] = ()):
        self.clips = tuple(clip_norm_settings)
        known = {f"default{n[0].upper()}{n[1:]}": n for n in self.DEFAULTS} | {"lossScaling": "lossScaling"}
        if strange := [n for n in values if n not in known]:
            raise PopulusError(f"{type(self).__name__} has no hyperparameter '{strange[0]}'{did_you_mean(strange[0], known)}")
        given = {known[n]: OptimizerValue.of(v) for n, v in values.items()}
        self._values = {n: given.get(n, OptimizerValue(d)) for n, d in {**self.DEFAULTS, "lossScaling": 1.0}.items()}
        self._specific: dict[str, dict[str, OptimizerValue]] = {}
        self.state_types: dict[str, int] = {}
        """ONNX's numbers of the element types of states that are not of f32, by the states' prefixes."""

    def _states(self, **types: int) -> None:
        """States element types of states. Raises PopulusError for one that is neither f32 nor f16."""
        for prefix, type in types.items():
            if type not in (DataType.UNDEFINED, DataType.FLOAT, DataType.FLOAT16):
                raise PopulusError(f"a state of {DataType(type).name}; FLOAT and FLOAT16 are there")
            if type == DataType.FLOAT16:
                self.state_types[prefix] = int(type)

    def insertSpecific(self, id: str, values: Mapping[str, Any]) -> None:
        """Gives a weight hyperparameters of its own. Raises PopulusError for one that there is not."""
        if strange := [n for n in values if n not in self.DEFAULTS]:
            raise PopulusError(f"{type(self).__name__} has no hyperparameter '{strange[0]}'{did_you_mean(strange[0], self.DEFAULTS)}")
        self._specific.setdefault(id, {}).update({n: OptimizerValue.of(v) for n, v in values.items()})

    def getLossScalingVal(self) -> float:
        """Gives the factor by which gradients are scaled."""
        return self._values["lossScaling"].value

    def of(self, weight: str) -> dict[str, float]:
        """Gives the hyperparameters of a weight."""
        return {n: v.value for n, v in {**self._values, **self._specific.get(weight, {})}.items()}

    def uses(self, name: str) -> bool:
        """Tells whether a hyperparameter is not 0, or could become so."""
        every = [self._values[name], *(s[name] for s in self._specific.values() if name in s)]
        return any(v.value != 0 or not v.const for v in every)

    def _map(self, name: str) -> OptimizerValueMap:
        return OptimizerValueMap(self._values[name], {w: v[name] for w, v in self._specific.items() if name in v})

    def learningRates(self) -> OptimizerValueMap:
        """Gives the learning rates."""
        return self._map("learningRate")

    def weightDecays(self) -> OptimizerValueMap:
        """Gives the factors of weight decay."""
        return self._map("weightDecay")


class SGD(Optimizer):
    """`w -= lr v`, `v = momentum v + (1 - dampening) (g + weightDecay w)`; with `nesterov`, a step ahead."""

    DEFAULTS: ClassVar[Mapping[str, float]] = {
        "learningRate": 0.1, "weightDecay": 0.0, "momentum": 0.0, "dampening": 0.0, "velocityScaling": 1.0, "nesterov": 0.0,
    }  # fmt: skip

    def __init__(
        self,
        pyd: Mapping[str, Any],
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        accumulatorAndMomentum: Enum = ENUMS["SGDAccumulatorAndMomentum"].__members__["Combined"],
        accumType: int = DataType.UNDEFINED,
        accl1Type: int = DataType.UNDEFINED,
        debugContext: str = "sgd",
    ):
        super().__init__({n: float(v) if isinstance(v, bool) else v for n, v in pyd.items()}, clip_norm_settings)
        self._states(**{STATES[0]: accl1Type})

    def momentums(self) -> OptimizerValueMap:
        """Gives the factors of momentum."""
        return self._map("momentum")

    def dampenings(self) -> OptimizerValueMap:
        """Gives the factors of dampening."""
        return self._map("dampening")

    def velocityScalings(self) -> OptimizerValueMap:
        """Gives the factors by which velocities are kept; results are the same."""
        return self._map("velocityScaling")

    def nesterov(self) -> OptimizerValueMap:
        """Tells whether a step looks ahead: 1 or 0."""
        return self._map("nesterov")


class ConstSGD(SGD):
    """SGD whose hyperparameters never change."""

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ):
        values = {"defaultLearningRate": learning_rate, "defaultWeightDecay": weight_decay, "lossScaling": loss_scaling}
        super().__init__(values, clip_norm_settings)


class Adam(Optimizer):
    """Adam, AdaMax or Lamb by `mode`, with or without correction of the first steps."""

    DEFAULTS: ClassVar[Mapping[str, float]] = {
        "learningRate": 1e-3, "weightDecay": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "maxWeightNorm": 10.0,
    }  # fmt: skip

    def __init__(
        self,
        values: Mapping[str, Any],
        mode: Enum = ENUMS["AdamMode"].__members__["Adam"],
        weight_decay_mode: Enum = ENUMS["WeightDecayMode"].__members__["Decay"],
        accum_type: int = DataType.UNDEFINED,
        accl1_type: int = DataType.FLOAT,
        accl2_type: int = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
        debugContext: str = "adam",
    ):
        super().__init__(values, clip_norm_settings)
        self.mode, self.decay = mode.name, weight_decay_mode.name
        self._states(**dict(zip(STATES, (accl1_type, accl2_type))))

    def beta1s(self) -> OptimizerValueMap:
        """Gives the shares of the mean that are kept."""
        return self._map("beta1")

    def beta2s(self) -> OptimizerValueMap:
        """Gives the shares of the mean square that are kept."""
        return self._map("beta2")

    def epss(self) -> OptimizerValueMap:
        """Gives the terms that keep divisors from 0."""
        return self._map("eps")

    def maxWeightNorms(self) -> OptimizerValueMap:
        """Gives the largest norms of weights that Lamb counts with."""
        return self._map("maxWeightNorm")


class Adaptive(Optimizer):
    """AdaGrad, RMSProp, centered RMSProp or AdaDelta by `mode`."""

    DEFAULTS: ClassVar[Mapping[str, float]] = {"learningRate": 0.01, "weightDecay": 0.0, "alpha": 0.99, "momentum": 0.0, "eps": 1e-6}

    def __init__(
        self,
        values: Mapping[str, Any],
        mode: Enum = ENUMS["AdaptiveMode"].__members__["RMSProp"],
        weight_decay_mode: Enum = ENUMS["WeightDecayMode"].__members__["Decay"],
        accum_type: int = DataType.UNDEFINED,
        accl1_type: int = DataType.FLOAT,
        accl2_type: int = DataType.FLOAT,
        accl3_type: int = DataType.FLOAT,
        rmsprop_tf_variant: bool = False,
        debugContext: str = "adaptive",
    ):
        super().__init__(values)
        self.mode, self.decay, self.inside = mode.name, weight_decay_mode.name, rmsprop_tf_variant
        self._states(**dict(zip(STATES, (accl1_type, accl2_type, accl3_type))))

    def alphas(self) -> OptimizerValueMap:
        """Gives the shares of mean squares that are kept."""
        return self._map("alpha")

    def momentums(self) -> OptimizerValueMap:
        """Gives the factors of momentum."""
        return self._map("momentum")

    def epss(self) -> OptimizerValueMap:
        """Gives the terms that keep divisors from 0."""
        return self._map("eps")
