"""The programs of PopART and PopTorch in `examples/` train on all tiles of a GC200."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.profile_pages import profiles

EXAMPLES = Path(__file__).parents[2] / "examples"


def losses(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss ([0-9.]+)", text)]


def test_a_block_of_popart_with_a_custom_op_learns(populus, tmp_path):
    page = tmp_path / "page.html"
    got = populus(
        "run-program", str(EXAMPLES / "popart/resnet_block.py"), "--steps", "10", "--load", str(EXAMPLES / "leaky_relu.py"),
        "--profile", str(page),
    )  # fmt: skip
    assert (got.status, got.err) == (0, f"populus: wrote {page}: 2 programs\n")
    first, *_, last = losses(got.out)
    assert last < first / 2
    found = profiles(page)
    assert {p["target"]["tiles"] for p in found} == {1472}
    assert all(p["summary"]["fits"] for p in found)
    assert any("leaky_relu" in str(p["ir"]) for p in found)


def test_a_custom_op_that_is_not_loaded_is_refused_at_its_line(populus):
    path = EXAMPLES / "popart/resnet_block.py"
    got = populus("run-program", str(path))
    assert got.status == 1
    line = got.err.removeprefix(f"populus: {path}:").partition(":")[0]
    assert "TrainingSession(" in path.read_text().splitlines()[int(line) - 1]
    assert "com.acme" in got.err
    assert "--load" in got.err


def test_a_net_of_poptorch_learns_digits(populus, tmp_path):
    pytest.importorskip("torch", reason="needs torch, which is optional")
    pytest.importorskip("onnxscript", reason="needs onnxscript, as torch.onnx does")
    page = tmp_path / "page.html"
    got = populus(
        "run-program", str(EXAMPLES / "poptorch/digits.py"), "--epochs", "3", "--images", "480", "--profile", str(page)
    )  # fmt: skip
    assert got.status == 0, got.err
    first, *_, last = losses(got.out)
    assert last < first
    assert len(profiles(page)) == 3
    assert {p["target"]["tiles"] for p in profiles(page)} == {1472}
