"""Paddle's notes on operators, row by row."""

from __future__ import annotations

import ast
import inspect
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import populus
from helpers.op_cases import cases, is_float
from helpers.op_files import KERNELS
from populus.dialects.popart import POPART, PopartOp
from populus.dialects.popart.base import ElementwiseOp
from populus.dialects.popart.definition import definition_of
from populus.dialects.popart.sparse import DenseOp, MergeOp, PartsOp, RowsOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.dialects.table import context
from populus.lowering.driver import extensions
from populus.lowering.driver.pipeline import Pipeline
from populus.runtime.interpreter import run_function
from populus.runtime.session import Session
from populus.write.op_page import formulas, page

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
        extensions.read(changed((old, new), ("leaky_relu = function_of(LeakyReluOp)", "")))


def test_F7_an_op_for_inference_needs_no_gradient(changed):
    path = changed(("    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:\n        return select(g, self.alpha * g, x >= 0)\n", ""))
    assert extensions.read(path).definitions()[0].has_gradient  # from the formula


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
    row_norm = extensions.read(root / "examples" / "row_norm.py").module.row_norm
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
        extensions.read(changed(more=NO_RULE))


WRITES_INPUT = """

from populus.dialects.poplar.tile_code import Vector, codelet


@codelet
def writes_its_input(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        x[i] = 2.0 * x[i]
        y[i] = x[i]
"""


def test_F15_tile_code_that_writes_its_input_is_refused(changed):
    with pytest.raises(
        PopulusError,
        match=r"codelet writes_its_input: `x\[i\]` is read before it is written; an output is written first, and an input is never written",
    ):
        extensions.read(changed(more=WRITES_INPUT))


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


def test_F2_machines_share_what_they_compiled():
    """One context for each place: two sessions on this CPU have one library of machine code between them."""
    from populus.runtime.engine.native.codegen.jit import library

    assert library() is library()
    with populus.Builder() as b:
        x = b.input("x", (6,))
        b.output("y", b.op("exp", b.op("add", x, x)[0])[0])
    one, two = (populus.compile(b.module(), engine="native") for _ in range(2))
    x = np.arange(6, dtype=np.float32)
    assert one.run({"x": x})["y"].tobytes() == two.run({"x": x})["y"].tobytes()
    assert one.session._program is not two.session._program


def test_F4_a_kernel_is_forced_and_the_choice_is_shown(changed, tool, tmp_path):
    path = changed(more=KERNELS)
    with populus.Builder() as b:
        b.output("y", extensions.read(path).module.leaky_relu(b.input("x", (1, 3, 2, 2)), alpha=0.5, name="n"))
    (tmp_path / "m.mlir").write_text(str(b.module()))

    def chosen(options):
        return tool("populus_opt", tmp_path / "m.mlir", "--load", path, "-p", f"acme-select-kernels{{{options}}}")

    for force, said in (
        ("blocked", "acme.leaky_relu: blocked: 3 cycles in (blocked 8 at 1)"),
        ("both", "acme.leaky_relu: both: 10.8 cycles in (planar)"),
    ):
        status, _, found = chosen(f'force="leaky_relu:{force}" explain=true')
        assert status == 0
        assert said in found
    # without a choice by name: the cheapest that fits, then what remains, the op's own lowering
    assert "acme.leaky_relu: both: " in chosen("explain=true")[2]
    status, _, errors = chosen('force="leaky_relu:winograd"')
    assert status == 1
    assert "acme.leaky_relu has no kernel 'winograd' to be forced; there are blocked, both, own" in errors


def test_F20_a_gradient_keeps_what_it_reads_and_no_more(example):
    """Nothing is kept by default: of relu's gradient the result, of exp's the result, of add's nothing."""
    with populus.Builder() as b:
        x = b.input("x", (8,))
        b.output("y", b.op("add", b.op("exp", x, name="exp")[0], b.op("relu", x, name="relu")[0])[0])
    report = populus.vjp(b.module(), ["x"]).kept()
    assert [(k.name, k.bytes) for k in report.kept] == [("exp", 32), ("relu", 32)]


