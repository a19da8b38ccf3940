"""The small models of the onnx wheel, at the tile level: on a CPU's 16 tiles and a GC200's 1,472, fast and strict."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import populus
from helpers.command import Command
from helpers.wheel_models import COUNTS, LEFT_OUT, LEFT_OUT_ON_GC200, Case, agree, cases
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.support.diagnostics import PopulusError

CASES = list(cases())
RUN = [case for case in CASES if case.name not in LEFT_OUT]


def each(found: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", found, ids=lambda case: case.name)


def test_the_wheel_has_the_models_that_these_tests_are_about():
    assert Counter(case.folder.parent.name for case in CASES) == COUNTS
    assert {*LEFT_OUT, *LEFT_OUT_ON_GC200} <= {case.name for case in CASES}


@each(RUN)
def test_a_model_gives_its_expected_outputs_on_16_tiles_of_a_host(case: Case):
    program = populus.compile(case.path, target="host", tiles=16, dims=case.dims())
    agree(program.run(case.inputs()), case.outputs())


@each([case for case in RUN if case.name not in LEFT_OUT_ON_GC200])
def test_populus_run_agrees_with_the_expected_outputs_on_1472_tiles(case: Case, populus: Command):
    arguments = [f"--dim={name}={size}" for name, size in case.dims().items()]
    arguments += [f"--inputs={file}" for file in case.files("input")] + [f"--expect={file}" for file in case.files("output")]
    outcome = populus("run", case.path, "--target", "gc200", "--narrow", *arguments)
    assert outcome.status == 0, outcome.err
    assert "agrees" in outcome.out


@each(RUN)
def test_the_strict_engine_agrees_with_numpy_on_16_tiles(case: Case):
    """Bit for bit but where a contraction's order of summing is BLAS's: there to 1e-6 of the largest element."""
    fast = populus.compile(case.path, target="host", tiles=16, dims=case.dims(), engine="numpy")
    strict = populus.compile(case.path, target="host", tiles=16, dims=case.dims(), engine="strict")
    inputs = case.inputs()
    expected, found = fast.run(inputs), strict.run(inputs)
    contracts = any(isinstance(op, FamilyOp) and op.codelet.data in ("conv", "matmul") for op in fast.module("poplar").walk())
    for name, e in expected.items():
        if contracts:
            np.testing.assert_allclose(found[name], e, rtol=1e-6, atol=2e-6 * float(np.abs(e).max(initial=0)))
        else:
            np.testing.assert_array_equal(found[name], e)


@each(RUN)
def test_all_levels_compute_the_same(case: Case, populus: Command):
    arguments = [f"--dim={name}={size}" for name, size in case.dims().items()]
    outcome = populus("run", case.path, "--tiles", 4, "--check-levels", *arguments, *[f"--inputs={f}" for f in case.files("input")])
    assert outcome.status == 0, outcome.out + outcome.err


@each([case for case in CASES if case.name in LEFT_OUT])
def test_what_is_left_out_is_refused_in_one_line(case: Case):
    with pytest.raises(PopulusError) as error:
        populus.compile(case.path)
    assert LEFT_OUT[case.name] in str(error.value)
    assert "\n" not in str(error.value)


@each([case for case in CASES if case.name in LEFT_OUT_ON_GC200])
def test_doubles_beyond_floats_are_refused_when_they_arrive(case: Case):
    program = populus.compile(case.path, target="gc200", narrow=True)
    with pytest.raises(PopulusError, match=LEFT_OUT_ON_GC200[case.name]):
        program.run(case.inputs())
