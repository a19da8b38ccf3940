"""The kinds of PopART's ops that a graph of PopXL is made of, and a class for each: `op.AddOp` for `Add`.

A class has the name of its op type and `Op`, unless `NAMES` has another. `FOLDERS` are the modules of
`popart._internal.ir.op` that hold some of them.
"""

from __future__ import annotations

from types import SimpleNamespace

from populus.popxl.internals.clone import Movable
from populus.popxl.internals.loop import CallOp, LoopOp
from populus.popxl.internals.op import AccumulateOp, ConvOp, IfOp, IpuCopyOp, MatMulOp, Op, OptimizerOp

_KINDS = """
Abs Accumulate AccumulatorScale AdamUpdater AdamVarUpdate Add AddLhsInplace AllReduce And ArgMax ArgMin AveragePool BatchNormalization
Call Cast CastThenPow2Scale Ceil Clip Concat ConcatInplace Conv ConvTranspose CopyVarUpdate Cos CrossEntropySharded CumSum
DenseSparseMatMul Detach DetachInplace Div Dropout Fp8Scale GradReduceSquareAdd GroupQuantizeDecompress LayerNormDistributed
LinearLayout DynamicSlice DynamicUpdate DynamicUpdateInplace Equal Exp ExpInplace Floor Fmod Gather Gelu GeluErf GeluErfInplace
GeluInplace Greater GroupNormalization Histogram HostLoad HostStore Identity If IncrementMod IncrementModInplace Init IoTileCopy IpuCopy
IsInf IsNaN LambSquare Log Loop MatMul Max MaxPool ModifyRandomSeed Mul MultiExchange Neg Nll NlllWithSoftmaxGradDirect Not OneHot Or
PopartSparseAccumulate PopartTiedGather Pow Pow2ScaleThenCast PrintTensor RandomNormal RandomUniform ReduceL1 ReduceL2 ReduceLogSum
ReduceLogSumExp ReduceMax ReduceMean ReduceMedian ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu ReluInplace RemoteCodeLoad
RemoteLoad RemoteLoadInplace RemoteStore ReplicatedAllGather ReplicatedAllGatherStrided ReplicatedAllReduce ReplicatedAllReduceInplace
ReplicatedAllReduceStrided ReplicatedAllReduceTP ReplicatedReduceScatter ReplicatedReduceScatterStrided Reshape ReshapeInplace Resize
RoiAlign RotaryPosEmbed ScaledAdd ScaledAddLhsInplace Scatter ScatterReduce ShapedDropout Sign Sin Slice SliceInplace Softmax Split Sqrt
Sub Subsample Sum Swish SwishInplace Tanh TopK Transpose TransposeInplace Where
"""
KINDS = _KINDS.split()

NAMES = {
    "BatchNormalization": "BatchNormOp",
    "GroupNormalization": "GroupNormOp",
    "IsInf": "IsInf",
    "IsNaN": "IsNaN",
    "Neg": "NegateOp",
    "OneHot": "OnehotOp",
    "PopartSparseAccumulate": "SparseAccumulateOp",
    "PopartTiedGather": "TiedGatherOp",
    "Sub": "SubtractOp",
}

FOLDERS = {
    "collectives": ("AllReduce", "ReplicatedAllGather", "ReplicatedAllReduce", "ReplicatedAllReduceInplace", "ReplicatedReduceScatter"),
    "dynamic": ("DynamicSlice", "DynamicUpdate", "DynamicUpdateInplace"),
    "exchange": ("HostLoad", "HostStore", "MultiExchange", "RemoteCodeLoad", "RemoteLoad", "RemoteLoadInplace", "RemoteStore"),
}

# Kinds that answer more questions than `Op`.
_BASES: dict[str, type[Op]] = {
    **dict.fromkeys(("Accumulate", "AccumulatorScale", "PopartSparseAccumulate"), AccumulateOp),
    **dict.fromkeys(("AdamUpdater", "AdamVarUpdate", "CopyVarUpdate", "LambSquare"), OptimizerOp),
    "Call": CallOp,
    "Conv": ConvOp,
    "If": IfOp,
    "IpuCopy": IpuCopyOp,
    "Loop": LoopOp,
    "MatMul": MatMulOp,
}


def _class(kind: str) -> type[Op]:
    base, name = _BASES.get(kind, Op), NAMES.get(kind, f"{kind}Op")
    if base.kind == kind:
        return base
    return type(name, (Movable, base), {"kind": kind, "__doc__": f"PopART's op {kind} in a graph of PopXL.", "__module__": __name__})


CLASSES: dict[str, type[Op]] = {kind: _class(kind) for kind in KINDS}


def op_module() -> SimpleNamespace:
    """Gives the classes as `popart._internal.ir.op` has them: by class name, some in folders."""
    foldered = {kind: folder for folder, kinds in FOLDERS.items() for kind in kinds}
    made = SimpleNamespace(**{folder: SimpleNamespace() for folder in FOLDERS})
    for kind, found in CLASSES.items():
        setattr(getattr(made, foldered[kind]) if kind in foldered else made, found.__name__, found)
    return made
