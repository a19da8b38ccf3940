"""Programs as passes and engines once had them wrong: a proof names the element that differs."""

from __future__ import annotations

import pytest
from xdsl.parser import Parser

from populus.dialects.table import context
from populus.proof.equivalence import compare
from populus.proof.programs import execute
from populus.proof.report import PROVED, REFUTED, UNDECIDED
from populus.proof.terms import Terms

CONV = """
func.func @main(%x: tensor<1x4x6xf32>, %w: tensor<4x2x2xf32>) -> tensor<1x4x5xf32>
    attributes {input_names = ["x", "w"], output_names = ["y"]} {
  %c = poplin.convolution %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 2 : i64}
    : (tensor<1x4x6xf32>, tensor<4x2x2xf32>) -> tensor<1x4x5xf32>
  func.return %c : tensor<1x4x5xf32>
}
"""
CONV_TILES = """
poplar.graph @main target <host, tiles = 2> {
  %y = poplar.var "y" on [1, 4 in 2, 5] order [1] : !poplar.tensor<1x4x5xf32>
  %x = poplar.var "x" on [1, 4 in 2, 6] order [1] : !poplar.tensor<1x4x6xf32>
  %w = poplar.var "w" on [4 in 2, 2, 2] order [0] : !poplar.tensor<4x2x2xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<1x4x6xf32>
  poplar.stream_in "w" to %w : !poplar.tensor<4x2x2xf32>
  %last = poplar.dim_shuffle %x[0, 2, 1] : !poplar.tensor<1x4x6xf32> -> !poplar.tensor<1x6x4xf32>
  %flat = poplar.reshape %last : !poplar.tensor<1x6x4xf32> -> !poplar.tensor<24xf32>
  poplar.execute "c" {
    poplar.family @conv for (b = 1, g = 2 in 2, oc = 2, ic = 2, o0 = 5, k0 = 2) on (g)
      in x = %flat[o0 * 4 + k0 * 4 + g * 2 + ic] : !poplar.tensor<24xf32>
      in w = %w[g * 2 + oc, ic, k0] : !poplar.tensor<4x2x2xf32>
      out y = %y[b, g * 2 + oc, o0] : !poplar.tensor<1x4x5xf32>
  }
  poplar.stream_out %y to "y" : !poplar.tensor<1x4x5xf32>
}
"""
CRELU = """
func.func @main(%x: tensor<4xf32>) -> tensor<8xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %a = popops.map <mul(_1, 3.0)>(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %r = popops.map <max(_1, 0.0)>(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %y = popops.concat %a, %r {dim = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}
"""
CRELU_TILES = """
poplar.graph @main target <host, tiles = 2> {
  %y = poplar.var "y" on [8 in 2] : !poplar.tensor<8xf32>
  %x = poplar.var "x" on [4 in 2] : !poplar.tensor<4xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<4xf32>
  %a = poplar.slice %y[0:4] : !poplar.tensor<8xf32> -> !poplar.tensor<4xf32>
  %r = poplar.slice %y[4:8] : !poplar.tensor<8xf32> -> !poplar.tensor<4xf32>
  poplar.execute "a" {
    poplar.family @map {expr = #expr.fn<mul(_1, 3.0)>} for (d0 = 4 in 2) on (d0)
      in x1 = %x[d0] : !poplar.tensor<4xf32>
      out y = %a[d0] : !poplar.tensor<4xf32>
  }
  poplar.execute "r" {
    poplar.family @map {expr = #expr.fn<max(_1, 0.0)>} for (d0 = 4 in 2) on (d0)
      in x1 = %a[d0] : !poplar.tensor<4xf32>
      out y = %r[d0] : !poplar.tensor<4xf32>
  }
  poplar.stream_out %y to "y" : !poplar.tensor<8xf32>
}
"""
POOL = """
func.func @main(%x: tensor<1x1x6xf32>) -> tensor<1x1x3xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %f = popops.slice %x {begins = array<i64: 0, 0, 5>, ends = array<i64: 1, 1, -1>, steps = array<i64: 1, 1, -1>}
    : (tensor<1x1x6xf32>) -> tensor<1x1x6xf32>
  %y = popnn.pool %f {kind = "max", kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 0, 0>, dilations = array<i64: 1>}
    : (tensor<1x1x6xf32>) -> tensor<1x1x3xf32>
  func.return %y : tensor<1x1x3xf32>
}
"""
POOL_TILES = """
poplar.graph @main target <host, tiles = 1> {
  %y = poplar.var "y" on [1, 1, 3] : !poplar.tensor<1x1x3xf32>
  %x = poplar.var "x" on [1, 1, 6] : !poplar.tensor<1x1x6xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<1x1x6xf32>
  %f = poplar.slice %x[0:1, 0:1, 5:-1:-1] : !poplar.tensor<1x1x6xf32> -> !poplar.tensor<1x1x6xf32>
  poplar.execute "p" {
    poplar.family @pool {kind = "max"} for (n = 1, c = 1, o0 = 3, k0 = 2)
      in x = %f[n, c, o0 * 2 + k0] : !poplar.tensor<1x1x6xf32>
      out y = %y[n, c, o0] : !poplar.tensor<1x1x3xf32>
  }
  poplar.stream_out %y to "y" : !poplar.tensor<1x1x3xf32>
}
"""
SCALED = """
func.func @main(%x: tensor<2x3x3xf32>) -> tensor<2x3x3xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %w = data.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 10.0]]> : tensor<3x3xf32>
  %s = data.constant dense<[[2.0], [3.0], [4.0]]> : tensor<3x1xf32>
  %m = popart.matmul %x, %w : (tensor<2x3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x3xf32>
  %y = popart.mul %m, %s : (tensor<2x3x3xf32>, tensor<3x1xf32>) -> tensor<2x3x3xf32>
  func.return %y : tensor<2x3x3xf32>
}
"""
INTO_WEIGHTS = """
func.func @main(%x: tensor<2x3x3xf32>) -> tensor<2x3x3xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %w = data.constant dense<[[2.0, 6.0, 12.0], [8.0, 15.0, 24.0], [14.0, 24.0, 40.0]]> : tensor<3x3xf32>
  %y = popart.matmul %x, %w : (tensor<2x3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x3xf32>
  func.return %y : tensor<2x3x3xf32>
}
"""
OF_COLUMNS = SCALED.replace("[[2.0], [3.0], [4.0]]", "[[2.0, 3.0, 4.0]]").replace("3x1xf32", "1x3xf32")
SLICES = """
func.func @main(%x: tensor<7xf32>) -> tensor<7xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %a = popart.slice %x {begins = array<i64: 3>, ends = array<i64: 0>, steps = array<i64: 1>} : (tensor<7xf32>) -> tensor<0xf32>
  %b = popart.slice %x {begins = array<i64: 0>, ends = array<i64: 2>, steps = array<i64: 1>} : (tensor<7xf32>) -> tensor<2xf32>
  %c = popart.slice %x {begins = array<i64: 0>, ends = array<i64: 5>, steps = array<i64: 1>} : (tensor<7xf32>) -> tensor<5xf32>
  %y = popart.concat %a, %b, %c {axis = 0 : i64} : (tensor<0xf32>, tensor<2xf32>, tensor<5xf32>) -> tensor<7xf32>
  func.return %y : tensor<7xf32>
}
"""
MERGED = """
func.func @main(%x: tensor<7xf32>) -> tensor<5xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %c = popart.slice %x {begins = array<i64: 0>, ends = array<i64: 5>, steps = array<i64: 1>} : (tensor<7xf32>) -> tensor<5xf32>
  func.return %c : tensor<5xf32>
}
"""
WITHOUT_THE_EMPTY = SLICES.replace("concat %a, %b, %c", "concat %b, %c").replace("(tensor<0xf32>, ", "(")

