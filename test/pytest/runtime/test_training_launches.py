"""Launches of training steps on the native engine: gradients of weights read contiguous rows; nothing runs on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

import populus
from populus.runtime.engine.native.kernels import products
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.session import graph_of

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


@pytest.mark.parametrize("sizes", [(64, 1024, 496), (64, 992, 512), (72, 1024, 512)], ids=["few columns", "small", "no squares"])
def test_a_gradient_of_weights_is_read_in_place_where_a_copy_would_not_pay(sizes: tuple[int, int, int]):
    found, expected, kinds = gradient(*sizes)
    assert kinds == ["pack", "blocks"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
