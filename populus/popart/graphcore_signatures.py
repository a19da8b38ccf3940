"""The methods of `builder.aiGraphcore`: op types, attributes in their order, and numbers of outputs. Source: PopART's Python API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Signature:
    """The call of an op. The first `required` attributes must be given; `counted`: `num_outputs` comes first, and a list is returned.

    `kinds`: ONNX's types of attributes. `inputs`: whether it takes tensors. `after`: attributes after `debugContext`.
    `texts`: attributes that are texts.
    `named`: attributes that are only given by name. `debug`: the name of the parameter that names the node.
    """

    op: str
    attributes: tuple[str, ...] = ()
    required: int = 0
    counted: bool = False
    outputs: int = 1
    after: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset(
        ("mode", "outDataType", "coordinate_transformation_mode", "direction", "nearest_mode", "lambda", "planType", "callee", "to")
    )
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    inputs: bool = True
    named: tuple[str, ...] = ()
    debug: str = "debugContext"


def _of(
    op: str, attributes: str = "", required: int = 0, counted: bool = False, outputs: int = 1, after: str = "", debug: str = "debugContext"
) -> Signature:
    kinds: dict[str, str] = dict.fromkeys(_FLOATS, "FLOAT")
    return Signature(
        op, tuple(attributes.split()), required, counted, outputs, tuple(after.split()), kinds=kinds, inputs=op != "Init", debug=debug
    )


_FLOATS: tuple[str, ...] = ("epsilon", "increment", "lambda", "modulus", "momentum", "ratio", "scale", "scale0", "scale1")
_CONV = "dilations inDilations pads outPads strides availableMemoryProportions partialsTypes planType perConvReservedTiles cycleBackOff"
_PRINT = "title summariseThreshold edgeItems maxLineWidth digits floatFormat separator openBracket closeBracket"

SIGNATURES = {
    "abort": _of("Abort", outputs=0),
    "atan2": _of("Atan2"),
    "batchnormalization": _of("BatchNormalization", "epsilon momentum", counted=True, outputs=5),
    "bitwiseand": _of("BitwiseAnd"),
    "bitwisenot": _of("BitwiseNot"),
    "bitwiseor": _of("BitwiseOr"),
    "bitwisexnor": _of("BitwiseXnor"),
    "bitwisexor": _of("BitwiseXor"),
    "bucketize": _of("Bucketize", "right"),
    "call": _of("Call", "callee", 1, counted=True, outputs=0),
    "copyvarupdate": _of("CopyVarUpdate"),
    "ctcbeamsearchdecoder": _of("CtcBeamSearchDecoder", "blank beam_width top_paths", outputs=3, debug="debug_context"),
    "ctcloss": _of("Ctc", "reduction blank outDataType zeroInfinity"),
    "depthtospace": _of("DepthToSpace", "blocksize mode", 1),
    "detach": _of("Detach"),
    "dynamicadd": _of("DynamicAdd", "axes sizes", 2),
    "dynamicslice": _of("DynamicSlice", "axes sizes noOverlap", 2),
    "dynamicupdate": _of("DynamicUpdate", "axes sizes noOverlap", 2),
    "dynamiczero": _of("DynamicZero", "axes sizes", 2),
    "expm1": _of("Expm1"),
    "fmod": _of("Fmod"),
    "gelu": _of("Gelu"),
    "geluerf": _of("GeluErf"),
    "groupedgather": _of("GroupedGather", "axis group_size"),
    "groupedscatterreduce": _of("ScatterReduce", "axis_size axis reduction group_size enable_index_broadcast", 1),
    "groupnormalization": _of("GroupNormalization", "num_groups epsilon", 1, outputs=3),
    "identityloss": _of("IdentityLoss", "reduction"),
    "incrementmod": _of("IncrementMod", "increment modulus", 2),
    "init": _of("Init", "shape data_type init_type batch_axis", 3),
    "l1loss": _of("L1", "lambda reduction", 1),
    "log1p": _of("Log1p"),
    "lstm": _of("LSTM", "outputFullSequence", outputs=2),
    "multiconv": _of("MultiConv", f"{_CONV} enableConvDithering", outputs=0),
    "nearbyint": _of("NearbyInt"),
    "nllloss": _of("Nll", "reduction ignoreIndex inputIsLogProbability"),
    "nop": _of("Nop"),
    "normalize_image": _of("NormalizeImage", "scale"),
    "packedDataBlock": _of("PackedDataBlock", "maxSequenceLengths resultSize callbackBatchSize callback", 4),
    "printtensor": _of("PrintTensor", "print_gradient", after=_PRINT),
    "reducemedian": _of("ReduceMedian", "axes keepdims", outputs=2),
    "remainder": _of("Remainder"),
    "replicatedallreduce": _of("ReplicatedAllReduce", "collectiveOperator commGroup"),
    "replicatedreducescatter": _of("ReplicatedReduceScatter", "collectiveOperator commGroup"),
    "reshape": _of("Reshape", "shape", 1),
    "reverse": _of("Reverse", "dimensions", 1),
    "round": _of("Round"),
    "scale": _of("Scale", "scale", 1),
    "scaledadd": _of("ScaledAdd", "scale0 scale1"),
    "scatterreduce": _of("ScatterReduce", "axis_size axis reduction enable_index_broadcast", 1),
    "sequenceslice": _of("SequenceSlice", "zeroUnused"),
    "shapeddropout": _of("ShapedDropout", "shape ratio", 1),
    "slice": _of("Slice", "ends starts axes", 2),
    "sort": _of("Sort", "axis descending stable", outputs=2),
    "splinebasis": _of("SplineBasis", "degree", outputs=2),
    "splineweighting": _of("SplineWeighting"),
    "subsample": _of("Subsample", "strides", 1),
    "swish": _of("Swish"),
    "tensorremap": _of("TensorRemap", "remap_type", debug="debugPrefix"),
}
