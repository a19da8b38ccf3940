"""PopART's custom operators, row by row: each test does what the row's check says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from xdsl.parser import Parser

import populus
from helpers.node_models import node_models
from helpers.op_cases import cases
from helpers.op_files import DROPOUT, KERNEL_SELECTION, NO_LOWERING, PAIR
from populus.dialects.base.tensor_op import HIGH_VALUE
from populus.dialects.expr import Arg
from populus.dialects.onnx.types import as_tensor, from_proto
from populus.dialects.popart import NoGradient, PopartOp
from populus.dialects.popart.base import UnaryOp
from populus.dialects.popops import MapOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver import extensions
from populus.lowering.driver.program_cache import ProgramCache, signature_module
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.onnx.infer_shapes import OnnxInferShapesPass
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.inplace import PopartInplacePass
from populus.lowering.popart.outline import PopartOutlinePass
from populus.lowering.popart.seed import PopartSeedPass
from populus.runtime.interpreter import run_function

X = np.array([-1, 0, 2], np.float32)
SECOND = '''

@irdl_op_definition
class Leaky2Op(UnaryOp):
    """`y = x - 1`. Source: a second version."""

    name = "acme.leaky_relu_2"
    ONNX: ClassVar = ("com.acme", "LeakyRelu", 2)

    def forward(self, x: Expr) -> Expr:
        return x - 1


second = function_of(Leaky2Op)
'''
NO_GRADIENT = """

from collections.abc import Sequence

from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp


@irdl_op_definition
class TwiceOp(PopartOp):
    \"\"\"`y = 2 x`. Source: a test.\"\"\"

    name = "acme.twice"
    T: ClassVar = tensors("T", f32)
    x = operand_def(T)
    y = result_def(T)

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        from populus.dialects.expr import Arg

        return [calls.map(b, 2 * Arg(1), self.x)]


