"""A counter-based random number generator: element i of stream s under a key is the same on any tile and in any order.

Philox4x32-10 maps a counter of four 32-bit words and a key of two to four random words.
Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects import poprand
from populus.dialects.base.tensor_op import ints
from populus.dialects.support.element_types import dtype_of

Array = NDArray[Any]
Words = NDArray[np.uint32]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # for the two halves of the counter
WEYL = (0x9E3779B9, 0xBB67AE85)  # golden ratio and sqrt(3) - 1, added to the key in each round
ROUNDS = 10


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Computes four random words for each counter; counter and result are four arrays of one shape."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0 = c0.astype(np.uint64) * np.uint64(MULTIPLIERS[0])
        p1 = c2.astype(np.uint64) * np.uint64(MULTIPLIERS[1])
        high0, low0 = (p0 >> np.uint64(32)).astype(np.uint32), p0.astype(np.uint32)
        high1, low1 = (p1 >> np.uint64(32)).astype(np.uint32), p1.astype(np.uint32)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint32(k0), low1, high0 ^ c3 ^ np.uint32(k1), low0
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def unit(words: Words) -> NDArray[np.float32]:
    """Converts words to floats in [0, 1), from their high 24 bits."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def draw(seed: Words, distribution: str, a: float, b: float, stream: int, first: int, count: int) -> NDArray[np.float32]:
    """Draws elements first .. first + count of `poprand.random`, before their conversion to its element type: [count].

    `seed`: [2], the key. `stream`: 64 bits that tell random ops apart.

    `uniform`: a + (b - a) u. `normal`: a + b sqrt(-2 log(1 - u)) cos(2 pi v), from two words (Box and Muller).
    `bernoulli`: 1 where u < a. log and cos are computed in f64 and rounded once, so that their bits depend on no engine.
    """
    index = np.arange(first, first + count, dtype=np.uint64)
    low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
    streams = np.full(count, stream & 0xFFFFFFFF, np.uint32), np.full(count, stream >> 32 & 0xFFFFFFFF, np.uint32)
    words = philox((low, high, *streams), (int(seed[0]), int(seed[1])))
    u, v = unit(words[0]), unit(words[1])
    f = np.float32
    match distribution:
        case "uniform":
            # Rounding may reach b, which is outside the interval.
            return (
                np.where(u * (f(b) - f(a)) + f(a) < f(b), u * (f(b) - f(a)) + f(a), np.nextafter(f(b), f(a)))
                if b > a
                else np.full_like(u, a)
            )
        case "normal":
            log, cos = np.log((f(1) - u).astype(np.float64)).astype(f), np.cos((f(2 * np.pi) * v).astype(np.float64)).astype(f)
            return f(a) + f(b) * (np.sqrt(f(-2) * log) * cos)
        case "bernoulli":
            return (u < f(a)).astype(np.float32)
        case _:
            raise AssertionError(distribution)


def _random(op: poprand.RandomOp, seed: Array) -> list[Array]:
    shape = ints(op.shape)
    a, b = op.a, op.b
    numbers = draw(seed, op.distribution.data, a, b, op.stream, 0, int(np.prod(shape)))
    return [numbers.reshape(shape).astype(dtype_of(op.element))]


FUNCTIONS: dict[type[Operation], Callable[..., list[Array]]] = {poprand.RandomOp: _random}
