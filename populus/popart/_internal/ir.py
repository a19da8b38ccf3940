"""Names of `popart._internal.ir`, by which PopXL's programs look into their graphs: classes of ops, and views of graphs and tensors.

The classes of ops are made of the table `populus.popxl.internals.kinds`. Their answers are read from the program.
"""

from __future__ import annotations

from populus.popart.enums import ENUMS
from populus.popart.settings import Patterns, SessionOptions
from populus.popart.variables import Grouping as ReplicaGrouping
from populus.popxl.internals.kinds import op_module
from populus.popxl.internals.op import MatMulPartialsType, Op
from populus.popxl.internals.options import IrView as Ir
from populus.popxl.internals.regions import Region, TopoCons
from populus.popxl.internals.views import GraphView as Graph
from populus.popxl.internals.views import TensorType
from populus.popxl.internals.views import TensorView as Tensor
from populus.popxl.tensorlocation import ExecutionContext, TileSet
from populus.popxl.transforms.autodiff import ExpectedConnectionType
from populus.popxl.transforms.autodiff import NamedConnection as ExpectedConnection
from populus.popxl.transforms.autodiff import NamedGradGraphInfo as BwdGraphInfo


class patterns:
    """The module of rewrites."""

    Patterns = Patterns
    PatternsLevel = ENUMS["PatternsLevel"]


class view:
    """The module of parts of tensors."""

    Region = Region


GraphId = str  # graphs have names

op = op_module()
op.MatMulPartialsType = MatMulPartialsType

__all__ = [
    "BwdGraphInfo",
    "ExecutionContext",
    "ExpectedConnection",
    "ExpectedConnectionType",
    "Graph",
    "GraphId",
    "Ir",
    "Op",
    "ReplicaGrouping",
    "SessionOptions",
    "Tensor",
    "TensorType",
    "TileSet",
    "TopoCons",
    "op",
    "patterns",
    "view",
]
