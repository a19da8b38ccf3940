"""Limits of PopART that no engine here has: a program that it refuses is refused, by the same phrase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.stated import StatedError, listed
from populus.popart.tensor_info import SPELLING
from populus.popart.translation import Body, Translation

if TYPE_CHECKING:
    from onnx import NodeProto

# Activations of recurrent ops that ONNX has and PopART has not.
_NO_ACTIVATIONS = frozenset(
    ("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "softplus", "softsign", "thresholdedrelu")
)  # fmt: skip
_RANDOM = frozenset((1, 10))  # ONNX's numbers of f32 and f16


def recurrent(b: Body) -> None:
    """Refuses an activation, a clip or a direction that PopART's recurrent ops do not have."""
    op = b.node.op_type
    activations = [n.decode() for n in b.attr("activations", [])]
    if strange := [n for n in activations if n.lower() in _NO_ACTIVATIONS]:
        raise PopulusError(f"the activation {strange[0]} is not supported")
    hidden = b.attr("hidden_size")
    if hidden is not None and hidden != b.shape(2)[2]:
        raise PopulusError(f"hidden_size = {hidden} does not match its recurrence weights, {list(b.shape(2))}")
    if op != "RNN":
        return
    if b.attr("activations") is not None and len(activations) != 1:
        raise PopulusError(f"it only supports 1 activation; {len(activations)} are given")
    for name in ("activation_alpha", "activation_beta", "clip"):
        if b.attr(name) is not None:
            raise PopulusError(f"{name} is not supported; leave it out")
    if b.attr("direction", "forward") != "forward":
        raise PopulusError(f"direction = {b.attr('direction')}; it only supports forward")


def random(b: Body, *, like: bool) -> None:
    """Refuses a seed of one node's own, and element types that no device has."""
    if b.attr("seed") is not None:
        raise PopulusError("Optional seed attribute is not supported. Use session::setRandomSeed instead.")
    number = b.attr("dtype", b.known(0).number if like else 1)
    if number not in _RANDOM:
        spelling = SPELLING.get(number, str(number))
        named = f"Unsupported data type requested: {spelling}" if like else f"The data type {spelling} is not supported in Poplar"
        raise PopulusError(f"{named}; FLOAT and FLOAT16 are")


def average_pool(b: Body) -> None:
    """Refuses an average that counts pads."""
    if b.attr("count_include_pad", 0):
        raise StatedError(f"`count_include_pad` is not supported, in the node of '{b.node.output[0]}'")


def max_pool(b: Body) -> None:
    """Refuses a window with gaps."""
    if any(d != 1 for d in b.attr("dilations", [])):
        raise PopulusError(f"dilations = {b.attr('dilations')}. Dilations of value other than 1 are currently not supported.")


def tile(b: Body) -> None:
    """Refuses repeats that are no constant, or that do not fit."""
    repeats = b.value(1)
    if repeats is None:
        raise PopulusError(f"its repeats '{b.node.input[1]}' must be of type Constant")
    if repeats.size != len(b.shape()):
        rule = "it should have one element for each dimension of the data tensor"
        raise PopulusError(f"repeats = {repeats.tolist()} for {list(b.shape())}; {rule}")
    if (repeats < 0).any():
        raise PopulusError(f"repeats = {repeats.tolist()}. Values must be non-negative in each shape dimension")


def reshape(b: Body) -> None:
    """Refuses a shape of several unknown sizes."""
    shape = b.value(1)
    if shape is not None and (shape == -1).sum() > 1:
        raise PopulusError(f"shape = {shape.tolist()}: the shape input to ReshapeOp can only use -1 to specify one unknown dimension")


def broadcast(b: Body) -> None:
    """Refuses shapes that do not broadcast."""
    import numpy as np

    if b.attr("broadcast"):
        return
    try:
        np.broadcast_shapes(b.shape(0), b.shape(1))
    except ValueError:
        version = b.translation.since(b.node.op_type)
        shapes = f"frames {list(b.shape(0))} and {list(b.shape(1))} are not aligned"
        raise PopulusError(f"np broadcasting failed on 'Op(ai.onnx.{b.node.op_type}:{version})', {shapes}") from None


def expand(b: Body) -> None:
    """Refuses a shape to which x does not broadcast."""
    import numpy as np

    wanted = b.value(1)
    if wanted is None:
        return
    try:
        np.broadcast_shapes(b.shape(0), tuple(int(n) for n in np.reshape(wanted, -1)))
    except ValueError:
        rule = "corresponding dimensions must have the same value or one of them must be 1"
        raise PopulusError(f"x is {list(b.shape(0))} and its shape {wanted.tolist()}; {rule}") from None


