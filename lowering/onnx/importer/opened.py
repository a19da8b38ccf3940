"""A model that is read once and imported any number of times."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from xdsl.ir import Attribute, Operation

from populus.dialects.data import TABLE, ConstantOp, Handle, StoredAttr
from populus.dialects.support.constant_pool import ConstantPool, sharing
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.guard import Guard
from populus.lowering.onnx.importer.input_maps import without_maps
from populus.lowering.onnx.importer.read import Folder, check_names
from populus.lowering.onnx.importer.stripped import read_stripped

if TYPE_CHECKING:
    from onnx import ModelProto


class OpenedModel:
    """A model and the constants that its modules share.

    `proto`: the model, whose large tensors stay in its file. `place`: its name in errors. `folder`: that of its file.
    `maps`: inputs that are maps for the caller; `proto` has rows in their place.
    `pool`: what passes compute from its constants. Several threads may import it.
    Raises PopulusError if the file cannot be read.
    """

    def __init__(self, model: str | os.PathLike[str] | ModelProto):
        if isinstance(model, str | os.PathLike):
            self.place, self.folder, self.proto = os.fspath(model), Folder(Path(model).parent), read_stripped(model)
        else:
            self.place, self.folder, self.proto = model.graph.name or "model", None, model
        check_names(self.proto, self.place)
        try:
            self.proto, self.maps = without_maps(self.proto)
        except PopulusError as error:
            raise PopulusError(f"{self.place}: {error}") from error
        self.pool: ConstantPool[Handle] = ConstantPool()
        self._made: dict[str, Operation] = {}
        self._stored: WeakValueDictionary[str, Handle] = WeakValueDictionary()
        self._types: dict[str, Attribute] = {}
        self._guard = Guard()

    def shared(self, initializers: Mapping[str, Callable[[], Operation]]) -> dict[str, Callable[[], Operation]]:
        """Gives the functions that make constants of the graph's initializers; each reads its tensor at most once.

        A tensor that the file keeps takes no memory and stays. One in memory lives as long as a module that has it.
        """
        return {name: partial(self._shared, name, make) for name, make in initializers.items()}

    def _shared(self, name: str, make: Callable[[], Operation]) -> Operation:
        with self._guard.lock:
            if name in self._made:
                return self._made[name].clone()
            if (handle := self._stored.get(name)) is not None:
                return ConstantOp.create(properties={"value": StoredAttr(handle)}, result_types=[self._types[name]])
            with sharing(None):  # a tensor is shared by its name, and its content need not be read
                op = make()
            if isinstance(op, ConstantOp) and isinstance(op.value, StoredAttr) and not TABLE.is_mapped(op.value.data):
                self._stored[name], self._types[name] = op.value.data, op.result.type
                return op
            self._made[name] = op
            return op.clone()
