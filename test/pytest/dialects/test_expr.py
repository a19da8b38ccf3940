"""Expressions: their text, element types and derivatives."""

from __future__ import annotations

import math

import pytest
from xdsl.dialects.builtin import f16, f32, i1, i32
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from populus.dialects.expr import (
    FUNCTIONS,
    Arg,
    Call,
    Const,
    Expr,
    ExprAttr,
    args_of,
    call,
    cast,
    derivative,
    equal,
    exp,
    infer,
    maximum,
    select,
    substitute,
    tanh,
    times,
)
from populus.dialects.table import context

x, y = Arg(1), Arg(2)


def parsed(text: str) -> Expr:
    attribute = Parser(context(), f"#expr.fn<{text}>").parse_attribute()
    assert isinstance(attribute, ExprAttr)
    return attribute.data


@pytest.mark.parametrize(
    "e",
    [
        x + 0.5,
        select(x, 0.0, x >= -0.0),
        cast(x, f16) * Const(math.inf) - Const(-math.inf),
        equal(x, Const(math.nan)) & True,
        call("pow", x, 1e-38) + 1e30,
        -x % 3,
    ],
    ids=str,
)
def test_text_reads_back_equal(e):
    assert parsed(str(e)) == e


def test_literals_are_equal_by_their_text():
    assert Const(0.0) != Const(-0.0)
    assert Const(1) != Const(1.0)
    assert Const(math.nan) == Const(math.nan)


@pytest.mark.parametrize(
    ("text", "message"),
    [("adds(_1, _2)", "not a function"), ("add(_1)", "takes 2 arguments, not 1"), ("-_1", "a number is expected")],
)
def test_what_is_no_expression_is_an_error_where_it_stands(text, message):
    with pytest.raises(ParseError, match=message):
        parsed(text)


def test_the_element_type_is_that_of_the_operands_and_of_comparisons_a_boolean():
    assert infer(x * 0.5, [f16]) == f16
    assert infer(x >= y, [i32, i32]) == i1
    assert infer(select(0.0, x, x > 0), [f32]) == f32


@pytest.mark.parametrize(
    ("e", "message"),
    [
        (x + y, "mixes element types f16, f32"),
        (tanh(cast(x, i32)), "tanh takes float elements, not i32"),
        (select(x, x, y), "the condition of .* is f32, not i1"),
        (Const(1) + 2, "only literals"),
        (Arg(3) + x, "_3 is read, but there are 2 operands"),
    ],
    ids=str,
)
def test_types_that_do_not_fit_are_named(e, message):
    with pytest.raises(VerifyException, match=message):
        infer(e, [f16, f32])


def test_operands_are_found_and_replaced():
    assert args_of(select(x, 0.0, y > 0)) == {1, 2}
    assert substitute(x * y, {1: exp(y)}) == exp(y) * y


def test_a_derivative_may_be_told_from_the_value():
    assert derivative(tanh(x), 1, y) == 1.0 - y * y
    assert derivative(exp(x), 1, y) == y


def test_a_derivative_has_no_needless_products():
    assert derivative(x + y, 1) == Const(1)
    assert derivative(-x, 1) == Const(-1)
    assert derivative(x * y, 1) == y
    assert derivative(x > y, 1) is None
    assert times(x, Const(-1)) == -x


def test_selects_are_pulled_out_of_products():
    """So that what is not chosen may be infinite: inf * 0 would be NaN."""
    slope = derivative(maximum(exp(x), 0.0), 1)
    assert isinstance(slope, Call)
    assert slope.function == "select"


def test_a_derivative_goes_through_casts_of_floats_in_the_type_cast_to():
    assert infer(times(y, derivative(cast(x * x, f32), 1) or x), [f16, f32]) == f32
    assert derivative(cast(x, i32), 1) is None


def test_every_function_has_a_derivative_or_is_a_staircase():
    args = Arg(1), Arg(2), Arg(3)
    for name, function in FUNCTIONS.items():
        e = Call(name, args[: function.arity])
        for index in range(1, function.arity + 1):
            slope = derivative(e, index)
            assert slope is None or isinstance(slope, Expr)
