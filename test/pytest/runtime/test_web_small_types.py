"""Weights of 8 and fewer bits, and of f16, in programs built for wasm32: their bytes in the file, and their results in Node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import populus
from helpers import web
from helpers.built_nets import compiled, model, normal
from helpers.web import Run, alike, needs_node
from populus.program.building import frozen_program
from populus.runtime.engine.native.frozen.loaded_tables import sides_of


def integers():
    """A product of 8-bit integers with weights that are constant."""
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "zero"], ["y"], name="product")]
    weights = {"w": np.random.default_rng(3).integers(-128, 128, (64, 40)).astype(np.int8), "zero": np.array(7, np.uint8)}
    return model(nodes, [("x", [9, 64], TensorProto.UINT8)], [("y", [9, 40], TensorProto.INT32)], weights)


def test_weights_of_8_bits_are_shipped_as_bytes():
    """The dot instruction multiplies 16 bits, to which a load widens; the weights once had them in the file."""
    form = frozen_program(compiled(integers()), "wasm32", {}).form
    assert max(c.nbytes for c in form.constants) == 64 * 40 + 4 * 40  # and for each column where its sum begins


def bytes_by_points():
    """A 3x3 convolution of 8-bit integers, whose sums Winograd's algorithm computes, with a formula on them."""
    rng = np.random.default_rng(4)
    weights = {"w": rng.integers(-128, 128, (32, 32, 3, 3)).astype(np.int8), "s": np.float32(0.01), "z": np.uint8(9), "o": np.int8(0)}
    node = helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "o", "s", "z"], ["y"], pads=[1, 1, 1, 1])
    return model([node], [("x", [1, 32, 11, 10], TensorProto.UINT8)], [("y", [1, 32, 11, 10], TensorProto.UINT8)], weights)


def test_weights_of_8_bits_that_loading_transforms_are_shipped_as_bytes():
    """Winograd's have 16 numbers of 16 bits for 9 of 8, and so had the file."""
    form = frozen_program(compiled(bytes_by_points()), "wasm32", {}).form
    assert form.raw == 1
    assert form.constants[-1].nbytes == 32 * 32 * 9 and form.packed == 32 * 32 * 16 * 2


def largest_bytes():
    """The largest of each window of bytes, which a table of 9 places for each reads."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2])
    return model([node], [("x", [1, 32, 41, 31], TensorProto.UINT8)], [("y", [1, 32, 20, 15], TensorProto.UINT8)])


def test_tables_of_offsets_are_made_when_a_page_loads():
    """They were a quarter of the file of squeezenet in 8 bits."""
    form = frozen_program(compiled(largest_bytes()), "wasm32", {}).form
    assert form.packed >= 8 * 9 * 20 * 15 > 8 * sum(c.nbytes for c in form.constants)


def test_a_table_has_the_counts_and_steps_of_its_sides():
    first = 5 + np.add.outer(np.arange(4) * 100, np.array([0, 7, 14])).reshape(-1)
    assert sides_of(first) == [(3, 7), (4, 100)]
    assert sides_of(np.arange(12) * -8) == [(12, -8)]
    changed = first.copy()
    changed[-1] += 1
    assert sides_of(changed) is None


def halves():
    """A product of f16 whose weights are stored as f16, and a conversion."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Cast", ["p"], ["y"], to=TensorProto.FLOAT)]
    return model(nodes, [("x", [5, 48], TensorProto.FLOAT16)], [("y", [5, 24])], {"w": normal(48, 24).astype(np.float16)})


def few_bits():
    """A product with weights of 4 bits, in blocks of 32."""
    rng = np.random.default_rng(4)
    weights = {"w": rng.integers(0, 256, (64, 4, 16)).astype(np.uint8), "s": np.abs(normal(64, 4)).reshape(-1)}
    sizes = {"K": 128, "N": 64, "bits": 4, "block_size": 32}
    proto = model(
        [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes)],
        [("x", [3, 128])],
        [("y", [3, 64])],
        weights,
    )
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


@needs_node
@pytest.mark.parametrize("make", [integers, bytes_by_points, largest_bytes, halves, few_bits])
def test_small_types_give_the_results_of_the_native_engine(make, tmp_path):
    program = compiled(make())
    inputs = program.signature.random()
    populus.build(program, tmp_path, cpu="wasm32", relaxed=True)
    (came,) = web.ran([Run(tmp_path, [inputs])])
    alike(came, program.run(inputs))
    if make is integers:
        assert b"\xfd\xba\x01" in (tmp_path / "model.wasm").read_bytes(), "no i32x4.dot_i16x8_s"
