"""Views against NumPy's slicing, reshaping and transposing; accesses through views and disjointness against enumeration."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.partition import ALL, Access, along, at
from populus.dialects.poplar.view import View, row_major


def elements(view: View) -> np.ndarray:
    """The elements that a view shows, from its definition."""
    index = np.full(view.shape, view.offset, np.int64)
    for d, (n, stride) in enumerate(zip(view.shape, view.strides)):
        index += stride * np.arange(n).reshape([-1 if e == d else 1 for e in range(len(view.shape))])
    return index


def a_slice(rng: random.Random, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(begin, end, step) of each dimension; a step may be negative, an end then -1."""
    bounds: list[tuple[int, int, int]] = []
    for n in shape:
        step = rng.choice([1, 1, 2, 3, -1, -2])
        begin = rng.randrange(n)
        room = (n - 1 - begin) // step if step > 0 else begin // -step
        bounds.append((begin, begin + rng.randint(0, room) * step + (1 if step > 0 else -1), step))
    return bounds


def a_shape(rng: random.Random, count: int) -> tuple[int, ...]:
    """A shape of so many elements."""
    shape: list[int] = []
    while count > 1 and len(shape) < 4:
        factor = rng.choice([k for k in range(1, count + 1) if count % k == 0])
        shape.append(factor)
        count //= factor
    return (*shape, count) if count > 1 or rng.random() < 0.3 else tuple(shape)


def steps(rng: random.Random, base: tuple[int, ...], count: int, kinds: tuple[str, ...]) -> tuple[View, np.ndarray]:
    """A chain of views, and NumPy's view of the element numbers after the same chain."""
    view, numbers = View.whole(base), np.arange(math.prod(base)).reshape(base)
    for _ in range(count):
        match rng.choice(kinds):
            case "slice":
                bounds = a_slice(rng, view.shape)
                view = view.slice(*zip(*bounds)) if bounds else view
                numbers = numbers[tuple(slice(b, None if e < 0 else e, s) for b, e, s in bounds)]
            case "shuffle":
                order = rng.sample(range(len(view.shape)), len(view.shape))
                view, numbers = view.dim_shuffle(order), numbers.transpose(order)
            case "broadcast":
                shape = (*([2] * rng.randint(0, 1)), *(rng.choice([n, 3]) if n == 1 else n for n in view.shape))
                view, numbers = view.broadcast(shape), np.broadcast_to(numbers, shape)
            case _:
                shape = a_shape(rng, math.prod(view.shape))
                seen = view.reshape(shape)
                try:
                    by_numpy = numbers.reshape(shape, copy=False)
                except ValueError:
                    by_numpy = None
                if by_numpy is None:
                    assert seen is None, (view, shape)
                elif seen is None:
                    # NumPy may see through strides of broadcast dimensions where we ask for a copy; never the other way round.
                    assert view.repeats, (view, shape)
                else:
                    view, numbers = seen, by_numpy
    return view, numbers


@pytest.mark.parametrize("seed", range(4))
def test_views_compose_as_in_numpy(seed: int):
    rng = random.Random(seed)
    for _ in range(500):
        base = tuple(rng.randint(1, 6) for _ in range(rng.randint(0, 4)))
        view, numbers = steps(rng, base, rng.randint(1, 5), ("slice", "shuffle", "reshape", "reshape", "broadcast"))
        assert view.shape == numbers.shape, (view, numbers.shape)
        assert np.array_equal(elements(view), numbers), view
        assert view.repeats == (len(np.unique(numbers)) < numbers.size)
        if view.is_whole:
            assert np.array_equal(numbers.ravel(), np.arange(math.prod(base)))


def test_nothing_can_be_reshaped_to_nothing():
    view = View.whole((0, 3)).reshape((3, 0, 2))
    assert view is not None
    assert view.shape == (3, 0, 2)


def test_a_reshape_that_strides_cannot_say_is_refused():
    assert View.whole((4, 8)).dim_shuffle((1, 0)).reshape((32,)) is None
    assert View.whole((4, 8)).slice((0, 0), (4, 7), (1, 1)).reshape((28,)) is None
    merged = View.whole((4, 8)).reshape((2, 16))
    assert merged is not None
    assert merged.strides == (16, 1)


def test_strides_are_row_major():
    assert row_major((2, 3, 4)) == (12, 4, 1)
    assert row_major(()) == ()


