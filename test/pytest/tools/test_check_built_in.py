"""A sample of the built-in ops keeps the contract of users' ops; `make check-ops` checks all of them on all rows of `op_cases.py`."""

from __future__ import annotations

import pytest

from helpers.built_in_checks import examples, failures
from populus.dialects.popart import AddOp, GatherOp, LayerNormOp, PowOp, ReduceMeanOp, SoftmaxOp, TransposeOp

SAMPLE = (AddOp, GatherOp, LayerNormOp, PowOp, ReduceMeanOp, SoftmaxOp, TransposeOp)


@pytest.mark.parametrize("op", SAMPLE, ids=lambda op: op.name)
def test_a_built_in_op_keeps_the_contract(op):
    assert list(failures(op, examples()[op], most=1)) == []


def test_a_wrong_built_in_op_would_be_found(monkeypatch):
    monkeypatch.setattr(PowOp, "backward", lambda self, g, a, b, y: [g, None])
    said = list(failures(PowOp, {True: examples()[PowOp][True]}, most=1))
    assert [line for line in said if line.startswith("gradient: the gradient of x0, element")]