CHOSEN = """
func.func @main(%x: tensor<4xf32>, %c: tensor<i32>) -> tensor<4xf32> attributes {input_names = ["x", "c"], output_names = ["y"]} {
  %y = popops.map <select(mul(_1, 2.0), select(mul(_1, 5.0), _1, equal(_2, -4)), equal(_2, 1))>(%x, %c)
    : (tensor<4xf32>, tensor<i32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
"""
CHOSEN_TILES = """
poplar.graph @main target <host, tiles = 2> {
  %x = poplar.var "x" on [4 in 2] : !poplar.tensor<4xf32>
  %c = poplar.var "c" : !poplar.tensor<i32>
  poplar.stream_in "x" to %x : !poplar.tensor<4xf32>
  poplar.stream_in "c" to %c : !poplar.tensor<i32>
  poplar.switch %c : !poplar.tensor<i32> case 1 {
    poplar.execute "twice" {
      poplar.family @map {expr = #expr.fn<mul(_1, 2.0)>} for (d0 = 4 in 2) on (d0)
        in x1 = %x[d0] : !poplar.tensor<4xf32>
        out y = %x[d0] : !poplar.tensor<4xf32>
    }
  } case -4 {
    poplar.execute "five times" {
      poplar.family @map {expr = #expr.fn<mul(_1, 5.0)>} for (d0 = 4 in 2) on (d0)
        in x1 = %x[d0] : !poplar.tensor<4xf32>
        out y = %x[d0] : !poplar.tensor<4xf32>
    }
  } default {
  }
  poplar.stream_out %x to "y" : !poplar.tensor<4xf32>
}
"""
REDUCED = """
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %r = gcl.all_reduce %x {reduction = "add", stride = 1 : i64, size = 2 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %y = popops.map <mul(_1, 0.5)>(%r) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
"""
REDUCED_TILES = """
poplar.graph @main target <host, tiles = 2> {
  %x = poplar.var "x" on [2 in 2, 3] : !poplar.tensor<2x3xf32>
  %r = poplar.var "r" on [2, 3 in 2] : !poplar.tensor<2x3xf32>
  %y = poplar.var "y" on [2 in 2, 3] : !poplar.tensor<2x3xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<2x3xf32>
  poplar.collective "all_reduce"(%x, %r) inputs 1 params {reduction = "add", stride = 1 : i64, size = 2 : i64}
    : !poplar.tensor<2x3xf32>, !poplar.tensor<2x3xf32>
  poplar.execute "half" {
    poplar.family @map {expr = #expr.fn<mul(_1, 0.5)>} for (d0 = 2 in 2, d1 = 3) on (d0)
      in x1 = %r[d0, d1] : !poplar.tensor<2x3xf32>
      out y = %y[d0, d1] : !poplar.tensor<2x3xf32>
  }
  poplar.stream_out %y to "y" : !poplar.tensor<2x3xf32>
}
"""
DRAWN = """
func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %y = host.call "f"(%x) params {seed = 1 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %y : tensor<2x2xf32>
}
"""
DRAWN_TILES = """
poplar.graph @main target <host, tiles = 2> {
  %x = poplar.var "x" on [2 in 2, 2] : !poplar.tensor<2x2xf32>
  %r = poplar.var "r" on [2, 2 in 2] : !poplar.tensor<2x2xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<2x2xf32>
  poplar.host_call "f"(%x, %r) inputs 1 params {seed = 1 : i64} : !poplar.tensor<2x2xf32>, !poplar.tensor<2x2xf32>
  %t = poplar.dim_shuffle %r[1, 0] : !poplar.tensor<2x2xf32> -> !poplar.tensor<2x2xf32>
  poplar.stream_out %r to "y" : !poplar.tensor<2x2xf32>
}
"""

