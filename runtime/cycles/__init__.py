"""Cycle estimates of vertices: PopLibs' estimates as formulas over box sizes, element types and the target."""

from populus.runtime.cycles.contraction import (
    AMP_LAUNCH,
    LAUNCH,
    Amp,
    amp_1x1,
    amp_nx1,
    contraction,
    slic,
    vector_macs,
    winograd_cycles,
    winograd_transform_cycles,
)
from populus.runtime.cycles.reduction import reduce_cycles
from populus.runtime.cycles.vertices import Sizes, Vertex

__all__ = [
    "AMP_LAUNCH",
    "LAUNCH",
    "Amp",
    "Sizes",
    "Vertex",
    "amp_1x1",
    "amp_nx1",
    "contraction",
    "reduce_cycles",
    "slic",
    "vector_macs",
    "winograd_cycles",
    "winograd_transform_cycles",
]
