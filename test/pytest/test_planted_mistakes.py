"""Mistakes are planted in passes, one at a time, and `--check-levels` names the level and the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from xdsl.ir import SSAValue

import populus
from helpers.planted_mistakes import MISTAKES, Mistake, model, planted
from populus.compare.levels import compare_levels
from populus.lowering.popart.patterns import convolution


def test_without_a_mistake_all_levels_agree():
    program = populus.compile(model(), tiles=4)
    found = list(compare_levels(program, program.signature.random(0)))
    assert [(c.level, c.first) for c in found] == [("popart", None), ("popops", None), ("poplar", None)]
    assert [c.places >= n for c, n in zip(found, (24, 20, 14))] == [True] * 3, [c.places for c in found]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.title} after {m.after}")
def test_a_planted_mistake_is_found_where_it_is(mistake: Mistake, monkeypatch: pytest.MonkeyPatch):
    counts = planted(monkeypatch, mistake)
    found(mistake.found)
    assert counts
    assert min(counts) > 0, "no op was changed"


def backwards(r: Any, op: Any, factor: Any, axis: int, right: Any = convolution.with_factor) -> SSAValue | None:
    return right(r, op, factor[::-1], axis)


def negated(r: Any, op: Any, term: Any, axis: int, right: Any = convolution.with_term) -> SSAValue | None:
    return right(r, op, -term, axis)


@pytest.mark.parametrize(("name", "wrong"), [("with_factor", backwards), ("with_term", negated)])
def test_a_wrong_fusion_of_weights_is_found_where_it_is(name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(convolution, name, wrong)
    found(("popart", "norm"))


def found(expected: tuple[str, str]) -> None:
    """Compiles and compares; the first level that differs, and where, must be the expected one."""
    program = populus.compile(model(), tiles=4)
    first = next((c for c in compare_levels(program, program.signature.random(0)) if c.first is not None), None)
    assert first is not None, "the mistake is not found"
    assert (first.level, first.first) == expected, str(first)


def test_there_are_enough_mistakes_of_every_level():
    levels = [m.found[0] for m in MISTAKES]
    assert len(MISTAKES) >= 20
    assert {level: levels.count(level) >= 5 for level in levels} == {"popart": True, "popops": True, "poplar": True}
