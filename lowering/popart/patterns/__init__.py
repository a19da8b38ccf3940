"""Pattern table of `popart-fuse`, one line each, by name. The first pattern that matches an op is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from populus.dialects.table import lazily
from populus.lowering.popart.rewriting import Pattern

PATTERNS: dict[str, Callable[[], type[Pattern[Any]]]] = {
    # identities and constants
    "OpToIdentity": lazily("populus.lowering.popart.patterns.identity:OpToIdentity"),
    "CastOfWiderCast": lazily("populus.lowering.popart.patterns.identity:CastOfWiderCast"),
    "FoldConstants": lazily("populus.lowering.popart.patterns.constants:FoldConstants"),
    # rearrangements
    "ViewSimplify": lazily("populus.lowering.popart.patterns.views:ViewSimplify"),
    "TransposeToIdentityOrReshape": lazily("populus.lowering.popart.patterns.views:TransposeToIdentityOrReshape"),
    "TransposeThroughElementwise": lazily("populus.lowering.popart.patterns.views:TransposeThroughElementwise"),
    "SliceOfSlice": lazily("populus.lowering.popart.patterns.parts:SliceOfSlice"),
    "SliceOfConcat": lazily("populus.lowering.popart.patterns.parts:SliceOfConcat"),
    "ConcatOfSlices": lazily("populus.lowering.popart.patterns.parts:ConcatOfSlices"),
    "ConcatOfConcat": lazily("populus.lowering.popart.patterns.parts:ConcatOfConcat"),
    "ExpandCast": lazily("populus.lowering.popart.patterns.views:ExpandCast"),
    # ops that exporters decompose
    "Softmax": lazily("populus.lowering.popart.patterns.rows:Softmax"),
    "LogOfSoftmax": lazily("populus.lowering.popart.patterns.rows:LogOfSoftmax"),
    "NormScale": lazily("populus.lowering.popart.patterns.rows:NormScale"),
    "NormBias": lazily("populus.lowering.popart.patterns.rows:NormBias"),
    "LayerNorm": lazily("populus.lowering.popart.patterns.rows:LayerNorm"),
    "RmsNorm": lazily("populus.lowering.popart.patterns.rows:RmsNorm"),
    "Activation": lazily("populus.lowering.popart.patterns.activations:Activation"),
    "Attention": lazily("populus.lowering.popart.patterns.attention:Attention"),
    # integers with a scale
    "DequantizedProduct": lazily("populus.lowering.popart.patterns.quantized:DequantizedProduct"),
    "DequantizeLater": lazily("populus.lowering.popart.patterns.quantized:DequantizeLater"),
    "QuantizedAgain": lazily("populus.lowering.popart.patterns.quantized:QuantizedAgain"),
    "QuantizeSooner": lazily("populus.lowering.popart.patterns.quantized:QuantizeSooner"),
    "FoldDequantized": lazily("populus.lowering.popart.patterns.quantized:FoldDequantized"),
    # products
    "PadIntoConv": lazily("populus.lowering.popart.patterns.convolution:PadIntoConv"),
    "BatchNormIntoConv": lazily("populus.lowering.popart.patterns.convolution:BatchNormIntoConv"),
    "FactorIntoConv": lazily("populus.lowering.popart.patterns.convolution:FactorIntoConv"),
    "TermIntoConv": lazily("populus.lowering.popart.patterns.convolution:TermIntoConv"),
    "FactorIntoBatchNorm": lazily("populus.lowering.popart.patterns.convolution:FactorIntoBatchNorm"),
    "TermIntoBatchNorm": lazily("populus.lowering.popart.patterns.convolution:TermIntoBatchNorm"),
    "FactorIntoWeights": lazily("populus.lowering.popart.patterns.products:FactorIntoWeights"),
    "MergeMatMuls": lazily("populus.lowering.popart.patterns.products:MergeMatMuls"),
}
