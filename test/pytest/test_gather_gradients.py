"""Gradients of values that are picked by index: added to the rows that were picked, and to no others."""

from __future__ import annotations

import math

import numpy as np
import pytest

import populus
from helpers.every_engine import ENGINES, model_of, node
from populus.dialects import poplin
from populus.dialects.support.element_types import shape_of

R = np.random.default_rng(5)


def drawn(*shape, kind="f4"):
    return R.normal(size=shape).astype(kind)


def vjps(model, inputs, g, names="x", **options):
    """The gradients of x by each engine."""
    for engine in ENGINES:
        found = populus.vjp(model, [names], engine=engine, **{"tiles": 4, **options})
        yield engine, found.run(inputs, {"y": g})[1][names]


def elements(model):
    """The elements of all values of the backward program."""
    module = populus.vjp(model, ["x"], tiles=4).module("popops")
    assert not [op for op in module.walk() if isinstance(op, poplin.MatMulOp)]
    return sum(math.prod(shape_of(r.type)) for op in module.walk() for r in op.results if hasattr(r.type, "get_shape"))


def picks(kind, n):
    """A model that picks of x [n, n], with its inputs, and which element of x each element of y is."""
    x, at = drawn(n, n), np.arange(n * n).reshape(n, n)
    if kind == "Gather":
        i = R.integers(-n, n, 2 * n)
        return model_of([node("Gather", "x i", "y", axis=1)], {"x": x, "i": i}), {"x": x, "i": i}, at[:, i]
    if kind == "GatherElements":
        i = R.integers(-n, n, (n, n))
        return model_of([node("GatherElements", "x i", "y", axis=1)], {"x": x, "i": i}), {"x": x, "i": i}, np.take_along_axis(at, i, 1)
    if kind == "GatherND":
        i = R.integers(-n, n, (2 * n, 2))
        return model_of([node("GatherND", "x i", "y")], {"x": x, "i": i}), {"x": x, "i": i}, at[i[:, 0], i[:, 1]]
    k = np.array([n // 2])
    model = model_of([node("TopK", "x k", "y where", axis=0)], {"x": x}, {"k": k})
    return model, {"x": x}, np.take_along_axis(at, np.argsort(-x, 0, kind="stable")[: n // 2], 0)


KINDS = ("Gather", "GatherElements", "GatherND", "TopK")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_an_infinity_or_nan_reaches_only_the_element_that_was_picked(kind, special):
    model, inputs, at = picks(kind, 6)
    g = drawn(*at.shape)
    g.reshape(-1)[1] = special
    expected = np.zeros(36)
    np.add.at(expected, at.reshape(-1), g.reshape(-1).astype("f8"))
    assert 0 < np.isfinite(expected).sum() < 36
    for engine, dx in vjps(model, inputs, g):
        np.testing.assert_allclose(dx.reshape(-1), expected, rtol=1e-5, atol=1e-6, err_msg=engine)


@pytest.mark.parametrize("kind", KINDS)
def test_four_times_the_elements_take_four_times_the_work(kind):
    few, many = (elements(picks(kind, n)[0]) for n in (32, 64))
    assert many < 4.5 * few


def test_elements_of_310_by_310_have_a_gradient():
    model, inputs, at = picks("GatherElements", 310)
    g = drawn(*at.shape)
    expected = np.bincount(at.reshape(-1), g.reshape(-1), 310 * 310).reshape(310, 310)
    for engine in ("numpy", "native"):
        dx = populus.vjp(model, ["x"], engine=engine).run(inputs, {"y": g})[1]["x"]
        np.testing.assert_allclose(dx, expected, rtol=1e-5, atol=1e-5, err_msg=engine)


def test_the_likelihood_of_256_rows_of_1000_has_a_gradient_of_as_many_elements():
    x, labels = drawn(256, 1000), R.integers(0, 1000, 256)
    model = model_of([node("NegativeLogLikelihoodLoss", "x t", "y", reduction="sum")], {"x": x, "t": labels})
    assert elements(model) < 12 * x.size
    expected = np.zeros(x.shape)
    expected[np.arange(256), labels] = -2
    for engine in ("numpy", "native"):
        dx = populus.vjp(model, ["x"], engine=engine).run({"x": x, "t": labels}, {"y": np.float32(2)})[1]["x"]
        np.testing.assert_array_equal(dx, expected, err_msg=engine)


def test_rows_of_halves_that_are_picked_often_are_summed_as_floats():
    x, i = np.zeros((2, 3), "f2"), np.zeros(5000, "i8")
    model = model_of([node("Gather", "x i", "y")], {"x": x, "i": i})
    for engine, dx in vjps(model, {"x": x, "i": i}, np.ones((5000, 3), "f2")):
        np.testing.assert_array_equal(dx, [[5000] * 3, [0] * 3], err_msg=engine)


def test_a_gather_of_nothing_has_a_gradient_of_zeros():
    x, i = drawn(3, 4), np.zeros((2, 0), "i8")
    model = model_of([node("Gather", "x i", "y", axis=1)], {"x": x, "i": i})
    for engine, dx in vjps(model, {"x": x, "i": i}, np.zeros((3, 2, 0), "f4")):
        np.testing.assert_array_equal(dx, np.zeros((3, 4)), err_msg=engine)
