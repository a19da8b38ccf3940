"""A sample of the random graphs of this folder: `make fuzz` runs more."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from onnx import helper

from benchmarks.spread import LEAST, spread
from fuzz.differences import DIFFERENCES, known
from fuzz.graphs import KINDS, graph, inputs
from fuzz.judging import NoOracle, differ, exact, judge, oracle

pytest.importorskip("onnxruntime")

SEEDS, EACH = 300, 10


@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
def test_random_graphs_give_what_onnxruntime_gives(first: int):
    verdicts = [judge(seed) for seed in range(first, first + EACH)]
    assert [v for v in verdicts if v.found] == []


def test_a_seed_gives_the_same_graph_and_inputs_again():
    for seed in range(20):
        model = graph(seed)
        assert model.SerializeToString(deterministic=True) == graph(seed).SerializeToString(deterministic=True)
        again = inputs(model, seed)
        assert all(np.array_equal(a, again[name]) for name, a in inputs(model, seed).items())


def test_most_of_the_sample_is_compared():
    """A row of known differences that were too wide, or types that onnxruntime lacks, would leave little to compare."""
    sample = [graph(seed) for seed in range(SEEDS)]
    kinds = {node.op_type for model in sample for node in model.graph.node}
    assert len(kinds) > 120
    assert sum(known(model) is None for model in sample) > 0.9 * SEEDS


def test_few_results_of_the_sample_are_saturated():
    """A Hardmax or OneHot at the end hides what comes before it."""
    shares: list[float] = []
    for seed in range(100):
        model = graph(seed)
        with suppress(NoOracle):
            share = spread(oracle(model, inputs(model, seed)))
            shares += [] if share is None else [share]
    assert len(shares) > 40
    assert sum(share >= LEAST for share in shares) > 0.9 * len(shares)


def test_every_known_difference_is_about_a_kind_of_node_that_is_drawn():
    assert {row.op for row in DIFFERENCES} <= {kind.op for kind in KINDS}


def test_a_wrong_element_is_seen():
    right = np.array([1.0, 2.0, 1000.0], np.float32)
    assert differ(right, right.copy(), 0.0) is None
    assert differ(np.array([1.0, 2.0, 1001.0], np.float32), right, 0.0) == "1 of 3 elements differ; at [2]: 1001.0, expected 1000.0"
    assert differ(np.array([1, 2, 1001]), np.array([1, 2, 1000]), 5.0) is not None


def test_a_mean_of_many_floats_is_judged_by_doubles():
    """onnxruntime adds 64,000 floats in a row in the mean of opset 11, and is off by more than the tolerance."""
    shape = [2, 200, 160]
    x, y = helper.make_tensor_value_info("x", 1, shape), helper.make_tensor_value_info("y", 1, [])
    other = helper.make_tensor_value_info("other", 1, shape)
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1, -1, -3], keepdims=0), helper.make_node("Acosh", ["x"], ["other"])]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y, other]), opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    a = (np.random.default_rng(0).uniform(-1, 1, shape) - 10.5).astype(np.float32)
    mean = np.asarray(a.astype(np.float64).mean(), np.float32)
    assert exact(model, {"x": a}, "y", mean)
    assert not exact(model, {"x": a}, "y", mean * np.float32(1.0001))
    assert not exact(model, {"x": a}, "other", a), "onnxruntime has no Acosh of doubles, so a difference stays one"
