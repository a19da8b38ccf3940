"""Laws: a tree in its one form has the numbers of the formula, and constants are equal, or multiples, only where they are."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from xdsl.dialects.builtin import f32, i1, i8, i32, i64

from populus.dialects import expr
from populus.dialects.poplar.affine import box, identity, read_map, read_set
from populus.proof.equivalence import Values, compare
from populus.proof.multiples import rows_of
from populus.proof.report import PROVED, REFUTED, UNDECIDED
from populus.proof.terms import Terms
from populus.proof.trees import Leaf, Piece
from populus.runtime.expr import evaluate

_1, _2 = expr.Arg(1), expr.Arg(2)
UNARY = ("neg", "square", "inv", "sqrt", "rsqrt", "log1p", "expm1", "exp", "abs", "tanh")
BINARY = ("add", "add", "sub", "mul", "mul", "divide", "max", "min")


def drawn(rng: random.Random, depth: int) -> expr.Expr:
    if depth == 0 or rng.random() < 0.1:
        return expr.Arg(rng.randint(1, 3)) if rng.random() < 0.7 else expr.lift(rng.choice([0.5, -2.0, 3.0, 1.0, 0.0, 1.25]))
    kind = rng.random()
    if kind < 0.25:
        return expr.call(rng.choice(UNARY), drawn(rng, depth - 1))
    if kind < 0.35:
        return expr.call("pow", drawn(rng, depth - 1), rng.choice([-2.0, -0.5, 0.5, 0.75, 1.0, 2.0, 3.0, 0.25]))
    return expr.call(rng.choice(BINARY), drawn(rng, depth - 1), drawn(rng, depth - 1))


@pytest.mark.parametrize("seed", range(300))
def test_a_formula_in_its_one_form_has_the_same_number(seed):
    rng, t = random.Random(seed), Terms()
    e = drawn(rng, rng.randint(2, 5))
    inputs = [t.input(name, (), True) for name in "abc"]
    [piece] = t.elementwise(e, box(()), inputs, True)
    values = Values(t)
    for turn in range(3):
        values.begin(turn)
        numbers = [np.float64(values.tree(x.tree, ())) for [x] in inputs]
        want, have = float(evaluate(e, [np.asarray(n) for n in numbers])[()]), float(values.tree(piece.tree, ()))
        if math.isfinite(want) and abs(want) < 1e9:
            assert math.isclose(want, have, rel_tol=1e-5, abs_tol=1e-5), (e, numbers, piece.tree)


@pytest.mark.parametrize("seed", range(60))
def test_a_formula_of_integers_in_its_one_form_has_the_same_number(seed):
    rng, t = random.Random(seed), Terms()

    def integers(depth: int) -> expr.Expr:
        if depth == 0:
            return expr.Arg(rng.randint(1, 2)) if rng.random() < 0.6 else expr.lift(rng.randint(-3, 3))
        return expr.call(rng.choice(["add", "sub", "mul", "max"]), integers(depth - 1), integers(depth - 1))

    e = integers(3)
    inputs = [t.input(name, (), False) for name in "ab"]
    [piece] = t.elementwise(e, box(()), inputs, False)
    values = Values(t)
    for turn in range(3):
        values.begin(turn)
        numbers = [np.int64(values.tree(x.tree, ())) for [x] in inputs]
        assert int(evaluate(e, [np.asarray(n) for n in numbers])[()]) == int(values.tree(piece.tree, ())), (e, piece.tree)


@pytest.mark.parametrize("large", [1e4, 1e9, 3.4e38])
def test_a_term_beside_a_large_one_is_not_lost(large):
    """A mask adds some -1e9 to scores: their own coefficient is small beside it."""
    t = Terms()
    scores, mask = t.input("s", (4,), True), t.input("m", (4,), True)

    def masked(of: expr.Expr):
        return t.elementwise(of + (1.0 - _2) * -large, box((4,)), [scores, mask], True)

    assert compare(t, {"y": (masked(_1), (4,))}, {"y": (masked(_1), (4,))}).verdict == PROVED
    assert compare(t, {"y": (masked(_1), (4,))}, {"y": (masked(_1 * 2.0), (4,))}).verdict != PROVED


@pytest.mark.parametrize(
    ("formula", "other"),
    [
        (_1, expr.cast(expr.cast(_1, i32), i64)),
        (_1 * _2, expr.cast(expr.cast(_1, i32) * expr.cast(_2, i32), i64)),
        (expr.cast(_1, i64) + expr.cast(_2, i64), expr.cast(_1 + _2, i64)),
        (expr.call("max", expr.cast(_1, i64) * expr.cast(_2, i64), 0), expr.cast(expr.call("max", _1 * _2, 0), i64)),
    ],
)
def test_integers_of_fewer_bits_are_others(formula, other):
    """Products and sums wrap around, and a conversion to fewer bits takes the lowest: no law takes them for numbers without an end."""
    t = Terms()
    inputs = [t.input(name, (4,), False) for name in "ab"]
    want, have = (t.elementwise(e, box((4,)), inputs, False) for e in (formula, other))
    assert compare(t, {"y": (want, (4,))}, {"y": (have, (4,))}).verdict != PROVED


@pytest.mark.parametrize("large", [10.0, 1e4, 1e9])
def test_exponentials_that_vanish_are_not_taken_for_others(large):
    t = Terms()
    inputs = [t.input(name, (2,), True) for name in "sr"]

    def share(by: float):
        one, other = (expr.call("exp", of * by - large) for of in (_1, _2))
        return t.elementwise(one / (one + other), box((2,)), inputs, True)

    assert compare(t, {"y": (share(1.0), (2,))}, {"y": (share(2.0), (2,))}).verdict != PROVED


# -- sums of constants --------------------------------------------------------------------------------------------------


def stored(t: Terms, array: np.ndarray):
    return t.array(array)


def product(t: Terms, weights: np.ndarray, name: str = "x"):
    """x [4] times weights [4, n]."""
    n = weights.shape[1]
    points = read_map(f"{{ [j] -> [i, j] : 0 <= i < 4 and 0 <= j < {n} }}")
    x, w = t.input(name, (4,), True), stored(t, weights)
    to_x, to_w = (read_map(f"{{ [i, j] -> {image} : 0 <= i < 4 and 0 <= j < {n} }}") for image in ("[i]", "[i, j]"))
    return t.product(box((n,)), points, x, w, to_x, to_w)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_product_of_multiplied_weights_is_a_multiple():
    t, w = Terms(), weights(4, 3)
    plain, other = product(t, w), product(t, w * np.float32(0.125))
    scaled = t.elementwise(expr.Arg(1) * 0.125, box((3,)), [plain], True)
    assert compare(t, {"y": (scaled, (3,))}, {"y": (other, (3,))}).verdict == PROVED
    assert compare(t, {"y": (plain, (3,))}, {"y": (other, (3,))}).verdict == REFUTED


def test_weights_of_which_one_element_is_no_multiple_make_another_sum():
    t, w = Terms(), weights(4, 3)
    wrong = w * np.float32(0.125)
    wrong[2, 1] *= np.float32(1.01)
    plain, other = product(t, w), product(t, wrong)
    scaled = t.elementwise(expr.Arg(1) * 0.125, box((3,)), [plain], True)
    assert compare(t, {"y": (scaled, (3,))}, {"y": (other, (3,))}).verdict != PROVED


SCALES = np.array([0.5, -3.0, 1e-3, 250.0, 1.25], np.float32)


@pytest.mark.parametrize("order", ["scaled first", "scaled last"])
@pytest.mark.parametrize("columns", [[0, 1, 2, 3, 4], [3, 1, 0, 4, 2]])
def test_a_product_of_scaled_columns_is_the_product_times_their_scales(columns, order):
    t, w = Terms(), weights(4, 5)
    w[:, 1] = 0.0  # whatever the scale, nothing comes of it
    by = stored(t, SCALES)
    other = product(t, w * SCALES) if order == "scaled first" else []
    plain = product(t, w)
    other = other or product(t, w * SCALES)
    scaled = t.elementwise(_1 * _2, box((5,)), [plain, by], True)
    at = read_map("{ " + "; ".join(f"[{k}] -> [{c}]" for k, c in enumerate(columns)) + " }")
    assert compare(t, {"y": (t.seen(scaled, at), (5,))}, {"y": (t.seen(other, at), (5,))}).verdict == PROVED
    assert compare(t, {"y": (plain, (5,))}, {"y": (other, (5,))}).verdict == REFUTED


@pytest.mark.parametrize(("row", "column"), [(0, 0), (3, 2), (2, 4)])
def test_scaled_columns_of_which_one_element_is_wrong_are_another_sum(row, column):
    t, w = Terms(), weights(4, 5)
    wrong = w * SCALES
    wrong[row, column] *= np.float32(1.02)
    plain, other = product(t, w), product(t, wrong)
    scaled = t.elementwise(_1 * _2, box((5,)), [plain, stored(t, SCALES)], True)
    assert compare(t, {"y": (scaled, (5,))}, {"y": (other, (5,))}).verdict != PROVED


def test_a_small_scale_beside_a_large_one_is_compared_by_its_own_size():
    t, w = Terms(), weights(4, 5)
    right = np.array([1.0, 1.0, 1.0, 1e8, 1.0], np.float32)
    wrong = np.array([1.0, 1.0, 1.0, 1e8, 4.0], np.float32)
    w[:, 3] *= np.float32(1e-8)
    plain, other = product(t, w), product(t, w * right)
    for scales, verdict in ((right, PROVED), (wrong, REFUTED)):
        scaled = t.elementwise(_1 * _2, box((5,)), [plain, stored(t, scales)], True)
        assert compare(t, {"y": (scaled, (5,))}, {"y": (other, (5,))}).verdict == verdict


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_row_of_a_sum_that_is_cut_is_no_part_of_it(parts):
    """Of partial sums an element of the weights tells the part too, by which nothing is scaled."""
    t, w = Terms(), weights(6, 5)
    size = 6 // parts
    at = f"0 <= p < {parts} and 0 <= j < 5 and {size} p <= i < {size} p + {size}"
    points = read_map(f"{{ [p, j] -> [p, i, j] : {at} }}")
    to_x, to_w = (read_map(f"{{ [p, i, j] -> {image} : {at} }}") for image in ("[i]", "[i, j]"))
    x = t.input("x", (6,), True)
    plain, other = (t.product(box((parts, 5)), points, x, stored(t, v), to_x, to_w) for v in (w, w * SCALES))
    rows = rows_of(t, t.nodes[plain[0].tree.node])
    assert rows is not None and rows.count == 5
    by = t.seen(stored(t, SCALES), read_map(f"{{ [p, j] -> [j] : 0 <= p < {parts} and 0 <= j < 5 }}"))
    assert t.agree(t.elementwise(_1 * _2, box((parts, 5)), [plain, by], True), other)


def test_scales_of_rows_that_are_summed_over_are_no_factor():
    """Scaling x's elements is no factor of the sum over them."""
    t, w = Terms(), weights(4, 5)
    by = np.array([[2.0], [3.0], [4.0], [5.0]], np.float32)
    plain, other = product(t, w), product(t, w * by)
    assert compare(t, {"y": (plain, (5,))}, {"y": (other, (5,))}).verdict == REFUTED
    assert plain[0].tree.node != other[0].tree.node