twice = function_of(TwiceOp)
"""


def built(function, shape=(3,), dtype="float32", **attributes):
    with populus.Builder() as b:
        b.output("y", function(b.input("x", shape, dtype), **attributes))
    return b.module()


def test_P2_an_op_without_a_gradient_runs_and_says_that_it_has_none(changed):
    path = changed(more=NO_GRADIENT)
    module = built(populus.load(path).module.twice)
    extensions.forget(path)
    assert populus.compile(module).run({"x": X})["y"].tolist() == [-2, 0, 4]
    with pytest.raises(
        NoGradient, match=r"acme.twice has no gradient; leave it out of what is differentiated or give its class `gradient`"
    ):
        populus.vjp(module, ["x"])


def test_P3_two_versions_of_one_op_lower_differently(changed):
    module = extensions.read(changed(more=SECOND)).module
    with populus.Builder() as b:
        x = b.input("x", (3,))
        b.output("one", module.leaky_relu(x, alpha=0.5))
        b.output("two", module.second(x))
    maps = [str(op.expr.data) for op in populus.compile(b.module(), level="popops").module("popops").walk() if isinstance(op, MapOp)]
    assert maps == ["select(_1, mul(0.5, _1), gte(_1, 0))", "sub(_1, 1)"]


def test_P4_an_identity_is_taken_once_and_onnx_s_own_only_on_purpose(changed, model, example):
    other = changed(('"acme.leaky_relu"', '"acme.other"'))
    with pytest.raises(
        PopulusError, match=r"own.py: acme.other is ONNX's LeakyRelu-1 of com.acme, which acme.leaky_relu of .*leaky_relu.py is too"
    ):
        populus.compile(model(), load=[other])
    with pytest.raises(PopulusError, match="the domain 'ai.onnx' is not yours"):
        extensions.read(changed(('"com.acme"', '"ai.onnx"')))
    own = changed(
        ('("com.acme", "LeakyRelu", 1)', '("ai.onnx", "LeakyRelu", 16)\n    OVERRIDES: ClassVar = True'),
        ("acme.l", "own.l"),
        ("* x, x", "* x - 1, x"),
    )
    assert populus.compile(model(domain="", version=20, alpha=0.5), load=[own]).run({"x": X})["y"].tolist() == [-1.5, 0, 2]


def test_P5_the_builder_calls_it_and_knows_the_nearest_name(example):
    module = built(example.leaky_relu, alpha=0.5)
    assert "acme.leaky_relu %x {alpha = 5.000000e-01 : f32}" in str(module)
    assert populus.compile(module).run({"x": X})["y"].tolist() == [-0.5, 0, 2]
    with pytest.raises(PopulusError, match="there is no op 'leaky_rela'; did you mean 'leaky_relu'?"), populus.Builder() as b:
        b.op("leaky_rela", b.input("x", (3,)))


def test_P6_a_file_and_the_builder_give_the_same_ir(example, model, tmp_path):
    onnx.save(model(alpha=0.5), tmp_path / "m.onnx")
    assert str(populus.compile(tmp_path / "m.onnx").module("popart")) == str(built(example.leaky_relu, alpha=0.5))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"alpha": 7.0}, "'n': LeakyRelu: acme.leaky_relu: 'alpha' is 7.0; float, -1 .. 1 is allowed"),
        ({"alpha": "x"}, "'n': LeakyRelu: acme.leaky_relu: 'alpha' is 'x'; float, -1 .. 1 is allowed"),
        ({"beta": 1.0}, "'n': LeakyRelu: acme.leaky_relu has no attribute 'beta'; there are alpha"),
    ],
)
def test_P8_attributes_are_checked_by_the_definition(node, message, example, model):
    with pytest.raises(PopulusError, match=re.escape(message)):
        populus.compile(model(**node))


def test_P8_inputs_are_checked_by_the_definition(example, model):
    m = model()
    m.graph.node[0].input.append("x")
    with pytest.raises(PopulusError, match="'n': LeakyRelu: acme.leaky_relu takes x; 2 operands are given"):
        populus.compile(m)


MIXED = '''

from populus.dialects.popart.base import BinaryOp


@irdl_op_definition
class MeanOp(BinaryOp):
    """`y = (a + b) / 2`. Source: a test."""

    name = "acme.mean"
    U: ClassVar = tensors("U", f16, f32)
    a = operand_def(U)
    b = operand_def(U)

    def forward(self, a: Expr, b: Expr) -> Expr:
        return (a + b) * 0.5


mean = function_of(MeanOp)
'''


def test_P9_one_type_variable_is_one_type_of_those_allowed(changed):
    mean = extensions.read(changed(more=MIXED)).module.mean
    with populus.Builder() as b:
        half, single, byte = b.input("a", (2,), "float16"), b.input("b", (2,)), b.input("c", (2,), "int8")
        mean(single, single)
        with pytest.raises(PopulusError, match="acme.mean: .*mixes element types f16, f32"):
            mean(half, single)
        with pytest.raises(PopulusError, match=r"acme.mean: .*the element type is i8; it is one of f16, f32"):
            mean(byte, byte)


def test_P10_a_default_is_filled_in(example, model):
    op = next(o for o in populus.compile(model()).module("popart").walk() if o.name == "acme.leaky_relu")
    assert op.alpha == pytest.approx(0.01)


def test_P11_one_definition_is_several_versions(changed, model):
    path = changed(('"LeakyRelu", 1)', '"LeakyRelu", (1, 6))'))
    for version in (1, 6):
        assert populus.compile(model(version=version, alpha=0.5), load=[path]).run({"x": X})["y"].tolist() == [-0.5, 0, 2]


def test_P15_a_clone_prints_the_same_and_stands_alone(example):
    module = built(example.leaky_relu, alpha=0.5)
    copy = module.clone()
    assert str(copy) == str(module)
    op = next(o for o in copy.walk() if o.name == "acme.leaky_relu")
    op.properties["alpha"] = type(op)(op.x, alpha=0.25).properties["alpha"]
    assert "2.5" in str(copy)
    assert "2.5" not in str(module)


CASES = {c.id: c for c in cases()}


def test_P16_inference_changes_nothing_however_often_it_runs():
    for case in CASES.values():
        module = case.module()
        before = str(module)
        for op in module.walk():
            if isinstance(op, PopartOp):
                assert list(op.infer()) == list(op.infer()) == [r.type for r in op.results], case.id
        assert str(module) == before, case.id


def test_P19_gradients_of_one_formula_and_of_several_ops_are_right(tool, root):
    for name in ("leaky_relu", "row_norm"):
        status, out, _ = tool("main", "check-op", root / "examples" / f"{name}.py")
        assert status == 0
        assert "central differences agree" in out


def test_P20_the_wiring_of_a_gradient_shows_and_a_wrong_one_is_refused(changed, example):
    text = str(populus.vjp(built(example.leaky_relu, alpha=0.5), ["x"]).program.module("popart"))
    assert "popops.map <select(_2, mul(0.5, _2), gte(_1, 0))>(%x, %g)" in text
    path = changed(("return select(g, self.alpha * g, x >= 0)", "return [g, g]"))
    module = extensions.read(path).module
    with pytest.raises(PopulusError, match="its `backward` gives 2 gradients for 1 operands"):
        populus.vjp(built(module.leaky_relu), ["x"])


def test_P21_what_comes_from_several_uses_is_added(example):
    with populus.Builder() as b:
        x = b.input("x", (3,))
        b.output("y", b.op("add", example.leaky_relu(x, alpha=0.5), example.leaky_relu(x, alpha=0.25))[0])
    gradients = populus.vjp(b.module(), ["x"])
    assert "popart.add" in str(gradients.program.module("popart")).partition("return")[0].rpartition("gte(_2")[2]
    assert gradients.run({"x": X}, {"y": np.ones(3, np.float32)})[1]["x"].tolist() == [0.75, 2, 2]


def test_P26_every_output_is_set_once_and_a_tile_op_knows_its_node(changed, model, example):
    program = populus.compile(model())
    family = next(op for op in program.module("poplar").walk() if op.name == "poplar.family")
    assert family.location.desc.data == "n"
    for returned in ("[]", "[self.x, self.x]"):
        path = changed(
            ("    def forward", f"    def lower(self, b):\n        return {returned}\n\n    def forward"),
            ("acme.l", "own.l"),
            ("com.acme", "own"),
        )
        with pytest.raises(PopulusError, match="'n': own.leaky_relu: its lowering gives .* make `lower` and `infer` agree"):
            populus.compile(model(domain="own"), load=[path])


def test_P27_expressions_are_text_and_run_and_in_place_is_declared():
    text = """
    func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %y = popops.map <select(_1, mul(_1, 0.5), gte(_1, 0.0))>(%x) : (tensor<3xf32>) -> tensor<3xf32>
      func.return %y : tensor<3xf32>
    }"""
    module = Parser(context(), text).parse_module()
    assert str(Parser(context(), str(module)).parse_module()) == str(module)
    assert populus.compile(module).run({"x": X})["output_0"].tolist() == [-0.5, 0, 2]
    undeclared = """
    poplar.graph @main target <host, tiles = 1> {
      %x = poplar.var "x" : !poplar.tensor<3xf32>
      poplar.execute "e" {
        poplar.family @map {expr = #expr.fn<neg(_1)>} for (d0 = 3) on ()
          in x1 = %x[d0] : !poplar.tensor<3xf32>
          out y = %x[d0] : !poplar.tensor<3xf32>
      }
    }"""
    with pytest.raises(Exception, match="x1 overlaps y, which the family writes"):
        Parser(context(), undeclared).parse_module().verify()


def test_P29_the_gradient_agrees_in_single_and_double_precision(example):
    g = {"float32": 1e-6, "float64": 1e-12}
    for dtype, tolerance in g.items():
        x = np.linspace(-2, 2, 9).astype(dtype)
        gradients = populus.vjp(built(example.leaky_relu, (9,), dtype, alpha=0.1), ["x"])
        slope = gradients.run({"x": x}, {"y": np.full(9, 3, dtype)})[1]["x"]
        assert slope == pytest.approx(np.where(x >= 0, 3, 0.3), rel=tolerance, abs=1e-7)


def test_P30_onnx_s_checker_accepts_a_model_with_it(example, model):
    onnx.checker.check_model(model(alpha=0.1), full_check=True)
    with pytest.raises(onnx.checker.ValidationError, match="Unrecognized attribute: beta"):
        onnx.checker.check_model(model(beta=0.1), full_check=True)


def test_P32_the_domain_s_versions_are_known_to_onnx(changed, model):
    path = changed(('("com.acme", "LeakyRelu", 1)', '("org.versions", "LeakyRelu", (1, 3))'), ("acme.l", "versions.l"))
    populus.load(path)
    extensions.forget(path)
    assert [onnx.defs.get_schema("LeakyRelu", v, "org.versions").since_version for v in (1, 2, 3)] == [1, 1, 3]
    onnx.checker.check_model(model(domain="org.versions", version=3), full_check=True)


def test_P34_a_file_is_loaded_by_a_flag_and_asked_for_without_it(tool, model, root, tmp_path):
    onnx.save(model(alpha=0.5), tmp_path / "m.onnx")
    down = "onnx-infer-shapes,onnx-to-popart"
    status, out, _ = tool("populus_opt", tmp_path / "m.onnx", "-p", down, "--load", root / "examples" / "leaky_relu.py")
    assert status == 0
    assert "acme.leaky_relu %x" in out
    status, _, errors = tool("populus_opt", tmp_path / "m.onnx", "-p", down)
    assert status == 1
    assert "there is no op LeakyRelu in the custom domain 'com.acme'; give the file that defines it with --load FILE.py" in errors


def test_P35_a_small_network_with_it_learns(example):
    from onnx import TensorProto, helper, numpy_helper

    g = np.random.default_rng(0)
    weights = {"w1": g.normal(size=(2, 8)) * 0.7, "w2": g.normal(size=(8, 2)) * 0.7}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("LeakyRelu", ["h"], ["a"], domain="com.acme", alpha=0.1),
        helper.make_node("MatMul", ["a", "w2"], ["y"]),
    ]
    shaped = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [shaped("x", TensorProto.FLOAT, ["n", 2])], [shaped("y", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()],
    )  # fmt: skip
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)], ir_version=10)
    x = g.normal(size=(32, 2)).astype(np.float32)
    labels = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    losses: list[float] = []
    populus.train(network, {"x": x, "labels": labels}, lr=0.05, batch=32, epochs=40, report=lambda p: losses.append(p.loss))
    assert losses[-1] < 0.5 * losses[0]


def test_P36_no_pass_names_an_op_and_the_pipeline_takes_any(root, example):
    names = {op.name for op in (type(o) for c in CASES.values() for o in c.module().walk()) if issubclass(op, PopartOp)}
    own = {"popart.add"}  # the sum of gradients
    for path in sorted((root / "lowering").glob("*.py")):
        text = path.read_text()
        assert not {n for n in names - own if f'"{n}"' in text}, path
    program = populus.compile(built(example.leaky_relu, alpha=0.5), target="gc200", tiles=4, engine="strict")
    assert program.run({"x": X})["y"].tolist() == [-0.5, 0, 2]


def test_P36_it_costs_no_more_than_a_built_in_op(example):
    with populus.Builder() as b:
        b.output("y", b.op("leaky_relu", b.input("x", (3,)), alpha=0.5)[0])
    own, built_in = (populus.compile(m, tiles=4) for m in (built(example.leaky_relu, alpha=0.5), b.module()))
    count = [sum(1 for _ in p.module("poplar").walk()) for p in (own, built_in)]
    assert count[0] == count[1]
    assert own.profile().summary == built_in.profile().summary


@pytest.mark.parametrize("alpha", [0.1, 0, -0.5])
def test_P35_the_document_s_program_runs(alpha, example):
    import populus.popart as popart

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    output = builder.customOp(opName="LeakyRelu", opVersion=1, domain="com.acme", inputs=[x], attributes={"alpha": alpha})[0]
    builder.addOutputTensor(output)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 4})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, {output: popart.AnchorReturnType("All")}), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: X}, anchors))
    assert anchors[output] == pytest.approx(np.where(X >= 0, X, np.float32(alpha) * X))


def test_P17_an_attribute_changes_the_hash_and_a_name_does_not(example):
    base = populus.content_hash(built(example.leaky_relu, alpha=0.5))
    assert populus.content_hash(built(example.leaky_relu, alpha=0.25)) != base
    assert populus.content_hash(built(example.leaky_relu, alpha=0.5, name="other")) == base


def test_P14_an_attribute_is_a_field(example):
    with populus.Builder() as b:
        made = example.leaky_relu(b.input("x", (3,)), alpha=0.5).owner
    assert isinstance(made, UnaryOp)
    assert made.alpha == 0.5
    assert str(made.forward(Arg(1))) == "select(_1, mul(0.5, _1), gte(_1, 0))"


def test_P7_what_pytorch_exports_runs_and_trains_a_step(example, root):
    data = np.load(root / "test/seeds/data/torch_leaky_relu.npz")
    path = root / "test/seeds/data/torch_leaky_relu.onnx"
    assert "acme.leaky_relu" in str(populus.compile(path).module("popart"))
    assert populus.compile(path).run({"x": data["x"]})["y"] == pytest.approx(data["y"], rel=1e-5, abs=1e-6)
    trained = populus.train(path, {"x": data["x"], "labels": data["labels"]}, optimizer="sgd", lr=0.5, batch=5, epochs=1)
    before = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
    for name, weight in before.items():
        expected = weight - np.float32(0.5) * data[f"gradient.{name}"]
        assert trained.weights[name] == pytest.approx(expected, rel=1e-4, abs=1e-6), name


def test_P13_a_model_cannot_name_an_op_that_passes_make(changed, model):
    path = changed(more=PAIR)
    node = model("SoftClipGrad")
    node.graph.node[0].input.append("x")
    with pytest.raises(PopulusError, match="'n': SoftClipGrad: acme.soft_clip_grad is internal: passes make it"):
        populus.compile(node, load=[path])
    text = (
        "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n"
        "  %y = acme.soft_clip_grad %x, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\n  func.return %y : tensor<3xf32>\n}"
    )
    ctx = context()
    extensions.read(path).register(ctx)
    Parser(ctx, text).parse_module().verify()


def test_P31_our_inference_and_onnx_s_agree_on_all_node_tests():
    known = 0
    for name, proto in node_models().items():
        if "_expanded" in name:  # those are the same ops' functions, which C1 takes there and back
            continue
        try:
            module = import_onnx(proto)
            OnnxInferShapesPass().apply(context(), module)
        except PopulusError:
            continue
        bare = onnx.ModelProto()
        bare.CopyFrom(proto)
        for output in bare.graph.output:
            output.type.Clear()
        theirs = [from_proto(o.type) for o in onnx.shape_inference.infer_shapes(bare, data_prop=True).graph.output]
        returned = module.body.block.first_op.body.block.last_op
        if len(theirs) != len(returned.operands):  # a sequence, whose elements are outputs here
            continue
        for ours, other in zip((o.type for o in returned.operands), theirs):
            if (ranked := as_tensor(other)) is None:
                continue
            assert ours.element_type == ranked.element_type, name
            assert len(ours.get_shape()) == len(ranked.get_shape()), name
            assert all(n in (m, -1) or n < 0 for n, m in zip(ranked.get_shape(), ours.get_shape())), (name, ours, other)
            known += all(n >= 0 for n in ranked.get_shape())
    assert known >= 1300


def row_norms(root: Path, cut: str) -> populus.Program:
    """Norms of the rows of what a map makes, with a codelet of the user's."""
    symbol = populus.load(root / "examples" / "row_norm.py").module.row_norm_vertex.symbol
    properties = f"{{params = {{}}, outputs = [tensor<64xf32>]{cut}}}"
    text = f"""
    func.func @main(%x: tensor<64x48xf32>) -> tensor<64xf32> {{
      %a = popops.map <mul(_1, 2.0)>(%x) : (tensor<64x48xf32>) -> tensor<64x48xf32>
      %y = popops.codelet "{symbol}"(%a) {properties} : (tensor<64x48xf32>) -> tensor<64xf32>
      func.return %y : tensor<64xf32>
    }}"""
    return populus.compile(Parser(context(), text).parse_module(), target="gc200", tiles=16, engine="strict")


def test_P28_a_codelet_works_where_its_operand_lies_or_in_the_parts_that_are_asked_for(root):
    unwound, forced = row_norms(root, ""), row_norms(root, ", parts = {row = 4 : i64}")
    x = np.random.default_rng(0).standard_normal((64, 48)).astype("f4")
    assert unwound.run({"x": x})["output_0"].tobytes() == forced.run({"x": x})["output_0"].tobytes()
    assert unwound.profile().summary["exchange_bytes"] == 0
    assert forced.profile().summary["exchange_bytes"] == 15 * 4 * 48 * 4  # of the 64 rows one tile has its four already
    assert "row = 64 in 16" in str(unwound.module("poplar"))
    assert "row = 64 in 4" in str(forced.module("poplar"))
    assert '"x" on [64 in 16, 48] order [0]' in str(unwound.module("poplar"))  # the input's mapping is its reader's


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ("column = 4", "is to have 4 parts of axis column; its vertices may share row"),
        ("row = 65", "is to have 65 parts of axis row, which has 64 elements"),
        ("row = 0", "is to have 0 parts of axis row, which has 64 elements"),
        ("row = 32", "is to have 32 parts of axis row, 32 in all; gc200 has 16 tiles, each of which runs one"),
    ],
)
def test_P28_a_layout_that_cannot_be_is_one_line(root, cut, message):
    with pytest.raises(PopulusError, match=f"codelet row_norm_vertex {message}"):
        row_norms(root, f", parts = {{{cut} : i64}}")


