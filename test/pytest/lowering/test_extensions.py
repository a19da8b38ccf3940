"""Ops of a user's file: every way in, and every mistake a line that names file, op and part."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

import populus
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.target import PRESETS, make_target
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver import extensions, sources

EXAMPLE = Path(__file__).parents[3] / "examples" / "leaky_relu.py"
X = np.array([[-1, 0, 1], [2, -3, -0.0]], np.float32)


def model(domain="com.acme", version=1, kind="LeakyRelu", dtype=T.FLOAT, **attributes):
    node = helper.make_node(kind, ["x"], ["y"], name="n", domain=domain, **attributes)
    shaped = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [shaped("x", dtype, [2, 3])], [shaped("y", dtype, ["a", "b"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(domain, version)], ir_version=10)


@pytest.fixture
def example():
    return populus.load(EXAMPLE).module


def changed(tmp_path, *pairs, name="own.py"):
    text = EXAMPLE.read_text()
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_same_op_from_onnx_builder_and_text_is_the_same_program(example, tmp_path):
    with populus.Builder() as b:
        b.output("y", example.leaky_relu(b.input("x", (2, 3)), alpha=0.1))
    built, imported = b.module(), populus.compile(model(alpha=0.1)).module("popart")
    assert str(built) == str(imported)
    assert populus.content_hash(built) == populus.content_hash(imported)
    (tmp_path / "m.mlir").write_text(str(built))
    assert str(populus.compile(tmp_path / "m.mlir").module("popart")) == str(built)


def test_a_file_that_is_only_given_to_compile_is_known_there_alone():
    assert populus.compile(model(alpha=0.5), load=[EXAMPLE]).run({"x": X})["y"].tolist() == [[-0.5, 0, 1], [2, -1.5, -0.0]]
    with pytest.raises(
        PopulusError, match="there is no op LeakyRelu in the custom domain 'com.acme'; give the file that defines it with load='FILE.py'"
    ):
        populus.compile(model(alpha=0.5))


def test_onnx_checks_and_infers_the_op(example):
    onnx.checker.check_model(model(alpha=0.1), full_check=True)
    unknown = model()
    unknown.graph.output[0].type.tensor_type.ClearField("shape")
    shape = onnx.shape_inference.infer_shapes(unknown, strict_mode=True).graph.output[0].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [2, 3]


@pytest.mark.parametrize(("attributes", "dtype"), [({"alpha": "s"}, T.FLOAT), ({"beta": 1.0}, T.FLOAT), ({}, T.INT32)])
def test_onnx_refuses_what_the_definition_refuses(attributes, dtype, example):
    with pytest.raises((onnx.checker.ValidationError, onnx.shape_inference.InferenceError)):
        onnx.checker.check_model(model(dtype=dtype, **attributes), full_check=True)


def test_a_function_of_an_op_has_its_signature(example):
    assert str(inspect.signature(example.leaky_relu)) == "(x: 'Value', *, alpha: 'float' = 0.01, name: 'str' = '')"
    assert example.leaky_relu.__doc__.startswith("`y = x where x >= 0")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, x, f: f(x, alpha=3.0), "acme.leaky_relu: 'alpha' is 3.0; float, -1 .. 1 is allowed"),
        (lambda b, x, f: f(x, alpha="s"), "acme.leaky_relu: 'alpha' is 's'; float, -1 .. 1 is allowed"),
        (lambda b, x, f: f(x, beta=1.0), "acme.leaky_relu: got an unexpected keyword argument 'beta'; it is leaky_relu(x:"),
        (lambda b, x, f: f(), "acme.leaky_relu: missing a required argument: 'x'"),
        (lambda b, x, f: f(b.input("i", (2,), "int32")), "the element type is i32; it is one of f16, f32, f64"),
        (lambda b, x, f: b.op("leaky_rel", x), "there is no op 'leaky_rel'; did you mean 'leaky_relu'?"),
        (lambda b, x, f: b.op("add", x), "popart.add takes a, b; 1 operand is given"),
        (lambda b, x, f: b.op("softmax", x), "popart.softmax needs the attribute 'axis' (int)"),
        (lambda b, x, f: b.op("reshape", x, shape=(4, 4)), "popart.reshape: "),
        (
            lambda b, x, f: b.op("relu", populus.Builder("other").input("z", (1,))),
            "operand 0 belongs to graph 'other', not to graph 'main'",
        ),
        (lambda b, x, f: b.input("x", ()), "graph 'main' has an input 'x' already"),
        (lambda b, x, f: b.input("o", (), "object"), "dtype object has no element type"),
        (lambda b, x, f: b.module(), "graph 'main' has no output"),
    ],
)
def test_what_cannot_be_built_is_one_line(call, message, example):
    with populus.Builder() as b:
        x = b.input("x", (2, 3))
        with pytest.raises(PopulusError) as error:
            call(b, x, example.leaky_relu)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_outside_of_a_graph_a_function_says_so(example):
    with pytest.raises(PopulusError, match="no graph is being built; call this inside `with populus"):
        example.leaky_relu(None)


def test_an_op_without_a_name_is_where_it_was_called(example):
    with populus.Builder() as b:
        b.output("y", example.leaky_relu(b.input("x", (2,))))
    op = next(op for op in b.module().walk() if op.name == "acme.leaky_relu")
    assert op.location.filename.data == __file__


def test_hooks_are_told_of_each_op(example):
    seen: list[str] = []
    with populus.Builder() as b:
        b.hooks.append(lambda op: seen.append(op.name))
        b.op("relu", example.leaky_relu(b.input("x", (2,))))
    assert seen == ["acme.leaky_relu", "popart.relu"]


def test_an_edited_file_is_read_again(tmp_path):
    path = changed(tmp_path)
    populus.load(path)
    try:
        assert populus.compile(model()).run({"x": X})["y"][0, 0] == np.float32(-0.01)
        changed(tmp_path, ("number(0.01", "number(0.25"))
        assert populus.compile(model()).run({"x": X})["y"][0, 0] == np.float32(-0.25)
    finally:
        extensions.forget(path)


TWO = '''

@irdl_op_definition
class SecondOp(UnaryOp):
    """`y = 2 x`."""

    name = "acme.second"
    ONNX: ClassVar = ("com.acme", "LeakyRelu", {version})

    def forward(self, x: Expr) -> Expr:
        return 2 * x
'''


def test_of_two_versions_the_model_s_is_taken(tmp_path):
    path = tmp_path / "two.py"
    path.write_text(EXAMPLE.read_text() + TWO.format(version="(3, 4)"))
    first, third, fifth = (populus.compile(model(version=v), load=[path]) for v in (2, 3, 5))
    assert [p.run({"x": X})["y"][0, 0].item() for p in (first, third, fifth)] == pytest.approx([-0.01, -2, -2])
    path.write_text(EXAMPLE.read_text().replace('"LeakyRelu", 1', '"LeakyRelu", 9') + TWO.format(version=3))
    with pytest.raises(PopulusError, match="'n': LeakyRelu: the model states version 2 of 'com.acme'; LeakyRelu is there from version 3"):
        populus.compile(model(version=2), load=[path])


def test_an_op_of_onnx_s_own_is_overridden_when_that_is_said(tmp_path):
    path = changed(
        tmp_path,
        ('("com.acme", "LeakyRelu", 1)', '("", "LeakyRelu", 16)\n    OVERRIDES: ClassVar = True'),
        ("* x, x >= 0", "* x - 1, x >= 0"),
    )
    assert populus.compile(model("", 20, alpha=0.5), load=[path]).run({"x": X})["y"][0, 0] == -1.5


NEGATED = '''

@irdl_op_definition
class NegatedOp(UnaryOp):
    """`y = -x`, where ONNX says otherwise."""

    name = "acme.negated"
    ONNX: ClassVar = ("", "{kind}", {version})
    OVERRIDES: ClassVar = True
    T: ClassVar = tensors("T", f32, i64)
    x = operand_def(T)
    y = result_def(T)

    def forward(self, x: Expr) -> Expr:
        return -x
'''


def overridden(tmp_path, kind, version):
    """A file with an op of -x that takes the place of one of ONNX's."""
    path = changed(tmp_path, ("import f16, f32, f64", "import f16, f32, f64, i64"), name=f"{kind.lower()}.py")
    path.write_text(path.read_text() + NEGATED.format(kind=kind, version=version))
    return path


