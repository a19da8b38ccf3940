"""Results and operands that are views: pixels apart, rows backwards, a product beside a formula on it, on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

import populus
from populus.dialects.poplar.overlap import same_elements
from populus.dialects.poplar.view import View
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.runtime.session import Session

Array = NDArray[Any]
ENGINES = ["numpy", "strict", "native"]
node = helper.make_node


def noise(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Random elements; integers are small."""
    rng = np.random.default_rng(seed + sum(shape))
    return rng.integers(-4, 5, shape).astype(dtype) if np.dtype(dtype).kind in "iu" else rng.standard_normal(shape).astype(dtype)


def model(nodes: list[NodeProto], x: Array, constants: dict[str, Array], result: str = "y") -> ModelProto:
    """A model of one input, x."""
    graph = helper.make_graph(
        nodes,
        "views",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info(result)],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def oracle(proto: ModelProto, x: Array) -> Array:
    """The result of onnxruntime, node by node."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (result,) = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert isinstance(result, np.ndarray), result
    return result


def agrees(proto: ModelProto, x: Array, engine: str, tolerance: float = 2e-5, **options: Any) -> None:
    """Holds an engine's result to the oracle's."""
    expected = oracle(proto, x)
    if engine != "default":
        options["engine"] = engine
    found = populus.compile(proto, **options).run({"x": x})["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance * np.abs(expected).max())


# -- pixels that do not lie side by side --------------------------------------------------------------------------------


def last(rank: int) -> NodeProto:
    """Puts the channels of c last."""
    return node("Transpose", ["c"], ["t"], perm=[0, *range(2, rank + 2), 1])


CONSUMERS: dict[str, tuple[list[NodeProto], dict[str, Array]]] = {
    "LayerNormalization": ([node("LayerNormalization", ["t", "scale"], ["y"])], {"scale": np.ones(8, np.float32)}),
    "Softmax": ([node("Softmax", ["t"], ["y"])], {}),
    "MatMul": ([node("MatMul", ["t", "m"], ["y"])], {"m": noise(8, 5)}),
    "TopK": ([node("TopK", ["t", "k"], ["y", "places"], axis=-1)], {"k": np.array([3])}),
    "GatherElements": ([node("GatherElements", ["t", "at"], ["y"], axis=1)], {"at": np.full((3, 2, 5, 8), 4)}),
    "GatherND": ([node("GatherND", ["t", "at"], ["y"])], {"at": np.array([[2, 3], [0, 1]])}),
    "ScatterND": ([node("ScatterND", ["t", "at", "v"], ["y"])], {"at": np.array([[1, 2, 3]]), "v": noise(1, 8)}),
    "Slice": ([node("Slice", ["t", "0", "9", "1"], ["y"])], {"0": np.array([1]), "9": np.array([9]), "1": np.array([2])}),
    "an element-wise op": ([node("Exp", ["t"], ["y"])], {}),
    "ReverseSequence": (
        [node("Reshape", ["t", "rows"], ["r"]), node("ReverseSequence", ["r", "n"], ["y"], batch_axis=0, time_axis=1)],
        {"rows": np.array([3, 25, 8]), "n": np.array([25, 3, 10])},
    ),
    "GRU": (
        [node("Reshape", ["t", "rows"], ["r"]), node("GRU", ["r", "gw", "gr"], ["y"], hidden_size=4)],
        {"rows": np.array([25, 3, 8]), "gw": noise(1, 12, 8), "gr": noise(1, 12, 4)},
    ),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_grouped_convolution_writes_pixels_for_consumers_of_channels(engine: str, consumer: str):
    nodes, constants = CONSUMERS[consumer]
    x = noise(3, 4, 5, 5)
    first = node("Conv", ["x", "w"], ["c"], group=2, pads=[1, 1, 1, 1])
    agrees(model([first, last(2), *nodes], x, {"w": noise(8, 2, 3, 3), **constants}), x, engine)


FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((2, 4, 9), (6, 2, 3), {"group": 2}),
    "2-D": ((2, 4, 7, 6), (6, 2, 3, 3), {"group": 2, "strides": [2, 1]}),
    "3-D": ((2, 4, 5, 4, 6), (6, 2, 2, 2, 2), {"group": 2}),
    "by single elements": ((2, 4, 7, 6), (6, 2, 1, 1), {"group": 2}),
    "of one channel a group": ((2, 4, 7, 6), (2, 2, 3, 3), {"group": 2}),
    "depthwise": ((2, 4, 7, 6), (4, 1, 3, 3), {"group": 4}),
    "depthwise with a multiplier": ((2, 4, 7, 6), (12, 1, 3, 3), {"group": 4}),
    "of one pixel": ((2, 4, 3, 3), (6, 2, 3, 3), {"group": 2}),
    "transposed": ((2, 4, 5, 5), (4, 3, 3, 3), {"group": 2}),
    "transposed, in groups of one": ((2, 4, 5, 5), (4, 1, 3, 3), {"group": 4, "strides": [2, 2]}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_channels_come_last_after_each_form_of_convolution(engine: str, form: str, dtype: Any):
    shape, weights, attributes = FORMS[form]
    kind = "ConvTranspose" if form.startswith("transposed") else "Conv"
    x = noise(*shape, dtype=dtype)
    nodes = [node(kind, ["x", "w"], ["c"], **attributes), last(len(shape) - 2), node("TopK", ["t", "k"], ["y", "places"])]
    agrees(model(nodes, x, {"w": noise(*weights, dtype=dtype), "k": np.array([2])}), x, engine, 2e-5 if dtype == np.float32 else 4e-3)


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("engine", ENGINES)
def test_channels_come_last_after_a_convolution_of_bytes(engine: str, group: int):
    x = noise(2, 4, 7, 6, dtype=np.uint8)
    nodes = [
        node("ConvInteger", ["x", "w", "zero"], ["i"], group=group),
        node("Cast", ["i"], ["c"], to=1),
        last(2),
        node("LayerNormalization", ["t", "scale"], ["y"]),
    ]
    constants = {"w": noise(8, 4 // group, 3, 3, dtype=np.int8), "zero": np.array(3, np.uint8), "scale": np.ones(8, np.float32)}
    agrees(model(nodes, x, constants), x, engine)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("engine", ENGINES)
def test_two_convolutions_write_parts_of_each_pixel(engine: str, dtype: Any):
    x = noise(2, 3, 6, 6, dtype=dtype)
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "v"], ["b"], pads=[1, 1, 1, 1]),
        node("Concat", ["a", "b"], ["c"], axis=1),
        last(2),
        node("MatMul", ["t", "m"], ["y"]),
    ]
    constants = {"w": noise(5, 3, 3, 3, dtype=dtype), "v": noise(7, 3, 3, 3, dtype=dtype), "m": noise(12, 4, dtype=dtype)}
    agrees(model(nodes, x, constants), x, engine, 2e-5 if dtype == np.float32 else 4e-3)


# -- a formula beside its operand ---------------------------------------------------------------------------------------

FORMULAS: dict[str, tuple[list[NodeProto], dict[str, Array]]] = {
    "Relu": ([node("Relu", ["c"], ["f"])], {}),
    "Tanh": ([node("Tanh", ["c"], ["f"])], {}),
    "a factor": ([node("Mul", ["c", "two"], ["f"])], {"two": np.array(2, np.float32)}),
    "a bias": ([node("Add", ["c", "bias"], ["f"])], {"bias": noise(1, 1, 1, 8)}),
}
PRODUCTS: dict[str, tuple[list[NodeProto], Array, dict[str, Array]]] = {
    "MatMul": ([node("MatMul", ["x", "w"], ["c"])], noise(1, 4, 6, 5), {"w": noise(5, 8)}),
    "Gemm": (
        [node("Gemm", ["x", "w", "b"], ["g"]), node("Reshape", ["g", "s"], ["c"])],
        noise(24, 5),
        {"w": noise(5, 8), "b": noise(8), "s": np.array([1, 4, 6, 8])},
    ),
    "Conv": ([node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])], noise(1, 3, 6, 8), {"w": noise(4, 3, 3, 3)}),
    "Conv by single elements": ([node("Conv", ["x", "w"], ["c"])], noise(1, 3, 6, 8), {"w": noise(4, 3, 1, 1)}),
    "a depthwise Conv": ([node("Conv", ["x", "w"], ["c"], group=4, pads=[1, 1, 1, 1])], noise(1, 4, 6, 8), {"w": noise(4, 1, 3, 3)}),
    "a linear Resize": (
        [node("Resize", ["x", "", "by"], ["c"], mode="linear")],
        noise(1, 4, 3, 4),
        {"by": np.array([1, 1, 2, 2], np.float32)},
    ),
}


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_product_and_each_formula_on_it_stand_in_one_result(engine: str, product: str, axis: int):
    nodes, x, constants = PRODUCTS[product]
    for formula, more in FORMULAS.values():
        for parts in (["c", "f"], ["f", "c"]):
            joined = model([*nodes, *formula, node("Concat", parts, ["y"], axis=axis)], x, constants | more)
            agrees(joined, x, engine, tiles=16)


@pytest.mark.parametrize("engine", ["default", "native"])
def test_a_convolution_and_its_relu_are_joined_as_in_networks(engine: str):
    x = noise(1, 16, 56, 56)
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["f"]),
        node("Concat", ["c", "f"], ["y"], axis=1),
    ]
    agrees(model(nodes, x, {"w": noise(16, 16, 3, 3)}), x, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_product_of_bytes_and_a_formula_on_it_stand_in_one_result(engine: str):
    x = noise(24, 5, dtype=np.uint8)
    nodes = [
        node("MatMulInteger", ["x", "w"], ["c"]),
        node("Max", ["c", "zero"], ["f"]),
        node("Concat", ["c", "f"], ["y"], axis=0),
    ]
    agrees(model(nodes, x, {"w": noise(5, 8, dtype=np.int8), "zero": np.array(0, np.int32)}), x, engine)


def test_a_call_between_a_product_and_its_formula_sees_the_product():
    """The function uses the product's variable beside its argument."""
    type = ": !poplar.tensor<1x4x4xf32>"
    text = "".join(f'%{v} = poplar.var "{v}" {type}\n' for v in "xwcr")
    text += "".join(f'poplar.stream_in "{v}" to %{v} {type}\n' for v in "xw")
    text += f"""
      poplar.func @keep {{
        %p = poplar.param out "p" {type}
        poplar.copy %c to %p {type}
      }}
      poplar.execute "product" {{
        poplar.family @matmul for (g = 1, m = 4, n = 4, k = 4)
          in a = %x[g, m, k] {type}
          in b = %w[g, k, n] {type}
          out c = %c[g, m, n] {type}
      }}
      poplar.call @keep(%r) {type}
      poplar.execute "formula" {{
        poplar.family @map {{expr = #expr.fn<max(_1, 0)>}} for (d0 = 1, d1 = 4, d2 = 4)
          inout x1 = %c[d0, d1, d2] {type}
      }}
    """
    text += "".join(f'poplar.stream_out %{v} to "{v}" {type}\n' for v in "cr")
    module = LocatingParser(context(), f"poplar.graph @main target <host, tiles = 1> {{\n{text}}}", "call.mlir").parse_module()
    inputs = {"x": noise(1, 4, 4), "w": noise(1, 4, 4, seed=1)}
    expected = inputs["x"] @ inputs["w"]
    assert expected.min() < 0
    for engine in ENGINES:
        found = Session(module, engine).run(inputs)
        np.testing.assert_allclose(found["r"], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["c"], np.maximum(expected, 0), rtol=1e-5, atol=1e-6)


