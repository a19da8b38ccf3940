"""Views: which elements of a variable a view shows, as an offset and a stride for each dimension.

A variable is row-major in its own shape. Slices, permutations, broadcasts and those reshapes that strides allow compose into
one view of the variable, so races, exchange and layouts are decided on the variable, whatever views were in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from populus.dialects.poplar.partition import Access


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Computes the stride of each dimension, in elements."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class View:
    """Element i of the view is element offset + sum of i[d] strides[d] of the variable, whose shape is `base`."""

    base: tuple[int, ...]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def whole(shape: Sequence[int]) -> View:
        """Makes the view of a whole variable."""
        return View(tuple(shape), 0, tuple(shape), row_major(shape))

    @property
    def is_whole(self) -> bool:
        """True if it shows every element once, in order (under any shape)."""
        return self.offset == 0 and math.prod(self.shape) == math.prod(self.base) and self.is_contiguous

    @property
    def is_contiguous(self) -> bool:
        """True if its elements are contiguous, in order."""
        return all(n <= 1 or s == expected for n, s, expected in zip(self.shape, self.strides, row_major(self.shape)))

    @property
    def repeats(self) -> bool:
        """True if an element occurs more than once, so that the view is not writable."""
        return 0 not in self.shape and any(s == 0 and n > 1 for n, s in zip(self.shape, self.strides))

    def slice(self, begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> View:
        """Slices `[begins : ends : steps]`; bounds are within the view, steps may be negative."""
        offset = self.offset + sum(b * s for b, s, n in zip(begins, self.strides, self.shape) if n)
        shape = tuple(max(0, -(-(e - b) // t)) for b, e, t in zip(begins, ends, steps))
        strides = tuple(s * t if n > 1 else s for s, t, n in zip(self.strides, steps, shape))  # one element has any step, however large
        return View(self.base, offset, shape, strides)

    def dim_shuffle(self, permutation: Sequence[int]) -> View:
        """Permutes the dimensions: dimension i of the result is dimension permutation[i]."""
        return View(self.base, self.offset, tuple(self.shape[d] for d in permutation), tuple(self.strides[d] for d in permutation))

    def broadcast(self, shape: Sequence[int]) -> View:
        """Broadcasts to `shape`, right-aligned; stretched dimensions have stride 0."""
        lead = len(shape) - len(self.shape)
        own = [(1, 0)] * lead + list(zip(self.shape, self.strides))
        strides = tuple(s if n == m else 0 for (n, s), m in zip(own, shape))
        return View(self.base, self.offset, tuple(shape), strides)

    def reshape(self, shape: Sequence[int]) -> View | None:
        """Reshapes, keeping the order of elements; None if no strides can express it, so that it takes a copy."""
        shape = tuple(shape)
        assert math.prod(shape) == math.prod(self.shape), (self, shape)
        if 0 in shape:
            return View(self.base, self.offset, shape, row_major(shape))
        old = [(n, s) for n, s in zip(self.shape, self.strides) if n != 1]
        runs: list[tuple[int, int]] = []  # maximal runs of dimensions that merge: (elements, innermost stride)
        for n, s in old:
            if runs and runs[-1][1] == n * s:
                runs[-1] = (runs[-1][0] * n, s)
            else:
                runs.append((n, s))
        strides: list[int] = []
        run = iter([*runs, (1, 1)])
        left, step = next(run)
        taken: list[int] = []
        for n in shape:
            if n == 1:
                strides.append(0)
                taken.append(1)
                continue
            while left == 1:
                left, step = next(run)
            if left % n:
                return None
            left //= n
            strides.append(left * step)
            taken.append(n)
        return View(self.base, self.offset, shape, tuple(strides))

    def through(self, accesses: Sequence[Access]) -> tuple[Access, ...] | None:
        """Converts an access to this view to accesses to the variable, one per dimension.

        None if it has no such form: an axis runs over more than one dimension of the variable, or backwards, or a whole
        dimension of the view is not a whole dimension of the variable.
        """
        if 0 in self.shape or 0 in self.base:
            return None  # there is nothing to place
        base_strides = row_major(self.base)
        terms: list[list[tuple[str, int]]] = [[] for _ in self.base]
        special: list[Access | None] = [None] * len(self.base)
        rest = self.offset
        offsets = [0] * len(self.base)
        for d, (n, stride) in enumerate(zip(self.base, base_strides)):
            if n and stride:
                offsets[d], rest = (rest // stride, rest % stride) if stride else (0, rest)
                if d and offsets[d] >= n:
                    return None
        last = list(offsets)  # the highest index that the view shows of each dimension
        for access, n, stride in zip(accesses, self.shape, self.strides, strict=True):
            if n == 1 or stride == 0:
                continue  # a repeated or single element: the offset says which
            d = next((i for i, s in enumerate(base_strides) if s <= abs(stride) and self.base[i] > 1 and stride % s == 0), None)
            if d is None:
                return None
            step = stride // base_strides[d]
            last[d] += step * (n - 1)
            if step < 0 or last[d] >= self.base[d]:
                return None  # backwards, or over the end of the dimension into the next row
            if access.whole or access.part:
                if special[d] is not None or terms[d] or offsets[d] or step != 1 or (access.whole and n != self.base[d]):
                    return None
                special[d] = access
            else:
                terms[d].extend((a, c * step) for a, c in access.terms)
                offsets[d] += access.offset * step
        result: list[Access] = []
        for d in range(len(self.base)):
            whole = special[d]
            if whole is not None:
                if terms[d]:
                    return None
                result.append(whole)
            else:
                result.append(_merged(terms[d], offsets[d]))
        return tuple(result)


def _merged(terms: list[tuple[str, int]], offset: int) -> Access:
    total: dict[str, int] = {}
    for axis, coefficient in terms:
        total[axis] = total.get(axis, 0) + coefficient
    return Access(tuple(total.items()), offset)
