"""The kinds of model that `compile` takes, as the three that a `Source` reads: a path, a `ModelProto`, or a module."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.support.diagnostics import PopulusError, PopulusWarning
from populus.dialects.support.users_line import users_level
from populus.program.exporters import quiet, refused

if TYPE_CHECKING:
    from onnx import ModelProto

    from populus.program.source import Model

TAKEN = "a path, bytes, a ModelProto, a module, an onnxscript function, or a torch module with example_inputs"


def as_model(model: object, example_inputs: Sequence[object] | None = None) -> Model:
    """Converts what `compile` takes to a path, a `ModelProto` or a module.

    Bytes are a serialised `ModelProto`. A function of onnxscript gives its model. A program of `torch.export`, and an `nn.Module`
    with `example_inputs`, are exported by torch. Raises PopulusError for anything else, and for what torch cannot export.
    """
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    exported = _torch(model, example_inputs)
    if exported is not None:
        return exported
    if example_inputs is not None:
        raise PopulusError(f"example_inputs are given, and `model` is a {kind}; only torch's modules are exported with them")
    match model:
        case str() | os.PathLike() | ModuleOp():
            return cast("Model", model)
        case bytes() | bytearray() | memoryview():
            return _parsed(bytes(cast("bytes", model)))
        case _:
            pass
    from onnx import ModelProto

    if isinstance(model, ModelProto):
        return model
    for name in ("to_model_proto", "model_proto"):
        if (found := getattr(model, name, None)) is not None and not isinstance(model, type):
            made = cast("object", found() if callable(found) else found)
            if isinstance(made, ModelProto):
                return made
    raise PopulusError(f"`model` is a {kind}; expected {TAKEN}")


def _parsed(content: bytes) -> ModelProto:
    """Parses the bytes of a model. Raises PopulusError for others."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        found = ModelProto.FromString(content)
    except DecodeError as error:
        raise PopulusError(f"`model` is {len(content)} bytes, which are no ONNX model: {error}") from error
    if not found.HasField("graph"):
        raise PopulusError(f"`model` is {len(content)} bytes, which are no ONNX model: they have no graph")
    return found


def _torch(model: object, example_inputs: Sequence[object] | None) -> ModelProto | None:
    """Exports a module or exported program of torch; None for anything else. Raises PopulusError."""
    torch: Any = sys.modules.get("torch")  # whoever has such an object has imported it
    if torch is None:
        return None
    is_module = isinstance(model, torch.nn.Module)
    if not is_module and not isinstance(model, torch.export.ExportedProgram):
        return None
    if is_module and example_inputs is None:
        raise PopulusError("`model` is a torch module; state example_inputs=(x, ..), the arguments that it is exported with")
    if not isinstance(example_inputs, Sequence):
        example_inputs = () if example_inputs is None else (example_inputs,)
    with quiet():
        try:
            found: Any = torch.onnx.export(model, tuple(example_inputs), dynamo=True, verbose=False)
        except Exception as error:
            raise refused("torch cannot export `model`", error) from error
    proto = cast("ModelProto", found.model_proto)
    if is_module and _trains(torch, cast("Any", model), proto):
        message = "`model` is in training mode: dropout drops, and batch norms take statistics of the batch; call model.eval() first"
        warnings.warn(message, PopulusWarning, stacklevel=users_level())
    return proto


def _trains(torch: Any, model: Any, proto: ModelProto) -> bool:
    """Tells whether a module computes otherwise than it would after `eval()`."""
    norms = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.instancenorm._InstanceNorm)
    return model.training and (
        any(isinstance(m, norms) and m.training and m.track_running_stats for m in model.modules())
        or any(n.op_type == "Dropout" for n in proto.graph.node)
    )
