"""The predicted cost of whole programs."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import f32
from xdsl.ir import Operation

from populus.dialects.poplar import GraphOp
from populus.dialects.poplar.program import GUESSED_TURNS
from populus.dialects.poplar.target import PRESETS
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.runtime.cycles import Products, contraction, reduce_cycles
from populus.runtime.cycles.ipu import elementwise
from populus.runtime.profile import Profile, profile

GC200 = PRESETS["gc200"]


def of(body: str, target: str = "gc200, tiles = 16") -> Profile:
    module = parse_text(context(), f"poplar.graph @main target <{target}> {{\n{body}\n}}", "test.mlir")
    graph = module.body.block.first_op
    assert isinstance(graph, GraphOp)
    return profile(graph)


VARIABLES = """
  %x = poplar.var "x" on [1, 64 in 2, 58] order [1] : !poplar.tensor<1x64x58xf32>
  %w = poplar.const "w" dense<0.5> : tensor<64x64x3xf32> on [64 in 8 by 8, 64 in 2, 3] order [0, 1] : !poplar.tensor<64x64x3xf32>
  %p = poplar.var "p" on [2 in 2, 1, 64 in 8 by 8, 56] order [2, 0] : !poplar.tensor<2x1x64x56xf32>
  %y = poplar.var "y" on [1, 64 in 16, 56] order [1] : !poplar.tensor<1x64x56xf32>
"""
CONV = """
  poplar.execute "conv" {
    poplar.family @conv for (b = 1, oc = 64 in 8 by 8, ic = 64 in 2, o0 = 56, k0 = 3) on (oc, ic)
      in x = %x[b, ic, o0 + k0] : !poplar.tensor<1x64x58xf32>
      in w = %w[oc, ic, k0] : !poplar.tensor<64x64x3xf32>
      out y = %p[at ic, b, oc, o0] : !poplar.tensor<2x1x64x56xf32>
  }
"""
REDUCE = """
  poplar.execute "reduce" {
    poplar.family @reduce {op = "add"} for (r = 2, d0 = 1, d1 = 64 in 16, d2 = 56) on (d1)
      in x = %p[r, d0, d1, d2] : !poplar.tensor<2x1x64x56xf32>
      out y = %y[d0, d1, d2] : !poplar.tensor<1x64x56xf32>
  }
