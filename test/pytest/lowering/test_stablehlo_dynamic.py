"""Programs of StableHLO with open dimensions give what JAX gives, at each size that is stated; what does not fit says why."""

from __future__ import annotations

import numpy as np
import pytest

import populus
from populus.program.open_program import OpenProgram

jax = pytest.importorskip("jax", reason="JAX is an extra")
jnp = jax.numpy
RANDOM = np.random.default_rng(0)

STATED = """
func.func @main(%n: tensor<i32>, %x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %one, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %rows = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<2xi32>) -> tensor<?x4xf32>
  %0 = stablehlo.add %x, %rows : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
"""
BOUNDED = """
func.func @main(%x: tensor<?x2xf32, #stablehlo.bounds<5, ?>>) -> tensor<?x2xf32, #stablehlo.bounds<5, ?>> {
  %0 = stablehlo.negate %x : tensor<?x2xf32, #stablehlo.bounds<5, ?>>
  return %0 : tensor<?x2xf32, #stablehlo.bounds<5, ?>>
}
"""


def softmax_of_pairs(x, w):
    scores = jax.nn.softmax(x @ x.T / x.shape[0], axis=-1) @ jnp.concatenate([x, x]).reshape(2, -1, 4).sum(0)
    return scores @ w, jnp.arange(x.shape[0]) + 1


@pytest.fixture(scope="module")
def exported():
    (b,) = jax.export.symbolic_shape("b")
    shapes = jax.ShapeDtypeStruct((b, 4), np.float32), jax.ShapeDtypeStruct((4, 3), np.float32)
    return jax.export.export(jax.jit(softmax_of_pairs))(*shapes)


def written(content: str | bytes, tmp_path):
    file = tmp_path / "model.mlir"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize("size", [1, 5])
def test_a_program_of_symbolic_shapes_gives_what_jax_gives(size, exported, tmp_path):
    content = exported.mlir_module_serialized if size == 1 else str(exported.mlir_module())
    program = populus.compile(written(content, tmp_path), dims={"arg0.0": size}, tiles=4, engine="strict")
    x, w = (RANDOM.normal(size=s).astype(np.float32) for s in ((size, 4), (4, 3)))
    found = program.run({"arg0": x, "arg1": w})
    for a, b in zip(found.values(), softmax_of_pairs(x, w), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6)


def test_a_program_of_open_sizes_takes_the_sizes_that_inputs_bring(exported, tmp_path):
    program = populus.compile(written(exported.mlir_module_serialized, tmp_path), tiles=4, engine="numpy")
    assert isinstance(program, OpenProgram) and program.sizes == "exact: a program of StableHLO"
    assert str(program.signature).startswith("(arg0: f32[arg0.0, 4], arg1: f32[4, 3]) -> (output_0: f32[?, ")
    for size in (1, 5, 2, 5):
        x, w = (RANDOM.normal(size=s).astype(np.float32) for s in ((size, 4), (4, 3)))
        found = program.run({"arg0": x, "arg1": w})
        for a, b in zip(found.values(), softmax_of_pairs(x, w), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6)
    assert program.compilations == 3
    with pytest.raises(populus.PopulusError, match="sizes do not fit: Input shapes do not match the polymorphic shapes"):
        program.run({"arg0": np.zeros((0, 4), np.float32), "arg1": np.zeros((4, 3), np.float32)})


def test_a_size_that_an_input_brings_is_within_its_bound(tmp_path):
    program = populus.compile(written(BOUNDED, tmp_path), tiles=2, engine="numpy")
    np.testing.assert_array_equal(program.run(np.ones((5, 2), np.float32))["output_0"], -np.ones((5, 2)))
    with pytest.raises(populus.PopulusError, match=r"dimension 'arg0.0' is 6; 0 to 5 is expected"):
        program.run(np.ones((6, 2), np.float32))


def test_an_open_program_is_refused_where_one_size_is_needed(tmp_path):
    program = populus.compile(written(BOUNDED, tmp_path), tiles=2)
    with pytest.raises(populus.PopulusError, match=r"state the size of dimension 0, as dims={'arg0.0': 8}"):
        program.module("poplar")


def test_an_input_that_states_a_size_is_a_value(tmp_path):
    program = populus.compile(written(STATED, tmp_path), dims={"arg1.0": 3}, values={"arg0": 3}, tiles=2, engine="strict")
    assert list(program.signature.inputs) == ["arg1"]
    np.testing.assert_array_equal(program.run(np.ones((3, 4), np.float32))["output_0"], 1 + np.arange(3)[:, None] * np.ones(4))


def test_a_size_within_its_bound_runs(tmp_path):
    program = populus.compile(written(BOUNDED, tmp_path), dims={"arg0.0": 5}, tiles=2, engine="strict")
    np.testing.assert_array_equal(program.run(np.ones((5, 2), np.float32))["output_0"], -np.ones((5, 2)))


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (STATED, {"dims": {"arg1.1": 3}}, "there is no open dimension 'arg1.1'; did you mean 'arg1.0'"),
        (STATED, {"dims": {"arg1.0": (1, 4)}}, r"dimension 'arg1.0' is 1\.\.4; one number is expected"),
        (STATED, {"dims": {"arg1.0": 3}}, r"dynamic_iota: its result is tensor<\?x4xf32>.*state an input of it by values="),
        (STATED, {"dims": {"arg1.0": 3}, "values": {"arg0": 4}}, "the sizes do not fit: .*requires"),
        (STATED, {"dims": {"arg1.0": 3}, "values": {"arg0": 2.5}}, "input 'arg0' is of i32, which cannot hold 2.5"),
        (STATED, {"dims": {"arg1.0": 3}, "values": {"arg0": [3, 3]}}, "input 'arg0' is scalar, and the value that is given is 2"),
        (STATED, {"dims": {"arg1.0": 3}, "values": {"n": 3}}, "there is no input 'n' to give a value to; there are arg0, arg1"),
        (BOUNDED, {"dims": {"arg0.0": 6}}, "dimension 'arg0.0' is 6; 0 to 5 is expected"),
    ],
)
def test_sizes_and_values_that_do_not_fit_are_refused(text, options, said, tmp_path):
    with pytest.raises(populus.PopulusError, match=f"model.mlir.*{said}"):
        populus.compile(written(text, tmp_path), tiles=2, **options)


def test_an_assertion_of_the_program_about_sizes_is_an_error(exported, tmp_path):
    with pytest.raises(populus.PopulusError, match="sizes do not fit: Input shapes do not match the polymorphic shapes"):
        populus.compile(written(str(exported.mlir_module()), tmp_path), dims={"arg0.0": 0}, tiles=2)


def test_modules_of_other_levels_have_their_sizes(tmp_path):
    op = '%0 = "popart.neg"(%a) : (tensor<2xf32>) -> tensor<2xf32>'
    text = f"func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{\n{op}\nreturn %0 : tensor<2xf32>\n}}"
    with pytest.raises(populus.PopulusError, match="sizes and values are given, which are for ONNX and StableHLO"):
        populus.compile(written(text, tmp_path), dims={"a.0": 2}, tiles=2)
