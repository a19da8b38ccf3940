"""The planner against exhaustive search: all cuts of small products and convolutions, in every number of parts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from xdsl.dialects.builtin import f16, f32

from populus.dialects.poplar.target import make_target
from populus.lowering.poplar.plan.contraction import MEMORY_SHARE, Contraction, candidates_of, options

SHAPES = {
    "square": Contraction(1, 1, 64, 64, (64,), (1,), (1,)),
    "few rows": Contraction(1, 1, 96, 160, (5,), (1,), (1,)),
    "long k": Contraction(1, 1, 16, 512, (8,), (1,), (1,)),
    "batch": Contraction(6, 1, 32, 32, (24,), (1,), (1,)),
    "halves as halves": Contraction(1, 1, 128, 96, (48,), (1,), (1,), "f16"),
    "3x3": Contraction(1, 2, 32, 32, (10, 10), (3, 3), (1, 1)),
    "few channels": Contraction(1, 1, 24, 3, (16, 16), (5, 5), (2, 2)),
    "depthwise": Contraction(24, 1, 1, 1, (12, 12), (3, 3), (1, 1)),
}


@pytest.mark.parametrize("tiles", [16, 60])
@pytest.mark.parametrize("name", SHAPES)
def test_no_plan_is_more_than_three_percent_better(name: str, tiles: int):
    shape, target = SHAPES[name], make_target("gc200", (("tiles", tiles),))
    element = f16 if shape.partials or name == "3x3" else f32
    axes = [shape.groups, shape.batch, shape.out_channels, shape.in_channels, *shape.windows, shape.kernel[0]]
    counts = [range(1, min(size, tiles) + 1) for size in axes]
    parts: list[tuple[int, ...]] = [()]
    for count in counts:
        parts = [(*p, n) for p, n in itertools.product(parts, count) if math.prod(p) * n <= tiles]
    everything = candidates_of(shape, element, target, [np.array(p) for p in zip(*parts)])
    fits = everything.temporary_bytes() <= MEMORY_SHARE * target.room
    best = {resident: everything.cycles(resident)[fits].min() for resident in (False, True)}
    first, *resident = options(shape, element, target)
    assert first.cycles <= 1.03 * best[False]
    assert min(o.cycles for o in (first, *resident)) <= 1.03 * best[True]
