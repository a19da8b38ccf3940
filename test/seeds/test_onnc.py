"""ONNC's IR extension guide, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from ops import cases
from xdsl.parser import Parser

import populus
from populus.dialects.diagnostics import PopulusError
from populus.dialects.popops import MapOp
from populus.dialects.table import context
from populus.lowering import extensions
from populus.lowering.passes import PASSES
from populus.lowering.popops_fuse import PopopsFusePass
from populus.runtime.interpreter import run_function

X = np.array([-1, 0, 2], np.float32)
TEXT = """
func.func @main(%x: tensor<3xf32>) -> ({types}) {{
  %a = popops.map <mul(_1, 2.0)>(%x) : (tensor<3xf32>) -> tensor<3xf32>
  {body}
}}
"""
USE = "%b = popops.map <{}>(%a) : (tensor<3xf32>) -> tensor<3xf32>\n  "


def fused(body: str, types: str = "tensor<3xf32>"):
    """(maps left, outputs before, outputs after)."""
    module = Parser(context(), TEXT.format(body=body, types=types)).parse_module()
    before = run_function(module, {"x": X})
    PopopsFusePass().apply(context(), module)
    module.verify()
    after = run_function(module, {"x": X})
    return sum(isinstance(op, MapOp) for op in module.walk()), before, after


def test_C5_a_command_that_no_generic_op_describes_is_an_op(root):
    row_norm = extensions.load(root / "examples" / "row_norm.py").module.row_norm
    with populus.Builder() as b:
        b.output("y", row_norm(b.input("x", (2, 2))))
    program = populus.compile(b.module(), tiles=2, engine="strict")
    assert "poplar.family @row_norm_vertex" in str(program.module("poplar"))
    assert program.run({"x": np.array([[3, 4], [0, 0]], np.float32)})["y"].tolist() == [5, 0]


def test_C6_generic_ops_come_first_and_the_target_s_after(tool):
    status, out, _ = tool("populus_opt", "--pipeline", "inference", "--print-pipeline")
    assert status == 0
    assert out.index("onnx-to-popart") < out.index("popart-to-popops") < out.index("popops-to-poplar")


CASES = {c.id: c for c in cases()}


def test_C8_every_op_is_printed_and_parsed():
    for case in CASES.values():
        text = str(case.module())
        assert str(Parser(context(), text).parse_module()) == text, case.id


def test_C10_an_evaluator_without_an_op_names_it_and_what_to_do():
    text = 'func.func @main() -> tensor<3xf32> {\n  %y = "test.op"() : () -> tensor<3xf32>\n  func.return %y : tensor<3xf32>\n}'
    with pytest.raises(PopulusError, match="test.op has no value at this level; run the module after the passes that lower it, or before"):
        run_function(Parser(context(), text).parse_module(), {})


def test_C12_one_use_is_fused():
    maps, before, after = fused(USE.format("max(_1, 0.0)") + "func.return %b : tensor<3xf32>")
    assert maps == 1
    assert after["output_0"].tobytes() == before["output_0"].tobytes()


def test_C12_what_is_returned_as_well_is_not_fused():
    maps, before, after = fused(
        USE.format("max(_1, 0.0)") + "func.return %a, %b : tensor<3xf32>, tensor<3xf32>", "tensor<3xf32>, tensor<3xf32>"
    )
    assert maps == 2
    assert [after[n].tobytes() for n in before] == [a.tobytes() for a in before.values()]


def test_C12_no_use_is_no_crash():
    maps, before, after = fused("func.return %x : tensor<3xf32>")
    assert maps == 0
    assert after["output_0"].tobytes() == before["output_0"].tobytes()


def test_C12_a_convolution_with_no_user_compiles():
    from populus.dialects import popart

    with populus.Builder() as b:
        x, w = b.input("x", (1, 1, 4, 4)), b.input("w", (1, 1, 3, 3))
        window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
        b.op(popart.ConvOp, x, w, **window)
        b.output("y", b.op("relu", x)[0])
    assert (
        populus.compile(b.module(), tiles=4)
        .run({"x": np.ones((1, 1, 4, 4), np.float32), "w": np.ones((1, 1, 3, 3), np.float32)})["y"]
        .sum()
        == 16
    )


def test_C13_the_fused_result_is_that_of_the_two():
    for second in ("max(_1, 0.0)", "exp(_1)", "divide(1.0, _1)", "select(_1, 0.0, gt(_1, 0.0))"):
        _, before, after = fused(USE.format(second) + "func.return %b : tensor<3xf32>")
        assert after["output_0"].tobytes() == before["output_0"].tobytes(), second


def test_C14_what_nobody_uses_is_removed():
    maps, _, _ = fused(USE.format("exp(_1)") + "func.return %x : tensor<3xf32>")
    assert maps == 0


def test_C15_the_passes_are_listed(tool, capsys):
    with pytest.raises(SystemExit):
        tool("populus_opt", "--list-passes")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(PASSES)
    assert all(len(line.split()) > 1 for line in lines)


def test_C17_a_pass_has_options(tool, tmp_path):
    (tmp_path / "m.mlir").write_text(
        "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n  %c = data.constant dense<2.0> : tensor<3xf32>\n"
        "  %y = popops.map <mul(_1, _2)>(%x, %c) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\n  func.return %y : tensor<3xf32>\n}\n"
    )
    texts = [tool("populus_opt", tmp_path / "m.mlir", "-p", f"popops-fuse{{literals={on}}}")[1] for on in ("true", "false")]
    assert "mul(_1, 2.0)" in texts[0]
    assert "mul(_1, _2)" in texts[1]