@pytest.mark.parametrize(("kind", "version"), [("Relu", 14), ("Abs", 13), ("Identity", 19), ("Floor", 13)])
def test_an_overriding_op_is_taken_where_its_operands_are_constants(kind, version, tmp_path):
    """Where the node would be folded: by what it becomes, or by the arithmetic of shapes."""
    shaped = helper.make_tensor_value_info
    nodes = [helper.make_node(kind, ["c"], ["d"], name="n"), helper.make_node("Add", ["x", "d"], ["y"])]
    c = helper.make_tensor("c", T.FLOAT, [2], [2, -3])
    made = helper.make_graph(nodes, "g", [shaped("x", T.FLOAT, [2])], [shaped("y", T.FLOAT, [2])], [c])
    m = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    program = populus.compile(m, load=[overridden(tmp_path, kind, version)])
    assert program.run({"x": np.zeros(2, np.float32)})["y"].tolist() == [-2, 3]
    assert program.run_at("popart", {"x": np.zeros(2, np.float32)})["y"].tolist() == [-2, 3]


def test_an_overriding_op_is_taken_where_a_shape_follows_from_it(tmp_path):
    shaped = helper.make_tensor_value_info
    nodes = [helper.make_node("Abs", ["c"], ["d"], name="n"), helper.make_node("Reshape", ["x", "d"], ["y"])]
    c = helper.make_tensor("c", T.INT64, [2], [1, -2])
    made = helper.make_graph(nodes, "g", [shaped("x", T.FLOAT, [2, 3])], [shaped("y", T.FLOAT, ["a", "b"])], [c])
    m = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert populus.compile(m, load=[overridden(tmp_path, "Abs", 13)]).run({"x": X})["y"].shape == (3, 2)
    with pytest.raises(PopulusError):  # ONNX's is [1, 2], which 6 elements do not fit
        populus.compile(m)


