"""The arena: one block of memory for all variables of a program. Variables with disjoint live ranges share bytes."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from populus.runtime.codelets.undefined import marked
from populus.runtime.fitting import Fitting

HUGE = 2 << 20  # bytes: larger arenas request huge pages, for fewer page faults and TLB misses

K = TypeVar("K", bound=Hashable)

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


def memory(bytes: int) -> NDArray[np.uint8]:
    """Allocates zeroed memory of so many bytes, as untouched pages: [bytes]; in runs that check, all bits are set.

    Zeros make reads of unwritten elements the same in every run.
    """
    if bytes < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return marked(np.zeros(bytes, np.uint8))
    pages = mmap.mmap(-1, bytes + HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory would get small pages
    whole = np.frombuffer(pages, np.uint8)
    skipped = -whole.ctypes.data % HUGE
    with contextlib.suppress(OSError):  # a system without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE, skipped, bytes // HUGE * HUGE)  # not the end, which needs only a part of one
    return marked(whole[skipped : skipped + bytes])


def give_back(arena: NDArray[np.uint8]) -> None:
    """Gives the pages of an arena of `memory` back to the system, where it can take them; they read as zeros then."""
    base = arena.base
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.base if isinstance(base, np.ndarray) else getattr(base, "obj", None)
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def assign_offsets(sizes: Mapping[K, int], spans: Mapping[K, Sequence[tuple[int, int]]]) -> tuple[dict[K, int], int]:
    """Assigns each key the byte offset of its memory. Returns (offsets, total bytes).

    `sizes`: in bytes. `spans`: the live range of each key, as (first, last) steps in order. Keys whose spans do not
    meet may share bytes. Placement is first-fit by decreasing size.
    """
    fitting = Fitting()
    taken = {k: -(-sizes[k] // ALIGNMENT) * ALIGNMENT for k in sorted(sizes, key=lambda k: -sizes[k])}
    offsets = {k: fitting.place(size, spans[k]) for k, size in taken.items()}
    return offsets, max((offsets[k] + size for k, size in taken.items()), default=0)
