"""Copies of arrays that write no zeros: weights that are zeros, in a file without data, take no memory.

So a model of many gigabytes is planned by the sizes of its weights alone.
"""

from __future__ import annotations

import math
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from populus.dialects.support.mmap_file import mapped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 1 << 20  # elements that are looked at together, and are written if one is not zero


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array in C order: itself, or a copy."""
    return array if array.flags.c_contiguous else concatenated([array], 0)


def concatenated(arrays: Sequence[NDArray[Any]], axis: int, block: int = BLOCK) -> NDArray[Any]:
    """Concatenates arrays. `block`: elements, of which those whose bits are all zero are not written."""
    import numpy as np

    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    result, at = zeros(shape, arrays[0].dtype), 0
    for array in arrays:
        part = result[(slice(None),) * axis + (slice(at, at := at + array.shape[axis]),)]
        for where, piece in blocks(array, block):
            if piece.view(np.bool_).any():
                part[where] = piece
    return result


def zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Makes an array of zeros. A large one has pages of its own: the C library would fill again what it has kept."""
    import numpy as np

    size = math.prod(shape) * dtype.itemsize
    if size < BLOCK:
        return np.zeros(shape, dtype)
    pages = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(shape)


def bytes_of_concatenated(widths: Sequence[int], places: Iterable[int], read: Callable[[int, list[int]], bytes]) -> bytes:
    """Returns the bytes at some places of what `concatenated` gives, without making it.

    `widths`: bytes of a row of each array. `read(i, at)`: bytes of array i.
    """
    ends, order = list(accumulate(widths)), list[int]()
    inner: list[list[int]] = [[] for _ in widths]
    for place in places:
        row, at = divmod(place, ends[-1])
        order.append(part := bisect_right(ends, at))
        inner[part].append(row * widths[part] + at - (ends[part] - widths[part]))
    found = [iter(read(i, at) if at else b"") for i, at in enumerate(inner)]
    return bytes(next(found[part]) for part in order)


def blocks(array: NDArray[Any], block: int = BLOCK) -> Iterator[tuple[tuple[slice, ...], NDArray[Any]]]:
    """Yields pieces of an array in C order, each with its place. Pages of a file are given back when their piece was read."""
    import numpy as np

    file = mapped(array)
    axis = next((d for d, n in enumerate(array.shape) if n > 1), 0)
    if array.ndim == 0 or array.size == 0:
        yield (), np.ascontiguousarray(array)
        return
    rows = max(block * array.shape[axis] // array.size, 1)
    for begin in range(0, array.shape[axis], rows):
        where = (*(slice(None),) * axis, slice(begin, begin + rows))
        piece = array[where]
        if file is not None:
            file.touch(piece.nbytes)
        yield where, np.ascontiguousarray(piece)