"""
RELU = """
  poplar.execute "relu" {
    poplar.family @map {expr = #expr.fn<max(_1, 0.0)>} for (d0 = 1, d1 = 64 in 16, d2 = 56) on (d1)
      inout x1 = %y[d0, d1, d2] : !poplar.tensor<1x64x56xf32>
  }
"""


def test_a_convolution_with_partials_costs_what_its_phases_do():
    found = of(VARIABLES + CONV + REDUCE + RELU)
    conv, reduce, relu = found.steps
    # Every vertex has half of x: 32 x 58; tiles 0 and 1 own one half each, so tile 0 has its own, and its 15 neighbours bring theirs.
    half = 32 * 58 * 4
    assert conv.bytes == (16 - 2) * half
    assert conv.exchange == GC200.exchange_setup_cycles + half // 4
    assert conv.compute == contraction(Products(1, 1, 56, 8, 32, 3, f32, GC200)) + GC200.product_start_cycles
    assert conv.sync == 2 * GC200.sync_cycles
    assert conv.flops == 2 * 64 * 64 * 56 * 3
    # Tile t has channels 4t .. 4t + 3 of y, of which tiles 2 (t // 2) and the next own partials: one set of its two is there already.
    assert reduce.bytes == 16 * 4 * 56 * 4
    assert reduce.compute == reduce_cycles(4 * 56, 2, f32, GC200) + GC200.vertex_start_cycles
    assert (relu.bytes, relu.exchange, relu.sync) == (0, 0, GC200.sync_cycles)
    assert relu.compute == elementwise.broadcast_scalar(4 * 56, "max", f32, GC200) + GC200.vertex_start_cycles
    assert found.summary["cycles"] == sum(s.cycles for s in found.steps)
    assert found.summary["flops"] == 2 * 64 * 64 * 56 * 3 + 2 * 64 * 56 + 64 * 56


def test_the_summary_has_what_reports_ask_for():
    summary = of(VARIABLES + CONV + REDUCE + RELU).summary
    assert list(summary)[:11] == [
        "poplar_ops", "compute_sets", "exchange_bytes", "peak_tile_bytes", "cycles", "compute_cycles", "exchange_cycles",
        "sync_cycles", "flops", "utilisation", "fits",
    ]  # fmt: skip
    assert summary["poplar_ops"] == 4 + 3 * 2
    assert summary["compute_sets"] == 3
    assert summary["tiles_used"] == 16
    assert summary["fits"] is True
    assert 0 < summary["utilisation"] < 1
    assert summary["cycles"] == summary["compute_cycles"] + summary["exchange_cycles"] + summary["sync_cycles"]


def test_a_repeat_counts_its_body_as_often_as_it_runs():
    once, often = of(VARIABLES + RELU).summary, of(VARIABLES + "poplar.repeat 5 { poplar.repeat 2 {" + RELU + "} }").summary
    assert often["cycles"] == 10 * once["cycles"]
    assert often["compute_sets"] == once["compute_sets"] == 1
    assert of(VARIABLES + "poplar.repeat 0 {" + RELU + "}").summary["cycles"] == 0


def test_a_function_counts_where_it_is_called():
    body = "poplar.call @f poplar.call @f poplar.func @f {" + RELU + "}"
    assert of(VARIABLES + body).summary["cycles"] == 2 * of(VARIABLES + RELU).summary["cycles"]
    assert of(VARIABLES + body).summary["compute_sets"] == 1


def test_a_call_copies_its_arguments_on_their_tiles_or_to_others():
    on, type = "on [64 in 4] order [0]", ": !poplar.tensor<64xf32>"
    function = (
        f'poplar.func @f {{ %p = poplar.param in "p" {on} {type}\n%q = poplar.param out "q" {on} {type}\npoplar.copy %p to %q {type} }}\n'
    )
    for start, moved in (("", 0), (" start 1", 256)):
        variables = "".join(f'%{name} = poplar.var "{name}" {on}{start} {type}\n' for name in "ab")
        found = of(variables + function + f"poplar.call @f(%a, %b) {type}, !poplar.tensor<64xf32>\n").steps
        assert [(s.kind, s.label, s.bytes) for s in found] == [("call", "f (in)", moved), ("copy", "q", 0), ("call", "f (out)", moved)]
        assert [s.compute for s in found] == [20 + 64 // 8] * 3  # 64 bytes a tile, 8 a cycle


def test_of_branches_the_dearest_counts_and_the_others_are_named():
    predicate = '%c = poplar.var "c" on [1] : !poplar.tensor<1xi1>\n'
    found = of(VARIABLES + predicate + "poplar.if %c : !poplar.tensor<1xi1> {" + RELU + "} else {" + CONV + "}")
    assert [s.label for s in found.steps] == ["conv"]
    assert found.branches == [("test.mlir:8:1", of(VARIABLES + RELU).summary["cycles"])]
    control = '%s = poplar.var "s" on [1] : !poplar.tensor<1xi32>\n'
    switch = "poplar.switch %s : !poplar.tensor<1xi32> case 1 {" + RELU + "} case 2 {" + REDUCE + "} default {" + CONV + "}"
    assert [s.label for s in of(VARIABLES + control + switch).steps] == ["conv"]


def test_of_a_while_as_many_passes_count_as_there_may_be_or_a_guess_that_is_marked():
    predicate = '%c = poplar.var "c" on [1] : !poplar.tensor<1xi1>\n'
    loop = "poplar.while %c : !poplar.tensor<1xi1> before {" + RELU + "} do {" + REDUCE + "}"
    guessed = of(VARIABLES + predicate + CONV + loop)
    found = [(s.label, s.count, s.guessed) for s in guessed.steps]
    assert found == [("conv", 1, False), ("relu", GUESSED_TURNS, True), ("reduce", GUESSED_TURNS, True)]
    assert guessed.summary["guessed_cycles"] == GUESSED_TURNS * sum(s.cycles for s in guessed.steps[1:])
    bounded = of(VARIABLES + predicate + loop.replace(" before", " most 7 before"))
    assert [(s.label, s.count, s.guessed) for s in bounded.steps] == [("relu", 7, False), ("reduce", 7, False)]
    assert "guessed_cycles" not in bounded.summary


def test_a_copy_within_a_tile_exchanges_nothing():
    same = '%z = poplar.var "z" on [1, 64 in 16, 56] order [1] : !poplar.tensor<1x64x56xf32>\n'
    (step,) = of(VARIABLES + same + "poplar.copy %y to %z : !poplar.tensor<1x64x56xf32>").steps
    assert (step.label, step.kind, step.bytes, step.exchange) == ("z", "copy", 0, 0)
    assert step.compute == 20 + 4 * 56 * 4 // GC200.copy_bytes
    (moved,) = of(VARIABLES + same.replace("order [1]", "order [1] start 1") + "poplar.copy %y to %z : !poplar.tensor<1x64x56xf32>").steps
    assert moved.bytes == 64 * 56 * 4
    assert moved.exchange == GC200.exchange_setup_cycles + 4 * 56


def test_families_of_one_execute_share_tiles_one_after_the_other():
    low = "%low = poplar.slice %y[0:1, 0:32, 0:56] : !poplar.tensor<1x64x56xf32> -> !poplar.tensor<1x32x56xf32>\n"
    high = "%high = poplar.slice %y[0:1, 32:64, 0:56] : !poplar.tensor<1x64x56xf32> -> !poplar.tensor<1x32x56xf32>\n"
    space = "(a = 1, b = 32 in 8, c = 56) on (b)"
    fill = f"poplar.family @fill {{{{value = 0.0 : f32}}}} for {space}{{}} out y = %{{}}[a, b, c] : !poplar.tensor<1x32x56xf32>\n"
    apart = of(VARIABLES + low + high + 'poplar.execute "e" {' + fill.format("", "low") + fill.format(" start 8", "high") + "}").steps[0]
    shared = of(VARIABLES + low + high + 'poplar.execute "e" {' + fill.format("", "low") + fill.format("", "high") + "}").steps[0]
    one = elementwise.fill(4 * 56, f32, GC200) + GC200.vertex_start_cycles
    assert apart.compute == one
    assert shared.compute == 2 * one
    assert apart.bytes == 0
    assert shared.bytes == 32 * 56 * 4
    assert shared.codelets == ("fill",)


def test_the_host_is_counted_in_bytes_only():
    stream = 'poplar.stream_in "x" to %x : !poplar.tensor<1x64x58xf32>\npoplar.stream_out %y to "y" : !poplar.tensor<1x64x56xf32>\n'
    types = "(!poplar.tensor<1x64x58xf32>, !poplar.tensor<1x64x56xf32>) -> ()"
    call = f'"poplar.host_call"(%x, %y) <{{function = "unique", inputs = 1 : i64}}> : {types}\n'
    found = of(VARIABLES + stream + call)
    assert [(s.kind, s.label) for s in found.steps] == [("stream_in", "x"), ("stream_out", "y"), ("host_call", "unique")]
    assert found.summary["host_bytes"] == 2 * (64 * 58 + 64 * 56) * 4
    assert found.summary["exchange_bytes"] == 0


def test_faster_machines_take_fewer_cycles():
    program = VARIABLES + CONV + REDUCE + RELU
    slow = of(program).summary
    assert of(program, "gc200, tiles = 16, exchange_bytes = 8").summary["exchange_cycles"] < slow["exchange_cycles"]
    assert of(program, "gc200, tiles = 16, sync_cycles = 0").summary["sync_cycles"] == 0
    assert of(program, "gc2, tiles = 16, conv_units = 4").summary["compute_cycles"] > slow["compute_cycles"]
    assert of(program, "gc200, tiles = 16, tile_bytes = 5000").summary["fits"] is False


def test_fields_with_only_a_bound_are_counted(monkeypatch):
    monkeypatch.setattr(Operation, "verify", lambda self, verify_nested_ops=True: None)  # no form has an axis in two dimensions
    body = """
      %a = poplar.var "a" on [8, 8 in 4] order [1] start 1 : !poplar.tensor<8x8xf32>
      %b = poplar.var "b" on [8 in 4] order [0] : !poplar.tensor<8xf32>
      poplar.execute "diagonal" {
        poplar.family @reduce {op = "add"} for (d0 = 8 in 4, r = 1) on (d0)
          in x = %a[d0, d0 + r] : !poplar.tensor<8x8xf32>
          out y = %b[d0] : !poplar.tensor<8xf32>
      }
    """
    found = of(body)
    assert found.summary["bounded_fields"] == 1
    assert found.steps[0].bytes == 4 * 2 * 2 * 4  # received: exact even so


def test_a_variable_without_layout_is_refused():
    with pytest.raises(PopulusError, match="'y' is on no tile"):
        of('%y = poplar.var "y" : !poplar.tensor<1x64x56xf32>\n' + RELU)
