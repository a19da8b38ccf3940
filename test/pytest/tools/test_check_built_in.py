"""A sample of the built-in ops keeps the contract of users' ops; `make check-ops` checks all of them on all rows of `op_cases.py`."""

from __future__ import annotations

import pytest

from helpers.built_in_checks import examples, failures
from populus.dialects.popart import (
    AddOp,
    GatherOp,
    LayerNormOp,
    MatMulOp,
    PackedMatMulOp,
    PowOp,
    ReduceLogSumExpOp,
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceProdOp,
    ReduceSumOp,
    SoftmaxOp,
    TransposeOp,
)
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import definition_of
from populus.tools.check_op import Checked
from populus.tools.op_rows import sizes

SAMPLE = (AddOp, GatherOp, LayerNormOp, PackedMatMulOp, PowOp, ReduceMeanOp, SoftmaxOp, TransposeOp)


@pytest.mark.parametrize("op", SAMPLE, ids=lambda op: op.name)
def test_a_built_in_op_keeps_the_contract(op):
    assert list(failures(op, examples()[op], most=1)) == []


def test_a_wrong_built_in_op_would_be_found(monkeypatch):
    monkeypatch.setattr(PowOp, "backward", lambda self, g, a, b, y: [g, None])
    said = list(failures(PowOp, {True: examples()[PowOp][True]}, most=1))
    assert [line for line in said if line.startswith("gradient: the gradient of x0, element")]


def of_sizes(op):
    """Checks the dimensions of an op whose size may be known in the run only, on all examples: the verdicts, without `none`."""
    checks = [Checked(definition_of(op), None, found) for found in examples()[op].values()]
    rows = [check.row("sizes", lambda check=check: sizes(check, None)) for check in checks]
    return [row.word for row in rows if row.verdict == "failed"]


def test_what_stands_beyond_the_valid_part_of_a_built_in_op_changes_nothing():
    said = {op.name: of_sizes(op) for op in examples() if op.independent is not PopartOp.independent or op.neutral is not PopartOp.neutral}
    assert len(said) >= 25
    assert {name: words for name, words in said.items() if words} == {}


@pytest.mark.parametrize(
    ("op", "neutral"),
    [
        (MatMulOp, lambda self: [(0, len(self.a.type.shape) - 1, "one"), (1, max(len(self.b.type.shape) - 2, 0), "one")]),
        (ReduceLogSumExpOp, lambda self: [(0, d, "zero") for d in self.dims()]),
        (ReduceMaxOp, lambda self: [(0, d, "highest") for d in self.dims()]),
        (ReduceMeanOp, lambda self: [(0, d, "zero") for d in self.dims()]),
        (ReduceProdOp, lambda self: [(0, d, "zero") for d in self.dims()]),
        (ReduceSumOp, lambda self: [(0, d, "one") for d in self.dims()]),
        (SoftmaxOp, lambda self: [(0, self.axis, "zero", self.axis)]),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_a_wrong_neutral_element_of_a_built_in_op_is_found(op, neutral, monkeypatch):
    monkeypatch.setattr(op, "neutral", neutral)
    (*_, said) = of_sizes(op)
    assert "with the element that its `neutral` gives beyond" in said
