"""`populus profile --no-weights`: plans by the shapes of weights, whose data is not read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from populus.tools.weightless import LEAST, PAGE, without_weights


def model(folder: Path, count: int = 3, rows: int = 256, columns: int = 256) -> Path:
    """Products by `count` equal weights, each in a file beside the model that has none of its data, and a reshape by a kept shape."""
    nodes, weights, x = [], [], "x"
    for i in range(count):
        weight = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[rows, columns], data_location=TensorProto.EXTERNAL)
        weight.external_data.add(key="location", value="missing")
        weights.append(weight)
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"y{i}"], name=f"m{i}"))
        x = f"y{i}"
    weights.append(helper.make_tensor("shape", TensorProto.INT64, [2], [2, -1]))
    nodes.append(helper.make_node("Reshape", [x, "shape"], ["z"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, rows])]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 2 * columns])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_a_model_whose_weights_are_missing_has_the_costs_of_one_that_has_them(populus, tmp_path: Path):
    path = model(tmp_path)
    assert "missing" in populus("profile", str(path), "--target", "n150").err
    costs = []
    for name, given in (("without", ["--no-weights"]), ("with", [])):
        if name == "with":
            filled = onnx.load(path, load_external_data=False)
            for i, weight in enumerate(filled.graph.initializer[:3]):
                array = np.random.default_rng(i).standard_normal((256, 256)).astype(np.float32)
                weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
            path.write_bytes(filled.SerializeToString())
        file = tmp_path / f"{name}.json"
        got = populus("profile", str(path), "--target", "n150", "--json", str(file), *given)
        assert got.status == 0, got.err
        costs.append(json.loads(file.read_text())["summary"])
    assert costs[0] == costs[1]


def test_the_zeros_take_no_space_and_each_weight_is_one_of_its_own(tmp_path: Path):
    folder = tmp_path / "made"
    folder.mkdir()
    made = without_weights(model(tmp_path, count=8, rows=1024, columns=1024), folder)
    zeros = folder / "weights"
    assert zeros.stat().st_size == 8 * 4 * 1024 * 1024
    assert zeros.stat().st_blocks * 512 <= 8 * 4 * PAGE  # blocks of a file system may be larger than a page
    arrays = [onnx.numpy_helper.to_array(t, str(folder)) for t in onnx.load(made, load_external_data=False).graph.initializer]
    assert len({a.tobytes() for a in arrays}) == 9
    assert os.path.getsize(made) < LEAST


def test_small_constants_are_kept_and_what_is_no_model_is_refused(populus, tmp_path: Path):
    folder = tmp_path / "made"
    folder.mkdir()
    kept = onnx.load(without_weights(model(tmp_path), folder), load_external_data=False).graph.initializer[-1]
    assert onnx.numpy_helper.to_array(kept).tolist() == [2, -1]
    (tmp_path / "odd.mlir").write_text("builtin.module {}")
    got = populus("profile", str(tmp_path / "odd.mlir"), "--no-weights")
    assert (got.status, got.out) == (1, "") and "--no-weights is for .onnx models" in got.err


def test_integers_in_a_missing_file_are_asked_for(populus, tmp_path: Path):
    path = model(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    shape = proto.graph.initializer[-1]
    shape.CopyFrom(TensorProto(name="shape", data_type=TensorProto.INT64, dims=[2], data_location=TensorProto.EXTERNAL))
    shape.external_data.add(key="location", value="missing")
    path.write_bytes(proto.SerializeToString())
    got = populus("profile", str(path), "--no-weights")
    assert got.status == 1 and "'shape' is in the file 'missing', which is missing" in got.err