@pytest.mark.parametrize("by", [np.float32(2.0), np.float32([2, 3, 4])])
def test_a_product_of_which_one_part_has_no_constant_is_no_multiple(by):
    """2 (x [w, v]) is x [2 w, 2 v], and not x [2 w, v]."""

    def joined(t: Terms, w: np.ndarray):
        rows = "0 <= j < 3 and 0 <= i"
        upper = t.seen(stored(t, w), read_map(f"{{ [i, j] -> [i, j] : {rows} < 4 }}"))
        lower = t.seen(t.input("v", (2, 3), True), read_map(f"{{ [i, j] -> [i - 4, j] : {rows} - 4 < 2 }}"))
        points, to_x = read_map(f"{{ [j] -> [i, j] : {rows} < 6 }}"), read_map(f"{{ [i, j] -> [i] : {rows} < 6 }}")
        return t.product(box((3,)), points, t.input("x", (6,), True), [*upper, *lower], to_x, identity(box((6, 3))))

    t, w = Terms(), weights(4, 3)
    plain, other = joined(t, w), joined(t, w * by)
    scaled = t.elementwise(_1 * _2, box((3,)), [plain, t.number(float(by), (3,)) if by.ndim == 0 else stored(t, by)], True)
    assert compare(t, {"y": (scaled, (3,))}, {"y": (other, (3,))}).verdict == REFUTED


