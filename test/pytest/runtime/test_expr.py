"""Values of expressions: NumPy's, of the operands' own element types, the same bits in any blocking."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import Float8E4M3FNType, bf16, f16, f32, i1, i8, i32

from populus.dialects import expr
from populus.dialects.expr import FUNCTIONS, Arg, Call, Const, call, cast, equal, erf, exp, maximum, select, sigmoid, tanh
from populus.runtime import expr as runtime_expr
from populus.runtime.expr import bind_map, evaluate
from populus.runtime.tape import tape_of

x, y = Arg(1), Arg(2)


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.takes in ("float", "number") and n != "select"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "float8_e5m2"])
def test_every_function_of_floats_is_close_to_f64_and_keeps_the_type(name, dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    function = FUNCTIONS[name]
    low = 1.2 if name == "acosh" else 0.2
    arrays = [np.random.default_rng(n).uniform(low, low + 0.7, 99).astype(dtype) for n in range(function.arity)]
    e = Call(name, tuple(Arg(i + 1) for i in range(function.arity)))
    found = evaluate(e, arrays)
    assert found.dtype == (np.bool_ if function.result == "bool" else dtype)
    expected = evaluate(e, [a.astype(np.float64) for a in arrays])
    if function.result == "bool":
        np.testing.assert_array_equal(found, expected)
    else:
        step = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=4 * step, atol=step)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_as_exact_as_its_type(dtype):
    v = np.concatenate([np.linspace(-7, 7, 5001), np.logspace(-30, 0, 300)]).astype(dtype)
    expected = np.array([math.erf(float(a)) for a in v])
    np.testing.assert_allclose(evaluate(erf(x), [v]), expected, rtol=4e-7 if dtype == np.float32 else 4e-16)
    ends = evaluate(erf(x), [np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], dtype)])
    np.testing.assert_array_equal(ends, np.array([1, -1, np.nan, 0, -0.0], dtype))
    assert np.signbit(ends[4])


def test_integers_divide_towards_zero_and_wrap():
    a, b = np.array([-7, 7, -8, 5, -128, 100], np.int8), np.array([2, -2, -2, 0, -1, 3], np.int8)
    assert evaluate(x / y, [a, b]).tolist() == [-3, -3, 4, 0, -128, 33]
    assert evaluate(x % y, [a[:3], b[:3]]).tolist() == [-1, 1, 0]
    assert evaluate(x * 3, [a]).tolist() == [-21, 21, -24, 15, -128, 44]
    assert evaluate(x - 1, [np.array([0], np.uint8)]).tolist() == [255]


def test_integers_have_integer_powers():
    a, b = np.array([2, -1, -1, 1, 5, -3], np.int32), np.array([10, -3, -2, -9, -1, 3], np.int32)
    assert evaluate(call("pow", x, y), [a, b]).tolist() == [1024, -1, 1, 1, 0, -27]


def test_extremes_and_signs_pass_nan_on():
    nan = np.array([np.nan, 1.0], np.float32)
    assert np.isnan(evaluate(maximum(x, 0), [nan])[0])
    assert np.isnan(evaluate(expr.signum(x), [nan])[0])
    assert np.isnan(evaluate(call("min", 5.0, x), [nan])[0])


def test_a_half_rounds_to_even():
    assert evaluate(expr.nearbyint(x), [np.array([-2.5, -0.5, 0.5, 1.5], np.float32)]).tolist() == [-2, -0.0, 0, 2]


def test_casts_truncate_wrap_and_saturate():
    v = np.array([-2.7, 0.0, 2.7], np.float32)
    assert evaluate(cast(x, i32), [v]).tolist() == [-2, 0, 2]
    assert evaluate(cast(x, i1), [v]).tolist() == [True, False, True]
    assert evaluate(cast(x, i8), [np.array([300], np.int32)]).tolist() == [44]
    assert evaluate(cast(x, f32), [np.array([True, False])]).tolist() == [1, 0]
    large = np.array([1e9, -np.inf, np.nan], np.float32)
    saturated = evaluate(cast(x, Float8E4M3FNType()), [large]).astype(np.float32)
    assert saturated.tolist()[:2] == [448, -448]
    assert np.isnan(saturated[2])


def test_narrow_floats_round_after_each_function():
    a = np.array([1.0], np.float16)
    small = float(2.0**-12)
    assert evaluate((x + small) + small, [a])[0] == 1  # and not 1 + 2^-11
    b = np.array([1.0], ml_dtypes.bfloat16)
    assert evaluate((x + 2.0**-9) + 2.0**-9, [b])[0] == 1
    assert evaluate(sigmoid(x), [np.array([-15], np.float16)])[0] > 0  # e^15 is no float16


def test_literals_take_the_type_of_what_they_meet():
    assert evaluate(select(1, 0, x > 0) * y, [np.array([1, -1], np.float32), np.array([5, 6], np.int32)]).dtype == np.int32
    assert evaluate(select(0.5, x, equal(x, 0)), [np.array([0], np.float16)]).dtype == np.float16
    with pytest.raises(AssertionError, match=r"the literal 0\.5 meets elements of int32"):
        evaluate(x * 0.5, [np.array([1], np.int32)])


def test_equal_parts_are_computed_once_and_literals_at_once():
    e = tanh(x * (Const(1.0) + 2.0)) + tanh(x * 3.0)
    assert [s.name for s in tape_of(e, (np.dtype(np.float32),)).steps] == ["mul", "tanh", "add"]


def test_the_output_may_be_an_operand():
    a = np.linspace(-3, 3, 40000, dtype=np.float32)
    for e in (select(x, 0.01 * x, x >= 0), select(0.01 * x, x, x < 0), exp(x) * x, select(y, x, y > x), x + 0):
        b = a[::-1].copy()
        expected = evaluate(e, [a, b])
        for n in range(2):
            arrays = [a.copy(), b.copy()]
            evaluate(e, arrays, out=arrays[n])
            np.testing.assert_array_equal(arrays[n], expected)


def test_a_bound_map_reads_what_the_arrays_hold_when_it_runs():
    a, out = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.float32)
    run = bind_map(exp(x) + y, [a, np.ones(3, np.float32)], out)
    a += 1
    run()
    np.testing.assert_allclose(out, math.e + 1, rtol=1e-6)


def test_nothing_is_computed_of_nothing():
    assert evaluate(exp(x) + y, [np.zeros((0, 3), np.float32), np.zeros(3, np.float32)]).shape == (0, 3)


FORMULAS = [
    select(x, 0.01 * x, x >= y),
    0.5 * x * (1.0 + erf(x * 0.7)),
    exp(x) + expr.log(expr.absolute(y) + 1.0) * tanh(x),
    call("pow", expr.absolute(x), y) + expr.sin(x) * expr.cos(y),
    expr.sinh(x) - expr.asinh(y) + sigmoid(x),
    cast(cast(x, f16) * cast(y, f16), f32) + cast(cast(x, bf16), f32),
    x + 0.0,
    y,
]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """A shape and two arrays that broadcast to it, with permuted, sparse, reversed or no strides."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    arrays: list[np.ndarray] = []
    for seed in range(2):
        dims = [1 if draw(st.integers(0, 3)) == 0 else n for n in shape]
        order = draw(st.permutations(range(len(dims))))
        gaps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in dims]
        room = [dims[d] * abs(gaps[d]) for d in order]
        a = np.random.default_rng(seed).uniform(-3, 3, room).astype(np.float32).transpose(np.argsort(order))
        arrays.append(a[tuple(slice(None, None, gap) for gap in gaps)])
    return shape, arrays


