"""PopXL's custom operations, row by row."""

from __future__ import annotations

import inspect
import re
import sys

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import TensorType
from xdsl.irdl import irdl_op_definition, operand_def, result_def

import populus
from helpers import seeds_page as page
from helpers.op_files import PAIR
from populus import popxl
from populus.dialects.expr import Arg
from populus.dialects.popart import POPART, NoGradient, PopartOp, calls
from populus.dialects.popart.definition import definition_of, plain
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.lowering.driver import extensions
from populus.lowering.driver.pipeline import Pipeline
from populus.popxl import ops

X = np.array([-1, 0, 2], np.float32)
SPECIAL = np.array([0.0, -0.0, np.nan, -1.0], np.float32)


def loaded(function, **attributes):
    """The Ir of one call."""
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((3,), popxl.float32, name="x")
        y = function(ops.host_load(stream, "x"), **attributes)
        out = popxl.d2h_stream(y.shape, y.dtype, name="y")
        ops.host_store(out, y)
    return ir, stream, out


def test_X1_three_entries_give_the_same_ir(example, model, tmp_path):
    onnx.save(model(alpha=0.5), tmp_path / "m.onnx")
    with populus.Builder() as b:
        b.output("y", example.leaky_relu(b.input("x", (3,)), alpha=0.5))
    ir, _, _ = loaded(example.leaky_relu, alpha=0.5)
    assert str(populus.compile(tmp_path / "m.onnx").module("popart")) == str(b.module()) == str(ir.module())


@given(st.floats(-1, 1, width=32))
@settings(max_examples=50, deadline=None)
def test_X3_an_attribute_is_the_value_and_back(value):
    from pathlib import Path

    property = definition_of(extensions.read(Path(__file__).parents[2] / "examples" / "leaky_relu.py").module.LeakyReluOp).properties[
        "alpha"
    ]
    assert np.float32(plain(property.checked(value))) == np.float32(value)


def test_X4_the_example_is_at_most_forty_lines(root):
    assert len((root / "examples" / "leaky_relu.py").read_text().splitlines()) <= 40


@pytest.mark.parametrize("count", [0, 2])
def test_X5_the_number_of_inputs_is_the_definition_s(count, example):
    with populus.Builder() as b:
        x = b.input("x", (3,))
        message = "acme.leaky_relu takes x; 2 operands are given" if count else "acme.leaky_relu takes x; 0 operands are given"
        with pytest.raises(PopulusError, match=message):
            b.op(example.LeakyReluOp, *[x] * count)


@irdl_op_definition
class OpaqueOp(PopartOp):
    """`y = -x`. Source: a test."""

    name = "seeds.opaque"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self):
        return [tensor(shape_of(self.x.type), element_type_of(self.x.type))]

    def lower(self, b):
        return [calls.map(b, -Arg(1), self.x)]


def test_X7_an_op_without_a_gradient_is_not_differentiable():
    with populus.Builder() as b:
        b.output("y", b.op(OpaqueOp, b.input("x", (3,)), name="n")[0])
    assert populus.compile(b.module()).run({"x": X})["y"].tolist() == [1, 0, -2]
    with pytest.raises(NoGradient, match="'n': seeds.opaque has no gradient"):
        populus.vjp(b.module(), ["x"])


@pytest.mark.parametrize("level", ["popart", "popops", "poplar"])
def test_X11_at_a_tie_the_derivative_is_one_and_nan_takes_the_other_branch(level, example):
    with populus.Builder() as b:
        b.output("y", example.leaky_relu(b.input("x", (4,)), alpha=0.5))
    values, gradients = populus.vjp(b.module(), ["x"], level=level).run({"x": SPECIAL}, {"y": np.ones(4, np.float32)})
    assert gradients["x"].tolist() == [1, 1, 0.5, 0.5]  # NaN >= 0 is false
    assert values["y"].tobytes() == np.array([0.0, -0.0, np.nan, -0.5], np.float32).tobytes()


