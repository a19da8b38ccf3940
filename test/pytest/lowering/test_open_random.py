"""Random models with bounded dimensions agree with exact programs; what stands beyond the valid part is NaN, infinite or large."""

from __future__ import annotations

import pytest
from onnx import ModelProto

from helpers.bounded_cases import dims_of
from helpers.bounded_random import random_model
from helpers.bounded_runs import compare, compare_gradients
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart.masks import Masks

DIMS = {"b": (1, 3), "s": (3, 6), "t": (2, 5)}
SIZES = {"b": 2, "s": 4, "t": 3}


def drawn(seed: int, steps: int = 8) -> tuple[ModelProto, dict[str, tuple[int, int]], list[dict[str, int]]]:
    model = random_model(seed, steps)
    read = {name for node in model.graph.node for name in node.input}
    inputs = [i for i in model.graph.input if i.name in read]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    names = dims_of(model)
    return model, {n: DIMS[n] for n in names}, [{n: SIZES[n] for n in names}]


@pytest.mark.parametrize("seed", range(12))
def test_random_models_agree_with_exact_programs(seed: int):
    compare(*drawn(seed), level="popart")


@pytest.mark.parametrize("seed", range(100, 108))
def test_gradients_of_random_models_agree(seed: int):
    model, dims, every = drawn(seed, 5)
    compare_gradients(model, dims, every, [i.name for i in model.graph.input], level="popart")


@pytest.mark.parametrize("seed", [3, 8])
def test_no_vertex_of_a_random_model_reads_an_invalid_part_into_a_result(seed: int):
    compare(*drawn(seed, 5), engine="strict", tiles=16)


def test_a_mask_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Masks, "filled", lambda self, c, x, dims, fill: x)
    wrong = 0
    for seed in range(6):
        try:
            compare(*drawn(seed), level="popart")
        except (AssertionError, PopulusError):  # an index out of range is found by the interpreter
            wrong += 1
    assert wrong >= 3, wrong
