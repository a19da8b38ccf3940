"""Seeds of random ops, made on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popxl.errors import WrongValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_UINT64 = 2**64 - 1


def create_seeds(
    seed: int, offset: int = 0, batches_per_step: int = 1, gradient_accumulation_factor: int = 1, replicas: int = 1
) -> NDArray[Any]:
    """Gives seeds for a run's random ops: uint32 [batches, accumulation, replicas, 2] without the dimensions of one.

    The same `seed + offset` gives the same ones: NumPy's default generator draws 64 bits for each, the higher word first.
    """
    shape = (batches_per_step, gradient_accumulation_factor, replicas)
    drawn = np.random.default_rng(seed + offset).integers(0, MAX_UINT64, size=shape, dtype=np.uint64, endpoint=True)
    words = np.stack([drawn >> np.uint64(32), drawn & np.uint64(0xFFFFFFFF)], axis=-1).astype(np.uint32)
    return words.reshape(*(n for n in shape if n != 1), 2)


def uint64_to_two_uint32(num: int) -> tuple[int, int]:
    """Gives the higher and the lower 32 bits. Raises ValueError for what is not of 64 bits."""
    if not 0 <= num <= MAX_UINT64:
        raise WrongValue(f"{num} is not an unsigned integer of 64 bits")
    return num >> 32, num & 0xFFFFFFFF


def two_uint32_to_uint64(a: int, b: int) -> int:
    """Gives the number with `a` as its higher and `b` as its lower 32 bits. Raises ValueError for what is not of 32 bits."""
    if not (0 <= a < 2**32 and 0 <= b < 2**32):
        raise WrongValue(f"{a} and {b} are not both unsigned integers of 32 bits")
    return a << 32 | b