LOWERED_APART = f"""

from dataclasses import dataclass

from populus.dialects.popart import calls
from populus.lowering.driver.extensions import read

kernels = read({str(KERNEL_SELECTION)!r}).module


class ReverseOnGc200(kernels.Kernel):
    op, name, targets = ReverseOp, "back", ("gc200",)

    def lower(self, b, op, operands, config):
        return [calls.reverse(b, operands[0], [0])]


@dataclass(frozen=True)
class AcmeSelectKernelsPass(kernels.SelectKernelsPass):
    name = "acme-select-kernels"
    KERNELS: ClassVar = (ReverseOnGc200,)
"""


def test_P1_what_an_op_is_stands_apart_from_how_a_target_computes_it(changed):
    extension = extensions.read(changed(more=NO_LOWERING))
    module = built(extension.module.reverse)
    ctx = context()
    extension.register(ctx)
    assert str(Parser(ctx, str(module)).parse_module()) == str(module)
    assert populus.compile(module, level="popart", load=[extension.path]).run({"x": X})["y"].tolist() == [2, 0, -1]
    with pytest.raises(PopulusError, match="no tile lowering for acme.reverse on target bow"):
        populus.compile(module, target="bow", load=[extension.path])
    apart = extensions.read(changed(more=NO_LOWERING + LOWERED_APART, name="apart.py"))
    module, chosen = built(apart.module.reverse), apart.module.kernels.inference(select=apart.module.AcmeSelectKernelsPass)
    program = populus.compile(module, target="gc200", tiles=2, load=[apart.path], pipeline=chosen)
    assert program.run({"x": X})["y"].tolist() == [2, 0, -1]
    with pytest.raises(PopulusError, match="no kernel computes acme.reverse: back: it is for gc200; own: acme.reverse has no `lower`"):
        populus.compile(module, target="bow", load=[apart.path], pipeline=chosen)