def test_views_of_the_same_elements_in_any_order():
    whole = View.whole((4, 6))
    assert same_elements(whole, whole.dim_shuffle([1, 0]))
    assert same_elements(whole, whole.slice([3, 5], [-1, -1], [-1, -1]))
    assert same_elements(whole.slice([0, 0], [2, 6], [1, 1]), View((24,), 0, (12,), (1,)))
    assert not same_elements(whole.slice([0, 0], [2, 6], [1, 1]), whole.slice([2, 0], [4, 6], [1, 1]))
    assert not same_elements(whole.slice([0, 0], [4, 3], [1, 1]), whole.slice([0, 0], [4, 6], [1, 2]))
    assert not same_elements(whole, whole.slice([0, 0], [2, 6], [1, 1]))


# -- rows backwards -----------------------------------------------------------------------------------------------------

FLIP = {"start": np.array([-1]), "end": np.array([-100]), "step": np.array([-1])}
WINDOWS: dict[str, tuple[tuple[int, ...], NodeProto, dict[str, Array]]] = {
    "MaxPool with dilation": ((1, 3, 9, 8), node("MaxPool", ["f"], ["y"], kernel_shape=[3, 3], dilations=[2, 2]), {}),
    "MaxPool of one column": ((1, 3, 9, 3), node("MaxPool", ["f"], ["y"], kernel_shape=[3, 3], dilations=[2, 1]), {}),
    "a large AveragePool": ((1, 3, 9, 8), node("AveragePool", ["f"], ["y"], kernel_shape=[7, 7], pads=[3, 3, 3, 3]), {}),
    "AveragePool in 3-D": ((1, 3, 5, 4, 6), node("AveragePool", ["f"], ["y"], kernel_shape=[2, 3, 2], pads=[1, 0, 1, 0, 1, 0]), {}),
    "LpPool": ((1, 3, 9, 8), node("LpPool", ["f"], ["y"], kernel_shape=[6, 6]), {}),
    "MaxPool of lines": ((1, 3, 40), node("MaxPool", ["f"], ["y"], kernel_shape=[7]), {}),
    "a depthwise Conv with dilation": ((1, 3, 9, 8), node("Conv", ["f", "w"], ["y"], group=3, dilations=[2, 2]), {"w": noise(3, 1, 3, 3)}),
    "a large depthwise Conv": ((1, 3, 9, 8), node("Conv", ["f", "w"], ["y"], group=3, pads=[3, 3, 3, 3]), {"w": noise(3, 1, 7, 7)}),
    "a small depthwise Conv": ((1, 3, 9, 8), node("Conv", ["f", "w"], ["y"], group=3, pads=[1, 1, 1, 1]), {"w": noise(3, 1, 3, 3)}),
    "a Conv": ((1, 3, 9, 8), node("Conv", ["f", "w"], ["y"], pads=[1, 1, 1, 1]), {"w": noise(4, 3, 3, 3)}),
    "a small MaxPool": ((1, 3, 9, 8), node("MaxPool", ["f"], ["y"], kernel_shape=[3, 3], strides=[2, 2]), {}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("engine", ENGINES)
def test_windows_slide_over_rows_in_descending_order(engine: str, window: str, dtype: Any):
    shape, over, constants = WINDOWS[window]
    x = noise(*shape, dtype=dtype)
    constants = {name: a.astype(dtype) for name, a in constants.items()}
    for axes in [(d,) for d in range(1, len(shape))] + [tuple(range(len(shape)))]:
        flip = {name: np.repeat(a, len(axes)) for name, a in FLIP.items()} | {"axes": np.array(axes)}
        nodes = [node("Slice", ["x", "start", "end", "axes", "step"], ["f"]), over]
        agrees(model(nodes, x, constants | flip), x, engine, 2e-5 if dtype == np.float32 else 4e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_windows_slide_over_columns_that_were_rows_backwards(engine: str):
    x = noise(1, 3, 9, 8)
    nodes = [
        node("Slice", ["x", "start", "end", "axes", "step"], ["b"]),
        node("Transpose", ["b"], ["f"], perm=[0, 1, 3, 2]),
        node("MaxPool", ["f"], ["y"], kernel_shape=[4, 3], dilations=[2, 2]),
    ]
    agrees(model(nodes, x, FLIP | {"axes": np.array([3])}), x, engine)
