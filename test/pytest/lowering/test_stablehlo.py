"""Programs of StableHLO give what XLA gives; and what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest

import populus
from helpers.stablehlo_cases import CASES, Array, program
from populus.compare import xla
from populus.dialects.table import context
from populus.lowering.driver.files import read_module
from populus.lowering.stablehlo import jaxlib_reader

pytest.importorskip("jax", reason="jax has XLA, and reads the pretty form")

WRITTEN = ["after_all", "create_token", "custom_call", "get_dimension_size", "optimization_barrier", "partition_id", "replica_id"]


def results(text: str, arrays: list[Array], tmp_path, **options) -> list[Array]:
    """Compiles the text and runs it."""
    path = tmp_path / "program.mlir"
    path.write_text(text)
    compiled = populus.compile(path, engine="strict", cache=False, **options)
    return list(compiled.run(dict(zip(compiled.signature.inputs, arrays))).values())


@pytest.mark.parametrize("name", CASES)
def test_a_program_gives_what_xla_gives(name, tmp_path):
    body, arrays = CASES[name]
    text = program(body, arrays)
    found, wanted = results(text, arrays, tmp_path, tiles=4), xla.run(text, arrays)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "iub":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-2 if name.endswith("bf16") else 2e-5, atol=1e-6)


def refusal(text: str, tmp_path) -> str:
    path = tmp_path / "program.mlir"
    path.write_text(text)
    with pytest.raises(populus.PopulusError) as error:
        populus.compile(path, cache=False)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(str(path), "FILE")


def one_op(op: str, type: str = "tensor<2xf32>") -> str:
    return f"func.func @main(%a: {type}) -> {type} {{\n%0 = {op} : {type}\nreturn %0 : {type}\n}}\n"


def test_an_unknown_op_is_refused_with_its_place(tmp_path):
    found = refusal(one_op("stablehlo.abbs %a"), tmp_path)
    assert found.startswith("FILE:2:") and "stablehlo.abbs" in found


def test_a_shape_that_does_not_follow_is_refused_with_its_place(tmp_path):
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> {\n%0 = stablehlo.reshape %a : (tensor<2xf32>) -> tensor<3xf32>\n"
    found = refusal(text + "return %0 : tensor<3xf32>\n}\n", tmp_path)
    assert found.startswith("FILE:2:") and "2" in found


REDUCED = """func.func @main(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.reduce"(%x, %i) <{dimensions = array<i64: 0>}> ({
  ^bb0(ARGUMENTS):
    %1 = "stablehlo.add"(%a, %a) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(RESULTS) : (TYPES) -> ()
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}
"""
LOOPED = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.while"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %p = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
    "stablehlo.return"(%p) : (tensor<i1>) -> ()
  }, {
  ^bb0(%a: tensor<4xf32>):
    "stablehlo.return"(RESULTS) : (TYPES) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
"""
ONE, TWO = "%a: tensor<f32>", "%a: tensor<f32>, %b: tensor<f32>"


@pytest.mark.parametrize(
    ("text", "arguments", "gives", "types", "said"),
    [
        (REDUCED, ONE, "%1", "tensor<f32>", "reduce: region 'body' takes tensor<f32>; 2 scalars are expected"),
        (
            REDUCED,
            TWO,
            "%1, %1",
            "tensor<f32>, tensor<f32>",
            "reduce: region 'body' gives tensor<f32>, tensor<f32>; 1 scalar is expected",
        ),
        (REDUCED, TWO, "%x", "tensor<4xf32>", "reduce: region 'body' gives tensor<4xf32>; 1 scalar is expected"),
        (LOOPED, "", "", "", "while: region 'body' gives nothing; tensor<4xf32> are expected"),
    ],
)
def test_a_wrong_region_is_refused_with_its_place(text, arguments, gives, types, said, tmp_path):
    found = refusal(text.replace("ARGUMENTS", arguments).replace("RESULTS", gives).replace("TYPES", types), tmp_path)
    assert found == f"FILE:2:3: stablehlo.{said.replace(': region', ': the region')}"


def test_a_custom_call_without_a_conversion_is_refused_by_its_target(tmp_path):
    text = (
        "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n%0 = stablehlo.custom_call @mine(%a) : (tensor<2xf32>) -> tensor<2xf32>\n"
    )
    assert (
        "FILE:2:" in (found := refusal(text + "return %0 : tensor<2xf32>\n}\n", tmp_path))
        and "custom_call @mine has no conversion" in found
    )


CLAIMING = """
from typing import ClassVar

from populus.custom import *


@irdl_op_definition
class ScaledOp(UnaryOp):
    \"\"\"`y = factor x`.\"\"\"

    name = "custom.scaled"
    STABLEHLO: ClassVar = "my.scaled"
    factor = number(1.0)

    def forward(self, x):
        return self.factor * x
"""


def test_a_loaded_op_claims_a_custom_call_by_its_target(tmp_path):
    (tmp_path / "scaled.py").write_text(CLAIMING)
    call = "stablehlo.custom_call @my.scaled(%a) {backend_config = {factor = 2.5 : f64}, api_version = 4 : i32} : (tensor<2xf32>) -> "
    text = one_op("CALL").replace("CALL : ", call)
    (found,) = results(text, [np.array([1, -2], np.float32)], tmp_path, load=[tmp_path / "scaled.py"])
    np.testing.assert_array_equal(found, np.array([2.5, -5], np.float32))
    assert "an op of load='FILE.py' that states STABLEHLO = 'my.scaled' would compute it" in refusal(text, tmp_path)


