"""Launches of training steps on the native engine: gradients of weights read contiguous rows; nothing runs on NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import populus
from populus.runtime.engine.native.kernels import products
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.session import graph_of
from populus.training.session import TrainingSession

Array = NDArray[Any]


def kernels(native: NativeProgram) -> list[str]:
    """The kinds of the launches of a program, in order."""
    return [native.table.launches[n].kernel.key.split()[0] for n in sorted(native.table.launches)]


def gradient(samples: int, inputs: int, outputs: int, **how: Any) -> tuple[Array, Array, list[str]]:
    """Computes the gradient of a linear layer's weights. Gives it, what is expected, and the kinds of launches."""
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((samples, inputs)).astype("f4"), "dy": rng.standard_normal((samples, outputs)).astype("f4")}
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["t", "dy"], ["dw"])]
    infos = [helper.make_tensor_value_info(name, 1, a.shape) for name, a in given.items()]
    graph = helper.make_graph(nodes, "gradient", infos, [helper.make_empty_tensor_value_info("dw")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    native = NativeProgram(graph_of(populus.compile(model, target="host").module("poplar")), **how)
    (found,) = native.run(given).values()
    return found, given["x"].T.astype("f8") @ given["dy"], kernels(native)


def test_a_gradient_of_weights_reads_a_copy_with_contiguous_rows_where_many_panels_read_it(monkeypatch: pytest.MonkeyPatch):
    found, expected, kinds = gradient(64, 1024, 512)
    assert kinds == ["copy", "pack", "blocks"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    two, _, _ = gradient(64, 1024, 512, threads=2)
    np.testing.assert_array_equal(two, found)
    monkeypatch.setattr(products, "FAR", 1 << 40)
    in_place, _, kinds = gradient(64, 1024, 512)
    assert kinds == ["pack", "blocks"]
    np.testing.assert_array_equal(found, in_place)


@pytest.mark.parametrize("sizes", [(64, 1024, 496), (64, 480, 512), (72, 1024, 512)], ids=["few columns", "small", "no squares"])
def test_a_gradient_of_weights_is_read_in_place_where_a_copy_would_not_pay(sizes: tuple[int, int, int]):
    found, expected, kinds = gradient(*sizes)
    assert kinds == ["pack", "blocks"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def layers() -> onnx.ModelProto:
    """Builds a convolution, a pool and a linear layer."""
    rng = np.random.default_rng(0)
    weights = {"w": (4, 2, 3, 3), "b": (4,), "l": (64, 5), "c": (5,)}
    made = [numpy_helper.from_array(0.1 * rng.standard_normal(shape).astype("f4"), name) for name, shape in weights.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["p"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MaxPool", ["q"], ["r"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["r"], ["s"]),
        helper.make_node("MatMul", ["s", "l"], ["t"]),
        helper.make_node("Add", ["t", "c"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", [6, 2, 8, 8]), ("y", [6, 5])))
    graph = helper.make_graph(nodes, "layers", [x], [y], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_step_runs_nothing_on_numpy_and_moves_no_weight(optimizer: str):
    rng = np.random.default_rng(0)
    session = TrainingSession(layers(), loss="cross_entropy", optimizer=optimizer, hyper={"lr": 0.01}, engine="native")
    x, labels = rng.standard_normal((6, 2, 8, 8)).astype("f4"), rng.integers(0, 5, 6, np.int32)
    first = session.weights
    losses = [session.step({"x": x}, labels) for _ in range(3)]
    assert losses[2] < losses[0]
    assert not any(np.array_equal(first[n], a) for n, a in session.weights.items())  # which were copies
    found = session._programs._kept  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    pairs, native = found.pairs, found.session._program  # pyright: ignore[reportPrivateUsage]
    assert isinstance(native, NativeProgram)
    assert not native.fallbacks
    # Python feeds the batch and the scalars, and fetches what a step returns: no weight, no state, no formula.
    bytes = sum(int(np.prod(s)) * t.itemsize for n, (s, t) in native.inputs.items() if n not in pairs)
    assert bytes <= x.nbytes + labels.nbytes + 32
    calls = [run for run, _ in native.body.calls()]
    stops = sum(not isinstance(run, Launch) for run in calls)
    assert stops == len(native.inputs) + len(native.outputs) - 2 * len(pairs)


@pytest.mark.parametrize("level", ["popops", "poplar"])
def test_weights_that_are_changed_where_they_are_read_are_those_of_the_next_step(level: str):
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((6, 2, 8, 8)).astype("f4"), rng.integers(0, 5, 6, np.int32)
    new = rng.standard_normal((64, 5)).astype("f4")

    def second(change: Callable[[TrainingSession], object]) -> float:
        session = TrainingSession(layers(), loss="cross_entropy", optimizer="sgd", hyper={"lr": 0.01}, level=level)
        session.step({"x": x}, labels)
        change(session)
        return session.step({"x": x}, labels)

    expected = second(lambda session: setattr(session, "weights", {**session.weights, "l": new}))
    assert expected != second(lambda _: None)
    assert second(lambda session: session.weights.update(l=new)) == expected
    assert second(lambda session: np.copyto(session.weights["l"], new)) == expected


POOLS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one dimension": ((2, 3, 12), {"kernel_shape": [3], "strides": [3]}),
    "two": ((2, 3, 8, 9), {"kernel_shape": [2, 3], "strides": [2, 3]}),
    "three": ((1, 2, 4, 2, 6), {"kernel_shape": [2, 1, 3], "strides": [2, 1, 3]}),
    "a rest": ((1, 2, 7, 9), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "overlapping": ((1, 2, 8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "gaps": ((1, 2, 8, 8), {"kernel_shape": [2, 2], "strides": [4, 4]}),
}


@pytest.mark.parametrize("name", POOLS)
def test_the_gradient_of_a_maximum_goes_to_the_first_of_equals_and_is_native(name: str):
    shape, how = POOLS[name]
    rng = np.random.default_rng(0)
    x = np.maximum(rng.integers(-2, 3, shape), 0).astype("f4")  # many equals, as a relu leaves
    infos = [helper.make_tensor_value_info("x", 1, shape)], [helper.make_tensor_value_info("y", 1, None)]
    model = helper.make_model(
        helper.make_graph([helper.make_node("MaxPool", ["x"], ["y"], **how)], "pool", *infos),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    kernel, strides = how["kernel_shape"], how["strides"]
    pads = how.get("pads", [0] * 2 * len(kernel))[: len(kernel)]
    windows = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(shape[2:], pads, kernel, strides)]
    dy = rng.standard_normal((*shape[:2], *windows)).astype("f4")
    expected = np.zeros(shape, "f8")
    for at in np.ndindex(*dy.shape):
        places = [tuple(o * s - p + k for o, s, p, k in zip(at[2:], strides, pads, tap)) for tap in np.ndindex(*kernel)]
        inside = [place for place in places if all(0 <= i < n for i, n in zip(place, shape[2:]))]
        first = max(inside, key=lambda place: x[at[:2] + place])  # `max` gives the first of equals
        expected[at[:2] + first] += dy[at]
    vjp = populus.vjp(model, ["x"], engine="native", target="host")
    _, found = vjp.run({"x": x}, {"y": dy})
    np.testing.assert_allclose(found["x"], expected, rtol=1e-6, atol=1e-6)
    assert not vjp.program.session.fallbacks
