"""`populus check-op` and `populus new-op`: what holds is said to hold, and each part that does not is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PARTS = (
    "definition", "inference", "aliases", "text", "evaluate", "levels", "half", "integers", "gradient", "attributes", "ties and zeros",
    "second derivatives", "training", "plain Python", "inputs kept", "hash", "strict", "tiles", "sizes", "ONNX schema", "ONNX model",
    "docs",
)  # fmt: skip


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.stem)
def test_every_example_keeps_the_contract(file, populus):
    got = populus("check-op", file)
    assert (got.status, got.err) == (0, "")
    assert [part in got.out for part in PARTS] == [True] * len(PARTS)


def test_the_gradient_at_zero_is_told(populus):
    assert "the side of the right" in populus("check-op", ROOT / "examples" / "leaky_relu.py").out


BROKEN = [
    ("return select(g, self.alpha * g, x >= 0)", "return 2 * g", "gradient: the gradient of x0, element"),
    ("return select(g, self.alpha * g, x >= 0)", "return [g, g]", "its `backward` gives 2 gradients for 1 operands"),
    ("g, x >= 0)", "g, x * x > 0) + select(2 * g, 0 * g, x * x < 1e-9)", "ties and zeros: at 0 the gradient of x0 is"),
    ("`y = x where", "y = x where", "definition: its docstring has no formula"),
    ("Source: com.acme LeakyRelu-1.", "", "definition: its docstring has no source"),
    (
        "    def forward",
        "    def lower(self, b):\n        return [self.x]\n\n    def forward",
        "levels: popops gives other values than popart for y",
    ),
    (
        "    def forward",
        "    def lower(self, b):\n        return []\n\n    def forward",
        "levels: 'leaky_relu': acme.leaky_relu: its lowering gives",
    ),
    ("    def forward", '    NOT_HASHED: ClassVar = ("hidden",)\n    hidden = number(1.0)\n\n    def forward', None),
    (
        "    def forward",
        '    NOT_HASHED: ClassVar = ("alpha",)\n\n    def forward',
        "hash: 'alpha' is in NOT_HASHED, but 0.0 gives another y; take it out of there",
    ),
    ("    def forward", "    def infer(self):\n        return []\n\n    def forward", "example: "),
    ("    def forward", "    EXAMPLES: ClassVar = [([(3,), (4,)], {})]\n\n    def forward", "example: "),
    ("alpha: float = number(0.01, low=-1, high=1)", "alpha: float = number(low=-1, high=1)", None),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN, ids=range(len(BROKEN)))
def test_what_does_not_hold_is_one_line_each(old, new, message, populus, tmp_path):
    text = (ROOT / "examples" / "leaky_relu.py").read_text()
    assert old in text
    (tmp_path / "own.py").write_text(text.replace(old, new))
    got = populus("check-op", tmp_path / "own.py")
    if message is None:
        assert (got.status, got.err) == (0, "")
        return
    assert got.status == 1
    assert message in got.err
    assert all(line.startswith(f"populus: {tmp_path / 'own.py'}: acme.leaky_relu: ") for line in got.err.splitlines())


def test_a_file_without_ops_is_refused(populus, tmp_path):
    (tmp_path / "none.py").write_text("X = 1\n")
    got = populus("check-op", tmp_path / "none.py")
    assert got.status == 1
    assert got.err.count("\n") == 1
    assert "none.py: defines no op" in got.err


def test_a_new_op_passes_its_test_and_the_contract(populus, tmp_path):
    got = populus("new-op", "SmoothStep", "--folder", tmp_path, "--domain", "org.mine")
    assert (got.status, got.err) == (0, "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["smooth_step.py", "test_smooth_step.py"]
    assert 'name = "mine.smooth_step"' in (tmp_path / "smooth_step.py").read_text()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_smooth_step.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["3d"], "'3d' is not a name for an op"),
        (["Own", "--domain", "ai.onnx"], "'ai.onnx' is not a valid domain"),
        (["Own", "--folder", "/no/such"], "/no/such: no such folder"),
        (["Taken"], "taken.py: already exists; choose another name or folder"),
    ],
)
def test_what_cannot_be_written_is_one_line(args, message, populus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.py").write_text("")
    got = populus("new-op", *args)
    assert got.status == 1
    assert got.err.count("\n") == 1
    assert message in got.err


SWAPPED = '''
from xdsl.irdl import irdl_op_definition

from populus.dialects.popart.base import BinaryOp


@irdl_op_definition
class ScaledOp(BinaryOp):
    """`y = a b b`. Source: a test."""

    name = "acme.scaled"

    def forward(self, a, b):
        return a * b * b

    def backward(self, g, a, b, y):
        return [{gradients}]
'''


def test_a_gradient_for_the_wrong_operand_is_found(populus, tmp_path):
    """Of one type with the other's, it is what differences of values alone can tell."""
    path = tmp_path / "own.py"
    path.write_text(SWAPPED.format(gradients="g * b * b, 2 * g * a * b"))
    assert populus("check-op", path).status == 0
    path.write_text(SWAPPED.format(gradients="2 * g * a * b, g * b * b"))
    got = populus("check-op", path)
    assert got.status == 1
    assert "gradient: the gradient of x0, element" in got.out + got.err


def test_the_page_of_an_op_has_its_examples_and_tests_as_sentences(populus, tmp_path):
    assert populus("new-op", "SmoothStep", "--folder", tmp_path).status == 0
    got = populus("docs-op", "smooth_step", "--load", tmp_path / "smooth_step.py", "--tests", tmp_path / "test_smooth_step.py")
    assert (got.status, got.err) == (0, "")
    assert "# example.smooth_step" in got.out
    assert "- the values are those of the formula (`test_smooth_step.py:" in got.out
    own = ROOT / "examples/ops/concat.py"
    got = populus("docs-op", "concat", "--load", own, "--tests", tmp_path / "test_smooth_step.py")
    assert "| axis: [] int64, xs: [2, 3], xs: [2, 4] |  |" in got.out
    got = populus("docs-op", "concat", "--load", own, "--tests", own)
    assert (got.status, got.err.count("\n")) == (1, 1)
    assert "concat.py: has no test; one is a function test_.." in got.err
