"""`benchmarks.before_after`: what it says of two files of outputs, and which tree's package runs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import save

from benchmarks import before_after
from helpers.concurrent_runs import model as made

ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("after", "said", "worst"),
    [
        ({"y": ONES}, "equal", 0.0),
        ({"y": ONES * np.float32(1.5)}, "5e-01 (100% of the elements)", 0.5),
        ({"y": np.where(np.arange(6).reshape(2, 3) == 0, np.nan, ONES).astype(np.float32)}, "nan (17% of the elements)", math.inf),
        ({"y": ONES[:1]}, "other outputs", math.inf),
        ({"y": ONES.astype(np.float64)}, "other outputs", math.inf),
        ({"z": ONES}, "other outputs", math.inf),
    ],
    ids=["equal", "far", "nan", "shape", "type", "name"],
)
def test_a_difference_is_told(after: dict[str, NDArray[np.generic]], said: str, worst: float, tmp_path: Path):
    files = tmp_path / "before.npz", tmp_path / "after.npz"
    np.savez(files[0], y=ONES)
    np.savez(files[1], **after)  # pyright: ignore[reportArgumentType]
    assert before_after.compared(*files) == (said, worst)


def test_bytes_and_the_sign_of_zero_are_compared(tmp_path: Path):
    """A difference of bytes does not wrap: 0 and 255 are 255 apart."""
    files = tmp_path / "before.npz", tmp_path / "after.npz"
    np.savez(files[0], y=np.array([0, 255], np.uint8), z=np.zeros(2, np.float32))
    np.savez(files[1], y=np.array([255, 255], np.uint8), z=-np.zeros(2, np.float32))
    assert before_after.compared(*files) == ("1e+00 (25% of the elements)", 1.0)


def test_a_tree_s_own_package_runs(tmp_path: Path):
    """The worker finds the package of the tree that it is told, and says so where it is another, as the one that is installed."""
    trees = before_after.Trees("elsewhere", tmp_path, tmp_path)
    save(made("net (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"), tmp_path / "net.onnx")
    trees.printed("now", "bits", tmp_path / "net.onnx", "numpy", "host", tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as found:
        assert found["y"].shape == (2, 3)
    with pytest.raises(RuntimeError, match=r"^elsewhere: AssertionError: .*populus"):
        trees.printed("elsewhere", "load", tmp_path)
