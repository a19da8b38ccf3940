"""`populus reduce`: mistakes are planted, and models and texts in which they show become as small as they can."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from xdsl.dialects.builtin import FloatAttr, f32

from helpers.planted_mistakes import CONVERTED, LOWERED, Mistake, planted, sets, swaps
from populus.tools.reducing import of_model, of_text, pruned, resized, smallest

pytestmark = pytest.mark.skipif(not hasattr(sys, "getsizeof") or sys.platform == "win32", reason="candidates run in forked processes")

N = helper.make_node
INFO = helper.make_tensor_value_info


def chain() -> onnx.ModelProto:
    """Eight nodes, of which one is LeakyRelu."""
    nodes = [
        *(N("Exp", ["x"], ["a"], name="first"), N("Mul", ["a", "x"], ["b"], name="square"), N("Tanh", ["b"], ["c"], name="tanh")),
        N("LeakyRelu", ["c"], ["d"], name="leaky", alpha=0.25),
        *(N("Mul", ["d", "w"], ["e"], name="mul"), N("Exp", ["e"], ["f"], name="exp"), N("Abs", ["x"], ["g"], name="abs")),
        N("Sub", ["f", "g"], ["y"], name="sub"),
    ]
    w = helper.make_tensor("w", TensorProto.FLOAT, [6], [1, 2, 3, 4, 5, 6])
    graph = helper.make_graph(nodes, "g", [INFO("x", 1, [4, 6])], [INFO("y", 1, [4, 6]), INFO("g", 1, [4, 6])], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WRONG_SIGN = Mistake("wrong sign", CONVERTED, "popart.leaky_relu", "leaky", sets(alpha=FloatAttr(-0.2, f32)), ("popart", "leaky"))
SWAPPED = Mistake("swapped", LOWERED, "popops.map", "s", swaps(0, 1), ("popops", "s"))


@pytest.mark.parametrize("oracle", ["onnxruntime", "onnx"])
def test_a_model_becomes_the_node_that_is_wrong(oracle: str, monkeypatch: pytest.MonkeyPatch, populus: Any, tmp_path: Path):
    pytest.importorskip("onnxruntime")
    planted(monkeypatch, WRONG_SIGN)
    onnx.save(chain(), tmp_path / "m.onnx")
    got = populus("reduce", tmp_path / "m.onnx", "--against", oracle, "--seed", 3, "--tiles", 1)
    assert got.status == 0, got.err
    assert "m-seed-3.onnx: 1 of 8 nodes, which still differs" in got.out
    made = onnx.load(tmp_path / "m-seed-3.onnx")
    assert [n.op_type for n in made.graph.node] == ["LeakyRelu"]
    assert [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [1, 1]
    onnx.checker.check_model(made)


TEXT = """func.func @main(%x: tensor<4x6xf32>, %z: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %a = popart.neg %x : tensor<4x6xf32> loc("a")
  %b = popart.exp %a : tensor<4x6xf32> loc("b")
  %c = popart.sub %b, %z : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("s")
  %d = popart.tanh %c : tensor<4x6xf32> loc("d")
  func.return %d, %b : tensor<4x6xf32>, tensor<4x6xf32>
}
"""


def test_a_text_becomes_a_test_of_few_lines(monkeypatch: pytest.MonkeyPatch, populus: Any, tmp_path: Path):
    planted(monkeypatch, SWAPPED)
    (tmp_path / "t.mlir").write_text(TEXT)
    got = populus("reduce", tmp_path / "t.mlir", "--against", "popops", "--tiles", 1)
    assert got.status == 0, got.err
    text = (tmp_path / "t-seed-0.mlir").read_text()
    assert text.startswith("// RUN: populus run %s --tiles 1 --seed 0 --check-levels\n")
    assert "popart.sub" in text and "popart.exp" not in text and "popart.tanh" not in text and "4x6" not in text
    assert populus("run", tmp_path / "t-seed-0.mlir", "--tiles", 1, "--check-levels").status == 1


def test_a_file_is_as_small_as_a_command_allows(populus: Any, tmp_path: Path):
    (tmp_path / "t.mlir").write_text(TEXT)
    got = populus("reduce", tmp_path / "t.mlir", "--while", "grep -q popart.exp {}", "-o", tmp_path / "small.mlir")
    assert got.status == 0, got.err
    assert (tmp_path / "small.mlir").read_text().startswith("// RUN: not grep -q popart.exp %s\n")
    assert (tmp_path / "small.mlir").read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("good.onnx", "--against", "strict"), "nothing to reduce: --against strict says that it agrees"),
        (("good.onnx", "--while", "false"), "nothing to reduce: 'false' says that it agrees"),
        (("good.onnx", "--while", "no-such-command"), "'no-such-command': No such file or directory"),
        (("text.onnx", "--against", "onnx"), "text.onnx: this is not an ONNX model"),
        (("none.onnx", "--against", "onnx"), "none.onnx: no such file or directory"),
    ],
)
def test_a_case_that_cannot_be_reduced_is_one_line(args: Any, said: str, populus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(chain(), "good.onnx")
    Path("text.onnx").write_text("text")
    got = populus("reduce", *args)
    assert got.status == 1 and got.err.count("\n") == 1 and said in got.err, got.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["good.onnx", "text.onnx"]


def test_the_search_goes_on_after_each_smaller_case():
    tried: list[int] = []

    def fails(n: int) -> bool:
        tried.append(n)
        return n >= 7

    assert smallest(100, lambda n: iter([n // 2, n - 1]), fails) == 7
    assert len(tried) < 40


def test_candidates_are_smaller_and_of_the_same_form():
    for model in of_model(chain()):
        onnx.checker.check_model(model)
        assert model.SerializeToString() != chain().SerializeToString()
    assert all(text != TEXT for text in of_text(TEXT))
    made = pruned(resized(chain(), 6, 2))
    assert list(made.graph.initializer[0].dims) == [2]
