"""Writes train.npz and test.npz, scikit-learn's handwritten digits, and a copy of digits.onnx next to them.

python examples/digits/make.py FOLDER
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

MODEL = Path(__file__).parent / "digits.onnx"


def digits(seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Loads 1,437 images for training and 360 others for testing, with pixels from 0 to 1."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = (found.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(x))
    parts = order[:1437], order[1437:]
    train, test = ({"x": x[rows], "labels": found.target[rows]} for rows in parts)
    return train, test


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() != MODEL.parent.resolve():
        shutil.copy(MODEL, folder)
    for name, arrays in zip(("train", "test"), digits(), strict=True):
        np.savez(folder / f"{name}.npz", **arrays)
    print(f"wrote digits.onnx, train.npz and test.npz to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
