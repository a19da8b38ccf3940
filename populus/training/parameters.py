"""The trained weights of an ONNX model, and its batch dimensions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from populus.dialects.data import ConstantOp
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.signature import input_names, main_of, weights_of
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import element_type_of, is_float, shape_of
from populus.lowering.driver.files import in_file
from populus.program.options import MachineOptions
from populus.program.source import Source

if TYPE_CHECKING:
    from onnx import ModelProto

    from populus.program.source import Arrays

STATISTICS = {"BatchNormalization": (3, 4)}  # operands with measured values, which are not trained
LARGEST = 1e4  # a tensor with larger elements is a mask
BATCH = 32  # if neither the model nor the caller fixes it


@dataclass(frozen=True)
class Trainable:
    """The facts of a model that a session needs before compiling."""

    weights: Arrays
    inputs: list[str]
    batch: int
    open: list[str]  # the names of first dimensions that are open
    given: dict[str, int]
    fixed: set[str]  # weights that are trained only if named

    @staticmethod
    def read(model: str | os.PathLike[str] | ModelProto, options: MachineOptions) -> Trainable:
        """Reads a model. Raises PopulusError if it is not a valid ONNX model."""
        if isinstance(model, ModuleOp) or str(model).endswith(".mlir"):
            raise PopulusError("training needs an ONNX model; weights of a module cannot be exported")
        dims = {name: size for name, size in (options.dims or {}).items() if isinstance(size, int)}
        if several := [name for name in options.dims or {} if name not in dims]:
            raise PopulusError(f"dims['{several[0]}'] is a range; training compiles for one size of each dimension")
        source = Source(model, {**dims}, options.extensions())
        with in_file(model if isinstance(model, str | os.PathLike) else None):
            function = main_of(source.module(source.context()))
        constants = {n: op for n, op in weights_of(function).items() if is_float(element_type_of(op.result.type))}
        shapes = [shape_of(t) for t in function.function_type.inputs if t.name == TensorType.name]
        return Trainable(
            {n: op.array() for n, op in constants.items()},
            input_names(function),
            next((s[0] for s in shapes if s and s[0] > 0), BATCH),
            _open(function),
            dims,
            {n for n, op in constants.items() if _is_fixed(op)},
        )

    def bound(self, batch: int) -> dict[str, int]:
        """Gives the sizes of dimensions, including the batch."""
        if batch < 1:
            raise PopulusError(f"batch = {batch}; a step has at least 1 sample")
        return {**dict.fromkeys(self.open, batch), **self.given}

    def chosen(self, parameters: Sequence[str] | None, freeze: Sequence[str] = ()) -> tuple[str, ...]:
        """Selects the weights to train. Raises PopulusError for a pattern that matches none, and if none is left."""
        names = [n for n in self.weights if n not in self.fixed] if parameters is None else self.fitting(parameters)
        frozen = set(self.fitting(freeze))
        left = tuple(n for n in names if n not in frozen)
        if not left:
            raise PopulusError("all parameters are frozen" if names else "the model has no initializer of floats to train")
        return left

    def fitting(self, patterns: Sequence[str]) -> list[str]:
        """Lists the weights that match one of the patterns. Raises PopulusError for one that matches none."""
        found: dict[str, None] = {}
        for pattern in patterns:
            matching = [n for n in self.weights if n == pattern or fnmatchcase(n, pattern)]
            if not matching:
                raise PopulusError(f"no parameter '{pattern}'{did_you_mean(pattern, self.weights)}")
            found.update(dict.fromkeys(matching))
        return list(found)


def _is_fixed(op: ConstantOp) -> bool:
    """Guesses whether a constant is a statistic, a mask or a factor rather than a weight."""
    import numpy as np

    array = op.array()
    readers = ((use.operation, use.index) for use in op.result.uses)
    measured = any(isinstance(reader, OnnxOp) and i in STATISTICS.get(reader.OP_TYPE, ()) for reader, i in readers)
    return measured or array.ndim == 0 or array.size == 0 or not np.abs(array).max() < LARGEST


def _open(function: FuncOp) -> list[str]:
    """Lists the names of the inputs' open first dimensions."""
    names = function.attributes.get("dim_names")
    found: set[str] = set()
    for dims in cast("ArrayAttr[Attribute]", names) if isinstance(names, ArrayAttr) else ():
        first = next(iter(cast("ArrayAttr[Attribute]", dims)), None)
        if isinstance(first, StringAttr) and first.data:
            found.add(first.data)
    return sorted(found)
