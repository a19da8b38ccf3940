"""Sequences that lie one after the other, and a graph that is called with batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from helpers.popart_programs import inferred, trained
from populus import popart
from populus.dialects.support.diagnostics import PopulusError

G = np.random.default_rng(9)
LENGTHS, OFFSETS = np.array([3, 1, 2, 4], np.uint32), np.array([0, 3, 4, 6], np.uint32)
DATA = G.normal(size=(10, 2)).astype(np.float32)
LONGEST = 5


def packed(b: popart.Builder, names: Sequence[str], batch: int, make: Callable[..., str], size: int = 10) -> str:
    """Adds the op with one data input."""
    inner = b.createSubgraphBuilder()
    inner.addOutputTensor(make(inner, inner.addUntypedInputTensor()))
    data, offsets, lengths = names
    return b.aiGraphcore.packedDataBlock([data, offsets, lengths, offsets, lengths], [LONGEST], size, batch, inner)


def product(b: popart.Builder, x: str) -> str:
    """Adds `x x^T` for each sequence of the batch."""
    return b.aiOnnx.matmul([x, b.aiOnnx.transpose([x], [0, 2, 1])])


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_graph_is_called_with_each_batch_of_sequences(batch):
    (found,) = inferred(lambda b, *n: packed(b, n, batch, product), DATA, OFFSETS, LENGTHS)
    expected = np.zeros((10, LONGEST), np.float32)
    for at, length in zip(OFFSETS, LENGTHS):
        rows = DATA[at : at + length]
        expected[at : at + length, :length] = rows @ rows.T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_batch_is_seen_whole_by_its_call():
    def centred(b: popart.Builder, x: str) -> str:
        return b.aiOnnx.sub([x, b.aiOnnx.reducemean([x], axes=[0])])

    (found,) = inferred(lambda b, *n: packed(b, n, 2, centred, 12), DATA, OFFSETS, LENGTHS)
    expected = np.zeros((12, 2), np.float32)
    for pair in ([0, 1], [2, 3]):
        full = np.zeros((2, LONGEST, 2))
        for row, i in enumerate(pair):
            full[row, : LENGTHS[i]] = DATA[OFFSETS[i] : OFFSETS[i] + LENGTHS[i]]
        for row, i in enumerate(pair):
            expected[OFFSETS[i] : OFFSETS[i] + LENGTHS[i]] = (full[row] - full.mean(0))[: LENGTHS[i]]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_gradients_flow_through_the_calls():
    def make(b: popart.Builder) -> tuple[str, list[str]]:
        given = ["x", b.aiOnnx.constant(OFFSETS), b.aiOnnx.constant(LENGTHS)]
        y = packed(b, given, 2, lambda inner, x: inner.aiOnnx.mul([x, inner.aiOnnx.mul([x, x])]))
        return b.aiGraphcore.identityloss([y], popart.ReductionType.Sum), ["Gradient___x"]

    found, _ = trained(make, {"x": DATA}, {}, popart.ConstSGD(0.1))
    np.testing.assert_allclose(found["Gradient___x"], 3 * DATA**2, rtol=1e-5)


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(PopulusError, match="4 sequences do not make batches of 3"):
        inferred(lambda b, *n: packed(b, n, 3, product), DATA, OFFSETS, LENGTHS)

    def few(b: popart.Builder, *names: Any) -> str:
        inner = b.createSubgraphBuilder()
        inner.addOutputTensor(inner.aiOnnx.exp([inner.addUntypedInputTensor()]))
        return b.aiGraphcore.packedDataBlock(list(names), [LONGEST], 10, 1, inner)

    with pytest.raises(PopulusError, match="3 inputs and 1 lengths; the graph's 1 inputs want 5 and 1"):
        inferred(few, DATA, OFFSETS, LENGTHS)
