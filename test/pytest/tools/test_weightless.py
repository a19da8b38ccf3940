"""`populus profile --no-weights`: plans by the shapes of weights, whose data is not read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from ml_dtypes import bfloat16
from onnx import TensorProto, helper

import populus as populus_api
from benchmarks.decoders import decoder
from benchmarks.mesh_models import Decoder
from populus.dialects.support.sparse_arrays import concatenated
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


def test_messages_name_the_model_and_not_the_copy_without_weights(populus, tmp_path: Path):
    path = model(tmp_path)
    got = populus("profile", str(path), "--target", "gc200, tiles=1, tile_bytes=8192", "--no-weights")
    assert got.status == 1 and got.err.startswith(f"populus: {path}: the model needs ")
    got = populus("explore", str(path), "--vary", "dim.rows=1", "--no-weights")
    assert f"{path}: there is no dimension 'rows'" in got.err


def test_the_page_of_an_exploration_is_written_while_the_zeros_are_there(populus, tmp_path: Path):
    """It compiles the points of the front again."""
    page = tmp_path / "page.html"
    got = populus("explore", str(model(tmp_path)), "--machine", "gc200, tiles=8", "--no-weights", "--html", str(page), "--processes", "1")
    assert got.status == 0, got.err
    assert """"name":"'m0'",""" in page.read_text()


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


@pytest.mark.parametrize("element", [np.float32, np.float16, bfloat16, np.int8])
@pytest.mark.parametrize(("shapes", "axis"), [([(300, 5), (300, 7)], 1), ([(5,), (9,)], 0), ([(600, 3), (2, 3)], 0), ([(4, 0), (4, 2)], 1)])
def test_joined_weights_have_all_bits_though_blocks_of_zeros_are_not_written(element, shapes, axis):
    arrays = [np.random.default_rng(i).standard_normal(shape).astype(element) for i, shape in enumerate(shapes)]
    arrays[0][: len(arrays[0]) // 2] = 0
    arrays[1].flat[0] = -0.0
    for given in (arrays, [a[::-1] for a in arrays]):
        made, expected = concatenated(given, axis, block=2), np.concatenate(given, axis=axis)
        assert (made.dtype, made.shape, made.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


TINY = Decoder(layers=2, hidden=64, heads=4, key_heads=2, inner=96, vocabulary=80)


def test_a_step_of_a_decoder_is_that_of_its_definition():
    """In doubles, beside values that are rounded to bf16 after each op."""
    made, rng = decoder(TINY, batch=2, positions=8), np.random.default_rng(3)
    for tensor in made.graph.initializer:
        norm = len(tensor.dims) == 1
        data = np.ones(tensor.dims) if norm else rng.standard_normal(tensor.dims) * tensor.dims[0] ** -0.5
        filled = helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, data.astype(np.float32).ravel())
        tensor.CopyFrom(filled)
    weights = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in made.graph.initializer}
    program = populus_api.compile(made)
    angle = np.outer([7], 10000.0 ** (-np.arange(8) / 8)).repeat(2, 0).reshape(-1)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in made.graph.input}
    inputs = {n: rng.standard_normal(shape) for n, shape in shapes.items()} | {"cos": np.cos(angle), "sin": np.sin(angle)}
    inputs = {n: np.asarray(v, np.float32).astype(bfloat16) for n, v in inputs.items()}
    got = np.asarray(program.run(inputs)[made.graph.output[0].name], np.float64)
    given = {n: np.asarray(v, np.float64) for n, v in inputs.items()}
    assert np.abs(got - _step(given, weights)).max() <= 0.05 * np.abs(got).max()


def _step(given, weights):
    def norm(x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w

    def turn(x):
        low, high = np.split(x, 2, -1)
        return x * given["cos"] + np.concatenate([-high, low], -1) * given["sin"]

    x, net = given["x"], TINY
    for i in range(net.layers):
        own = {n.split(".")[1]: w for n, w in weights.items() if n.startswith(f"{i}.")}
        y = norm(x, own["norm1"])
        q, k, v = ((y @ own[n]).reshape(2, -1, net.size) for n in "qkv")
        q, k = turn(q), turn(k)
        heads = []
        for head in range(net.heads):
            of = head // (net.heads // net.key_heads)
            keys = np.concatenate([given[f"{i}.keys"][:, of], k[:, of, None]], 1)
            values = np.concatenate([given[f"{i}.values"][:, of], v[:, of, None]], 1)
            scores = np.exp((keys @ q[:, head, :, None])[..., 0] * net.size**-0.5)
            heads.append(((scores / scores.sum(-1, keepdims=True))[:, None] @ values)[:, 0])
        x = x + np.concatenate(heads, -1) @ own["o"]
        y = norm(x, own["norm2"])
        gate = y @ own["gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (y @ own["up"])) @ own["down"]
    return norm(x, weights["norm"]) @ weights["logits"]


def test_a_decoder_without_weights_is_planned_with_room_for_each(populus, tmp_path: Path):
    (tmp_path / "step.onnx").write_bytes(decoder(TINY, batch=2, positions=8).SerializeToString())
    got = populus("profile", str(tmp_path / "step.onnx"), "--no-weights", "--target", "n150", "--json", str(tmp_path / "p.json"))
    summary = json.loads((tmp_path / "p.json").read_text())["summary"]
    assert got.status == 0 and summary["fits"] and summary["cycles"] > 0
    bytes = 2 * sum(int(np.prod(t.dims)) for t in decoder(TINY, 2, 8).graph.initializer)
    assert 64 * summary["peak_tile_bytes"] >= bytes, "they are small, and stay on the tiles"
