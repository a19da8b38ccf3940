"""The page of gradients: every op is on it, and none that agrees there has stopped to."""

from __future__ import annotations

from functools import cache

import pytest

from helpers.gradient_cases import Outcome, check, differentiable_ops, node_tests
from populus.tools.gradient_page import agreeing, column

DOCUMENTED = agreeing()


@cache
def by_op():
    """The node tests by op."""
    found: dict[str, list[tuple]] = {}
    for test in node_tests():
        found.setdefault(test[0], []).append(test)
    return found


def test_every_differentiable_op_is_on_the_page():
    assert set(DOCUMENTED) == set(differentiable_ops())
    assert [op for op, (good, all) in DOCUMENTED.items() if not good == all > 0] == []
    assert (column("Abs"), column("Shape")) == ("1 of 1", "")


@pytest.mark.parametrize("op", [op for op, (good, all) in DOCUMENTED.items() if good == all > 0])
def test_the_gradients_of_an_op_agree_with_differences(op):
    checked = 0
    for test in by_op()[op]:
        outcome = check(*test)
        if outcome is not None:
            assert outcome == Outcome(op, test[1], "")
            checked += 1
        if checked == 2:
            break
    assert checked
