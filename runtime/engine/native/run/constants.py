"""Constants of a program while it is loaded. A packed constant's original is released; a file's is copied or packed.

A constant whose elements are all in packed panels is released. A later reader gets it back from the panels, with the
same hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.data import StoredAttr
from populus.dialects.poplar.memory import ConstOp, StorageOp
from populus.runtime.engine.native.kernels.contraction import Packed

Array = NDArray[Any]


class Constants:
    """Constants of a program that are stored outside the IR, each with the panels packed from it."""

    def __init__(self) -> None:
        self._arrays: dict[ConstOp, Array] = {}
        self._packed: dict[ConstOp, list[Packed]] = {}

    def array(self, storage: ConstOp) -> Array:
        """Returns a constant's elements: [elements]."""
        if storage not in self._arrays:
            self._arrays[storage] = storage.array().reshape(-1)
        return self._arrays[storage]

    def note(self, panels: Iterable[object]) -> None:
        """Records the constants that panels were packed from."""
        for packed in panels:
            assert isinstance(packed, Packed), packed
            for storage, array in self._arrays.items():
                if array.ctypes.data <= packed.begin < array.ctypes.data + array.nbytes:
                    self._packed.setdefault(storage, []).append(packed)

    def release(self, storage: ConstOp) -> None:
        """Releases a constant if its panels hold all of it. Nothing else may refer to its memory."""
        array = self._arrays.pop(storage, None)
        packed = self._packed.pop(storage, [])
        value = storage.value
        if array is None or not isinstance(value, StoredAttr) or not _covers(packed, array):
            return
        value.data.release(partial(_unpacked, packed, array.ctypes.data, array.size, array.dtype))

    def release_all(self, in_use: set[StorageOp]) -> None:
        """Releases all constants except those `in_use`, whose arrays stay with their readers."""
        for storage in list(self._arrays):
            if storage in in_use:
                del self._arrays[storage]
            else:
                self.release(storage)


def _covers(packed: Sequence[Packed], array: Array) -> bool:
    """Tells whether panels hold each element once: their extents are adjacent and exactly filled."""
    at = array.ctypes.data
    for one in sorted({p.begin: p for p in packed}.values(), key=lambda p: p.extent):
        begin, end = one.extent
        if begin != at or end - begin != len(one.depth) * len(one.columns) * array.itemsize:
            return False
        at = end
    return at == array.ctypes.data + array.nbytes


def _unpacked(packed: Sequence[Packed], begin: int, size: int, dtype: np.dtype[Any]) -> NDArray[np.uint8]:
    array = np.empty(size, dtype)
    for one in packed:
        one.unpack(begin, array)
    return array.view(np.uint8)
