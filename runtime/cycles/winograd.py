"""Cycles of 3x3 convolutions by fewer products, and of their transforms, from a machine's contractions and vector instructions."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.runtime.cycles.counts import Count, ceil_div
from populus.runtime.cycles.family import contraction
from populus.runtime.cycles.products import Products


def winograd_cycles(
    tile: int, batch: Count, out_channels: Count, in_channels: Count, rows: Count, cols: Count, element: Attribute, target: Target
) -> Any:
    """Estimates a 3x3 convolution of rows x cols outputs by F(tile x tile, 3 x 3).

    With n = tile + 2, each of the n^2 points is a product of matrices over the tiles. The transforms are vector
    operations: 2 n^2 for each tile and input channel, and as many for each tile and output channel.
    """
    points, tiles = (tile + 2) ** 2, batch * ceil_div(rows, tile) * ceil_div(cols, tile)
    products = contraction(Products(points, tiles, 1, out_channels, in_channels, 1, element, target))
    transforms = ceil_div(2 * points * tiles * (in_channels + out_channels), target.vector_width(element))
    return products + transforms


def winograd_transform_cycles(inwards: bool, tiles: Count, element: Attribute, target: Target) -> Any:
    """Estimates a transform of `tiles` tiles of 4 by 4, one for each position and channel: of inputs, or of sums.

    32 additions for each tile of inputs, 24 for each of sums, on vectors of tiles; loads and stores, 32 and 20, run beside them. The
    other terms are those of `pool`, which also walks over windows.
    """
    vectors = ceil_div(ceil_div(tiles, target.vector_width(element)), target.workers)
    return 13 + target.workers * (23 + 13 + vectors * (7 + (32 if inwards else 24)))
