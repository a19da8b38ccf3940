"""Tile cycles of vertices: the values worked out from PopLibs' estimates, and what any estimate must obey."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from xdsl.dialects.builtin import f16, f32, i8, i32

from populus.dialects.expr import FUNCTIONS, Arg, Const, cast, exp, maximum
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.partition import ALL, Access, Domain, Split, along, at
from populus.dialects.poplar.target import PRESETS, make_target, sum_type
from populus.dialects.poplar.types import Field, TensorType
from populus.dialects.support.element_types import ui8
from populus.runtime.codelets import IMPLEMENTATIONS
from populus.runtime.codelets.cost import flops, vertex_cycles
from populus.runtime.codelets.map import flops_of
from populus.runtime.codelets.slices import multi_slice_cycles
from populus.runtime.cycles import Products, Vertex, contraction, reduce_cycles
from populus.runtime.cycles.ipu import elementwise as e
from populus.runtime.cycles.ipu.contraction import Amp, amp_1x1, amp_nx1, slic
from populus.runtime.cycles.ipu.reduction import strided_worker

GC200, HOST = PRESETS["gc200"], PRESETS["host"]
HALVES, FLOATS = Amp(half=True, half_sums=True), Amp(half=False)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (e.binary(712, "add", f32, GC200), 1265),
        (e.binary(712, "add", f16, GC200), 707),
        (e.unary(1000, "tanh", f16, GC200), 1130),
        (e.unary(1000, "exp", f32, GC200), 3242),
        (e.broadcast_scalar(1000, "mul", f32, GC200), 1139),
        (e.cast(1000, f32, f16, GC200), 762),
        (e.cast(1000, f16, f32, GC200), 750),
        (multi_slice_cycles(48, 64, f16, GC200), 4164),
        (strided_worker(64, 16), 848),
        (amp_1x1(48, 4, 4, HALVES), 6511 + 16 * 14),  # all workers alike: the last to start waits 14 cycles, in each of 16 calls
        (amp_1x1(114, 13, 2, HALVES), 17634 + 26 * 14),
        (amp_1x1(6, 1, 1, HALVES), 355 + 14),
    ],
)
def test_worked_values(found: int, expected: int):
    assert int(found) == expected


def test_arrays_of_candidates_give_what_each_gives_alone():
    rows, channels = np.array([1, 7, 56]), np.array([[16], [48], [512]])
    together = contraction(Products(1, rows, 14, channels, channels, 9, f16, GC200))
    for i, c in enumerate(channels.ravel()):
        for j, r in enumerate(rows):
            assert together[i, j] == contraction(Products(1, int(r), 14, int(c), int(c), 9, f16, GC200))


def test_matrix_units_are_half_as_wide_on_the_first_generation():
    old = PRESETS["gc2"]
    for element in (f16, f32):
        wide, narrow = (contraction(Products(1, 400, 1, 256, 256, 1, element, target, partials="f16")) for target in (GC200, old))
        assert narrow > 1.7 * wide


# Cycles of one product of [N, 16] and [16, 16] in halves on each tile of a Bow, by the tile's counter. Source: docs/machine-model.md.
COUNTED = {16: 402, 32: 461, 48: 524, 64: 584, 96: 716, 128: 845, 192: 1100, 256: 1352, 384: 1868, 512: 2381, 1024: 4424, 2048: 8525}


def test_products_take_what_a_tiles_counter_says():
    slow_loads = make_target("bow", (("interleaved_bytes", 0),))
    for n, cycles in COUNTED.items():
        found = contraction(Products(1, n, 1, 16, 16, 1, f16, slow_loads, partials="f16")) + GC200.product_start_cycles
        assert found == pytest.approx(cycles, rel=0.03)


def test_additions_take_what_a_tiles_counter_says():
    for n, cycles in {10: 285, 1024: 1815}.items():
        assert e.binary(n, "add", f32, PRESETS["bow"]) + GC200.vertex_start_cycles == cycles


def test_floats_use_all_units_at_a_quarter_of_the_halves_rate():
    cycles = {element: contraction(Products(1, 3000, 1, 64, 64, 1, element, GC200, partials="f16")) for element in (f16, f32)}
    assert 4 < cycles[f32] / cycles[f16] < 4.6  # and floats are cleared in a pass of their own


def test_halves_that_are_summed_as_floats_take_half_of_the_units():
    narrow, wide = (contraction(Products(1, 600, 1, 64, 64, 1, f16, GC200, partials=p, rounds=False)) for p in ("f16", ""))
    assert 1.8 < wide / narrow < 2.1
    old = [contraction(Products(1, 600, 1, 64, 64, 1, f16, PRESETS["gc2"], partials=p, rounds=False)) for p in ("f16", "")]
    assert 0.8 < old[1] / old[0] < 1.2


def test_weights_load_twice_as_fast_where_they_fit_interleaved_memory():
    fast, slow = (
        contraction(Products(1, 6, 1, 64, 64, 1, f16, make_target("bow", (("interleaved_bytes", n),)), partials="f16"))
        for n in (8192, 8191)
    )
    assert slow - fast == 16 * 32  # a call for each 16 x 16 weights, 512 bytes


def test_a_few_rows_are_loaded_into_the_units_and_many_weights_stream():
    def cycles(swapped: bool) -> int:
        return int(contraction(Products(1, 16, 1, 512, 256, 1, f16, GC200, partials="f16", swapped=swapped)))

    assert cycles(swapped=True) < cycles(swapped=False) / 2
    assert contraction(Products(1, 40, 1, 40, 256, 1, f16, GC200, swapped=True)) == contraction(Products(1, 40, 1, 40, 256, 1, f16, GC200))


def test_rows_of_a_kernel_share_calls_where_channels_are_few():
    few, many = (contraction(Products(1, 8, 30, 16, channels, 9, f16, PRESETS["gc2"], kernel_rows=3)) for channels in (4, 16))
    assert few < 0.5 * many
    assert many == contraction(
        Products(1, 8, 30, 16, 9, 9, f16, PRESETS["gc2"], kernel_rows=3)
    )  # nine channels leave no room for a second row


def test_grouped_channels_of_halves_take_rows_of_four_kernel_elements():
    grouped, apart = (contraction(Products(32, 14, 14, 1, 1, 9, f16, t, partials="f16", kernel_rows=3)) for t in (GC200, PRESETS["gc2"]))
    assert grouped < 0.6 * apart
    assert contraction(Products(32, 14, 14, 1, 1, 9, f16, GC200, partials="f16", kernel_rows=3, stride=3)) == apart
    assert slic(14, 14, 32, 9, 3, 1, 1, True) < slic(14, 14, 32, 9, 3, 1, 1, False) < 2 * slic(14, 14, 32, 9, 3, 1, 1, True)


def test_no_contraction_is_faster_than_the_matrix_unit():
    for element in (f16, f32):
        for target, partials in itertools.product((GC200, PRESETS["gc2"], HOST), ("", "f16")):
            cycles = contraction(Products(1, 64, 64, 256, 256, 1, element, target, partials=partials))
            assert cycles >= 64 * 64 * 256 * 256 / target.macs_per_cycle(element, sum_type(element, partials))


def test_a_depthwise_convolution_does_not_pay_for_the_channels_of_a_matrix_unit():
    assert contraction(Products(32, 14, 14, 1, 1, 9, f16, GC200)) < 32 * amp_nx1(14, 14, 1, 1, 9, HALVES) / 5


def test_cycles_grow_with_work():
    n = np.arange(13, 400)  # below, PopLibs has two positions to a worker dearer than three
    assert (np.diff(amp_1x1(n[n % 6 == 0], 2, 2, HALVES)) > 0).all()  # between, the last worker has less to wait for
    assert (np.diff(amp_1x1(n[n % 6 == 0], 2, 2, FLOATS)) > 0).all()
    assert (np.diff(amp_nx1(n, 8, 2, 2, 9, HALVES)) >= 0).all()
    for contiguous in (False, True):
        assert (np.diff(reduce_cycles(8, n, f32, GC200, contiguous)) >= -12).all()
        assert (np.diff(reduce_cycles(6 * n, 8, f32, GC200, contiguous)) >= 0).all()


def test_a_reduction_to_few_outputs_is_shared_by_the_workers():
    assert reduce_cycles(1, 6000, f32, GC200, contiguous=True) < 6 * (17 + 12 + 3000) / 3


def test_every_function_has_a_loop():
    assert {*FUNCTIONS, "cast"} == e.LOOPS.keys()


def test_a_wider_data_path_takes_fewer_cycles():
    wide = make_target("gc200", [("vector_bytes", 32)])
    assert e.binary(4000, "add", f32, wide) < e.binary(4000, "add", f32, GC200) / 3


def test_maps_take_the_vertex_that_poplibs_has():
    _1, _2 = Arg(1), Arg(2)
    two, whole = [f32, f32], [False, False]
    assert e.map_cycles(712, _1 + _2, two, whole, f32, GC200, False) == 1265
    assert e.map_cycles(1000, exp(_1), [f32], [False], f32, GC200, False) == 3242
    assert e.map_cycles(1000, _1 * _2, two, [False, True], f32, GC200, False) == 1139
    assert e.map_cycles(1000, _1 * 2.0, [f32], [False], f32, GC200, False) == 1139
    assert e.map_cycles(1000, cast(_1, f16), [f32], [False], f16, GC200, False) == 762
    assert e.map_cycles(1000, Const(0.0), [], [], f32, GC200, False) == e.fill(1000, f32, GC200)
    assert e.map_cycles(1000, _1, [f32], [False], f32, GC200, False) == 20 + 500


def test_a_fused_map_takes_less_than_its_parts():
    _1, _2 = Arg(1), Arg(2)
    parts = e.binary(3000, "add", f32, GC200) + e.broadcast_scalar(3000, "max", f32, GC200)
    fused = e.map_cycles(3000, maximum(_1 + _2, 0.0), [f32, f32], [False, False], f32, GC200, False)
    assert e.binary(3000, "add", f32, GC200) < fused < parts


def test_operations_are_counted_per_function():
    _1, _2 = Arg(1), Arg(2)
    assert flops_of(maximum(_1 + _2, 0.0)) == 2
    assert flops_of(_1 % _2) == 3
    assert flops_of(cast(_1 + _2, f16)) == 1
    assert flops_of(_1) == 0


def a_vertex(
    codelet: str,
    axes: dict[str, Split],
    fields: list[tuple[str, str, list[Access], TensorType]],
    scalars: tuple[tuple[str, int], ...] = (),
    **more: object,
) -> Vertex:
    domain = Domain(tuple(axes.items()), tuple(a for a, s in axes.items() if s.parts > 1))
    connected = tuple(Field(kind, name, tuple(access)) for kind, name, access, _ in fields)
    return Vertex(codelet, domain, connected, tuple(t for *_, t in fields), more.get("expression"), str(more.get("op", "")), GC200, scalars)  # pyright: ignore[reportArgumentType]


def tensor(*shape: int) -> TensorType:
    return TensorType.of(shape, f32)


OUTS = (("o0", "k0"), ("o1", "k1"))
VERTICES = {
    "conv": a_vertex(
        "conv",
        {"b": Split(1), "oc": Split(64, 8, 8), "ic": Split(64, 2, 8), "o0": Split(56, 3), "k0": Split(3)},
        [
            ("in", "x", [along("b"), along("ic"), along("o0", "k0")], tensor(1, 64, 58)),
            ("in", "w", [along("oc"), along("ic"), along("k0")], tensor(64, 64, 3)),
            ("out", "y", [at("ic"), along("b"), along("oc"), along("o0")], tensor(2, 1, 64, 56)),
        ],
    ),
    "fill": a_vertex("fill", {"i": Split(100, 3)}, [("out", "y", [along("i")], tensor(100))]),
    "iota": a_vertex("iota", {"i": Split(100, 3)}, [("out", "y", [along("i")], tensor(100))]),
    "map": a_vertex(
        "map",
        {"i": Split(100, 3)},
        [("in", "x1", [along("i")], tensor(100)), ("out", "y", [along("i")], tensor(100))],
        expression=exp(Arg(1)),
    ),
    "matmul": a_vertex(
        "matmul",
        {"g": Split(2), "m": Split(30, 4), "n": Split(40), "k": Split(50)},
        [
            ("in", "a", [along("g"), along("m"), along("k")], tensor(2, 30, 50)),
            ("in", "b", [along("g"), along("k"), along("n")], tensor(2, 50, 40)),
            ("out", "c", [along("g"), along("m"), along("n")], tensor(2, 30, 40)),
        ],
    ),
    "dynamic_update": a_vertex(
        "dynamic_update",
        {"d0": Split(64, 3)},
        [
            ("inout", "table", [Access(whole=True), along("d0")], tensor(1000, 64)),
            ("in", "index", [], TensorType.of((), i32)),
            ("in", "row", [along("d0")], tensor(64)),
        ],
    ),
    "multi_slice": a_vertex(
        "multi_slice",
        {"i": Split(20, 3), "c": Split(64)},
        [
            ("in", "table", [Access(whole=True), along("c")], tensor(1000, 64)),
            ("in", "indices", [along("i")], TensorType.of((20,), i32)),
            ("out", "y", [along("i"), along("c")], tensor(20, 64)),
        ],
    ),
    "multi_update": a_vertex(
        "multi_update",
        {"d0": Split(50, 3), "d1": Split(64)},
        [
            ("in", "table", [along("d0"), along("d1")], tensor(50, 64)),
            ("in", "indices", [Access(whole=True)], TensorType.of((20,), i32)),
            ("in", "updates", [Access(whole=True), along("d1")], tensor(20, 64)),
            ("out", "y", [along("d0"), along("d1")], tensor(50, 64)),
        ],
    ),
    "pool": a_vertex(
        "pool",
        {"c": Split(64, 8), "o0": Split(28), "k0": Split(3)},
        [("in", "x", [along("c"), along(("o0", 2), "k0")], tensor(64, 58)), ("out", "y", [along("c"), along("o0")], tensor(64, 28))],
    ),
    "random": a_vertex(
        "random",
        {"i": Split(100, 3)},
        [("in", "seed", [Access(whole=True)], TensorType.of((2,), i32)), ("out", "y", [along("i")], tensor(100))],
    ),
    "reduce": a_vertex(
        "reduce",
        {"r": Split(9), "d0": Split(100, 7, 2)},
        [("in", "x", [along("r"), along("d0")], tensor(9, 100)), ("out", "y", [along("d0")], tensor(100))],
        op="add",
    ),
    "softmax": a_vertex(
        "softmax",
        {"d0": Split(12, 5), "r": Split(128)},
        [("in", "x", [along("d0"), along("r")], tensor(12, 128)), ("out", "y", [along("d0"), along("r")], tensor(12, 128))],
    ),
    "top_k": a_vertex(
        "top_k",
        {"d0": Split(12, 5), "k": Split(7)},
        [
            ("in", "x", [along("d0"), Access(whole=True)], tensor(12, 128)),
            ("out", "y", [along("d0"), along("k")], TensorType.of((12, 7), i32)),
        ],
    ),
    "packed_matmul": a_vertex(
        "packed_matmul",
        {"m": Split(5, 2), "n": Split(12, 5), "k": Split(40)},
        [
            ("in", "x", [along("m"), along("k")], tensor(5, 40)),
            ("in", "codes", [along("n"), ALL, ALL], TensorType.of((12, 3, 8), ui8)),
            ("in", "scale", [along("n"), ALL], tensor(12, 3)),
            ("in", "zero", [along("n"), ALL], TensorType.of((12, 3), ui8)),
            ("out", "y", [along("m"), along("n")], tensor(5, 12)),
        ],
        scalars=(("bits", 4),),
    ),
    "winograd": a_vertex(
        "winograd",
        {"b": Split(1), "oc": Split(32, 3), "ic": Split(16), "o0": Split(13, 3, 2), "o1": Split(28), "k0": Split(3), "k1": Split(3)},
        [
            ("in", "x", [along("b"), along("ic"), along("o0", "k0", offset=-1), along("o1", "k1", offset=-1)], tensor(1, 16, 13, 28)),
            ("in", "w", [along("oc"), along("ic"), along("k0"), along("k1")], tensor(32, 16, 3, 3)),
            ("out", "y", [along("b"), along("oc"), along("o0"), along("o1")], tensor(1, 32, 13, 28)),
        ],
        scalars=(("tile", 2),),
    ),
    "winograd_input": a_vertex(
        "winograd_input",
        {"b": Split(1), "ic": Split(16, 3), "o0": Split(7, 3), "o1": Split(14), "k0": Split(4), "k1": Split(4)},
        [
            ("in", "x", [along("b"), along("ic"), *(along((o, 2), k, offset=-1) for o, k in OUTS)], tensor(1, 16, 13, 28)),
            ("out", "v", list(map(along, ("k0", "k1", "ic", "b", "o0", "o1"))), tensor(4, 4, 16, 1, 7, 14)),
        ],
    ),
    "winograd_output": a_vertex(
        "winograd_output",
        {
            "b": Split(1),
            "oc": Split(16, 3),
            "o0": Split(7, 3),
            "o1": Split(14),
            **dict.fromkeys(("k0", "k1"), Split(4)),
            **dict.fromkeys(("r0", "r1"), Split(2)),
        },
        [
            ("in", "m", list(map(along, ("k0", "k1", "oc", "b", "o0", "o1"))), tensor(4, 4, 16, 1, 7, 14)),
            ("out", "y", [along("b"), along("oc"), along(("o0", 2), "r0"), along(("o1", 2), "r1")], tensor(1, 16, 14, 28)),
        ],
    ),
    "whiten": a_vertex(
        "whiten",
        {"d0": Split(12, 5), "r": Split(128)},
        [("in", "x", [along("d0"), along("r")], tensor(12, 128)), ("out", "y", [along("d0"), along("r")], tensor(12, 128))],
    ),
}


BUILT_IN = [name for name, codelet in CODELETS.items() if codelet.code is None]  # other tests register codelets of their own


def test_every_codelet_has_its_cycles():
    assert set(BUILT_IN) == VERTICES.keys()
    assert all(callable(IMPLEMENTATIONS[name].cycles) for name in BUILT_IN)


@pytest.mark.parametrize("codelet", BUILT_IN)
def test_each_vertex_costs_what_its_own_box_does(codelet: str):
    vertex = VERTICES[codelet]
    cycles = vertex_cycles(vertex).ravel()
    for found, box in zip(cycles, vertex.domain.boxes(), strict=True):
        sizes = {a: end - first for a, (first, end, _) in box.items()}
        assert found == np.ceil(IMPLEMENTATIONS[codelet].cycles(vertex, sizes)) > 0


def test_operations_of_contractions_are_two_for_each_multiply_add():
    assert flops(VERTICES["conv"]) == 2 * 64 * 64 * 56 * 3
    assert flops(VERTICES["matmul"]) == 2 * 2 * 30 * 40 * 50
    assert flops(VERTICES["reduce"]) == 900
    assert flops(VERTICES["map"]) == 100
    assert flops(VERTICES["fill"]) == 0


def test_integers_are_no_floating_point_operations():
    x = TensorType.of((100,), i8)
    fields = [("in", "x1", [along("i")], x), ("out", "y", [along("i")], x)]
    assert flops(a_vertex("map", {"i": Split(100)}, fields, expression=Arg(1) + Arg(1))) == 0


def test_a_vertex_without_elements_takes_no_time():
    empty = TensorType.of((0,), f32)
    fields = [("in", "x1", [along("i")], empty), ("out", "y", [along("i")], empty)]
    assert vertex_cycles(a_vertex("map", {"i": Split(0)}, fields, expression=exp(Arg(1)))).tolist() == 0
