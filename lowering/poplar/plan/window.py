"""Strided windows: if windows read only every g-th element, the operand becomes a view of every g-th element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from populus.dialects.poplar.types import TensorType
from populus.lowering.poplar.tile_builder import TileBuilder


@dataclass(frozen=True)
class Windows:
    """Windows along each spatial dimension of an operand: element o stride + k dilation - before, of `sizes`
    elements.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def pads(self) -> tuple[int, ...]:
        """Padding before each dimension, then after each."""
        return (*self.before, *self.after)


def thinned(t: TileBuilder, x: SSAValue, w: Windows, windows: Sequence[int], kernel: Sequence[int]) -> tuple[SSAValue, Windows]:
    """Returns x: [batch, channels, sizes..] and its windows, without the elements that no window reads.

    g is the greatest common divisor of stride and dilation. (A kernel of 1 has no dilation, a single window no
    stride.) All elements read are r modulo g. Index p of x becomes index (p - r) / g of every g-th element from r
    on.
    """
    assert isinstance(x.type, TensorType)
    begins, steps = [0, 0], [1, 1]
    columns: list[tuple[int, int, int, int, int]] = []
    for d, n in enumerate(w.sizes):
        g = math.gcd(w.strides[d] if windows[d] > 1 else 0, w.dilations[d] if kernel[d] > 1 else 0) or 1
        r = -w.before[d] % g
        if r >= n:  # all windows read padding only
            g, r = 1, 0
        size = -(-(n - r) // g)
        after = -(-(n + w.after[d] - r) // g) - size
        columns.append((size, max(w.strides[d] // g, 1), max(w.dilations[d] // g, 1), (w.before[d] + r) // g, after))
        begins.append(r)
        steps.append(g)
    if all(s == 1 for s in steps):
        return x, w
    sizes, strides, dilations, before, after = zip(*columns)
    return t.slice(x, begins, x.type.shape, steps), Windows(sizes, strides, dilations, before, after)
