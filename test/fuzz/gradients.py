"""Gradients of random graphs against differences: `make fuzz FUZZERS=gradients`.

A graph becomes one of doubles. Its gradients along a random direction are compared with the change of its outputs along it. Where the
changes to both sides differ, or those of two distances, the point is at a kink or a jump, and nothing is compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

import populus
from fuzz.children import Outcome
from fuzz.drawing import Array
from fuzz.graphs import graph, inputs
from populus.dialects.support.diagnostics import PopulusError

STEP = 1e-5
RTOL, KINK = 1e-4, 1e-5
"""How far a gradient may be from the difference, and the sides of a smooth point from each other, relative to the size of the terms."""
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
RANDOM = ("Dropout", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")


def doubled(model: ModelProto) -> ModelProto:
    """Gives the model with doubles in the place of all floats: a cast to a shorter one has steps."""
    made = ModelProto()
    made.CopyFrom(model)
    _double(made.graph)
    return made


def _double(proto: onnx.GraphProto) -> None:
    for info in (*proto.input, *proto.output, *proto.value_info):
        if info.type.tensor_type.elem_type in FLOATS:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in proto.initializer:
        _double_tensor(tensor)
    for node in proto.node:
        for a in node.attribute:
            if a.name in ("to", "dtype", "output_datatype") and a.i in FLOATS:
                a.i = TensorProto.DOUBLE
            if a.HasField("t"):
                _double_tensor(a.t)
            for inner in (a.g, *a.graphs):
                _double(inner)


def _double_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in FLOATS:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def judge(seed: int) -> Outcome:
    """Compares the gradients of a seed's graph. Raises PopulusError where a node has none."""
    drawn = graph(seed)
    if any(node.op_type in RANDOM for node in drawn.graph.node):
        return "random", ""
    model = doubled(drawn)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return "not for doubles", str(error)
    at = {name: a.astype(np.float64) if a.dtype.kind in "fV" else a for name, a in inputs(drawn, seed).items()}
    rng = np.random.default_rng(seed)
    wrt = [i.name for i in model.graph.input if i.type.tensor_type.elem_type == TensorProto.DOUBLE and at[i.name].size]
    if not wrt:
        return "nothing to differentiate", ""
    at |= {name: at[name] + 0.01 * rng.uniform(-1, 1, at[name].shape) for name in wrt}  # drawn elements are often at kinks
    try:
        compiled = populus.vjp(model, wrt, tiles=4, engine="numpy")
    except PopulusError as error:
        return "no gradient", str(error)
    cotangents = {name: rng.standard_normal(tuple(t.get_shape())) for name, t in compiled.cotangents.items()}
    along = {name: rng.standard_normal(at[name].shape) for name in wrt}
    outputs, gradients = compiled.run(at, cotangents)
    expected = populus.compile(model, tiles=4, engine="numpy").run(at)
    if wrong := [n for n, a in expected.items() if not _near(a, outputs[n])]:
        return "differs", f"the gradient program gives another '{wrong[0]}'"

    def moved(step: float) -> float:
        there = compiled.run({**at, **{n: at[n] + step * along[n] for n in wrt}}, {})[0]
        return _dot(cotangents, there)

    with np.errstate(all="ignore"):
        here = _dot(cotangents, outputs)
        found = _dot(gradients, along)
        ahead, behind = (moved(STEP) - here) / STEP, (here - moved(-STEP)) / STEP
        near = (moved(STEP / 8) - moved(-STEP / 8)) / (STEP / 4)
    middle = (ahead + behind) / 2
    size = max(abs(middle), _size(gradients, along), 1e-6 * abs(here), 1e-9)
    if not np.isfinite([ahead, behind, near]).all() or abs(ahead - behind) > 100 * KINK * size or abs(middle - near) > KINK * size:
        return "kink", ""
    if not abs(found - middle) <= RTOL * size:
        ops = [node.op_type for node in drawn.graph.node if node.op_type != "Constant"]
        return "wrong", f"{found:.9g} along a direction, the outputs change by {middle:.9g}; {json.dumps(ops)}"
    return "agrees", ""


def _near(a: Array, b: Array) -> bool:
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9 * float(np.abs(a).max(initial=0)), equal_nan=True))


def _dot(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
    return float(sum(np.sum(a[name] * b[name].astype(np.float64)) for name in a))


def _size(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
    return float(sum(np.sum(np.abs(a[name] * b[name])) for name in a))
