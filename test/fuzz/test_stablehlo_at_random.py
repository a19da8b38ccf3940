"""A sample of the random programs of StableHLO gives what XLA gives: `make fuzz FUZZERS=stablehlo` runs more."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax", reason="XLA is the oracle")

from fuzz.children import FINDINGS
from fuzz.stablehlo import KINDS, arrays, difference, judge, program


@pytest.mark.parametrize("first", [0, 5])
def test_random_programs_give_what_xla_gives(first):
    outcomes = {seed: judge(seed) for seed in range(first, first + 5)}
    assert {seed: found for seed, found in outcomes.items() if found[0] in FINDINGS} == {}
    assert sum(kind in ("agrees", "rounded") for kind, _ in outcomes.values()) > 3


def test_a_seed_gives_the_same_program_and_inputs():
    for seed in range(20):
        (text, inputs), again = program(seed), program(seed)
        assert text == again[0]
        assert all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(arrays(seed, text, inputs), arrays(seed, *again)))


def test_each_kind_of_op_is_drawn():
    text = "".join(program(seed)[0] for seed in range(400))
    kinds = (
        "while if sort scatter gather convolution dot_general reduce_window reduce pad dynamic_update_slice bitcast_convert clamp select"
    )
    assert all(f'"stablehlo.{kind}"' in text for kind in kinds.split())
    assert len(KINDS) > 25


def test_a_wrong_element_is_seen():
    right = [np.array([1, 2, 1000], np.float32)]
    wrong = [np.array([1, 2, 1001], np.float32)]
    assert difference(right, right, None) is None
    assert difference(wrong, right, None) == "result 0: 1 of 3 elements differ; at [2]: 1001.0, expected 1000.0"
    assert difference(wrong, right, [np.array([1, 2, 1000], np.float64)]) is not None
    assert difference([np.array([1, 2])], [np.array([1, 3])], [np.array([1, 3])]) is not None
