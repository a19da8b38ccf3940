"""Cycles of reductions. Counts may be arrays or numbers, as in `contraction`.

Source: popops `reduction/CycleEstimationFunctions.cpp`, poplin's ReduceAdd.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.dialects.support.element_types import size_in_bytes
from populus.runtime.cycles.counts import Count, ceil_div
from populus.runtime.cycles.ipu.elementwise import inner, loop


def strided_worker(outputs: Count, depth: Count, width: int = 2) -> Any:
    """Estimates worker cycles of out[i] = sum over p of in[p stride + i], `width` outputs at once.

    Source: ReducePartialsEqualSize, STRIDED.
    """
    return 16 + ceil_div(outputs, width) * (3 + 5 + 3 + depth - 1)


def contiguous_worker(outputs: Count, depth: Count, width: int = 2) -> Any:
    """Estimates worker cycles of `outputs` sums, each over `depth` adjacent elements (ALL_REGIONS_CONTINUOUS)."""
    return 17 + outputs * (12 + ceil_div(depth, width))


def reduce_cycles(
    outputs: Count, depth: Count, element: Attribute, target: Target, contiguous: bool = False, add: bool = True, squares: bool = False
) -> Any:
    """Estimates tile cycles of reducing depth x outputs elements to `outputs`.

    `contiguous`: the elements of one sum are adjacent; otherwise the outputs are. `add`: partials of equal size may
    be added by the vertex that convolutions use (ReduceAdd), an accumulator's width of outputs at once. Workers
    share the outputs. If there are fewer outputs than workers they share the depth, and one of them adds the
    partial results. `squares`: of the elements, which are multiplied first.
    """
    workers, path = target.workers, max(1, target.vector_bytes // max(size_in_bytes(element), 2))
    accumulator = 2 * path
    width = 1 if contiguous else gcd(accumulator, path)
    worker = contiguous_worker if contiguous else strided_worker
    vectors = np.maximum(ceil_div(outputs, width), 1)
    sharing = np.maximum(np.minimum(workers // vectors, depth // 2), 1)  # workers per output
    own = worker(ceil_div(vectors, workers) * width, ceil_div(depth, sharing), path)
    cycles = 11 + workers * own + np.where(sharing > 1, workers * strided_worker(outputs, sharing, path), 0)
    if add and not contiguous:
        whole = ceil_div(ceil_div(outputs, accumulator), workers)
        cycles = np.minimum(cycles, 33 + workers * (20 + (accumulator // path * depth + 10) * whole))
    return cycles + workers * inner(ceil_div(outputs * depth, workers), loop("square", element, target)) if squares else cycles