def test_an_overriding_op_of_what_is_valid_in_part_is_refused(tmp_path):
    """Of ONNX's own it is known how elements that do not count pass through."""
    shaped = helper.make_tensor_value_info
    nodes = [helper.make_node("Compress", ["x", "c"], ["z"], axis=0), helper.make_node("Relu", ["z"], ["y"], name="n")]
    graph = helper.make_graph(nodes, "g", [shaped("x", T.FLOAT, [3]), shaped("c", T.BOOL, [3])], [shaped("y", T.FLOAT, ["k"])])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    given = {"x": np.array([1, -2, 3], np.float32), "c": np.array([True, True, False])}
    assert populus.compile(m).run(given)["y"].tolist() == [1, 0]
    with pytest.raises(PopulusError, match="'n': Relu.*: the size of what it reads depends on the data; acme.negated is not among"):
        populus.compile(m, load=[overridden(tmp_path, "Relu", 14)])


def test_an_op_that_holds_graphs_is_not_overridden(tmp_path):
    shaped = helper.make_tensor_value_info
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["z"])], "b", [], [shaped("z", T.FLOAT, [2])])
    node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=branch, else_branch=branch)
    inputs = [shaped("x", T.FLOAT, [2]), shaped("c", T.BOOL, [])]
    m = helper.make_model(
        helper.make_graph([node], "g", inputs, [shaped("y", T.FLOAT, [2])]), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    with pytest.raises(PopulusError, match="'n': If.*: acme.negated takes the place of If, which holds graphs; only ops without can be"):
        populus.compile(m, load=[overridden(tmp_path, "If", 19)])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("def forward", "def forwards")], "class LeakyReluOp (acme.leaky_relu) lacks `forward`"),
        ([("@irdl_op_definition", "")], "class LeakyReluOp (acme.leaky_relu) lacks @irdl_op_definition above it"),
        ([('"acme.leaky_relu"', '"leaky_relu"')], "class LeakyReluOp: `name` is 'leaky_relu'; a dialect and a name are expected"),
        (
            [('"LeakyRelu", 1)', '"LeakyRelu")')],
            "class LeakyReluOp (acme.leaky_relu): `ONNX` is ('com.acme', 'LeakyRelu'); domain, op type",
        ),
        ([('"LeakyRelu", 1)', '"LeakyRelu", 0)')], "`ONNX` is ('com.acme', 'LeakyRelu', 0); domain, op type and version are expected"),
        ([('"com.acme"', '"ai.onnx"')], "class LeakyReluOp (acme.leaky_relu): the domain 'ai.onnx' is not yours; take one of your own"),
        ([('    """`y', '    # """`y')], "lacks a docstring; its first line is the formula"),
        ([("number(0.01", "number(3")], "class LeakyReluOp (acme.leaky_relu): the default of 'alpha' is 3.0; float, -1 .. 1 is allowed"),
        ([("number(0.01", "number('a'")], "own.py:23: error: required argument is not a float"),
        ([("    alpha:", "    SEED: ClassVar = 5\n    alpha:")], "`SEED` is 5; the number of an operand is expected, of x"),
        ([("    alpha:", "    EXAMPLES: ClassVar = 3\n    alpha:")], "`EXAMPLES` is 3; pairs of shapes and attributes are expected"),
    ],
)
def test_a_definition_that_lacks_a_part_is_one_line(pairs, message, tmp_path):
    with pytest.raises(PopulusError) as error:
        extensions.read(changed(tmp_path, *pairs, ("leaky_relu = function_of(LeakyReluOp)", "")))
    assert str(error.value).startswith(f"{tmp_path / 'own.py'}:")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_two_ops_of_one_identity_name_both(tmp_path):
    path = tmp_path / "two.py"
    path.write_text(EXAMPLE.read_text() + TWO.format(version=1))
    with pytest.raises(PopulusError, match="class SecondOp and class LeakyReluOp are both ONNX's LeakyRelu-1 of com.acme"):
        extensions.read(path)
    other = changed(tmp_path, ('"acme.leaky_relu"', '"acme.other"'))
    with pytest.raises(PopulusError, match="acme.other is ONNX's LeakyRelu-1 of com.acme, which acme.leaky_relu of .*leaky_relu.py is too"):
        populus.compile(model(), load=[EXAMPLE, other])
    with pytest.raises(PopulusError, match="acme.leaky_relu is defined twice, by .*leaky_relu.py too"):
        populus.compile(model(), load=[EXAMPLE, changed(tmp_path)])


