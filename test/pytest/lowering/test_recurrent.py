"""Recurrent layers over long sequences: a loop, which computes and differentiates as the steps written out do."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart import rnn
from populus.runtime.session import Session

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUT, HIDDEN = 12, 2, 3, 4
SETTINGS: dict[str, dict] = {
    "forward": {},
    "reverse": {"direction": "reverse"},
    "both": {"direction": "bidirectional", "layout": 0},
    "clipped": {"clip": 0.2},
}


def layer(kind: str, steps: int, lengths=None, **settings) -> ModelProto:
    rng = np.random.default_rng(0)
    directions = 2 if settings.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * HIDDEN
    weights = {"W": (directions, rows, INPUT), "R": (directions, rows, HIDDEN), "B": (directions, 2 * rows)}
    weights["h0"] = (directions, BATCH, HIDDEN)
    if kind == "LSTM":
        weights |= {"c0": (directions, BATCH, HIDDEN), "P": (directions, 3 * HIDDEN)}
    arrays = {k: (0.5 * rng.standard_normal(s)).astype(np.float32) for k, s in weights.items()}
    if lengths is not None:
        arrays["lengths"] = np.array(lengths, np.int32)
    inputs = ["x", "W", "R", "B", "lengths" if lengths is not None else "", "h0", *(["c0", "P"] if kind == "LSTM" else [])]
    outputs = ["y", "h", *(["c"] if kind == "LSTM" else [])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, outputs, hidden_size=HIDDEN, name="layer", **settings)],
        "g",
        [info("x", TensorProto.FLOAT, [steps, BATCH, INPUT])],
        [info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def x(steps: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((steps, BATCH, INPUT)).astype(np.float32)


@pytest.mark.parametrize("lengths", [None, [12, 5]])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", GATES)
def test_a_long_sequence_is_what_onnxruntime_computes(kind, settings, lengths):
    if kind == "LSTM" and settings == "clipped":
        return  # onnxruntime leaves the cell's value as it is, where ONNX clips the input of every activation
    model = layer(kind, STEPS, lengths, **SETTINGS[settings])
    program = populus.compile(model, tiles=4, engine="numpy")
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x(STEPS)})
    for found in (program.run({"x": x(STEPS)}), Session(program.module("poplar"), "native").run({"x": x(STEPS)})):
        for a, b in zip(found.values(), expected):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_a_program_does_not_grow_with_the_sequence(kind):
    def ops(steps: int) -> int:
        return sum(1 for _ in populus.compile(layer(kind, steps), tiles=4).module("poplar").walk())

    assert ops(20) == ops(200)


@pytest.mark.parametrize("kind", GATES)
def test_gradients_through_the_loop_are_those_of_the_steps_in_a_row(kind, monkeypatch):
    model = layer(kind, STEPS, direction="bidirectional")
    given = {"x": x(STEPS)}
    outputs = populus.compile(model).run(given)
    cotangents = {k: np.random.default_rng(2).standard_normal(v.shape).astype(np.float32) for k, v in outputs.items()}
    wrt = ["x", "W", "R", "B", "h0"]
    _, found = populus.vjp(model, wrt=wrt, engine="numpy").run(given, cotangents)
    monkeypatch.setattr(rnn, "UNROLLED", STEPS)
    _, expected = populus.vjp(model, wrt=wrt, engine="numpy").run(given, cotangents)
    for name in wrt:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("activation", ["Affine", "ScaledTanh"])
@pytest.mark.parametrize("steps", [2, STEPS])
def test_affine_and_scaled_tanh_take_their_alpha_and_beta(activation, steps):
    model = layer("RNN", steps, activations=[activation], activation_alpha=[0.5], activation_beta=[0.25])
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x(steps)})
    found = populus.compile(model, tiles=4, engine="numpy").run({"x": x(steps)})
    for a, b in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_an_activation_without_a_default_alpha_asks_for_it():
    with pytest.raises(PopulusError, match=r"'layer': RNN-14: the activation Affine has no default beta; state it in activation_beta"):
        populus.compile(layer("RNN", 2, activations=["Affine"], activation_alpha=[0.5]), tiles=4)


@pytest.mark.parametrize("kind", GATES)
def test_an_unknown_direction_is_refused_with_the_directions_there_are(kind):
    with pytest.raises(PopulusError, match=r"direction is 'sideways'; forward, reverse or bidirectional is expected"):
        populus.compile(layer(kind, 2, direction="sideways"), tiles=4)
