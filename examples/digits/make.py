"""Writes digits.onnx, a small convolutional net with random weights, and train.npz and test.npz, scikit-learn's handwritten digits.

python examples/digits/make.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def net(seed: int = 0) -> onnx.ModelProto:
    """Two convolutions, a pool and two full layers, for [n, 1, 8, 8] images and 10 classes; weights as in He et al., 2015."""
    g = np.random.default_rng(seed)
    weights: list[onnx.TensorProto] = []

    def layer(name: str, *shape: int) -> list[str]:
        spread = np.sqrt(2 / np.prod(shape[1:]))
        weights.append(numpy_helper.from_array((g.standard_normal(shape) * spread).astype(np.float32), f"{name}.weight"))
        weights.append(numpy_helper.from_array(np.zeros(shape[0], np.float32), f"{name}.bias"))
        return [f"{name}.weight", f"{name}.bias"]

    nodes = [
        helper.make_node("Conv", ["x", *layer("conv1", 16, 1, 3, 3)], ["c1"], pads=[1, 1, 1, 1], name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", *layer("conv2", 32, 16, 3, 3)], ["c2"], pads=[1, 1, 1, 1], name="conv2"),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", *layer("fc1", 64, 512)], ["h"], transB=1, name="fc1"),
        helper.make_node("Relu", ["h"], ["r3"], name="relu3"),
        helper.make_node("Gemm", ["r3", *layer("fc2", 10, 64)], ["logits"], transB=1, name="fc2"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 10])
    model = helper.make_model(
        helper.make_graph(nodes, "digits", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model)
    return model


def digits(seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """1,437 images to train with and 360 others to test with; pixels from 0 to 1."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = (found.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(x))
    parts = order[:1437], order[1437:]
    train, test = ({"x": x[rows], "labels": found.target[rows]} for rows in parts)
    return train, test


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(net(), folder / "digits.onnx")
    for name, arrays in zip(("train", "test"), digits(), strict=True):
        np.savez(folder / f"{name}.npz", **arrays)
    print(f"wrote digits.onnx, train.npz and test.npz to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
