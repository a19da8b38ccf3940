"""Exchange in closed form, against counting element by element."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from populus.dialects.poplar.partition import ALL, Access, Domain, Grid, Split, along, at
from populus.dialects.poplar.view import View
from populus.runtime.exchange import Moved, copy_exchange, field_exchange, images, owned_elements


def a_split(rng: random.Random, n: int, most: int = 4) -> Split:
    grain = rng.choice([1, 1, 1, 2, 3])
    return Split(n, rng.randint(1, max(1, min(most, -(-n // grain)))), grain)


def a_grid(rng: random.Random, shape: tuple[int, ...]) -> Grid:
    splits = tuple(a_split(rng, n, 3) for n in shape)
    return Grid(splits, tuple(rng.sample(range(len(shape)), len(shape))), rng.randint(0, 5))


def a_view(rng: random.Random, base: tuple[int, ...], steps: int) -> tuple[View, np.ndarray]:
    """A chain of views, and NumPy's array of element numbers after the same chain."""
    view, numbers = View.whole(base), np.arange(math.prod(base)).reshape(base)
    for _ in range(steps):
        match rng.choice(["slice", "shuffle", "reshape", "broadcast"]):
            case "slice":
                bounds: list[tuple[int, int, int]] = []
                for n in view.shape:
                    first, step = rng.randint(0, n - 1), rng.choice([1, 1, 2, -1])
                    count = rng.randint(1, n - first if step == 1 else (n - first + 1) // 2 if step == 2 else first + 1)
                    bounds.append((first, first + (count - 1) * step + (1 if step > 0 else -1), step))
                view = view.slice(*zip(*bounds))
                numbers = numbers[tuple(slice(b, e if e >= 0 else None, s) for b, e, s in bounds)]
            case "shuffle":
                order = rng.sample(range(len(view.shape)), len(view.shape))
                view, numbers = view.dim_shuffle(order), numbers.transpose(order)
            case "reshape":
                shape = rng.choice([view.shape, (math.prod(view.shape),), *_splits_of_a_dimension(view.shape)])
                if (seen := view.reshape(shape)) is not None:
                    view, numbers = seen, numbers.reshape(shape)
            case _:
                shape = tuple(rng.choice([n, 3]) if n == 1 else n for n in view.shape)
                view, numbers = view.broadcast(shape), np.broadcast_to(numbers, shape)
    assert view.shape == numbers.shape
    return view, numbers


def _splits_of_a_dimension(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [(*shape[:d], n // k, k, *shape[d + 1 :]) for d, n in enumerate(shape) for k in (2, 3) if n % k == 0 and n > k]


def a_family(rng: random.Random, shape: tuple[int, ...]) -> tuple[Domain, tuple[Access, ...]]:
    """A domain and an access to each dimension of a view; windows may overhang, as padded codelets' do."""
    axes: dict[str, Split] = {}
    accesses: list[Access] = []
    for d, n in enumerate(shape):
        kind = rng.random()
        name = f"a{d}"
        if kind < 0.1:
            accesses.append(ALL)
        elif kind < 0.2:
            axes[name] = Split(rng.randint(n, 2 * n), n)
            accesses.append(at(name))
        elif kind < 0.6 or n < 3:
            axes[name] = a_split(rng, n)
            accesses.append(along(name))
        else:
            stride, kernel, pad = rng.randint(1, 2), rng.randint(1, min(3, n)), rng.randint(0, 3)
            count = (n + 2 * pad - kernel) // stride + 1
            axes[name], axes[f"k{d}"] = a_split(rng, count), a_split(rng, kernel, rng.choice([1, 1, 3]))
            accesses.append(along((name, stride), (f"k{d}", 1), offset=-pad))
    if rng.random() < 0.5:
        axes["elsewhere"] = a_split(rng, rng.randint(1, 6))
    if rng.random() < 0.1 and len(shape) > 1:  # one axis in two dimensions
        d = rng.randrange(len(shape))
        accesses[d] = along(rng.choice(list(axes)) if axes else "elsewhere") if axes else ALL
    order = tuple(rng.sample(list(axes), len(axes)))
    return Domain(tuple(axes.items()), order, rng.randint(0, 5)), tuple(accesses)


def owners(base: tuple[int, ...], grid: Grid, tiles: int) -> np.ndarray:
    """The owner of each element, by number."""
    result = np.zeros(base, np.int64)
    bounds = [s.bounds() for s in grid.splits]
    for index in itertools.product(*map(range, base)):
        number = 0
        for d in grid.order:
            part = max(j for j in range(grid.splits[d].parts) if bounds[d][j] <= index[d])
            number = number * grid.splits[d].parts + part
        result[index] = (grid.start + number) % tiles
    return result.ravel()


def count(needs: list[tuple[int, np.ndarray]], owner: np.ndarray, tiles: int) -> tuple[np.ndarray, np.ndarray]:
    """(away, home) from which tile needs which elements."""
    need = np.zeros((tiles, len(owner)), bool)
    for tile, elements in needs:
        need[tile, elements.ravel()] = True
    far = need & (owner != np.arange(tiles)[:, None])
    return far.sum(1), np.bincount(owner[far.any(0)], minlength=tiles)


def check(moved: Moved, away: np.ndarray, home: np.ndarray, context: object) -> None:
    if moved.exact:
        assert np.array_equal(moved.away, away), (context, moved.away, away)
        assert np.array_equal(moved.home, home), (context, moved.home, home)
    else:
        assert (moved.away >= away).all(), (context, moved.away, away)
        assert (moved.home >= home).all(), (context, moved.home, home)


@pytest.mark.parametrize("seed", range(4))
def test_the_closed_form_of_a_field_is_the_count(seed: int):
    rng = random.Random(seed)
    exact = 0
    for _ in range(400):
        base = tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 3)))
        view, numbers = a_view(rng, base, rng.randint(0, 3))
        domain, accesses = a_family(rng, view.shape)
        grid = a_grid(rng, base)
        tiles = max(grid.cells, domain.vertices) + rng.randint(0, 3)
        needs = [
            (domain.tile(box, tiles), numbers[tuple(slice(*a.interval(n, box)[:2]) for a, n in zip(accesses, view.shape))])
            for box in domain.boxes()
        ]
        moved = field_exchange(domain, accesses, view, grid, tiles)
        check(moved, *count(needs, owners(base, grid, tiles), tiles), (str(domain), list(map(str, accesses)), view, str(grid), tiles))
        exact += moved.exact
    assert exact > 340, exact


def test_elements_of_many_rows_that_windows_share_are_not_one_tiles_alone():
    view, numbers, grid = View.whole((12,)).reshape((3, 4)), np.arange(12).reshape(3, 4), Grid((Split(12, 3),), (0,))
    domain, accesses = Domain((("i", Split(3)), ("p", Split(3, 3)), ("k", Split(2))), ("p",)), (along("i"), along("p", "k"))
    assert view is not None
    moved = field_exchange(domain, accesses, view, grid, 3)
    assert moved.exact
    check(moved, *count([(p, numbers[:, p : p + 2]) for p in range(3)], owners((12,), grid, 3), 3), "windows")


def test_windows_wholly_in_padding_read_nothing_of_a_merged_dimension():
    view, numbers, grid = View.whole((9,)).reshape((3, 3)), np.arange(9).reshape(3, 3), Grid((Split(9, 9),), (0,))
    axes = (("o", Split(3, 3)), ("p", Split(3, 3)), ("k", Split(3, 3)), ("l", Split(3)))
    domain, accesses = Domain(axes, ("o", "p", "k")), (along("o", "k", offset=-1), along("p", "l", offset=-1))
    assert view is not None
    needs = [
        (domain.tile(box, 27), numbers[tuple(slice(*a.interval(n, box)[:2]) for a, n in zip(accesses, view.shape))])
        for box in domain.boxes()
    ]
    assert any(not elements.size for _, elements in needs)
    moved = field_exchange(domain, accesses, view, grid, 27)
    assert moved.exact
    check(moved, *count(needs, owners((9,), grid, 27), 27), "windows")


@pytest.mark.parametrize("seed", range(2))
def test_the_closed_form_of_a_copy_is_the_count(seed: int):
    rng = random.Random(seed)
    for _ in range(300):
        base = tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 3)))
        source, source_numbers = a_view(rng, base, rng.randint(0, 3))
        lower = [rng.randint(0, 2) for _ in source.shape]
        to_base = tuple(n + a + rng.randint(0, 2) for n, a in zip(source.shape, lower))
        whole = np.arange(math.prod(to_base)).reshape(to_base)
        to = View.whole(to_base).slice(lower, [a + n for a, n in zip(lower, source.shape)], [1] * len(lower))
        to_numbers = whole[tuple(slice(a, a + n) for a, n in zip(lower, source.shape))]
        source_grid, to_grid = a_grid(rng, base), a_grid(rng, to_base)
        tiles = max(source_grid.cells, to_grid.cells) + rng.randint(0, 3)
        to_owner = owners(to_base, to_grid, tiles)[to_numbers.ravel()]
        needs = [(t, source_numbers.ravel()[to_owner == t]) for t in range(tiles)]
        moved = copy_exchange(source, source_grid, to, to_grid, tiles)
        assert moved.exact
        check(moved, *count(needs, owners(base, source_grid, tiles), tiles), (source, str(source_grid), to, str(to_grid), tiles))


