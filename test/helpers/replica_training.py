"""A small net with batch normalisation, trained by several replicas; also a program that `mpiexec` runs.

mpiexec -n 2 python test/helpers/replica_training.py '{"replicas": 4, "optimizer": "adam"}' '{..}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import populus
from populus.runtime.ranks import digest_of, world

BATCH, STEPS, FEATURES, HIDDEN, CLASSES = 16, 20, 5, 7, 3


def net(norm=False, dtype=np.float32):
    """Gives a model of two dense layers, with a batch normalisation between them if asked for."""
    g = np.random.default_rng(1)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = {"w0": g.normal(size=(FEATURES, HIDDEN)) / 2, "w1": g.normal(size=(HIDDEN, CLASSES)) / 2}
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h0"])]
    if norm:  # without the bias before it, whose gradient is zero but for rounding, which Adam would blow up
        weights |= {"scale": np.ones(HIDDEN), "shift": np.zeros(HIDDEN), "mean": np.zeros(HIDDEN), "variance": np.ones(HIDDEN)}
        nodes.append(helper.make_node("BatchNormalization", ["h0", "scale", "shift", "mean", "variance"], ["h2"], momentum=0.9))
    else:
        weights["b0"] = np.zeros(HIDDEN)
        nodes.append(helper.make_node("Add", ["h0", "b0"], ["h1"]))
    nodes += [helper.make_node("Tanh", ["h2" if norm else "h1"], ["h3"]), helper.make_node("MatMul", ["h3", "w1"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", element, ["n", FEATURES])],
        [helper.make_tensor_value_info("y", element, ["n", CLASSES])],
        [numpy_helper.from_array(a.astype(dtype), name) for name, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def deep(layers=4):
    """Gives a model of dense layers with residuals, one of which skips two layers."""
    g = np.random.default_rng(5)
    nodes = [helper.make_node("MatMul", ["x", "first"], ["h0"], name="first")]
    weights = {"first": g.normal(size=(FEATURES, HIDDEN)) / 2, "last": g.normal(size=(HIDDEN, CLASSES)) / 2}
    for i in range(layers):
        weights[f"w{i}"] = g.normal(size=(HIDDEN, HIDDEN)) / 4
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"a{i}"], name=f"product{i}"))
        nodes.append(helper.make_node("Tanh", [f"a{i}"], [f"t{i}"], name=f"tanh{i}"))
        nodes.append(helper.make_node("Add", [f"t{i}", f"h{max(i - 2, 0)}"], [f"h{i + 1}"], name=f"add{i}"))
    nodes.append(helper.make_node("MatMul", [f"h{layers}", "last"], ["y"], name="last"))
    inputs = [helper.make_tensor_value_info("x", 1, ["n", FEATURES])]
    outputs = [helper.make_tensor_value_info("y", 1, ["n", CLASSES])]
    constants = [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()]
    return helper.make_model(helper.make_graph(nodes, "deep", inputs, outputs, constants), opset_imports=[helper.make_opsetid("", 17)])


def data(count=4 * BATCH, dtype=np.float32):
    """Gives samples and their classes."""
    g = np.random.default_rng(2)
    x = g.normal(size=(count, FEATURES)).astype(dtype)
    return {"x": x, "labels": (x @ g.normal(size=(FEATURES, CLASSES))).argmax(1)}


def trained(norm=False, steps=STEPS, dtype="float32", layers=0, **options):
    """Trains for so many steps, and gives the session. `layers`: those of a deep net, instead of the small one."""
    model = deep(layers) if layers else net(norm, np.dtype(dtype))
    session = populus.TrainingSession(model, batch_statistics=norm, target="host", tiles=2, engine="numpy", **{"batch": BATCH, **options})
    all = data(STEPS * BATCH, np.dtype(dtype))
    for i in range(steps):
        rows = np.arange(i * session.samples_per_step, (i + 1) * session.samples_per_step) % len(all["x"])
        session.step({"x": all["x"][rows]}, all["labels"][rows].astype(np.int32))
    return session


def digest(session):
    """Gives the bits of a session's weights, states and losses, as a short text."""
    return digest_of({**session.weights, **session.state, "losses": np.array(session.losses)})


def main():
    """Trains with each argument's options, and prints the digests on rank 0."""
    found = [digest(trained(**json.loads(options))) for options in sys.argv[1:]]
    if world().rank == 0:
        print(*found)


if __name__ == "__main__":
    main()
