"""DynamicQuantizeLSTM against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import populus
from helpers.contrib_models import WEIGHTS, agree, node_model
from populus.dialects.support.diagnostics import PopulusError

T, B, I, H = 3, 3, 4, 6
ENDS = ("y0", "y1", "y2")


def inputs(directions=1, bias=True, lengths=None, states=False, peepholes=False, columns=False, signed=True, seed=0):
    rng = np.random.default_rng(seed)
    low, high, kind = (*WEIGHTS, np.int8) if signed else (0, 256, np.uint8)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def scales():
        shape = (directions, 4 * H) if columns else (directions,)
        zeros = np.zeros(shape, kind) if signed else np.full(shape, 121, kind)
        return [rng.uniform(0.002, 0.01, shape).astype(np.float32), zeros]

    weights = [rng.integers(low, high, (directions, n, 4 * H), kind) for n in (I, H)]
    before = [normal(directions, B, H), normal(directions, B, H)] if states else [None, None]
    sizes = None if lengths is None else np.array(lengths, np.int32)
    last = normal(directions, 3 * H) if peepholes else None
    return [normal(T, B, I), *weights, normal(directions, 8 * H) if bias else None, sizes, *before, last, *scales(), *scales()]


def lstm(given, outputs=ENDS, **attributes):
    directions = given[1].shape[0]
    way = {} if directions == 1 else {"direction": "bidirectional"}
    fed = tuple(i for i in (0, 4, 5, 6) if given[i] is not None)
    agree("DynamicQuantizeLSTM", given, outputs, fed, hidden_size=H, **{**way, **attributes})


@pytest.mark.parametrize(
    ("arguments", "attributes"),
    [
        ({}, {}),
        ({"bias": False, "signed": False}, {"direction": "reverse"}),
        ({"directions": 2, "states": True, "columns": True}, {}),
        ({"states": True, "peepholes": True}, {"clip": 0.7}),
        ({"columns": True}, {"input_forget": 1, "activations": ["sigmoid", "Relu", "Softsign"]}),
    ],
    ids=str,
)
def test_inputs_are_quantized_at_once_and_states_at_each_step(arguments, attributes):
    lstm(inputs(**arguments), **attributes)


@pytest.mark.parametrize("way", ["forward", "reverse"])
@pytest.mark.parametrize("outputs", [ENDS, ("", "y1", "y2")], ids=["steps", "last"])
def test_rows_end_at_their_lengths(way, outputs):
    # Without the output of steps, the state of a row of no steps is not initialized in onnxruntime.
    lstm(inputs(lengths=[1, 3, 0 if outputs[0] else 2], states=True), outputs, direction=way)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"direction": "backward"}, "has the direction 'backward'; forward, reverse or bidirectional is expected"),
        ({"activations": ["Sigmoid", "Affine", "Tanh"]}, "with the activation Affine is not supported; Relu, Sigmoid, Softplus, "),
        ({"activations": ["Sigmoid", "Tanh"]}, "has 2 activations; 3 are expected"),
    ],
)
def test_other_settings_are_refused(attributes, said):
    model, _ = node_model("DynamicQuantizeLSTM", inputs(), hidden_size=H, **attributes)
    with pytest.raises(PopulusError, match=said):
        populus.compile(model, tiles=4)