def test_P12_a_lowering_is_bound_to_the_ops_that_it_names(changed):
    extension = extensions.read(changed(more=NO_LOWERING + LOWERED_APART))
    other = next(o for o in built(extension.module.leaky_relu).walk() if isinstance(o, PopartOp))
    back = extension.module.ReverseOnGc200()
    assert extension.module.kernels.Candidates.of(other, [back], None).choices[0].kernel.name == "own"
    with pytest.raises(PopulusError, match="acme.leaky_relu has no kernel 'back'"):
        extension.module.kernels.Candidates.of(other, [back], None, "back")
    with pytest.raises(AssertionError, match="kernel back is for acme.reverse, and is asked about acme.leaky_relu"):
        back.refusal(other, None)


def calls_of(module, **options):
    from xdsl.dialects.func import CallOp

    PopartOutlinePass(**options).apply(context(), module)
    return [op.callee.root_reference.data for op in module.walk() if isinstance(op, CallOp)]


def layers(example, *alphas):
    with populus.Builder() as b:
        x = b.input("x", (4, 4))
        for i, alpha in enumerate(alphas):
            w = b.constant(np.full((4, 4), i + 1, np.float32))
            x = example.leaky_relu(b.op("matmul", x, w)[0], alpha=alpha)
        b.output("y", x)
    return b.module()


