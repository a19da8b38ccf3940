"""The models of ONNX's node tests, made once."""

from __future__ import annotations

import warnings
from functools import cache

from onnx import ModelProto


@cache
def node_models() -> dict[str, ModelProto]:
    """By name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case.model for case in load_model_tests(kind="node") if case.model is not None}
