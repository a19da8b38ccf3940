"""Branches and loops of ONNX models: written out or kept, they give what onnxruntime and ONNX's reference do."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from xdsl.ir import Operation

import populus
from populus.compare.levels import compare_levels
from populus.dialects.signature.valid_lengths import trimmed
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.pipeline import Pipeline
from populus.runtime.session import Session

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info, node = helper.make_tensor_value_info, helper.make_node
RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 3)).astype(np.float32)


def graph(nodes, inputs=(), outputs=(), constants=None, name="g"):
    """A graph; inputs and outputs as (name, type, shape)."""
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    return helper.make_graph(list(nodes), name, [info(*i) for i in inputs], [info(*o) for o in outputs], initializers)


def model(nodes, inputs, outputs, constants=None, opset=17) -> ModelProto:
    return helper.make_model(graph(nodes, inputs, outputs, constants), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def sum_loop(trips, extra=(), more=(), cond="", collected="s"):
    """h + i x for each iteration; gives h and all h's."""
    body = graph(
        [
            node("Cast", ["i"], ["f"], to=F),
            node("Mul", ["f", "x"], ["p"]),
            node("Add", ["h", "p"], ["s"]),
            *extra,
            *([] if extra else [node("Identity", ["c"], ["go"])]),
            node("Identity", ["s"], ["s_out"]),
            node("Identity", [collected], ["row"]),
        ],
        [("i", I, []), ("c", B, []), ("h", F, [5, 3])],
        [("go", B, []), ("s_out", F, [5, 3]), ("row", F, None)],
        dict(more),
    )
    return node("Loop", [trips, cond, "x"], ["y", "ys"], body=body, name="loop")


BELOW = [
    node("ReduceL1", ["s"], ["size"], keepdims=0),
    node("Add", ["size", "f"], ["total"]),
    node("Less", ["total", "limit"], ["go"]),
]


def scan(body_axis=1, **attributes):
    body = graph(
        [node("Add", ["h", "row"], ["t"]), node("Tanh", ["t"], ["n"]), node("Mul", ["n", "w"], ["out"])],
        [("h", F, [5]), ("row", F, [5])],
        [("n", F, [5]), ("out", F, [5])],
    )
    return node("Scan", ["h0", "x"], ["h", "ys"], body=body, num_scan_inputs=1, scan_input_axes=[body_axis], name="scan", **attributes)


XIN, H = ("x", F, [5, 3]), {"h0": RNG.standard_normal(5).astype(np.float32), "w": RNG.standard_normal(5).astype(np.float32)}


