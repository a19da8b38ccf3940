"""The `popart` dialect: what a model computes, on tensors of static shape. See README.md for the table of ops.

Each module holds a family of ops. Whatever op class a module named here defines is in the dialect, and importable from here.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from populus.dialects.base.op_modules import ops_of
from populus.dialects.popart.activation import *
from populus.dialects.popart.arithmetic import *
from populus.dialects.popart.array import TensorValueAttr
from populus.dialects.popart.attention import *
from populus.dialects.popart.base import *
from populus.dialects.popart.collective import *
from populus.dialects.popart.control_flow import *
from populus.dialects.popart.conv import *
from populus.dialects.popart.functions import *
from populus.dialects.popart.gather import *
from populus.dialects.popart.graphcore import *
from populus.dialects.popart.logic import *
from populus.dialects.popart.matmul import *
from populus.dialects.popart.norm import *
from populus.dialects.popart.packed_weights import *
from populus.dialects.popart.pool import *
from populus.dialects.popart.quantized import *
from populus.dialects.popart.random import *
from populus.dialects.popart.reduce import *
from populus.dialects.popart.reshape import *
from populus.dialects.popart.softmax import *
from populus.dialects.popart.sparse import SparseType

POPART = Dialect("popart", ops_of("popart.", globals()), [SparseType, TensorValueAttr])
