"""Shapes: broadcasting, reductions, permutations, windows. Pure functions on tuples of dimensions, all static.

`ShapeError` says what disagrees; the op or pass that asked adds the place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from xdsl.utils.exceptions import VerifyException

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Counts: TypeAlias = "NDArray[int64]"

Shape: TypeAlias = tuple[int, ...]


class ShapeError(VerifyException):
    """Shapes that do not fit together."""


def broadcast(*shapes: Sequence[int]) -> Shape:
    """Broadcasts shapes as NumPy and ONNX do: right-aligned, 1 stretches.

    Raises ShapeError naming the shapes.
    """
    rank = max(map(len, shapes), default=0)
    result: list[int] = []
    for d in range(rank):
        sizes = {s[d - rank + len(s)] for s in shapes if d - rank + len(s) >= 0} - {1}
        if len(sizes) > 1:
            raise ShapeError(f"shapes {' and '.join(text(s) for s in shapes)} do not broadcast: {sorted(sizes)} meet")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def natural(shape: Shape) -> Shape:
    """Returns a shape. Raises ShapeError if a size is negative."""
    if any(n < 0 for n in shape):
        raise ShapeError(f"a size of {text(shape)} is negative")
    return shape


def text(shape: Sequence[int]) -> str:
    """Formats a shape: `2x3x4`, or `scalar`."""
    return "x".join(map(str, shape)) or "scalar"


def axis(index: int, rank: int) -> int:
    """Converts a dimension counted from the end to one from the front. Raises ShapeError if there is no such dimension."""
    if not -rank <= index < rank:
        raise ShapeError(f"there is no dimension {index} of {rank}")
    return index % rank


def front(index: int, rank: int) -> None:
    """Raises ShapeError unless `index` is a dimension counted from the front, as library calls have them."""
    if not 0 <= index < rank:
        raise ShapeError(f"there is no dimension {index} of {rank}, counted from the front")


def axes(indices: Sequence[int], rank: int) -> Shape:
    """Converts dimensions as `axis` does, and sorts them. Raises ShapeError for one out of range or named twice."""
    result = sorted(axis(i, rank) for i in indices)
    if len(set(result)) < len(result):
        raise ShapeError(f"a dimension is named twice in {list(indices)}")
    return tuple(result)


def reduced(shape: Sequence[int], dims: Sequence[int], keep: bool) -> Shape:
    """Removes `dims` from `shape`, or sets them to 1."""
    return tuple(1 if d in dims else n for d, n in enumerate(shape) if keep or d not in dims)


def permuted(shape: Sequence[int], permutation: Sequence[int]) -> Shape:
    """Permutes a shape: dimension i of the result is dimension permutation[i]. Raises ShapeError if it is not a permutation."""
    if sorted(permutation) != list(range(len(shape))):
        raise ShapeError(f"{list(permutation)} is not a permutation of the {len(shape)} dimensions of {text(shape)}")
    return tuple(shape[d] for d in permutation)


def reshape(shape: Sequence[int], new: Sequence[int]) -> Shape:
    """Computes the -1 of `new`. Raises ShapeError if another size is negative, or if the numbers of elements differ."""
    elements = math.prod(shape)
    if -1 in new:
        rest = -math.prod(new)
        if new.count(-1) > 1 or rest == 0 or elements % rest:
            raise ShapeError(f"{text(shape)} ({elements} elements) cannot become {text(new)}")
        new = [elements // rest if n == -1 else n for n in new]
    natural(tuple(new))
    if math.prod(new) != elements:
        raise ShapeError(f"{text(shape)} has {elements} elements, {text(new)} {math.prod(new)}")
    return tuple(new)


@overload
def reach(count: int, stride: int, kernel: int, dilation: int) -> int: ...
@overload
def reach(count: Counts, stride: int, kernel: Counts, dilation: int) -> Counts: ...
def reach(count: Any, stride: Any, kernel: Any, dilation: Any) -> Any:
    """Gives the extent in elements of `count` windows: (count - 1) stride + (kernel - 1) dilation + 1.

    Counts and kernels may be arrays of integers, one element for each candidate of a planner.
    """
    return (count - 1) * stride + (kernel - 1) * dilation + 1


def window(size: int, kernel: int, stride: int, dilation: int, before: int, after: int, ceil: bool = False) -> int:
    """Counts the windows that fit: (size + before + after - ((kernel - 1) dilation + 1)) / stride + 1, rounded down.

    `ceil`: rounded up, less windows that would start in the upper padding (ONNX, PyTorch). Then a kernel may exceed the
    padded input by less than a stride.
    Raises ShapeError if no window fits.
    Source: ONNX Conv-22, MaxPool-22.
    """
    extent = reach(1, stride, kernel, dilation)
    room = size + before + after - extent
    count = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (count - 1) * stride >= size + before:
        count -= 1
    if count < 1:
        raise ShapeError(f"a kernel that reaches {extent} does not fit {size} elements padded by {before} and {after}")
    return count


WIDEST_WINDOW = 1 << 20  # elements along a dimension: each is a step


def windows(
    x: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil: bool = False,
    crops: bool = False,
) -> Shape:
    """Counts the windows in each spatial dimension of x: [batch, channels, size..]; `pads`: the lower ones, then the upper ones.

    Raises ShapeError for lists of other lengths, and for numbers below 1 (pads: below 0, unless negative ones crop).
    """
    spatial = len(x) - 2
    if spatial < 1 or (len(kernel), len(strides), len(pads), len(dilations)) != (spatial, spatial, 2 * spatial, spatial):
        raise ShapeError(
            f"x {text(x)}, a kernel of {text(kernel)}, {len(strides)} strides, {len(pads)} pads and {len(dilations)} dilations "
            f"do not agree on the number of spatial dimensions"
        )
    if min((*kernel, *strides, *dilations)) < 1 or (min(pads) < 0 and not crops):
        raise ShapeError(f"kernel, strides and dilations are at least 1{'' if crops else ', pads at least 0'}")
    if max(kernel) > WIDEST_WINDOW:
        raise ShapeError(f"a window has {max(kernel)} elements along a dimension; at most {WIDEST_WINDOW} are gone through")
    return tuple(
        window(n, k, stride, dilation, before, behind, ceil)
        for n, k, stride, dilation, before, behind in zip(x[2:], kernel, strides, dilations, pads[:spatial], pads[spatial:])
    )


def overhanging(pads: Sequence[int], ceil: bool = False) -> list[int]:
    """Lists the dimensions of x, [batch, channels, size..], beyond whose end windows reach: padded there, or all with `ceil`."""
    return [d for d, after in enumerate(pads[len(pads) // 2 :], 2) if after > 0 or ceil]


def transposed_window(size: int, kernel: int, stride: int, dilation: int, before: int, after: int, output_padding: int) -> int:
    """Computes the output size of a transposed convolution: stride (size - 1) + (kernel - 1) dilation + 1 + output_padding - pads.

    Source: ONNX ConvTranspose-22.
    """
    return reach(size, stride, kernel, dilation) + output_padding - before - after


def same_padding(size: int, kernel: int, stride: int, dilation: int, upper: bool) -> tuple[int, int]:
    """Computes pads (before, after) such that the output has ceil(size / stride) windows; the odd one is after if `upper`.

    Source: ONNX auto_pad SAME_UPPER, SAME_LOWER.
    """
    count = -(-size // stride)
    total = max(reach(count, stride, kernel, dilation) - size, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def count(begin: int, end: int, step: int) -> int:
    """Counts the elements from `begin` to before `end` by `step`, bounds already clamped."""
    return max(0, -(-(end - begin) // step))


def sliced(shape: Sequence[int], begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> Shape:
    """Computes the shape of `x[begins : ends : steps]`, bounds already clamped. Raises ShapeError if they leave a dimension."""
    if any(len(given) != len(shape) for given in (begins, ends, steps)):
        found = f"{len(begins)} begins, {len(ends)} ends and {len(steps)} steps"
        raise ShapeError(f"{found} for the {len(shape)} dimensions of {text(shape)}")
    result: list[int] = []
    for n, begin, end, step in zip(shape, begins, ends, steps):
        size = count(begin, end, step) if step else 0
        if step == 0 or (size and not (0 <= begin < n and 0 <= begin + (size - 1) * step < n)):
            raise ShapeError(f"[{begin}:{end}:{step}] leaves a dimension of {n}")
        result.append(size)
    return tuple(result)


def concatenated(parts: Sequence[Sequence[int]], dim: int) -> Shape:
    """Computes the shape of parts concatenated along `dim`, counted from the front. Raises ShapeError if other dimensions differ."""
    if not parts:
        raise ShapeError("needs an operand")
    first = parts[0]
    front(dim, len(first))
    for other in parts:
        if reduced(other, [dim], keep=True) != reduced(first, [dim], keep=True):
            raise ShapeError(f"{text(first)} and {text(other)} differ beside dimension {dim}")
    return (*first[:dim], sum(p[dim] for p in parts), *first[dim + 1 :])


def is_size(text: str) -> bool:
    """Tells whether a text is a whole number that 64 bits hold. `int` also reads other digits than these, and refuses 5,000 of them."""
    return text.isascii() and text.isdecimal() and len(text) <= 18