def test_a_gradient_of_the_wrong_length_names_the_op(tmp_path):
    path = changed(tmp_path, ("return select(g, self.alpha * g, x >= 0)", "return [g, g]"))
    with pytest.raises(PopulusError, match="'n': acme.leaky_relu: its `backward` gives 2 gradients for 1 operands"):
        populus.vjp(model(), wrt=["x"], load=[path])


def test_a_lowering_of_another_type_names_the_op(tmp_path):
    lower = "    def lower(self, b):\n        return [self.x, self.x]\n\n    def forward"
    with pytest.raises(
        PopulusError, match="'n': acme.leaky_relu: its lowering gives .*, its results are .*; make `lower` and `infer` agree"
    ):
        populus.compile(model(), load=[changed(tmp_path, ("    def forward", lower))])


OWN = '''
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.poplar.tile_code import Vector, codelet

{codelet}


@irdl_op_definition
class OwnOp(PopartOp):
    """`y = x`. Source: a test."""

    name = "acme.own"
    ONNX: ClassVar = ("com.acme", "Own", 1)
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self):
        {infer}

    def lower(self, b):
        {lower}

    def gradient(self, b, grads):
        {gradient}
'''
RIGHT = {"codelet": "", "infer": "return [self.x.type]", "lower": "return [self.x]", "gradient": "return grads"}
LINES = {"infer": 23, "lower": 26, "gradient": 29}


def own(tmp_path, **wrong):
    path = tmp_path / "own_op.py"
    path.write_text(OWN.format(**{**RIGHT, **wrong}))
    node = helper.make_node("Own", ["x"], ["y"], name="n", domain="com.acme")
    shaped = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [shaped("x", T.FLOAT, [3])], [shaped("y", T.FLOAT, [3])])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.acme", 1)]
    gradients = populus.vjp(helper.make_model(graph, opset_imports=opsets, ir_version=10), wrt=["x"], load=[path])
    return gradients.run({"x": np.ones(3, np.float32)}, {"y": np.ones(3, np.float32)})


