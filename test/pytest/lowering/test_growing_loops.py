"""Loops that carry values of a growing size, against onnxruntime: prefixes, stacks that shrink, and ends that data decide."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_graph, make_node, make_tensor_value_info

import populus
from populus.dialects.support.diagnostics import PopulusError

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ENGINES = ["numpy", "strict", "native"]


def model(nodes, inputs, outputs, constants):
    made = helper.make_model(
        make_graph(
            nodes,
            "g",
            [make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
            [make_tensor_value_info(n, t, s) for n, (t, s) in outputs.items()],
            [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
    )
    made.ir_version = 10
    return made


def body(nodes, carried, yielded):
    """The body of a Loop: `carried` and `yielded` have the name and type of each value."""
    ins = [make_tensor_value_info(n, t, s) for n, t, s in (("i", I, []), ("go", B, []))]
    ins += [make_tensor_value_info(n, t, None) for n, t in carried.items()]
    outs = [make_tensor_value_info("on", B, None), *(make_tensor_value_info(n, t, None) for n, t in yielded.items())]
    return make_graph(nodes, "body", ins, outs)


def decoder(trips="", goes_on="below"):
    """Words one after the other: each attends to all words before it, until the sum exceeds `end` (or always goes on)."""
    nodes = [
        make_node("Softmax", ["c_scores"], ["weights"], axis=0),
        make_node("MatMul", ["c", "q"], ["c_scores"]),
        make_node("Mul", ["weights", "c"], ["weighted"]),
        make_node("ReduceSum", ["weighted", "first_axis"], ["mixed"], keepdims=1),
        make_node("MatMul", ["mixed", "w"], ["next"]),
        make_node("Concat", ["c", "next"], ["d"], axis=0),
        make_node("ReduceSum", ["d", "all"], ["total"], keepdims=0),
        make_node("Abs", ["total"], ["size"]),
        make_node("Less", ["size", "end"], ["below"]),
        make_node("Identity", [goes_on], ["on"]),
        make_node("Identity", ["total"], ["seen"]),
    ]
    nodes[0], nodes[1] = nodes[1], nodes[0]
    inner = body(nodes, {"c": F}, {"d": F, "seen": F})
    loop = make_node("Loop", [trips, "", "first"], ["words", "sums"], "decode", body=inner)
    g = np.random.default_rng(0)
    constants = {
        "q": g.standard_normal((4, 1), np.float32),
        "w": g.standard_normal((4, 4), np.float32) * np.float32(0.7),
        "first_axis": np.array([0]),
        "all": np.array([0, 1]),
    }
    inputs = {"first": (F, [2, 4]), "end": (F, [])} | ({trips: (I, [])} if trips else {})
    return model([loop], inputs, {"words": (F, None), "sums": (F, None)}, constants)


def agree(made, program, **given):
    session = onnxruntime.InferenceSession(made.SerializeToString())
    names = {i.name for i in session.get_inputs()}
    found = program.run({k: v for k, v in given.items() if k in names})
    for output, expected in zip(session.get_outputs(), session.run(None, {k: v for k, v in given.items() if k in names})):
        assert found[output.name].shape == expected.shape, (output.name, found[output.name].shape, expected.shape)
        np.testing.assert_allclose(found[output.name], expected, rtol=1e-4, atol=1e-5)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prefix_grows_until_the_data_end_it(engine):
    made = decoder()
    program = populus.compile(made, tiles=4, engine=engine, bounds={"decode": 9})
    lengths = set()
    for seed in range(6):
        first = np.random.default_rng(seed).standard_normal((2, 4), np.float32)
        lengths.add(len(agree(made, program, first=first, end=np.array(4, np.float32))["words"]))
    assert len(lengths) > 2, lengths


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_runs_as_often_as_an_input_says_up_to_its_bound(engine):
    made = decoder("n")
    program = populus.compile(made, tiles=4, engine=engine, bounds={"decode": 5})
    first = np.random.default_rng(1).standard_normal((2, 4), np.float32)
    for n in (3, 0, 5, 1):
        found = agree(made, program, first=first, end=np.array(1e9, np.float32), n=np.array(n))
        assert found["words"].shape == (2 + n, 4)
    with pytest.raises(PopulusError, match="'decode': Loop: it goes on after 5 iterations, the bound that is stated for it"):
        program.run({"first": first, "end": np.float32(1e9), "n": np.array(6)})
    agree(made, program, first=first, end=np.array(1e9, np.float32), n=np.array(2))


def test_a_run_that_goes_on_beyond_the_bound_is_refused():
    made = decoder()
    program = populus.compile(made, tiles=4, bounds={"decode": 3})
    first = np.random.default_rng(1).standard_normal((2, 4), np.float32)
    with pytest.raises(PopulusError, match="it goes on after 3 iterations"):
        program.run({"first": first, "end": np.array(1e9, np.float32)})


@pytest.mark.parametrize("goes_on", ["below", "go"])
def test_a_known_number_of_iterations_is_the_bound(goes_on):
    made = decoder("n", goes_on)
    program = populus.compile(made, tiles=4, values={"n": 40})
    assert len(list(program.module("popart").walk())) < 200
    first = np.random.default_rng(1).standard_normal((2, 4), np.float32)
    agree(made, program, first=first, end=np.array(8, np.float32), n=np.array(40))


def test_the_number_of_words_before_may_be_open():
    made = decoder()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "before"
    program = populus.compile(made, tiles=4, dims={"before": (1, 5)}, bounds={"decode": 6})
    for before in (2, 5, 1):
        first = np.random.default_rng(before).standard_normal((before, 4), np.float32)
        agree(made, program, first=first, end=np.array(3, np.float32))


def stack(trips):
    """Pairs of neighbours are added, so that a row loses an element at a time; the number of the iteration makes positions."""
    nodes = [
        make_node("Slice", ["c", "one", "far", "axis"], ["right"]),
        make_node("Slice", ["c", "zero", "minus", "axis"], ["left"]),
        make_node("Add", ["left", "right"], ["d"]),
        make_node("Cast", ["i"], ["at"], to=F),
        make_node("Add", ["s", "at"], ["t"]),
        make_node("Identity", ["go"], ["on"]),
    ]
    loop = make_node("Loop", [trips, "", "x", "begin"], ["y", "z"], "pairs", body=body(nodes, {"c": F, "s": F}, {"d": F, "t": F}))
    constants = {"one": [1], "zero": [0], "minus": [-1], "far": [1 << 40], "axis": [1], "begin": np.float32(0), "known": np.array(7)}
    inputs = {"x": (F, [3, 9])} | ({"n": (I, [])} if trips == "n" else {})
    return model([loop], inputs, {"y": (F, None), "z": (F, None)}, constants)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("trips", ["known", "n"])
def test_a_row_may_shrink(engine, trips):
    made = stack(trips)
    program = populus.compile(made, tiles=4, engine=engine, bounds={} if trips == "known" else {"pairs": 8})
    x = np.random.default_rng(0).standard_normal((3, 9), np.float32)
    for n in (7,) if trips == "known" else (2, 8, 0):
        agree(made, program, x=x, n=np.array(n))


def test_the_gradient_goes_through_all_words():
    made = decoder("n", "go")
    program = populus.vjp(made, wrt=["first"], tiles=4, values={"n": 12})
    g = np.random.default_rng(1)
    given = {"first": g.standard_normal((2, 4), np.float32), "end": np.array(0, np.float32)}
    seed = {"words": g.standard_normal((14, 4), np.float32)}
    _, gradients = program.run(given, seed)

    def loss(first):
        session = onnxruntime.InferenceSession(made.SerializeToString())
        words, _ = session.run(None, {**given, "first": first, "n": np.array(12)})
        return float((words.astype(np.float64) * seed["words"]).sum())

    step = np.zeros((2, 4), np.float32)
    for place in ((0, 0), (1, 3)):
        step[...] = 0
        step[place] = 1e-2
        slope = (loss(given["first"] + step) - loss(given["first"] - step)) / 2e-2
        assert abs(gradients["first"][place] - slope) < 1e-2 * max(1, abs(slope)), (place, gradients["first"][place], slope)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({}, r"tiles need to know the most iterations there can be.*bounds=\{'decode': N\}"),
        ({"decod": 4}, "there is no Loop 'decod' to bound; did you mean 'decode'?"),
        ({"decode": -1}, r"bounds\['decode'\] is -1"),
    ],
)
def test_a_bound_is_asked_for_and_checked(bounds, said):
    with pytest.raises(PopulusError, match=said) as error:
        populus.compile(decoder(), tiles=4, bounds=bounds)
    assert "\n" not in str(error.value)
