"""Mistakes planted in `poplar-fuse`, one at a time: each makes a task that the verifier, a proof or `strict` refuses."""

from __future__ import annotations

import pytest

from benchmarks.fusion_mistakes import MISTAKES, PROGRAMS, Mistake, outcome


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_right_pass_is_refused_nowhere_and_keeps_the_bits(name: str):
    assert outcome(None, name) == ({}, False)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.title)
def test_a_mistake_is_refused_in_the_first_program_that_it_changes(mistake: Mistake):
    found = (outcome(mistake, name) for name in PROGRAMS)
    refused, _ = next(one for one in found if any(one))
    assert refused


def test_there_are_twenty_mistakes():
    assert len(MISTAKES) >= 20
    assert len({m.title for m in MISTAKES}) == len({(m.old, m.new) for m in MISTAKES}) == len(MISTAKES)