def test_P18_what_is_equal_in_function_is_outlined_together(example, changed):
    assert calls_of(layers(example, 0.5, 0.5)) == ["subgraph_0", "subgraph_0"]
    module = layers(example, 0.5, 0.5, 0.25)
    assert calls_of(module) == ["subgraph_0"] * 3  # the products alone are alike in all three
    assert [op.alpha for op in module.walk() if op.name == "acme.leaky_relu"] == [0.5, 0.5, 0.25]
    note = '    OUTLINE_IGNORES: ClassVar = ("note",)\n    note = number(0.0)\n    name = "acme'
    ignoring = extensions.read(changed(('    name = "acme', note))).module
    with populus.Builder() as b:
        x = b.input("x", (4, 4))
        for note in (1.0, 2.0):
            x = ignoring.leaky_relu(b.op("matmul", x, x)[0], alpha=0.5, note=note)
        b.output("y", x)
    assert calls_of(b.module()) == ["subgraph_0", "subgraph_0"]


def test_P22_what_an_op_is_worth_steers_outlining(example, changed, capsys):
    def chain(function):
        with populus.Builder() as b:
            x = b.input("x", (4, 4))
            for _ in range(2):
                for alpha in (0.5, 0.25):
                    x = function(x, alpha=alpha)
                x = b.op("transpose", x, permutation=(1, 0))[0]
            b.output("y", x)
        return b.module()

    worth = f'    OUTLINE_VALUE: ClassVar = {HIGH_VALUE}\n    name = "acme'
    dear = extensions.read(changed(('    name = "acme', worth))).module.leaky_relu
    assert calls_of(chain(example.leaky_relu), threshold=100.0) == []
    assert calls_of(chain(dear), threshold=100.0, statistics=True) == ["subgraph_0", "subgraph_0"]
    assert re.search(r"popart-outline: @subgraph_0: \d+ ops, 2 calls, saved \d+", capsys.readouterr().err)


