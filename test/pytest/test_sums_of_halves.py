"""Sums of 16-bit floats are f32, in ops and gradients, on every engine and for every plan: each row of docs/half-sums.md is run.

The reference is the same model with all values in f64.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import populus
from helpers.every_engine import model_of, node

PAGE = Path(__file__).parents[2] / "docs/half-sums.md"
Array = np.ndarray
Made = tuple[list[onnx.NodeProto], dict[str, Array], dict[str, Array]]  # nodes, inputs, constants


def _rows(name: str, **attributes: Any) -> Callable[[Array], Made]:
    """An op on rows of x: [2, n]."""
    return lambda x: ([node(name, "x", "y", **attributes)], {"x": x}, {})


def _reduced(name: str) -> Callable[[Array], Made]:
    return lambda x: ([node(name, "x axes", "y")], {"x": x}, {"axes": np.array([1])})


def _picture(name: str, scales: bool = False, **attributes: Any) -> Callable[[Array], Made]:
    """An op on x as [1, 2, n / 10, 10]; `scales`: with a scale and bias for each channel."""

    def made(x: Array) -> Made:
        extra = {"s": np.array([1.5, 0.5], x.dtype), "b": np.array([0, 1], x.dtype)} if scales else {}
        return [node(name, "x s b" if scales else "x", "y", **attributes)], {"x": x.reshape(1, 2, -1, 10)}, extra

    return made


def _windows(name: str, **attributes: Any) -> Callable[[Array], Made]:
    """A pool of large windows."""

    def made(x: Array) -> Made:
        size = min(x.shape[1] // 10, 50)
        return [node(name, "x", "y", kernel_shape=[size, 10], strides=[size, 10], **attributes)], {"x": x.reshape(1, 2, -1, 10)}, {}

    return made


def _resized(x: Array) -> Made:
    """A picture that shrinks to three rows, each of a weighted mean of many."""
    nodes = [node("Resize", "x - - sizes", "y", mode="linear", antialias=1)]
    return nodes, {"x": x.reshape(1, 2, -1, 10)}, {"sizes": np.array([1, 2, 3, 10])}


def _with_ones(name: str, *outputs: str) -> Callable[[Array], Made]:
    """A norm of rows with a scale."""
    return lambda x: ([node(name, "x s", " ".join(("y", *outputs)))], {"x": x}, {"s": np.ones(x.shape[1], x.dtype)})


def _batch_norm(x: Array) -> Made:
    nodes = [node("Transpose", "x", "t", perm=[1, 0]), node("BatchNormalization", "t s b m v", "y mean var", training_mode=1)]
    return nodes, {"x": x}, {n: np.full(2, f, x.dtype) for n, f in (("s", 1.5), ("b", 1), ("m", 0), ("v", 1))}


def _mean(x: Array) -> Made:
    return [node("Mean", " ".join(["x"] * 50), "y")], {"x": x * x.dtype.type(20)}, {}


def _loss(name: str) -> Callable[[Array], Made]:
    def made(x: Array) -> Made:
        labels = np.arange(x.shape[1]) % 2
        return [node("Transpose", "x", "t", perm=[1, 0]), node(name, "t labels weights", "y")], {"x": x}, {
            "labels": labels, "weights": np.array([1, 2], x.dtype)}  # fmt: skip

    return made


def _gather(name: str) -> Callable[[Array], Made]:
    def made(x: Array) -> Made:
        count = 3 * x.shape[1]
        i = np.zeros((2, count) if name == "GatherElements" else count, np.int64)
        return [node(name, "x i", "y", axis=1)], {"x": x[:, :10]}, {"i": i}

    return made


def _scatter(x: Array) -> Made:
    nodes = [node("Slice", "x zero ten one", "few"), node("Transpose", "few", "t", perm=[1, 0]), node("Transpose", "x", "u", perm=[1, 0])]
    nodes.append(node("ScatterND", "t i u", "y", reduction="add"))
    one = {"zero": np.array([0]), "ten": np.array([10]), "one": np.array([1])}
    return nodes, {"x": x / x.dtype.type(1000)}, {"i": np.zeros((x.shape[1], 1), np.int64), **one}


def _pad(x: Array) -> Made:
    nodes = [node("Slice", "x zero one one", "few"), node("Squeeze", "few", "v"), node("Pad", "c pads v", "y")]
    return nodes, {"x": x[:1]}, {"c": x[:, :5], "pads": np.array([0, x.shape[1], 0, 0]), "zero": np.array([0]), "one": np.array([1])}


def _product(x: Array) -> Made:
    return [node("MatMul", "x w", "y")], {"x": x}, {"w": np.ones((x.shape[1], 3), x.dtype) / x.dtype.type(64)}


def _conv(x: Array) -> Made:
    return [node("Conv", "x w", "y")], {"x": x[None]}, {"w": np.ones((3, 2, 9), x.dtype)}


def _expand(x: Array) -> Made:
    return [node("Expand", "x to", "y")], {"x": x[:, :1]}, {"to": np.array(x.shape)}


OPS: dict[str, Callable[[Array], Made]] = {
    "AveragePool": _windows("AveragePool"),
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "CumSum": lambda x: ([node("CumSum", "x axis", "y")], {"x": x}, {"axis": np.array(1)}),
    "Expand": _expand,
    "Gather": _gather("Gather"),
    "GatherElements": _gather("GatherElements"),
    "GlobalAveragePool": _picture("GlobalAveragePool"),
    "GlobalLpPool": _picture("GlobalLpPool"),
    "GroupNormalization": _picture("GroupNormalization", scales=True, num_groups=1),
    "InstanceNormalization": _picture("InstanceNormalization", scales=True),
    "LRN": _picture("LRN", size=3, alpha=0.5, bias=2.0),
    "LayerNormalization": _with_ones("LayerNormalization"),
    "LogSoftmax": _rows("LogSoftmax"),
    "LpNormalization": _rows("LpNormalization"),
    "LpPool": _windows("LpPool", p=2),
    "MatMul": _product,
    "Mean": _mean,
    "MeanVarianceNormalization": _rows("MeanVarianceNormalization", axes=[1]),
    "NegativeLogLikelihoodLoss": _loss("NegativeLogLikelihoodLoss"),
    "Pad": _pad,
    "RMSNormalization": _with_ones("RMSNormalization"),
    "ReduceL1": _reduced("ReduceL1"),
    "ReduceL2": _reduced("ReduceL2"),
    "ReduceLogSum": lambda x: ([node("ReduceLogSum", "x axes", "y")], {"x": abs(x)}, {"axes": np.array([1])}),
    "ReduceLogSumExp": _reduced("ReduceLogSumExp"),
    "ReduceMax": lambda x: ([node("ReduceMax", "x axes", "y")], {"x": np.ones_like(x)}, {"axes": np.array([1])}),
    "ReduceMean": _reduced("ReduceMean"),
    "ReduceMin": lambda x: ([node("ReduceMin", "x axes", "y")], {"x": np.ones_like(x)}, {"axes": np.array([1])}),
    "ReduceSum": _reduced("ReduceSum"),
    "ReduceSumSquare": _reduced("ReduceSumSquare"),
    "Resize": _resized,
    "ScatterND": _scatter,
    "Softmax": _rows("Softmax"),
    "SoftmaxCrossEntropyLoss": _loss("SoftmaxCrossEntropyLoss"),
}
PLANS = [("numpy", 1), ("numpy", 64), ("native", 4), ("strict", 16)]  # the last runs vertex by vertex, so on short rows only
VALUES = [(1, 0, 100), (10, 0, 770), (100, 20, 20_000), (1, 20, 100_000)]  # deviation, mean, elements of a row


def test_the_page_and_the_cases_have_the_same_ops():
    rows = re.findall(r"^\| ([A-Z].*?) \|", PAGE.read_text(), re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == OPS.keys()


def ran(name: str, x: Array, **options: Any) -> tuple[Array, Array]:
    """The op's result, and the gradient of x for a cotangent that is 1 or 0.5."""
    nodes, inputs, constants = OPS[name](x)
    model = model_of(nodes, inputs, constants, opset=23)
    program = populus.vjp(model, ["x"], **options)
    shape = program.outputs["y"].get_shape()
    g = np.random.default_rng(1).choice([0.5, 1], shape).astype(x.dtype)
    found, gradients = program.run(inputs, {"y": g})
    return found["y"], gradients["x"]