PROGRAMS = {
    "pixels of grouped convolutions lie side by side": (CONV, CONV_TILES, ("o0 * 4 + k0 * 4", "o0 + k0"), "element [0, 0, 0]"),
    "pixels of a depthwise part begin at the first channel": (CONV, CONV_TILES, ("+ g * 2 + ic]", "+ ic]"), "element [0, 3, 4]"),
    "a formula takes the place of sums that others show": (CRELU, CRELU_TILES, ("out y = %a", "out y = %r"), "[0]"),
    "rows in descending order are padding": (POOL, POOL_TILES, ("k0 = 2", "k0 = 1"), "element [0, 0, "),
    "a flip is lost before a pool": (POOL, POOL_TILES, ("5:-1:-1", "0:6"), "element [0, 0, "),
    "a case is another number": (CHOSEN, CHOSEN_TILES, ("case 1", "case 3"), "element ["),
    "a collective's result is not halved": (REDUCED, REDUCED_TILES, None, ""),
    "a function of the host": (DRAWN, DRAWN_TILES, None, ""),
    "the factor of rows moves into columns of weights": (OF_COLUMNS, INTO_WEIGHTS, None, ""),
    "an empty slice that ends before it begins is a neighbour": (SLICES, WITHOUT_THE_EMPTY, None, ""),
}
"""A program, what it becomes, the text that was wrong with what stood there, and an element that shows it."""