def test_an_equal_cut_on_equal_tiles_moves_nothing():
    grid = Grid((Split(64, 8, 8), Split(6)), (0,), 3)
    domain = Domain((("c", Split(64, 8, 8)), ("i", Split(6))), ("c",), 3)
    assert field_exchange(domain, (along("c"), along("i")), View.whole((64, 6)), grid, 16).nothing
    elsewhere = Domain(domain.axes, domain.order, 4)
    assert field_exchange(elsewhere, (along("c"), along("i")), View.whole((64, 6)), grid, 16).away.sum() == 64 * 6


def test_an_element_that_all_tiles_read_is_sent_once():
    moved = field_exchange(Domain((("i", Split(8, 8)),), ("i",)), (ALL,), View.whole((4,)), Grid((Split(4),), ()), 8)
    assert moved.sent("in").tolist() == [4] + [0] * 7
    assert moved.received("in").tolist() == [0] + [4] * 7
    assert moved.received("inout").sum() == 4 + 7 * 4


def test_a_halo_moves_and_the_rest_does_not():
    domain = Domain((("o", Split(8, 2)), ("k", Split(3))), ("o",))
    moved = field_exchange(domain, (along("o", "k", offset=-1),), View.whole((8,)), Grid((Split(8, 2),), (0,)), 2)
    assert moved.away.tolist() == [1, 1]


