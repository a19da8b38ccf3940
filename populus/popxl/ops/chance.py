"""Ops of random numbers, which follow from a seed of two uint32 alone: one seed gives the same numbers each time."""

from __future__ import annotations

from collections.abc import Iterable

from populus.popxl import dtypes
from populus.popxl.errors import WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import cast_to, element, emit, fixed
from populus.popxl.ops.elementwise import add, mul, where
from populus.popxl.ops.shape import reshape, slice
from populus.popxl.tensor import Tensor


def _drawn(seed: Tensor, shape: Iterable[int], distribution: str, a: float, b: float, type: dtypes.dtype, stream: int = 0) -> Tensor:
    if seed.shape != (2,) or seed.dtype is not dtypes.uint32:
        raise WrongValue(f"a seed is uint32 [2]; {seed.id} is {seed.dtype} {list(seed.shape)}")
    return emit("random", seed, distribution=distribution, a=a, b=b, shape=tuple(shape), element=element(type), stream=stream)


@recorded("RandomUniform")
def random_uniform(
    seed_tensor: Tensor, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0, dtype: dtypes.dtype = dtypes.float32
) -> Tensor:
    """Gives random numbers from `low` to below `high`. Raises ValueError for what is no seed."""
    return _drawn(seed_tensor, shape, "uniform", low, high, dtype)


@recorded("RandomNormal")
def random_normal(
    seed_tensor: Tensor, shape: tuple[int, ...], mean: float = 0.0, std: float = 1.0, dtype: dtypes.dtype = dtypes.float32
) -> Tensor:
    """Gives normally distributed random numbers. Raises ValueError for what is no seed."""
    return _drawn(seed_tensor, shape, "normal", mean, std, dtype)


@recorded("Dropout")
def dropout(t: Tensor, seed_tensor: Tensor, p: float) -> Tensor:
    """Gives t with each element zero with probability p, the others divided by `1 - p`. Raises ValueError for p outside of 0 to 1."""
    return shaped_dropout(t, seed_tensor, t.shape, p)


@recorded("ShapedDropout")
def shaped_dropout(t: Tensor, seed_tensor: Tensor, shape: Iterable[int], ratio: float) -> Tensor:
    """Gives `dropout` whose choice is of `shape`, and broadcast to t. Raises ValueError for a ratio outside of 0 to 1."""
    if not 0 <= ratio < 1:
        raise WrongValue(f"a probability of dropping is from 0 to below 1, not {ratio}")
    kept = cast_to(_drawn(seed_tensor, shape, "bernoulli", 1 - ratio, 0.0, dtypes.float32), dtypes.bool)
    return where(kept, mul(t, 1 / (1 - ratio)), fixed(0, t))


def split_random_seed(seed: Tensor, n: int = 2) -> tuple[Tensor, ...]:
    """Gives n other seeds, each of random bits that follow from `seed` and its number. Raises ValueError for what is no seed."""
    # Sixteen bits at a time are exact in single precision.
    halves = emit("floor", _drawn(seed, (2, n, 2), "uniform", 0.0, 65536.0, dtypes.float32, stream=1))
    high, low = (reshape(cast_to(slice(halves, k, k + 1), dtypes.uint32), (n, 2)) for k in (0, 1))
    words = add(mul(high, 65536), low)
    return tuple(reshape(slice(words, k, k + 1), (2,)) for k in range(n))
