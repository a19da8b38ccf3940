"""The PopART and PopXL front ends lose nothing: two streams stay two, and what has no meaning is refused."""

from __future__ import annotations

import pytest

from populus import popart, popxl


def test_two_streams_of_one_name_get_two():
    with popxl.Ir().main_graph:
        for make in (popxl.h2d_stream, popxl.d2h_stream):
            assert [make((2,), popxl.float32, name="x").name for _ in range(2)] == ["x", "x_1"]
            assert make((2,), popxl.float32).name != make((2,), popxl.float32).name


def test_an_attribute_beyond_those_of_its_op_is_refused():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    with pytest.raises(TypeError, match=r"^Concat takes axis, debugContext; 3 values are given$"):
        builder.aiOnnx.concat([x, x], 0, "both", 1)
    with pytest.raises(TypeError, match=r"^Concat has no attribute 'axes'; did you mean 'axis'\?"):
        builder.aiOnnx.concat([x, x], axes=0)
    assert builder.aiOnnx.concat([x, x], 0, "both") == "both/Concat:0"


def test_an_op_of_several_outputs_is_told_how_many():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    with pytest.raises(TypeError, match="^Split needs num_outputs$"):
        builder.aiOnnx.split([x])
    assert builder.aiOnnx.split([x], 2, 0) == ["Split:0", "Split:1"]
    assert builder.customOp("Split", 10, "", [x], {"axis": 0}, numOutputs=2) == ["Split:0/1", "Split:1/1"]
