"""`populus.vjp` on whole small models: every parameter's gradient against differences in f64, and against torch where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import DYNAMIC_INDEX

import populus
from populus.dialects.support.diagnostics import PopulusError

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.models import transformer

Array = NDArray[Any]
D = TensorProto.DOUBLE


def model(nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], outputs: dict[str, list[int]], weights: dict[str, Array]):
    def infos(shapes: dict[str, list[int]]):
        return [helper.make_tensor_value_info(name, D, shape) for name, shape in shapes.items()]

    initializers = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "net", infos(inputs), infos(outputs), initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def double(source: onnx.ModelProto) -> onnx.ModelProto:
    """The model computing in f64."""
    made = onnx.ModelProto.FromString(source.SerializeToString())
    for i in made.graph.initializer:
        if i.data_type == TensorProto.FLOAT:
            i.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(i).astype(np.float64), i.name))
    for v in [*made.graph.input, *made.graph.output]:
        v.type.tensor_type.elem_type = D
    return made


def mlp() -> onnx.ModelProto:
    g = np.random.default_rng(1)
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1, name="first"),
        helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
        helper.make_node("MatMul", ["t", "w2"], ["m"], name="second"),
        helper.make_node("Add", ["m", "b2"], ["a"], name="bias"),
        helper.make_node("Softmax", ["a"], ["y"], axis=-1, name="softmax"),
    ]
    weights = {"w1": g.standard_normal((6, 5)), "b1": g.standard_normal(6), "w2": g.standard_normal((6, 3)), "b2": g.standard_normal(3)}
    return model(nodes, {"x": [4, 5]}, {"y": [4, 3]}, weights)


def conv_net() -> onnx.ModelProto:
    g = np.random.default_rng(2)
    nodes = [
        helper.make_node("Conv", ["x", "c1"], ["a"], pads=[1, 1, 1, 1], name="conv1"),
        helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"], name="norm"),
        helper.make_node("Relu", ["b"], ["c"], name="relu"),
        helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        helper.make_node("Conv", ["d", "c2", "c2b"], ["e"], strides=[2, 2], pads=[1, 1, 1, 1], group=2, name="conv2"),
        helper.make_node("Sigmoid", ["e"], ["f"], name="sigmoid"),
        helper.make_node("GlobalAveragePool", ["f"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["h"], name="flat"),
        helper.make_node("Gemm", ["h", "fc", "fcb"], ["y"], name="fc"),
    ]
    weights = {
        "c1": g.standard_normal((4, 2, 3, 3)) * 0.3,
        "scale": g.uniform(0.5, 1.5, 4),
        "shift": g.standard_normal(4),
        "mean": g.standard_normal(4) * 0.1,
        "variance": g.uniform(0.5, 1.5, 4),
        "c2": g.standard_normal((6, 2, 3, 3)) * 0.3,
        "c2b": g.standard_normal(6),
        "fc": g.standard_normal((6, 3)),
        "fcb": g.standard_normal(3),
    }
    return model(nodes, {"x": [2, 2, 8, 8]}, {"y": [2, 3]}, weights)


def layer(causal: bool) -> onnx.ModelProto:
    return double(transformer(layers=1, sequence=8, hidden=16, heads=2, feed_forward=32, causal=causal))


NETS = {"mlp": mlp, "conv_net": conv_net, "encoder": lambda: layer(False), "decoder": lambda: layer(True)}


@pytest.mark.parametrize("net", NETS)
def test_the_gradient_of_every_parameter_agrees_with_differences(net):
    made, g = NETS[net](), np.random.default_rng(3)
    x, y = made.graph.input[0].name, made.graph.output[0].name
    names = [x, *(i.name for i in made.graph.initializer if i.data_type == D)]
    program = populus.vjp(made, names)
    values = {x: g.standard_normal(program.inputs[x].get_shape()), **program.weights}
    cotangent = g.standard_normal(program.outputs[y].get_shape())
    outputs, gradients = program.run({x: values[x]}, {y: cotangent})
    plain = populus.compile(made).run({x: values[x]})
    np.testing.assert_allclose(outputs[y], plain[y], rtol=1e-9, atol=1e-12)
    for name in names:
        direction, h = g.standard_normal(values[name].shape), 1e-5
        up, down = (program.run({**values, name: np.asarray(values[name] + s * h * direction)}, {})[0][y] for s in (1, -1))
        expected = ((up - down) / (2 * h) * cotangent).sum()
        assert gradients[name].shape == values[name].shape
        np.testing.assert_allclose((gradients[name] * direction).sum(), expected, rtol=1e-5, atol=1e-7, err_msg=name)


def test_a_weight_can_be_given_another_value():
    program = populus.vjp(mlp(), ["w2"])
    x = np.ones((4, 5))
    g = {"y": np.arange(12.0).reshape(4, 3)}
    once, again = program.run({"x": x}, g), program.run({"x": x, "w2": program.weights["w2"]}, g)
    other = program.run({"x": x, "w2": np.zeros((6, 3))}, g)
    assert np.array_equal(once[0]["y"], again[0]["y"])
    assert not np.array_equal(once[0]["y"], other[0]["y"])
    assert not np.array_equal(once[1]["w2"], other[1]["w2"])


def test_a_weight_that_nothing_reads_has_the_gradient_zero():
    made = mlp()
    made.graph.initializer.append(numpy_helper.from_array(np.ones((2, 7)), "unused"))
    _, gradients = populus.vjp(made, ["unused", "b2"]).run({"x": np.ones((4, 5))}, {"y": np.ones((4, 3))})
    assert list(gradients) == ["unused", "b2"]
    assert gradients["unused"].tolist() == np.zeros((2, 7)).tolist()


def test_a_cotangent_left_out_is_zero():
    _, gradients = populus.vjp(mlp(), ["x"]).run({"x": np.ones((4, 5))}, {})
    assert not gradients["x"].any()


def test_every_level_gives_the_gradients():
    made = conv_net()
    g = np.random.default_rng(5)
    x, dy = g.standard_normal((2, 2, 8, 8)), g.standard_normal((2, 3))
    names = [i.name for i in made.graph.initializer]
    found = [populus.vjp(made, names, level=level).run({"x": x}, {"y": dy})[1] for level in ("popart", "popops", "poplar")]
    found.append(populus.vjp(made, names, tiles=5).run({"x": x}, {"y": dy})[1])
    for other in found[1:]:
        for name in names:
            np.testing.assert_allclose(other[name], found[0][name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("wrt", "message"),
    [
        (["w3"], "there is no input or weight 'w3'"),
        (["shape"], r"'shape' is tensor<2xi64>; only floats have gradients"),
        ([], "wrt is empty"),
        ("w1", r"wrt is 'w1'; a list of names is expected, such as \['w1'\]"),
    ],
)
def test_what_cannot_be_differentiated_is_refused(wrt, message):
    made = mlp()
    made.graph.node[-1].output[0] = "s"
    made.graph.node.append(helper.make_node("Reshape", ["s", "shape"], ["y"]))
    made.graph.initializer.append(numpy_helper.from_array(np.array([4, 3]), "shape"))
    with pytest.raises(PopulusError, match=message):
        populus.vjp(made, wrt)


@pytest.mark.parametrize(
    ("inputs", "cotangents", "message"),
    [
        ({"z": 1}, {}, "the model has no input 'z'"),
        ({"x": np.ones((4, 5))}, {"z": 1}, "no output of floats is called 'z'"),
        ({"x": np.ones((4, 5))}, {"y": np.ones(3)}, r"the cotangent of 'y' is float64 \[3\], expected float64 \[4, 3\]"),
        ({"x": np.ones((4, 6))}, {}, r"input 'x' has shape \[4, 6\], expected \[4, 5\]"),
        ({}, {}, "input 'x' is missing"),
    ],
)
def test_inputs_that_are_not_the_models_are_refused(inputs, cotangents, message):
    with pytest.raises(PopulusError, match=message):
        populus.vjp(mlp(), ["w1"]).run(inputs, cotangents)


def test_a_custom_op_is_differentiated_by_its_own_gradient():
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"], name="scale"),
        helper.make_node("LeakyRelu", ["m"], ["y"], domain="com.acme", name="leaky", alpha=0.25),
    ]
    made = model(nodes, {"x": [4]}, {"y": [4]}, {"w": np.array([1.0, -1.0, 2.0, -2.0])})
    made.opset_import.append(helper.make_opsetid("com.acme", 1))
    program = populus.vjp(made, ["w"], load=[Path(__file__).parents[2] / "examples/leaky_relu.py"])
    _, gradients = program.run({"x": np.array([3.0, 3.0, -3.0, -3.0])}, {"y": np.ones(4)})
    assert gradients["w"].tolist() == [3, 0.75, -0.75, -3]


def test_parameter_gradients_agree_with_torch():
    torch = pytest.importorskip("torch")
    made = conv_net()
    w = {i.name: torch.tensor(numpy_helper.to_array(i), requires_grad=True) for i in made.graph.initializer}
    g = np.random.default_rng(7)
    x, dy = g.standard_normal((2, 2, 8, 8)), g.standard_normal((2, 3))
    f = torch.nn.functional
    t = f.conv2d(torch.tensor(x), w["c1"], padding=1)
    t = (t - w["mean"][:, None, None]) / torch.sqrt(w["variance"] + 1e-5)[:, None, None]
    t = torch.relu(t * w["scale"][:, None, None] + w["shift"][:, None, None])
    t = torch.sigmoid(f.conv2d(f.max_pool2d(t, 2), w["c2"], w["c2b"], stride=2, padding=1, groups=2))
    t = t.mean((2, 3)) @ w["fc"] + w["fcb"]
    t.backward(torch.tensor(dy))
    _, gradients = populus.vjp(made, list(w)).run({"x": x}, {"y": dy})
    for name, tensor in w.items():
        np.testing.assert_allclose(gradients[name], tensor.grad.numpy(), rtol=1e-7, atol=1e-10, err_msg=name)


def test_open_dimensions_take_the_sizes_that_inputs_bring():
    w = helper.make_tensor("w", TensorProto.FLOAT, [3], [1, 2, 3])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    found = populus.vjp(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), ["w", "x"])
    for n in (2, 4):
        ones = np.ones((n, 3), np.float32)
        outputs, gradients = found.run({"x": ones}, {"y": ones})
        assert outputs["y"].tolist() == [[1, 2, 3]] * n
        assert gradients["w"].tolist() == [n] * 3
        assert gradients["x"].tolist() == [[1, 2, 3]] * n
    assert list(found.sized(n=5).cotangents["y"].get_shape()) == [5, 3]
    assert {n: t.get_shape() for n, t in found.cotangents.items()} == {"y": (DYNAMIC_INDEX, 3)}
    assert {n: t.get_shape() for n, t in found.inputs.items()} == {"x": (DYNAMIC_INDEX, 3), "w": (3,)}
    with pytest.raises(PopulusError, match="input 'x' is missing"):
        found.run({}, {})
