"""Sizes that no machine has are refused in one line, before anything is planned or computed for them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper
from xdsl.passes import ModulePass

import populus
from populus.dialects.support.budget import Limits
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.driver.pipeline import Pipeline

V = helper.make_tensor_value_info
X = V("x", T.FLOAT, [1, 1, 2, 2])
PAIR = helper.make_tensor("w", T.FLOAT, [2], [1, 2])
HUGE = 1 << 40


def ints(name, *values):
    return helper.make_tensor(name, T.INT64, [len(values)], values)


def scalar(name, value, element=T.INT64):
    return helper.make_tensor(name, element, [], [value])


def model(op, names, *initializers, inputs=(X,), opset=21, **attributes):
    node = helper.make_node(op, names, ["y"], "node", **attributes)
    graph = helper.make_graph([node], "g", list(inputs), [V("y", T.FLOAT, None)], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def stated(dims, data):
    """An initializer of these dimensions and these bytes, whether they fit or not."""
    tensor = T(name="w", data_type=T.FLOAT, raw_data=data)
    tensor.dims[:] = dims
    return tensor


ELEMENTS = "elements; a tensor has at most 2\\^33"
MADE = "elements; at most 2\\^28 are made while compiling"
MODELS = {
    "an input": (model("Neg", ["x"], inputs=[V("x", T.FLOAT, [1 << 62])]), f"input 'x' is of shape .*{ELEMENTS}"),
    "a product that wraps to 0": (
        model("Size", ["x"], inputs=[V("x", T.FLOAT, [1 << 32, 1 << 32])]),
        f"input 'x' is of shape .* 18446744073709551616 {ELEMENTS}",
    ),
    "pads": (model("Pad", ["x", "p"], ints("p", 0, 0, 0, HUGE, 0, 0, 0, 0)), f"'node': Pad-21: .*{ELEMENTS}"),
    "pads of a window": (model("MaxPool", ["x"], kernel_shape=[1, 1], pads=[HUGE, 0, 0, 0]), f"'node': MaxPool-12: .*{ELEMENTS}"),
    "Expand": (model("Expand", ["x", "s"], ints("s", HUGE, 1, 2, 2)), f"'node': Expand-13: .*{ELEMENTS}"),
    "Expand of a constant": (model("Expand", ["w", "s"], PAIR, ints("s", HUGE, 2), inputs=[]), f"'node': Expand-13: .*{ELEMENTS}"),
    "Tile": (model("Tile", ["x", "s"], ints("s", HUGE, 1, 1, 1)), f"'node': Tile-13: .*{ELEMENTS}"),
    "Tile of a constant": (model("Tile", ["w", "s"], PAIR, ints("s", HUGE), inputs=[]), f"'node': Tile-13: .*{ELEMENTS}"),
    "ConstantOfShape": (model("ConstantOfShape", ["s"], ints("s", (1 << 63) - 1, 4), inputs=[]), f"'node': ConstantOfShape: .*{ELEMENTS}"),
    "Range": (
        model("Range", ["a", "b", "c"], scalar("a", 0), scalar("b", HUGE), scalar("c", 1), inputs=[]),
        f"'node': Range-11: .*{ELEMENTS}",
    ),
    "a Range whose length wraps": (
        model("Range", ["a", "b", "c"], scalar("a", -(1 << 62)), scalar("b", 1 << 62), scalar("c", 1), inputs=[]),
        f"'node': Range-11: the range has 9223372036854775808 {MADE}",
    ),
    "a Range without end": (
        model("Range", ["a", "b", "c"], *(scalar(n, v, T.FLOAT) for n, v in zip("abc", (0, np.inf, 1))), inputs=[]),
        "'node': Range-11: from 0.0 to inf by 1.0 there is no number of elements",
    ),
    "Resize to sizes": (model("Resize", ["x", "", "", "s"], ints("s", 1, 1, HUGE, 2)), f"'node': Resize-19: .*{ELEMENTS}"),
    "Resize by scales": (
        model("Resize", ["x", "", "s"], helper.make_tensor("s", T.FLOAT, [4], [1, 1, 1e30, 1])),
        f"'node': Resize-19: a dimension of its result .*{MADE}",
    ),
    "Resize by infinity": (
        model("Resize", ["x", "", "s"], helper.make_tensor("s", T.FLOAT, [4], [1, 1, np.inf, 1])),
        "'node': Resize-19: a scale is inf; numbers above 0 are expected",
    ),
    "Upsample": (
        model("Upsample", ["x", "s"], helper.make_tensor("s", T.FLOAT, [4], [1, 1, 1e12, 1]), opset=9),
        f"'node': Upsample-9: a dimension of its result .*{MADE}",
    ),
    "EyeLike": (model("EyeLike", ["x"], inputs=[V("x", T.FLOAT, [1 << 16, 1 << 16])]), f"'node': EyeLike-9: its result .*{MADE}"),
    "a mask": (model("Trilu", ["x"], inputs=[V("x", T.FLOAT, [1 << 16, 1 << 16])]), f"'node': Trilu-14: its mask .*{MADE}"),
    "an outer product": (
        model("Mul", ["x", "z"], inputs=[V("x", T.FLOAT, [1 << 24, 1]), V("z", T.FLOAT, [1 << 24])]),
        f"'node': Mul-14: .*{ELEMENTS}",
    ),
    "an initializer beyond its bytes": (
        model("Add", ["x", "w"], stated([1 << 62, 8], b"12345678")),
        "'node': Add: 'w' is float32 of shape .* 147573952589676412928 bytes; the file has 8 bytes for it",
    ),
    "an initializer of no elements": (model("Add", ["x", "w"], stated([1 << 62, 0, 8], b"")), f"'node': Add: 'w' is of shape .*{ELEMENTS}"),
}


@pytest.fixture(autouse=True, scope="module")
def compiler():
    """All of it imported, which takes memory too."""
    populus.compile(model("Neg", ["x"]), tiles=4, engine="numpy")


@pytest.mark.parametrize("what", MODELS)
def test_an_absurd_size_is_refused_in_one_line_and_takes_no_memory(what):
    proto, said = MODELS[what]
    tracemalloc.start()
    try:
        with pytest.raises(PopulusError, match=said) as error:
            populus.compile(proto, tiles=4, engine="numpy")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("op", ["Tile", "Expand"])
def test_a_large_constant_that_few_numbers_make_is_not_computed_while_compiling(op):
    sizes = ints("s", 1 << 24) if op == "Tile" else ints("s", 1 << 24, 2)
    tracemalloc.start()
    try:
        program = populus.compile(model(op, ["w", "s"], PAIR, sizes, inputs=[]), level="popops")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert program.signature.outputs["y"].element_count() == 1 << 25


def test_a_bound_dimension_counts_and_the_largest_tensor_is_within():
    largest = Limits.elements
    open_ = model("Neg", ["x"], inputs=[V("x", T.FLOAT, ["n"])])
    with pytest.raises(PopulusError, match=ELEMENTS):
        populus.compile(open_, dims={"n": largest + 1})
    program = populus.compile(open_, dims={"n": largest}, level="popops")
    assert program.signature.inputs["x"].get_shape() == (largest,)


def test_a_model_without_outputs_is_refused_in_one_line():
    proto = model("Neg", ["x"])
    del proto.graph.output[:]
    with pytest.raises(PopulusError, match=r"^g: the model has no outputs, .*; name one at least in graph\.output$"):
        populus.compile(proto)


def deep(count: int) -> str:
    inner, end = "%y = popart.neg %x : tensor<2xf32>", "popart.yield %x : tensor<2xf32>"
    for i in range(count):
        inner = f"%r{i} = popart.if %c then {{ {inner} {end} }} else {{ {end} }} : tensor<i1> -> tensor<2xf32>"
    return f"func.func @main(%x: tensor<2xf32>, %c: tensor<i1>) -> tensor<2xf32> {{ {inner} func.return %x : tensor<2xf32> }}"


LIMITED = {
    "elements=2": "input 'x' is of shape \\[1, 1, 2, 2\\], 4 elements; a tensor has at most 2 ",
    "bytes=8": "the program's variables take \\d+ bytes; at most 8 are taken \\(POPULUS_LIMITS=bytes=N says another limit\\)",
    "seconds=0": "the compilation takes longer than 0 seconds \\(POPULUS_LIMITS=seconds=N\\)",
    "nodes=3": "POPULUS_LIMITS: no limit 'nodes'; there are bytes, elements, growth, nesting, seconds",
    "bytes=all": "POPULUS_LIMITS: bytes=all; expected a whole number, such as bytes=4096, bytes=4G or bytes=2\\^30",
}


@pytest.mark.parametrize("limit", LIMITED)
def test_a_limit_is_that_of_the_environment(limit: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POPULUS_LIMITS", limit)
    with pytest.raises(PopulusError, match=LIMITED[limit]) as error:
        ran(model("Neg", ["x"]))
    assert "\n" not in str(error.value)


def ran(proto) -> None:
    populus.compile(proto, tiles=4, engine="numpy").run({"x": np.ones((1, 1, 2, 2), np.float32)})


def test_regions_are_as_deep_as_the_limit(monkeypatch: pytest.MonkeyPatch):
    populus.compile(parse_text(context(), deep(60), "t.mlir"), level="popart")
    with pytest.raises(PopulusError, match=r"t.mlir:1:\d+: nested deeper than 64 regions \(POPULUS_LIMITS=nesting=N"):
        parse_text(context(), deep(64), "t.mlir")
    monkeypatch.setenv("POPULUS_LIMITS", "nesting=3")
    with pytest.raises(PopulusError, match="nested deeper than 3"):
        parse_text(context(), deep(4), "t.mlir")


def test_functions_that_multiply_each_other_are_refused():
    """Fifty nodes, each of two calls of the next: 2^50 of the last."""
    domain = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = [
        helper.make_function("f", f"F{i}", ["x"], ["y"], [helper.make_node(f"F{i + 1}", ["x"], ["z"], domain="f"),
                             helper.make_node(f"F{i + 1}", ["z"], ["y"], domain="f")], domain)
        for i in range(50)
    ]  # fmt: skip
    functions.append(helper.make_function("f", "F50", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], domain))
    graph = helper.make_graph([helper.make_node("F0", ["x"], ["y"], domain="f")], "g", [X], [V("y", T.FLOAT, None)])
    with pytest.raises(PopulusError, match=r"51001 ops are made of 51; at most 1000 times as many are \(POPULUS_LIMITS=growth=N\)"):
        populus.compile(helper.make_model(graph, opset_imports=domain, functions=functions))


def grown(ctx, module) -> None:
    block = module.body.block
    block.insert_ops_after([block.first_op.clone() for _ in range(10_001)], block.first_op)


def test_a_pass_that_makes_too_many_ops_is_named(monkeypatch: pytest.MonkeyPatch):
    module = parse_text(context(), "%k = data.constant dense<1.0> : tensor<f32>", "t.mlir")
    pipeline = Pipeline.from_text("cse", {"cse": lambda: type("Grown", (ModulePass,), {"name": "cse", "apply": staticmethod(grown)})}, "-p")
    with pytest.raises(PopulusError, match=r"10002 ops are made of 1; at most 1000 times as many are .* \(in cse\)"):
        pipeline.run(context(), module)


def test_one_op_with_many_results_may_become_as_many_ops():
    n = 10_001
    split = helper.make_node("Split", ["x"], [f"y{i}" for i in range(n)], axis=0, num_outputs=n)
    graph = helper.make_graph([split], "g", [V("x", T.FLOAT, [n])], [V(f"y{i}", T.FLOAT, [1]) for i in range(n)])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert len(populus.compile(proto, level="popart").signature.outputs) == n
