"""The page of gradients: every op is on it, and none that agrees there has stopped to."""

from __future__ import annotations

from functools import cache

import pytest
from gradients import Outcome, check, differentiable_ops, documented, node_tests

DOCUMENTED = documented()


@cache
def by_op():
    """The node tests by op."""
    found: dict[str, list[tuple]] = {}
    for test in node_tests():
        found.setdefault(test[0], []).append(test)
    return found


def test_every_differentiable_op_is_on_the_page():
    assert set(DOCUMENTED) == set(differentiable_ops())
    assert sum(good == all > 0 for good, all in DOCUMENTED.values()) >= 115


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
