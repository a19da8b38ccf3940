"""Formulas of meshes of cores: blocks through a matrix unit and a vector unit, and data that moves under the computing."""

from populus.runtime.cycles.mesh.contraction import contraction
from populus.runtime.cycles.mesh.steps import hidden, launch, local_copy, outside, start, transfer
from populus.runtime.cycles.mesh.vector import map_cycles, reduce_cycles

__all__ = ["contraction", "hidden", "launch", "local_copy", "map_cycles", "outside", "reduce_cycles", "start", "transfer"]
