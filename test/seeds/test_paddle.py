"""Paddle's notes on operators, row by row."""

from __future__ import annotations

import ast
import inspect
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ops import cases, is_float
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import populus
from populus.dialects.diagnostics import PopulusError
from populus.dialects.element_types import dtype_of, element_type_of, shape_of
from populus.dialects.popart import POPART, PopartOp
from populus.dialects.popart.base import ElementwiseOp
from populus.dialects.popart.definition import definition_of
from populus.dialects.table import context
from populus.lowering import extensions
from populus.op_page import formulas, page
from populus.runtime.interpreter import run_function
from populus.runtime.session import Session

CASES = {c.id: c for c in cases()}


def test_F1_an_op_holds_operands_and_attributes_and_nothing_else():
    for case in CASES.values():
        for op in case.module().walk():
            assert not [n for n, v in vars(op).items() if isinstance(v, np.ndarray)], case.id
            if isinstance(op, PopartOp):
                again = type(op).create(operands=list(op.operands), properties=op.properties, result_types=[r.type for r in op.results])
                assert list(again.infer()) == list(op.infer()), case.id


def program(example, tiles=4):
    with populus.Builder() as b:
        b.output("y", example.leaky_relu(b.input("x", (64,)), alpha=0.5))
    return populus.compile(b.module(), tiles=tiles)


def test_F2_programs_of_one_machine_do_not_disturb_each_other(example):
    one, two = program(example), program(example)
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    first = one.run({"x": x})["y"]
    two.run({"x": -x})
    assert first.tobytes() == one.run({"x": x})["y"].tobytes()