def nested():
    """A loop in a branch in a loop, which reads values of both."""
    inner = graph(
        [
            node("Add", ["k", "h"], ["a"]),
            node("Mul", ["a", "scale"], ["m"]),
            node("Add", ["m", "x"], ["k1"]),
            node("Identity", ["d"], ["dd"]),
        ],
        [("j", I, []), ("d", B, []), ("k", F, [5, 3])],
        [("dd", B, []), ("k1", F, [5, 3])],
        {"scale": np.float32(0.5)},
    )
    then = graph([node("Loop", ["three", "", "h"], ["deep"], body=inner, name="inner")], (), [("deep", F, [5, 3])], {"three": np.int64(3)})
    other = graph([node("Neg", ["h"], ["flat"])], (), [("flat", F, [5, 3])])
    body = graph(
        [
            node("ReduceSum", ["h"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["positive"]),
            node("If", ["positive"], ["next"], then_branch=then, else_branch=other, name="if"),
            node("Identity", ["c"], ["go"]),
        ],
        [("i", I, []), ("c", B, []), ("h", F, [5, 3])],
        [("go", B, []), ("next", F, [5, 3]), ("total", F, [])],
        {"zero": np.float32(0)},
    )
    return [node("Loop", ["n", "", "x"], ["y", "ys"], body=body, name="outer")]


Y, YS = ("y", F, [5, 3]), ("ys", F, None)
MODELS: dict[str, ModelProto] = {
    "counted": model([sum_loop("n")], [XIN], [Y, YS], {"n": np.int64(4)}),
    "no trips": model([sum_loop("n")], [XIN], [Y], {"n": np.int64(0)}),
    "not begun": model([sum_loop("n", cond="no")], [XIN], [Y], {"n": np.int64(4), "no": np.array(False)}),
    "long": model([sum_loop("n")], [XIN], [Y, YS], {"n": np.int64(300)}),
    "ends when its sum is large": model(
        [sum_loop("n", BELOW)], [XIN], [Y, YS], {"n": np.int64(40), "limit": np.float32(30)}
    ),
    "ends by its condition alone": model([sum_loop("", BELOW)], [XIN], [Y], {"limit": np.float32(30)}),
    "a while as torch writes it": model(
        [sum_loop("n", BELOW, cond="yes")], [XIN], [Y], {"n": np.int64(2**63 - 1), "yes": np.array(True), "limit": np.float32(30)}
    ),
    "a while that x lets begin": model(
        [node("ReduceL1", ["x"], ["size0"], keepdims=0), node("Less", ["size0", "limit"], ["begin"]), sum_loop("n", BELOW, cond="begin")],
        [XIN], [Y], {"n": np.int64(2**63 - 1), "limit": np.float32(30)},
    ),
    "as often as an input says": model([sum_loop("n")], [XIN, ("n", I, [])], [Y]),
    "begins if an input says so": model(
        [sum_loop("n", BELOW, cond="begin")], [XIN, ("n", I, []), ("begin", B, [])], [Y], {"limit": np.float32(30)}
    ),
    "scan": model([scan()], [XIN], [("h", F, [5]), ("ys", F, None)], H),
    "scan backwards": model(
        [scan(scan_input_directions=[1], scan_output_directions=[1], scan_output_axes=[1])], [XIN], [("h", F, [5]), ("ys", F, None)], H
    ),
    "nested": model(nested(), [XIN], [Y, YS], {"n": np.int64(5)}),
    "two values swapped": model(
        [node("Exp", ["x"], ["e"]), node("Loop", ["n", "", "x", "e"], ["y", "z"], name="loop", body=graph(
            [node("Identity", ["c"], ["go"]), node("Identity", ["b"], ["a1"]), node("Identity", ["a"], ["b1"])],
            [("i", I, []), ("c", B, []), ("a", F, [5, 3]), ("b", F, [5, 3])],
            [("go", B, []), ("a1", F, [5, 3]), ("b1", F, [5, 3])],
        ))], [XIN], [Y, ("z", F, [5, 3])], {"n": np.int64(3)},
    ),
    "branch": model(
        [
            node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["c"]),
            node("If", ["c"], ["y"], then_branch=graph([node("Exp", ["x"], ["a"])], (), [("a", F, [5, 3])]),
                 else_branch=graph([node("Sqrt", ["x"], ["b"])], (), [("b", F, [5, 3])]), name="if"),
        ], [XIN], [Y], {"zero": np.float32(0)},
    ),
    "branches of unlike sizes": model(
        [
            node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["c"]),
            node("If", ["c"], ["part"], name="if",
                 then_branch=graph([node("Slice", ["x", "one", "three"], ["a"])], (), [("a", F, None)]),
                 else_branch=graph([node("Exp", ["x"], ["b"])], (), [("b", F, None)])),
            node("Mul", ["part", "part"], ["y"]),
            node("ReduceSum", ["part", "first"], ["s"], keepdims=0),
        ], [XIN], [("y", F, None), ("s", F, [3])],
        {"zero": np.float32(0), "one": np.array([1]), "three": np.array([3]), "first": np.array([0])},
    ),
    "places that the data say, in a loop": model(
        [node("Loop", ["n", "", "x"], ["y"], name="loop", body=graph(
            [
                node("Greater", ["h", "zero"], ["m"]),
                node("NonZero", ["m"], ["columns"]),
                node("Transpose", ["columns"], ["at"]),
                node("GatherND", ["h", "at"], ["v"]),
                node("ReduceSum", ["v"], ["t"], keepdims=0),
                node("Mul", ["t", "small"], ["d"]),
                node("Sub", ["h", "d"], ["h1"]),
                node("Identity", ["c"], ["go"]),
            ],
            [("i", I, []), ("c", B, []), ("h", F, [5, 3])],
            [("go", B, []), ("h1", F, [5, 3])],
        ))], [XIN], [Y], {"n": np.int64(4), "zero": np.float32(0), "small": np.float32(0.1)},
    ),
}  # fmt: skip
INPUTS = {
    "x": [X, -X, np.full_like(X, np.nan), np.zeros_like(X)],
    "n": [np.array(n) for n in (3, 0, 7, 1)],
    "begin": [np.array(b) for b in (True, True, False, True)],
}


def reference(made: ModelProto, inputs: dict) -> dict:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))


def ops_of(program: populus.Program, level: str) -> list[Operation]:
    return [op for op in program.module(level).walk() if op.name.startswith(level)]


def check(made: ModelProto, program: populus.Program, engines=()) -> None:
    """A program gives what onnxruntime does, for each of INPUTS; so do these engines on it."""
    sessions = [Session(program.module("poplar"), engine) for engine in engines]
    for k in range(4):
        inputs = {i.name: INPUTS[i.name][k] for i in made.graph.input}
        expected = reference(made, inputs)
        for found in [program.run(inputs), *(trimmed(session.run(inputs), program.signature.bounded) for session in sessions)]:
            assert found.keys() == expected.keys()
            for output, e in expected.items():
                assert found[output].shape == e.shape, (output, k)
                np.testing.assert_allclose(found[output], e, rtol=1e-5, atol=1e-6, err_msg=f"{output} {k}")


