"""ONNX's backend suite through `populus.onnx_backend`, at the tile level: every case ends as `onnx_suite.json` says.

`python -m populus.tools.onnx_suite --write` writes that file and `docs/coverage.md` anew.
"""

from __future__ import annotations

import random
import unittest
from collections import Counter
from pathlib import Path

import pytest
from onnx.backend.test import BackendTest

from populus.onnx_backend import Backend
from populus.tools.onnx_suite import CASES, PAGE, PASSING, Outcome, cases, failing, names, outcome, page, recorded

RECORDED = recorded()


def test_the_suite_has_all_its_cases():
    assert list(cases()) == names(), "write it anew: python -m populus.tools.onnx_suite --write"
    assert len(cases()) == CASES
    assert Counter(case.group for case in cases().values()) == {
        "Node": 1884,
        "PyTorchConverted": 82,
        "PyTorchOperator": 35,
        "Real": 9,
        "Simple": 23,
    }


@pytest.mark.parametrize("name", names())
def test_a_case_ends_as_it_is_recorded_to(name: str):
    expected = RECORDED.get(name, Outcome("passed"))
    found = outcome(cases()[name])
    assert found.status == expected.status, found.reason
    assert found.reason == expected.reason or found.status == "wrong"


def test_nothing_is_recorded_but_cases_and_no_case_crashes():
    assert set(RECORDED) <= set(cases())
    assert not [name for name, o in RECORDED.items() if o.status == "error"]


def test_few_cases_involve_the_host_and_most_pass():
    counts = Counter(o.status for o in RECORDED.values())
    assert counts["host"] <= 120
    assert CASES - counts["unsupported"] - counts["wrong"] >= 2000


def test_the_page_of_coverage_is_what_is_recorded():
    assert PAGE.read_text() == page(RECORDED), "write it anew: python -m populus.tools.onnx_suite --write"


# -- with every dimension of every input symbolic

NOT_SYMBOLIC = set(failing("symbolic"))
SAMPLE = random.Random(0).sample(names(), 100)  # the whole is run by the command: --symbolic


@pytest.mark.parametrize("name", SAMPLE)
def test_a_case_ends_the_same_way_without_the_sizes_of_its_inputs(name: str):
    found = outcome(cases()[name], "symbolic")
    assert (found.status in ("passed", *PASSING)) == (name not in NOT_SYMBOLIC), found.reason


def test_nearly_all_cases_pass_without_the_sizes_of_their_inputs():
    assert len(cases()) - len(NOT_SYMBOLIC) >= 1900


# -- at the level popart, op by op on whole arrays

NOT_AT_POPART = set(failing("reference"))


@pytest.mark.parametrize("name", SAMPLE)
def test_a_case_ends_the_same_way_on_whole_arrays(name: str):
    found = outcome(cases()[name], "reference")
    assert (found.status in ("passed", *PASSING)) == (name not in NOT_AT_POPART), found.reason


def test_whatever_passes_on_tiles_passes_on_whole_arrays():
    assert {name for name in NOT_AT_POPART if RECORDED.get(name, Outcome("passed")).status in ("passed", *PASSING)} == set()


# -- through the question that ONNX's runner asks first

DECIDED = [  # whose inputs decide shapes: zeros in their place say nothing of them
    "test_affine_grid_2d",
    "test_affine_grid_3d_align_corners_expanded",
    "test_blackmanwindow",
    "test_expand_shape_model1",
    "test_expand_shape_model4",
    "test_sequence_model8",
]


@pytest.mark.parametrize("name", [*DECIDED, *SAMPLE[:30]])
def test_a_case_is_not_refused_before_it_runs(name: str):
    found = outcome(cases()[name], "asked")
    assert found.status == RECORDED.get(name, Outcome("passed")).status, found.reason


def test_onnxs_own_runner_passes_models_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("ONNX_MODELS", str(tmp_path))
    suite = BackendTest(Backend).include("^test_(expand_shape_model|sequence_model|gradient|sign_model|single_relu).*_cpu$").test_suite
    result = unittest.TestResult()
    suite.run(result)
    ran = result.testsRun - len(result.skipped)
    assert (ran, result.failures, result.errors) == (16, [], [])
    assert not [reason for _, reason in result.skipped if "Not compatible" in reason]
