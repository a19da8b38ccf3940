"""ONNX's node tests, which a process makes once, when a test asks for them: that takes five seconds."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

from onnx import ModelProto

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase


@cache
def node_cases() -> dict[str, TestCase]:
    """Gives the tests by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def node_models() -> dict[str, ModelProto]:
    """Gives the models of the tests by name."""
    return {name: case.model for name, case in node_cases().items() if case.model is not None}
