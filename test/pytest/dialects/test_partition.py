"""Splits, grids and domains against their definitions; the race rule against brute force."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from populus.dialects.poplar.partition import (
    ALL,
    Access,
    Box,
    Domain,
    Grid,
    Split,
    along,
    at,
    bounds_problem,
    injective,
    linear,
    race,
)


def test_a_split_is_contiguous_in_grains_and_even():
    for n, parts, grain in itertools.product(range(1, 40), range(1, 12), range(1, 6)):
        split = Split(n, parts, grain)
        if parts > -(-n // grain):
            assert split.problem() is not None
            continue
        assert split.problem() is None
        bounds = split.bounds()
        sizes = np.diff(bounds)
        assert (bounds[0], bounds[-1], len(sizes)) == (0, n, parts)
        assert (sizes > 0).all()
        assert max(sizes) == split.largest
        assert all(b % grain == 0 for b in bounds[:-1])
        grains = -(-sizes // grain)
        assert max(grains) - min(grains) <= 1
        assert len(set(sizes.tolist())) <= 3


def test_splits_say_what_is_wrong_with_them():
    assert Split(8, 3, 4).problem() == "8 elements by 4 have 2 grains, too few for 3 parts"
    assert Split(8, 1, 0).problem() == "8 by 0 is not a number of elements by a positive grain"
    assert Split(0).problem() is None
    assert Split(0).bounds() == (0, 0)


@pytest.mark.parametrize(
    ("split", "text"), [(Split(64), "64"), (Split(64, 8, 8), "64 in 8 by 8"), (Split(64, 8), "64 in 8"), (Split(7, 1, 2), "7 by 2")]
)
def test_splits_print_what_is_not_one(split: Split, text: str):
    assert str(split) == text


def test_vertices_of_a_domain_run_on_tiles_of_their_own():
    rng = random.Random(1)
    for _ in range(300):
        domain = a_domain(rng)
        tiles = domain.vertices + rng.randint(0, 5)
        used = [domain.tile(box, tiles) for box in domain.boxes()]
        assert len(set(used)) == len(used) == domain.vertices
        assert used[0] == domain.start % tiles


def test_the_boxes_of_a_domain_are_its_elements_once():
    rng = random.Random(2)
    for _ in range(200):
        domain = a_domain(rng)
        seen = np.zeros([s.n for _, s in domain.axes], np.int64)
        for box in domain.boxes():
            seen[tuple(slice(*box[a][:2]) for a, _ in domain.axes)] += 1
        assert (seen == 1).all()


def test_collapsing_cuts_only_contracted_axes():
    domain = Domain((("m", Split(30, 4)), ("k", Split(20, 3))), ("k", "m"))
    assert str(domain.collapse(frozenset({"k"}))) == "(m = 30, k = 20 in 3) on (k, m)"


def test_an_interval_clips_and_counts_what_overhangs():
    box: Box = {"o": (0, 3, 0), "k": (0, 3, 0)}
    assert along(("o", 2), "k", offset=-1).interval(5, box) == (0, 5, 1, 1)
    assert at("o").interval(4, {"o": (6, 8, 3)}) == (3, 4, 0, 0)
    assert ALL.interval(9, box) == (0, 9, 0, 0)
    assert Access((), 2).interval(9, box) == (2, 3, 0, 0)
    assert along("o", offset=-9).interval(5, box) == (0, 0, 9, 0)


def test_bounds_are_of_the_whole_space():
    domain = Domain((("i", Split(8)), ("k", Split(3))), ())
    assert bounds_problem(domain, (along("i", "k"),), (10,)) is None
    assert bounds_problem(domain, (along("i", "k"),), (9,)) == "[i + k] reaches 0..10 of 0..9"
    assert bounds_problem(domain, (along("i", offset=-1),), (8,)) == "[i - 1] reaches -1..7 of 0..8"


def a_domain(rng: random.Random) -> Domain:
    axes: dict[str, Split] = {}
    for i in range(rng.randint(1, 3)):
        n, grain = rng.randint(1, 9), rng.choice([1, 1, 2, 3])
        axes[f"a{i}"] = Split(n, rng.randint(1, min(4, -(-n // grain))), grain)
    order = tuple(rng.sample(list(axes), len(axes)))
    return Domain(tuple(axes.items()), order, rng.randint(0, 3))


def an_output(rng: random.Random, domain: Domain) -> list[tuple[Access, int]]:
    """Accesses to an output within its bounds, with the sizes of its dimensions."""
    dims: list[tuple[Access, int]] = []
    for _ in range(rng.randint(1, 3)):
        axes = dict(domain.axes)
        axis = rng.choice(list(axes))
        kind = rng.random()
        if kind < 0.1:
            dims.append((ALL, rng.randint(1, 5)))
        elif kind < 0.25:
            dims.append((at(axis), axes[axis].parts + rng.choice([0, 2])))
        else:
            chosen = rng.sample(list(axes), min(len(axes), rng.choice([1, 1, 2])))
            access = Access(tuple((a, rng.choice([1, 1, 2, 3, axes[chosen[0]].n])) for a in chosen), rng.choice([0, 0, 1]))
            dims.append((access, access.reach(domain)[1] + rng.choice([0, 2])))
    return dims


def elements(access: Access, size: int, box: Box) -> np.ndarray:
    """The indices of one dimension that a box touches, point by point."""
    if access.whole or access.part:
        return np.arange(*access.interval(size, box)[:2])
    index = np.array([access.offset])
    for axis, coefficient in access.terms:
        index = (index[:, None] + coefficient * np.arange(*box[axis][:2])).ravel()
    return np.unique(index)


@pytest.mark.parametrize("seed", range(3))
def test_no_race_is_accepted_and_single_axes_are_decided_exactly(seed: int):
    rng = random.Random(seed)
    exact = 0
    for _ in range(700):
        domain = a_domain(rng)
        dims = an_output(rng, domain)
        writers = np.zeros([n for _, n in dims], np.int64)
        for box in domain.boxes():
            writers[np.ix_(*(elements(a, n, box) for a, n in dims))] += 1
        races = bool((writers > 1).any())
        why = race(domain, tuple(a for a, _ in dims))
        assert why is not None or not races, (str(domain), [str(a) for a, _ in dims])
        if all(len(a.terms) <= 1 and not any(c == 0 for _, c in a.terms) for a, _ in dims):
            assert (why is not None) == races, (str(domain), [str(a) for a, _ in dims])
            exact += 1
    assert exact > 200


def test_injective_coefficients_give_each_point_its_own_place():
    rng = random.Random(3)
    for _ in range(500):
        domain = a_domain(rng)
        terms = tuple((a, rng.choice([1, 2, 3, 4, 9, 12])) for a, _ in domain.axes)
        access = Access(terms)
        places = [sum(c * i for (_, c), i in zip(terms, point)) for point in itertools.product(*(range(domain[a].n) for a, _ in terms))]
        assert not injective(access, domain) or len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("shape", "tiles", "grain"),
    [((64, 56, 56), 1472, 2), ((1000,), 64, 4), ((7,), 16, 2), ((3, 5, 7), 4, 1), ((), 8, 2), ((1, 512), 16, 2)],
)
def test_a_linear_grid_is_a_layout_in_grains(shape: tuple[int, ...], tiles: int, grain: int):
    grid = linear(shape, tiles, grain)
    assert grid.problem(shape, tiles) is None
    assert all(split.grain == grain for split in grid.splits[-1:])


def test_a_linear_grid_uses_most_of_the_tiles():
    assert linear((64, 56, 56), 1472, 2).cells > 0.8 * 1472
    assert linear((1000,), 64, 4).cells == 63  # 250 grains, 4 to a tile


def test_grids_say_what_is_wrong_with_them():
    assert Grid((Split(4),), ()).problem((8,)) == "the grid is for [4], the variable is [8]"
    assert Grid((Split(8, 2),), ()).problem((8,)) == "order [] does not name each cut dimension of ['8 in 2'] once"
    assert Grid((Split(8, 2),), (0, 0)).problem((8,)) == "order [0, 0] does not name each cut dimension of ['8 in 2'] once"
    assert Grid((Split(8, 8),), (0,)).problem((8,), 4) == "8 cells on 4 tiles"
    assert Grid((Split(8, 9),), (0,)).problem((8,)) == "8 elements by 1 have 8 grains, too few for 9 parts"
