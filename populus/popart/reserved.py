"""Prefixes of tensor names that have a meaning: `popart.reservedGradientPrefix() + "x"` is the gradient of x."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

GRADIENT = "Gradient___"
STATES = ("Accl1___", "Accl2___", "Accl3___")
STEP = "Step___"

_PREFIXES = {
    "Gradient": GRADIENT,
    "UpdatedVar": "UpdatedVar___",
    "Accum": "Accum___",
    "Accl": "Accl___",
    "Accl1": STATES[0],
    "Accl2": STATES[1],
    "Accl3": STATES[2],
    "Step": STEP,
    "FinalReducedGrad": "FinalReducedGradient___",
    "AdamUpdater": "AdamUpdater___",
    "LambR1Sq": "LambR1Sq___",
    "LambR2Sq": "LambR2Sq___",
    "Stashed": "Stashed___",
    "Restored": "Restored___",
    "LossScaling": "lossScaling_",
    "RandomSeed": "randomSeed___",
    "SeedModifier": "randomSeedModifier___",
    "RemoteArg": "RemoteArg___",
    "AcclToReduce": "AcclIntoReduce___",
    "AcclToUpdate": "AcclIntoUpdate___",
    "AcclFinalOut": "AcclOutOfAcclUpdate___",
    "AutomaticLossScale": "AutomaticLossScaleProxy___",
}
# Hyperparameters: `reservedDefaultLearningRatePrefix()` is "learningRate___default___", with Specific that of one weight.
_SCALARS = {
    "WeightDecayScaleFactor0": "weightDecayScaleFactor0",
    "ScaledLearningRate0": "scaledLearningRate0",
    "ScaledWeightDecay1": "scaledWeightDecay1",
    "ScaledLearningRate1": "scaledLearningRate1",
    "DampeningScaleFactor1": "dampeningScaleFactor1",
    "ScaledMomentum1": "scaledMomentum1",
    "LearningRate": "learningRate",
    "WeightDecay": "weightDecay",
    "LossScaling": "lossScaling",
    "MaxWeightNorm": "maxWeightNorm",
    "AdamBeta1": "adamBeta1",
    "AdamBeta2": "adamBeta2",
    "AdamEps": "adamEps",
    "Step": "step",
}
_HYPERPARAMETERS = {f"{kind}{name}": f"{text}___{kind.lower()}___" for name, text in _SCALARS.items() for kind in ("Default", "Specific")}


def _given(prefix: str) -> str:
    return prefix


PREFIXES: dict[str, Callable[[], str]] = {
    f"reserved{name}Prefix": partial(_given, prefix) for name, prefix in {**_PREFIXES, **_HYPERPARAMETERS}.items()
}