@pytest.mark.parametrize("begin", [0, 1, 2, 3, 4])
def test_a_part_of_joined_products_is_the_product_whose_weights_it_has(begin):
    t, a, b = Terms(), weights(4, 3), weights(4, 5, seed=1)
    first, second = product(t, a), product(t, b)
    joined = product(t, np.concatenate([a, b * np.float32(2)], axis=1))
    left, right = (t.seen(joined, read_map(f"{{ [j] -> [j + {at}] : 0 <= j < {n} }}")) for at, n in ((min(begin, 3), 3), (3, 5)))
    doubled = t.elementwise(expr.Arg(1) * 2.0, box((5,)), [second], True)
    assert compare(t, {"y": (doubled, (5,))}, {"y": (right, (5,))}).verdict == PROVED
    verdict = compare(t, {"y": (first, (3,))}, {"y": (left, (3,))}).verdict
    assert verdict == (PROVED if begin == 0 else REFUTED)


@pytest.mark.parametrize("begin", [0, 3, 6])
def test_a_product_that_has_a_part_of_known_weights_is_that_part(begin):
    t, w = Terms(), weights(4, 9)
    whole, part = product(t, w), product(t, np.ascontiguousarray(w[:, begin : begin + 3]))
    shown = t.seen(whole, read_map(f"{{ [j] -> [j + {begin}] : 0 <= j < 3 }}"))
    other = t.seen(whole, read_map(f"{{ [j] -> [j + {(begin + 3) % 9}] : 0 <= j < 3 }}"))
    assert [p.tree.node for p in part] == [p.tree.node for p in whole]
    assert compare(t, {"y": (shown, (3,))}, {"y": (part, (3,))}).verdict == PROVED
    assert compare(t, {"y": (other, (3,))}, {"y": (part, (3,))}).verdict == REFUTED


