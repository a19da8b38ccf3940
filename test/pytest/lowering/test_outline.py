"""Outlining: repeats against all pairs of places, and programs with and without functions on every level and engine."""

from __future__ import annotations

import random

import numpy as np
import pytest
from onnx import TensorProto, helper
from xdsl.dialects.func import CallOp

import populus
from benchmarks.models import Graph, transformer
from helpers.random_programs import Calls, inlined
from populus.compare.levels import compare_levels
from populus.dialects import poplar
from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import verify
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.outline import PopartOutlinePass
from populus.lowering.popart.outline.op_sequence import Listing, Stretch
from populus.lowering.popart.outline.suffix_array import apart, repeats
from populus.runtime.engine.native.run.constants import Constants
from populus.runtime.interpreter import run_function
from populus.runtime.session import Session


@pytest.mark.parametrize("seed", range(30))
def test_repeats_are_all_that_occur_twice_and_cannot_be_longer(seed: int):
    rng = random.Random(seed)
    letters = [rng.randrange(rng.choice([1, 2, 3, 20])) for _ in range(rng.randint(0, 40))]
    n = len(letters)
    places: dict[tuple[int, ...], list[int]] = {}
    for length in range(1, n):
        for begin in range(n - length + 1):
            places.setdefault(tuple(letters[begin : begin + length]), []).append(begin)

    def longer(begins: list[int], length: int) -> bool:
        """Whether every occurrence goes on with the same letter."""
        return len({letters[b + length] if b + length < n else None for b in begins}) == 1

    expected = sorted((len(word), begins) for word, begins in places.items() if len(begins) > 1 and not longer(begins, len(word)))
    assert sorted(repeats(letters)) == expected


def test_places_that_are_apart():
    assert apart([0, 2, 3, 5, 9], 3) == [0, 3, 9]


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 6, 7, 8, 9])
def test_random_programs_compute_the_same_outlined(seed: int):
    module = inlined(Calls(seed).module())
    function = main_of(module)
    inputs = populus.compile(module, level="popops").signature.random(seed)
    expected = run_function(module, inputs)
    PopartOutlinePass(threshold=0.0, break_cost=0.0).apply(context(), module)
    verify(module)
    assert any(isinstance(op, CallOp) for op in function.walk())
    found = run_function(module, inputs)
    assert all(found[name].tobytes() == e.tobytes() for name, e in expected.items())
    tiles, target = random.Random(seed).choice([(1, "host"), (4, "gc200"), (64, "gc200")])
    Pipeline.named("inference").from_level("popops").with_defaults(target=target, tiles=tiles).run(context(), module, verify_each=True)
    for engine in ("numpy", "strict", "native"):
        found = Session(module, engine).run(inputs)
        for name, e in expected.items():
            scale = max(float(np.abs(e[np.isfinite(e)]).max(initial=0)), 1e-6)
            np.testing.assert_allclose(found[name] / scale, e / scale, rtol=0, atol=2e-5, err_msg=f"{name} {engine}")


def test_levels_are_compared_where_an_op_has_one_result():
    program = populus.compile(transformer(layers=3, sequence=4, hidden=8, heads=2, feed_forward=16), tiles=4)
    found = list(compare_levels(program, program.signature.random()))
    assert [(c.level, c.first) for c in found] == [("popart", None), ("popops", None), ("poplar", None)]


@pytest.mark.parametrize("causal", [False, True])
def test_twelve_layers_are_one_that_is_called_twelve_times(causal: bool):
    model = transformer(layers=12, sequence=4, hidden=8, heads=2, feed_forward=16, causal=causal)
    # Machine code adds the products in one order; a BLAS does that in an order of the shapes, which layouts may change.
    outlined = populus.compile(model, target="gc200", tiles=16, engine="native")
    without = Pipeline.named("inference").remove("popart-outline")
    plain = populus.compile(model, target="gc200", tiles=16, engine="native", pipeline=without)
    for level, call in (("popart", CallOp), ("popops", CallOp), ("poplar", poplar.CallOp)):
        module = outlined.module(level)
        calls = [op for op in module.walk() if isinstance(op, call)]
        assert len(calls) == 12
        assert len({str(op.properties["callee"]) for op in calls}) == 1
    inputs = plain.signature.random()
    for level in ("popart", "popops", "poplar"):
        for name, expected in plain.run_at(level, inputs).items():
            assert outlined.run_at(level, inputs)[name].tobytes() == expected.tobytes()
    strict = Session(outlined.module("poplar"), "strict").run(inputs)
    np.testing.assert_allclose(strict["y"], outlined.run(inputs)["y"], rtol=0, atol=2e-6)
    few, many = (p.profile().summary for p in (outlined, plain))
    assert few["compute_sets"] * 10 < many["compute_sets"]


def test_a_call_that_is_bound_releases_the_constants_that_it_alone_reads(monkeypatch: pytest.MonkeyPatch):
    g, x = Graph(), "x"
    for _ in range(18):
        x = g.op("Add", g.op("Softmax", g.op("MatMul", x, g.weight(256, 256))), x)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 256]) for name in ("x", x)]
    graph = helper.make_graph(g.nodes, "layers", infos[:1], infos[1:], g.initializers)
    program = populus.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tiles=4, engine="native"
    )
    calls = [op for op in program.module("poplar").walk() if isinstance(op, poplar.CallOp)]
    assert sum(value.type.shape == (256, 256) for op in calls for value in op.arguments) == 18, "each call reads its own matrices"
    left: list[int] = []
    monkeypatch.setattr(Constants, "release_all", lambda self, in_use: left.append(len(set(self._arrays) - in_use)))
    given = {"x": np.ones((4, 256), np.float32)}
    found = program.run(given)[x]
    assert left == [0]
    np.testing.assert_allclose(found, program.run_at("popops", given)[x], rtol=1e-4)


def test_an_op_with_many_operands_takes_no_memory_for_the_others():
    """The function returns n slices: one op of n operands beside n of one."""
    n = 300
    split = helper.make_node("Split", ["x"], [f"y{i}" for i in range(n)], axis=0, num_outputs=n)
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [1]) for i in range(n)]
    graph = helper.make_graph([split], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n])], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    listing = Listing([main_of(populus.compile(model, level="popart").module("popart")).body.block])
    assert len(listing) == n + 1 and listing._made.shape == (2 * n, 2)
    assert len(listing.alike([Stretch(i, 1) for i in range(n)])) == 1
