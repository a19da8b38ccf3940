"""The files that a page takes for granted: small models and arrays."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
Shape = list[int | str]


def value(name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """Declares an input or an output."""
    return helper.make_tensor_value_info(name, kind, shape)


def saved(
    path: str,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, tuple[int, ...]] | None = None,
    domains: tuple[str, ...] = (),
) -> onnx.ModelProto:
    """Writes a model with drawn weights of these shapes."""
    rng = np.random.default_rng(0)
    drawn = [numpy_helper.from_array(np.asarray(rng.normal(0, 0.3, s), np.float32), n) for n, s in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, drawn)
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, path)
    return model


def perceptron(path: str, layers: int = 2, batch: int | str = "batch") -> onnx.ModelProto:
    """Writes a net of full layers of 8 with a relu after each, `layer1.relu`, and `fc`: from x to 4 logits y."""
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, tuple[int, ...]] = {}
    before = "x"
    for n in range(1, layers):
        nodes.append(helper.make_node("MatMul", [before, f"layer{n}.weight"], [f"p{n}"], name=f"layer{n}"))
        nodes.append(helper.make_node("Relu", [f"p{n}"], [f"r{n}"], name=f"layer{n}.relu"))
        weights[f"layer{n}.weight"] = (8, 8)
        before = f"r{n}"
    nodes.append(helper.make_node("Gemm", [before, "fc.weight", "fc.bias"], ["y"], name="fc"))
    weights |= {"fc.weight": (8, 4), "fc.bias": (4,)}
    return saved(path, nodes, [value("x", [batch, 8])], [value("y", [batch, 4])], weights)


def samples(path: str, count: int = 128) -> dict[str, np.ndarray]:
    """Writes arrays to train `perceptron` on."""
    rng = np.random.default_rng(1)
    data = {"x": rng.normal(size=(count, 8)).astype(np.float32), "labels": rng.integers(0, 4, count)}
    np.savez(path, **data)
    return data


def convolution(path: str, size: int = 8) -> onnx.ModelProto:
    """Writes a convolution of images with a batch norm and a relu: the patterns of `popart-fuse` find something."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "power"], ["n"], name="norm1"),
        helper.make_node("Mul", ["n", "n"], ["y"], name="square1"),
    ]
    weights: dict[str, tuple[int, ...]] = {"w": (4, 3, 3, 3), "scale": (4,), "shift": (4,), "mean": (4,)}
    model = saved(path, nodes, [value("x", [1, 3, size, size])], [value("y", [1, 4, size, size])], weights)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "power"))
    onnx.save(model, path)
    return model


def one_op(path: str, op: str, domain: str, shape: Shape) -> onnx.ModelProto:
    """Writes a model of one op of a user's domain."""
    return saved(
        path, [helper.make_node(op, ["x"], ["y"], name="n", domain=domain)], [value("x", shape)], [value("y", shape)], {}, (domain,)
    )


def examples(*names: str) -> None:
    """Copies files of the repository's examples, as a clone has them."""
    for name in names:
        source = ROOT / "examples" / name
        Path("examples", name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, Path("examples", name))