def test_a_product_of_which_one_weight_differs_is_no_part():
    t, w = Terms(), weights(4, 9)
    wrong = np.ascontiguousarray(w[:, 3:6])
    wrong[3, 1] *= np.float32(1.001)
    whole, part = product(t, w), product(t, wrong)
    assert [p.tree.node for p in part] != [p.tree.node for p in whole]


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("equal", [2, 3])
def test_a_sum_by_equal_constants_has_each_of_them(rows, equal):
    t, column = Terms(), weights(rows, 1)
    x, once = t.input("x", (rows,), True), stored(t, column)
    many = stored(t, np.concatenate([column] * equal, axis=1))

    def summed(w, n):
        points = read_map(f"{{ [] -> [i, j] : 0 <= i < {rows} and 0 <= j < {n} }}")
        return t.product(box(()), points, x, w, read_map("{ [i, j] -> [i] }"), read_map("{ [i, j] -> [i, j] }"))

    single, whole = summed(once, 1), summed(many, equal)
    by_columns = t.product(
        box((equal,)), read_map(f"{{ [j] -> [i, j] : 0 <= i < {rows} and 0 <= j < {equal} }}"),
        x, many, read_map("{ [i, j] -> [i] }"), read_map("{ [i, j] -> [i, j] }"),
    )  # fmt: skip
    joined = t.reduced("add", box(()), read_map(f"{{ [] -> [j] : 0 <= j < {equal} }}"), by_columns, read_map("{ [j] -> [j] }"))
    for several in (whole, joined):
        assert compare(t, {"y": (single, ())}, {"y": (several, ())}).verdict == REFUTED
        multiple = t.elementwise(expr.Arg(1) * float(equal), box(()), [single], True)
        assert compare(t, {"y": (multiple, ())}, {"y": (several, ())}).verdict != REFUTED
    assert compare(t, {"y": (whole, ())}, {"y": (joined, ())}).verdict == PROVED


