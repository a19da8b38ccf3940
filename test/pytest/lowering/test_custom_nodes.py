"""Nodes of users' ops: inputs and outputs left out, attributes of every kind, operands read as values, sizes that data decide."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import populus
from helpers.node_ops import ATTRIBUTES, CALLING, COMPLEX, HEAD, OPTIONAL, PLUS, VALUES
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver import extensions

X = np.array([1, 2, 3], np.float32)


@pytest.fixture
def loaded(tmp_path):
    """Loads a file with a text."""
    path = tmp_path / "own.py"

    def load(text):
        path.write_text(text)
        return populus.load(path).module

    return load


def model(nodes, inputs, outputs, initializers=()):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes),
        "g",
        [info(n, *t) for n, t in inputs.items()],
        [info(n, *t) for n, t in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in dict(initializers).items()],
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.acme", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, name="n", domain="com.acme", **attributes)


def mixed(inputs, outputs=("y",)):
    names = dict.fromkeys(i for i in inputs if i)
    return model([node("Mix", inputs, outputs)], {n: (T.FLOAT, [3]) for n in names}, {o: (T.FLOAT, [3]) for o in outputs if o})


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (["a"], 1),
        (["a", "a"], 11),
        (["a", "", "a"], 101),
        (["a", "", "", "a"], 2),
        (["a", "", "a", "a", "a"], 103),
        (["a", "a", "", "a", "a"], 13),
        (["a", "a", "a", "a"], 112),
        (["a", "", ""], 1),
    ],
)
def test_inputs_are_left_out_anywhere(inputs, expected, loaded):
    loaded(OPTIONAL)
    found = mixed(inputs)
    if len(inputs) > 2:  # in front of any number of inputs, ONNX's checker wants those left out to be spelled as ""
        onnx.checker.check_model(found)
    assert populus.compile(found).run({"a": X})["y"].tolist() == (expected * X).tolist()


@pytest.mark.parametrize("outputs", [("y",), ("y", "", "z"), ("", "n"), ("", "", "z"), ("y", "n", "z")])
def test_outputs_are_left_out_anywhere(outputs, loaded):
    loaded(OPTIONAL)
    found = mixed(["a", "", "a"], outputs)
    onnx.checker.check_model(found)
    got = populus.compile(found).run({"a": X})
    expected = {"y": 101 * X, "n": -101 * X, "z": 202 * X}
    assert {n: a.tolist() for n, a in got.items()} == {o: expected[o].tolist() for o in outputs if o}


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["", "a"], ("y",), "'n': Mix: acme.mix: 'x' is left out, which is not optional"),
        (["a", "a", "a", "", "a"], ("y",), "'n': Mix: acme.mix: one of 'r' is left out, which is not optional"),
        (["a"], ("y", "n", "z", "u"), "'n': Mix: the node has 4 outputs; acme.mix has 3 results"),
    ],
)
def test_a_node_that_does_not_fit_is_one_line(inputs, outputs, message, loaded):
    loaded(OPTIONAL)
    with pytest.raises(PopulusError) as error:
        populus.compile(mixed(inputs, outputs))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_builder_leaves_operands_out_and_gives_a_tuple_of_several_results(loaded):
    own = loaded(OPTIONAL)
    with populus.Builder() as b:
        a = b.input("a", (3,))
        y, n, _ = own.mix(a, None, a)
        b.output("y", y)
        b.output("n", n)
        b.output("w", own.mix(a, a, None, a, a)[0])
    got = populus.compile(b.module()).run({"a": X})
    assert [got[k].tolist() for k in "ynw"] == [(101 * X).tolist(), (-101 * X).tolist(), (13 * X).tolist()]
    with pytest.raises(PopulusError, match=r"acme.mix: 'x' is left out, which is not optional"), populus.Builder():
        own.mix(None, a)


def test_operands_that_are_left_out_stay_so_in_texts_and_in_a_model_that_is_written(loaded, tmp_path):
    loaded(OPTIONAL)
    found = mixed(["a", "", "a", "a"], ("y", "", "z"))
    program = populus.compile(found)
    text = str(program.module("popart"))
    (tmp_path / "m.mlir").write_text(text)
    assert str(populus.compile(tmp_path / "m.mlir").module("popart")) == text
    from xdsl.context import Context

    from populus.lowering.onnx.custom_ops import custom_ops
    from populus.lowering.onnx.exporter import export_onnx
    from populus.lowering.onnx.importer import import_onnx

    ctx = Context()
    for known in extensions.known():
        known.register(ctx)
    again = export_onnx(import_onnx(found, customs=custom_ops(ctx)))
    assert list(again.graph.node[0].input) == ["a", "", "a", "a"]
    assert list(again.graph.node[0].output) == ["y", "", "z"]


TOLD = {
    "label": "four!",
    "names": ["ab", "c"],
    "sizes": [1, 2],
    "scales": [0.25, 1.0],
    "table": np.ones((2, 3), np.float32),
    "keep": 0,
    "n": 3,
    "alpha": 2.0,
}


def factor(label="one", names=(), sizes=(), scales=(0.5, 2.0), table=(), keep=1, n=1, alpha=1.0):
    told = (len(label), sum(map(len, names)), sum(sizes), sum(scales), float(np.sum(table)), keep, n, alpha)
    return np.float32(sum(v * 10.0**i for i, v in enumerate(told)))


@pytest.mark.parametrize("given", [{}, *({k: v} for k, v in TOLD.items()), TOLD, {"scales": [], "names": []}], ids=",".join)
def test_attributes_of_every_kind_reach_the_op_from_a_model_and_from_python(given, loaded):
    own = loaded(ATTRIBUTES)
    kinds = {"scales": onnx.AttributeProto.FLOATS, "names": onnx.AttributeProto.STRINGS}
    made = node("Told", ["a"], ["y"])
    for name, v in given.items():
        value = numpy_helper.from_array(v) if name == "table" else v
        made.attribute.append(helper.make_attribute(name, value, attr_type=kinds[name] if value == [] else None))
    found = model([made], {"a": (T.FLOAT, [3])}, {"y": (T.FLOAT, [3])})
    onnx.checker.check_model(found)
    expected = X * factor(**given)
    assert np.allclose(populus.compile(found).run({"a": X})["y"], expected, rtol=1e-6)
    as_numpy = {k: np.array(v) if k in ("sizes", "scales") else np.float32(v) if k == "alpha" else v for k, v in given.items()}
    as_numpy |= {k: np.int32(given[k]) for k in ("n",) if k in given}
    for attributes in (given, {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}, as_numpy):
        with populus.Builder() as b:
            b.output("y", own.told(b.input("a", (3,)), **attributes))
        module = b.module()
        assert np.allclose(populus.compile(module).run({"a": X})["y"], expected, rtol=1e-6)
        assert populus.content_hash(module) == populus.content_hash(populus.compile(found).module("popart"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sizes": (1.5,)}, "'sizes' is (1.5,); ints is allowed"),
        ({"names": "ab"}, "'names' is 'ab'; strings is allowed"),
        ({"label": 3}, "'label' is 3; string is allowed"),
        ({"sizes": np.ones((2, 2))}, "ints is allowed"),
        ({"table": "x"}, "tensor is allowed"),
        ({"n": 1 << 70}, "int is allowed"),
    ],
)
def test_an_attribute_of_another_kind_is_one_line(given, said, loaded):
    own = loaded(ATTRIBUTES)
    with pytest.raises(PopulusError, match="acme.told") as error, populus.Builder() as b:
        own.told(b.input("a", (3,)), **given)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def joined(axis, inputs=None):
    shapes = {"a": (T.FLOAT, [2, 3]), "b": (T.FLOAT, [2, 3]), **(inputs or {})}
    return model([node("Join", ["axis", "a", "b"], ["y"])], shapes, {"y": (T.FLOAT, ["p", "q"])}, {} if axis is None else {"axis": axis})


AB = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": -np.arange(6, dtype=np.float32).reshape(2, 3)}


@pytest.mark.parametrize("axis", [0, 1])
def test_a_constant_operand_is_read_as_a_value(axis, loaded):
    loaded(VALUES)
    got = populus.compile(joined(np.array(axis))).run(AB)["y"]
    assert got.tolist() == np.concatenate([AB["a"], AB["b"]], axis).tolist()


def test_a_value_that_other_ops_make_of_shapes_counts_as_constant(loaded):
    loaded(VALUES)
    nodes = [
        helper.make_node("Size", ["a"], ["n"]),
        helper.make_node("Sub", ["n", "five"], ["axis"]),
        node("Join", ["axis", "a", "b"], ["y"]),
    ]
    found = model(nodes, {"a": (T.FLOAT, [2, 3]), "b": (T.FLOAT, [2, 3])}, {"y": (T.FLOAT, None)}, {"five": np.array(5)})
    assert populus.compile(found).run(AB)["y"].shape == (2, 6)


def test_an_operand_that_is_not_constant_is_one_line_that_says_what_to_do(loaded):
    own = loaded(VALUES)
    open_axis = joined(None, {"axis": (T.INT64, [])})
    with pytest.raises(PopulusError) as error:
        populus.compile(open_axis)
    assert (
        "'n': Join: acme.join: the value of operand 'axis' has to be known when compiling; "
        "give a constant, or state the value of an input (`values`, --value)"
    ) in str(error.value)
    assert populus.compile(open_axis, values={"axis": np.array(1)}).run({**AB, "axis": np.array(1)})["y"].shape == (2, 6)
    with populus.Builder() as b:
        x = b.input("x", (2, 2))
        b.output("y", own.join(b.constant(np.array(1)), x, x))
    assert populus.compile(b.module()).run({"x": np.eye(2, dtype=np.float32)})["y"].shape == (2, 4)


def test_ops_that_read_unlike_values_are_not_outlined_together(loaded):
    own = loaded(VALUES)
    with populus.Builder() as b:
        x = b.input("x", (4, 4))
        for i in range(3):
            for axis in (0, 1):
                wide = own.join(b.constant(np.array([axis])), x, x)
                b.output(f"y{i}{axis}", b.op("tanh", wide)[0])
    got = populus.compile(b.module()).run({"x": np.eye(4, dtype=np.float32)})
    assert {n: a.shape for n, a in got.items()} == {f"y{i}{axis}": (8, 4) if axis == 0 else (4, 8) for i in range(3) for axis in (0, 1)}


def test_an_op_of_constants_feeds_a_shape(loaded):
    loaded(VALUES)
    nodes = [node("Twice", ["half"], ["to"]), helper.make_node("Reshape", ["a", "to"], ["y"])]
    found = model(nodes, {"a": (T.FLOAT, [3, 4])}, {"y": (T.FLOAT, None)}, {"half": np.array([1, 3])})
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert populus.compile(found).run({"a": a})["y"].tolist() == a.reshape(2, 6).tolist()
    nodes = [helper.make_node("Shape", ["a"], ["s"]), node("Twice", ["s"], ["to"]), helper.make_node("Expand", ["one", "to"], ["y"])]
    found = model(nodes, {"a": (T.FLOAT, [3, 4])}, {"y": (T.FLOAT, None)}, {"one": np.ones(1, np.float32)})
    assert populus.compile(found).run({"a": a})["y"].shape == (6, 8)


PICKED = [
    helper.make_node("NonZero", ["a"], ["p"]),
    helper.make_node("Transpose", ["p"], ["t"]),
    helper.make_node("GatherND", ["c", "t"], ["v"]),
]


@pytest.mark.parametrize("dims", [None, {"n": (1, 6)}])
def test_an_element_wise_op_follows_sizes_that_are_known_in_the_run(dims, loaded):
    loaded(VALUES)
    a = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
    if dims is None:
        nodes = [*PICKED, node("Squash", ["v"], ["y"])]
        found = model(nodes, {"a": (T.FLOAT, [2, 3]), "c": (T.FLOAT, [2, 3])}, {"y": (T.FLOAT, ["k"])})
        expected = np.tanh(-a[a != 0]) + 1
        got = populus.compile(found).run({"a": a, "c": -a})["y"]
    else:
        found = model([node("Squash", ["a"], ["y"])], {"a": (T.FLOAT, ["n", 3])}, {"y": (T.FLOAT, ["n", 3])})
        expected = np.tanh(a) + 1
        got = populus.compile(found, dims=dims).run({"a": a})["y"]
    assert got.shape == expected.shape
    assert np.allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_constants_stand_beside_open_sizes(engine, loaded):
    loaded(PLUS)
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([10, 20, 30], np.float32)
    found = model([node("Plus", ["a", "b"], ["y"])], {"a": (T.FLOAT, ["n", 3])}, {"y": (T.FLOAT, None)}, {"b": b})
    program = populus.compile(found, dims={"n": (1, 6)}, engine=engine, tiles=2)
    assert np.array_equal(program.run({"a": a})["y"], a + b)
    assert np.array_equal(program.run({"a": a[:1]})["y"], a[:1] + b)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize("shape", [["n", 64], ["b", "n", 64]])
def test_packed_weights_take_any_number_of_rows(shape, engine):
    g = np.random.default_rng(0)
    weights = {"w": g.integers(0, 256, (8, 2, 16)).astype(np.uint8), "s": g.standard_normal(16).astype(np.float32)}
    settings = {"K": 64, "N": 8, "bits": 4, "block_size": 32}
    product = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **settings)
    found = model([product], {"x": (T.FLOAT, shape)}, {"y": (T.FLOAT, None)}, weights)
    found.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    packed = np.asarray(weights["w"], np.uint8)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(8, 2, 32).astype(np.float64)
    table = ((codes - 8) * weights["s"].reshape(8, 2, 1)).reshape(8, 64)
    program = populus.compile(found, dims={"b": (1, 4), "n": (1, 5)} if len(shape) == 3 else {"n": (1, 5)}, engine=engine, tiles=2)
    for rows in (3, 1):
        x = g.standard_normal((*[2] * (len(shape) - 2), rows, 64)).astype(np.float32)
        np.testing.assert_allclose(program.run({"x": x})["y"], x @ table.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["Rows", "Total"])
def test_another_op_says_what_it_keeps_apart_or_is_refused(kind, loaded):
    loaded(VALUES)
    nodes = [
        helper.make_node("NonZero", ["a"], ["p"]),
        helper.make_node("Transpose", ["p"], ["t"]),
        helper.make_node("Cast", ["t"], ["f"], to=T.FLOAT),
        node(kind, ["f"], ["y"]),
    ]
    found = model(nodes, {"a": (T.FLOAT, [2, 3])}, {"y": (T.FLOAT, ["k"] if kind == "Rows" else [])})
    if kind == "Rows":
        got = populus.compile(found).run({"a": np.array([[1, 0, 2], [0, 0, 3]], np.float32)})["y"]
        assert got.tolist() == [0, 2, 3]
        return
    with pytest.raises(PopulusError, match=r"'n': Total: .*acme.total reads dimension 0 of operand 'x'.*in `independent`"):
        populus.compile(found)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize("kind", ["TotalOf", "Shares"])
def test_another_op_says_what_it_reads_beyond_a_size(kind, engine, loaded):
    loaded(VALUES)
    names, result = ["x", "w"][: 1 + (kind == "Shares")], [] if kind == "TotalOf" else ["n", "m"]
    found = model(
        [*[helper.make_node("Exp", [v], [f"{v}1"]) for v in names], node(kind, [f"{v}1" for v in names], ["y"])],
        {v: (T.FLOAT, ["n", "m"][: 2 - (v == "w")]) for v in names},
        {"y": (T.FLOAT, result)},
    )
    program = populus.compile(found, dims={"n": (1, 5), "m": (1, 4)}, tiles=2, engine=engine)
    g = np.random.default_rng(0)
    for n, m in ((3, 2), (1, 1), (5, 4)):
        x, w = g.standard_normal((n, m)).astype(np.float32), g.standard_normal(n).astype(np.float32)
        a, b = np.exp(x), np.exp(w)
        expected = a.sum() if kind == "TotalOf" else a / (a * b[:, None]).prod(0)
        np.testing.assert_allclose(program.run({"x": x, "w": w} if kind == "Shares" else {"x": x})["y"], expected, rtol=1e-5)


Z = np.array([1 + 2j, -3j, 0.5], np.complex64)


def conjugated(kind="Conj", stated=T.COMPLEX64, dtype=T.COMPLEX64, **weights):
    nodes = [node(kind, ["z"], ["y"])] if not weights else [node("Times", ["z", "w"], ["y"])]
    return model(nodes, {"z": (dtype, [3])}, {"y": (stated, [3])}, weights)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_what_paddle_calls_conj_runs(dtype, loaded):
    loaded(COMPLEX)
    kind = T.COMPLEX64 if dtype == np.complex64 else T.COMPLEX128
    program = populus.compile(conjugated(stated=kind, dtype=kind), tiles=2)
    (y,) = program.run({"z": Z.astype(dtype)}).values()
    assert (y.dtype, y.tolist()) == (dtype, Z.astype(dtype).conj().tolist())
    pairs = np.stack([Z.real, Z.imag], -1).astype(y.real.dtype)
    assert program.run({"z": pairs})["y"].tolist() == y.tolist()
    with pytest.raises(PopulusError, match="input 'z' is float32, expected float64|input 'z' has shape"):
        program.run({"z": Z.real.astype(np.float32)})


def test_complex_weights_are_pairs(loaded):
    loaded(COMPLEX)
    w = np.array([2j, 1 + 1j, 3], np.complex64)
    assert populus.compile(conjugated(w=w)).run({"z": Z})["y"].tolist() == (Z * w).tolist()


def test_a_complex_output_may_be_real(loaded):
    loaded(COMPLEX)
    assert np.allclose(populus.compile(conjugated("Size2", T.FLOAT)).run({"z": Z})["y"], abs(Z) ** 2)


def test_no_op_of_onnx_computes_on_pairs(loaded):
    loaded(COMPLEX)
    for nodes in (
        [helper.make_node("Mul", ["z", "z"], ["y"], name="m")],
        [node("Conj", ["z"], ["u"]), helper.make_node("Mul", ["u", "u"], ["y"], name="m")],
    ):
        found = model(nodes, {"z": (T.COMPLEX64, [3])}, {"y": (T.COMPLEX64, [3])})
        with pytest.raises(PopulusError, match=r"'m': Mul.* is not computed on complex numbers; an op of your own takes them as pairs"):
            populus.compile(found)
    nodes = [helper.make_node("Identity", ["z"], ["u"]), node("Conj", ["u"], ["y"])]
    found = model(nodes, {"z": (T.COMPLEX64, [3])}, {"y": (T.COMPLEX64, [3])})
    assert populus.compile(found).run({"z": Z})["y"].tolist() == Z.conj().tolist()


def test_one_element_type_and_any_shape(loaded):
    own = loaded(VALUES)
    with pytest.raises(PopulusError, match="expected from variable 'E'"), populus.Builder() as b:
        own.join(b.constant(np.array(0)), b.input("a", (2, 2)), b.input("b", (2, 2), "float64"))
    onnx.checker.check_model(joined(np.array(0)), full_check=True)


def test_other_ops_are_called_from_lower_and_gradient(loaded):
    text = HEAD + CALLING
    own = loaded(text)
    x = np.array([[0.5, -1, 2], [3, 0, 1]], np.float32)
    with populus.Builder() as b:
        b.output("y", own.half_softmax(b.input("x", (2, 3))))
    module = b.module()
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True) / 2
    for level in ("popart", "popops", "poplar"):
        assert np.allclose(populus.compile(module, level=level).run({"x": x})["y"], expected, rtol=1e-5)
    assert populus.compile(module, tiles=4).run({"x": x})["y"].shape == (2, 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"softmax", self.x, axis=1', '"softmux", self.x, axis=1', "there is no op 'softmux'; did you mean 'softmax'?"),
        ("axis=1)", "axis=1.5)", "popart.softmax: 'axis' is 1.5; int"),
        ("axis=1)", "axes=1)", "popart.softmax has no attribute 'axes'"),
        ('"softmax", self.x, axis=1', '"softmax", self.x, self.x, axis=1', "popart.softmax takes x; 2 operands are given"),
    ],
)
def test_a_wrong_call_of_another_op_is_one_line(old, new, said, loaded):
    own = loaded(HEAD + CALLING.replace(old, new, 1))
    with populus.Builder() as b:
        b.output("y", own.half_softmax(b.input("x", (2, 3))))
    with pytest.raises(PopulusError) as error:
        populus.compile(b.module())
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_error_of_all_tools_is_public():
    assert populus.PopulusError is PopulusError
