"""Plans of contractions: what is weighed, what constant weights get of the tiles' memory, and that they are the same every time."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import f16, f32

import populus
from populus.dialects.poplar import ConstOp, FamilyOp, Field, TensorType, VarOp
from populus.dialects.poplar.partition import ALL, Domain, Grid, Split, along
from populus.dialects.poplar.target import PRESETS, make_target
from populus.dialects.poplar.view import View
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.poplar.plan import contraction
from populus.lowering.poplar.plan.contraction import Contraction, cheapest, options
from populus.lowering.poplar.plan.kept import KeptPlans
from populus.lowering.poplar.plan.layout import shared
from populus.lowering.poplar.plan.residency import Residency, Room
from populus.runtime.exchange import field_exchange, owned_elements, shared_by_neighbours

CONVOLUTION = Contraction(1, 1, 64, 64, (56, 56), (3, 3), (1, 1))
PRODUCT = Contraction(1, 1, 512, 512, (512,), (1,), (1,))


@pytest.mark.parametrize("shape", [CONVOLUTION, PRODUCT])
@pytest.mark.parametrize("element", [f16, f32])
def test_options_give_more_speed_for_more_memory(shape, element):
    first, *resident = options(shape, element, PRESETS["gc200"])
    assert first.resident_bytes == 0
    assert all(o.cycles < first.cycles for o in resident)
    assert [o.resident_bytes for o in resident] == sorted({o.resident_bytes for o in resident}, reverse=True)
    assert [o.cycles for o in resident] == sorted(o.cycles for o in resident)


def test_more_tiles_are_never_slower():
    cycles = [options(PRODUCT, f16, make_target("gc200", (("tiles", n),)))[0].cycles for n in (1, 4, 16, 64, 256, 1472)]
    assert cycles == sorted(cycles, reverse=True)


def test_an_input_that_lies_in_the_plans_parts_does_not_move():
    few = Contraction(1, 1, 8, 8, (56, 56), (1, 1), (1, 1))
    apart = options(few, f32, PRESETS["gc200"])
    near = options(few, f32, PRESETS["gc200"], (1, *apart[1].plan.windows))
    assert near[1].cycles < apart[1].cycles
    assert near[1].plan.windows == apart[1].plan.windows


def test_the_memory_for_weights_is_not_overrun_and_goes_to_who_gains_most():
    bids = [options(CONVOLUTION, f32, PRESETS["gc200"])] * 40
    wanted = bids[0][1].resident_bytes
    for bytes in (0, 3 * wanted // 2, 40 * wanted):
        residency = Residency.of(Room(bytes, math.inf), bids)
        taken = [cheapest(b, residency.price, residency.left).resident_bytes for b in bids]
        assert sum(taken) <= bytes
        for b in bids:
            residency.choose(b, constant=True)
        assert residency.left >= 0
    assert Residency.of(Room(40 * wanted, math.inf), bids).price == 0
    assert residency.choose(bids[0], constant=False)[1] is False


def test_resident_weights_and_the_product_that_runs_fit_a_tile_together():
    bids = [options(PRODUCT, f32, PRESETS["gc200"])] * 4
    fastest = bids[0][1]
    enough = 4 * fastest.resident_bytes + fastest.working_bytes
    assert Residency.of(Room(math.inf, enough), bids).price == 0
    residency = Residency.of(Room(math.inf, enough - 1), bids)
    taken = [cheapest(b, residency.price) for b in bids]
    assert residency.price > 0
    assert sum(o.resident_bytes for o in taken) + max(o.working_bytes for o in taken) < enough
    assert Room(10, 20).share(0.5) == Room(5, 15)
    assert [Room(10, 20).holds(r, w) for r, w in ((0, 99), (10, 10), (11, 0), (10, 11))] == [True, True, False, False]


def test_columns_that_stream_are_cut_between_vectors():
    first, *resident = options(Contraction(1, 1, 1024, 1024, (1792,), (1,), (1,)), f32, PRESETS["bow"])
    assert resident[0].plan.swapped
    assert resident[0].plan.out_grain == 2  # a vector of floats; a call takes 16 channels
    assert first.plan.out_grain == 16
    assert all(o.plan.out_grain == 16 for o in resident if not o.plan.swapped)


def test_a_constant_with_copies_where_they_are_read_does_not_move():
    domain = Domain((("m", Split(8, 4)), ("n", Split(6, 3))), ("m", "n"))
    grid = Grid((Split(6, 3),), (-4, 0))
    assert owned_elements(grid).tolist() == [2] * 12
    assert field_exchange(domain, (along("n"),), View.whole((6,)), grid, 12).nothing
    assert not field_exchange(domain, (along("n"),), View.whole((6,)), Grid((Split(6, 3),), (0, -4)), 12).nothing
    assert not field_exchange(domain, (along("n"),), View.whole((6,)), Grid((Split(6, 3),), (0,)), 12).nothing


@pytest.mark.parametrize("order", [("k", "m", "n"), ("m", "n", "k"), ("m", "k", "n"), ("n", "k", "m")])
def test_what_several_tiles_read_lies_among_them(order):
    domain = Domain((("k", Split(96, 3, 8)), ("m", Split(20, 4)), ("n", Split(64, 2, 16))), order)
    weights = VarOp("w", TensorType.of((96, 64), f32))
    family = FamilyOp("matmul", domain, [(Field("in", "b", (along("k"), along("n"))), weights.result)])
    grid = shared(family, family.fields.data[0], weights.result)
    if order[0] == "m":
        assert grid is None  # no dimension is whole
        return
    assert grid is not None
    assert grid.problem((96, 64), 24) is None
    moved = field_exchange(domain, family.fields.data[0].access, View.whole((96, 64)), grid, 24)
    assert int(moved.away.sum()) == (4 - 1) * 96 * 64  # each element is on one of the four tiles that read it


def test_neighbours_share_what_the_last_digits_do_not_select():
    domain = Domain((("m", Split(8, 4)), ("n", Split(6, 3))), ("m", "n"))
    assert shared_by_neighbours(domain, (along("m"),)) == 3
    assert shared_by_neighbours(domain, (along("n"),)) == 1
    assert shared_by_neighbours(domain, (ALL,)) == 12


def model(weights: int = 3, size: int = 64) -> onnx.ModelProto:
    """Products with constant weights, one behind the other."""
    rng = np.random.default_rng(0)
    w = [numpy_helper.from_array((rng.standard_normal((size, size)) / 8).astype("f4"), f"w{i}") for i in range(weights)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"product{i}") for i in range(weights)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [128, size]) for n in ("x0", f"x{weights}")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], w)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_results_are_the_same_whatever_the_plans_count():
    x = np.random.default_rng(1).standard_normal((128, 64)).astype("f4")
    found = []
    for given in ({}, {"resident": 0.0}, {"agree": False}, {"traffic": 0.0}):
        pipeline = Pipeline.named("inference").with_options("poplin-to-poplar", **given)
        program = populus.compile(model(), target="gc200, tile_bytes=65536", tiles=64, pipeline=pipeline, engine="strict")
        found.append((program.run({"x0": x})["x3"], program))
    for y, _ in found:
        np.testing.assert_allclose(y, found[0][0], rtol=0, atol=1e-5 * np.abs(y).max())
    copies, without = (sum(op.layout.copies > 1 for op in p.module("poplar").walk() if isinstance(op, ConstOp)) for _, p in found[:2])
    assert copies == 3
    assert without == 0
    moved = [p.profile().summary["exchange_bytes"] for _, p in found[:2]]
    assert moved[0] < moved[1]


def test_a_price_of_bytes_lowers_those_of_inputs_weights_and_partials():
    moved = []
    for traffic in (0.0, 0.25, 2.0):
        pipeline = Pipeline.named("inference").with_options("poplin-to-poplar", traffic=traffic, resident=0.0)
        moved.append(populus.compile(model(2, 1024), target="bow", pipeline=pipeline).profile().summary["exchange_bytes"])
    assert moved[0] > moved[1] > moved[2]


def test_the_same_model_gets_the_same_plans(monkeypatch):
    texts = []
    for _ in range(2):
        monkeypatch.setattr(contraction, "PLANS", KeptPlans(99))
        texts.append(str(populus.compile(model(), target="gc200").module("poplar")))
    assert texts[0] == texts[1]