def test_P23_an_op_s_seed_is_threaded_by_a_pass(changed):
    noise = extensions.read(changed(more=DROPOUT)).module.noise
    with populus.Builder() as b:
        x, seed = b.input("x", (64,)), b.constant(np.array([7, 9], np.uint32))
        b.output("one", noise(x, seed))
        b.output("two", noise(x, seed))
    module = b.module()
    PopartSeedPass().apply(context(), module)
    x = np.ones(64, np.float32)

    def run(module, words, **more):
        return run_function(module, {"x": x, "Seed": np.array(words, np.uint32), **more})

    first, again, other = run(module, [1, 2]), run(module, [1, 2]), run(module, [1, 3])
    assert first["one"].tobytes() == again["one"].tobytes()
    assert first["one"].tobytes() != other["one"].tobytes()
    assert first["one"].tobytes() != first["two"].tobytes()
    assert set(first["one"].tolist()) == {0.0, 2.0}
    PopartAutodiffPass(wrt=("x",), outputs=("one",)).apply(context(), module)
    found = run(module, [1, 2], Gradient___one=np.ones(64, np.float32))
    assert found["Gradient___x"].tobytes() == found["one"].tobytes()  # the forward mask, drawn again


def cached(module, folder, **more):
    """A program, and whether it was on disk."""
    program = populus.compile(module, tiles=2, cache=folder, **more)
    return program, not program.timings


