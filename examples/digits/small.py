"""Trains the net of `populus demo`, and writes it and ten images of the test set that it never saw to a folder.

python examples/digits/small.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from make import digits
from onnx import TensorProto, helper, numpy_helper

import populus

CHANNELS = (8, 16)


def net() -> onnx.ModelProto:
    """Builds two convolutions and a product, with weights drawn from a fixed seed: 3,818 numbers."""
    rng, (first, second) = np.random.default_rng(0), CHANNELS
    shapes = {"w1": (first, 1, 3, 3), "w2": (second, first, 3, 3), "w3": (second * 16, 10)}
    weights = {n: rng.standard_normal(s) * np.sqrt(2 / (s[0] if n == "w3" else np.prod(s[1:]))) for n, s in shapes.items()}
    weights |= {"b1": np.zeros(first), "b2": np.zeros(second), "b3": np.zeros(10)}
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], name="conv2", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("Flatten", ["r2"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["scores"], name="product"),
    ]
    info = helper.make_tensor_value_info
    given, made = info("image", TensorProto.FLOAT, ["n", 1, 8, 8]), info("scores", TensorProto.FLOAT, ["n", 10])
    constants = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    return helper.make_model(
        helper.make_graph(nodes, "digits", [given], [made], constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


def with_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """Makes the scores of one image into shares, which are the output; the batch is one image."""
    graph = model.graph
    graph.node.append(helper.make_node("Softmax", ["scores"], ["shares"], name="softmax", axis=1))
    for value, shape in ((graph.input[0], (1, 1, 8, 8)), (graph.output[0], (1, 10))):
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, shape))
    graph.output[0].name = "shares"
    onnx.checker.check_model(model, full_check=True)
    return model


def falling(done: float) -> float:
    """Computes the factor of the learning rate for a share of all steps: half a cosine."""
    return 0.5 * (1 + np.cos(np.pi * done))


def main(folder: Path) -> None:
    train, test = ({"image": d["x"], "labels": d["labels"]} for d in digits())
    session = populus.train(net(), train, batch=32, epochs=30, lr=4e-3, schedule=falling, validate=test)
    session.export(folder / "digits.onnx")
    model = with_softmax(onnx.load(folder / "digits.onnx"))
    onnx.save(model, folder / "digits.onnx")
    program = populus.compile(model)
    shares = np.array([program.run({"image": image[None]})["shares"][0] for image in test["image"]])
    right, sure = shares.argmax(1) == test["labels"], shares.max(1)
    print(f"{right.mean():.2%} of {len(right)} images that it never saw")
    of = [np.flatnonzero(right & (test["labels"] == digit)) for digit in range(10)]
    shown = [rows[sure[rows].argsort()[len(rows) // 20]] for rows in of]  # of 95 % of its digit the net is surer
    images, labels = (test["image"][shown, 0] * 16).astype(np.uint8), test["labels"][shown].astype(np.uint8)
    np.savez_compressed(folder / "images.npz", images=images, labels=labels)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
