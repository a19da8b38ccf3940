"""populus demo and bench: they show every level, and what they say is so."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from populus.runtime.engine.native.run import program as native_program
from populus.tools import demo, digit
from populus.tools.arrays import compare
from populus.write.nets import net

DEFINITIONS = "NumPy's definitions, with random weights"


@pytest.mark.parametrize("digit", range(10))
def test_an_image_of_each_digit_is_recognised_and_drawn(populus, digit):
    got = populus("demo", "--digit", digit)
    assert (got.status, got.err) == (0, "")
    lines = got.out.splitlines()
    drawn = [line[4:20] for line in lines[2:10]]
    assert re.search(rf"    {digit} \((8|9)\d%\)|    {digit} \(100%\)", lines[2])
    assert {*"".join(drawn)} <= set(" ░▒▓█") and sum(mark != " " for row in drawn for mark in row) > 30
    shares = [float(m[1]) for line in lines[4:10] if (m := re.search(r" (\d+)%$", line))]
    assert 98 <= sum(shares) <= 102
    for level, op in (("onnx", "onnx.Gemm_13("), ("popart", "popart.gemm "), ("popops", "poplin.matmul "), ("poplar", "poplar.execute ")):
        assert any(line.startswith(f"  {level} ") and op in line for line in lines), level


def test_a_net_that_is_wrong_about_its_image_ends_the_demo_with_1(populus, tmp_path, monkeypatch):
    model = onnx.load(net("digits"))
    (weights,) = (w for w in model.graph.initializer if w.name == "b3")
    weights.CopyFrom(numpy_helper.from_array(np.array([99, *[0] * 9], np.float32), "b3"))
    onnx.save(model, tmp_path / "digits.onnx")
    (tmp_path / "images.npz").write_bytes(net("digits").with_name("images.npz").read_bytes())
    monkeypatch.setattr(digit, "net", lambda name: tmp_path / f"{name}.onnx")
    got = populus("demo")
    assert got.status == 1
    assert "0 (100%)" in got.out


def test_the_demo_goes_through_every_level_and_agrees_twice(populus, monkeypatch):
    expected = []
    monkeypatch.setattr(demo, "compare", lambda found, wanted, *tolerances: expected.append(wanted) or compare(found, wanted, *tolerances))
    got = populus("demo", "--model", "light_squeezenet", "--tiles", "64")
    assert (got.status, got.err) == (0, "")
    assert [level for level in ("onnx", "popart", "popops", "poplar") if f"\n{level} " in got.out] == ["onnx", "popart", "popops", "poplar"]
    assert got.out.count(" agrees with ") == 2
    assert max(map(len, got.out.splitlines())) <= 80
    [shares] = expected[1].values()  # of classes by drawn weights: were they 1 and 0, then nearly all programs would agree
    assert shares.max() < 0.1
    assert np.unique(shares).size > 500


def test_without_machine_code_the_demo_compares_drawn_weights_only(populus, monkeypatch):
    def absent(cpu):
        raise ImportError

    monkeypatch.setattr(native_program, "library", absent)
    got = populus("demo", "--model", "light_squeezenet", "--tiles", "64")
    assert (got.status, got.err) == (0, "")
    assert "by the numpy engine" in got.out
    assert "not compared with the output packaged with ONNX" in got.out
    assert [line.partition(" with ")[2] for line in got.out.splitlines() if " agrees with " in line] == [DEFINITIONS]


def test_the_parts_of_the_cycles_add_up(populus):
    out = populus("demo", "--model", "light_squeezenet", "--tiles", "64").out
    cycles = {m[1]: int(m[2].replace(",", "")) for m in re.finditer(r"^ *(\w+) +([\d,]+) cycles", out, re.MULTILINE)}
    assert cycles["estimated"] == cycles["compute"] + cycles["exchange"] + cycles["sync"]


def test_a_model_that_the_package_does_not_have_is_one_line(populus):
    got = populus("demo", "--model", "light_resnet51")
    assert (got.status, got.err) == (1, "populus: the onnx package has no light model 'light_resnet51'; did you mean 'light_resnet50'?\n")


def test_bench_has_a_line_for_each_model(populus, tmp_path):
    from onnx import TensorProto, helper, save

    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8])],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "relu.onnx")
    got = populus("bench", tmp_path / "relu.onnx", "--tiles", "2", "--repeat", "1")
    assert (got.status, got.err) == (0, "")
    header, line = got.out.splitlines()
    assert header.startswith("model")
    assert line.startswith("relu ")