def test_X12_the_gradient_reads_the_gradient_and_the_input(example):
    with populus.Builder() as b:
        b.output("y", example.leaky_relu(b.input("x", (3,)), alpha=0.5))
    assert "(%x, %g)" in str(populus.vjp(b.module(), ["x"]).program.module("popart"))


def test_X14_a_tensor_of_another_graph_names_both(example):
    one, two = popxl.Ir(), popxl.Ir()
    with one.main_graph:
        x = ops.host_load(popxl.h2d_stream((3,), popxl.float32))
    with (
        two.main_graph,
        pytest.raises(PopulusError, match=f"belongs to graph '{one.main_graph.name}', not to graph '{two.main_graph.name}'"),
    ):
        example.leaky_relu(x)


def test_X14_the_call_is_the_op_s_place_and_hooks_are_told(example):
    seen = []
    ir = popxl.Ir()
    with ir.main_graph as graph:
        graph.hooks.append(lambda op: seen.append(op.name))
        line = inspect.currentframe().f_lineno + 1
        y = example.leaky_relu(ops.host_load(popxl.h2d_stream((3,), popxl.float32)))
    location = y.ssa.owner.location
    assert (location.filename.data, location.line.data) == (__file__, line)
    assert seen == ["acme.leaky_relu"]


def test_X15_an_edited_file_gives_other_results_without_a_restart(changed, model):
    path = changed()
    populus.load(path)
    try:
        assert populus.compile(model()).run({"x": X})["y"][0] == np.float32(-0.01)
        changed(("number(0.01", "number(0.25"))
        assert populus.compile(model()).run({"x": X})["y"][0] == np.float32(-0.25)
    finally:
        extensions.forget(path)


PROGRAM = """
from typing import Union
import numpy as np
import populus.popxl as popxl
import populus.popxl.ops as ops

from leaky_relu import leaky_relu


def build_and_run_graph(input_data: Union[float, np.ndarray], alpha: float) -> np.ndarray:
    # Creating a model with popxl
    ir = popxl.Ir()
    main = ir.main_graph
    input_array = np.array(input_data)
    with main:
        # host load
        input0 = popxl.h2d_stream(input_array.shape, popxl.float32, name="in_stream")
        a = ops.host_load(input0, "a")

        # custom leaky relu.
        o = leaky_relu(a, alpha=alpha)

        # host store
        o_d2h = popxl.d2h_stream(o.shape, o.dtype, name="out_stream")
        ops.host_store(o_d2h, o)

    with popxl.Session(ir, "ipu_model") as session:
        outputs = session.run({input0: input_array})

    print("ALPHA param:", alpha)
    print("INPUT data:", input_data)
    print("OUTPUT result:", outputs[o_d2h])

    return outputs[o_d2h]
"""


@pytest.mark.parametrize(
    ("data", "alpha", "expected"), [([-1.0, 0, 2.5], 0.1, [-0.1, 0, 2.5]), (-3.0, 0.5, -1.5), ([4.0, -4.0], 0.0, [4, 0])]
)
def test_X16_the_document_s_program_runs_with_its_import_changed(data, alpha, expected, root, tmp_path, monkeypatch, capsys):
    from importlib import import_module

    (tmp_path / "run_leaky_relu.py").write_text(PROGRAM)
    for folder in (tmp_path, root / "examples"):
        monkeypatch.syspath_prepend(folder)
    try:
        result = import_module("run_leaky_relu").build_and_run_graph(data, alpha)
    finally:
        for name in ("run_leaky_relu", "leaky_relu"):
            sys.modules.pop(name, None)
    assert result == pytest.approx(np.array(expected), abs=1e-7)
    assert f"ALPHA param: {alpha}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda ir, stream, out: popxl.Session(ir, "ipu"), "no device 'ipu'"),
        (
            lambda ir, stream, out: popxl.Session(ir).run({stream: X}),
            "the session is not attached to its device; run it inside `with session:`",
        ),
        (lambda ir, stream, out: popxl.Session(ir).__enter__().run({}), "input 'x' is missing"),
        (lambda ir, stream, out: popxl.Session(ir).__enter__().run({stream: X[:2]}), "input 'x' has shape"),
        (lambda ir, stream, out: popxl.Session(popxl.Ir()), "has no output"),
        (lambda ir, stream, out: popxl.h2d_stream((3,), popxl.float32), "no graph is being built"),
    ],
)
def test_X16_what_does_not_fit_is_one_line(wrong, message, example):
    with pytest.raises(PopulusError) as error:
        wrong(*loaded(example.leaky_relu))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_X16_a_store_of_another_type_is_refused():
    ir = popxl.Ir()
    with ir.main_graph:
        x = ops.host_load(popxl.h2d_stream((3,), popxl.float32))
        with pytest.raises(PopulusError, match=r"stream 'out' is float32 \[2\]; the tensor is float32 \[3\]"):
            ops.host_store(popxl.d2h_stream((2,), popxl.float32, "out"), x)


