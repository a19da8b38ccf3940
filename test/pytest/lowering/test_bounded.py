"""Results as large as the data say: buffers with a count, of which a user sees the valid part."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

import populus
from populus.dialects.support.diagnostics import PopulusError

F = np.float32


def model(nodes, x, outputs, types=(TensorProto.FLOAT,)):
    inputs = [make_tensor_value_info(name, type, shape) for (name, shape), type in zip(x.items(), types, strict=True)]
    graph = make_graph(nodes, "g", inputs, [make_tensor_value_info(name, type, None) for name, type in outputs.items()])
    return make_model(graph, opset_imports=[make_opsetid("", 21)])


NONZERO = model([make_node("NonZero", ["x"], ["y"])], {"x": [2, 3]}, {"y": TensorProto.INT64})


@pytest.mark.parametrize("engine", ["numpy", "strict"])
def test_nonzero_gives_as_many_columns_as_there_are(engine):
    program = populus.compile(NONZERO, tiles=4, engine=engine)
    for x in ([[0, 1, 0], [2, 0, np.nan]], [[0, 0, 0], [0, -0.0, 0]], [[1, 1, 1], [1, 1, 1]]):
        array = np.array(x, F)
        outputs = program.run({"x": array})
        assert list(outputs) == ["y"]
        np.testing.assert_array_equal(outputs["y"], np.nonzero(array))


def test_the_largest_size_and_the_count_are_in_the_text():
    text = str(populus.compile(NONZERO, tiles=4).module("popart"))
    assert 'bounded = [{output = "y", count = "y.count", axis = 1 : i64}]' in text
    assert "tensor<2x6xi64>, tensor<i64>" in text


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("x", [[3, 1, 2, 1, 3, 0], [np.nan, 1, np.nan, -np.inf, 1], [5]])
def test_unique_is_numpys(x, order):
    node = make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=order)
    kinds = {"y": TensorProto.FLOAT, "first": TensorProto.INT64, "inverse": TensorProto.INT64, "counts": TensorProto.INT64}
    array = np.array(x, F)
    found = populus.compile(model([node], {"x": [len(x)]}, kinds), tiles=4).run({"x": array})
    y, first, inverse, counts = np.unique(array, return_index=True, return_inverse=True, return_counts=True)
    if not order:
        by_first = np.argsort(first)
        y, first, counts = y[by_first], first[by_first], counts[by_first]
        inverse = np.argsort(by_first)[inverse]
    for name, expected in zip(kinds, (y, first, inverse, counts)):
        np.testing.assert_array_equal(found[name], expected)


def test_a_condition_that_is_computed_compresses_when_it_runs():
    nodes = [make_node("Greater", ["x", "x2"], ["c"]), make_node("Compress", ["x", "c"], ["y"])]
    program = populus.compile(model(nodes, {"x": [5], "x2": [5]}, {"y": TensorProto.FLOAT}, (1, 1)), tiles=4)
    x, other = np.array([1, 5, 2, 7, 3], F), np.array([3, 3, 3, 3, 3], F)
    np.testing.assert_array_equal(program.run({"x": x, "x2": other})["y"], [5, 7])


LONG = 70_000  # elements: types are inferred without such a constant


@pytest.mark.parametrize("condition", ["some", "all", "the first", "computed"])
def test_a_long_condition_that_is_constant_compresses(condition):
    given = {"some": np.arange(LONG) % 3 > 0, "all": np.full(LONG, True), "the first": np.arange(LONG) < 5}.get(condition)
    known = np.arange(LONG) % 3 == 0 if given is None else given
    nodes = [make_node("Compress", ["x", "c" if given is not None else "d"], ["y"]), make_node("ReduceMax", ["y"], ["z"], keepdims=0)]
    nodes = nodes if given is not None else [make_node("Not", ["c"], ["d"]), *nodes]
    proto = model(nodes, {"x": [LONG]}, {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT})
    proto.graph.initializer.append(from_array(~known if given is None else known, "c"))
    x = np.arange(LONG, dtype=F)
    outputs = populus.compile(proto, tiles=4).run({"x": x})
    np.testing.assert_array_equal(outputs["y"], x[known])
    assert outputs["z"] == x[known].max()


def test_what_cannot_be_computed_with_such_a_result_is_refused():
    nodes = [make_node("NonZero", ["x"], ["y"]), make_node("Unique", ["y"], ["z"])]
    said = "Unique-.*the size of what it reads depends on the data; Unique is not among the ops that tiles compute then"
    with pytest.raises(PopulusError, match=said):
        populus.compile(model(nodes, {"x": [3]}, {"z": TensorProto.INT64}), tiles=4)


def test_counts_of_one_mask_are_equal():
    nodes = [
        make_node("Cast", ["x"], ["m"], to=TensorProto.BOOL),
        make_node("NonZero", ["m"], ["a"]),
        make_node("NonZero", ["m"], ["b"]),
        make_node("Reshape", ["m", "flat"], ["f"]),
        make_node("Cast", ["f"], ["i"], to=TensorProto.INT64),
        make_node("ReduceSum", ["i"], ["n"], keepdims=1),
        make_node("Expand", ["five", "n"], ["e"]),
        make_node("Add", ["a", "b"], ["s"]),
        make_node("Add", ["s", "e"], ["y"]),
        make_node("Unsqueeze", ["m", "one"], ["u"]),
        make_node("Expand", ["u", "wide"], ["w"]),
        make_node("NonZero", ["w"], ["z"]),
        make_node("Reshape", ["s", "flat"], ["r"]),
        make_node("Concat", ["r", "r", "r"], ["c"], axis=0),
        make_node("Add", ["z", "c"], ["t"]),
    ]
    made = model(nodes, {"x": [4]}, {"y": TensorProto.INT64, "t": TensorProto.INT64})
    numbers = {"flat": [-1], "five": [5], "one": [1], "wide": [4, 3]}
    made.graph.initializer.extend(from_array(np.array(v, np.int64), k) for k, v in numbers.items())
    program = populus.compile(made, tiles=4)
    for x in ([0, 2, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]):
        at = np.nonzero(x)[0]
        found = program.run({"x": np.array(x, F)})
        np.testing.assert_array_equal(found["y"], [2 * at + 5])
        wide = np.array(np.nonzero(np.repeat(np.array(x)[:, None], 3, 1)))
        np.testing.assert_array_equal(found["t"], wide + np.tile(2 * at, 3))


def test_two_sizes_that_the_data_decide_do_not_meet():
    nodes = [make_node("NonZero", ["x"], ["a"]), make_node("NonZero", ["x2"], ["b"]), make_node("Add", ["a", "b"], ["y"])]
    with pytest.raises(PopulusError, match="two sizes meet of which the data decide one; they are not known to be equal"):
        populus.compile(model(nodes, {"x": [3], "x2": [3]}, {"y": TensorProto.INT64}, (1, 1)), tiles=4)


def ints(*values: int) -> TensorProto:
    return from_array(np.array(values, np.int64), "axes")


ROWS = [make_node("Greater", ["x", "zero"], ["m"]), make_node("NonZero", ["m"], ["columns"]), make_node("Transpose", ["columns"], ["at"])]
# What follows `at`: [n, 2], the places of positive elements, until y.
COMPUTED = {
    "gathered": [make_node("GatherND", ["x", "at"], ["y"])],
    "summed": [make_node("GatherND", ["x", "at"], ["v"]), make_node("ReduceSum", ["v"], ["y"], keepdims=0)],
    "least": [make_node("GatherND", ["x", "at"], ["v"]), make_node("Exp", ["v"], ["e"]), make_node("ReduceMin", ["e"], ["y"], keepdims=0)],
    "by formulas": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Div", ["one", "v"], ["d"]),
        make_node("Sub", ["d", "v"], ["s"]),
        make_node("Unsqueeze", ["s", "axes"], ["u"]),
        make_node("Mul", ["u", "row"], ["y"]),
    ],
    "how many": [make_node("Shape", ["at"], ["y"])],
    "how many elements": [make_node("Size", ["at"], ["y"])],
    "mean": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("ReduceSum", ["v"], ["t"], keepdims=0),
        make_node("Size", ["v"], ["n"]),
        make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        make_node("Div", ["t", "f"], ["y"]),
    ],
    "rows": [
        make_node("Slice", ["at", "zeros", "axes", "axes"], ["first"]),
        make_node("Reshape", ["first", "minus"], ["f"]),
        make_node("Gather", ["x", "f"], ["r"]),
        make_node("MatMul", ["r", "square"], ["p"]),
        make_node("Softmax", ["p"], ["y"]),
    ],
    "side by side": [make_node("Concat", ["at", "at"], ["y"], axis=1)],
    "one after the other": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Exp", ["v"], ["e"]),
        make_node("Concat", ["v", "one1", "e"], ["y"], axis=0),
    ],
    "largest first": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Shape", ["v"], ["n"]),
        make_node("Min", ["n", "five"], ["k"]),
        make_node("TopK", ["v", "k"], ["y", "places"], axis=0),
    ],
    "chosen again": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Less", ["v", "one"], ["c"]),
        make_node("Compress", ["v", "c"], ["y"], axis=0),
    ],
    "found again": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Less", ["v", "one"], ["c"]),
        make_node("NonZero", ["c"], ["z"]),
        make_node("Gather", ["v", "z"], ["y"]),
    ],
    "repeated": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Tile", ["v", "axes2"], ["y"]),
    ],
    "stretched": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Shape", ["v"], ["n"]),
        make_node("Concat", ["five", "n"], ["s"], axis=0),
        make_node("Expand", ["one", "s"], ["o"]),
        make_node("Mul", ["o", "v"], ["y"]),
    ],
    "as many": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Shape", ["v"], ["n"]),
        make_node("ConstantOfShape", ["n"], ["o"]),
        make_node("Squeeze", ["n", "zeros"], ["count"]),
        make_node("Range", ["zero_i", "count", "one_i"], ["r"]),
        make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        make_node("Sub", ["f", "o"], ["s"]),
        make_node("Add", ["s", "v"], ["y"]),
    ],
    "written back": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Exp", ["v"], ["e"]),
        make_node("ScatterND", ["x", "at", "e"], ["y"]),
    ],
    "added up": [
        make_node("Slice", ["at", "zeros", "axes", "axes"], ["first"]),
        make_node("Reshape", ["first", "minus"], ["f"]),
        make_node("Gather", ["x", "f"], ["r"]),
        make_node("Shape", ["r"], ["rs"]),
        make_node("Unsqueeze", ["f", "axes"], ["u"]),
        make_node("Expand", ["u", "rs"], ["w"]),
        make_node("ScatterElements", ["x", "w", "r"], ["y"], axis=0, reduction="add"),
    ],
    "every second": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Slice", ["v", "zeros", "end", "zeros", "two"], ["y"]),
    ],
    "normalised": [
        make_node("GatherND", ["x", "at"], ["v"]),
        make_node("Softmax", ["v"], ["p"], axis=0),
        make_node("CumSum", ["p", "zero_i"], ["y"]),
    ],
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_with_such_a_result_is_what_onnxruntime_computes(name):
    import onnxruntime

    made = model([*ROWS, *COMPUTED[name]], {"x": [3, 4]}, {"y": TensorProto.FLOAT})
    if name.startswith("how") or name == "side by side":
        made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    rng = np.random.default_rng(0)
    arrays = {"zero": np.float32(0), "one": np.float32(1), "row": rng.standard_normal((1, 3)), "square": rng.standard_normal((4, 4))}
    made.graph.initializer.extend(from_array(np.asarray(v, np.float32), k) for k, v in arrays.items())
    numbers = {"axes": [1], "zeros": [0], "minus": [-1], "five": [5], "axes2": [2], "two": [2], "end": [1 << 40], "zero_i": 0, "one_i": 1}
    made.graph.initializer.extend(from_array(np.array(v, np.int64), k) for k, v in numbers.items())
    made.graph.initializer.append(from_array(np.ones(1, np.float32), "one1"))
    made.ir_version = 8
    session = onnxruntime.InferenceSession(made.SerializeToString())
    programs = [populus.compile(made, tiles=4, engine=engine) for engine in ("numpy", "strict", "native")]
    for shift in (0.0, 9.0, -1.0, -9.0):
        x = rng.standard_normal((3, 4)).astype(F) + F(shift)
        (expected,) = session.run(None, {"x": x})
        for program in programs:
            found = program.run({"x": x})["y"]
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def looped(grows):
    """A Loop of n iterations: squares of their numbers, collected or joined to what it carries."""
    body = [make_node("Mul", ["i", "i"], ["q"]), make_node("Reshape", ["q", "flat"], ["r"]), make_node("Identity", ["go"], ["on"])]
    body += [make_node("Concat", ["c", "r"], ["d"], axis=0) if grows else make_node("Identity", ["c"], ["d"])]
    ins = [make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, []), ("go", 9, []), ("c", 7, None))]
    outs = [make_tensor_value_info(n, t, None) for n, t in (("on", 9), ("d", 7), ("q", 7))]
    return make_node("Loop", ["n", "", "first"], ["carried", "y"], "loop", body=make_graph(body, "body", ins, outs))


def numbered(nodes, x, kind):
    made = model(nodes, x, {"y": TensorProto.INT64, "carried": TensorProto.INT64}, (kind,))
    made.graph.initializer.extend(from_array(np.array(v, np.int64), k) for k, v in {"flat": [-1], "first": [7]}.items())
    made.opset_import[0].version, made.ir_version = 21, 10
    return made


@pytest.mark.parametrize("engine", ["numpy", "strict"])
def test_a_loop_may_run_as_often_as_the_data_say(engine):
    nodes = [make_node("NonZero", ["x"], ["z"]), make_node("Shape", ["z"], ["s"], start=1), make_node("Squeeze", ["s"], ["n"])]
    program = populus.compile(numbered([*nodes, looped(False)], {"x": [5]}, TensorProto.FLOAT), tiles=4, engine=engine)
    for count in (3, 0, 5):
        found = program.run({"x": (np.arange(5) < count).astype(F)})
        np.testing.assert_array_equal(found["y"], np.arange(count) ** 2)


@pytest.mark.parametrize("grows", [False, True])
def test_a_loop_asks_for_the_number_of_its_iterations_if_it_is_an_input(grows):
    made = numbered([looped(grows)], {"n": []}, TensorProto.INT64)
    asked = "tiles need to know the most (iterations )?there can be; it follows from n, to which values={'n': V} gives a value"
    with pytest.raises(PopulusError, match=asked):
        populus.compile(made, tiles=4)
    bounded = populus.compile(made, tiles=4, bounds={"loop": 5}).run({"n": np.array(3)})
    np.testing.assert_array_equal(bounded["y"], [0, 1, 4])
    found = populus.compile(made, tiles=4, values={"n": 3}).run({})
    np.testing.assert_array_equal(found["y"], [0, 1, 4])
    np.testing.assert_array_equal(found["carried"], [7, 0, 1, 4] if grows else [7])