def test_heads_of_a_merged_dimension_are_told_apart():
    """768 features seen as 12 x 64: a vertex with half a head reads no interval of the variable."""
    view = View.whole((4, 768)).reshape((4, 12, 64))
    assert view is not None
    domain = Domain((("m", Split(4)), ("h", Split(12, 3)), ("d", Split(64, 2))), ("h", "d"))
    moved = field_exchange(domain, (along("m"), along("h"), along("d")), view, Grid((Split(4), Split(768, 6)), (1,)), 6)
    assert moved.exact
    assert moved.away.tolist() == [256] * 6


def test_a_merged_view_of_dimensions_that_are_not_cut_is_exact():
    view = View.whole((8, 5, 4)).reshape((8, 20))
    assert view is not None
    domain = Domain((("c", Split(8, 4)), ("p", Split(20))), ("c",))
    moved = field_exchange(domain, (along("c"), along("p")), view, Grid((Split(8, 4), Split(5), Split(4)), (0,)), 4)
    assert moved.exact
    assert moved.nothing


def test_a_merged_view_of_dimensions_that_are_cut_is_exact():
    """4 groups of 28 channels, both cut, worked on as 112 channels."""
    view = View.whole((4, 28)).reshape((112,))
    assert view is not None
    domain, grid = Domain((("c", Split(112, 8)),), ("c",)), Grid((Split(4, 4), Split(28, 2, 14)), (1, 0))
    moved = field_exchange(domain, (along("c"),), view, grid, 8)
    assert moved.exact
    # Vertex v has channels 14 v .. 14 v + 13, half v % 2 of group v // 2; its own tile has half v // 4 of group v % 4.
    assert moved.away.tolist() == [0 if v // 2 == v % 4 and v % 2 == v // 4 else 14 for v in range(8)]


def test_a_scalar_lies_on_one_tile():
    grid = Grid((), (), 5)
    assert owned_elements(grid).tolist() == [1]
    moved = field_exchange(Domain((("i", Split(6, 3)),), ("i",)), (), View.whole(()), grid, 8)
    assert moved.away.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_cells_are_counted_in_the_order_of_their_tiles():
    assert owned_elements(Grid((Split(5, 2), Split(7, 3), Split(2)), (1, 0), 4)).tolist() == [18, 12, 12, 8, 12, 8]


def test_a_long_dimension_is_counted_between_the_places_where_something_begins_or_ends(monkeypatch: pytest.MonkeyPatch):
    """Counts equal those of each index, and 2^40 indices take no memory."""

    def counted(first: np.ndarray, end: np.ndarray, tile: np.ndarray, bounds: np.ndarray) -> list[list[int]]:
        found = images._interval_image(first, end, int(bounds[-1]), tile, bounds[:-1], bounds[1:])
        return [counts.tolist() for counts in (found.size, found.local, found.mine, found.read)]

    rng = np.random.default_rng(0)
    for _ in range(200):
        bounds = np.array([0, *np.sort(rng.integers(0, 20, 3)), 20])
        first, tile = rng.integers(0, 21, 6), rng.integers(0, 4, 6)
        end = np.minimum(first + rng.integers(0, 21, 6), 20)
        each = counted(first, end, tile, bounds)
        with monkeypatch.context() as patch:
            patch.setattr(images, "MEMBERS", 0)
            assert counted(first, end, tile, bounds) == each
        long = counted(first << 36, end << 36, tile, bounds << 36)
        assert long == [[n << 36 for n in counts] for counts in each]


def test_a_long_dimension_that_spans_several_takes_no_memory_for_each_index():
    """A vector of 4 rows, cut in 3 by its readers and each row in 2 by its owners: the counts are those of a short one, times 2^30."""

    def moved(n: int) -> list[list[int]]:
        view = View.whole((4, 6 * n)).reshape((24 * n,))
        assert view is not None
        domain = Domain((("i", Split(24 * n, 3)),), ("i",))
        found = field_exchange(domain, (along("i"),), view, Grid((Split(4), Split(6 * n, 2)), (1,)), 4)
        return [found.away.tolist(), found.home.tolist(), [found.exact]]

    away, home, exact = moved(1)
    assert any(away) and any(home) and exact == [True]
    assert moved(1 << 30) == [[n << 30 for n in away], [n << 30 for n in home], exact]