def batch_norm(b: Body) -> None:
    """Refuses inputs of few dimensions, and statistics that do not fit."""
    shape = b.shape()
    if len(shape) < 3:
        raise PopulusError(f"batch norm requires 3 dimensions at least; x is {list(shape)}")
    wanted = shape[1:] if not b.attr("spatial", 1) else shape[1:2]
    for i, name in enumerate(("scale", "B", "mean", "var"), 1):
        if b.shape(i) != tuple(wanted):
            raise PopulusError(f"the expected shape of {name} is to be {listed(wanted)}; {listed(b.shape(i))} is found")


def subsample(b: Body) -> None:
    """Refuses a stride of 0."""
    strides = b.attr("strides")
    if 0 in strides:
        raise StatedError(f"Strides invalid. 0 stride at index {strides.index(0)}, in the node of '{b.node.output[0]}'")


def shaped_dropout(b: Body) -> None:
    """Refuses a mask that does not broadcast against x."""
    given, shape = b.attr("shape"), b.shape()
    if len(given) > len(shape) or any(n not in (1, m) for n, m in zip(given[::-1], shape[::-1])):
        place = f"'{b.node.output[0]}' has x of {listed(shape)} and a mask of {listed(given)}"
        raise StatedError(f"ShapedDropout: incompatible input tensor and dropout shape. {place}")


LIMITS: Mapping[tuple[str, str], Callable[[Body], None]] = {
    **{("", op): recurrent for op in ("GRU", "LSTM", "RNN")},
    **{("", op): partial(random, like=False) for op in ("RandomNormal", "RandomUniform")},
    **{("", op): partial(random, like=True) for op in ("RandomNormalLike", "RandomUniformLike")},
    **{("", op): broadcast for op in ("Add", "Div", "Mul", "Pow", "Sub")},
    ("", "AveragePool"): average_pool,
    ("", "BatchNormalization"): batch_norm,
    ("", "Expand"): expand,
    ("", "MaxPool"): max_pool,
    ("", "Reshape"): reshape,
    ("", "Tile"): tile,
    ("ai.graphcore", "ShapedDropout"): shaped_dropout,
    ("ai.graphcore", "Subsample"): subsample,
}

# Ops, or their gradients by one input, that PopART has only in the form that a rewrite of this name gives them.
_FORWARD = {"Cosh": "CoshOp"}
_GRADIENTS: Mapping[str, Mapping[int, str]] = {
    "Atan2": {0: "Atan2Arg0GradOp", 1: "Atan2Arg1GradOp"},
    "ConvTranspose": {1: "ConvFlipWeightsGradOp"},
    "Cos": {0: "CosGradOp"},
    "Exp": {0: "ExpGradOp"},
    "Expm1": {0: "Expm1GradOp"},
    "Log1p": {0: "Log1pGradOp"},
    "Reciprocal": {0: "ReciprocalGradOp"},
    "Sqrt": {0: "SqrtGradOp"},
    "Sub": {1: "SubtractArg1GradOp"},
}


def _missing(node: NodeProto, moved: set[str] | None, enabled: Callable[[str], bool]) -> str | None:
    """Finds a rewrite that a node needs and that is off. `moved`: tensors with gradients."""
    forward = _FORWARD.get(node.op_type)
    if forward is not None and not enabled(forward):
        return forward
    if moved is None or not moved.intersection(node.output):
        return None
    needed = _GRADIENTS.get(node.op_type, {})
    return next((name for i, name in needed.items() if node.input[i] in moved and not enabled(name)), None)


def check_rewrites(nodes: Sequence[NodeProto], moved: set[str] | None, enabled: Callable[[str], bool]) -> None:
    """Raises PopulusError for a node that needs a rewrite of PopART's which is switched off. `moved`: tensors with gradients."""
    for node in nodes:
        if missing := _missing(node, moved, enabled):
            raise PopulusError(f"'{node.output[0]}': {node.op_type}: This op should have been removed by pattern {missing}")


def check(translation: Translation, domain: str, node: NodeProto) -> None:
    """Raises PopulusError for a node that PopART refuses."""
    limit = LIMITS.get((domain, node.op_type))
    if limit is not None:
        limit(Body(translation, node))
