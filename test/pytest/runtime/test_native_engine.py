"""The native engine against the numpy engine: the wheel's small models, every codelet, the object cache, a CPU without vectors."""

from __future__ import annotations

import numpy as np
import pytest
from wheel import LEFT_OUT, Case, cases

import populus
from populus.runtime.session import Session

RUN = [case for case in cases() if case.name not in LEFT_OUT]


def agrees(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, e in expected.items():
        assert (found[name].dtype, found[name].shape) == (e.dtype, e.shape), name
        if e.dtype.kind == "f":
            largest = float(np.abs(e[np.isfinite(e)]).max(initial=0))
            np.testing.assert_allclose(found[name], e, rtol=tolerance, atol=tolerance * largest, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], e)


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.name)
def test_a_model_gives_what_the_numpy_engine_gives(case: Case):
    module = populus.compile(case.path, target="host", tiles=16, dims=case.dims())
    expected = module.run(case.inputs())
    program = populus.compile(case.path, target="host", tiles=16, dims=case.dims(), engine="native")
    found = program.run(case.inputs())
    agrees(found, expected)
    again = program.run(case.inputs())
    for name, array in found.items():
        np.testing.assert_array_equal(again[name], array)


def test_a_session_says_what_it_leaves_to_numpy():
    case = next(c for c in RUN if c.name == "test_operator_pow")
    program = populus.compile(case.path, target="host", tiles=16, engine="native")
    assert program.session.fallbacks == {"map": 1}
    assert Session(program.module("poplar"), "numpy").fallbacks == {}
