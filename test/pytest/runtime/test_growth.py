"""Programs, tables of steps and compiled kernels do not grow with channels, planes, rows or threads, for any way to compute a product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.session import graph_of

Counts = tuple[int, int, int, int]  # ops, steps, words, kernels


def counts(nodes: list[Any], x: tuple[int, ...], dtype: Any, weights: dict[str, Any], threads: int = 2) -> Counts:
    """Counts the ops of a model's tile program, and the steps, words and kernels of its native program."""
    type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    out = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "grows", [helper.make_tensor_value_info("x", type, x)], [out], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = graph_of(populus.compile(model, target="host").module("poplar"))
    program = NativeProgram(module, threads=threads)
    assert not program.fallbacks
    kernels = {launch.kernel for launch in program.table.launches.values()}
    return sum(1 for _ in module.walk()), len(program.table), len(program.table.image.words), len(kernels)


def convolution(k: int, dtype: Any = np.float32, grouped: bool = False) -> Callable[[int], Counts]:
    def at(n: int) -> Counts:
        node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[k // 2] * 4, group=32 * n if grouped else 1)
        return counts([node], (1, 32 * n, 28, 28), dtype, {"w": np.ones((32 * n, 1 if grouped else 32 * n, k, k), dtype)})

    return at


def product(dtype: Any) -> Callable[[int], Counts]:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return lambda n: counts([node], (64 * n, 128 * n), dtype, {"w": np.ones((128 * n, 128 * n), dtype)})


def of_bytes(n: int) -> Counts:
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    return counts([node], (64 * n, 128 * n), np.uint8, {"w": np.ones((128 * n, 128 * n), np.int8)})


CASES: dict[str, Callable[[int], Counts]] = {
    "1x1": convolution(1),
    "3x3": convolution(3),
    "depthwise": convolution(3, grouped=True),
    "1x1 of halves": convolution(1, np.float16),
    "product": product(np.float32),
    "product of halves": product(np.float16),
    "product of bytes": of_bytes,
}


@pytest.mark.parametrize("name", CASES)
def test_a_program_does_not_grow_with_sizes(name: str) -> None:
    """Some sizes fill all blocks and others have a rest, which is one launch more and never a launch for each block."""
    small, large = (CASES[name](n) for n in (1, 4))
    for few, many in zip(small, large):
        assert many <= 2 * few, (small, large)


def test_a_program_does_not_grow_with_threads() -> None:
    w = np.ones((64, 64, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    two, some, many = (counts([node], (1, 64, 56, 56), np.float32, {"w": w}, threads) for threads in (2, 16, 64))
    assert many == some and many <= tuple(2 * n for n in two)
