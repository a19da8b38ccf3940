"""Planted faults, one for each rule: the strict engine names the execute, the vertices and the variable."""

from dataclasses import replace

import numpy as np
import pytest

from populus.dialects.poplar import compute
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.runtime import codelets
from populus.runtime.codelets.map import map as map_kernel
from populus.runtime.session import Session

ONE = "exp(_1)"


@pytest.fixture(autouse=True)
def unverified(monkeypatch):
    """Lets faults past the verifier, which refuses most of them."""
    from xdsl.ir import Operation

    monkeypatch.setattr(Operation, "verify", lambda self, verify_nested_ops=True: None)


def session(text, engine="strict", target="host, tiles = 64", **options):
    module = LocatingParser(context(), f"poplar.graph @main target <{target}> {{\n{text}\n}}", "faulty.mlir").parse_module()
    return Session(module, engine, **options)


def refusal(text, **inputs):
    with pytest.raises(PopulusError) as caught:
        session(text).run(inputs)
    return str(caught.value)


STREAMED = """
  %x = poplar.var "x" : !poplar.tensor<64xf32>
  %y = poplar.var "y" : !poplar.tensor<64xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<64xf32>
"""
X = np.arange(64, dtype="f4")


def families(*fields, domain="r = 64 in 8", label="step", codelet=f"@map {{expr = #expr.fn<{ONE}>}}"):
    """An execute of one family for each list of fields."""
    parts = ", ".join([domain.split("=")[0].strip()])
    body = "\n".join(f"poplar.family {codelet} for ({domain}) on ({parts})\n{f}" for f in fields)
    return f'poplar.execute "{label}" {{ {body} }}'


V = ": !poplar.tensor<64xf32>"


def test_a_cut_axis_that_selects_no_part_of_the_output():
    fields = f"in x1 = %x[r] {V}\nout y = %y[*] {V}"
    text = STREAMED + families(fields.replace("%x[r]", "%x[*]"))
    message = refusal(text, x=X)
    assert "faulty.mlir:" in message
    assert "execute 'step', @map: vertex" in message
    assert "both write 64 elements of 'y' (y)" in message


@pytest.mark.parametrize("seed", range(4))
def test_two_vertices_that_write_one_element_are_found_in_any_order(seed):
    text = STREAMED + families(f"in x1 = %x[*] {V}\nout y = %y[*] {V}", domain="r = 64 in 2")
    with pytest.raises(PopulusError, match=r"vertex 0 \(tile 0\) and vertex 1 \(tile 1\) both write 64"):
        session(text, seed=seed).run({"x": X})


def test_overlapping_windows_of_an_output():
    text = STREAMED + families(f"in x1 = %x[r + k] {V}\nout y = %y[r + k] {V}").replace("(r = 64 in 8)", "(r = 62 in 8, k = 3)")
    message = refusal(text, x=X)
    assert "both write 2 elements of 'y' (y)" in message


def test_a_read_of_a_neighbours_rows_of_the_variable_that_is_written():
    text = STREAMED + families(f"in x1 = %x[r + 1] {V}\nout y = %x[r] {V}", domain="r = 63 in 7")
    message = refusal(text, x=X)
    assert "reads 1 element of 'x' (x1) that vertex" in message
    assert "writes in the same execute" in message


def test_an_access_out_of_bounds():
    text = STREAMED + families(f"in x1 = %x[r + 1] {V}\nout y = %y[r] {V}")
    assert "vertex 7 (tile 7): x1: [r + 1] reaches 1..65 of 0..64, in 'x'" in refusal(text, x=X)


def test_a_read_of_what_another_tile_writes():
    two = families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}", f"in x1 = %y[r] {V}\nout y = %z[r] {V}")
    at = two.rindex("on (r)") + len("on (r)")
    text = '%z = poplar.var "z" : !poplar.tensor<64xf32>' + STREAMED + two[:at] + " start 1" + two[at:]
    message = refusal(text, x=X)
    assert "'y'" in message
    assert "nothing wrote" in message  # what it reads is what was there before
    message = refusal(text.replace("poplar.execute", f"poplar.copy %x to %y {V}\npoplar.execute"), x=X)
    assert "of 'y' (x1) that vertex" in message
    assert "of family 0, @map, writes in the same execute" in message