def test_products_of_two_constants_are_told_apart_by_their_pairs():
    for order, verdicts in (("k", {PROVED}), ("2 - k", {REFUTED, UNDECIDED})):
        t = Terms()
        a, b = stored(t, np.array([1, 2, 3], np.float32)), stored(t, np.array([5, 7, 11], np.float32))
        points, along, other = (read_map(f"{{ {text} }}") for text in ("[] -> [k] : 0 <= k < 3", "[k] -> [k]", f"[k] -> [{order}]"))
        one, two = (t.product(box(()), points, a, b, along, to_b) for to_b in (along, other))
        assert compare(t, {"y": (one, ())}, {"y": (two, ())}).verdict in verdicts


DIFFERENT = [
    ("float32", [0.0, -math.inf], [5.0, -math.inf]),
    ("float32", [0.0, -math.inf], [0.0, 5.0]),
    ("float32", [0.0, -math.inf], [0.0, math.inf]),
    ("float32", [0.0, math.nan], [0.0, 1.0]),
    ("float32", [0.0, -3.4e38], [5.0, -3.4e38]),  # a mask
    ("float32", [0.0, -1e9], [100.0, -1e9]),
    ("float32", [1e8, 1e-3], [1e8, 5.0]),
    ("float32", [1.0, 2.0], [1.0, 2.0 + 2.0**-20]),
    ("float16", [1.0, 2.0], [1.0, 2.002]),
    ("bfloat16", [1.0, 4.0], [1.0, 4.0625]),
    ("float8_e4m3fn", [1.0, 2.0], [3.0, 2.0]),
    ("float4_e2m1fn", [1.0, 2.0], [3.0, 2.0]),
]


@pytest.mark.parametrize("widened", [False, True])
@pytest.mark.parametrize(("dtype", "one", "other"), DIFFERENT)
def test_constants_of_programs_are_equal_only_where_all_elements_are(dtype, one, other, widened):
    t = Terms()
    x = t.input("x", (2,), True)
    e = expr.cast(_2, f32) + _1 if widened else _1 + _2
    a, b = (t.elementwise(e, box((2,)), [x, stored(t, np.array(v, np.dtype(dtype)))], True) for v in (one, other))
    assert not t.agree(a, b)
    assert t.agree(a, t.elementwise(e, box((2,)), [x, stored(t, np.array(one, np.dtype(dtype)))], True))


def test_a_constant_that_a_law_computes_is_equal_to_the_rounding_of_its_operands():
    """(a + b) c is known to the rounding of a and b, where they cancel; where they do not, to its own."""
    t = Terms()
    a, b, c = np.float32([1e3, 1.0, 1.0]), np.float32([-1e3, 1e-3, 2.0]), np.float32([1.5, 1e-6, 3.0])
    of = t.elementwise((_1 + _2) * expr.Arg(3), box((3,)), [stored(t, v) for v in (a, b, c)], True)
    right = np.asarray((a + b) * c, np.float32)
    for k, off, same in ((0, 1e-4, True), (0, 1e-1, False), (1, 1e-12, True), (1, 1e-9, False), (2, 1e-6, True), (2, 1e-3, False)):
        other = right.copy()
        other[k] += np.float32(off)
        assert t.agree(of, stored(t, other)) == same, (k, off)


@pytest.mark.parametrize("first", [1e-300, -1e-300, 1e-35, 1e35])
def test_a_sum_is_not_divided_by_a_number_that_loses_its_constant(first):
    t = Terms()
    x = t.input("x", (), True)
    constants = [t.number(v, ()) for v in (1e10, 1e12)]
    a, b = (t.elementwise(_1 * first + _2, box(()), [x, c], True) for c in constants)
    assert not t.agree(a, b)
    many = [t.elementwise(_1 * first + _2, box((2,)), [t.seen(x, read_map("{ [i] -> [] }")), stored(t, v)], True) for v in ZEROS_AND_MORE]
    assert not t.agree(*many)


ZEROS_AND_MORE = [np.float32([1e10, 0.0]), np.float32([1e12, 0.0])]


