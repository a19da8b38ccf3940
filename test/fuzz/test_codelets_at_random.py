"""A sample of the random codelets: plain Python, interpreter, engines and emitted LLVM agree."""

from __future__ import annotations

import pytest

from fuzz.codelets import case, judge

SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_codelet_is_the_same_everywhere(seed, tmp_path):
    end = judge(seed, tmp_path)
    assert end in ("agrees", "refused"), end


def test_a_seed_gives_the_same_codelet():
    assert case(5).text == case(5).text != case(6).text