def test_a_family_goes_on_with_what_its_own_tile_wrote():
    two = families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}", f"inout x1 = %y[r] {V}", codelet="@map {expr = #expr.fn<square(_1)>}")
    for engine in ("strict", "numpy", "native"):
        assert np.array_equal(session(STREAMED + two + f'\npoplar.stream_out %y to "y" {V}', engine).run({"x": X})["y"], X**4)


def test_a_static_rule_that_lets_tiles_meet_is_caught(monkeypatch):
    monkeypatch.setattr(compute, "image", lambda *_: "the same")
    two = families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}", f"inout x1 = %y[r] {V}")
    at = two.rindex("on (r)") + len("on (r)")
    assert "touches 8 elements of 'y' (x1) that tile" in refusal(STREAMED + two[:at] + " start 1" + two[at:], x=X)


def test_two_families_that_write_one_element():
    text = STREAMED + families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}", f"in x1 = %x[r] {V}\nout y = %y[r] {V}")
    assert "@map, both write 8 elements of 'y' (y)" in refusal(text, x=X)


def test_input_and_output_in_one_place_that_is_not_declared_inout():
    text = STREAMED + families(f"in x1 = %x[r] {V}\nout y = %x[r] {V}")
    message = refusal(text, x=X)
    assert "reads 8 elements of 'x' (x1) that it writes itself; a field that is both is inout" in message


def test_inout_is_one_place_that_is_read_and_written():
    text = STREAMED + families(f"inout x1 = %x[r] {V}") + f'\npoplar.stream_out %x to "y" {V}'
    assert session(text).run({"x": X})["y"].tobytes() == session(text, "numpy").run({"x": X})["y"].tobytes()


def test_a_kernel_that_writes_its_input(monkeypatch):
    def careless(task):
        def run():
            task["x1"].fill(0)
            task["y"].fill(0)

        return run

    monkeypatch.setitem(codelets.IMPLEMENTATIONS, "map", replace(codelets.IMPLEMENTATIONS["map"], kernel=careless))
    text = STREAMED + families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}")
    assert "writes one of its inputs, which are read-only" in refusal(text, x=X)


@pytest.mark.parametrize("element", ["f32", "i8", "i1"])
def test_a_kernel_that_leaves_outputs_unwritten(monkeypatch, element):
    def lazy(task):
        def run():
            task["y"][:-2] = 1

        return run

    monkeypatch.setitem(codelets.IMPLEMENTATIONS, "fill", replace(codelets.IMPLEMENTATIONS["fill"], kernel=lazy))
    text = f'%y = poplar.var "y" : !poplar.tensor<64x{element}>\n'
    text += families(f"out y = %y[r] : !poplar.tensor<64x{element}>", codelet="@fill {value = 0 : i64}")
    assert "leaves 2 elements of y unwritten, in 'y'" in refusal(text)


def test_values_that_look_like_poison_are_not_accused():
    for element, value in (("ui8", 0xA5), ("i32", 0x7FE5A5A5), ("ui16", 0x7FDA)):
        text = f'%y = poplar.var "y" : !poplar.tensor<64x{element}>\n'
        text += families(f"out y = %y[r] : !poplar.tensor<64x{element}>", codelet=f"@fill {{value = {value} : i64}}")
        assert (session(text + f'\npoplar.stream_out %y to "y" : !poplar.tensor<64x{element}>').run({})["y"] == value).all()


