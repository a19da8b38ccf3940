"""Programs that PopART refuses are refused by the same phrase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.popart_programs import CPU, inferred, trained
from populus import popart
from populus.dialects.support.diagnostics import PopulusError

ONE = np.ones((1, 1, 1), np.float32)
IMAGE = np.ones((1, 2, 4, 4), np.float32)
X = np.ones((3, 4), np.float32)


def recurrent(**attributes: Any) -> Callable[..., list[str]]:
    """Builds an RNN of one element with attributes set later."""

    def make(b: popart.Builder, x: str, w: str, r: str) -> list[str]:
        made = b.aiOnnx.rnn([x, w, r], 2)
        for name, value in attributes.items():
            b.addNodeAttribute(name, value, set(made))
        return made

    return make


REFUSED: list[tuple[Callable[..., Any], list[Any], str]] = [
    (recurrent(activations=["Affine"]), [ONE] * 3, "the activation Affine is not supported"),
    (recurrent(activations=[]), [ONE] * 3, "only supports 1 activation; 0 are given"),
    (recurrent(clip=1.0), [ONE] * 3, "clip is not supported"),
    (recurrent(direction="bidirectional"), [ONE] * 3, "bidirectional; it only supports forward"),
    (recurrent(hidden_size=2), [ONE] * 3, "hidden_size = 2 does not match"),
    (lambda b, x: b.aiOnnx.averagepool([x], [2, 2], count_include_pad=1), [IMAGE], "^`count_include_pad` is not supported"),
    (lambda b, x: b.aiOnnx.maxpool([x], 1, [2, 2], dilations=[2, 2]), [IMAGE], "Dilations of value other than 1"),
    (lambda b, x: b.aiOnnx.maxpool([x], 1, [2, 2], pads=[0, 0, 0]), [IMAGE], r"^Padding vector \(length 3\)"),
    (lambda b, x: b.aiOnnx.randomnormal([2], seed=1.0), [X], "Use session::setRandomSeed instead"),
    (lambda b, x: b.aiOnnx.randomuniformlike([x], dtype=11), [X], "Unsupported data type requested: DOUBLE"),
    (lambda b, x: b.aiOnnx.tile([x, b.aiOnnx.constant(np.array([1, -1]))]), [X], "Values must be non-negative"),
    (lambda b, x: b.aiOnnx.tile([x, b.aiOnnx.constant(np.array([2]))]), [X], "one element for each dimension"),
    (lambda b, x: b.aiOnnx.reshape([x, b.aiOnnx.constant(np.array([-1, -1]))]), [X], "can only use -1 to specify one"),
    (lambda b, x: b.aiOnnx.expand([x, b.aiOnnx.constant(np.array([2, 4]))]), [X], "corresponding dimensions must have the same"),
    (lambda b, x, y: b.aiOnnx.add([x, y]), [X, X.T.copy()], r"'Op\(ai.onnx.Add:7\)', frames \[3, 4\] and \[4, 3\] are not aligned"),
    (lambda b, x, y: b.aiOnnx.mul([x, y]), [X, X.astype(np.float16)], r"types FLOAT and FLOAT16 \(shapes \[3 4\] and \[3 4\]\)$"),
    (lambda b, x: b.aiGraphcore.subsample([x], [1, 0]), [X], "^Strides invalid. 0 stride at index 1"),
    (lambda b, x: b.aiGraphcore.shapeddropout([x], [2, 2], 0.5), [X], "^ShapedDropout: incompatible input tensor"),
    (lambda b, x: b.aiGraphcore.shapeddropout([x], [3, 1], 1.5), [X], r"ratio value 1.5 is not valid.*\[0,1\)$"),
    (lambda b, x: b.aiGraphcore.reducemedian([x], axes=[2]), [X], r"^Axis 2 is out of acceptable range \[-2, 1\]$"),
    (
        lambda b, x, *s: b.aiOnnx.batchnormalization([x, *s], 1)[0],
        [IMAGE, *[np.ones(3, np.float32)] * 4],
        r"expected shape of scale is to be \[2\]",
    ),
]


def called(b: popart.Builder, x: str, inputs: int, outputs: int) -> list[str]:
    """Calls a graph of one input and one output."""
    inner = b.createSubgraphBuilder()
    inner.addOutputTensor(inner.aiOnnx.exp([inner.addInputTensor("FLOAT", [3, 4])]))
    return b.aiGraphcore.call([x] * inputs, outputs, inner, "here")


CALLS: list[tuple[Callable[..., Any], list[Any], str]] = [
    (lambda b, x: called(b, x, 2, 1), [X], r"^For CallOp 'here', number of inputs \(2\) does not match that of the callee subgraph \(1\)$"),
    (lambda b, x: called(b, x, 1, 2), [X], r"^For CallOp 'here', number of outputs \(2\)"),
    (lambda b, x: b.aiGraphcore.reverse([x], [1, 1]), [X], "Dimension 1 appears multiple times"),
    (
        lambda b, x: b.aiGraphcore.multiconv([[x, x]], strides=[[1]]),
        [IMAGE],
        "^Length of strides vector 1 != number of spatial dimensions 2$",
    ),
    (lambda b, x: b.aiGraphcore.multiconv([[x, x]], strides=[[1, 1]] * 2), [IMAGE], r"strides parameter sets \(2\) does not match"),
    (lambda b, x: b.aiGraphcore.multiconv([[x]]), [IMAGE], "must have at least two inputs"),
    (lambda b, x: b.aiGraphcore.multiconv([[x] * 4]), [IMAGE], "can have at most three inputs"),
]


@pytest.mark.parametrize(("make", "arrays", "text"), [*REFUSED, *CALLS])
def test_what_popart_refuses_is_refused_by_its_phrase(make, arrays, text):
    with pytest.raises(PopulusError, match=text):
        inferred(make, *arrays, opset=10)


@pytest.mark.parametrize(
    ("at", "axis", "rows", "broadcast", "text"),
    [
        ((3, 4), 2, 5, 1, "axis = 2 is outside the acceptable range"),
        ((3, 4), 0, 0, 1, "axis_size = 0 is not valid"),
        ((3, 4, 1), 0, 5, 1, "Invalid rank for indices"),
        ((3, 5), 0, 5, 1, "Failed to expand 'indices' shape"),
        ((1, 4), 0, 5, 1, "Partial broadcasting of indices"),
    ],
)
def test_indices_of_a_scatter_that_do_not_fit_are_refused(at, axis, rows, broadcast, text):
    def make(b: popart.Builder, x: str, i: str) -> str:
        return b.aiGraphcore.scatterreduce([x, i], axis=axis, axis_size=rows, enable_index_broadcast=broadcast)

    with pytest.raises(PopulusError, match=text):
        inferred(make, X, np.zeros(at, np.uint32))


def session(patterns: Any, op: str, loss: bool = True) -> popart.InferenceSession:
    """Makes a session of a program with one op behind an addition of a weight."""
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [2])
    w = b.addInitializedInputTensor(np.ones(2, np.float32))
    opset = b.aiGraphcore if op in ("expm1", "log1p") else b.aiOnnx
    y = getattr(opset, op)([b.aiOnnx.add([x, w])])
    total = b.aiGraphcore.identityloss([y])
    if not loss:
        return popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, [y]), CPU, patterns=patterns)
    return popart.TrainingSession(b.getModelProto(), popart.DataFlow(1, [y]), total, popart.ConstSGD(0.1), CPU, patterns=patterns)


@pytest.mark.parametrize(("op", "name"), [("exp", "ExpGradOp"), ("log1p", "Log1pGradOp"), ("cos", "CosGradOp"), ("sqrt", "SqrtGradOp")])
def test_a_gradient_whose_rewrite_is_off_is_refused(op, name):
    with pytest.raises(PopulusError, match=f"should have been removed by pattern {name}$"):
        session(popart.Patterns([]), op)
    session(popart.Patterns([name]), op)
    session(popart.Patterns(popart.PatternsLevel.Minimal), op)
    session(popart.Patterns([]), op, loss=False)


def test_patterns_are_on_by_level_or_by_name():
    assert popart.Patterns().isPatternEnabled("CoshOp")
    assert not popart.Patterns(popart.PatternsLevel.NoPatterns).isPatternEnabled("CoshOp")
    assert not popart.Patterns(["ExpGradOp"]).CoshOp
    assert popart.Patterns([]).enablePattern("CoshOp").CoshOp
    with pytest.raises(PopulusError, match="by pattern CoshOp$"):
        session(popart.Patterns([]), "cosh", loss=False)


def test_a_loss_is_a_scalar_and_an_anchor_is_a_tensor():
    def make(b: popart.Builder) -> tuple[str, list[str]]:
        return b.aiGraphcore.l1loss(["w"], 0.1, popart.ReductionType.NoReduction), []

    with pytest.raises(PopulusError, match="must be a scalar tensor$"):
        trained(make, {}, {"w": X}, popart.ConstSGD(0.1))
    b = popart.Builder()
    c = b.addInputTensor("INT32", [2], "c")
    loss = b.aiGraphcore.identityloss([b.aiOnnx.mul([b.aiOnnx.cast([c], "FLOAT"), b.addInitializedInputTensor(np.ones(2, np.float32))])])
    with pytest.raises(PopulusError, match="^Anchor tensor `Gradient___c' not in Ir Tensors\\."):
        popart.TrainingSession(b.getModelProto(), popart.DataFlow(1, ["Gradient___c"]), loss, popart.ConstSGD(0.1), CPU)
