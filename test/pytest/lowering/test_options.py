"""The whole pipeline gives equal results at every level with each rewrite switched off, and with each alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import populus
from benchmarks.models import Graph, transformer
from populus.compare.levels import compare_levels
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.popart.patterns import PATTERNS
from populus.lowering.popart.rewriting import rewrite

Arrays = dict[str, NDArray[Any]]
SIZES = {"sequence": 6, "hidden": 16, "heads": 2, "feed_forward": 24}


def convolutions() -> onnx.ModelProto:
    """Convolutions with pads, norms, factors and terms behind them, hard_swish, channels last and back, a split and its concatenation."""
    g = Graph()
    x = g.op("Pad", "x", g.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    x = g.op("Conv", x, g.weight(8, 3, 3, 3, scale=0.3))
    norm = [
        g.constant(v) for v in (g.rng.uniform(0.5, 1.5, 8), g.rng.standard_normal(8), g.rng.standard_normal(8), g.rng.uniform(0.5, 2, 8))
    ]
    x = g.op("BatchNormalization", x, *norm)
    x = g.op("Mul", x, g.op("Clip", g.op("Add", x, g.constant(3.0)), g.constant(0.0), g.constant(6.0)))
    x = g.op("Div", x, g.constant(6.0))
    x = g.op("BatchNormalization", g.op("Relu", x), *norm)
    x = g.op("Add", g.op("Mul", x, g.constant(g.rng.uniform(0.5, 1.5, (8, 1, 1)))), g.constant(g.rng.standard_normal((8, 1, 1))))
    x = g.op("Transpose", x, perm=[0, 2, 3, 1])
    x = g.op("Add", g.op("Mul", x, g.constant(1.0)), g.constant(g.rng.standard_normal(8)))
    x = g.op("Transpose", g.op("Relu", x), perm=[0, 3, 1, 2])
    x = g.op("Conv", x, g.weight(8, 8, 1, 1, scale=0.3))
    x = g.op("Sub", g.op("Mul", x, g.constant(2.0)), g.constant(g.rng.standard_normal((1, 8, 1, 1))))
    first = g.op("Slice", x, g.constant([0], np.int64), g.constant([3], np.int64), g.constant([1], np.int64))
    second = g.op("Slice", x, g.constant([3], np.int64), g.constant([8], np.int64), g.constant([1], np.int64))
    x = g.op("Concat", first, second, axis=1)
    return g.model("convolutions", x, [1, 8, 6, 6], inputs=[1, 3, 6, 6])


def spelled_out() -> onnx.ModelProto:
    """Layer norm, RMS norm, swish and softmax as an exporter writes them, between products."""
    g = Graph()

    def mean(t: str) -> str:
        return g.op("ReduceMean", t, axes=[-1], keepdims=1)

    x = g.linear("x", 8, 8)
    d = g.op("Sub", x, mean(x))
    root = g.op("Sqrt", g.op("Add", mean(g.op("Pow", d, g.constant(2.0))), g.constant(1e-3)))
    x = g.op("Add", g.op("Mul", g.op("Div", d, root), g.weight(8, scale=1)), g.weight(8, scale=1))
    x = g.op("Mul", x, g.op("Sigmoid", x))
    root = g.op("Sqrt", g.op("Add", mean(g.op("Mul", x, x)), g.constant(1e-3)))
    x = g.op("Mul", g.op("Mul", x, g.op("Reciprocal", root)), g.weight(8, scale=1))
    e = g.op("Exp", g.op("Sub", x, g.op("ReduceMax", x, axes=[-1], keepdims=1)))
    x = g.op("Log", g.op("Div", e, g.op("ReduceSum", e, g.constant([-1], np.int64), keepdims=1)))
    return g.model("spelled_out", g.op("Add", x, g.op("Cast", g.op("Cast", x, to=11), to=1)), [4, 8])


def quantized() -> onnx.ModelProto:
    """A convolution, a maximum, a concatenation and a term between quantized values; no sum is half way between two of them."""
    g = Graph()
    zero = g.constant(7, np.int8)

    def again(t: str, scale: float) -> str:
        step = g.constant(scale)
        return g.op("DequantizeLinear", g.op("QuantizeLinear", t, step, zero), step, zero)

    weights = g.constant(g.rng.integers(-127, 128, (8, 3, 3, 3)), np.int8)
    w = g.op("DequantizeLinear", weights, g.constant(g.rng.uniform(0.003, 0.004, 8)), g.constant([0] * 8, np.int8), axis=0)
    x = again(g.op("Conv", again("x", 0.0313), w), 0.0517)
    x = again(g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 0.0517)
    x = again(g.op("Concat", x, g.op("Relu", x), axis=1), 0.0619)
    b = g.op("DequantizeLinear", g.constant(g.rng.integers(-9, 9, (16, 1, 1)), np.int8), g.constant(0.1), zero)
    return g.model("quantized", g.op("Add", x, b), [1, 16, 2, 2], inputs=[1, 3, 6, 6])


MODELS = {
    "quantized": quantized,
    "bert": lambda: transformer(**SIZES),
    "gpt": lambda: transformer(**SIZES, causal=True),
    "convolutions": convolutions,
    "spelled_out": spelled_out,
}


@cache
def proto(name: str) -> onnx.ModelProto:
    return MODELS[name]()


@cache
def inputs(name: str) -> Arrays:
    rng = np.random.default_rng(5)
    shape = [d.dim_value for d in proto(name).graph.input[0].type.tensor_type.shape.dim]
    return {"x": rng.standard_normal(shape).astype(np.float32)}


@cache
def plain(name: str) -> NDArray[Any]:
    """What the model gives without any rewrite, at the tile level."""
    return populus.compile(proto(name), tiles=4, pipeline="inference-plain", engine="numpy").run(inputs(name))["y"]


def agree(name: str, pipeline: Pipeline) -> None:
    program = populus.compile(proto(name), tiles=4, pipeline=pipeline, engine="numpy")
    for comparison in compare_levels(program, inputs(name)):
        assert comparison.first is None, str(comparison)
    np.testing.assert_allclose(program.run(inputs(name))["y"], plain(name), rtol=1e-4, atol=1e-5)


@cache
def fired() -> dict[str, set[str]]:
    """The models in which each pattern is applied."""
    found: dict[str, set[str]] = {name: set() for name in PATTERNS}
    for name in MODELS:
        ctx, module = context(), import_onnx(proto(name))
        Pipeline.from_text("onnx-infer-shapes, onnx-fold-constants, onnx-to-popart, popart-cse").run(ctx, module)
        (main,) = module.body.block.ops
        for pattern in rewrite(main.regions[0].block, [made()() for made in PATTERNS.values()]):
            found[pattern].add(name)
    return found


@pytest.mark.parametrize("name", PATTERNS)
def test_results_are_equal_without_a_pattern_and_with_it_alone(name: str) -> None:
    for model in sorted(fired()[name]):
        for options in ({"without": (name,)}, {"patterns": (name,)}):
            agree(model, Pipeline.named("inference").with_options("popart-fuse", **options))


@pytest.mark.parametrize("options", [{"exact": True}, {"prune": False}], ids=["exact", "not-pruned"])
def test_results_are_equal_with_an_option(options: dict[str, Any]) -> None:
    for model in MODELS:
        agree(model, Pipeline.named("inference").with_options("popart-fuse", **options))


@pytest.mark.parametrize("name", ["popart-cse", "popart-fuse", "popops-fuse"])
def test_results_are_equal_without_a_pass(name: str) -> None:
    for model in MODELS:
        agree(model, Pipeline.named("inference").remove(name))


def test_the_models_here_are_what_patterns_look_for() -> None:
    elsewhere = {"ViewSimplify", "TransposeToIdentityOrReshape", "SliceOfSlice", "SliceOfConcat", "ConcatOfConcat", "ExpandCast"}
    assert {name for name, models in fired().items() if not models} <= elsewhere
