"""Cycle estimates of vertices and steps: the formulas of a machine's family, over box sizes, element types and its numbers."""

from populus.runtime.cycles.family import FAMILIES, Family, contraction, family, map_cycles, reduce_cycles
from populus.runtime.cycles.products import Products
from populus.runtime.cycles.vertices import Sizes, Vertex
from populus.runtime.cycles.winograd import winograd_cycles, winograd_transform_cycles

__all__ = [
    "FAMILIES",
    "Family",
    "Products",
    "Sizes",
    "Vertex",
    "contraction",
    "family",
    "map_cycles",
    "reduce_cycles",
    "winograd_cycles",
    "winograd_transform_cycles",
]
