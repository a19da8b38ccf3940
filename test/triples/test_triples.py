"""The sample of triples that CI runs: it changes from day to day, and `POPULUS_TRIPLES_TURN` repeats one."""

from __future__ import annotations

import os
import time
from functools import lru_cache

import pytest

from triples.cases import Case, sample
from triples.forms import FORMS
from triples.judging import FINDINGS
from triples.running import BATCH

TURN = int(os.environ.get("POPULUS_TRIPLES_TURN", "") or time.time() // 86_400)
PARTS = 16


@lru_cache(maxsize=1)
def cases() -> list[Case]:
    return sample(TURN)


def findings(form: str, listed: list[Case]) -> list[str]:
    found = [v for i in range(0, len(listed), BATCH) for v in FORMS[form].judge(listed[i : i + BATCH])]
    assert len(found) == len(listed)
    assert sum(v.outcome == "saturated" for v in found) <= 1 + len(listed) // 50
    return [f"turn {TURN}: {v.outcome}: {v.reason}; make triples FORM={form} CASE={v.case}" for v in found if v.outcome in FINDINGS]


def test_the_sample_has_each_row_and_five_hundred_cases():
    from triples import consumers, producers

    assert len(cases()) >= 500
    assert {c.producer for c in cases()} == set(producers.PRODUCERS)
    assert {c.consumer for c in cases()} == set(consumers.CONSUMERS)


@pytest.mark.parametrize("part", range(PARTS))
def test_triples_agree_with_onnxruntime(part: int):
    listed = cases()
    share = -(-len(listed) // PARTS)
    assert findings("plain", listed[part * share : (part + 1) * share]) == []


@pytest.mark.parametrize("form", [f for f in FORMS if f != "plain"])
def test_triples_agree_in_other_forms(form: str):
    listed = FORMS[form].share(cases())
    assert listed
    assert findings(form, listed) == []
