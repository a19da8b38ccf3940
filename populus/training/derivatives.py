"""`vjp`: a model's outputs and the gradients of its inputs and weights, as one program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute

from populus.dialects.signature import input_names, main_of, weights_of
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import dtype_of, element_of, is_float, tensor
from populus.lowering.driver.files import in_file
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.expose_weights import OnnxExposeWeightsPass
from populus.lowering.onnx.to_popart import OnnxToPopartPass
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.autodiff.activation_memory import Report, activation_report
from populus.lowering.popart.training_names import gradient_name
from populus.program.compile import compiled
from populus.program.models import as_model
from populus.program.open_program import OpenProgram
from populus.program.options import WITH_OPTIONS, CompileOptions, MachineOptions
from populus.program.program import Program
from populus.program.source import Source, level_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.program.source import Arrays, Model
    from populus.runtime.profile import Profile


@WITH_OPTIONS.after_two
def vjp(model: Model, wrt: Sequence[str], options: CompileOptions) -> Vjp:
    """Compiles a model with its vector-Jacobian product: outputs, and the gradients of the tensors `wrt`.

    `wrt`: names of ONNX inputs and initializers of floats. The other arguments are those of `compile`.

        outputs, gradients = populus.vjp("model.onnx", ["fc.weight"]).run({"x": x}, {"y": dy})

    Raises PopulusError for an unknown name, and for an op without a gradient between an output and a tensor of `wrt`.
    """
    if isinstance(wrt, str):
        raise PopulusError(f"wrt is '{wrt}'; a list of names is expected, such as ['{wrt}']")
    model = as_model(model)
    weights, names = constants_of(model, options)
    unread = unread_weights(model, [name for name in wrt if name not in weights and name not in names])
    chosen = options.pipeline if isinstance(options.pipeline, Pipeline) else Pipeline.read(options.pipeline)
    read = tuple(name for name in dict.fromkeys(wrt) if name not in unread)
    if not wrt:
        raise PopulusError("wrt is empty; it names the inputs and weights to differentiate with respect to")
    if read:
        # Differentiation comes before the outlining of functions.
        first = next(p.name for p in chosen.passes if p.name in ("popart-outline", "popart-to-popops"))
        chosen = exposing(chosen, read).insert_before(first, PopartAutodiffPass(wrt=read))
        if any(p.name == OnnxToPopartPass.name for p in chosen.passes):
            chosen = chosen.replace(OnnxToPopartPass.name, OnnxToPopartPass(gradients=True))
    program = compiled(model, replace(options, pipeline=chosen))
    return Vjp(program, list(dict.fromkeys(wrt)), {name: weights[name] for name in read if name in weights}, unread)


class Vjp:
    """A program of outputs and gradients. `weights` are the default values of the weights among `wrt`.

    For a model with open dimensions, `run` accepts inputs of any size. Levels and profile
    belong to one size: `sized(n=..)` gives it.
    """

    def __init__(self, program: Program, wrt: Sequence[str], weights: Mapping[str, NDArray[Any]], unread: Mapping[str, NDArray[Any]]):
        self.program = program
        self.wrt = list(wrt)
        self.weights = dict(weights)
        self._unread = dict(unread)

    @cached_property
    def outputs(self) -> dict[str, TensorType[Attribute]]:
        """The model's outputs by name. An open dimension has the size -1, in `get_shape`."""
        gradients = {gradient_name(name) for name in self.wrt}
        return {n: t for n, t in self.program.signature.outputs.items() if n not in gradients}

    @cached_property
    def cotangents(self) -> dict[str, TensorType[Attribute]]:
        """The outputs of floats, by name."""
        if isinstance(self.program, OpenProgram):
            return {n: t for n, t in self.outputs.items() if is_float(t.element_type)}
        inputs = self.program.signature.inputs
        return {n: inputs[gradient_name(n)] for n in self.outputs if gradient_name(n) in inputs}

    @cached_property
    def inputs(self) -> dict[str, TensorType[Attribute]]:
        """The model's inputs and the weights of `wrt`, by name."""
        if isinstance(self.program, OpenProgram):
            return {**self.program.signature.inputs, **{n: tensor(a.shape, element_of(a.dtype)) for n, a in self.weights.items()}}
        gradients = {gradient_name(name) for name in self.cotangents}
        return {n: t for n, t in self.program.signature.inputs.items() if n not in gradients}

    def sized(self, **sizes: int) -> Vjp:
        """Gives the program for these sizes of open dimensions, or itself if none is open. Raises PopulusError for wrong names or sizes."""
        if not isinstance(self.program, OpenProgram):
            return self
        return Vjp(self.program.sized(**sizes), self.wrt, self.weights, self._unread)

    def run(self, inputs: Mapping[str, Any], cotangents: Mapping[str, Any]) -> tuple[Arrays, Arrays]:
        """Runs the program; gives the outputs by name, and the gradient of each tensor of `wrt` by its name.

        `inputs`: the model's inputs, and other values for weights of `wrt`. `cotangents`: the gradient of each output of floats
        (default: zeros). Each gradient has the shape of its tensor. Raises PopulusError for wrong names, shapes and types.
        """
        import numpy as np

        if isinstance(self.program, OpenProgram):
            return Vjp(self.program.sized_for(inputs), self.wrt, self.weights, self._unread).run(inputs, cotangents)
        if strange := [name for name in cotangents if name not in self.cotangents]:
            raise PopulusError(f"no output of floats is called '{strange[0]}'{did_you_mean(strange[0], self.cotangents)}")
        inputs = self.program.source.without_constants(inputs)
        if strange := [name for name in inputs if name not in self.inputs and name not in self._unread]:
            raise PopulusError(f"the model has no input '{strange[0]}'{did_you_mean(strange[0], self.inputs)}")
        arrays = {**self.weights, **{name: array for name, array in inputs.items() if name not in self._unread}}
        for name, type in self.cotangents.items():
            arrays[gradient_name(name)] = _cotangent(name, type.element_type, self._shape(name, type, arrays), cotangents.get(name))
        results = self.program.run(arrays)
        gradients = {name: results[gradient_name(name)] for name in self.wrt if name not in self._unread}
        gradients.update({name: np.zeros_like(array) for name, array in self._unread.items()})
        return {name: results[name] for name in self.outputs}, {name: gradients[name] for name in self.wrt}

    def _shape(self, name: str, type: TensorType[Attribute], arrays: Mapping[str, Any]) -> tuple[int, ...]:
        """Gives the shape of an output, at the sizes of these inputs where a dimension is bounded."""
        import numpy as np

        padding = self.program.signature.padding
        if padding is None:
            return type.get_shape()
        given = {n: np.asarray(a) for n, a in arrays.items() if n in self.inputs}
        return padding.shape(name, padding.sizes(given))

    def kept(self) -> Report:
        """Reports the forward tensors that live until the backward pass reads them, with their readers and bytes."""
        source = self.program.source
        ctx = source.context()
        module = source.module(ctx)
        self.program.pipeline.from_level(level_of(module)).until(PopartAutodiffPass.name).run(ctx, module)
        return activation_report(main_of(module), self.outputs)

    def module(self, level: str) -> ModuleOp:
        """Gives the module at a level."""
        return self.program.module(level)

    def profile(self) -> Profile:
        """Estimates tiles, bytes and cycles of the program by the machine's cost model."""
        return self.program.profile()


