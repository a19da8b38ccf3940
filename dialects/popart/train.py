"""The `train` dialect, of the `popart` level: losses and optimizers, ops as any other."""

from __future__ import annotations

from xdsl.ir import Dialect

from populus.dialects.popart.loss import AbsoluteErrorOp, BinaryCrossEntropyOp, CrossEntropyOp, SquaredErrorOp
from populus.dialects.popart.optimizer import (
    AdadeltaOp,
    AdagradOp,
    AdaMaxOp,
    AdamOp,
    AdamWOp,
    LambOp,
    MomentumOp,
    OptimizerOp,
    RmsPropOp,
    SgdOp,
)

TRAIN = Dialect(
    "train",
    [
        AbsoluteErrorOp,
        AdaMaxOp,
        AdadeltaOp,
        AdagradOp,
        AdamOp,
        AdamWOp,
        BinaryCrossEntropyOp,
        CrossEntropyOp,
        LambOp,
        MomentumOp,
        RmsPropOp,
        SgdOp,
        SquaredErrorOp,
    ],
    [],
)

__all__ = [
    "TRAIN",
    "AbsoluteErrorOp",
    "AdaMaxOp",
    "AdadeltaOp",
    "AdagradOp",
    "AdamOp",
    "AdamWOp",
    "BinaryCrossEntropyOp",
    "CrossEntropyOp",
    "LambOp",
    "MomentumOp",
    "OptimizerOp",
    "RmsPropOp",
    "SgdOp",
    "SquaredErrorOp",
]
