"""The PopART and PopXL front ends refuse what they would otherwise drop."""

from __future__ import annotations

import pytest

from populus import popart, popxl
from populus.dialects.support.diagnostics import PopulusError


def test_two_streams_of_one_name_are_refused():
    with popxl.Ir().main_graph:
        for make in (popxl.h2d_stream, popxl.d2h_stream):
            make((2,), popxl.float32, name="x")
            with pytest.raises(PopulusError, match="^there is a stream 'x' in this direction already; give one of them another name$"):
                make((2,), popxl.float32, name="x")
            assert make((2,), popxl.float32).name != make((2,), popxl.float32).name


def test_an_attribute_without_its_name_is_refused():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    for arguments in ((0,), (1,), ("name", 0)):
        with pytest.raises(PopulusError, match=r"^Concat: [01] is given without a name; write attributes with theirs, such as axis=0$"):
            builder.aiOnnx.concat([x, x], *arguments)
    assert builder.aiOnnx.concat([x, x], "both", axis=0) == "both"


def test_one_of_several_outputs_is_refused():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    for op in ("split", "topk"):
        with pytest.raises(PopulusError, match="has several outputs, of which this gives one; take customOp"):
            getattr(builder.aiOnnx, op)([x])
    assert builder.customOp("Split", 11, "", [x], {"axis": 0}, numOutputs=2) == ["Split", "Split/1"]
