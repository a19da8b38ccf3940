"""The order in which a product in slices adds: each slice of k by itself, then the slices."""

from __future__ import annotations

import itertools
import math

import numpy as np

from populus.dialects.poplar.task import Chain
from populus.runtime.engine.native.kernels.panels import Slices


def slices_of(chain: Chain) -> Slices:
    """Lists the elements of k by slices, in the order of their addition."""
    space = chain.product.space.splits
    weights = chain.product.fields.data[1]  # kernels iterate over k in the order of the second operand's dimensions
    axes = [a for access in weights.access for a, _ in access.terms if a in chain.product.contracted]
    places = np.arange(math.prod(space[a].n for a in axes), dtype=np.int64).reshape([space[a].n for a in axes])
    bounds = {a: list(itertools.pairwise(space[a].bounds())) for a in chain.parts}
    order: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
    for chosen in itertools.product(*(bounds[a] for a in chain.parts)):
        cut = dict(zip(chain.parts, chosen))
        order.append(places[tuple(slice(*cut[a]) if a in cut else slice(None) for a in axes)].reshape(-1))
    ends = np.cumsum([0, *(len(o) for o in order)], dtype=np.int64)
    return Slices(np.concatenate(order), ends)