@pytest.mark.parametrize("name", MODELS)
def test_what_is_kept_is_what_onnxruntime_computes(name):
    pipeline = Pipeline.named("inference").with_options("onnx-infer-shapes", write_out=0)
    check(MODELS[name], populus.compile(MODELS[name], tiles=16, pipeline=pipeline, engine="numpy"), ("strict", "native"))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "long"])
def test_what_is_written_out_is_what_onnxruntime_computes(name):
    pipeline = Pipeline.named("inference").with_options("onnx-infer-shapes", write_out=1 << 20)
    check(MODELS[name], populus.compile(MODELS[name], tiles=1, pipeline=pipeline, engine="numpy"))


def test_a_program_does_not_grow_with_the_iterations_of_its_loops():
    sizes = {n: len(ops_of(populus.compile(model([sum_loop("n")], [XIN], [Y, YS], {"n": np.int64(n)})), "poplar")) for n in (100, 1000)}
    assert sizes[100] == sizes[1000] < 40


def test_branches_of_other_ranks_are_refused():
    branches = {
        f"{name}_branch": graph([node(op, ["x"], [name], **more)], (), [(name, F, None)])
        for name, op, more in (("then", "Relu", {}), ("else", "ReduceSum", {"keepdims": 0}))
    }
    nodes = [node("ReduceSum", ["x"], ["t"], keepdims=0), node("Greater", ["t", "zero"], ["c"])]
    nodes.append(node("If", ["c"], ["y"], name="if", **branches))
    with pytest.raises(PopulusError, match="'if': If-16: its branches give tensor<5x3xf32> and tensor<f32>; which one is taken"):
        populus.compile(model(nodes, [XIN], [("y", F, None)], {"zero": np.float32(0)}))


def test_a_loop_that_collects_rows_without_a_bound_is_refused():
    with pytest.raises(PopulusError, match="'loop': Loop-16: the number of its iterations is decided when the model runs, and it collects"):
        populus.compile(model([sum_loop("", BELOW)], [XIN], [Y, YS], {"limit": np.float32(30)}))


@pytest.mark.parametrize("name", ["counted", "ends when its sum is large", "nested", "branch", "places that the data say, in a loop"])
def test_levels_agree_where_there_are_regions(name):
    pipeline = Pipeline.named("inference").with_options("onnx-infer-shapes", write_out=0)
    program = populus.compile(MODELS[name], tiles=4, pipeline=pipeline)
    found = list(compare_levels(program, {i.name: INPUTS[i.name][0] for i in MODELS[name].graph.input}))
    assert [c.level for c in found if c.first is None and c.places] == ["popart", "popops", "poplar"]


def test_a_program_that_failed_inside_a_loop_runs_again():
    body = graph(
        [node("Gather", ["table", "k"], ["g"]), node("Add", ["k", "g"], ["k1"]), node("Identity", ["c"], ["go"])],
        [("i", I, []), ("c", B, []), ("k", I, [])],
        [("go", B, []), ("k1", I, [])],
    )
    made = model(
        [node("Loop", ["n", "", "k0"], ["y"], body=body, name="loop")], [("k0", I, [])], [("y", I, [])],
        {"n": np.int64(100), "table": np.array([1, 1, 1, 0, 2])},
    )  # fmt: skip
    for engine in ("numpy", "strict", "native"):
        program = populus.compile(made, tiles=4, engine=engine)
        with pytest.raises(PopulusError, match=r"'loop/g'.*: index 6 is outside 0\.\.5"):
            program.run({"k0": np.array(4)})
        assert program.run({"k0": np.array(0)})["y"] == 3


def test_what_a_loop_read_that_is_not_kept_has_no_readers_left():
    """The loop is typed to be kept, then written out, as it collects rows without a bound; its copy read `x`, a view."""
    loop = sum_loop("", [node("Less", ["i", "three"], ["go"])], [("three", np.int64(3))])
    made = model([node("Exp", ["z"], ["e"]), node("Transpose", ["e"], ["x"]), loop], [("z", F, [3, 5])], [Y, YS])
    pipeline = Pipeline.named("inference").with_options("onnx-infer-shapes", write_out=0)
    program = populus.compile(made, tiles=1, pipeline=pipeline, engine="numpy")
    x, found = np.exp(X), program.run({"z": X.T.copy()})
    np.testing.assert_allclose(found["ys"], [x, 2 * x, 4 * x, 7 * x], rtol=1e-6)