@pytest.mark.parametrize("seed", range(4))
def test_an_access_through_a_view_touches_the_same_elements(seed: int):
    """Point by point: the element that the view shows at the access, and the one that the variable has at the composed access."""
    rng = random.Random(seed)
    composed = 0
    for _ in range(600):
        base = tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 3)))
        view, numbers = steps(rng, base, rng.randint(0, 4), ("slice", "shuffle", "reshape", "broadcast"))
        axes = {f"i{d}": rng.randint(1, n) for d, n in enumerate(view.shape)}
        accesses: list[Access] = []
        for d, n in enumerate(view.shape):
            offset = rng.randint(0, n - axes[f"i{d}"])
            accesses.append(Access((), rng.randrange(n)) if rng.random() < 0.15 else along(f"i{d}", offset=offset))
        through = view.through(accesses)
        if through is None:
            continue
        composed += 1
        assert len(through) == len(base)
        whole = np.arange(math.prod(base)).reshape(base)
        for _ in range(8):
            point = {a: rng.randrange(n) for a, n in axes.items()}
            seen = tuple(a.offset + sum(c * point[t] for t, c in a.terms) for a in accesses)
            there = tuple(a.offset + sum(c * point[t] for t, c in a.terms) for a in through)
            assert all(0 <= i < n for i, n in zip(there, base)), (view, list(map(str, accesses)), list(map(str, through)))
            assert whole[there] == numbers[seen], (view, list(map(str, accesses)), list(map(str, through)))
    assert composed > 300


def test_parts_and_whole_dimensions_go_through_where_nothing_is_cut_off():
    view = View.whole((3, 8, 5)).dim_shuffle((2, 0, 1))
    assert view.through((along("i"), at("k"), ALL)) == (at("k"), ALL, along("i"))
    sliced = View.whole((3, 8)).slice((0, 2), (3, 6), (1, 1))
    assert sliced.through((along("i"), ALL)) is None
    assert sliced.through((at("k"), along("j"))) == (at("k"), along("j", offset=2))


def test_features_seen_as_heads_stay_symbolic():
    view = View.whole((4, 768)).reshape((4, 12, 64))
    assert view is not None
    access = view.through((along("m"), along("h"), along("d")))
    assert access is not None
    assert [str(a) for a in access] == ["m", "h * 64 + d"]


def test_an_axis_over_two_dimensions_has_no_form():
    view = View.whole((4, 8)).reshape((32,))
    assert view is not None
    assert view.through((along("i"),)) is None


@pytest.mark.parametrize("seed", range(4))
def test_views_called_disjoint_share_nothing(seed: int):
    rng = random.Random(seed)
    apart = found = 0
    for _ in range(800):
        base = tuple(rng.randint(1, 8) for _ in range(rng.randint(1, 3)))
        a, b = (steps(rng, base, rng.randint(1, 3), ("slice", "slice", "shuffle", "reshape"))[0] for _ in range(2))
        share = np.intersect1d(elements(a), elements(b)).size > 0
        assert not (disjoint(a, b) and share), (a, b)
        apart += not share
        found += disjoint(a, b)
    assert found > 0.8 * apart, (found, apart)


def test_slices_of_a_concatenation_are_disjoint():
    whole = View.whole((2, 10, 3))
    parts = [whole.slice((0, a, 0), (2, b, 3), (1, 1, 1)) for a, b in [(0, 4), (4, 7), (7, 10)]]
    assert all(disjoint(a, b) for i, a in enumerate(parts) for b in parts[:i])
    assert not disjoint(parts[0], whole)


def test_even_and_odd_elements_are_disjoint():
    whole = View.whole((10,))
    assert disjoint(whole.slice((0,), (10,), (2,)), whole.slice((1,), (10,), (2,)))
    assert not disjoint(whole.slice((0,), (10,), (2,)), whole.slice((2,), (10,), (2,)))


def test_two_dimensions_that_together_pass_a_row_have_no_form():
    """Elements 0..3 and 4..7 of rows of 6: neither dimension leaves a row, their sum does."""
    view = View((2, 2, 6), 0, (2, 4), (4, 1))
    assert view.through((along("a"), along("b"))) is None
    assert View((2, 2, 6), 0, (2, 3), (3, 1)).through((along("a"), along("b"))) == (Access(), Access(), along(("a", 3), "b"))