def test_constants_that_are_nearly_one_number_are_it_and_infinities_are_only_themselves():
    t = Terms()
    ones, infinite, mixed, wide = (
        stored(t, np.array(x, np.float32)) for x in ([2, 2, 2], [-np.inf] * 3, [-np.inf, np.inf, -np.inf], [2, 2.001, 2])
    )
    found = [t.plain(x[0].tree) for x in (ones, infinite, mixed, wide)]
    assert [getattr(x, "value", None) for x in found] == [2.0, -math.inf, None, None]
    assert isinstance(found[2], Leaf)


@pytest.mark.parametrize(("dtype", "large"), [(np.int64, 1 << 60), (np.uint64, 1 << 63), (np.int64, -(1 << 53))])
@pytest.mark.parametrize("count", [3, 20_000])
def test_large_integers_that_differ_by_one_are_other_constants(dtype, large, count):
    x = np.arange(count).astype(dtype) + dtype(large)
    wrong = x.copy()
    wrong[-1] += dtype(1)
    for other, verdicts in ((x.copy(), {PROVED}), (wrong, {REFUTED, UNDECIDED})):
        t = Terms()
        assert compare(t, {"y": (stored(t, x), x.shape)}, {"y": (stored(t, other), x.shape)}).verdict in verdicts
        flipped = t.seen(stored(t, np.ascontiguousarray(other[::-1])), read_map(f"{{ [i] -> [{count - 1} - i] : 0 <= i < {count} }}"))
        assert compare(t, {"y": (stored(t, x), x.shape)}, {"y": (flipped, x.shape)}).verdict in verdicts


def test_narrow_floats_are_not_refuted_by_their_rounding():
    for dtype, verdict in ((np.float32, REFUTED), (np.float16, UNDECIDED)):
        t = Terms()
        stored(t, np.ones(4, dtype))
        x = t.input("x", (4,), True)
        other = t.elementwise(expr.Arg(1) * 1.001, box((4,)), [x], True)
        assert compare(t, {"y": (x, (4,))}, {"y": (other, (4,))}).verdict == verdict


@pytest.mark.parametrize(("of", "verdict"), [("x", PROVED), ("y", REFUTED)])
def test_a_softplus_without_overflow_is_the_logarithm_that_it_stands_for(of, verdict):
    t = Terms()
    operands = [t.input(name, (), True) for name in ("x", of)]
    plain = t.elementwise(expr.log(expr.exp(_1) + 1.0) * 3.0, box(()), operands, True)
    safe = t.elementwise((expr.maximum(_1, 0.0) + expr.log1p(expr.exp(-expr.absolute(_2)))) * 3.0, box(()), operands, True)
    assert compare(t, {"y": (plain, ())}, {"y": (safe, ())}).verdict == verdict


@pytest.mark.parametrize("floats", [True, False])
def test_a_number_as_a_boolean_tells_whether_it_is_not_zero(floats):
    t = Terms()
    x = [t.input("x", (), floats)]
    a, b = (t.elementwise(e, box(()), x, floats) for e in (expr.cast(_1, i1), expr.call("not", expr.equal(_1, 0.0 if floats else 0))))
    assert t.agree(a, b)


@pytest.mark.parametrize(("to", "values"), [(i32, [3, -1, 300]), (i8, [3, -1, 44])])
def test_a_constant_of_integers_is_converted_by_its_lowest_bits(to, values):
    t = Terms()
    x = t.array(np.array([3, -1, 300], np.int32))
    a = t.elementwise(expr.cast(expr.cast(_1, to), f32) * 0.5, box((3,)), [x], False)
    assert t.agree(a, t.array(np.array(values, np.float32) * np.float32(0.5)))


def test_a_function_of_a_part_that_is_constant_is_computed_of_it_alone():
    """A concat's map of its first part has an index for the second part too."""
    t = Terms()
    both = [Piece(read_set("{ [i] : 0 <= i < 3 }"), Leaf(t.constant(weights(3)), read_map("{ [i] -> [i] : 0 <= i < 6 }")))]
    both += t.seen(t.input("x", (3,), True), read_map("{ [i] -> [i - 3] : 3 <= i < 6 }"))
    first, _ = t.elementwise(expr.call("sinh", _1), box((6,)), [both], True)
    assert isinstance(first.tree, Leaf)
    assert np.allclose(t.arrays[first.tree.node], np.sinh(weights(3)))