def test_bytes_that_hold_both_patterns_of_poison_are_not_accused():
    text = (STREAMED + families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}", codelet="@map {expr = #expr.fn<_1>}")).replace("f32", "ui8")
    x = np.array([0xA5, 0x5A] * 32, np.uint8)
    assert (session(text + '\npoplar.stream_out %y to "y" : !poplar.tensor<64xui8>').run({"x": x})["y"] == x).all()


def test_a_read_of_what_nothing_wrote():
    text = STREAMED + families(f"in x1 = %y[r] {V}\nout y = %x[r] {V}")
    assert "reads 8 elements of 'y' (x1) that nothing wrote" in refusal(text, x=X)
    assert "poplar.stream_out reads 64 elements of 'y' that nothing wrote" in refusal(STREAMED + f'poplar.stream_out %y to "y" {V}', x=X)
    assert "poplar.copy reads 64 elements of 'y' that nothing wrote" in refusal(STREAMED + f"poplar.copy %y to %x {V}", x=X)


def test_what_one_run_wrote_is_not_there_in_the_next():
    text = """
      %x = poplar.var "x" : !poplar.tensor<i1>
      %y = poplar.var "y" : !poplar.tensor<i1>
      poplar.stream_in "x" to %x : !poplar.tensor<i1>
      poplar.if %x : !poplar.tensor<i1> { poplar.copy %x to %y : !poplar.tensor<i1> } else { }
      poplar.stream_out %y to "y" : !poplar.tensor<i1>
    """
    loaded = session(text)
    assert loaded.run({"x": np.array(True)})["y"].item() is True
    with pytest.raises(PopulusError, match="nothing wrote"):
        loaded.run({"x": np.array(False)})


def test_gaps_between_the_windows_of_a_stride_are_not_read():
    text = """
      %x = poplar.var "x" : !poplar.tensor<1x1x8xf32>
      %even = poplar.slice %x[0:1, 0:1, 0:8:2] : !poplar.tensor<1x1x8xf32> -> !poplar.tensor<1x1x4xf32>
      poplar.stream_in "x" to %even : !poplar.tensor<1x1x4xf32>
      %w = poplar.const "w" dense<2.0> : tensor<1x1x1xf32> : !poplar.tensor<1x1x1xf32>
      %y = poplar.var "y" : !poplar.tensor<1x1x4xf32>
      poplar.execute "conv" {
        poplar.family @conv for (b = 1, oc = 1, ic = 1, o0 = 4 in 2, k0 = 1) on (o0)
          in x = %x[b, ic, o0 * 2 + k0] : !poplar.tensor<1x1x8xf32>
          in w = %w[oc, ic, k0] : !poplar.tensor<1x1x1xf32>
          out y = %y[b, oc, o0] : !poplar.tensor<1x1x4xf32>
      }
      poplar.stream_out %y to "y" : !poplar.tensor<1x1x4xf32>
    """
    x = np.arange(4, dtype="f4").reshape(1, 1, 4)
    assert session(text).run({"x": x})["y"].tolist() == (2 * x).tolist()


def test_tiles_whose_memory_is_too_small():
    text = """
      %x = poplar.var "x" on [64 in 2] order [0] : !poplar.tensor<64xf32>
      %y = poplar.var "y" on [64 in 2] order [0] : !poplar.tensor<64xf32>
      poplar.stream_in "x" to %x : !poplar.tensor<64xf32>
    """
    aligned = text + families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}", domain="r = 64 in 2")
    session(aligned, target="host, tiles = 4, tile_bytes = 256, reserved_bytes = 0")
    with pytest.raises(PopulusError, match=r"at 'step', tile 0 holds 256 bytes \('x' 128, 'y' 128\); host has 255 a tile"):
        session(aligned, target="host, tiles = 4, tile_bytes = 255, reserved_bytes = 0")


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_vertices_changes_nothing(seed):
    text = STREAMED + families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}") + f'\npoplar.stream_out %y to "y" {V}'
    x = X / 64
    assert session(text, seed=seed).run({"x": x})["y"].tobytes() == session(text, "numpy").run({"x": x})["y"].tobytes()


def test_a_sample_finds_a_kernel_that_depends_on_the_cut(monkeypatch):
    def first_wins(task):
        run = map_kernel(task)

        def biased():
            run()
            task["y"][0] = 0

        return biased

    text = STREAMED + families(f"in x1 = %x[r] {V}\nout y = %y[r] {V}") + f'\npoplar.stream_out %y to "y" {V}'
    assert session(text, sample=8).run({"x": X / 64})["y"][1] == np.exp(X[1] / 64)
    monkeypatch.setitem(codelets.IMPLEMENTATIONS, "map", replace(codelets.IMPLEMENTATIONS["map"], kernel=first_wins))
    with pytest.raises(
        PopulusError,
        match=r"execute 'step', @map: vertex \d \(tile \d\) alone gives other values than the numpy engine for 1 elements of 'y'",
    ):
        session(text, sample=8).run({"x": X / 64})