def test_F10_what_is_kept_for_the_backward_pass_is_reported_with_its_reader(example):
    with populus.Builder() as b:
        x, w = b.input("x", (4, 8)), b.input("w", (8, 8))
        h = b.op("matmul", x, w, name="product")[0]
        b.output("y", b.op("mul", b.op("tanh", h, name="squash")[0], x, name="gate")[0])
    gradients = populus.vjp(b.module(), ["x", "w"])
    report = gradients.kept()
    assert {k.name: (k.bytes, k.readers) for k in report.kept} == {
        "x": (128, ("'gate'", "'product'")),
        "w": (256, ("'product'",)),
        "squash": (128, ("'gate'", "'squash'")),
    }
    assert report.bytes == 512
    assert report.default_bytes == 4 * (32 + 64 + 32 + 32 + 32)  # every operand and result of every op
    assert report.bytes < report.default_bytes
    assert "squash: 128 bytes, read by 'gate', 'squash'" in str(report)


USE_AFTER_FREE = """
poplar.graph @main target <host, tiles = 1> {
  %x = poplar.var "x" on [4] at 0 : !poplar.tensor<4xf32>
  %a = poplar.var "a" on [4] at 64 : !poplar.tensor<4xf32>
  %b = poplar.var "b" on [4] at ADDRESS : !poplar.tensor<4xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<4xf32>
  poplar.execute "a" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (d0 = 4) on ()
      in x1 = %x[d0] : !poplar.tensor<4xf32>
      out y = %a[d0] : !poplar.tensor<4xf32>
  }
  poplar.execute "b" {
    poplar.family @map {expr = #expr.fn<add(_1, 1.0)>} for (d0 = 4) on ()
      in x1 = %x[d0] : !poplar.tensor<4xf32>
      out y = %b[d0] : !poplar.tensor<4xf32>
  }
  poplar.stream_out %a to "a" : !poplar.tensor<4xf32>
  poplar.stream_out %b to "b" : !poplar.tensor<4xf32>
}"""


def test_F21_memory_that_is_given_away_while_it_is_needed_is_found():
    x = np.arange(4, dtype=np.float32)
    good = Parser(context(), USE_AFTER_FREE.replace("ADDRESS", "128")).parse_module()
    assert Session(good, engine="strict").run({"x": x})["a"].tolist() == [0, -1, -2, -3]
    bad = Parser(context(), USE_AFTER_FREE.replace("ADDRESS", "64")).parse_module()
    for engine in ("numpy", "strict", "native"):
        with pytest.raises(PopulusError, match="'b' and 'a' have bytes of a tile in common at step 2, when both are needed"):
            Session(bad, engine=engine)


