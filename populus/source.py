"""The model that a program is compiled from. Each call of `Source.module` reads it anew."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver import extensions
from populus.lowering.driver.files import read_module
from populus.lowering.driver.phases import LEVELS

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Model: TypeAlias = str | os.PathLike[str] | onnx.ModelProto | ModuleOp
    Arrays: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Source:
    """A model and the extensions that it needs; each call of `module` gives a new copy."""

    model: Model
    dims: dict[str, int]
    extensions: tuple[extensions.Extension, ...] = ()

    def context(self) -> Context:
        """Makes a context with the dialects of the loaded extensions."""
        ctx = context()
        for extension in self.extensions:
            extension.register(ctx)
        return ctx

    def module(self, ctx: Context) -> ModuleOp:
        """Reads the model as a module at its own level. Raises PopulusError if it cannot be read."""
        if isinstance(self.model, ModuleOp):
            self._refuse_dims("a module")
            return self.model.clone()
        if isinstance(self.model, str | os.PathLike):
            path = Path(self.model)
            if not path.exists():
                raise PopulusError(f"{path}: no such file")
            if path.suffix == ".mlir":
                self._refuse_dims(str(path))
                return read_module(ctx, path)
            if path.suffix != ".onnx":
                raise PopulusError(f"{path}: neither .onnx nor .mlir")
        from populus.lowering.onnx.custom_ops import custom_ops
        from populus.lowering.onnx.importer import import_onnx

        return import_onnx(self.model, dims=self.dims, customs=custom_ops(ctx))

    def _refuse_dims(self, what: str) -> None:
        if self.dims:
            raise PopulusError(f"{what} has no symbolic dimensions; dims are for ONNX models")


def level_of(module: ModuleOp) -> str:
    """Finds the highest level of which the module has an op; `popart` if it has only constants and functions."""
    dialects = {op.name.partition(".")[0] for op in module.walk()}
    return next((level for level, names in LEVELS.items() if dialects & set(names)), "popart")