def test_X16_operators_are_ops():
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((3,), popxl.float32, "x")
        x = ops.host_load(stream)
        y = ops.relu(-(x * 2 - 1) / popxl.constant(2.0) + x)
        out = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(out, y)
    with popxl.Session(ir, "cpu", tiles=2, engine="strict") as session:
        assert session.run({stream: X})[out].tolist() == [0.5, 0.5, 0.5]


def test_X17_the_device_is_a_model_of_the_machine(example):
    ir, stream, _ = loaded(example.leaky_relu)
    session = popxl.Session(ir, "ipu_model")
    assert session.program.profile().target.name == "gc200"
    assert session.expected_inputs() == [stream]


def test_X2_forward_and_gradient_print_the_same_parameters(changed):
    module = built(extensions.read(changed(more=PAIR)).module.soft_clip, limit=0.5)
    text = str(populus.vjp(module, ["x"]).program.module("popart"))
    assert re.findall(r"acme.(soft_clip\w*) .*\{limit = 5.000000e-01 : f32\}", text) == ["soft_clip", "soft_clip_grad"]


def built(function, **attributes):
    with populus.Builder() as b:
        b.output("y", function(b.input("x", (3,)), **attributes))
    return b.module()


def test_X6_the_shape_rule_may_be_asked_again_after_every_pass(example):
    """`setup` may run at any time: PopART calls it again when an input's shape changes."""
    module = built(example.leaky_relu, alpha=0.5)
    op = next(o for o in module.walk() if isinstance(o, example.LeakyReluOp))
    op.x.owner.insert_arg(TensorType(op.x.type.element_type, [5]), 1)
    op.operands[0] = op.parent.args[1]
    assert [t.get_shape() for t in op.infer()] == [(5,)]
    assert [t.get_shape() for t in op.infer()] == [(5,)]
    program = populus.compile(built(example.leaky_relu, alpha=0.5), level="popart")
    program.pipeline.run(program.source.context(), program.module("popart").clone(), verify_each=True)


def test_X8_the_page_of_what_ops_state_is_made_from_the_code(tool, root):
    status, out, _ = tool("main", "docs-op", "--interface")
    assert status == 0

    def stated_in(page):
        return [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]

    assert stated_in((root / "docs/op-interface.md").read_text()) == stated_in(out)  # what reads it may change with any file
    rows = {line.split("|")[1].strip(" `"): line.split("|")[3] for line in out.splitlines() if line.startswith("| `")}
    assert "`popart-autodiff`" in rows["gradient"]
    assert "`popart-to-popops`" in rows["lower"]
    stated = {name for name, value in vars(PopartOp).items() if callable(value) and not name.startswith("_")}
    assert stated - {"get_irdl_definition", "irdl_definition", "parse", "print", "verify_"} <= rows.keys()  # which are of xDSL