def test_F22_synchronisations_are_counted():
    with populus.Builder() as b:
        x = b.input("x", (64, 64))
        b.output("y", b.op("relu", b.op("matmul", x, b.op("transpose", x, permutation=(1, 0))[0])[0])[0])
    program = populus.compile(b.module(), target="gc200", tiles=4)
    profile = program.profile()
    per_sync = profile.target.sync_cycles
    counts = {s.kind: s.sync // per_sync for s in profile.steps}
    assert all(s.sync % per_sync == 0 for s in profile.steps)
    assert counts["execute"] >= 1
    for s in profile.steps:
        if s.kind == "execute":  # what brings elements from other tiles waits for them too
            assert s.sync // per_sync == 1 + (s.bytes > 0)
    assert profile.summary["sync_cycles"] == per_sync * sum(s.sync // per_sync * s.count for s in profile.steps)


def test_F23_an_op_is_measured_against_what_it_took_before(changed, tool, tmp_path):
    path = changed(("alpha: float = number", "EXAMPLES: ClassVar = [([(2, 16, 8, 8)], {})]\n    alpha: float = number"))
    baseline = tmp_path / "cycles.json"
    status, out, _ = tool("main", "bench-op", path, "--baseline", baseline, "--write")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["acme.leaky_relu"]
    assert tool("main", "bench-op", path, "--baseline", baseline)[0] == 0
    import json

    cycles = json.loads(baseline.read_text())
    baseline.write_text(json.dumps({**cycles, "acme.leaky_relu": cycles["acme.leaky_relu"] / 2}))
    status, _, errors = tool("main", "bench-op", path, "--baseline", baseline)
    assert status == 1
    assert "1 ops are slower by more than 5%: acme.leaky_relu" in errors


def test_F24_two_shapes_are_planned_in_two_ways():
    def axes(*shapes):
        with populus.Builder() as b:
            b.output("y", b.op("matmul", *(b.input(n, s) for n, s in zip("ab", shapes)))[0])
        text = str(populus.compile(b.module(), target="gc200", tiles=16).module("poplar"))
        return re.search(r"@matmul .*for \((.*?)\) on", text).group(1)

    wide, deep = axes((512, 64), (64, 512)), axes((4, 8192), (8192, 4))
    assert not re.search(r"\bk = \d+ in ", wide)  # each tile has all of the sum
    assert re.search(r"\bk = \d+ in \d+", deep)  # the sum is shared, and partial results are added


def test_F17_signatures_are_those_that_were_promised(tool, root):
    """Whoever adds an attribute without a default, or takes one away, reads it here; what only adds is written with --write."""
    status, _, errors = tool("main", "check-compat", root / "test/seeds/data/signatures.json")
    assert (status, errors) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "said", "breaks"),
    [
        ("alpha: float = number", "beta: float = number()\n    alpha: float = number", "attribute 'beta' is new and has no default", True),
        ("alpha: float = number", "beta: float = number(1.0)\n    alpha: float = number", "attribute 'beta' is new", False),
        ("number(0.01", "number(0.02", "the default of 'alpha' was 1.000000e-02 : f32, and is 2", True),
        ("high=1", "high=2", "'alpha' allowed float, -1 .. 1, and allows float, -1 .. 2", True),
        ("f16, f32, f64)", "f16, f32)", "operand 'x' was of f16, f32, f64, and is of f16, f32", True),
        ('LeakyRelu", 1)', 'LeakyRelu", (1, 2))', "its ONNX identity was", False),
        ('LeakyRelu", 1)', 'LeakyRelu", 2)', "its ONNX identity was", True),
        ("acme.leaky_relu", "acme.leaky", "acme.leaky_relu: is gone", True),
    ],
)
def test_F17_changes_of_a_definition_are_classified(old, new, said, breaks, changed, tool, tmp_path):
    before = tmp_path / "old.json"
    assert tool("main", "check-compat", before, "--load", changed(), "--write")[0] == 0
    status, out, errors = tool("main", "check-compat", before, "--load", changed((old, new)))
    assert status == int(breaks)
    assert said in out
    assert ("changes break what was there" in errors) == breaks


def test_F28_the_program_s_order_is_one_and_the_spread_of_others_is_reported(tool, tmp_path):
    with populus.Builder() as b:
        x = b.input("x", (37, 41))
        b.output("sum", b.op("reduce_sum", b.op("exp", x)[0], axes=(0, 1))[0])
        b.output("largest", b.op("reduce_max", x, axes=(0, 1))[0])
    program = populus.compile(b.module(), tiles=16)
    x = np.random.default_rng(0).normal(size=(37, 41)).astype(np.float32)
    sums = {Session(program.module("poplar"), engine="strict", seed=seed).run({"x": x})["sum"].tobytes() for seed in range(20)}
    assert len(sums) == 1  # as it always is: sums are made in the order that the program states
    spread = program.spread({"x": x})
    assert 0 < spread["sum"] < 1e-5  # other orders differ by their rounding
    assert spread["largest"] == 0
    (tmp_path / "m.mlir").write_text(str(b.module()))
    status, out, _ = tool("main", "run", tmp_path / "m.mlir", "--shuffle-orders", "5")
    assert status == 0
    assert "largest: 5 orders of its sums are within 0 of its largest element" in out


def test_F26_anchors_are_fetched_as_often_as_is_asked_for(example):
    from populus import popart

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    (y,) = builder.customOp(opName="LeakyRelu", opVersion=1, domain="com.acme", inputs=[x], attributes={"alpha": 0.5})
    builder.addOutputTensor(y)
    batches = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)
    expected = np.where(batches >= 0, batches, batches / 2)
    cases = {
        ("All", 1): (expected, 48),
        ("EveryN", 2): (expected[1::2], 24),
        ("Final", 1): (expected[3], 12),
        ("Sum", 1): (expected.sum(0), 12),
    }
    for (kind, n), (values, fetched) in cases.items():
        flow = popart.DataFlow(4, {y: popart.AnchorReturnType(kind, n)})
        session = popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice())
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: batches}, anchors))
        assert anchors[y].tolist() == values.tolist()
        assert session.fetched_bytes == fetched
        with pytest.raises(PopulusError, match=r"has shape \[3\]; 4 batches are expected"):
            session.run(popart.PyStepIO({x: batches[0]}, anchors))
    with pytest.raises(PopulusError, match="there is no AnchorReturnType 'Last'; there are"):
        popart.AnchorReturnType("Last")