def outcome(before: str, after: str):
    terms = Terms()
    programs = (execute(terms, Parser(context(), text).parse_module()) for text in (before, after))
    return compare(terms, *programs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_as_it_is_now_is_proved(name):
    before, after, _, _ = PROGRAMS[name]
    report = outcome(before, after)
    assert report.verdict == PROVED, report


@pytest.mark.parametrize("name", [name for name, (_, _, planted, _) in PROGRAMS.items() if planted])
def test_the_program_as_it_was_is_refuted_with_its_element(name):
    before, after, planted, element = PROGRAMS[name]
    assert planted is not None
    assert planted[0] in after
    report = outcome(before, after.replace(*planted))
    assert report.verdict == REFUTED, report
    assert any("output 'y'" in line and element in line for line in report.refuted), report


def test_a_factor_of_rows_in_the_columns_of_weights_is_refuted():
    report = outcome(SCALED, INTO_WEIGHTS)
    assert report.verdict == REFUTED
    assert "output 'y', element [" in str(report), report


def test_a_concat_that_lost_a_slice_is_refuted():
    report = outcome(SLICES, MERGED)
    assert report.verdict == REFUTED
    assert "output 'y'" in str(report), report


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        (REDUCED, REDUCED_TILES, 'reduction = "add"', 'reduction = "max"'),
        (REDUCED, REDUCED_TILES, "in x1 = %r", "in x1 = %x"),
        (DRAWN, DRAWN_TILES, "seed = 1", "seed = 2"),
        (DRAWN, DRAWN_TILES, "out %r to", "out %t to"),
        (DRAWN, DRAWN_TILES, "(%x, %r)", "(%r, %r)"),
    ],
)
def test_another_call_of_what_tiles_do_not_compute_is_not_proved(before, after, old, new):
    assert after.count(old) == 1
    assert outcome(before, after.replace(old, new)).verdict == UNDECIDED


WHOLE = """
func.func @main(%x: tensor<TYPE>) -> tensor<TYPE> attributes {input_names = ["x"], output_names = ["y"]} {
  %y = popops.map <FORMULA>(%x) : (tensor<TYPE>) -> tensor<TYPE>
  func.return %y : tensor<TYPE>
}
"""


@pytest.mark.parametrize(
    ("formula", "element"),
    [("mul(_1, _1)", "3xi32"), ("mul(_1, _1)", "ui8"), ("max(_1, 0)", "1xi8"), ("abs(_1)", "i64"), ("min(_1, 1)", "i32")],
)
def test_integers_beyond_a_bit_are_drawn(formula, element):
    program = WHOLE.replace("TYPE", element)
    report = outcome(program.replace("FORMULA", "max(_1, _1)"), program.replace("FORMULA", formula))
    assert report.verdict == REFUTED, report


def test_a_program_that_passes_texts_on_is_proved():
    program = WHOLE.replace("TYPE", "2x!onnx.string").replace(
        "  %y = popops.map <FORMULA>(%x) : (tensor<2x!onnx.string>) -> tensor<2x!onnx.string>\n", ""
    )
    program = program.replace("%y", "%x")
    assert outcome(program, program).verdict == PROVED
