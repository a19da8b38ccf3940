"""The sizes, types and form of a vertex that multiplies and sums: what each family of machines estimates a contraction from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.runtime.cycles.counts import Count


@dataclass(frozen=True, eq=False)
class Products:
    """A contraction vertex, or many at once where counts are arrays.

    y[group, row, col, out] = sum over in and tap. A matrix product [m, k] x [k, n] has m rows, 1 column, n out
    channels, k in channels and one tap. Products in a batch are groups; images in a batch are rows. `partials`: the
    type that halves are summed in (`sum_type`). `rounds`: the vertex stores y in its own type, and so rounds wider
    sums. `kernel_rows`: of the taps. `stride`: of the innermost dimension. `swapped`: in a product, x is loaded into the
    units, and w streams through them. `block`: the block format of w, "" if it has none.
    """

    groups: Count
    rows: Count
    cols: Count
    out_channels: Count
    in_channels: Count
    taps: Count
    element: Attribute
    target: Target
    partials: str = ""
    rounds: bool | NDArray[Any] = True
    kernel_rows: Count = 1
    stride: int = 1
    swapped: bool = False
    block: str = ""
