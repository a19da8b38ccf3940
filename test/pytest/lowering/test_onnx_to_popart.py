"""Models from ONNX to `popart`, compared with what ONNX packages as their results, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr
from xdsl.irdl import irdl_op_definition, prop_def

import populus
from populus.dialects.popart.base import UnaryOp
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.lowering.onnx.fold_constants import OnnxFoldConstantsPass
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.onnx.infer_shapes import OnnxInferShapesPass
from populus.lowering.onnx.to_popart import OnnxToPopartPass
from populus.runtime.interpreter import run_function

DATA = Path(onnx.__file__).parent / "backend/test/data"
MODELS = sorted(p.parent for kind in ("pytorch-converted", "pytorch-operator", "simple") for p in DATA.glob(f"{kind}/*/model.onnx"))
REFUSED = {
    "test_strnorm": "its result depends on the values|strings are handles here",
}


def down(model, ctx=None, **more):
    ctx = ctx or Context()
    module = import_onnx(model, **more)
    for step in (OnnxInferShapesPass(), OnnxFoldConstantsPass(), OnnxToPopartPass()):
        step.apply(ctx, module)
        verify(module)
    assert "onnx." not in str(module)
    return module


def tensor(path):
    return numpy_helper.to_array(T.FromString(path.read_bytes()))


@pytest.mark.parametrize("folder", MODELS, ids=lambda p: p.name)
def test_a_packaged_model_gives_its_packaged_results(folder):
    model = onnx.load(folder / "model.onnx")
    for start, reason in REFUSED.items():
        if folder.name.startswith(start):
            with pytest.raises(PopulusError, match=reason):
                down(model)
            return
    initializers = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in initializers]
    for data in sorted(folder.glob("test_data_set_*")):
        inputs = {name: tensor(data / f"input_{i}.pb") for i, name in enumerate(names)}
        dims = {"n": len(inputs["X"])} if folder.name == "test_sequence_model8" else {}
        found = run_function(down(model, dims=dims), inputs)
        for i, output in enumerate(model.graph.output):
            wanted = tensor(data / f"output_{i}.pb")
            assert found[output.name].dtype == wanted.dtype
            np.testing.assert_allclose(found[output.name], wanted, rtol=1e-3, atol=1e-6)


def test_the_packaged_models_are_all_there():
    assert len(MODELS) == 140


@pytest.mark.parametrize("path", sorted(DATA.glob("light/*.onnx")), ids=lambda p: p.stem)
def test_a_light_net_becomes_popart(path):
    down(path)


def one(op_type, inputs, output, opset=17, **attributes):
    """A model of one node; `inputs` by name: (shape, element type), or an array that is an initializer."""
    arrays = [numpy_helper.from_array(v, k) for k, v in inputs.items() if isinstance(v, np.ndarray)]
    infos = [helper.make_tensor_value_info(k, v[1], v[0]) for k, v in inputs.items() if not isinstance(v, np.ndarray)]
    node = helper.make_node(op_type, list(inputs), ["y"], name="n", **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", output[1], output[0])], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("own", 1)], ir_version=8)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            one("Tile", {"x": ((4,), T.FLOAT), "by": ((1,), T.INT64)}, ((None,), T.FLOAT)),
            "'n': Tile-13: the shape of its result %y depends on the values",
        ),
        (
            one("ReduceSum", {"x": ((4, 2), T.FLOAT), "axes": ((1,), T.INT64)}, ((4, 1), T.FLOAT)),
            "'n': ReduceSum-13: its input 'axes' is computed when the model runs; it has to be a constant here",
        ),
    ],
)
def test_what_is_not_supported_is_refused_with_node_and_reason(model, text):
    with pytest.raises(PopulusError) as error:
        down(model)
    assert str(error.value).startswith(text)
    assert "\n" not in str(error.value)


@irdl_op_definition
class ScaledOp(UnaryOp):
    """`y = scale x`."""

    name = "popart.scaled_in_test"
    ONNX: ClassVar = ("own", "Scaled", 1)
    scale = prop_def(FloatAttr)

    def forward(self, x):
        return self.scale.value.data * x


def test_a_custom_node_becomes_the_op_that_states_it():
    ctx = Context()
    ctx.load_op(ScaledOp)
    module = down(one("Scaled", {"x": ((2,), T.FLOAT)}, ((2,), T.FLOAT), domain="own", scale=3.0), ctx, customs={("own", "Scaled")})
    assert run_function(module, {"x": np.array([1, 2], np.float32)})["y"].tolist() == [3, 6]


def test_a_custom_node_with_another_attribute_is_refused():
    ctx = Context()
    ctx.load_op(ScaledOp)
    with pytest.raises(PopulusError, match=r"'n': Scaled: popart.scaled_in_test has no attribute 'factor'; there are scale"):
        down(one("Scaled", {"x": ((2,), T.FLOAT)}, ((2,), T.FLOAT), domain="own", factor=3.0), ctx, customs={("own", "Scaled")})


def test_an_if_whose_condition_is_not_known_selects():
    branches = {
        key: helper.make_graph([helper.make_node(op, ["x"], [key])], key, [], [helper.make_tensor_value_info(key, T.FLOAT, [2])])
        for key, op in (("then_branch", "Neg"), ("else_branch", "Relu"))
    }
    model = one("If", {"c": ((), T.BOOL)}, ((2,), T.FLOAT), **branches)
    model.graph.input.append(helper.make_tensor_value_info("x", T.FLOAT, [2]))
    module = down(model)
    x = np.array([1, -2], np.float32)
    assert run_function(module, {"x": x, "c": np.array(True)})["y"].tolist() == [-1, 2]
    assert run_function(module, {"x": x, "c": np.array(False)})["y"].tolist() == [1, 0]


def test_every_op_keeps_the_place_of_its_node():
    module = down(one("MeanVarianceNormalization", {"x": ((2, 3, 4, 4), T.FLOAT)}, ((2, 3, 4, 4), T.FLOAT)))
    places = {op.location.desc.data for op in module.walk() if op.name.startswith("popart.")}
    assert places == {"n"}


R = np.random.default_rng(0)
NORMAL = {name: (R.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in {
    "x": (5, 2, 3), "image": (1, 2, 5, 4), "w3": (2, 9, 3), "r3": (2, 9, 3), "b3": (2, 18), "w4": (2, 12, 3), "r4": (2, 12, 3),
    "b4": (2, 24), "h": (2, 2, 3), "c": (2, 2, 3), "p": (2, 9), "m": (4, 3, 2), "n": (4, 2, 5),
}.items()}  # fmt: skip
LENGTHS = np.array([5, 5], np.int32)
BYTES = R.integers(0, 255, (1, 2, 5, 4)).astype(np.uint8)
SCALE, ZERO = np.array(0.02, np.float32), np.array(120, np.uint8)
ROWS = [
    ("GRU", ["x", "w3", "r3", "b3", LENGTHS, "h"], {"hidden_size": 3, "direction": "bidirectional"}),
    ("GRU", ["x", "w3", "r3", "b3"], {"hidden_size": 3, "direction": "bidirectional", "linear_before_reset": 1}),
    ("LSTM", ["x", "w4", "r4", "b4", LENGTHS, "h", "c", "p"], {"hidden_size": 3, "direction": "bidirectional"}),
    ("Resize", ["image", "", np.array([1, 1, 2, 0.5], np.float32)], {"mode": "cubic"}),
    ("Resize", ["image", "", "", np.array([1, 2, 7, 9])], {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ("Resize", ["image", "", "", np.array([1, 2, 7, 9])], {"mode": "nearest", "nearest_mode": "ceil"}),
    ("Einsum", ["m", "n"], {"equation": "bij,bjk->bik"}),
    ("Einsum", ["m"], {"equation": "ijk->kj"}),
    ("Einsum", ["m", "n", "m"], {"equation": "abc,acd,abe->de"}),
    ("QuantizeLinear", ["image", SCALE, ZERO], {}),
    ("DequantizeLinear", [BYTES, SCALE, ZERO], {}),
    ("QLinearConv", [BYTES, SCALE, ZERO, BYTES[:, :, :2, :2].reshape(1, 2, 2, 2), SCALE, ZERO, np.array(0.9, np.float32), ZERO], {}),
    ("CumSum", ["m", np.array(1)], {"reverse": 1, "exclusive": 1}),
    ("Slice", ["m", np.array([3, -1]), np.array([-(2**31), -5]), np.array([0, 1]), np.array([-1, -2])], {}),
    ("Slice", ["m", np.array([0]), np.array([-9]), np.array([2]), np.array([-1])], {}),
    ("Pad", ["m", np.array([1, 0, 0, 2, 1, 0])], {"mode": "wrap"}),
    ("GatherND", ["m", np.array([[0, 1], [-1, 2]])], {}),
    ("GatherElements", ["m", np.array([[[0, 1], [1, -1], [0, 0]]] * 4)], {"axis": 2}),
    ("ConvTranspose", ["image", NORMAL["w3"].reshape(2, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("LpPool", ["image"], {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), ROWS, ids=lambda v: v if isinstance(v, str) else None)
def test_a_node_gives_what_onnxruntime_gives(op_type, inputs, attributes):
    names = [v if isinstance(v, str) else f"given{i}" for i, v in enumerate(inputs)]
    arrays = {name: NORMAL[v] if isinstance(v, str) else v for name, v in zip(names, inputs) if name}
    outputs = {"GRU": 2, "LSTM": 3}.get(op_type, 1)
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], **attributes)
    live = [name for name in arrays if name in NORMAL]
    fixed = [numpy_helper.from_array(a, name) for name, a in arrays.items() if name not in NORMAL]
    infos = [helper.make_tensor_value_info(name, T.FLOAT, arrays[name].shape) for name in live]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(o) for o in node.output], fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    typed = onnx.shape_inference.infer_shapes(model)
    inputs = {name: arrays[name] for name in live}
    session = onnxruntime.InferenceSession(typed.SerializeToString(), providers=["CPUExecutionProvider"])
    found = run_function(down(model), inputs)
    for name, wanted in zip(node.output, session.run(None, inputs)):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("x", [[0.0, 0.0], [-1.5, 2.0], [3.0, 4.0], [-1.0, -2.0]], ids=str)
def test_a_range_of_nothing_is_quantized_with_a_scale_of_one(x):
    names = [("y", T.UINT8), ("scale", T.FLOAT), ("zero", T.UINT8)]
    node = helper.make_node("DynamicQuantizeLinear", ["x"], [n for n, _ in names])
    infos = [helper.make_tensor_value_info(n, t, None) for n, t in names]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", T.FLOAT, [2])], infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = {"x": np.array(x, np.float32)}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    found = populus.compile(model, tiles=2).run(given)
    for (name, _), w in zip(names, wanted, strict=True):
        np.testing.assert_allclose(found[name], w, rtol=1e-6)


def test_a_shape_may_pass_through_quantized_constants():
    scales = numpy_helper.from_array(np.array([1, 1, 4, 8], np.uint8), "q")
    numbers = [numpy_helper.from_array(np.array(0.5, np.float32), "half"), numpy_helper.from_array(np.array(0, np.uint8), "none")]
    nodes = [helper.make_node("DequantizeLinear", ["q", "half", "none"], ["s"]), helper.make_node("Relu", ["s"], ["r"])]
    nodes += [helper.make_node("Clip", ["r", "one"], ["scales"]), helper.make_node("Resize", ["x", "", "scales"], ["y"])]
    one = numpy_helper.from_array(np.array(1, np.float32), "one")
    infos = [helper.make_tensor_value_info(n, T.FLOAT, s) for n, s in (("x", [1, 1, 2, 2]), ("y", None))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [scales, *numbers, one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    assert populus.compile(model, tiles=2).run({"x": np.ones((1, 1, 2, 2), np.float32)})["y"].shape == (1, 1, 4, 8)