# The least that counts as large in a gradient: slopes of a result that is 1 nearly cancel.
CANCELS = {"Softmax": 0.5}


def near(found: Array, expected: Array, what: str, least: float = 0) -> None:
    """Within a few roundings of a half of the largest; what no half holds is infinite."""
    assert found.dtype == np.float16
    found = found.astype("f8")
    held = abs(expected) < 65_000
    assert (np.isinf(found) | (abs(found) > 64_000))[~held].all(), what
    largest = abs(expected[held]).max(initial=least)
    np.testing.assert_allclose(found[held], expected[held], rtol=4e-3, atol=4e-3 * largest + 6e-8, err_msg=what)


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_a_half_is_summed_as_a_float_by_every_engine_and_plan(name, values):
    deviation, mean, n = values
    x = (np.random.default_rng(n).normal(size=(2, n)) * deviation + mean).astype("f2")
    y, dx = ran(name, x.astype("f8"), engine="numpy", tiles=1)
    for engine, tiles in PLANS[: 3 if n > 1000 else 4]:
        found, gradient = ran(name, x, engine=engine, tiles=tiles)
        near(found, y, f"{name} on {engine}, {tiles} tiles")
        near(gradient, dx, f"the gradient of {name} on {engine}, {tiles} tiles", CANCELS.get(name, 0))


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_a_layer_norms_mean_and_inverse_deviation_are_floats(kind):
    x = (np.random.default_rng(0).normal(size=(3, 70_000)) * 100 + 20).astype(kind)
    nodes, inputs, constants = [node("LayerNormalization", "x s", "y mean inverse")], {"x": x}, {"s": np.ones(70_000, kind)}
    wide = x.astype("f8")
    for engine in ("numpy", "native"):
        found = populus.compile(model_of(nodes, inputs, constants, "y mean inverse"), engine=engine).run(inputs)
        assert [found[n].dtype for n in ("y", "mean", "inverse")] == [np.dtype(kind), np.float32, np.float32]
        np.testing.assert_allclose(found["mean"], wide.mean(1, keepdims=True), rtol=1e-4)
        np.testing.assert_allclose(found["inverse"], 1 / wide.std(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_a_large_mean_leaves_a_variance(kind):
    x = (np.arange(8).reshape(2, 4) + 1000).astype(kind)
    model = model_of([node("MeanVarianceNormalization", "x", "y", axes=[1])], {"x": x})
    expected = (x - x.mean(1, keepdims=True)) / np.arange(4).std()
    for engine in ("numpy", "native"):
        np.testing.assert_allclose(populus.compile(model, engine=engine).run({"x": x})["y"], expected, rtol=1e-3)
