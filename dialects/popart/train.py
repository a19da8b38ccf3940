"""The `train` dialect, of the `popart` level: losses and optimizers, ops as any other."""

from __future__ import annotations

from xdsl.ir import Dialect

from populus.dialects.base.op_modules import ops_of
from populus.dialects.popart.loss import *
from populus.dialects.popart.optimizer import *

TRAIN = Dialect("train", ops_of("train.", globals()), [])