def exposing(pipeline: Pipeline, names: Sequence[str]) -> Pipeline:
    """Prepends a pass that turns these weights into inputs."""
    return Pipeline((OnnxExposeWeightsPass(tuple(names)), *pipeline.passes))


def constants_of(model: Model, options: MachineOptions) -> tuple[Arrays, list[str]]:
    """Gives the model's weights that some op reads, by name, and the names of its inputs. Raises PopulusError."""
    source = Source(model, dict(options.dims or {}), options.extensions())
    with in_file(model if isinstance(model, str | os.PathLike) else None):
        function = main_of(source.module(source.context()))
    return {name: op.array() for name, op in weights_of(function).items()}, input_names(function)


def unread_weights(model: Model, names: Sequence[str]) -> Arrays:
    """Gives the initializers among `names`. A name without a constant in the module is of an unread initializer."""
    if not names or isinstance(model, ModuleOp) or str(model).endswith(".mlir"):
        return {}
    from onnx import ModelProto

    from populus.lowering.onnx.importer.read import Folder, read_model, read_tensor

    proto = model if isinstance(model, ModelProto) else read_model(model)
    folder = None if isinstance(model, ModelProto) else Folder(Path(model).parent)
    return {i.name: read_tensor(i, folder) for i in proto.graph.initializer if i.name in names}


def _cotangent(name: str, element: Attribute, shape: tuple[int, ...], given: object) -> NDArray[Any]:
    import numpy as np

    dtype = dtype_of(element)
    if given is None:
        return np.zeros(shape, dtype)
    array = np.asarray(given)
    if array.shape != shape or array.dtype.kind in "OSUbc":
        raise PopulusError(f"the cotangent of '{name}' is {array.dtype} {list(array.shape)}, expected {dtype} {list(shape)}")
    return array.astype(dtype)
