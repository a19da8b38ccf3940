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
}


def _given(prefix: str) -> str:
    return prefix


PREFIXES: dict[str, Callable[[], str]] = {f"reserved{name}Prefix": partial(_given, prefix) for name, prefix in _PREFIXES.items()}