def looked_up(passes: str, element: str = "float64", tied: bool = False):
    """Rows of `table` [6, 3] by `indices` [4], times `c` and summed, behind passes; where `tied`, something else reads the table too."""
    with populus.Builder() as b:
        table, indices, c = b.input("table", (6, 3), element), b.input("indices", (4,), "int64"), b.input("c", (4, 3), element)
        rows = b.op("mul", b.op("gather", table, indices, axis=0)[0], c)[0]
        if tied:
            rows = b.op("concat", rows, b.op("relu", table)[0], axis=0)[0]
        b.output("loss", b.op("reduce_sum", rows, axes=(0, 1), keep=False)[0])
    module = b.module()
    Pipeline.from_text(passes).run(context(), module)
    return module


SPARSE = "popart-autodiff{loss=loss sparse=table}"
TWICE = np.array([4, 1, 4, -2])  # -2 is 4 too
C = np.arange(1, 13, dtype=np.float64).reshape(4, 3)


NUMBERS, ROWS = np.array([4, 1, 4, 4, -1]), np.arange(15, dtype=np.float32).reshape(5, 3)


def of_rows(*ends):
    """A model that makes a sparse value of rows and their numbers, and gives what `ends` make of it."""
    with populus.Builder() as b:
        (s,) = b.op(RowsOp, b.input("numbers", (5,), "int64"), b.input("rows", (5, 3)), size=6, name="made")
        for i, end in enumerate(ends):
            for j, v in enumerate(end(b, s)):
                b.output(f"y{i}{j}", v)
    return b.module()


def merged(b, s):
    return b.op(MergeOp, s)


@pytest.mark.parametrize("level", ["popart", "popops", "poplar"])
def test_F12_a_sparse_value_is_of_one_type_and_merged(level):
    module = of_rows(
        lambda b, s: b.op(PartsOp, merged(b, s)[0]), lambda b, s: b.op(DenseOp, s), lambda b, s: b.op(DenseOp, merged(b, s)[0])
    )
    got = populus.compile(module, level=level, tiles=2).run({"numbers": NUMBERS, "rows": ROWS})
    assert got["y00"].tolist() == [4, 1, -1, -1, -1]
    assert got["y01"].tolist() == [[15, 18, 21], [3, 4, 5], *[[0, 0, 0]] * 3]
    expected = np.zeros((6, 3), np.float32)
    np.add.at(expected, NUMBERS[:4], ROWS[:4])
    assert got["y10"].tolist() == got["y20"].tolist() == expected.tolist()


def test_F12_an_infinite_row_stays_its_own():
    rows = ROWS.copy()
    rows[1] = np.inf
    module = of_rows(lambda b, s: b.op(DenseOp, merged(b, s)[0]))
    for level in ("popart", "poplar"):
        got = populus.compile(module, level=level, tiles=2).run({"numbers": NUMBERS, "rows": rows})["y00"]
        assert (got[1] == np.inf).all()
        assert np.isfinite(got[[0, 2, 3, 4, 5]]).all()


def test_F13_what_is_dense_refuses_a_sparse_value():
    with pytest.raises(PopulusError, match=r"popart.relu: operand 'x' at position 0 does not verify"):
        of_rows(lambda b, s: b.op("relu", s))
    with pytest.raises(PopulusError, match=r"'y00' is !popart.sparse<5, .*; a program's inputs and outputs are tensors"):
        populus.compile(of_rows(lambda b, s: [s]), level="popops")


def test_F14_a_sparse_value_has_the_full_shape():
    (made,) = [op for op in of_rows(lambda b, s: b.op(DenseOp, s)).walk() if isinstance(op, RowsOp)]
    assert shape_of(made.s.type) == (6, 3)
    assert str(made.s.type) == "!popart.sparse<5, tensor<6x3xf32>>"


