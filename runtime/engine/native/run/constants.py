"""Constants while a program is loaded: what is packed is not kept as it was, and what is a file's is copied or packed.

A constant that nothing but packed panels come from is let go; who asks for it later gets it from the panels, by its hash the same.
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
    """The constants of a program that are stored outside the IR, each with the panels that were made from it."""

    def __init__(self) -> None:
        self._arrays: dict[ConstOp, Array] = {}
        self._packed: dict[ConstOp, list[Packed]] = {}

    def array(self, storage: ConstOp) -> Array:
        """Its elements: [elements]."""
        if storage not in self._arrays:
            self._arrays[storage] = storage.array().reshape(-1)
        return self._arrays[storage]

    def note(self, found: Iterable[object]) -> None:
        """Notes which constants panels were made from."""
        for packed in found:
            assert isinstance(packed, Packed), packed
            for storage, array in self._arrays.items():
                if array.ctypes.data <= packed.begin < array.ctypes.data + array.nbytes:
                    self._packed.setdefault(storage, []).append(packed)

    def release(self, storage: ConstOp) -> None:
        """Lets a constant go, if its panels have all of it. Nothing else may refer to its memory."""
        array = self._arrays.pop(storage, None)
        packed = self._packed.pop(storage, [])
        value = storage.value
        if array is None or not isinstance(value, StoredAttr) or not _covers(packed, array):
            return
        value.data.release(partial(_unpacked, packed, array.ctypes.data, array.size, array.dtype))

    def release_all(self, kept: set[StorageOp]) -> None:
        """Lets go of all that is not kept."""
        for storage in list(self._arrays):
            if storage in kept:
                del self._arrays[storage]
            else:
                self.release(storage)


def _covers(packed: Sequence[Packed], array: Array) -> bool:
    """Whether panels have each element once: then their extents lie side by side and are as large as what is in them."""
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
