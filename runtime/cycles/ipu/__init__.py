"""Formulas of Graphcore's processors: PopLibs' estimates over box sizes, element types and the numbers of a `Target`."""

from populus.runtime.cycles.ipu.contraction import contraction
from populus.runtime.cycles.ipu.elementwise import map_cycles
from populus.runtime.cycles.ipu.reduction import reduce_cycles
from populus.runtime.cycles.ipu.steps import hidden, launch, local_copy, outside, start, transfer

__all__ = ["contraction", "hidden", "launch", "local_copy", "map_cycles", "outside", "reduce_cycles", "start", "transfer"]
