"""GroupQueryAttention against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import populus
from helpers.contrib_models import agree, node_model
from populus.dialects.support.diagnostics import PopulusError

B, N, K, H = 2, 4, 2, 16
ANGLES = np.random.default_rng(9).uniform(0, 6, (12, H // 2))
TABLES = [np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)]
ENDS = ("y0", "y1", "y2")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def inputs(new, past, lengths, total, packed=False, tables=False):
    q, k, v = normal(B, new, N * H), normal(B, new, K * H, seed=1), normal(B, new, K * H, seed=2)
    first = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    before = [normal(B, K, past, H, seed=i) for i in (3, 4)] if past is not None else [None, None]
    counts = [np.array(lengths, np.int32) - 1, np.array(total, np.int32)]
    return [*first, *before, *counts, *(TABLES if tables else [])]


FED = (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("arguments", "attributes"),
    [
        ((3, None, [3, 3], 3), {}),
        ((1, 4, [3, 5], 5, True), {"scale": 0.2}),  # batches with pasts of several lengths
        ((3, 0, [3, 3], 3, False, True), {"do_rotary": 1}),
        ((1, 4, [5, 4], 5, True, True), {"do_rotary": 1, "rotary_interleaved": 1}),
        ((1, 8, [5, 4], 5, False, True), {"do_rotary": 1}),  # a buffer longer than the past
        ((1, 6, [7, 6], 7), {"local_window_size": 3}),
        ((3, None, [3, 3], 3), {"softcap": 1.5, "local_window_size": 2}),
    ],
    ids=str,
)
def test_groups_of_heads_attend_to_their_cache(arguments, attributes):
    agree("GroupQueryAttention", inputs(*arguments), ENDS, FED, num_heads=N, kv_num_heads=K, **attributes)


@pytest.mark.parametrize(
    ("new", "past", "length", "attributes"),
    [(3, 4, 7, {"local_window_size": 2}), (5, 8, 6, {"do_rotary": 1, "softcap": 1.0})],
    ids=str,
)
def test_several_new_tokens_follow_a_past(new, past, length, attributes):
    given = [v[:1] if v is not None and v.ndim > 2 else v for v in inputs(new, past, [length], 7, tables=True)]
    agree("GroupQueryAttention", given, ENDS, FED, num_heads=N, kv_num_heads=K, **attributes)  # onnxruntime: batches of one only


@pytest.mark.parametrize("rotary", [0, 1])
def test_prompts_may_be_padded_on_the_right(rotary):
    model, given = node_model(
        "GroupQueryAttention", inputs(3, 8, [2, 3], 3, tables=True), ENDS, FED, num_heads=N, kv_num_heads=K, do_rotary=rotary
    )
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    found = populus.compile(model, tiles=4).run(given)
    for name, w in zip(ENDS, map(np.asarray, wanted), strict=True):
        # A row beyond its prompt reads scores that onnxruntime has not computed.
        rows = [w[0, :2], w[1]] if name == "y0" else [w]
        mine = [found[name][0, :2], found[name][1]] if name == "y0" else [found[name]]
        for f, r in zip(mine, rows, strict=True):
            np.testing.assert_allclose(f, r, rtol=1e-4, atol=1e-5)


def test_sinks_of_heads_are_refused():
    given = [*inputs(3, None, [3, 3], 3), None, None, None, None, normal(N)]
    model, _ = node_model("GroupQueryAttention", given, ENDS, FED, num_heads=N, kv_num_heads=K)
    with pytest.raises(PopulusError, match="GroupQueryAttention with the input head_sink is not supported"):
        populus.compile(model, tiles=4)
