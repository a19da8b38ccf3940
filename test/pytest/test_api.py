"""populus.compile and Program."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.driver.pipeline import Pipeline
from populus.program.signature import Signature
from populus.program.source import level_of

NEGATE = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = popops.map <neg(_1)>(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}"""
X = np.arange(4, dtype=np.float32)


def module():
    return parse_text(context(), NEGATE, "negate.mlir")


def model():
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "negate",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_module_is_compiled_and_left_as_it_is():
    given = module()
    program = populus.compile(given, tiles=2)
    assert np.array_equal(program.run({"x": X})["output_0"], -X)
    assert str(given) == str(module())


def test_a_model_in_memory_is_compiled_and_every_level_can_be_seen():
    program = populus.compile(model(), dims={"n": 4}, target="gc200", tiles=2)
    assert np.array_equal(program.run({"x": X})["y"], -X)
    assert program.levels == ["onnx", "popart", "popops", "poplar"]
    assert [level_of(program.module(level)) for level in program.levels] == program.levels


def test_a_program_can_run_again_and_again():
    program = populus.compile(model(), dims={"n": 4})
    results = [program.run({"x": X * i})["y"] for i in range(3)]
    assert [r.tolist() for r in results] == [(-X * i).tolist() for i in range(3)]


def test_inputs_are_not_written_to():
    x = X.copy()
    x.flags.writeable = False
    populus.compile(model(), dims={"n": 4}).run({"x": x})
    assert np.array_equal(x, X)


def test_options_of_the_caller_win_over_the_defaults():
    pipeline = Pipeline.named("inference").with_options("poplin-to-poplar", target="gc200", tiles=3)
    program = populus.compile(model(), dims={"n": 4}, pipeline=pipeline, target="bow", tiles=2)
    assert "target <gc200, tiles = 3>" in str(program.module("poplar"))


def test_profile_has_the_summary():
    summary = populus.compile(model(), dims={"n": 4}, target="gc200", tiles=2).profile().summary
    keys = "poplar_ops compute_sets exchange_bytes peak_tile_bytes cycles compute_cycles exchange_cycles sync_cycles flops utilisation fits"
    assert set(keys.split()) <= set(summary)
    assert summary["cycles"] == summary["compute_cycles"] + summary["exchange_cycles"] + summary["sync_cycles"]


def test_a_target_s_fields_can_be_replaced():
    program = populus.compile(model(), dims={"n": 4}, target="gc200, tile_bytes=8192, tiles=8", tiles=2)
    target = program.profile().target
    assert (target.name, target.tiles, target.tile_bytes) == ("gc200", 2, 8192)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "nunpy"}, "no engine 'nunpy'; did you mean 'numpy'?"),
        ({"level": "onx"}, "no level 'onx'; did you mean 'onnx'?"),
        ({"target": "gc201"}, "did you mean 'gc200'?"),
        ({"tiles": 0}, "tiles = 0; expected at least 1"),
        ({"target": "gc200, tile_byte=4096"}, "has no field 'tile_byte' to override; did you mean 'tile_bytes'?"),
        ({"target": "gc200, 4096"}, "target 'gc200, 4096': '4096' is not FIELD=N, such as tiles=64"),
        ({"target": "gc200 tiles=4"}, "expected a name, and a comma before each FIELD=N, such as 'gc200, tiles=64'"),
        ({"target": "gc200, tile_bytes=-1"}, "'tile_bytes=-1' is not FIELD=N"),
        ({"target": "gc200, tile_bytes=0"}, "target 'gc200': tile_bytes = 0 is out of range"),
        ({"target": "gc200, tiles=0"}, "target 'gc200': tiles = 0 is out of range"),
        ({"dims": {"n": 4}}, "a module has no symbolic dimensions"),
        ({"level": "popart"}, "the module is at the level popops, below popart"),
        ({"sample": 0}, "sample = 0; expected at least 1 vertex per family"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(PopulusError, match=message):
        populus.compile(module(), **arguments)


def test_a_level_above_that_of_the_model_is_refused():
    program = populus.compile(module())
    with pytest.raises(PopulusError, match="the model does not go through the level 'onnx'"):
        program.run_at("onnx", {"x": X})


def signature(*types):
    args = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    return Signature.of(parse_text(context(), f"func.func @main({args}) {{\n  func.return\n}}", "x.mlir"))


def test_random_inputs_depend_on_seed_name_and_type_alone():
    one, two = signature("tensor<4xf32>").random(1), signature("tensor<4xf32>", "tensor<2xi64>").random(1)
    assert np.array_equal(one["a0"], two["a0"])
    assert not np.array_equal(one["a0"], signature("tensor<4xf32>").random(2)["a0"])


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64", "i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"])
def test_random_inputs_are_valid_inputs_of_every_type(element):
    s = signature(f"tensor<100x{element}>")
    array = s.checked(s.random())["a0"]
    assert len({float(v) for v in array}) >= 2
    if element in ("i32", "i64", "ui32", "ui64"):
        assert set(array.tolist()) == {0, 1}


def test_bits_of_a_file_are_taken_as_the_type_that_is_expected():
    array = np.arange(4).astype(ml_dtypes.bfloat16)
    assert signature("tensor<4xbf16>").checked({"a0": array.view("V2")})["a0"].dtype == array.dtype


def test_a_python_list_is_no_array_of_the_right_type_by_luck():
    with pytest.raises(PopulusError, match="input 'a0' is float64, expected float32"):
        signature("tensor<2xf32>").checked({"a0": [1.0, 2.0]})


def test_a_dynamic_dimension_is_refused_with_its_tensor():
    with pytest.raises(PopulusError, match=r"'a0' is tensor<\?xf32>; a program has static shapes"):
        signature("tensor<?xf32>")
