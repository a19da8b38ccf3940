"""The patterns of `popart-fuse` by name, one line each; of several that fit an op, the first here is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from populus.dialects.table import lazily
from populus.lowering.rewriting import Pattern

PATTERNS: dict[str, Callable[[], type[Pattern[Any]]]] = {
    # what is nothing, or known
    "OpToIdentity": lazily("populus.lowering.patterns.identity:OpToIdentity"),
    "CastOfWiderCast": lazily("populus.lowering.patterns.identity:CastOfWiderCast"),
    "FoldConstants": lazily("populus.lowering.patterns.constants:FoldConstants"),
    # rearrangements
    "ViewSimplify": lazily("populus.lowering.patterns.views:ViewSimplify"),
    "TransposeToIdentityOrReshape": lazily("populus.lowering.patterns.views:TransposeToIdentityOrReshape"),
    "TransposeThroughElementwise": lazily("populus.lowering.patterns.views:TransposeThroughElementwise"),
    "SliceOfSlice": lazily("populus.lowering.patterns.parts:SliceOfSlice"),
    "SliceOfConcat": lazily("populus.lowering.patterns.parts:SliceOfConcat"),
    "ConcatOfSlices": lazily("populus.lowering.patterns.parts:ConcatOfSlices"),
    "ConcatOfConcat": lazily("populus.lowering.patterns.parts:ConcatOfConcat"),
    "ExpandCast": lazily("populus.lowering.patterns.views:ExpandCast"),
    # what exporters spell out
    "Softmax": lazily("populus.lowering.patterns.rows:Softmax"),
    "LogOfSoftmax": lazily("populus.lowering.patterns.rows:LogOfSoftmax"),
    "NormScale": lazily("populus.lowering.patterns.rows:NormScale"),
    "NormBias": lazily("populus.lowering.patterns.rows:NormBias"),
    "LayerNorm": lazily("populus.lowering.patterns.rows:LayerNorm"),
    "RmsNorm": lazily("populus.lowering.patterns.rows:RmsNorm"),
    "Activation": lazily("populus.lowering.patterns.activations:Activation"),
    "Attention": lazily("populus.lowering.patterns.attention:Attention"),
    # products
    "PadIntoConv": lazily("populus.lowering.patterns.convolution:PadIntoConv"),
    "BatchNormIntoConv": lazily("populus.lowering.patterns.convolution:BatchNormIntoConv"),
    "FactorIntoConv": lazily("populus.lowering.patterns.convolution:FactorIntoConv"),
    "TermIntoConv": lazily("populus.lowering.patterns.convolution:TermIntoConv"),
    "FactorIntoBatchNorm": lazily("populus.lowering.patterns.convolution:FactorIntoBatchNorm"),
    "TermIntoBatchNorm": lazily("populus.lowering.patterns.convolution:TermIntoBatchNorm"),
    "FactorIntoWeights": lazily("populus.lowering.patterns.products:FactorIntoWeights"),
    "MergeMatMuls": lazily("populus.lowering.patterns.products:MergeMatMuls"),
}
