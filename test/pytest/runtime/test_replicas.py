"""Replicas of one process: what each collective gives, on each engine and level; order of sums; gradients; what does not meet."""

from functools import reduce
from threading import active_count

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.func import FuncOp

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.program.replicas import Replicas
from populus.runtime.gcl import Group, cost, reduced
from populus.runtime.turns import InTurn
from populus.write.builder import Builder

COUNT = 4
RNG = np.random.default_rng(3)
XS = [RNG.normal(size=(4, 3)).astype(np.float32) for _ in range(COUNT)]


def program(*calls, shape=(4, 3), dtype="float32", **options):
    """Compiles a model of collectives on x: an output for each (op, properties)."""
    b = Builder()
    x = b.input("x", shape, dtype)
    for k, (op, properties) in enumerate(calls):
        operands = () if op == "replica_index" else (x,)
        b.output(f"y{k}", b.op(op, *operands, **properties)[0])
    return populus.compile(b.module(), target="gc200", tiles=4, **options)


ALL = [
    ("all_reduce", {"size": 4}, lambda k: reduce(np.add, XS)),
    ("all_reduce", {"size": 2, "reduction": "mean"}, lambda k: (XS[k // 2 * 2] + XS[k // 2 * 2 + 1]) / np.float32(2)),
    ("all_reduce", {"size": 2, "stride": 2, "reduction": "max"}, lambda k: np.maximum(XS[k % 2], XS[k % 2 + 2])),
    ("all_reduce", {"size": 4, "reduction": "square_add"}, lambda k: reduce(np.add, [x * x for x in XS])),
    ("all_gather", {"size": 2, "stride": 2}, lambda k: np.stack([XS[k % 2], XS[k % 2 + 2]])),
    ("reduce_scatter", {"size": 4, "reduction": "min"}, lambda k: reduce(np.minimum, XS)[k : k + 1]),
    ("reduce_scatter", {"size": 2, "reduction": "local"}, lambda k: XS[k][k % 2 * 2 : k % 2 * 2 + 2]),
    ("broadcast", {"size": 2, "root": 1}, lambda k: XS[k // 2 * 2 + 1]),
    ("all_to_all", {"size": 4}, lambda k: np.stack([x[k] for x in XS])),
    ("barrier", {"size": 4}, lambda k: XS[k]),
    ("replica_index", {"size": 2, "stride": 2}, lambda k: np.int32(k // 2)),
]


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_each_collective_gives_what_its_formula_says_on_each_level(engine):
    replicas = Replicas(program(*((op, p) for op, p, _ in ALL), engine=engine), COUNT)
    given = [{"x": x} for x in XS]
    for level in replicas.program.levels:
        found = replicas.run_at(level, given)
        for k in range(COUNT):
            for n, (op, properties, wanted) in enumerate(ALL):
                np.testing.assert_array_equal(found[k][f"y{n}"], wanted(k), f"{level}: {op} {properties} on replica {k}")


def test_replicas_keep_their_own_memory_from_run_to_run():
    replicas = Replicas(program(("all_reduce", {"size": 4})), COUNT)
    first = replicas.run([{"x": x} for x in XS])
    again = replicas.run([{"x": x + 1} for x in XS])
    np.testing.assert_array_equal(first[3]["y0"], reduce(np.add, XS))
    np.testing.assert_array_equal(again[0]["y0"], reduce(np.add, [x + 1 for x in XS]))


def test_sums_go_from_the_first_replica_to_the_last():
    big, small = np.float32(2**24), np.float32(1)
    assert reduced("add", [np.array([v]) for v in (big, small, -big)])[0] == 0  # 2^24 + 1 rounds to 2^24
    assert reduced("add", [np.array([v]) for v in (big, -big, small)])[0] == 1
    halves = [np.array([v], np.float16) for v in (2048, 1, 1)]
    assert reduced("add", halves)[0] == 2050  # each sum rounded to half would be 2048
    small_floats = [np.array([1.0, 2.0], ml_dtypes.bfloat16)] * 3
    assert reduced("mean", small_floats).dtype == ml_dtypes.bfloat16
    assert reduced("or", [np.array([False]), np.array([True])]).tolist() == [True]


GRADIENTS = [
    ("all_reduce", {"size": 4}),
    ("all_reduce", {"size": 2, "stride": 2, "reduction": "mean"}),
    ("all_reduce", {"size": 4, "reduction": "square_add"}),
    ("all_reduce", {"size": 4, "reduction": "max"}),
    ("all_reduce", {"size": 2, "reduction": "min"}),
    ("all_gather", {"size": 2}),
    ("reduce_scatter", {"size": 4}),
    ("reduce_scatter", {"size": 2, "reduction": "mean"}),
    ("broadcast", {"size": 4, "root": 2}),
    ("all_to_all", {"size": 4}),
    ("barrier", {"size": 2}),
]


@pytest.mark.parametrize(("op", "properties"), GRADIENTS, ids=[f"{op}{n}" for n, (op, _) in enumerate(GRADIENTS)])
def test_a_gradient_is_that_of_the_sum_of_the_replicas_losses(op, properties):
    xs = [x.astype(np.float64) for x in XS]
    b = Builder()
    b.output("y", b.op(op, b.input("x", (4, 3), "float64"), **properties)[0])
    module = b.module()
    outputs = Replicas(populus.compile(module.clone(), target="host", tiles=4), COUNT)
    shape = outputs.run([{"x": x} for x in xs])[0]["y"].shape
    weights = [RNG.normal(size=shape) for _ in range(COUNT)]

    def loss(given):
        return sum((w * o["y"]).sum() for w, o in zip(weights, outputs.run([{"x": x} for x in given])))

    found = populus.vjp(module, ["x"], target="host", tiles=4)
    gradients = Replicas(found.program, COUNT).run(
        [{"x": x, next(n for n in found.program.signature.inputs if n != "x"): w} for x, w in zip(xs, weights)]
    )
    for k, i, j in ((0, 0, 1), (1, 2, 2), (2, 3, 0), (3, 1, 1)):
        ends = []
        for step in (1e-6, -1e-6):
            moved = [x.copy() for x in xs]
            moved[k][i, j] += step
            ends.append(loss(moved))
        name = next(n for n in gradients[k] if n != "y")
        assert gradients[k][name][i, j] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7)


def test_a_product_and_logic_have_no_gradient():
    b = Builder()
    b.output("y", b.op("all_reduce", b.input("x", (4,)), size=2, reduction="mul")[0])
    with pytest.raises(PopulusError, match="all_reduce by 'mul' has no gradient; reduce by 'add' or 'mean'"):
        populus.vjp(b.module(), ["x"], target="host", tiles=4)


def test_a_constant_is_not_reduced_while_compiling():
    b = Builder()
    b.output("y", b.op("add", b.input("x", (3,)), b.op("all_reduce", b.constant(np.ones(3, np.float32)), size=3)[0])[0])
    found = Replicas(populus.compile(b.module(), target="gc200", tiles=2), 3).run([{"x": np.zeros(3, np.float32)}] * 3)
    assert all(o["y"].tolist() == [3, 3, 3] for o in found)


@pytest.mark.parametrize(
    ("calls", "count", "message"),
    [
        ([("all_reduce", {"size": 4})], 2, "groups of 4 replicas with stride 1 take a multiple of 4 replicas; there are 2"),
        ([("all_gather", {"size": 2, "stride": 2})], 1, "take a multiple of 4 replicas; there is one"),
    ],
)
def test_groups_that_replicas_do_not_fill_are_refused(calls, count, message):
    with pytest.raises(PopulusError, match=message):
        Replicas(program(*calls), count).run([{"x": XS[0]}] * count)


def test_replicas_that_do_not_meet_end_with_one_line_each_thread_gone():
    before = active_count()
    b = Builder()
    x, c = b.input("x", (2,)), b.input("c", (), "bool")
    with Builder("then") as then:
        then.output("t", then.op("all_reduce", then.input("a", (2,)), size=2)[0])
    with Builder("other") as other:
        other.output("o", other.op("neg", other.input("a", (2,)))[0])
    b.output("y", _chosen(b, c, x, then, other))
    replicas = Replicas(populus.compile(b.module(), target="gc200", tiles=2), 2)
    x = np.ones(2, np.float32)
    together = replicas.run([{"x": x, "c": np.array(True)}] * 2)
    assert together[1]["y"].tolist() == [2, 2]
    with pytest.raises(PopulusError, match="replica 0 waits for others that do not come: .*all_reduce"):
        replicas.run([{"x": x, "c": np.array(True)}, {"x": x, "c": np.array(False)}])
    assert active_count() == before


def _chosen(b, condition, x, then, other):
    from xdsl.dialects.func import CallOp
    from xdsl.ir import Block, Region

    from populus.dialects.popart import IfOp, YieldOp

    regions = []
    for graph in (then, other):
        call = CallOp(graph.name, [x], [x.type])
        regions.append(Region(Block([call, YieldOp(call.results[0])])))
        b._called[graph] = None
    op = IfOp(condition, *regions)
    b._block.add_op(op)
    return op.results[0]


def test_an_error_of_one_replica_ends_all():
    def one(k):
        if k == 2:
            raise PopulusError("the third has no data")
        return k

    with pytest.raises(PopulusError, match="the third has no data"):
        InTurn(4).run(one)
    assert InTurn(3).run(lambda k: k * k) == [0, 1, 4]


def test_groups_are_blocks_of_strides():
    assert [list(Group(2, 2).members(k)) for k in (0, 3, 4, 7)] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert [Group(2, 2).position(k) for k in range(4)] == [0, 0, 1, 1]


def test_the_cost_is_that_of_a_ring_or_of_a_tree_whichever_is_less():
    found = program(("all_reduce", {"size": 4}), ("replica_index", {"size": 4})).profile()
    steps = {s.label: s for s in found.steps if s.kind == "collective"}
    assert steps["all_reduce"].exchange == 2 * 2 * (500 + 1) == cost("all_reduce", 48, 4, 120, 500)
    assert steps["replica_index"].exchange == 0
    assert cost("all_gather", 12000, 4, 120, 50) == 3 * (50 + 100)  # three parts, one after the other
    assert cost("all_gather", 1200, 4, 120, 500) == 2 * (500 + 20)  # twice half of the whole


@pytest.mark.parametrize("link_cycles", [500, 5000])
def test_a_collective_waits_for_what_no_step_before_its_reader_hides(link_cycles):
    b = Builder()
    x, w = b.input("x", (8, 32)), b.input("w", (32, 32))
    met = b.op("all_reduce", x, size=4)[0]
    b.output("y", b.op("add", met, b.op("matmul", b.op("matmul", x, w)[0], w)[0])[0])
    found = populus.compile(b.module(), target=f"gc200, link_cycles={link_cycles}", tiles=16).profile()
    (step,) = (s for s in found.steps if s.kind == "collective")
    before = sum(s.cycles for s in [s for s in found.steps if s.kind == "execute"][:-1])  # the last one adds
    assert before > 0 and step.waits == max(step.cycles - before, 0) and (step.waits > 0) == (link_cycles > 500)
    assert found.summary["collective_cycles"] == step.cycles and found.summary["collective_waits"] == step.waits


def test_a_group_of_more_than_the_chips_is_refused():
    b = Builder()
    b.output("y", b.op("all_reduce", b.input("x", (4,)), size=8)[0])
    assert populus.compile(b.module(), target="gc200, chips=8", tiles=2).profile().target.chips == 8
    with pytest.raises(PopulusError, match="8 replicas meet, and gc200 has 4 chips"):
        populus.compile(b.module(), target="gc200, chips=4", tiles=2).profile()


def test_collectives_are_no_calls_of_the_host():
    made = program(("all_reduce", {"size": 1}))
    assert made.host_calls == []
    assert [op.sym_name.data for op in made.module("popart").walk() if isinstance(op, FuncOp)] == ["main"]


UNARY = ("relu", "neg", "tanh", "abs")
MEETINGS = [
    ("all_reduce", {"size": 4}),
    ("all_reduce", {"size": 2, "stride": 2, "reduction": "max"}),
    ("broadcast", {"size": 2, "root": 1}),
    ("all_to_all", {"size": 2}),
    ("barrier", {"size": 4}),
]


@pytest.mark.parametrize("seed", range(6))
def test_levels_agree_on_random_programs_with_collectives_between(seed):
    """Maps, products and collectives that read any earlier value; half of them inside a graph that runs twice."""
    g = np.random.default_rng(seed)

    def grown(b, values, count):
        for _ in range(count):
            a, c = (values[g.integers(len(values))] for _ in range(2))
            kind = g.integers(4)
            if kind == 0:
                values.append(b.op(UNARY[g.integers(len(UNARY))], a)[0])
            elif kind == 1:
                values.append(b.op("matmul" if g.integers(2) else "sub", a, c)[0])
            else:
                op, properties = MEETINGS[g.integers(len(MEETINGS))]
                values.append(b.op(op, a, **properties)[0])
        return values

    with Builder("twice") as twice:
        twice.output("y", twice.op("tanh", grown(twice, [twice.input("x", (4, 4))], 4)[-1])[0])
    b = Builder()
    values = grown(b, [b.input("x", (4, 4))], 4)
    values = grown(b, [*values, *b.call(twice, b.op("tanh", values[-1])[0], times=2)], 4)
    b.output("y", b.op("tanh", values[-1])[0])
    b.output("z", values[len(values) // 2])
    replicas = Replicas(populus.compile(b.module(), target="gc200", tiles=4), COUNT)
    given = [{"x": g.normal(size=(4, 4)).astype(np.float32)} for _ in range(COUNT)]
    wanted = replicas.run_at("popart", given)
    for found, expected in zip(replicas.run(given), wanted):
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=2e-5)
