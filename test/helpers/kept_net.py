"""A small net in a file, whose program is kept: tests of programs that earlier or other processes compiled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from populus.program import ready

X = {"x": np.arange(16, dtype=np.float32).reshape(4, 4)}


def net(slope: float = 2.0, shape: Sequence[int | str] = (4, 4)) -> ModelProto:
    """Makes a net that multiplies by `slope` what is above 0."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node("Relu", ["p"], ["y"], name="relu")]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    weights = numpy_helper.from_array(slope * np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the net into a file, which counts as old; programs are kept below the same folder."""
    monkeypatch.setattr(ready, "SETTLED", 0)
    monkeypatch.setenv("POPULUS_CACHE", str(folder / "cache"))
    onnx.save(net(), folder / "net.onnx")
    return folder / "net.onnx"