def test_bits_of_booleans_do_not_become_bytes(tmp_path):
    text = "func.func @main(%a: tensor<64xi1>) -> tensor<i64> {\n%0 = stablehlo.bitcast_convert %a : (tensor<64xi1>) -> tensor<i64>\n"
    assert "do not lie side by side" in refusal(text + "return %0 : tensor<i64>\n}\n", tmp_path)


def test_an_open_dimension_is_refused_by_the_name_of_its_input(tmp_path):
    (tmp_path / "open.mlir").write_text(one_op("stablehlo.abs %a", "tensor<?xf32>").replace("xf32>)", 'xf32> loc("rows"))'))
    program = populus.compile(tmp_path / "open.mlir", cache=False)  # a run gives the size
    with pytest.raises(populus.PopulusError) as error:
        program.module("poplar")
    found = str(error.value)
    assert "input 'rows' is tensor<?xf32>" in found and found.endswith("state the size of dimension 0, as dims={'rows.0': 8}")


def test_a_function_that_calls_itself_is_refused(tmp_path):
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n%0 = stablehlo.abs %a : tensor<2xf32>\n"
    text += "%1 = func.call @main(%0) : (tensor<2xf32>) -> tensor<2xf32>\nreturn %1 : tensor<2xf32>\n}\n"
    assert "@main calls itself" in refusal(text, tmp_path)


def test_a_region_that_cannot_be_computed_on_tensors_is_refused(tmp_path):
    body, _ = CASES["reduce_any_region"]
    text = program(body.replace("stablehlo.xor %l, %r", "stablehlo.sort_of %l, %r"), [np.zeros((7, 2), np.int32), np.int32(0).reshape(())])
    assert "sort_of" in refusal(text, tmp_path)


def test_without_jaxlib_the_message_says_what_to_install(tmp_path, monkeypatch):
    def missing(name: str):
        raise ImportError(name)

    monkeypatch.setattr(jaxlib_reader, "_mlir", missing)
    found = refusal(one_op("stablehlo.abs %a"), tmp_path)
    assert found == "FILE: StableHLO in its pretty form; install jaxlib, which reads it: pip install jax"


def artefact(version: str) -> bytes:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with jaxlib_reader.new_context() as ctx:
        return bytes(stablehlo.serialize_portable_artifact_str(str(ir.Module.parse(one_op("stablehlo.abs %a"), ctx)), version))


def test_a_portable_artefact_runs(tmp_path):
    from jaxlib.mlir.dialects import stablehlo

    path = tmp_path / "program.mlir"
    path.write_bytes(artefact(stablehlo.get_minimum_version()))
    compiled = populus.compile(path, engine="strict", cache=False)
    (found,) = compiled.run(dict.fromkeys(compiled.signature.inputs, np.array([-1, 2], np.float32))).values()
    assert found.tolist() == [1, 2]


def test_a_portable_artefact_of_a_newer_version_is_refused_with_both_versions(tmp_path):
    from jaxlib.mlir.dialects import stablehlo

    content = artefact(stablehlo.get_current_version())
    version = stablehlo.get_current_version().encode()
    newer = b"%d.%s" % (int(version[:1]) + 8, version[2:])
    path = tmp_path / "program.mlir"
    path.write_bytes(content.replace(b"StableHLO_v" + version, b"StableHLO_v" + newer))
    assert path.read_bytes() != content
    with pytest.raises(populus.PopulusError) as error:
        populus.compile(path, cache=False)
    assert newer.decode() in str(error.value) and version.decode() in str(error.value)


def test_the_generic_form_is_read_without_jaxlib(tmp_path, monkeypatch):
    body, arrays = CASES["dot_general"]
    path = tmp_path / "pretty.mlir"
    path.write_text(program(body, arrays))
    generic = jaxlib_reader.generic_text(path.read_bytes(), "pretty.mlir")
    monkeypatch.setattr(jaxlib_reader, "_mlir", None)
    other = tmp_path / "generic.mlir"
    other.write_text(generic)
    assert any(op.name == "stablehlo.dot_general" for op in read_module(context(), other).walk())
    assert results(generic, arrays, tmp_path)


def test_errors_name_the_place_of_an_op_in_its_producer(tmp_path):
    text = one_op("stablehlo.reduce_precision %a, format = e5m2")
    compiled = populus.compile(
        written(text.replace(" : tensor<2xf32>\nreturn", ' : tensor<2xf32> loc("net/round")\nreturn'), tmp_path), cache=False
    )
    places = {str(op.location) for op in compiled.module("popart").walk() if op.name.startswith("popart.")}
    assert any("net/round" in place for place in places)


def written(text: str, tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(text)
    return path


def checked(text: str, tmp_path, capsys) -> tuple[int, str]:
    from populus.tools.main import main

    code = main(["check", str(written(text, tmp_path)), "--nodes"])
    return code, capsys.readouterr().out


def test_check_lists_the_ops_of_a_program(tmp_path, capsys):
    code, out = checked(program(*CASES["clamp"]), tmp_path, capsys)
    assert code == 0 and "stablehlo.clamp" in out and "1 nodes: 1 tile" in out


def test_check_says_why_an_op_is_not_converted(tmp_path, capsys):
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n%0 = stablehlo.abs %a : tensor<2xf32>\n"
    text += "%1 = stablehlo.custom_call @mine(%0) : (tensor<2xf32>) -> tensor<2xf32>\nreturn %1 : tensor<2xf32>\n}\n"
    code, out = checked(text, tmp_path, capsys)
    assert code == 1 and "custom_call @mine has no conversion" in out and "1 tile, 1 missing" in out