@pytest.mark.parametrize(
    ("method", "text", "message"),
    [
        ("lower", "pass", "its `lower` gives None; a list of values is expected"),
        ("lower", "return self.x", "its `lower` gives a BlockArgument; a list of values is expected"),
        ("lower", "return [1.0]", "its `lower` gives a list with 1.0; a list of values is expected"),
        ("lower", "return []", "its lowering gives nothing, its results are y: tensor<3xf32>; make `lower` and `infer` agree"),
        ("lower", "return [self.x, self.x]", "its lowering gives tensor<3xf32>, tensor<3xf32>, its results are y: tensor<3xf32>; make"),
        ("lower", "return [calls.reshape(b, self.x, (1, 3))]", "its lowering gives tensor<1x3xf32>, its results are y: tensor<3xf32>; "),
        ("lower", "return [calls.reshape(b, self.x, (4,))]", "its lowering does not fit together: "),
        ("lower", "return [self.z]", "its `lower` raises AttributeError: 'OwnOp' object has no attribute 'z'"),
        ("infer", "pass", "its `infer` gives None; a list of tensor types is expected"),
        ("infer", "return [3]", "its `infer` gives a list with 3; a list of tensor types is expected"),
        ("infer", "return []", "its `infer` gives 0 types; the results are y"),
        ("infer", "return [self.z.type]", "its `infer` raises AttributeError: 'OwnOp' object has no attribute 'z'"),
        ("gradient", "pass", "its `gradient` gives None; a list of values, or None, is expected"),
        ("gradient", "return grads[0]", "a list of values, or None, is expected"),
        ("gradient", "return [3]", "its `gradient` gives a list with 3; a list of values, or None, is expected"),
        ("gradient", "return [grads[0], grads[0]]", "its gradient gives 2 values for 1 operands"),
        (
            "gradient",
            "return [calls.reshape(b, grads[0], (1, 3))]",
            "its gradient gives tensor<1x3xf32> for an operand that is tensor<3xf32>, 'x'",
        ),
        ("gradient", "return [calls.reshape(b, grads[0], (4,))]", "its gradient does not fit together: "),
        ("gradient", "return [self.w]", "its `gradient` raises AttributeError: 'OwnOp' object has no attribute 'w'"),
    ],
)
def test_a_method_that_is_wrong_is_one_line_with_node_op_file_and_place(method, text, message, tmp_path):
    assert own(tmp_path)[1]["x"].tolist() == [1, 1, 1]
    with pytest.raises(PopulusError) as error:
        own(tmp_path, **{method: text})
    said = str(error.value)
    assert message in said
    assert "\n" not in said
    line = LINES[method] + ("raises" in message)
    for part in ("'n': ", "acme.own: ", f"({tmp_path / 'own_op.py'}:{line})"):
        assert part in said


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("return select(x, self", "select(x, self"), "its `forward` gives None; an expression is expected"),
        (("return select(g, self", "select(g, self"), "its `backward` gives None; an expression for each operand is expected, or None"),
        (("x: Expr) -> Expr:\n        return select(x", "x: Expr, z: Expr) -> Expr:\n        return select(x"), "raises TypeError"),
        (("g: Expr, x: Expr, y: Expr", "g: Expr"), "raises TypeError"),
        (("return select(g, self", "return self.beta * select(g, self"), "raises AttributeError"),
    ],
)
def test_a_formula_that_is_wrong_is_one_line(pair, message, tmp_path):
    with pytest.raises(PopulusError) as error:
        populus.vjp(model(), wrt=["x"], load=[changed(tmp_path, pair)])
    for part in (message, "'n': ", "acme.leaky_relu: ", f"({tmp_path / 'own.py'}"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for i in range(len(y)):\n        y[i + 1] = x[i]", "index 3 of y is outside of the 3 elements of dimension 0"),
        ("for i in range(len(y)):\n        y[i] = x[i]\n    y[99] = 1.0", "index 99 of y is outside of the 3 elements of dimension 0"),
        ("for i in range(len(y)):\n        y[i - 1] = x[i]", "index -1 of y is outside of the 3 elements of dimension 0"),
        ("for i in range(1, len(y)):\n        y[i] = x[i]", "it leaves 1 element of y unwritten"),
    ],
)
def test_a_codelet_that_writes_out_of_its_field_or_not_all_of_it_is_one_line(body, message, tmp_path):
    code = f"@codelet\ndef out_of_field(x: Vector, y: Vector) -> None:\n    {body}\n"
    try:
        with pytest.raises(PopulusError) as error:
            own(tmp_path, codelet=code, lower="return [calls.codelet(b, out_of_field, self.x)]")
    finally:
        CODELETS.pop("out_of_field", None)
    for part in (message, f"{tmp_path / 'own_op.py'}:", "codelet out_of_field", "'n'"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beta": 1.0}, "acme.leaky_relu has no attribute 'beta'; there are alpha"),
        ({"alpha": "s"}, "acme.leaky_relu: 'alpha' is 's'; float, -1 .. 1 is allowed"),
        (
            {"dtype": T.INT32},
            "acme.leaky_relu: operand 'x' at position 0 does not verify: the element type is i32; it is one of f16, f32, f64",
        ),
    ],
)
def test_a_node_that_does_not_fit_the_definition_is_one_line_with_the_model_s_file(given, message, example, tmp_path):
    onnx.save(model(**given), tmp_path / "m.onnx")
    with pytest.raises(PopulusError) as error:
        populus.compile(tmp_path / "m.onnx")
    assert str(error.value).startswith(f"{tmp_path / 'm.onnx'}: 'n': LeakyRelu: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with an entry point."""

    def install(module: str, text: str) -> None:
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(extensions, "entry_points", lambda group: [EntryPoint("own", module, group)])
        extensions.installed.cache_clear()

    yield install
    extensions.installed.cache_clear()
    sys.modules.pop("own_package", None)


def test_an_installed_package_s_ops_are_known(package):
    package("own_package", EXAMPLE.read_text())
    assert populus.compile(model(alpha=0.5)).run({"x": X})["y"][0, 0] == -0.5


def test_an_installed_package_that_fails_is_named(package):
    package("own_package", "1 / 0")
    with pytest.raises(PopulusError, match="entry point 'own' of populus.ops: ZeroDivisionError: division by zero"):
        populus.compile(model())


@pytest.mark.parametrize("change", [{"alpha": 0.2}, {"shape": (3, 3)}, {"dtype": "float64"}, {"other": True}])
def test_the_hash_changes_with_content_and_not_with_names(change, example):
    def built(alpha=0.1, shape=(2, 3), dtype="float32", other=False, name="y", value="n"):
        with populus.Builder() as b:
            y = example.leaky_relu(b.input("x", shape, dtype), alpha=alpha, name=value)
            b.output("y", b.op("relu", y)[0] if other else y)
        return populus.content_hash(b.module())

    assert built() == built(value="m")
    assert built(**change) != built()


def test_an_op_has_a_page(example):
    from populus.write.op_page import page_of

    text = page_of(example.LeakyReluOp)
    assert text.startswith("# acme.leaky_relu\n\n`y = x where x >= 0, alpha x elsewhere`.")
    assert "| alpha | float, -1 .. 1 | 0.01 |" in text
    assert "| x | T: tensor of f16, f32, f64 |" in text
    assert "ONNX: `LeakyRelu` of `com.acme`, version 1." in text


def test_every_built_in_op_has_a_page():
    from populus.dialects.popart import POPART, PopartOp
    from populus.write.op_page import page_of

    for op in POPART.operations:
        if issubclass(op, PopartOp):
            assert page_of(op).startswith(f"# {op.name}\n")


def test_what_a_scope_loads_ends_with_it(tmp_path):
    """Ops, codelets, machines, kernels and ONNX schemas; what was loaded before stays as it was, also where the scope loads it anew."""
    identity = ("LeakyRelu", 1, "com.acme")
    before = extensions.known()
    with extensions.restored():
        outer = populus.load(EXAMPLE)
        schema = onnx.defs.get_schema(*identity)
        kept = registered()
        with extensions.restored():
            populus.load(EXAMPLE.with_name("row_norm.py"))
            populus.load(written(tmp_path, "mesh.py", MESH))
            extensions.forget(EXAMPLE)
            populus.load(changed(tmp_path, ("number(0.01", "number(0.25")))
            assert populus.compile(model()).run({"x": X})["y"][0, 0] == np.float32(-0.25)
            assert make_target("mesh7").tiles == 7
            assert registered() != kept
        assert registered() == kept
        assert [e.path for e in extensions.known()] == [*(e.path for e in before), outer.path]
        assert populus.compile(model()).run({"x": X})["y"][0, 0] == np.float32(-0.01)
        assert onnx.defs.get_schema(*identity).doc == schema.doc
        with pytest.raises(PopulusError, match="no target 'mesh7'"):
            make_target("mesh7")
    assert extensions.known() == before
    assert not onnx.defs.has(*identity)


MESH = """
from dataclasses import replace
from populus.dialects.poplar.target import PRESETS
mesh7 = replace(PRESETS["gc200"], name="mesh7", tiles=7)
"""


def registered():
    return set(CODELETS), set(PRESETS)


def written(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_a_module_is_found_without_asking_where_python_is(monkeypatch: pytest.MonkeyPatch):
    """From Python 3.13 on, the first question imports a module, which asks the finder."""
    sources.watch()
    monkeypatch.setattr(sources.sysconfig, "get_paths", None)
    assert sources._Finder.find_spec("colorsys", None) is None, "Python's own"
    assert importlib.util.find_spec("colorsys") is not None
