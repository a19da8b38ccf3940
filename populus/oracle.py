"""ONNX's own reference evaluator, to compare with: nothing that a program computes comes from here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from populus.dialects.diagnostics import PopulusError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

TRUSTED_OPSET = 13  # below it the reference gets BatchNormalization, Softmax and LRN wrong, so that such models are converted first


def run_reference(model: str | os.PathLike[str] | onnx.ModelProto, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The outputs of an ONNX model by name. Raises PopulusError where the reference cannot run it."""
    import numpy as np
    from onnx import (
        ModelProto,
        load_model,  # pyright: ignore[reportUnknownVariableType]
        version_converter,
    )
    from onnx.reference import ReferenceEvaluator

    proto = model if isinstance(model, ModelProto) else load_model(os.fspath(model))
    if any(opset.domain in ("", "ai.onnx") and opset.version < TRUSTED_OPSET for opset in proto.opset_import):
        try:
            proto = version_converter.convert_version(proto, TRUSTED_OPSET)
        except Exception as error:
            raise PopulusError(f"ONNX cannot convert the model to opset {TRUSTED_OPSET}, which its reference needs: {error}") from error
    names = [output.name for output in proto.graph.output]
    try:
        outputs = ReferenceEvaluator(proto).run(None, dict(inputs))  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:
        raise PopulusError(f"ONNX's reference evaluator cannot run the model: {type(error).__name__}: {error}") from error
    assert isinstance(outputs, list), type(outputs)
    return {name: np.asarray(output) for name, output in zip(names, outputs, strict=True)}