def test_F3_programs_run_in_threads(example):
    programs = [program(example, tiles) for tiles in (1, 2, 4, 8)]
    arrays = [np.random.default_rng(i).normal(size=64).astype(np.float32) for i in range(4)]

    def work(i):
        return [programs[i].run({"x": arrays[i]})["y"] for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for array, outputs in zip(arrays, pool.map(work, range(4))):
            expected = np.where(array >= 0, array, np.float32(0.5) * array)
            assert all(o.tobytes() == expected.tobytes() for o in outputs)


IN_PLACE = """
poplar.graph @main target <host, tiles = 1> {
  %x = poplar.var "x" : !poplar.tensor<3xf32>
  poplar.execute "e" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (d0 = 3) on ()
      FIELDS
  }
}"""


def test_F18_memory_is_shared_only_where_that_is_declared():
    declared = "inout x1 = %x[d0] : !poplar.tensor<3xf32>"
    Parser(context(), IN_PLACE.replace("FIELDS", declared)).parse_module().verify()
    undeclared = "in x1 = %x[d0] : !poplar.tensor<3xf32>\n      out y = %x[d0] : !poplar.tensor<3xf32>"
    with pytest.raises(VerifyException, match="x1 overlaps y, which the family writes"):
        Parser(context(), IN_PLACE.replace("FIELDS", undeclared)).parse_module().verify()


@pytest.mark.parametrize(
    ("old", "part"), [("def forward", "lacks `forward`"), ('    """`y', "lacks a docstring"), ("@irdl_op_def", "lacks @irdl_op_def")]
)
def test_F6_an_incomplete_definition_names_what_it_lacks(old, part, changed):
    new = {"def forward": "def forwards", '    """`y': '    # """`y', "@irdl_op_def": "# @irdl_op_def"}[old]
    with pytest.raises(PopulusError, match=part):
        extensions.load(changed((old, new), ("leaky_relu = function_of(LeakyReluOp)", "")))


def test_F7_an_op_for_inference_needs_no_gradient(changed):
    path = changed(
        ("    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:\n        return select(g, self.alpha.value.data * g, x >= 0)\n", "")
    )
    assert extensions.load(path).definitions()[0].has_gradient  # from the formula


def test_F5_ops_that_hold_other_ops_run():
    from onnx import TensorProto, helper, numpy_helper

    shaped = helper.make_tensor_value_info
    turn = helper.make_graph(
        [helper.make_node("Add", ["v", "v"], ["w"]), helper.make_node("Identity", ["go"], ["on"])],
        "turn",
        [shaped("i", TensorProto.INT64, []), shaped("go", TensorProto.BOOL, []), shaped("v", TensorProto.FLOAT, [3])],
        [shaped("on", TensorProto.BOOL, []), shaped("w", TensorProto.FLOAT, [3])],
    )
    ways = {
        f"{way}_branch": helper.make_graph([helper.make_node(kind, ["doubled"], [way])], way, [], [shaped(way, TensorProto.FLOAT, [3])])
        for way, kind in (("then", "Neg"), ("else", "Relu"))
    }
    nodes = [helper.make_node("Loop", ["n", "true", "x"], ["doubled"], body=turn), helper.make_node("If", ["c"], ["y"], **ways)]
    constants = [numpy_helper.from_array(np.array(3), "n"), numpy_helper.from_array(np.array(True), "true")]
    inputs = [shaped("x", TensorProto.FLOAT, [3]), shaped("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [shaped("y", TensorProto.FLOAT, [3])], constants)
    program = populus.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10))
    x = np.array([-1, 0, 2], np.float32)
    assert program.run({"x": x, "c": np.array(True)})["y"].tolist() == [8, 0, -16]
    assert program.run({"x": x, "c": np.array(False)})["y"].tolist() == [0, 0, 16]


def test_F8_shapes_are_inferred_as_they_come_out():
    for case in CASES.values():
        module = case.module()
        op = next(o for o in module.walk() if isinstance(o, PopartOp))
        outputs = run_function(module, case.inputs)
        for result, array in zip(op.results, outputs.values()):
            assert (array.shape, array.dtype) == (shape_of(result.type), dtype_of(element_type_of(result.type))), case.id


def test_F9_a_gradient_may_be_several_ops(root):
    row_norm = extensions.load(root / "examples" / "row_norm.py").module.row_norm
    with populus.Builder() as b:
        b.output("y", row_norm(b.input("x", (1, 2))))
    gradients = populus.vjp(b.module(), ["x"])
    text = str(gradients.program.module("popart"))
    assert text.count("popops.reshape") == 2
    assert gradients.run({"x": np.array([[3, 4]], np.float32)}, {"y": np.array([5], np.float32)})[1]["x"][0].tolist() == pytest.approx(
        [3, 4]
    )


NO_RULE = '''

from populus.dialects.popart.base import PopartOp


@irdl_op_definition
class NoRuleOp(PopartOp):
    """`y = x`."""

    name = "acme.no_rule"
    x = operand_def(tensors("T", f32))
    y = result_def(tensors("T", f32))
'''


def test_F11_a_shape_rule_is_mandatory(changed):
    with pytest.raises(PopulusError, match=r"class NoRuleOp \(acme.no_rule\) lacks `infer`"):
        extensions.load(changed(more=NO_RULE))


WRITES_INPUT = """

from populus.dialects.poplar.tile_code import Vector, codelet


@codelet
def writes_its_input(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        x[i] = 2.0 * x[i]
        y[i] = x[i]
"""


def test_F15_tile_code_that_writes_its_input_is_refused(changed):
    with pytest.raises(PopulusError, match="codelet writes_its_input: one vector is to be written, found x, y"):
        extensions.load(changed(more=WRITES_INPUT))


def test_F15_a_run_leaves_its_inputs_as_they_are(example):
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    before = x.tobytes()
    program(example).run({"x": x})
    assert x.tobytes() == before


def test_F16_every_op_of_floats_runs_in_single_and_double_precision():
    for case in CASES.values():
        if not any(is_float(a) for a in case.inputs.values()) or any(not is_float(a) for a in case.inputs.values()):
            continue
        if any(a.dtype != np.float32 for a in case.inputs.values()):
            continue
        try:
            module = case.module(np.dtype(np.float64))
        except VerifyException:
            assert "bit" in case.id, case.id  # the bits of a double are no 32-bit integer
            continue
        double = run_function(module, {n: a.astype(np.float64) for n, a in case.inputs.items()})
        single = run_function(case.module(), case.inputs)
        for name, array in single.items():
            if array.dtype == np.float32:
                assert np.allclose(array, double[name], rtol=1e-3, atol=1e-4, equal_nan=True), case.id


def test_F25_many_small_maps_become_one(example):
    with populus.Builder() as b:
        x = b.input("x", (64,))
        for _ in range(5):
            x = example.leaky_relu(b.op("add", x, x)[0], alpha=0.5)
        b.output("y", x)
    plain, merged = (populus.compile(b.module(), tiles=4, pipeline=p).profile().compute_sets for p in ("inference-plain", "inference"))
    assert plain == 10
    assert merged <= 3  # no expression outgrows 64 functions


def test_F27_any_order_of_vertices_gives_the_same_bits():
    with populus.Builder() as b:
        x = b.input("x", (37, 41))
        b.output("y", b.op("reduce_sum", b.op("exp", x)[0], axes=(0, 1))[0])
    module = populus.compile(b.module(), tiles=16).module("poplar")
    x = np.random.default_rng(0).normal(size=(37, 41)).astype(np.float32)
    sums = {Session(module, engine="strict", seed=seed).run({"x": x})["y"].tobytes() for seed in range(20)}
    assert len(sums) == 1
    assert Session(module).run({"x": x})["y"].tobytes() in sums


def test_F29_no_error_is_without_a_message(root):
    for folder in ("dialects", "lowering", "runtime", "tools", "populus"):
        for path in (root / folder).rglob("*.py"):
            if any(part.is_symlink() for part in path.parents):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and getattr(node.exc.func, "id", "") == "PopulusError":
                    assert node.exc.args, f"{path}:{node.lineno}"
                    first = node.exc.args[0]
                    assert not (isinstance(first, ast.Constant) and not first.value), f"{path}:{node.lineno}"


def test_F31_inputs_come_first_and_the_name_last(example):
    for function in (
        example.leaky_relu,
        populus.function_of(type(next(o for o in CASES["conv_plain"].module().walk() if isinstance(o, PopartOp)))),
    ):
        kinds = [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]
        positional = [k for _, k in kinds].count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        assert [k for _, k in kinds[:positional]] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * positional
        assert kinds[-1] == ("name", inspect.Parameter.KEYWORD_ONLY)


def test_F30_every_op_has_a_formula_and_its_page_shows_it(tool):
    ops = [definition_of(op) for op in POPART.operations if issubclass(op, PopartOp)]
    assert not [d.op.name for d in ops if not d.formula]
    for d in ops:
        assert f"`{d.formula}`" in " ".join(page(d).split()) or d.formula in page(d), d.op.name
    elementwise = [d for d in ops if issubclass(d.op, ElementwiseOp) and not any(p.required for p in d.properties.values())]
    assert not [d.op.name for d in elementwise if not formulas(d)]
    assert r"$$y = \max(x, 0)$$" in tool("main", "docs-op", "relu")[1]
