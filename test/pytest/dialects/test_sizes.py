"""Sizes of bounded dimensions: normal forms, intervals, texts."""

from __future__ import annotations

import random

import pytest

from populus.dialects.onnx.dimensions import Dimensions
from populus.dialects.onnx.sizes import Size, as_size, parse, size
from populus.dialects.support.diagnostics import PopulusError

A, B = size("a"), size("b")


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("past + cur", "cur + past"),
        ("(h - 3) floordiv 2 + 1", "(h + 1) floordiv 2 - 1"),
        ("((h + 1) floordiv 2 + 1) floordiv 2", "(h + 3) floordiv 4"),
        ("(2 * h + 1) floordiv 2", "h"),
        ("h ceildiv 2", "(h + 1) floordiv 2"),
        ("min(s, s + 3)", "s"),
        ("s - s", "0"),
        ('"two words" * 3', '3 * "two words"'),
        ("a * (h floordiv 2)", "a * (h floordiv 2)"),
        ("2 * batch-size - n", '2 * "batch-size" - n'),
        ("size - batch", "-batch + size"),
    ],
)
def test_texts_have_one_normal_form(text: str, form: str):
    assert str(parse(text)) == form
    assert parse(form) == parse(text)


def test_a_size_that_is_one_dimension_has_its_name_without_quotes():
    texts = {"n": "n", "batch-size": "batch-size", '"two words"': "two words"}
    texts |= dict.fromkeys(("2 * n", "n + 1", "3", "0", "n * n", "min(n, 2)"), "")
    assert {text: parse(text).dimension for text in texts} == texts


@pytest.mark.parametrize("text", ["", "a +", "a b", "(a", "a / 2", "min a", "a floordiv 0", "(" * 100 + "a"])
def test_other_texts_are_refused_in_one_line(text: str):
    with pytest.raises(PopulusError, match="^.+$"):
        parse(text)


def drawn(rng: random.Random, depth: int) -> Size:
    if depth == 0:
        return rng.choice([A, B, as_size(rng.randint(-3, 5))])
    x, y = drawn(rng, depth - 1), drawn(rng, depth - 1)
    k = rng.randint(1, 4)
    return rng.choice([x + y, x - y, x * y, x // k, x.ceildiv(k), x.min(y), x.max(y)])


@pytest.mark.parametrize("seed", range(60))
def test_random_sizes_keep_their_value_and_their_interval(seed: int):
    rng = random.Random(seed)
    value, other = drawn(rng, 3), drawn(rng, 2)
    bounds = {"a": (0, 6), "b": (1, 5)}
    low, high = value.interval(bounds)
    for a in range(7):
        for b in range(1, 6):
            at = {"a": a, "b": b}
            n, m = value.evaluate(at), other.evaluate(at)
            assert low <= n <= high
            assert parse(str(value)).evaluate(at) == n
            assert value.decided(bounds).evaluate(at) == n
            assert (value + other).evaluate(at) == n + m
            assert (value * other).evaluate(at) == n * m
            assert (value // 3).evaluate(at) == n // 3
            if (exact := (value * other).exactly(other)) is not None and m:
                assert exact.evaluate(at) == n
            assert value.replaced({"a": B}).evaluate(at) == value.evaluate({"a": b, "b": b})


def test_products_divide_exactly():
    assert (A * B * 12).exactly(A * 4) == B * 3
    assert ((A + B) * A * 2).exactly(A + B) == A * 2
    assert (A * B).exactly(as_size(2)) is None
    assert (A + 1).exactly(A) is None


def test_a_dimension_named_by_others_follows_from_them():
    dims = Dimensions({"past": (0, 8), "cur": 2})
    assert dims.size("past + cur") == size("past") + 2
    assert dims.size("past + other") is None
    assert dims.size("other") is None


@pytest.mark.parametrize("pair", [(0, 0), (-1, 4), (5, 4)])
def test_impossible_bounds_name_the_dimension(pair: tuple[int, int]):
    with pytest.raises(PopulusError, match="dimension 'n' is bounded by"):
        Dimensions({"n": pair})


def test_missing_sizes_name_the_dimension():
    with pytest.raises(PopulusError, match="dimension 'a' has no size"):
        A.evaluate({"b": 1})
    with pytest.raises(PopulusError, match="dimension 'a' has no bounds"):
        A.upper({"b": (1, 2)})
