"""`populus new-pass`: the files that it writes, and lit on them as somebody outside of the repository runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def lit(folder: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lit")
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([tool, "-v", folder], check=False, capture_output=True, text=True, env=environment)


def test_a_new_pass_is_tested_by_lit_in_its_own_folder(populus, tmp_path):
    made = populus("new-pass", "Drop_relu".lower(), "--folder", tmp_path)
    assert made.status == 0, made.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["drop_relu.mlir", "drop_relu.py", "lit.cfg"]
    ran = lit(tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert "Passed: 1" in ran.stdout
    wrong = tmp_path / "drop_relu.mlir"
    wrong.write_text(wrong.read_text().replace("// CHECK-NEXT: func.return %once", "// CHECK-NEXT: func.return %twice"))
    assert lit(tmp_path).returncode == 1, "the test tests"
    second = populus("new-pass", "fewer-adds", "--folder", tmp_path)
    assert second.out.split() == [str(tmp_path / "fewer_adds.py"), str(tmp_path / "fewer_adds.mlir")], "one lit.cfg is enough"


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [("9", 2, "'9' is no name for a pass"), ("Ä", 2, "no name for a pass"), ("popart-fuse", 2, "'popart-fuse' is a pass of ours")],
)
def test_a_name_that_cannot_be_is_one_line(populus, tmp_path, name, status, message):
    found = populus("new-pass", name, "--folder", tmp_path)
    assert (found.status, found.err.count("\n")) == (status, 1)
    assert message in found.err
    assert not list(tmp_path.iterdir())


PATTERN = """
from populus.custom import Pattern, made_by, popart

class DoubleNegation(Pattern[popart.NegOp]):
    ROOTS = (popart.NegOp,)

    def rewrite(self, op, r):
        inner = made_by(op.x, popart.NegOp, op)
        return None if inner is None else [inner.x]
"""
NEGATIONS = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = popart.neg %x : tensor<4xf32>
  %b = popart.neg %a : tensor<4xf32>
  func.return %b : tensor<4xf32>
}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("[inner.x]", "[inner.input]", "own.py:9: AttributeError: 'NegOp' object has no attribute 'input' (in popart-fuse)"),
        ("[inner.x]", "inner.x", "DoubleNegation gives a BlockArgument; a list of values, or None, is expected (in popart-fuse)"),
        ("[inner.x]", "[inner]", "gives a list with a NegOp; a list of values, or None, is expected (in popart-fuse)"),
        ("    ROOTS = (popart.NegOp,)", "    pass", "class DoubleNegation: a pattern states the op classes that it visits"),
    ],
)
def test_a_mistake_in_a_pattern_of_ones_own_names_its_line_or_class(populus_opt, tmp_path, right, wrong, message):
    (tmp_path / "own.py").write_text(PATTERN)
    (tmp_path / "x.mlir").write_text(NEGATIONS)
    arguments = (tmp_path / "x.mlir", "--load", tmp_path / "own.py", "-p", "popart-fuse")
    assert "popart.neg" not in populus_opt(*arguments).out
    (tmp_path / "own.py").write_text(PATTERN.replace(right, wrong))
    found = populus_opt(*arguments)
    assert (found.status, found.out, found.err.count("\n")) == (1, "", 1)
    assert message in found.err and "internal error" not in found.err


def test_a_file_that_is_there_is_not_replaced(populus, tmp_path):
    (tmp_path / "mine.mlir").write_text("mine")
    found = populus("new-pass", "mine", "--folder", tmp_path)
    assert found.status == 1 and "mine.mlir: already exists" in found.err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.mlir"]
