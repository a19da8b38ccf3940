"""Constants of a program while it is loaded. A packed constant's original is released; a file's is copied or packed.

A constant whose elements are all in packed panels is released. A later reader gets it back from the panels, with the
same hash. Programs that share a constant share its panels: the second one neither packs nor reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.data import TABLE, StoredAttr
from populus.dialects.poplar.memory import ConstOp, StorageOp
from populus.dialects.support.element_types import dtype_of
from populus.dialects.support.garbage import give_back_memory
from populus.dialects.support.mmap_file import mapped
from populus.runtime.codelets.task import Filling
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.kernels.panels import Packed

Array = NDArray[Any]
MUCH = 4 << 20  # bytes that are released before the C library is asked for them


class Constants:
    """Constants of a program that are stored outside the IR, each with the panels packed from it for a CPU, `host`."""

    def __init__(self, host: Machine) -> None:
        self._host = host
        self._arrays: dict[ConstOp, Array] = {}
        self._hollow: set[ConstOp] = set()  # whose arrays have addresses, and no content yet
        self._packed: dict[ConstOp, list[Packed]] = {}
        self._released = 0

    def array(self, storage: ConstOp, hollow: bool = False) -> Array:
        """Returns a constant's elements: [elements].

        With `hollow`, the caller asks `form` for panels before it reads. A constant that another program has released
        then stays so: the array is untouched memory until `form` needs its content.
        """
        if storage not in self._arrays:
            value = storage.value
            if hollow and isinstance(value, StoredAttr) and TABLE.is_released(value.data):
                self._arrays[storage] = np.empty(math.prod(storage.type.shape), dtype_of(storage.type.element))
                self._hollow.add(storage)
            else:
                self._arrays[storage] = storage.array().reshape(-1)
        if not hollow:
            self._fill(storage)
        return self._arrays[storage]

    def form(self, begin: int, key: Hashable, pack: Callable[[], Array]) -> Array:
        """Gives the form `key` of the elements at the address `begin`, which `pack` makes unless a program has it."""
        storage = self.holder(begin)
        if storage is None or not isinstance(storage.value, StoredAttr):
            return pack()
        # Each CPU packs in its own way: a program that is built for another one shares no form with one that runs here.
        forms, place = TABLE.forms(storage.value.data), (begin - self._arrays[storage].ctypes.data, self._host, key)
        found = forms.get(place)
        if found is None:
            self._fill(storage)
            found = forms[place] = pack()
        return found

    def filled(self, source: Array, key: Hashable, room: Callable[[], Array], filling: Filling) -> Array:
        """Gives the form `key` of constant elements, which a launch fills: `filling(source, room())`."""

        def pack() -> Array:
            made = room()
            filling(source, made)()
            return made

        return self.form(source.ctypes.data, key, pack)

    def holder(self, begin: int) -> ConstOp | None:
        """Finds the constant at an address."""
        return next((s for s, a in self._arrays.items() if a.ctypes.data <= begin < a.ctypes.data + a.nbytes), None)

    def _fill(self, storage: ConstOp) -> None:
        """Gives a hollow array its content."""
        if storage in self._hollow:
            self._hollow.discard(storage)
            self._arrays[storage][:] = storage.array().reshape(-1)
            assert isinstance(storage.value, StoredAttr), storage
            TABLE.keep(storage.value.data, self._arrays[storage].view(np.uint8))

    def note(self, panels: Iterable[object]) -> None:
        """Records the constants that panels were packed from."""
        for packed in panels:
            assert isinstance(packed, Packed), packed
            for storage, array in self._arrays.items():
                if array.ctypes.data <= packed.begin < array.ctypes.data + array.nbytes:
                    self._packed.setdefault(storage, []).append(packed)

    def release(self, storage: ConstOp) -> None:
        """Releases a constant if its panels hold all of it, or a file what it is computed from. Nothing else may refer to its memory."""
        array = self._arrays.pop(storage, None)
        self._hollow.discard(storage)
        packed = self._packed.pop(storage, [])
        value = storage.value
        if array is None or not isinstance(value, StoredAttr):
            return
        if not _covers(packed, array):
            if (remake := TABLE.remake(value.data)) is not None:
                TABLE.release(value.data, remake)
            return
        TABLE.release(value.data, partial(_unpacked, packed, array.ctypes.data, array.size, array.dtype))
        if TABLE.is_mapped(value.data) and (file := mapped(array)) is not None:
            file.release_part(array.ctypes.data, array.nbytes)
        self._released += array.nbytes
        del array
        if self._released >= MUCH:  # panels of others are not made where it lay, as they are whole pages
            self._released = 0
            give_back_memory()

    def release_all(self, in_use: set[StorageOp]) -> None:
        """Releases all constants except those `in_use`, whose arrays stay with their readers."""
        for storage in list(self._arrays):
            if storage in in_use:
                del self._arrays[storage]
                self._hollow.discard(storage)
            else:
                self.release(storage)
        give_back_memory()


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