def test_X9_a_lowering_is_grown_once_at_the_op_s_place(example):
    """`grow` is called for each op of its kind, in order, with its inputs there and its outputs to be set."""
    with populus.Builder() as b:
        one = example.leaky_relu(b.input("x", (3,)), alpha=0.5, name="one")
        b.output("y", example.leaky_relu(one, alpha=0.25, name="two"))
    module = populus.compile(b.module(), level="popops", pipeline="inference-plain").module("popops")
    assert [where(op) for op in module.walk() if op.name == "popops.map"] == ["'one'", "'two'"]


def test_X10_a_gradient_op_has_a_definition_a_page_and_the_right_values(changed, tool):
    path = changed(more=PAIR)
    status, out, _ = tool("main", "docs-op", "soft_clip_grad", "--load", path)
    assert status == 0
    assert r"$$y = 1 \, a \, (1 - \operatorname{tanh}(b) \, \operatorname{tanh}(b))$$" in out
    assert "Only passes create it." in out
    assert r"\frac{\partial L}{\partial x}" in tool("main", "docs-op", "leaky_relu")[1]
    module = built(extensions.read(path).module.soft_clip, limit=0.5)
    gradients = populus.vjp(module, ["x"]).run({"x": X}, {"y": np.ones(3, np.float32)})[1]["x"]
    assert gradients == pytest.approx(0.5 * (1 - np.tanh(X) ** 2), rel=1e-5)
    assert tool("main", "check-op", path)[0] == 0


def test_X19_the_page_compares_every_op_of_popxl_with_ours(root):
    assert (root / "docs/popxl-ops.md").read_text() == page.popxl_page()
    rows = page.popxl_ops()
    assert len(rows) >= 127
    names = {op.name.removeprefix("popart.") for op in POPART.operations}
    for row in rows:
        assert row.ours or row.note, row.name
        assert set(row.ours) <= names, row.name


def test_X18_calls_repeats_recomputation_and_gradients_take_an_op_of_one_s_own(example, model):
    shaped, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto
    body = onnx.helper.make_graph(
        [
            onnx.helper.make_node("LeakyRelu", ["v"], ["w"], domain="com.acme", alpha=-1.0),
            onnx.helper.make_node("Identity", ["go"], ["on"]),
        ],
        "turn",
        [shaped("i", kind.INT64, []), shaped("go", kind.BOOL, []), shaped("v", kind.FLOAT, [3])],
        [shaped("on", kind.BOOL, []), shaped("w", kind.FLOAT, [3])],
    )
    node = onnx.helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    trips = onnx.numpy_helper.from_array(np.array(200), "n")
    graph = onnx.helper.make_graph([node], "g", [shaped("x", kind.FLOAT, [3])], [shaped("y", kind.FLOAT, [3])], [trips])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.acme", 1)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    program = populus.compile(proto, tiles=2)
    assert "poplar.repeat" in str(program.module("poplar"))
    assert program.run({"x": X})["y"].tolist() == [1, 0, 2]
    gradients = populus.vjp(proto, ["x"], tiles=2)  # each turn is computed again on the way back
    assert gradients.run({"x": X}, {"y": np.ones(3, np.float32)})[1]["x"].tolist() == [-1, 1, 1]
    with populus.Builder() as b:
        x = b.input("x", (4, 4))
        for _ in range(3):
            x = example.leaky_relu(b.op("matmul", x, b.constant(np.eye(4, dtype=np.float32)))[0], alpha=0.5)
        b.output("y", x)
    outlined = Pipeline.named("inference").with_options("popart-outline", threshold=1.0)
    called = populus.compile(b.module(), tiles=2, pipeline=outlined)
    assert str(called.module("popops")).count("call @subgraph_0") == 3
    x = np.arange(-8, 8, dtype=np.float32).reshape(4, 4)
    assert called.run({"x": x})["y"].tolist() == np.where(x >= 0, x, x / 8).tolist()