@settings(max_examples=60, deadline=None)
@given(layouts(), st.sampled_from(FORMULAS), st.sampled_from([1, 3, 7, 64, 1 << 14]), st.booleans())
def test_neither_blocks_nor_strides_show_in_the_result(layout, e, block, sparse):
    shape, arrays = layout
    expected = evaluate(e, [np.ascontiguousarray(np.broadcast_to(a, shape)) for a in arrays])
    out = np.zeros((*shape, 2), np.float32)[..., 0] if sparse else np.zeros(shape, np.float32)
    before = runtime_expr.BLOCK
    runtime_expr.BLOCK = block
    try:
        bind_map(e, arrays, out)()
    finally:
        runtime_expr.BLOCK = before
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("step", [-8, -4, -2, -1, 2, 3, 4, 8, 16])
def test_every_unary_function_works_in_place_on_elements_that_lie_apart(dtype, step):
    """NumPy 2.4.6's negative does not, with 4 floats from one to the next."""
    unary = [f for f, d in FUNCTIONS.items() if d.arity == 1 and d.result == "same" and d.takes in ("number", "float")]
    for function in [f for f in unary if FUNCTIONS[f].takes == "number" or np.dtype(dtype).kind == "f"]:
        memory = (np.arange(400) % 7 + 1).astype(dtype) / (8 if np.dtype(dtype).kind == "f" else 1)
        x = memory.astype(dtype)[200::step][:9]
        expected = evaluate(call(function, Arg(1)), [x.copy()])
        bind_map(call(function, Arg(1)), [x], x)()
        np.testing.assert_allclose(x, expected, rtol=1e-6, err_msg=function)
