"""The `poplar` dialect: programs for a machine of tiles."""

from xdsl.ir import Dialect

from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.declared import CodeletOp
from populus.dialects.poplar.memory import BroadcastOp, ConstOp, DimShuffleOp, ParamOp, ReshapeOp, SliceOp, StorageOp, VarOp, ViewOp
from populus.dialects.poplar.outside import CollectiveOp, HostCallOp, OutsideOp
from populus.dialects.poplar.program import (
    CallOp,
    FuncOp,
    GraphOp,
    IfOp,
    RepeatOp,
    SequenceOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    WhileOp,
)
from populus.dialects.poplar.target import TargetAttr
from populus.dialects.poplar.task import TaskOp
from populus.dialects.poplar.types import DomainAttr, Field, FieldsAttr, GridAttr, TensorType

POPLAR = Dialect(
    "poplar",
    [
        BroadcastOp,
        CallOp,
        CodeletOp,
        CollectiveOp,
        ConstOp,
        CopyOp,
        DimShuffleOp,
        ExecuteOp,
        FamilyOp,
        FuncOp,
        GraphOp,
        HostCallOp,
        IfOp,
        ParamOp,
        RepeatOp,
        ReshapeOp,
        SequenceOp,
        SliceOp,
        StreamInOp,
        StreamOutOp,
        SwitchOp,
        TaskOp,
        VarOp,
        WhileOp,
    ],
    [DomainAttr, FieldsAttr, GridAttr, TargetAttr, TensorType],
)

__all__ = [
    "POPLAR", "BroadcastOp", "CallOp", "CodeletOp", "CollectiveOp", "ConstOp", "CopyOp", "DimShuffleOp", "DomainAttr", "ExecuteOp",
    "FamilyOp", "Field", "FieldsAttr", "FuncOp", "GraphOp", "GridAttr", "HostCallOp", "IfOp", "OutsideOp", "ParamOp", "RepeatOp",
    "ReshapeOp", "SequenceOp", "SliceOp", "StorageOp", "StreamInOp", "StreamOutOp", "SwitchOp", "TargetAttr", "TaskOp", "TensorType",
    "VarOp", "ViewOp", "WhileOp",
]  # fmt: skip
