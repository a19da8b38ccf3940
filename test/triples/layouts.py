"""The table of layout ops: each permutation of the rank, and a row for each other op that moves elements or leaves them in place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import prod

import numpy as np

from triples.chain import Chain, Infeasible

Shape = tuple[int, ...]
Layout = Callable[[Chain, str, Shape], "tuple[str, Shape]"]

NAMED = 4
"""The rank up to which each permutation is a row. Of a higher one a chain has one permutation, by its place in a rotation."""


def permutations_of(rank: int) -> list[str]:
    """Lists the permutations of a rank but for the one that changes nothing, as digits."""
    return ["".join(map(str, p)) for p in permutations(range(rank))][1:]


def transpose(c: Chain, x: str, shape: Shape, digits: str) -> tuple[str, Shape]:
    perm = [int(d) for d in digits]
    if len(perm) != len(shape):
        raise Infeasible("of another rank")
    return c.op("Transpose", x, perm=perm), tuple(shape[p] for p in perm)


def reshaped(c: Chain, x: str, shape: Shape, to: Shape) -> tuple[str, Shape]:
    """Reshapes; a first dimension that stays is written 0, so that it may be open."""
    said = (0, *to[1:]) if to and shape and to[0] == shape[0] else (-1, *to[1:])
    return c.op("Reshape", x, c.ints(*said)), to


def merged(c: Chain, x: str, shape: Shape) -> tuple[str, Shape]:
    if len(shape) < 2:
        raise Infeasible("nothing to merge")
    return reshaped(c, x, shape, (*shape[:-2], shape[-2] * shape[-1]))


def divided(c: Chain, x: str, shape: Shape) -> tuple[str, Shape]:
    for axis in reversed(range(len(shape))):
        for factor in (2, 3, 5, 7):
            if shape[axis] % factor == 0 and shape[axis] > factor and (axis or len(shape) == 1):
                return reshaped(c, x, shape, (*shape[:axis], factor, shape[axis] // factor, *shape[axis + 1 :]))
    raise Infeasible("no dimension to divide")


def swapped_sizes(c: Chain, x: str, shape: Shape) -> tuple[str, Shape]:
    """The same elements under the shape turned round: no permutation of them."""
    if len(shape) < 2:
        raise Infeasible("of rank 1")
    to = tuple(reversed(shape))
    return c.op("Reshape", x, c.ints(*to)), to


def sliced(c: Chain, x: str, shape: Shape, axes: Callable[[int], list[int]], step: int, begin: int = -1) -> tuple[str, Shape]:
    chosen = axes(len(shape))
    if any(shape[a] < 3 for a in chosen):
        raise Infeasible("nothing to slice")
    begins, ends = c.ints(*[begin] * len(chosen)), c.ints(*[-(2**31) if step < 0 else 2**31 - 1] * len(chosen))
    y = c.op("Slice", x, begins, ends, c.ints(*chosen), c.ints(*[step] * len(chosen)))
    found = [len(range(*slice(begin, None, step).indices(n))) if a in chosen else n for a, n in enumerate(shape)]
    return y, tuple(found)


def unsqueezed(c: Chain, x: str, shape: Shape, at: int) -> tuple[str, Shape]:
    if len(shape) > 4:
        raise Infeasible("of too high a rank")
    at = at if at >= 0 else len(shape) + 1 + at
    return c.op("Unsqueeze", x, c.ints(at)), (*shape[:at], 1, *shape[at:])


def squeezed(c: Chain, x: str, shape: Shape) -> tuple[str, Shape]:
    ones = [i for i, n in enumerate(shape) if n == 1]
    if not ones or len(ones) == len(shape):
        raise Infeasible("no dimension of 1")
    return c.op("Squeeze", x, c.ints(*ones)), tuple(n for n in shape if n != 1)


def expanded(c: Chain, x: str, shape: Shape) -> tuple[str, Shape]:
    """Repeats all along a new dimension before the last."""
    if len(shape) > 4:
        raise Infeasible("of too high a rank")
    y = c.op("Unsqueeze", x, c.ints(-2 if len(shape) > 1 else 0))
    to = (*shape[:-1], 2, *shape[-1:])
    return c.op("Expand", y, c.ints(*[1] * (len(to) - 2), 2, 1)), to


def concatenated(c: Chain, x: str, shape: Shape, axis: int, f: Callable[[Chain, str], str], first: bool = True) -> tuple[str, Shape]:
    axis %= len(shape)
    other = f(c, x)
    parts = (x, other) if first else (other, x)
    return c.op("Concat", *parts, axis=axis), tuple(2 * n if i == axis else n for i, n in enumerate(shape))


def scaled(c: Chain, x: str) -> str:
    return c.op("Mul", x, c.constant(np.asarray(2, c.types[x])))


def relu(c: Chain, x: str) -> str:
    if c.types[x].kind != "f":
        raise Infeasible("of floats")
    return c.op("Relu", x)


def swapped_parts(c: Chain, x: str, shape: Shape, axis: int) -> tuple[str, Shape]:
    """Splits in two, and joins the parts the other way round."""
    axis %= len(shape)
    n = shape[axis]
    if n < 2:
        raise Infeasible("nothing to split")
    second = c.op("Split", x, c.ints(n // 2, n - n // 2), axis=axis, outputs=2, at=1)
    first = second[:-1] + "0"
    return c.op("Concat", second, first, axis=axis), shape


def part(c: Chain, x: str, shape: Shape, axis: int) -> tuple[str, Shape]:
    axis %= len(shape)
    n = shape[axis]
    if n < 4:
        raise Infeasible("nothing to split")
    y = c.op("Split", x, c.ints(n // 3, n - n // 3 - 1, 1), axis=axis, outputs=3, at=1)
    return y, tuple(n - n // 3 - 1 if i == axis else m for i, m in enumerate(shape))


def shuffled(c: Chain, x: str, shape: Shape) -> tuple[str, Shape]:
    """The shuffle of channels: two groups of them in turn."""
    if len(shape) < 3 or shape[1] % 2:
        raise Infeasible("no groups of channels")
    y, wide = reshaped(c, x, shape, (shape[0], 2, shape[1] // 2, *shape[2:]))
    y = c.op("Transpose", y, perm=[0, 2, 1, *range(3, len(wide))])
    return reshaped(c, y, (wide[0], wide[2], wide[1], *wide[3:]), shape)


def none(c: Chain, x: str, shape: Shape) -> tuple[str, Shape]:
    return x, shape


OTHERS: dict[str, Layout] = {
    "none": none,
    "reshape-merged": merged,
    "reshape-divided": divided,
    "reshape-swapped": swapped_sizes,
    "slice-back-last": lambda c, x, s: sliced(c, x, s, lambda r: [r - 1], -1),
    "slice-back-all": lambda c, x, s: sliced(c, x, s, lambda r: list(range(1 if r > 1 else 0, r)), -1),
    "slice-back-by-2": lambda c, x, s: sliced(c, x, s, lambda r: [max(r - 2, 0)], -2),
    "slice-inside": lambda c, x, s: sliced(c, x, s, lambda r: list(range(1 if r > 1 else 0, r)), 1, 1),
    "flip-transpose": lambda c, x, s: transpose(c, *sliced(c, x, s, lambda r: [r - 1], -1), "".join(map(str, reversed(range(len(s)))))),
    "squeeze": squeezed,
    "unsqueeze": lambda c, x, s: unsqueezed(c, x, s, 1),
    "unsqueeze-last": lambda c, x, s: unsqueezed(c, x, s, -1),
    "expand": expanded,
    "concat-itself": lambda c, x, s: concatenated(c, x, s, 1 if len(s) > 1 else 0, lambda c, x: x),
    "concat-relu": lambda c, x, s: concatenated(c, x, s, 1 if len(s) > 1 else 0, relu),
    "concat-relu-last": lambda c, x, s: concatenated(c, x, s, -1, relu, first=False),
    "concat-double-rows": lambda c, x, s: concatenated(c, x, s, 0, scaled),
    "split": lambda c, x, s: part(c, x, s, 1 if len(s) > 1 else 0),
    "split-last": lambda c, x, s: part(c, x, s, -1),
    "split-swapped": lambda c, x, s: swapped_parts(c, x, s, -1),
    "flatten": lambda c, x, s: (c.op("Flatten", x, axis=1), (s[0], prod(s[1:]))),
    "shuffle": shuffled,
}


def rows_for(rank: int, turn: int) -> list[str]:
    """Lists the layouts of a value of a rank. `turn`: chooses the permutations of a rank above NAMED."""
    digits = permutations_of(rank)
    if rank > NAMED:
        digits = [digits[(turn * 7 + i * 11) % len(digits)] for i in range(8)]
    return [*OTHERS, *(f"transpose-{d}" for d in dict.fromkeys(digits))]


def apply(name: str, c: Chain, x: str, shape: Shape) -> tuple[str, Shape]:
    """Adds a layout by name; gives the value and its shape. Raises Infeasible."""
    if name.startswith("transpose-"):
        return transpose(c, x, shape, name.removeprefix("transpose-"))
    return OTHERS[name](c, x, shape)
