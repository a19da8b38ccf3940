"""Nets of flax and steps of optax give on tiles what XLA gives: attention, batch statistics, dropout by keys, recurrent layers."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is an extra")
nn = pytest.importorskip("flax.linen", reason="flax is an extra")
optax = pytest.importorskip("optax", reason="optax is an extra")
from populus import jax as pjax  # noqa: E402

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)


def near(function, *arguments):
    found, wanted = pjax.jit(function, tiles=4)(*arguments), jax.jit(function)(*arguments)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1e-3, float(np.abs(b).max())))


def test_causal_attention():
    net = nn.MultiHeadDotProductAttention(num_heads=2)
    weights = net.init(jax.random.key(0), X)
    near(lambda w, x: net.apply(w, x, mask=nn.make_causal_mask(x[..., 0])), weights, X)


def test_a_training_step_of_a_net_with_batch_statistics():
    net, optimizer = (
        nn.Sequential([nn.Conv(4, (3,), use_bias=False), nn.BatchNorm(use_running_average=False), nn.gelu]),
        optax.sgd(0.1, 0.9, nesterov=True),
    )
    first = net.init(jax.random.key(0), X)

    def step(state, momentum, x):
        def loss(weights):
            y, new = net.apply({"params": weights, "batch_stats": state["batch_stats"]}, x, mutable=["batch_stats"])
            return (y**2).mean(), new

        (value, new), gradients = jax.value_and_grad(loss, has_aux=True)(state["params"])
        updates, momentum = optimizer.update(gradients, momentum, state["params"])
        return {"params": optax.apply_updates(state["params"], updates), **new}, momentum, value

    near(step, first, optimizer.init(first["params"]), X)


def test_dropout_by_a_key():
    net = nn.Dropout(0.4, deterministic=False)
    near(lambda x, key: net.apply({}, x, rngs={"dropout": key}), X, jax.random.key(3))


def test_a_recurrent_layer_in_both_directions_with_lengths():
    net = nn.Bidirectional(nn.RNN(nn.OptimizedLSTMCell(4)), nn.RNN(nn.GRUCell(4)))
    lengths = np.array([6, 3], np.int32)
    near(lambda w, x, n: net.apply(w, x, seq_lengths=n), net.init(jax.random.key(0), X), X, lengths)