def test_P17_a_second_compilation_is_a_hit_and_an_attribute_misses(example, tmp_path):
    def module(**more):
        with populus.Builder() as b:
            x = b.op("matmul", b.input("x", (3, 3)), b.constant(np.arange(9, dtype=np.float32).reshape(3, 3) * 100))[0]
            b.output("y", example.leaky_relu(x, **more))
        return b.module()

    x = np.arange(-4, 5, dtype=np.float32).reshape(3, 3)
    first, hit = cached(module(alpha=0.5), tmp_path)
    assert not hit
    for again in (module(alpha=0.5), module(alpha=0.5, name="renamed")):
        program, hit = cached(again, tmp_path)
        assert hit
        assert program.run({"x": x})["y"].tobytes() == first.run({"x": x})["y"].tobytes()
        assert str(program.module("poplar")) == str(first.module("poplar"))
        assert program.signature == first.signature
        assert program.run_at("popart", {"x": x})["y"].tobytes() == first.run({"x": x})["y"].tobytes()
    assert not cached(module(alpha=0.25), tmp_path)[1]
    assert not cached(module(alpha=0.5), tmp_path, target="gc200")[1]
    assert not cached(module(alpha=0.5), tmp_path, pipeline="inference-plain")[1]


def test_P17_another_definition_misses(changed, tmp_path, model):
    folder = tmp_path / "cache"
    path = changed()
    assert [cached(model(alpha=0.5), folder, load=[path])[1] for _ in range(2)] == [False, True]
    changed(("return select(x, ", "return select(2 * x, "))
    program, hit = cached(model(alpha=0.5), folder, load=[path])
    assert not hit
    assert program.run({"x": X})["y"].tolist() == [-0.5, 0, 4]


