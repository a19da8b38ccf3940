"""The words of operands: tables of offsets along axes are the addresses of the elements that accesses name."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from populus.dialects.poplar.partition import Access, along, at
from populus.runtime.codelets.task import Array, Piece, Task
from populus.runtime.engine.native.codegen.touched import address_of
from populus.runtime.engine.native.kernels.operands import Convolution, points_of, walk


def element(array: Array, access: tuple[Access, ...], point: Mapping[str, int]) -> int:
    """Gives the address of the element at a point, by the access alone."""
    index = [a.offset + sum(point[axis] * step for axis, step in a.terms) for a in access]
    return address_of(array) + sum(i * s for i, s in zip(index, array.strides, strict=True))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_table_has_the_addresses_of_an_access_whatever_the_layout(order: tuple[int, ...]):
    access = along("m"), along(("o0", 2), ("k0", 3)), Access()
    array = np.zeros([(4, 12, 1)[d] for d in order], np.float32).transpose(np.argsort(order))
    points = {"m": 4, "o0": 3, "k0": 2, "n": 5}
    axes = "k0", "n", "m", "o0"
    table = walk(access, points, array.strides).table(*axes)
    expected = [element(array, access, dict(zip(axes, p))) for p in itertools.product(*(range(points[a]) for a in axes))]
    assert (address_of(array) + table).tolist() == expected


def test_points_taken_together_are_their_first_ones():
    found = walk((along("m"), along("k")), {"m": 3, "k": 6}, (32, 1)).by("k", 4, 8)
    assert found.table("m", "k").tolist() == [0, 4, 32, 36, 64, 68]


def convolution(grouped: bool, windows: list[tuple[int, int, int, int]], n: int) -> Task:
    """Makes the task of a convolution whose windows are (stride, dilation, kernel, before) along sides of n, with channels last."""
    sides = range(len(windows))
    outs = [(n + 2 * before - (kernel - 1) * dilation - 1) // stride + 1 for stride, dilation, kernel, before in windows]
    group, groups = (("g",), (2,)) if grouped else ((), ())
    places = [along((f"o{d}", stride), (f"k{d}", dilation), offset=-before) for d, (stride, dilation, _, before) in enumerate(windows)]
    x = np.moveaxis(np.zeros((2, *[n] * len(windows), *groups, 3), np.float32), [1 + d for d in sides], [d - len(windows) for d in sides])
    lead = tuple(map(along, ("b", *group, "ic")))
    ends = [max(0, (o - 1) * s + (k - 1) * d + 1 - b - n) for o, (s, d, k, b) in zip(outs, windows)]
    pads = (*((0, 0) for _ in lead), *((b, e) for (_, _, _, b), e in zip(windows, ends)))
    w, y = np.zeros((*groups, 5, 3, *(k for _, _, k, _ in windows)), np.float32), np.zeros((1, 2, *groups, 5, *outs), np.float32)
    none = ((0, 0),) * y.ndim
    sizes = {"b": 2, "oc": 5, "ic": 3, **{f"o{d}": o for d, o in enumerate(outs)}, **{f"k{d}": k for d, (_, _, k, _) in enumerate(windows)}}
    fields = {
        "x": Piece(x, (*lead, *places), pads),
        "w": Piece(w, tuple(map(along, (*group, "oc", "ic", *(f"k{d}" for d in sides)))), none),
        "y": Piece(y, (at("ic"), *map(along, ("b", *group, "oc", *(f"o{d}" for d in sides)))), none),
    }
    return Task({}, {axis: (0, n, 0) for axis, n in {**sizes, **dict(zip(group, groups))}.items()}, fields)


FORMS = {
    "line": [(2, 1, 3, 1)],
    "image": [(1, 2, 3, 2), (2, 1, 2, 0)],
    "single elements, and a stride that ends early": [(3, 1, 1, 0), (2, 1, 1, 0)],
    "volume": [(1, 1, 2, 1), (2, 1, 3, 1), (1, 3, 2, 3)],
}


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_convolution_reads_and_stores_the_elements_of_its_accesses(form: str, grouped: bool, sides: int):
    task = convolution(grouped, FORMS[form], n=8)
    c = Convolution.of(task, None, sides)
    assert c is not None
    assert c.x.ndim == c.w.ndim == c.y.ndim == 3 + max(sides, len(FORMS[form]))
    padded = np.zeros((*c.x.shape[:3], *c.padded), np.float32)
    inner = padded[..., *c.inner]
    assert inner.shape == c.x.shape
    c = c.reading(padded)
    group = ("g",) if grouped else ()
    points = points_of(task)
    # By the accesses alone, on the image with its padding: the offset of a side is where the image begins.
    kept = {0, 2, *range(c.x.ndim - len(FORMS[form]), c.x.ndim), *([1] if grouped else [])}
    shown = padded[tuple(slice(None) if d in kept else 0 for d in range(padded.ndim))]
    access = tuple(Access(a.terms) for a in task.fields["x"].access)
    axes = ("b", *group, *c.outs, "ic", *c.taps)
    table = c.along_x().table(*axes)
    assert len(table) == np.prod([points[a] for a in axes])
    for number in np.random.default_rng(0).integers(0, len(table), 200):
        point = dict(zip(axes, map(int, np.unravel_index(number, [points[a] for a in axes]))))
        assert address_of(padded) + table[number] == element(shown, access, point), point
        assert table[number] + 4 <= padded.nbytes
    y = task.fields["y"].without_parts()
    for name, along_it, array, access in (
        ("w", c.along_w, task["w"], task.fields["w"].access),
        ("y", c.along_y, y, task.fields["y"].access[1:]),
    ):
        axes = tuple(a.terms[0][0] for a in access)
        expected = np.arange(array.size) * 4
        assert along_it.table(*axes).tolist() == expected.tolist(), name