@pytest.mark.parametrize("element", ["float32", "float64"])
def test_F12_a_gradient_is_of_all_elements_or_of_rows_and_their_numbers(element):
    inputs = {"table": np.zeros((6, 3), element), "indices": TWICE, "c": C.astype(element)}
    dense, sparse = (run_function(looked_up(f"popart-autodiff{{loss=loss {which}=table}}", element), inputs) for which in ("wrt", "sparse"))
    assert list(dense) == ["loss", "Gradient___table"]
    assert list(sparse) == ["loss", "Rows___table", "Gradient___table"]
    rows, values = sparse["Rows___table"], sparse["Gradient___table"]
    assert (rows.tolist(), rows.dtype) == ([4, 1, 4, 4], np.int64)
    assert values.tolist() == C.tolist()  # one for each time that a row was looked up
    assert values.dtype == dense["Gradient___table"].dtype == np.dtype(element)
    summed = np.zeros((6, 3), element)
    np.add.at(summed, rows, values)
    assert summed.tolist() == dense["Gradient___table"].tolist()


def test_F13_what_is_dense_has_no_gradient_of_rows():
    with pytest.raises(PopulusError, match="'table' is read by popart.relu too, not only looked up by rows, so its gradient is not sparse"):
        looked_up(SPARSE, tied=True)
    with pytest.raises(PopulusError, match="nothing looks up rows of 'c', so its gradient|'c' is read by popart.mul too"):
        looked_up("popart-autodiff{loss=loss sparse=c}")


def test_F13_what_wants_all_elements_refuses_a_gradient_of_rows():
    with pytest.raises(PopulusError, match="lamb scales by the norm of a whole weight, so the rows of 'table' cannot move alone"):
        looked_up(f"{SPARSE}, popart-optimize{{optimizer=lamb}}")


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_F14_what_rows_become_part_of_has_the_full_shape(optimizer):
    signature = populus.compile(looked_up(f"{SPARSE}, popart-optimize{{optimizer={optimizer}}}"), level="popart").signature
    for name, type in signature.outputs.items():
        if name != "loss" and not name.endswith("___step"):
            assert (name, shape_of(type)) == (name, (6, 3))


@pytest.mark.parametrize("level", ["popart", "poplar"])
def test_F19_rows_that_are_there_twice_are_one_before_parameter_and_velocity_move(level):
    program = populus.compile(looked_up(f"{SPARSE}, popart-optimize{{optimizer=momentum}}"), tiles=4, level=level)
    g = np.random.default_rng(19)
    table, velocity = g.normal(size=(6, 3)), g.normal(size=(6, 3))
    hyper = {"rate": 0.5, "decay": 0.1, "momentum": 0.9, "damping": 0.0}
    state = {"State___table___velocity": velocity, "State___table___step": np.array(1.0)}
    scalars = {f"Hyper___{n}": np.array(v) for n, v in hyper.items()}
    found = program.run({"table": table, "indices": TWICE, "c": C, **state, **scalars})
    expected, moved = table.copy(), velocity.copy()
    for row, gradient in {4: C[0] + C[2] + C[3], 1: C[1]}.items():
        moved[row] = 0.9 * velocity[row] + gradient + 0.1 * table[row]
        expected[row] -= 0.5 * moved[row]
    np.testing.assert_allclose(found["Updated___table"], expected, rtol=1e-12)
    np.testing.assert_allclose(found["State___table___velocity"], moved, rtol=1e-12)
    others = [0, 2, 3, 5]
    assert found["Updated___table"][others].tobytes() == table[others].tobytes()
    assert found["State___table___velocity"][others].tobytes() == velocity[others].tobytes()


def test_F19_a_step_by_rows_is_the_dense_one():
    step = "popart-autodiff{{loss=loss {}=table}}, popart-optimize{{optimizer=sgd}}"
    inputs = {"table": C[:2].repeat(3, 0), "indices": TWICE, "c": C, "Hyper___rate": np.array(0.5), "Hyper___decay": np.array(0.0)}
    dense, sparse = (run_function(looked_up(step.format(which)), inputs)["Updated___table"] for which in ("wrt", "sparse"))
    np.testing.assert_allclose(sparse, dense, rtol=1e-12)
