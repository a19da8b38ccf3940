"""The model that a program is compiled from. Each call of `Source.module` reads it anew."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from populus.dialects.support.constant_pool import sharing
from populus.dialects.support.diagnostics import PopulusError, no_file, verify
from populus.dialects.support.walk import ops_of
from populus.dialects.table import context
from populus.lowering.driver import extensions
from populus.lowering.driver.files import in_file, read_module
from populus.lowering.driver.phases import LEVELS
from populus.lowering.stablehlo.refinement import Given
from populus.program.open_types import OpenTypes, read_open_types

if TYPE_CHECKING:
    import onnx
    from numpy.typing import ArrayLike, NDArray

    from populus.lowering.onnx.importer.opened import OpenedModel

    Model: TypeAlias = str | os.PathLike[str] | onnx.ModelProto | ModuleOp
    Arrays: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Source:
    """A model and the extensions that it needs; each call of `module` gives a new copy.

    `opened`: the ONNX model as it was read once, whose modules share their constants. Without it, each call reads the model.
    `values`: the inputs that are constants. `bounds`: the most iterations of Loops, by name.
    `open`: the types of a program of StableHLO with open dimensions.
    """

    model: Model
    dims: dict[str, int | tuple[int, int]]
    extensions: tuple[extensions.Extension, ...] = ()
    opened: OpenedModel | None = None
    values: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, "NDArray[Any]"])
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    open: OpenTypes | None = None

    def once(self) -> Source:
        """Gives a source that reads the ONNX model now and never again; of a program of StableHLO, its open types.

        Raises PopulusError if it cannot be read.
        """
        if isinstance(self.model, ModuleOp):
            return self
        if isinstance(self.model, str | os.PathLike) and Path(self.model).suffix == ".mlir" and Path(self.model).is_file():
            return replace(self, open=read_open_types(self.model, self.dims))
        if isinstance(self.model, str | os.PathLike) and (Path(self.model).suffix != ".onnx" or not Path(self.model).exists()):
            return self
        from populus.lowering.onnx.importer.opened import OpenedModel

        return replace(self, opened=OpenedModel(self.model))

    def at(self, sizes: Mapping[str, int | tuple[int, int]]) -> Source:
        """Gives the same model with more dimensions bound."""
        return replace(self, dims={**self.dims, **sizes})

    def given(self, values: Mapping[str, ArrayLike]) -> Source:
        """Gives the same model, read once, with inputs that are constants. Raises PopulusError for values that they cannot have."""
        if not values:
            return self
        if self.opened is None and isinstance(self.model, ModuleOp):
            raise PopulusError("values are for inputs of files, and this is a module")
        if self.opened is None:
            import numpy as np

            return replace(self, values={name: np.asarray(value) for name, value in values.items()})
        from populus.lowering.onnx.importer.given_values import given_values

        with in_file(self.opened.place):
            return replace(self, values=given_values(self.opened.proto, values))

    def without_constants(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Removes the inputs that are constants. Raises PopulusError for one of another value."""
        if not self.values:
            return dict(inputs)
        import numpy as np

        for name in inputs.keys() & self.values.keys():
            found, made = np.asarray(inputs[name]), self.values[name]
            if not np.array_equal(found.reshape(-1), made.reshape(-1)):
                said, wanted = (np.array2string(a, threshold=8) for a in (found, made))
                raise PopulusError(f"input '{name}' is {said}; the program was compiled for {wanted}, as `values` says")
        return {name: value for name, value in inputs.items() if name not in self.values}

    def sharing(self) -> AbstractContextManager[None]:
        """Makes constants of modules that are compiled inside common to all modules of the opened model."""
        return nullcontext() if self.opened is None else sharing(self.opened.pool)

    def context(self) -> Context:
        """Makes a context with the dialects of the loaded extensions."""
        ctx = context()
        for extension in self.extensions:
            extension.register(ctx)
        return ctx

    def module(self, ctx: Context) -> ModuleOp:
        """Reads the model as a module at its own level. Raises PopulusError if it cannot be read."""
        if self.opened is not None:
            return self._imported(ctx, self.opened)
        if isinstance(self.model, ModuleOp):
            if self.dims:
                raise PopulusError("a module has no symbolic dimensions; dims are for files")
            return from_stablehlo(ctx, self.model.clone())
        if isinstance(self.model, str | os.PathLike):
            path = Path(self.model)
            if not path.exists():
                raise PopulusError(no_file(path))
            if path.suffix == ".mlir":
                return from_stablehlo(ctx, read_module(ctx, path, given=Given(self.dims, self.values)))
            if path.suffix != ".onnx":
                raise PopulusError(f"{path}: neither .onnx nor .mlir")
        return self._imported(ctx, self.model)

    def _imported(self, ctx: Context, model: str | os.PathLike[str] | onnx.ModelProto | OpenedModel) -> ModuleOp:
        from populus.lowering.onnx.custom_ops import custom_ops
        from populus.lowering.onnx.importer import import_onnx

        module = import_onnx(model, dims=self.dims, customs=custom_ops(ctx), values=self.values)
        if self.bounds:
            from populus.lowering.onnx.structure.growth import state_bounds

            state_bounds(module, self.bounds)
        return module


def from_stablehlo(ctx: Context, module: ModuleOp) -> ModuleOp:
    """Converts a program of StableHLO to the level `popart`; gives any other module as it is. Raises PopulusError."""
    if any(op.name.startswith(("stablehlo.", "chlo.")) for op in ops_of(module)):
        from populus.lowering.stablehlo.to_popart import StablehloToPopartPass

        StablehloToPopartPass().apply(ctx, module)
        verify(module)
    return module


def level_of(module: ModuleOp) -> str:
    """Finds the highest level of which the module has an op; `popart` if it has only constants and functions."""
    return level_among({op.name.partition(".")[0] for op in ops_of(module)})


def level_among(dialects: set[str]) -> str:
    """Finds the highest level that has one of these dialects; `popart` if there is none."""
    return next((level for level, names in LEVELS.items() if dialects & set(names)), "popart")
