"""Host functions: regular expressions in linear time, and the text of numbers."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from helpers.effort import effort
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.host import FUNCTIONS, call
from populus.runtime.host.pattern import RegularExpression
from populus.runtime.host.strings import current, using

PATTERNS = [
    "", r"www.[\w.-]+\.\bcom\b", "(a|ab)(c|bcd)(d*)", r"(\W|^)[\w.\-]{0,5}@(ab|c)\.com(\W|$)", "(a*)*b", "x{2,4}?", "[^abc]+",
    "(?i)HeLLo[a-c]*", r"\d+\.\d{2}", r"a\sb", "(?:a|b)+c?", r"^a.*b$", "(?s:.)", r"\Aa\Z",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_pythons_matches(pattern):
    rng = random.Random(pattern)
    ours = RegularExpression(pattern)
    texts = [
        "",
        "\n",
        "www.a.com",
        "abcd",
        "x@ab.com",
        *("".join(rng.choices("abcdxw.com@12 H_Lehlo\n", k=rng.randint(0, 8))) for _ in range(200)),
    ]
    for text in texts:
        wanted = re.fullmatch(pattern, text, re.ASCII) is not None
        if "$" in pattern and text.endswith("\n"):
            continue  # Python's $ stands before a last line end, RE2's does not
        assert ours.matches(text) == wanted, (pattern, text)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$b"])
def test_no_pattern_searches_for_ever(pattern):
    expression = RegularExpression(pattern)
    assert not expression.matches("a" * 5000)
    short, long = (effort(lambda n=n: expression.matches("a" * n)) for n in (500, 1000))
    assert long < 2.1 * short, (short, long)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"(a)\1", "groupref, which takes more than linear time"),
        ("(?=a)b", "assert, which takes more than linear time"),
        ("(", "cannot be read"),
        ("a{2000}", "repeats more than 1000 times"),
        ("((a{1000}){1000}){1000}", "is too large"),
    ],
)
def test_a_pattern_that_is_not_of_the_syntax_is_refused(pattern, said):
    with pytest.raises(PopulusError, match=said):
        RegularExpression(pattern)


def test_tokens_are_found_or_stand_between_separators():
    x = np.array(["one, two", "a"], object)
    found = FUNCTIONS["text.tokenize"]({"tokenexp": "[a-z]+", "pad_value": "#", "mincharnum": 1}, [x])[0]
    assert found.tolist() == [["one", "two"], ["a", "#"]]
    found = FUNCTIONS["text.tokenize"]({"separators": [","], "pad_value": "#", "mincharnum": 2}, [x])[0]
    assert found.tolist() == [["one", " two"], ["#", "#"]]


def test_a_result_of_another_shape_than_was_compiled_for_is_refused():
    with using(("", "a b")) as strings:
        x = strings.encode(np.array(["a b"], object))
        types = [((1, 2), np.dtype(np.int32)), ((1,), np.dtype(np.int64))]
        y, n = call("text.split", {"texts_in": (1,)}, types, [x])
        assert current().decode(y).tolist() == [["a", "b"]]
        assert n.tolist() == [2]
        with pytest.raises(PopulusError, match=r"text.split gives \[1, 3\] for these values; the program was compiled for \[1, 2\]"):
            call("text.split", {"texts_in": (1,)}, types, [strings.encode(np.array(["a b c"], object))])
    with pytest.raises(PopulusError, match="whose table only the model's function has"):
        current()
    with pytest.raises(PopulusError, match="no host function 'text.spilt'; did you mean 'text.split'"):
        call("text.spilt", {}, [], [])
