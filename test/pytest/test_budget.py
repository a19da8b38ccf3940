"""Sizes that no machine has are refused in one line, before anything is planned or computed for them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

import populus
from populus.dialects.support.budget import LARGEST_TENSOR
from populus.dialects.support.diagnostics import PopulusError

V = helper.make_tensor_value_info
X = V("x", T.FLOAT, [1, 1, 2, 2])
PAIR = helper.make_tensor("w", T.FLOAT, [2], [1, 2])
HUGE = 1 << 40


def ints(name, *values):
    return helper.make_tensor(name, T.INT64, [len(values)], values)


def scalar(name, value, element=T.INT64):
    return helper.make_tensor(name, element, [], [value])


def model(op, names, *initializers, inputs=(X,), opset=21, **attributes):
    node = helper.make_node(op, names, ["y"], "node", **attributes)
    graph = helper.make_graph([node], "g", list(inputs), [V("y", T.FLOAT, None)], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def stated(dims, data):
    """An initializer of these dimensions and these bytes, whether they fit or not."""
    tensor = T(name="w", data_type=T.FLOAT, raw_data=data)
    tensor.dims[:] = dims
    return tensor


ELEMENTS = "elements; a tensor has at most 2\\^33"
MADE = "elements; at most 2\\^28 are made while compiling"
MODELS = {
    "an input": (model("Neg", ["x"], inputs=[V("x", T.FLOAT, [1 << 62])]), f"input 'x' is of shape .*{ELEMENTS}"),
    "a product that wraps to 0": (
        model("Size", ["x"], inputs=[V("x", T.FLOAT, [1 << 32, 1 << 32])]),
        f"input 'x' is of shape .* 18446744073709551616 {ELEMENTS}",
    ),
    "pads": (model("Pad", ["x", "p"], ints("p", 0, 0, 0, HUGE, 0, 0, 0, 0)), f"'node': Pad-21: .*{ELEMENTS}"),
    "pads of a window": (model("MaxPool", ["x"], kernel_shape=[1, 1], pads=[HUGE, 0, 0, 0]), f"'node': MaxPool-12: .*{ELEMENTS}"),
    "Expand": (model("Expand", ["x", "s"], ints("s", HUGE, 1, 2, 2)), f"'node': Expand-13: .*{ELEMENTS}"),
    "Expand of a constant": (model("Expand", ["w", "s"], PAIR, ints("s", HUGE, 2), inputs=[]), f"'node': Expand-13: .*{ELEMENTS}"),
    "Tile": (model("Tile", ["x", "s"], ints("s", HUGE, 1, 1, 1)), f"'node': Tile-13: .*{ELEMENTS}"),
    "Tile of a constant": (model("Tile", ["w", "s"], PAIR, ints("s", HUGE), inputs=[]), f"'node': Tile-13: .*{ELEMENTS}"),
    "ConstantOfShape": (model("ConstantOfShape", ["s"], ints("s", (1 << 63) - 1, 4), inputs=[]), f"'node': ConstantOfShape: .*{ELEMENTS}"),
    "Range": (
        model("Range", ["a", "b", "c"], scalar("a", 0), scalar("b", HUGE), scalar("c", 1), inputs=[]),
        f"'node': Range-11: .*{ELEMENTS}",
    ),
    "a Range whose length wraps": (
        model("Range", ["a", "b", "c"], scalar("a", -(1 << 62)), scalar("b", 1 << 62), scalar("c", 1), inputs=[]),
        f"'node': Range-11: the range has 9223372036854775808 {MADE}",
    ),
    "a Range without end": (
        model("Range", ["a", "b", "c"], *(scalar(n, v, T.FLOAT) for n, v in zip("abc", (0, np.inf, 1))), inputs=[]),
        "'node': Range-11: from 0.0 to inf by 1.0 there is no number of elements",
    ),
    "Resize to sizes": (model("Resize", ["x", "", "", "s"], ints("s", 1, 1, HUGE, 2)), f"'node': Resize-19: .*{ELEMENTS}"),
    "Resize by scales": (
        model("Resize", ["x", "", "s"], helper.make_tensor("s", T.FLOAT, [4], [1, 1, 1e30, 1])),
        f"'node': Resize-19: a dimension of its result .*{MADE}",
    ),
    "Resize by infinity": (
        model("Resize", ["x", "", "s"], helper.make_tensor("s", T.FLOAT, [4], [1, 1, np.inf, 1])),
        "'node': Resize-19: a scale is inf; numbers above 0 are expected",
    ),
    "Upsample": (
        model("Upsample", ["x", "s"], helper.make_tensor("s", T.FLOAT, [4], [1, 1, 1e12, 1]), opset=9),
        f"'node': Upsample-9: a dimension of its result .*{MADE}",
    ),
    "EyeLike": (model("EyeLike", ["x"], inputs=[V("x", T.FLOAT, [1 << 16, 1 << 16])]), f"'node': EyeLike-9: its result .*{MADE}"),
    "a mask": (model("Trilu", ["x"], inputs=[V("x", T.FLOAT, [1 << 16, 1 << 16])]), f"'node': Trilu-14: its mask .*{MADE}"),
    "an outer product": (
        model("Mul", ["x", "z"], inputs=[V("x", T.FLOAT, [1 << 24, 1]), V("z", T.FLOAT, [1 << 24])]),
        f"'node': Mul-14: .*{ELEMENTS}",
    ),
    "an initializer beyond its bytes": (
        model("Add", ["x", "w"], stated([1 << 62, 8], b"12345678")),
        "'node': Add: 'w' is float32 of shape .* 147573952589676412928 bytes; the file has 8 bytes for it",
    ),
    "an initializer of no elements": (model("Add", ["x", "w"], stated([1 << 62, 0, 8], b"")), f"'node': Add: 'w' is of shape .*{ELEMENTS}"),
}


@pytest.fixture(autouse=True, scope="module")
def compiler():
    """All of it imported, which takes memory too."""
    populus.compile(model("Neg", ["x"]), tiles=4, engine="numpy")


@pytest.mark.parametrize("what", MODELS)
def test_an_absurd_size_is_refused_in_one_line_and_takes_no_memory(what):
    proto, said = MODELS[what]
    tracemalloc.start()
    try:
        with pytest.raises(PopulusError, match=said) as error:
            populus.compile(proto, tiles=4, engine="numpy")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("op", ["Tile", "Expand"])
def test_a_large_constant_that_few_numbers_make_is_not_computed_while_compiling(op):
    sizes = ints("s", 1 << 24) if op == "Tile" else ints("s", 1 << 24, 2)
    tracemalloc.start()
    try:
        program = populus.compile(model(op, ["w", "s"], PAIR, sizes, inputs=[]), level="popops")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert program.signature.outputs["y"].element_count() == 1 << 25


def test_a_bound_dimension_counts_and_the_largest_tensor_is_within():
    open_ = model("Neg", ["x"], inputs=[V("x", T.FLOAT, ["n"])])
    with pytest.raises(PopulusError, match=ELEMENTS):
        populus.compile(open_, dims={"n": LARGEST_TENSOR + 1})
    program = populus.compile(open_, dims={"n": LARGEST_TENSOR}, level="popops")
    assert program.signature.inputs["x"].get_shape() == (LARGEST_TENSOR,)


def test_a_model_without_outputs_is_refused_in_one_line():
    proto = model("Neg", ["x"])
    del proto.graph.output[:]
    with pytest.raises(PopulusError, match=r"^g: the model has no outputs, .*; name one at least in graph\.output$"):
        populus.compile(proto)
