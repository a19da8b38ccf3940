"""`--verify-each=run`: wrong patterns and passes are planted, and named; right ones raise no alarm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import populus
from helpers.pattern_programs import NEGATED, PROGRAMS, Change, negated, plant
from helpers.planted_mistakes import LOWERED, MISTAKES, Mistake, model, planted
from populus.compare.validation import ADVERSARIAL, ENGINE, MODERATE, changed, inputs_of, keeps_bits, validating
from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline, names
from populus.lowering.popart.patterns import PATTERNS

FUSE = Pipeline.from_text("popart-fuse")


def outcome(module: ModuleOp, kinds: tuple[str, ...] = ()) -> str:
    """Applies the patterns; gives the line of the alarm, or ''."""
    with validating(kinds):
        try:
            FUSE.run(context(), module.clone())
        except PopulusError as error:
            return str(error)
    return ""


def test_bits_of_large_integers_are_compared_as_they_are():
    x = np.array([2**60, -(2**60)], np.int64)
    assert changed(x, x.copy(), True, "plain") is None
    assert changed(x, x + np.array([0, 1]), True, "plain") == "1 of 2 elements change"


def test_right_patterns_raise_no_alarm():
    assert [line for module in PROGRAMS if (line := outcome(module, ADVERSARIAL)) and "is not loaded" not in line] == []


def a_little_more(r: Any, value: SSAValue) -> SSAValue:
    """Multiplies by 1 + 2^-20: within rounding, but not bit for bit."""
    dtype = dtype_of(element_type_of(value.type))
    return r.insert(popart.MulOp(value, r.constant(np.array(1 + 2.0**-20, dtype))))


def lines(name: str, change: Change, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gives the alarm of the first programs in which a wrong pattern changes something, until it is named."""
    found: list[str] = []
    for module in PROGRAMS:
        with monkeypatch.context() as patch:
            count = plant(patch, name, change)
            FUSE.run(context(), module.clone())
            if count[0]:
                found.append(outcome(module))
                if f"(pattern {name})" in found[-1]:
                    break
    return found


@pytest.mark.parametrize("name", NEGATED)
def test_a_wrong_pattern_is_named_with_the_op(name: str, monkeypatch: pytest.MonkeyPatch):
    found = lines(name, negated, monkeypatch)
    said = re.compile(rf"popart-fuse \(pattern {name}\) changes '\w+\.mlir:\d+:\d+' first, and so the output '")
    assert any(said.match(line) for line in found), found


def test_there_are_enough_wrong_patterns():
    assert len(NEGATED) >= 20


@pytest.mark.parametrize("name", [n for n in ("OpToIdentity", "SliceOfSlice", "ViewSimplify") if PATTERNS[n]().EXACT])
def test_a_pattern_that_says_bit_for_bit_is_held_to_it(name: str, monkeypatch: pytest.MonkeyPatch):
    found = lines(name, a_little_more, monkeypatch)
    assert any(f"(pattern {name})" in line and "bit for bit" in line for line in found), found


BELOW = [m for m in MISTAKES if m.after != "onnx-to-popart"]
"""The comparison begins below ONNX's level."""


@pytest.mark.parametrize("mistake", BELOW, ids=lambda m: f"{m.title} after {m.after}")
def test_a_wrong_pass_is_named_with_the_op(mistake: Mistake, monkeypatch: pytest.MonkeyPatch):
    assert planted(monkeypatch, mistake) == []
    with validating(kinds=()), pytest.raises(PopulusError) as error:
        populus.compile(model(), tiles=4)
    line = str(error.value)
    assert mistake.after in line.partition(" changes ")[0] and f"'{mistake.found[1]}' first" in line, line


def test_right_passes_raise_no_alarm():
    with validating() as passes:
        populus.compile(model(), tiles=4)
    names = [name for name, _ in passes.compared]
    assert {"popart-fuse", LOWERED, "popops-fuse", "popops-to-poplar", "poplar-map", "poplar-allocate"} <= set(names)
    assert {kinds for name, kinds in passes.compared if name != ENGINE} == {7}
    assert dict(passes.compared)[ENGINE] == len(MODERATE)


def test_each_pass_of_a_named_pipeline_says_whether_it_keeps_bits():
    for p in (p for name in names() for p in Pipeline.named(name).passes):
        if not p.name.startswith(("onnx-", "codelet-")):
            assert re.search(r"\b(Bit for bit|To rounding)\.", type(p).__doc__ or ""), p.name
    assert not keeps_bits(FUSE.passes[0])
    assert keeps_bits(Pipeline.from_text("popart-fuse{exact=true}").passes[0])


def test_the_commands_name_the_pass(monkeypatch: pytest.MonkeyPatch, populus_opt: Any, populus: Any, tmp_path: Path):
    mistake = next(m for m in BELOW if m.title == "wrong reduction")
    file = tmp_path / "m.onnx"
    onnx.save(model(), file)
    assert populus("run", file, "--tiles", 4, "--verify-each=run").status == 0
    planted(monkeypatch, mistake)
    run = populus("run", file, "--tiles", 4, "--verify-each", "run")
    for said in (run, populus_opt(file, "--pipeline", "inference", "--verify-each=run")):
        assert said.status == 1 and said.err.count("\n") == 1
        assert "popart-to-popops changes 'mean of rows' first, and so the output 'y'" in said.err


def test_what_the_inputs_of_each_kind_hold():
    types = {"x": ((50,), np.dtype(np.float32)), "i": ((50,), np.dtype(np.int64))}
    found = {kind: inputs_of(kind, types)["x"] for kind in ("drawn", *ADVERSARIAL)}
    assert not found["zeros"].any() and np.signbit(found["zeros"]).any()
    assert len(set(found["ties"].tolist())) <= 5
    assert np.isnan(found["not a number"]).any() and np.isinf(found["infinities"]).any()
    assert np.abs(found["extremes"]).max() == np.finfo(np.float32).max
    assert (np.abs(found["denormals"]) == np.finfo(np.float32).smallest_subnormal).any()
    assert np.array_equal(found["drawn"], inputs_of("drawn", types)["x"])
