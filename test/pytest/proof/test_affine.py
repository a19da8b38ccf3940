"""The closed forms of views and accesses against integer sets, on drawn ones: each "yes" of theirs is provable."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from populus.dialects.poplar import affine, arrays
from populus.dialects.poplar.overlap import disjoint, image
from populus.dialects.poplar.partition import Access, Domain, Split, at, bounds_problem, race
from populus.dialects.poplar.points import images
from populus.dialects.poplar.view import View


def drawn_split(rng: random.Random, n: int) -> Split:
    grain = rng.choice([1, 1, 2, 3])
    return Split(n, rng.randint(1, max(1, -(-n // grain))), grain)


def drawn_domain(rng: random.Random) -> Domain:
    axes = tuple((a, drawn_split(rng, rng.randint(1, 7))) for a in "abc"[: rng.randint(1, 3)])
    order = [a for a, s in axes if s.parts > 1]
    rng.shuffle(order)
    return Domain(axes, tuple(order), rng.randrange(5))


def drawn_access(rng: random.Random, domain: Domain, size: int) -> Access:
    kind = rng.random()
    if kind < 0.15:
        return Access(whole=True)
    if kind < 0.3:
        return at(rng.choice(domain.axes)[0])
    terms = rng.sample(domain.axes, rng.randint(0, min(2, len(domain.axes))))
    return Access(tuple((a, rng.choice([1, 1, 1, 2, 3])) for a, _ in terms), rng.choice([0, 0, 1, -1]))


def drawn_text(rng: random.Random) -> tuple[str, bool]:
    """A text as the prover writes them, and whether it is of a map: bounds, sums, parts of splits, inner variables, two cases."""
    i, j = affine.names("i", rng.randint(1, 4)), affine.names("j", rng.randint(1, 3))
    conditions = [f"{rng.choice([0, 0, -2, 1])} <= {v} < {rng.randint(0, 9)}" for v in rng.sample([*i, *j], rng.randint(0, len(i)))]
    conditions += [f"{rng.choice(j)} = {rng.randint(1, 3)}*{rng.choice(i)} + {rng.randint(-1, 1)}" for _ in range(rng.randint(0, 2))]
    if rng.random() < 0.4:
        conditions.append(f"({affine.part_of(drawn_split(rng, rng.randint(1, 9)), rng.choice(i), rng.choice(j))})")
    if rng.random() < 0.3:
        conditions.append(f"0 <= {rng.choice(i)} + {rng.choice(j)} - 1 < {rng.randint(1, 9)}")
    rng.shuffle(conditions)
    body = " and ".join(conditions) or "true"
    if rng.random() < 0.2:
        body += f" or 0 <= {rng.choice(i)} < {rng.randint(1, 9)}"
    elif rng.random() < 0.3:
        body = f"exists x, y : 0 <= x < {rng.randint(1, 9)} and {i[0]} = 2*x and {body}"
    of_map = rng.random() < 0.7
    head = f"[{', '.join(i)}] -> [{', '.join(j)}]" if of_map else f"[{', '.join([*i, *j])}]"
    if rng.random() < 0.1:
        body += f"; {head} : 0 <= {i[0]} < 2 and 0 <= {j[0]} < 3"
    return f"{{ {head} : {body} }}", of_map


@pytest.mark.parametrize("seed", range(300))
def test_a_text_is_read_as_isl_reads_it(seed):
    text, of_map = drawn_text(random.Random(seed))
    kind, read = (affine.Map, affine.read_map) if of_map else (affine.Set, affine.read_set)
    assert read(text).is_equal(kind.read_from_str(affine.isl.DEFAULT_CONTEXT, text)), text


def drawn_view(rng: random.Random) -> tuple[View, affine.Map]:
    """A view of a variable and the map of its indices to the variable's, made op by op, by each of the two."""
    view = View.whole(tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 3))))
    to = affine.identity(affine.box(view.base))
    for _ in range(rng.randint(0, 4)):
        old = view.shape
        match rng.choice(["slice", "shuffle", "reshape", "stretch"]):
            case "slice":
                begins = [rng.randrange(n) for n in old]
                steps = [rng.choice([1, 1, 2, -1]) for _ in old]
                ends = [-1 if s < 0 else rng.randint(b + 1, n) for b, n, s in zip(begins, old, steps)]
                view = view.slice(begins, ends, steps)
                own = affine.slice_map(view.shape, begins, steps)
            case "shuffle":
                permutation = rng.sample(range(len(old)), len(old))
                view = view.dim_shuffle(permutation)
                own = affine.shuffle_map(view.shape, permutation)
            case "reshape":
                elements = math.prod(old)
                first = rng.choice([n for n in range(1, elements + 1) if elements % n == 0])
                if (seen := view.reshape((first, elements // first))) is None:
                    continue
                view = seen
                own = affine.reshape_map(view.shape, old)
            case _:
                shape = (2, *(rng.choice([n, 3]) if n == 1 else n for n in old))
                view = view.broadcast(shape)
                own = affine.broadcast_map(shape, old)
        to = own.apply_range(to)
    return view, to


@pytest.mark.parametrize("seed", range(150))
def test_a_view_shows_what_its_maps_say(seed):
    view, to = drawn_view(random.Random(seed))
    for index in itertools.islice(itertools.product(*map(range, view.shape)), 200):
        place = view.offset + sum(i * s for i, s in zip(index, view.strides))
        [found] = images(to, index, 1)
        expected = []
        for n in reversed(view.base):
            place, digit = divmod(place, n)
            expected.append(digit)
        assert found == tuple(reversed(expected)), (seed, index)


@pytest.mark.parametrize("seed", range(150))
def test_an_access_through_a_view_is_the_composed_map(seed):
    rng = random.Random(seed)
    view, to = drawn_view(rng)
    domain = drawn_domain(rng)
    access = tuple(drawn_access(rng, domain, n) for n in view.shape)
    if bounds_problem(domain, access, view.shape) is not None or (through := view.through(access)) is None:
        return
    direct = affine.vertex_map(domain, access, view.shape).apply_range(to)
    assert affine.vertex_map(domain, through, view.base).is_equal(direct), (domain, access, view)


@pytest.mark.parametrize("seed", range(300))
def test_accesses_that_do_not_race_are_injective(seed):
    rng = random.Random(seed)
    domain = drawn_domain(rng)
    access = tuple(drawn_access(rng, domain, 6) for _ in range(rng.randint(1, 3)))
    shape = tuple(max(1, 1 if a.whole else a.reach(domain)[1]) for a in access)
    if bounds_problem(domain, access, shape) is None and race(domain, access) is None:
        assert affine.vertex_map(domain, access, shape).is_injective(), (domain, access)


@pytest.mark.parametrize("seed", range(200))
def test_disjoint_views_share_no_element(seed):
    rng = random.Random(seed)
    (a, to_a), (b, to_b) = drawn_view(rng), drawn_view(rng)
    if a.base == b.base and disjoint(a, b):
        assert to_a.range().is_disjoint(to_b.range()), (a, b)
    first, second = (View.whole((6, 5)).slice([rng.randrange(3), 0], [6, 5], [rng.choice([1, 2]), 1]) for _ in range(2))
    maps = [affine.slice_map(v.shape, [v.offset // 5, 0], [v.strides[0] // 5 if v.shape[0] > 1 else 1, 1]) for v in (first, second)]
    if disjoint(first, second):
        assert maps[0].range().is_disjoint(maps[1].range()), (first, second)


@pytest.mark.parametrize("seed", range(200))
def test_equal_images_are_equal_elements_on_every_tile(seed):
    rng = random.Random(seed)
    view = View.whole((rng.randint(1, 6), rng.randint(1, 6)))
    domains = [Domain((("a", drawn_split(rng, view.base[0])), ("b", drawn_split(rng, view.base[1]))), ("b", "a")) for _ in range(2)]
    if rng.random() < 0.5:
        domains[1] = domains[0]
    domains = [Domain(d.axes, tuple(x for x in d.order if d[x].parts > 1)) for d in domains]
    access = (Access((("a", 1),)), Access((("b", 1),)))
    images = [image(d, access, view) for d in domains]
    if images[0] is not None and images[0] == images[1]:
        on_tiles = [affine.tile_map(d, 64).reverse().apply_range(affine.vertex_map(d, access, view.base)) for d in domains]
        assert on_tiles[0].is_equal(on_tiles[1]), domains


@pytest.mark.parametrize("split", [Split(7), Split(7, 3), Split(8, 3, 2), Split(9, 2, 4), Split(1), Split(64, 8, 8)])
def test_a_split_has_the_bounds_of_its_formula(split):
    parts = affine.read_map(f"{{ [p] -> [a] : {affine.part_of(split, 'a', 'p')} }}")
    bounds = split.bounds()
    for p in range(split.parts):
        assert images(parts, (p,), 100) == [(a,) for a in range(bounds[p], bounds[p + 1])]
    assert affine.count(parts.domain()) == split.parts


def test_an_exception_while_a_map_is_computed_stays_what_it_is(monkeypatch):
    class TooLong(Exception):
        pass

    def stop(*_):
        raise TooLong

    monkeypatch.setattr(arrays, "_value", stop)
    with pytest.raises(TooLong):
        arrays.values(affine.read_map("{ [i] -> [2*i] : 0 <= i < 9 }"), [np.arange(9)])


@pytest.mark.parametrize(
    ("text", "shape", "step"),
    [
        ("{ [i] -> [i] : 0 <= i < 24 }", (24,), (1,)),
        ("{ [i] -> [floor(i/4)] : 0 <= i < 24 }", (6, 4), (1, 0)),
        ("{ [i] -> [i mod 4] : 0 <= i < 24 }", (6, 4), (0, 1)),
        ("{ [i] -> [23 - i] : 0 <= i < 24 }", (24,), (-1,)),
        ("{ [i] -> [6*(i mod 4) + floor(i/4)] : 0 <= i < 24 }", (6, 4), (1, 6)),
        ("{ [i] -> [2*floor(i/12) + floor(i/2) mod 2] : 0 <= i < 24 }", (2, 3, 2, 2), (2, 0, 1, 0)),
    ],
)
def test_the_strides_of_a_map_show_what_it_names(text, shape, step):
    at = affine.read_map(text)
    found = arrays.strides(at, 24)
    assert found is not None and (found.shape, found.strides) == (shape, step)
    flat = np.arange(24) * 7
    assert np.array_equal(found.of(flat).reshape(-1), flat[arrays.values(at, [np.arange(24)])])


@pytest.mark.parametrize("body", ["[i] : 0 <= i < 23", "[floor(i/5)] : 0 <= i < 24", "[j] : 0 <= i < 24 and i <= j <= i + 1"])
def test_a_map_without_strides_has_none(body):
    assert arrays.strides(affine.read_map(f"{{ [i] -> {body} }}"), 24) is None


def test_a_box_has_its_bounds_wherever_it_begins():
    assert affine.bounds_of_box(affine.read_set("{ [i, j] : 3 <= i < 9 and j = 2 }")) == (range(3, 9), range(2, 3))
    assert affine.shape_of_box(affine.read_set("{ [i] : 3 <= i < 9 }")) is None
    assert affine.bounds_of_box(affine.read_set("{ [i] : 3 <= i < 9 and i mod 2 = 0 }")) is None
    assert affine.bounds_of_box(affine.read_set("{ [i] : 3 <= i }")) is None
