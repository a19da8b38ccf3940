"""Small files that ask for much: each runs at once, or is refused in one line. None takes seconds, gigabytes or a signal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

import populus
from helpers.effort import effort
from populus.dialects.support.diagnostics import PopulusError

LARGE, ROW = 2**62, 2**31
PICTURE = [1, 3, 8, 8]


def model(
    op: str, shapes: Sequence[Sequence[int]], constants: Sequence[NDArray[Any]] = (), opset: int = 20, **attributes: Any
) -> ModelProto:
    """Makes a model of one node, whose first inputs are f32 of these shapes and whose last are constants."""
    names = [f"x{i}" for i in range(len(shapes))]
    held = [numpy_helper.from_array(array, f"c{i}") for i, array in enumerate(constants)]
    node = helper.make_node(op, [*names, *(c.name for c in held)], ["y"], "node", **attributes)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes)]
    graph = helper.make_graph([node], "hostile", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def without(place: int, hostile: ModelProto) -> ModelProto:
    """Leaves out an input before those at `place`."""
    hostile.graph.node[0].input.insert(place, "")
    return hostile


W = np.ones((3, 3, 3, 3), np.float32)
RUN: dict[str, tuple[ModelProto, tuple[int, ...]]] = {
    "an empty tensor with a long row": (model("Relu", [[0, 2**50]]), (0, 2**50)),
    "the softmax of an empty tensor": (model("Softmax", [[0, ROW]]), (0, ROW)),
    "a norm over more channels than there are": (model("LRN", [PICTURE], size=ROW - 1), tuple(PICTURE)),
    "a diagonal far above": (model("Trilu", [[4, 4]], [np.array(-(2**63), np.int64)]), (4, 4)),
    "a diagonal far outside": (model("EyeLike", [[4, 4]], k=LARGE), (4, 4)),
    "a resize to nothing": (
        model("Resize", [[1, 1, 4, 4]], [np.zeros(0, np.float32), np.array([1, 1, 0.1, 1], np.float32)], mode="linear"),
        (1, 1, 0, 4),
    ),
    "a block that is longer than its row": (
        model("QuantizeLinear", [[2, 3]], [np.ones((2, 1), np.float32)], 21, axis=1, block_size=LARGE),
        (2, 3),
    ),
}
REFUSED: dict[str, tuple[ModelProto, str]] = {
    "an empty tensor that no array can be": (model("Relu", [[0, LARGE]]), "is empty, of shape .0, 4611686018427387904."),
    "a norm from a dimension that is not there": (
        model("LayerNormalization", [[2, 3, 4], [4]], axis=ROW),
        "'node': LayerNormalization-17: axis is 2147483648; x has 3 dimensions",
    ),
    "65 dimensions": (model("Relu", [[1] * 65]), "has 65 dimensions; a tensor has at most 48"),
    "5,000 dimensions": (model("Add", [[1] * 5000, [1]]), "has 5000 dimensions; a tensor has at most 48"),
    "a reshape to 71 dimensions": (model("Reshape", [[4]], [ints(*[1] * 70, 4)]), "has 71 dimensions"),
    "an expansion to 71 dimensions": (model("Expand", [[4]], [ints(*[1] * 70, 4)]), "has 71 dimensions"),
    "dilations of 2^31": (model("Conv", [PICTURE], [W], dilations=[ROW, ROW]), "'node': Conv-11"),
    "strides of 2^62": (model("Conv", [PICTURE], [W], strides=[LARGE, 1]), r"strides is \[4611686018427387904, 1\]; at most 2147483647"),
    "strides of a window of 2^62": (
        model("MaxPool", [PICTURE], kernel_shape=[2, 2], strides=[LARGE] * 2),
        "strides is .*; at most 2147483647",
    ),
    "a transform of 2^31 samples": (
        model("DFT", [[1, 8, 1]], [np.array(ROW)]),
        "4611686018427387904 cosines; at most 268435456, 2.28",
    ),
    "frames longer than their signal": (
        without(2, model("STFT", [[1, 64, 1]], [np.array(2**40), np.array(ROW)])),
        "frame_length is 2147483648",
    ),
    "pads of 2^31": (model("Conv", [PICTURE], [W], pads=[ROW] * 4), "a tensor has at most"),
    "a window of 2^31": (model("MaxPool", [PICTURE], kernel_shape=[ROW - 1] * 2, pads=[ROW // 2] * 4), "a window has 2147483647 elements"),
    "leading dimensions below none": (model("GatherND", [[2, 3, 4]], [ints([1], [0])], batch_dims=-3), "batch_dims is -3; at least 0"),
    "leading dimensions of -2^63": (
        model("GatherND", [[2, 3]], [ints([1], [0])], batch_dims=-(2**63)),
        "batch_dims is -9223372036854775808",
    ),
    "pads that cut off more than there is": (model("Pad", [[4]], [ints(-LARGE, LARGE)]), "cut off more than the 4 elements"),
    "a wrap of nothing": (model("Pad", [[4]], [ints(-4, 1)], mode="wrap"), "leave nothing to repeat of the 4 elements"),
    "a wrap to 2^32 elements": (model("Pad", [[4]], [ints(ROW, ROW)], mode="wrap"), "a dimension of its result has 4294967300 elements"),
    "a billion samples": (
        model("RoiAlign", [PICTURE, [1, 4]], [ints(0)], sampling_ratio=10**9),
        "the samples along a dimension has 1000000000 elements",
    ),
}


@pytest.mark.parametrize("what", RUN)
def test_what_is_small_for_all_its_numbers_runs(what: str) -> None:
    hostile, shape = RUN[what]

    def call() -> None:
        program = populus.compile(hostile, tiles=4)
        assert program.run(program.signature.random())["y"].shape == shape

    assert effort(call) < 5_000_000  # the first in a process imports the engine and compiles its kernels: 2.3 million


@pytest.mark.parametrize("what", REFUSED)
def test_what_asks_for_too_much_is_refused_in_one_line(what: str) -> None:
    hostile, message = REFUSED[what]

    def call() -> None:
        with pytest.raises(PopulusError, match=message) as refused:
            populus.compile(hostile, tiles=4)
        assert "\n" not in str(refused.value) and len(str(refused.value)) < 400

    assert effort(call) < 1_000_000


F, B, I = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 1), (1, 1), (2, 0)])
def test_a_loop_without_a_number_or_a_condition_is_refused_in_one_line(inputs: int, outputs: int):
    value = helper.make_tensor_value_info
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["k"])], "body", [value("i", I, []), value("c", B, [])][:inputs],
                             [value("k", B, [])][:outputs])  # fmt: skip
    loop = helper.make_node("Loop", ["n", "go"], [], "node", body=body)
    held = [numpy_helper.from_array(np.array(3), "n"), numpy_helper.from_array(np.array(True), "go")]
    graph = helper.make_graph([loop, helper.make_node("Relu", ["x"], ["y"])], "g", [value("x", F, [2])], [value("y", F, [2])], held)
    said = f"'node': Loop-19: its body takes {inputs} inputs and gives {outputs} outputs; expected at least 2 and 1"
    with pytest.raises(PopulusError, match=said):
        populus.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


def test_a_tensor_of_no_data_type_in_a_branch_is_refused_in_one_line():
    value = helper.make_tensor_value_info
    node = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(2, np.float32)))
    node.attribute[0].t.data_type = 65536
    branch = helper.make_graph([node], "branch", [], [value("k", F, [2])])
    test = helper.make_node("If", ["c"], ["y"], "node", then_branch=branch, else_branch=branch)
    graph = helper.make_graph([test], "g", [value("c", B, [])], [value("y", F, [2])])
    with pytest.raises(PopulusError, match="data type 65536") as refused:
        populus.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))
    assert "\n" not in str(refused.value)
