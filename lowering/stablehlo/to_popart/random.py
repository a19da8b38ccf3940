"""Conversions of random numbers: bits of a stated algorithm, and numbers of a distribution.

Source: Salmon and others, Parallel random numbers: as easy as 1, 2, 3 (SC 2011): Threefry-2x32-20, Philox-4x32-10; and XLA's order
of their words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import size_in_bytes, ui8, ui16, ui32, ui64
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Rules, Value, element, shape

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PHILOX = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)  # multipliers, increments of the key


def words(c: Conversion, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Splits 64-bit integers to their low and high words."""
    low = c.cast(c(popart.BitwiseAndOp, x, c.scalar(0xFFFFFFFF, x)), ui32)
    return low, c.cast(c(popart.BitShiftOp, x, c.scalar(32, x), left=False), ui32)


def joined(c: Conversion, low: SSAValue, high: SSAValue) -> SSAValue:
    """Makes 64-bit integers of words."""
    high = c.cast(high, ui64)
    return c(popart.BitwiseOrOp, c.cast(low, ui64), c(popart.BitShiftOp, high, c.scalar(32, high), left=True))


def rotated(c: Conversion, x: SSAValue, by: int) -> SSAValue:
    """Rotates bits to the left."""
    left = c(popart.BitShiftOp, x, c.scalar(by, x), left=True)
    return c(popart.BitwiseOrOp, left, c(popart.BitShiftOp, x, c.scalar(32 - by, x), left=False))


def threefry(c: Conversion, keys: Sequence[SSAValue], x: Sequence[SSAValue]) -> tuple[SSAValue, SSAValue]:
    """Computes twenty rounds of Threefry-2x32."""
    k0, k1 = keys
    k2 = c(popart.BitwiseXorOp, c(popart.BitwiseXorOp, k0, k1), c.scalar(0x1BD11BDA, k0))
    schedule = (k0, k1, k2)
    a, b = c(popart.AddOp, x[0], k0), c(popart.AddOp, x[1], k1)
    for group in range(5):
        for by in ROTATIONS[group % 2]:
            a = c(popart.AddOp, a, b)
            b = c(popart.BitwiseXorOp, rotated(c, b, by), a)
        a = c(popart.AddOp, a, schedule[(group + 1) % 3])
        b = c(popart.AddOp, b, c(popart.AddOp, schedule[(group + 2) % 3], c.scalar(group + 1, b)))
    return a, b


def philox(c: Conversion, key: Sequence[SSAValue], x: Sequence[SSAValue]) -> list[SSAValue]:
    """Computes ten rounds of Philox-4x32."""
    now, (k0, k1) = list(x), key
    for step in range(10):
        if step:
            k0, k1 = (c(popart.AddOp, k, c.scalar(inc, k)) for k, inc in zip((k0, k1), PHILOX[1]))
        (low0, high0), (low1, high1) = (
            words(c, c(popart.MulOp, c.cast(v, ui64), c.scalar(m, ui64))) for v, m in zip((now[0], now[2]), PHILOX[0])
        )
        first = c(popart.BitwiseXorOp, c(popart.BitwiseXorOp, high1, now[1]), k0)
        second = c(popart.BitwiseXorOp, c(popart.BitwiseXorOp, high0, now[3]), k1)
        now = [first, low1, second, low0]
    return now


def rng_bit_generator(c: Conversion) -> list[Value]:
    """Converts rng_bit_generator by its stated algorithm; DEFAULT is Philox, as on XLA's CPUs."""
    import numpy as np

    state, to = c.input(0), c.any.results[1].type
    own = element(state)
    if own != ui64:
        raise PopulusError(f"the state is {state.type}; one of ui64 is expected")
    algorithm, out = c.get("rng_algorithm"), c.shape(1)
    want = c.element(1)
    bits = size_in_bytes(want)
    count = math.prod(out)
    at = [c.reshape(c.slice(state, {0: (i, i + 1, 1)}), ()) for i in range(shape(state)[0])]
    if algorithm == "THREE_FRY":
        # Words of the counter are paired as halves of the result: the first words of all, then the second words.
        blocks = count if bits == 8 else -(-count // 2)
        line = c(popart.AddOp, c.constant(np.arange(blocks, dtype=np.uint64)), at[1])
        a, b = threefry(c, words(c, at[0]), words(c, line))
        found = joined(c, a, b) if bits == 8 else c(popart.ConcatOp, a, b, axis=0)
        new = [at[0], c(popart.AddOp, at[1], c.scalar(blocks, at[1]))]
    elif len(at) in (2, 3) and bits >= 4:
        blocks = -(-count * bits // 16)
        line = c(popart.AddOp, c.constant(np.arange(blocks, dtype=np.uint64)), at[1])
        upper = at[2] if len(at) == 3 else c.scalar(0, ui64)
        carry = c.cast(c(popart.LessOp, line, at[1]), ui64)
        high = c(popart.AddOp, upper, carry)
        got = philox(c, words(c, at[0]), (*words(c, line), *words(c, c.expand(high, shape(line)))))
        parts = got if bits == 4 else [joined(c, got[0], got[1]), joined(c, got[2], got[3])]
        found = c.reshape(c(popart.ConcatOp, *(c.reshape(p, (*shape(p), 1)) for p in parts), axis=1), (blocks * len(parts),))
        moved = c(popart.AddOp, at[1], c.scalar(blocks, at[1]))
        new = [at[0], moved]
        if len(at) == 3:
            new.append(c(popart.AddOp, at[2], c.cast(c(popart.LessOp, moved, at[1]), ui64)))
    else:
        raise PopulusError(f"{algorithm} of {to} from a state of {len(at)} words is not converted")
    found = c.slice(found, {0: (0, count, 1)})
    if bits < 4:
        found = c.cast(c(popart.BitwiseAndOp, found, c.scalar((1 << 8 * bits) - 1, found)), {1: ui8, 2: ui16}[bits])
    states = c(popart.ConcatOp, *(c.reshape(v, (1,)) for v in new), axis=0)
    return [states, c.reshape(c.bits(found, want), out)]


RULES: Rules = {"rng_bit_generator": rng_bit_generator}
