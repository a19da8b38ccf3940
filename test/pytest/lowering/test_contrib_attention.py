"""Attention of com.microsoft, and rotary embeddings, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import populus
from helpers.contrib_models import WEIGHTS, agree, node_model
from populus.dialects.support.diagnostics import PopulusError

B, S, N, H = 2, 3, 2, 4


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ROWS = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
SQUARE = np.stack([np.tril(np.ones((S, S), np.int32)), np.ones((S, S), np.int32)])


@pytest.mark.parametrize("mask", [None, ROWS, SQUARE], ids=["all", "keys", "pairs"])
@pytest.mark.parametrize(
    ("attributes", "biased"),
    [({"unidirectional": 1}, True), ({"scale": 0.3, "mask_filter_value": -1.5}, False)],
    ids=str,
)
def test_heads_attend_with_masks_and_biases(mask, attributes, biased):
    q, k, v = (normal(B, S, N * H, seed=i) for i in range(3))
    bias, scores = (normal(3 * N * H, seed=4), normal(1, N, S, S, seed=5)) if biased else (None, None)
    agree("MultiHeadAttention", [q, k, v, bias, mask, scores], fed=(0, 1, 2, 4, 5), num_heads=N, **attributes)


@pytest.mark.parametrize("causal", [0, 1])
def test_heads_attend_to_a_past_and_return_it(causal):
    q, k, v = (normal(B, S, N * H, seed=i) for i in range(3))
    past = [normal(B, N, 2, H, seed=i) for i in (3, 4)]
    inputs = [q, k, v, None, None, None, *past]
    agree("MultiHeadAttention", inputs, ("y0", "y1", "y2"), (0, 1, 2, 6, 7), num_heads=N, unidirectional=causal)


def test_keys_and_values_may_be_in_heads_already():
    q, k, v = normal(B, S, N * H), normal(B, N, 5, H, seed=1), normal(B, N, 5, H, seed=2)
    agree("MultiHeadAttention", [q, k, v], fed=(0, 1, 2), num_heads=N)


def test_packed_keys_and_masks_of_offsets_are_refused():
    q = normal(1, 5, N * H)
    for inputs, said in [
        ([normal(B, S, N, 3, H)], "packed keys or values is not supported"),
        ([q, q, q, None, np.array([5, 0, 5, 0, 5], np.int32)], "'node/mask_of_2_or_3_dimensions'"),
        ([q, q, q, None, np.array([4], np.int32)], "'node/mask_of_2_or_3_dimensions'"),
    ]:
        model, _ = node_model("MultiHeadAttention", inputs, fed=(0, 1, 2, 4), num_heads=N)
        with pytest.raises(PopulusError, match=said):
            populus.compile(model, tiles=4)


@pytest.mark.parametrize("mask", [None, np.array([2, 3], np.int32), ROWS, SQUARE], ids=["all", "lengths", "keys", "pairs"])
@pytest.mark.parametrize("attributes", [{"unidirectional": 1}, {"scale": 0.3, "qkv_hidden_sizes": [8, 8, 12]}], ids=str)
def test_attention_multiplies_by_its_weights(mask, attributes):
    columns = sum(attributes.get("qkv_hidden_sizes", [24]))
    inputs = [normal(B, S, 5), normal(5, columns, seed=1), normal(columns, seed=2), mask]
    agree("Attention", inputs, fed=(0, 3), num_heads=N, **attributes)


@pytest.mark.parametrize("kind", ["past", "bias"])
def test_attention_takes_a_past_or_a_bias_of_scores(kind):
    last = [normal(2, B, N, 2, H, seed=3)] if kind == "past" else [None, normal(B, N, S, S, seed=4)]
    inputs = [normal(B, S, 5), normal(5, 24, seed=1), normal(24, seed=2), None, *last]
    agree("Attention", inputs, ("y0", "y1") if kind == "past" else ("y0",), (0, 4, 5), num_heads=N, unidirectional=1)


@pytest.mark.parametrize("places", [np.array([2], np.int64), np.array([[0, 1, 2], [3, 5, 4]], np.int64)], ids=["first", "each"])
@pytest.mark.parametrize(("kind", "interleaved"), [("rows", 0), ("heads", 1), ("part", 0), ("part", 1)])
def test_a_rotary_embedding_turns_pairs(kind, interleaved, places):
    x = normal(B, N, S, 8) if kind == "heads" else normal(B, S, N * 8)
    half = 2 if kind == "part" else 4
    angles = np.random.default_rng(1).uniform(0, 6, (9, half))
    inputs = [x, places, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    attributes = {"num_heads": N, "rotary_embedding_dim": 4} if kind == "part" else {}
    agree("RotaryEmbedding", inputs, fed=(0, 1), interleaved=interleaved, **attributes)


@pytest.mark.parametrize("columns", [False, True], ids=["matrix", "columns"])
@pytest.mark.parametrize("kind", ["mask", "past"])
def test_a_quantized_attention_multiplies_integers(kind, columns):
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.005, 0.02, 24 if columns else ()).astype(np.float32)
    zeros = np.zeros(24, np.int8) if columns else np.array(3, np.int8)
    x, w = rng.integers(0, 256, (B, S, 5), np.uint8), rng.integers(*WEIGHTS, (5, 24), np.int8)
    past = normal(2, B, N, 2, H, seed=3) if kind == "past" else None
    inputs = [x, w, normal(24), np.array(0.02, np.float32), scales, ROWS if kind == "mask" else None, np.array(120, np.uint8), zeros, past]
    agree("QAttention", inputs, ("y0", "y1") if kind == "past" else ("y0",), (0, 5, 8), num_heads=N, unidirectional=1)
