"""Formulas of single elements: one form only for what has the same numbers, and terms that only this decides."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from populus.dialects import expr
from populus.dialects.expr import Arg, call, equal, select
from populus.dialects.poplar.affine import box, every, identity, read_map
from populus.proof.equivalence import Values, compare
from populus.proof.forms import Forms
from populus.proof.report import PROVED, UNDECIDED, Undecided
from populus.proof.terms import Terms
from populus.runtime.expr import evaluate

UNARY = ("neg", "square", "inv", "sqrt", "exp", "log", "abs", "tanh", "expm1", "log1p")
BINARY = ("add", "add", "sub", "mul", "mul", "divide", "max", "min")
COMPARED = ("lt", "gt", "lte", "gte", "equal")


def drawn(rng: random.Random, depth: int) -> expr.Expr:
    if depth == 0:
        return Arg(rng.randint(1, 2)) if rng.random() < 0.7 else expr.lift(rng.choice([0.5, -2.0, 3.0, 1.0]))
    kind = rng.random()
    if kind < 0.3:
        return call(rng.choice(UNARY), drawn(rng, depth - 1))
    if kind < 0.4:
        a, b, c, d = (drawn(rng, depth - 1) for _ in range(4))
        return select(a, b, call(rng.choice(COMPARED), c, d))
    return call(rng.choice(BINARY), drawn(rng, depth - 1), drawn(rng, depth - 1))


def form(forms: Forms, e: expr.Expr, args: list[int]) -> int:
    match e:
        case Arg(i):
            return args[i - 1]
        case expr.Const(value):
            return forms.number(value)
        case expr.Call(function, operands):
            return forms.applied(function, [form(forms, x, args) for x in operands])
        case _:
            raise AssertionError(e)


def inputs(forms: Forms, count: int, kind: str) -> list[int]:
    return [forms.key("input", name, type=kind) for name in range(count)]


def number_of(e: expr.Expr, values: tuple[float, ...]) -> float:
    with np.errstate(all="ignore"):
        return float(evaluate(e, [np.asarray(v) for v in values])[()])


@pytest.mark.parametrize("seed", range(40))
def test_formulas_that_have_one_form_have_the_same_numbers(seed):
    rng, forms, found = random.Random(seed), Forms(), dict[int, list[expr.Expr]]()
    args = inputs(forms, 2, "f")
    for _ in range(150):
        e = drawn(rng, rng.randint(1, 2))
        if expr.args_of(e):
            found.setdefault(form(forms, e, args), []).append(e)
    assert any(len(same) > 1 for same in found.values())
    points = [(0.7, 1.3), (1.9, 0.4), (0.55, 0.55)]
    for first, *others in found.values():
        for other, point in itertools.product(others, points):
            a, b = number_of(first, point), number_of(other, point)
            if math.isfinite(a) and math.isfinite(b):
                assert math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6), (str(first), str(other), point)


def integers(rng: random.Random, depth: int) -> expr.Expr:
    if depth == 0:
        return Arg(rng.randint(1, 2)) if rng.random() < 0.6 else expr.lift(rng.randint(-3, 3))
    kind = rng.random()
    if kind < 0.3:
        return select(integers(rng, depth - 1), integers(rng, depth - 1), condition(rng, depth - 1))
    if kind < 0.5:
        return integers(rng, depth - 1) * rng.choice([2, 3, -1])
    return call(rng.choice(["add", "sub", "max", "min"]), integers(rng, depth - 1), integers(rng, depth - 1))


def condition(rng: random.Random, depth: int) -> expr.Expr:
    if depth > 0 and rng.random() < 0.5:
        kind = rng.choice(["and", "or", "not"])
        parts = [condition(rng, depth - 1) for _ in range(1 if kind == "not" else 2)]
        return call(kind, *parts)
    return call(rng.choice(COMPARED), integers(rng, max(depth - 1, 0)), integers(rng, max(depth - 1, 0)))


@pytest.mark.parametrize("seed", range(40))
def test_conditions_of_integers_have_one_form_where_they_hold_for_the_same_numbers(seed):
    rng, forms = random.Random(seed), Forms()
    args, found = inputs(forms, 2, "i"), dict[int, tuple[str, set]]()
    points = list(itertools.product(range(-12, 13), repeat=2))
    for _ in range(40):
        e = condition(rng, 2)
        if len(expr.args_of(e)) != 2:
            continue
        with np.errstate(all="ignore"):
            columns = [np.array([p[k] for p in points]) for k in (0, 1)]
            holds = {p for p, v in zip(points, np.broadcast_to(evaluate(e, columns), (len(points),))) if v}
        x = form(forms, e, args)
        text, others = found.setdefault(x, (str(e), holds))
        assert holds == others, (str(e), text)


def over_integers(e: expr.Expr, reach: int) -> np.ndarray:
    """The values of a formula of one integer, at those from -reach to reach."""
    numbers = np.arange(-reach, reach + 1)
    return np.broadcast_to(evaluate(e, [numbers, numbers]), numbers.shape)


@pytest.mark.parametrize("seed", range(20))
def test_conditions_of_one_integer_are_one_exactly_where_they_agree(seed):
    rng, forms = random.Random(seed), Forms()
    args, found = inputs(forms, 1, "i") * 2, dict[tuple, set]()
    for _ in range(60):
        e = condition(rng, 2)
        if not expr.args_of(e):
            continue
        found.setdefault(tuple(over_integers(e, 200).tolist()), set()).add(form(forms, e, args))
    assert all(len(own) == 1 for own in found.values())
    assert len(set.union(*found.values())) == len(found)


def test_an_element_that_an_index_names_is_another_where_a_far_integer_names_another():
    """A clamp, a remainder and a clamp with one exception agree on small integers alone."""
    forms = Forms()
    [index], row = inputs(forms, 1, "i"), [forms.key("element", k) for k in range(4)]
    clamp = call("min", call("max", Arg(1), 0), 3)
    others = [clamp, call("max", call("rem", Arg(1), 4), 0), select(0, clamp, equal(Arg(1), 100)), call("rem", Arg(1), 1000), Arg(1)]
    assert len({forms.named(row, form(forms, e, [index])) for e in others}) == len(others)


def test_an_index_that_is_in_range_for_more_is_the_one_that_a_program_has():
    forms = Forms()
    [index], row = inputs(forms, 1, "i"), [forms.key("element", k) for k in range(4)]
    plain, reverse = (forms.named(r, form(forms, Arg(1), [index])) for r in (row, row[::-1]))
    assert plain != reverse
    for e in (call("min", call("max", Arg(1), 0), 3), call("max", call("rem", Arg(1), 4), 0)):
        assert forms.named(row, form(forms, e, [index])) == plain
        assert forms.named(row[::-1], form(forms, e, [index])) == reverse
    assert forms.named(row, form(forms, call("min", call("max", Arg(1), 0), 2), [index])) not in (plain, reverse)


@pytest.mark.parametrize("seed", range(20))
def test_an_element_that_two_indices_name_alike_is_one_for_all_integers(seed):
    rng, forms = random.Random(seed), Forms()
    args, row, found = inputs(forms, 1, "i") * 2, [forms.key("element", k) for k in range(4)], dict[int, tuple[str, list]]()
    for _ in range(60):
        e = integers(rng, 2)
        if not expr.args_of(e):
            continue
        at = over_integers(e, 300)
        named = np.where((at >= 0) & (at < 4), at, -1).tolist()
        try:
            text, others = found.setdefault(forms.named(row, form(forms, e, args)), (str(e), named))
        except Undecided:
            continue  # an index out of range
        assert all(k in (-1, own) for own, k in zip(named, others)), (str(e), text)


def test_an_element_that_an_index_names_is_one_for_every_way_to_compute_the_index():
    forms = Forms()
    [index] = inputs(forms, 1, "i")
    row = [forms.key("input", f"x{k}") for k in range(4)]
    wrapped = form(forms, select(Arg(1) + 4, Arg(1), call("lt", Arg(1), 0)), [index])
    other = form(forms, call("sub", Arg(1), select(-4, 0, call("gte", -1, Arg(1)))), [index])
    assert wrapped != other
    assert forms.named(row, wrapped) == forms.named(row, other)
    assert forms.named(row, wrapped) != forms.named(row, index)
    assert forms.named(row, wrapped) != forms.named(row[::-1], wrapped)
    assert forms.named(row, forms.number(2)) == row[2]


def test_a_function_of_an_integer_beyond_64_bits_is_not_computed():
    forms = Forms()
    [x] = inputs(forms, 1, "i")
    large = forms.applied("mul", [forms.number(2**40), forms.number(2**40)])
    assert forms.value(forms.applied("abs", [large])) is None
    assert forms.applied("max", [large, x]) != forms.applied("max", [forms.number(2**62), x])


def test_softmax_is_the_same_whatever_is_subtracted_first():
    forms = Forms()
    x, y, m = inputs(forms, 3, "f")

    def part(shift: int) -> int:
        e = [forms.applied("exp", [forms.difference(v, shift)]) for v in (x, y)]
        return forms.applied("divide", [e[0], forms.sum(e)])

    assert part(m) == part(forms.number(0.0)) == part(forms.applied("max", [x, y]))
    assert part(m) != forms.applied("divide", [part(m), forms.number(2.0)])


def masked(t: Terms, mask: list[bool]):
    x = t.input("x", (len(mask),), True)
    return t.elementwise(select(Arg(1), 0.0, Arg(2)), box((len(mask),)), [x, t.array(np.array(mask))], False)


def test_masks_that_are_equal_where_it_matters_are_proved_and_others_are_not():
    t = Terms()
    first, same, other = (masked(t, m) for m in ([True, False, True], [True, False, True], [True, True, True]))
    kept = t.seen(t.input("x", (3,), True), read_map("{ [i] -> [i] : i = 0 or i = 2 }"))
    zero = t.seen(t.number(0.0, (3,)), read_map("{ [i] -> [i] : i = 1 }"))
    assert compare(t, {"y": (first, (3,))}, {"y": (same, (3,))}).verdict == PROVED
    assert compare(t, {"y": ([*kept, *zero], (3,))}, {"y": (first, (3,))}).verdict == PROVED
    assert compare(t, {"y": (first, (3,))}, {"y": (other, (3,))}).verdict != PROVED


def test_a_sum_that_misses_one_of_its_terms_is_another():
    t, n = Terms(), 6
    x = t.input("x", (n,), True)
    whole = t.reduced("add", box(()), read_map(f"{{ [] -> [i] : 0 <= i < {n} }}"), x, every((n,)))
    found = t.number(0.0, ())
    for k in range(n):
        if k == n - 1:
            assert compare(t, {"y": (whole, ())}, {"y": (found, ())}).verdict != PROVED
        found = t.elementwise(Arg(1) + Arg(2), box(()), [found, t.seen(x, read_map(f"{{ [] -> [{k}] }}"))], True)
    assert compare(t, {"y": (whole, ())}, {"y": (found, ())}).verdict == PROVED


def test_a_table_of_pieces_has_at_each_index_the_elements_of_its_own_piece():
    t, whole = Terms(), box((3,))
    x = t.input("x", (2,), True)
    other = t.elementwise(Arg(1) * 2.0, box((2,)), [x], True)
    to_x = read_map("{ [i, k] -> [k] : 0 <= k < 2 and i = 1 }"), read_map("{ [i, k] -> [k] : 0 <= k < 2 and 0 <= i < 3 and i != 1 }")
    index = t.input("at", (3,), False)
    table = [*t.seen(x, to_x[0]), *t.seen(other, to_x[1])]
    named = t.opaque("multi_slice", (), whole, [(table, every((3, 2)), 1), (index, identity(whole), 0)])
    [piece] = named
    found: list[Any] = [t.ground.keys[t.ground.node(piece.tree.node, (i,))] for i in range(3)]
    assert [key[0] for key in found] == ["cases"] * 3
    elements = [{t.ground.keys[case[-1]][0] for case in key[2]} for key in found]
    assert elements == [{"sum"}, {"input"}, {"sum"}]


def test_rows_of_a_table_are_told_apart_from_its_columns():
    """Zeros written to a row, and zeros written to a column: the same table, indices and updates at every element."""
    from xdsl.dialects.builtin import StringAttr, f32, i64

    from populus.dialects.poplar.meaning import plain
    from populus.dialects.poplar.partition import ALL, Domain, Split
    from populus.proof.codelets import Family, Operand

    t = Terms()
    x, at, zeros = t.input("x", (3, 3), True), t.input("at", (1,), False), t.number(0.0, (2, 3))
    two = t.reshaped(t.input("at", (2,), False), (2,), (2,))

    def written(table):
        fields = {
            "table": Operand(table, (3, 3), f32, plain("r", "c")),
            "indices": Operand(two, (2,), i64, (ALL,)),
            "updates": Operand(zeros, (2, 3), f32, (ALL, *plain("c"))),
            "y": Operand([], (3, 3), f32, plain("r", "c")),
        }
        return Family(t, "multi_update", Domain((("r", Split(3)), ("c", Split(3))), ()), {"op": StringAttr("set")}, fields).written()

    turn = read_map("{ [i, j] -> [j, i] : 0 <= i < 3 and 0 <= j < 3 }")
    rows, columns = written(x), t.seen(written(t.seen(x, turn)), turn)
    assert at
    assert compare(t, {"y": (rows, (3, 3))}, {"y": (columns, (3, 3))}).verdict != PROVED
    assert compare(t, {"y": (rows, (3, 3))}, {"y": (written(x), (3, 3))}).verdict == PROVED


def test_numbers_of_an_index_that_is_drawn_refute():
    t = Terms()
    index, x = t.input("i", (), False), t.input("x", (2,), True)
    values = Values(t)
    values.begin(0)
    assert float(values.tree(x[0].tree, (0,))) != float(values.tree(x[0].tree, (1,)))
    named = t.opaque("multi_slice", (), box(()), [(x, read_map("{ [k] -> [k] : 0 <= k < 2 }"), 1), (index, identity(box(())), 0)])
    other = t.elementwise(Arg(1) * 2.0, box(()), [named], True)
    assert compare(t, {"y": (named, ())}, {"y": (other, ())}).verdict not in (PROVED, UNDECIDED)
    here = t.elementwise(equal(Arg(1), 0), box(()), [index], False)
    first, second = (t.seen(x, read_map(f"{{ [] -> [{k}] }}")) for k in (0, 1))
    assert compare(t, {"y": (named, ())}, {"y": (t.elementwise(select(Arg(1), Arg(2), Arg(3)), box(()), [first, second, here], True), ())})
