"""Whole powers as products, and those of quarters as roots: values beside the power's, and bases that they are not for."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from xdsl.dialects import test
from xdsl.dialects.builtin import f16, f32, i32

import populus
from populus.dialects.expr import Arg, Const, Expr, call
from populus.dialects.support.element_types import tensor
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popops.powers import with_roots
from populus.runtime.expr import evaluate


def rooted(base: Expr, power: float, element=f32) -> Expr:
    operand = test.TestOp(result_types=[tensor([4], element)]).results[0]
    return with_roots(call("pow", base, Const(power)), [operand])


@pytest.mark.parametrize("power", [q / 4 for q in range(-8, 9) if q % 4])
def test_roots_are_the_power_to_rounding(power: float):
    e = rooted(call("abs", Arg(1)), power)
    assert "pow" not in str(e)
    spread = np.exp(np.random.default_rng(0).uniform(-35, 35, 1000))
    u = np.array([0, np.inf, np.nan, 1, 16, *spread], np.float32)
    with np.errstate(all="ignore"):
        found, expected = evaluate(e, [u]), np.power(u.astype(np.float64), power).astype(np.float32)
    np.testing.assert_array_equal(found[:5], expected[:5])
    np.testing.assert_allclose(found[5:], expected[5:], rtol=4 * 2.0**-23)


@pytest.mark.parametrize("power", [-1.0, 1.0, 2.0, 3.0])
def test_whole_powers_are_the_nearest_numbers_but_for_a_cube(power: float):
    e = rooted(Arg(1), power)
    assert "pow" not in str(e)
    spread = np.exp(np.random.default_rng(0).uniform(-60, 60, 1000)) * np.tile([1, -1], 500)
    u = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -3, *spread], np.float32)
    with np.errstate(all="ignore"):
        found, expected = evaluate(e, [u]), np.power(u.astype(np.float64), power).astype(np.float32)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    np.testing.assert_allclose(found, expected, rtol=2.0**-23 if power == 3 else 0, atol=2.0**-149 if power == 3 else 0)
    assert str(rooted(Arg(1), power, f16)) == str(e)


def test_whole_powers_of_integers_and_of_literals_stay():
    for base, element in ((Arg(1), i32), (Const(3.0), f32)):
        assert str(rooted(base, 2, element)).startswith("pow(")


def test_another_base_power_or_type_stays():
    square = call("square", Arg(1))
    for e in (rooted(Arg(1), 0.75), rooted(square, 0.7), rooted(square, 2.25), rooted(square, 0.75, f16), rooted(square - 1.0, 0.75)):
        assert str(e).startswith("pow(")
    assert str(rooted(square + 0.0, 0.75)).startswith("pow(")  # -0 is not above 0 for 1 / sqrt


def test_a_normalisation_over_channels_takes_a_tenth_of_the_cycles_and_gives_the_same():
    node = helper.make_node("LRN", ["x"], ["y"], size=5, alpha=2.0, beta=0.75, bias=1.0)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 32, 40, 40]) for n in "xy"]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x, found = np.random.default_rng(1).standard_normal((2, 32, 40, 40)).astype("f4"), []
    for given in ({}, {"roots": False}):
        pipeline = Pipeline.named("inference").with_options("popops-fuse", **given)
        program = populus.compile(model, target="gc200", tiles=64, pipeline=pipeline)
        maps = [s for s in program.profile().steps if "map" in s.codelets]
        found.append((program.run({"x": x})["y"], sum(s.compute for s in maps)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=2e-6, atol=1e-7)
    assert 10 * found[0][1] < found[1][1]
