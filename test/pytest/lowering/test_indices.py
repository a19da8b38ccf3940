"""Indices that the data decide: one that the dimension does not have is refused on every engine, and none reads another element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import populus
from populus.dialects.support.diagnostics import PopulusError


def indexed(op: str, x: list[int | str], indices: list[int], attributes: dict[str, Any], type: int = TensorProto.INT64) -> ModelProto:
    """Makes a model of one op; updates have the shape of the indices."""
    info = helper.make_tensor_value_info
    updates = [info("u", TensorProto.FLOAT, indices[:-1] if op == "ScatterND" else indices)] if op.startswith("Scatter") else []
    given = [info("x", TensorProto.FLOAT, x), info("i", type, indices), *updates]
    node = helper.make_node(op, [value.name for value in given], ["y"], **attributes)
    graph = helper.make_graph([node], "g", given, [info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


# By op: the shape of x, in which 5 elements lie along the dimension that the indices choose of, that of the indices, and the attributes.
FORMS: list[tuple[str, list[int | str], list[int], dict[str, Any]]] = [
    ("Gather", [5], [1], {}),
    ("Gather", [4, 5], [2], {"axis": 1}),
    ("GatherElements", [5], [1], {}),
    ("GatherElements", [1, 5], [1, 2], {"axis": 1}),
    ("GatherElements", [3, 5], [2, 2], {"axis": 1}),
    ("GatherND", [5], [1, 1], {}),
    ("GatherND", [1, 5], [1, 1], {"batch_dims": 1}),
    ("GatherND", [3, 5], [3, 1], {"batch_dims": 1}),
    ("ScatterElements", [5], [1], {}),
    ("ScatterElements", [3, 5], [3, 1], {"axis": 1}),
    ("ScatterND", [5], [1, 1], {}),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]} {form[1]}")
@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_an_index_that_the_dimension_does_not_have_is_refused(form: tuple[str, list[int], list[int], dict[str, Any]], engine: str):
    """-6 of 5 elements became -1, which a gather of one row counted from the end once more."""
    op, x, indices, attributes = form
    program = populus.compile(indexed(op, [*x], indices, attributes), engine=engine, tiles=2)
    arrays = {"x": np.arange(np.prod(x), dtype=np.float32).reshape(x)}
    if op.startswith("Scatter"):
        arrays["u"] = np.ones(indices[:-1] if op == "ScatterND" else indices, np.float32)
    for inside in (-5, -1, 0, 4):
        program.run({**arrays, "i": np.full(indices, inside)})
    for outside in (-6, -10, -11, 5, 10, -(2**63), 2**63 - 1):
        with pytest.raises(PopulusError, match="is outside"):
            program.run({**arrays, "i": np.full(indices, outside)})


@pytest.mark.parametrize("form", [form for form in FORMS if len(form[1]) == 1], ids=lambda form: form[0])
def test_an_index_beyond_the_elements_of_a_run_is_refused(form: tuple[str, list[int], list[int], dict[str, Any]]):
    """An open dimension has room for its greatest size: a Gather read zeros there."""
    op, _, indices, attributes = form
    program = populus.compile(indexed(op, ["n"], indices, attributes), tiles=2, dims={"n": (1, 8)}, engine="native")
    arrays = {"x": np.array([7, 8, 9], np.float32)}
    if op.startswith("Scatter"):
        arrays["u"] = np.ones(1, np.float32)
    for inside, expected in ((-3, 0), (2, 2), (0, 0)):
        [y] = program.run({**arrays, "i": np.full(indices, inside)}).values()
        assert y[expected] == 1 if op.startswith("Scatter") else y.reshape(-1)[0] == 7 + expected
    for outside in (-4, -8, 3, 7, 8):
        with pytest.raises(PopulusError, match="is outside"):
            program.run({**arrays, "i": np.full(indices, outside)})


@pytest.mark.parametrize("op", ["Gather", "ScatterElements"])
@pytest.mark.parametrize("type", [TensorProto.INT32, TensorProto.INT64], ids=["i32", "i64"])
def test_one_index_outside_is_seen_at_every_place(op: str, type: int):
    """Machine code looks at vectors of indices, and at the rest alone."""
    program = populus.compile(indexed(op, [50], [37], {}, type), engine="native", target="host", threads=1)
    dtype = helper.tensor_dtype_to_np_dtype(type)
    arrays = {"x": np.arange(50, dtype=np.float32), **({"u": np.ones(37, np.float32)} if op == "ScatterElements" else {})}
    for place in range(37):
        for outside in (50, np.iinfo(dtype).max, np.iinfo(dtype).min):
            indices = np.full(37, 49, dtype)
            indices[place] = outside
            with pytest.raises(PopulusError, match="is outside"):
                program.run({**arrays, "i": indices})