def test_P17_what_is_not_whole_is_not_taken_and_writers_do_not_meet(example, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with populus.Builder() as b:
        x = b.op("matmul", b.input("x", (20, 20)), b.constant(np.arange(400, dtype=np.float32).reshape(20, 20)))[0]
        b.output("y", example.leaky_relu(x, alpha=0.5))
    module, x = b.module(), np.eye(20, dtype=np.float32)
    expected = cached(module, tmp_path / "none")[0].run({"x": x})["y"]
    folder = tmp_path / "torn"
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cached(module, folder)[0].run({"x": x})["y"], range(8)))
    assert all(y.tobytes() == expected.tobytes() for y in found)
    files = sorted(folder.iterdir())
    assert [f.suffix for f in files] == [".program", ".safetensors"]
    for file in files:
        whole = file.read_bytes()
        for torn in (whole[: len(whole) // 2], b"", whole[:-9] + b"123456789"):
            file.write_bytes(torn)
            program, hit = cached(module, folder)
            assert not hit
            assert program.run({"x": x})["y"].tobytes() == expected.tobytes()
        assert cached(module, folder)[1]


def test_P17_the_least_recently_used_go_first(example, tmp_path):
    import os

    modules = [built(example.leaky_relu, alpha=alpha) for alpha in (0.125, 0.25, 0.5)]
    for i, module in enumerate(modules[:2]):
        cached(module, tmp_path)
        for file in tmp_path.iterdir():
            if file.stat().st_mtime > 1e6:
                os.utime(file, (i + 1, i + 1))
    size = sum(f.stat().st_size for f in tmp_path.iterdir())
    program, signature = (populus.compile(modules[2], tiles=2).module(level) for level in ("poplar", "popart"))
    ProgramCache(tmp_path, limit=size + 10).put("c" * 64, program, signature_module(signature))
    assert [cached(m, tmp_path)[1] for m in modules[1::-1]] == [True, False]


PREFERS = '''

from populus.dialects.popart.base import BinaryOp


@irdl_op_definition
class BlendOp(BinaryOp):
    """`y = (a + 3 b) / 4`. Source: a test."""

    name = "acme.blend"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return (a + 3 * b) * 0.25

    def inplace_priority(self):
        return [(0, FIRST), (1, SECOND)]


blend = function_of(BlendOp)
'''


def marked(module):
    """(the op's name, the operand that it overwrites, its alpha)"""
    PopartInplacePass().apply(context(), module)
    return [
        (op.name, op.attributes["inplace"].value.data, op.properties.get("alpha"))
        for op in module.walk()
        if "inplace" in op.attributes and op.name in ("acme.blend", "acme.leaky_relu", "popart.add")
    ]


@pytest.mark.parametrize(("first", "second", "chosen"), [(10, 5, [0]), (5, 10, [1]), (0, 1, [1]), (0, 0, [])])
def test_P24_the_operand_of_highest_priority_is_overwritten(first, second, chosen, changed):
    blend = extensions.read(changed(more=PREFERS.replace("FIRST", str(first)).replace("SECOND", str(second)))).module.blend
    with populus.Builder() as b:
        x = b.input("x", (8,))
        b.output("y", blend(b.op("exp", x)[0], b.op("abs", x)[0]))
    assert [operand for _, operand, _ in marked(b.module())] == chosen
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    program = populus.compile(b.module(), tiles=2, engine="strict")
    assert program.run({"x": x})["y"] == pytest.approx((np.exp(x) + 3 * abs(x)) / 4, rel=1e-6)


def test_P25_an_op_that_overwrites_is_the_op_with_its_parameters(example):
    with populus.Builder() as b:
        x = b.input("x", (8,))
        a, c = b.op("exp", x)[0], b.op("abs", x)[0]
        left = b.op("add", a, x)[0]  # the left operand alone is free, and here the right one
        right = b.op("add", x, c)[0]
        b.output("y", example.leaky_relu(b.op("mul", left, right)[0], alpha=0.5))
    found = marked(b.module())
    assert [(name, operand) for name, operand, _ in found] == [("popart.add", 0), ("popart.add", 1), ("acme.leaky_relu", 0)]
    assert found[2][2].value.data == 0.5
