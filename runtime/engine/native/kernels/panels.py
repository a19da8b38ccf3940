"""Panels of a product's right-hand side, and tables of byte offsets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike, NDArray

from populus.runtime.codelets.task import Array
from populus.runtime.engine.arena import ALIGNMENT


def shares(n: int, most: int) -> tuple[int, int, int]:
    """Divides n into the fewest parts of at most `most`, in sizes that differ by one: (parts, largest size, number of
    largest).
    """
    parts = -(-n // most)
    largest = -(-n // parts)
    return parts, largest, n - parts * (largest - 1)


class Memory:
    """Bytes at an address, whose owner is referenced, as NumPy's interface."""

    def __init__(self, address: int, bytes: int, owner: Array, read_only: bool = True):
        self.owner = owner
        self.__array_interface__ = {"shape": (bytes,), "typestr": "|u1", "data": (address, read_only), "version": 3}


def lines(shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
    """Allocates memory for panels that begins a line of the cache, so that no vector of a panel lies in two lines."""
    type = np.dtype(dtype)
    size = math.prod(np.atleast_1d(shape).tolist()) * type.itemsize
    owner = np.empty(size + ALIGNMENT, np.uint8)
    # Without the bytes before it: else a program's file would have them, and no aligned panel.
    memory = np.asarray(Memory(owner.ctypes.data + -owner.ctypes.data % ALIGNMENT, size, owner, read_only=False))
    return memory.view(type).reshape(shape)


@dataclass(frozen=True)
class Panels:
    """Division of n columns into panels of vectors."""

    n: int
    lanes: int
    parts: int
    broad: int
    wide: int

    @staticmethod
    def of(n: int, lanes: int, most: int) -> Panels:
        """Divides n columns into panels of at most `most` vectors."""
        return Panels(n, lanes, *shares(-(-n // lanes), most))

    @property
    def columns(self) -> int:
        """Number of columns, with the padding of the last panel."""
        return -(-self.n // self.lanes) * self.lanes


Table = NDArray[np.int64]


def offsets(shape: tuple[int, ...], strides: tuple[int, ...]) -> Table:
    """Lists the byte offsets of all elements of an array, in row-major order; read-only."""
    return _kept_offsets(shape, strides) if math.prod(shape) <= KEPT_TABLE else _offsets(shape, strides)


def _offsets(shape: tuple[int, ...], strides: tuple[int, ...]) -> Table:
    table = np.zeros((), np.int64)
    for n, s in zip(shape, strides):
        table = np.add.outer(table, np.arange(n, dtype=np.int64) * s)
    table = np.ascontiguousarray(table.reshape(-1))
    table.flags.writeable = False
    return table


KEPT_TABLE = 1 << 13  # elements of a table that the products of all layers and programs share
_kept_offsets = lru_cache(256)(_offsets)


@dataclass(frozen=True)
class Slices:
    """Division of k into slices with their own sums: slice i has the elements order[ends[i]] to order[ends[i + 1] - 1]
    of k.
    """

    order: Table
    ends: Table


@dataclass(frozen=True)
class Packed:
    """Panels of a constant, whose element (k, n) was at `begin` + depth[k] + columns[n]."""

    room: Array
    begin: int
    depth: Table
    columns: Table
    panels: Panels

    @property
    def extent(self) -> tuple[int, int]:
        """First address that was read, and the end."""
        low, high = (self.begin + int(f(self.depth)) + int(f(self.columns)) for f in (np.min, np.max))
        return low, high + self.room.itemsize

    def unpack(self, begin: int, into: Array) -> None:
        """Writes the elements to their places in memory that began at `begin`. `into`: [elements]."""
        p, item, at = self.panels, self.room.itemsize, 0
        for i in range(p.parts):
            width = (p.broad - (i >= p.wide)) * p.lanes
            columns = self.columns[at : at + width]
            panel = self.room[at * len(self.depth) :][: width * len(self.depth)].reshape(len(self.depth), width)
            into[(self.begin - begin + self.depth[:, None] + columns) // item] = panel[:, : len(columns)]
            at += width
