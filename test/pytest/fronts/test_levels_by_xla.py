"""`--check-levels` of a file of StableHLO begins with XLA, which names the first op whose conversion computes something else."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="XLA is the oracle")
import jax.numpy as jnp  # noqa: E402

from helpers.jax_programs import exported  # noqa: E402
from populus.compare import xla  # noqa: E402
from populus.dialects.popart import SinOp  # noqa: E402
from populus.lowering.stablehlo.to_popart import RULES  # noqa: E402


def written(function, tmp_path, *arguments, name="model.mlir"):
    path = tmp_path / name
    path.write_bytes(exported(function, arguments).mlir_module_serialized)
    return path


def of_two_layers(x, w):
    hidden = jnp.where(x > 0, x, 0) @ w
    return jnp.tanh(hidden), hidden.sum(axis=0)


X, W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.linspace(0, 1, 8, dtype=np.float32).reshape(4, 2)


def test_all_ops_of_a_right_program_agree_with_xla(populus, tmp_path):
    got = populus("run", written(of_two_layers, tmp_path, X, W), "--check-levels", "--tiles", 2)
    assert (got.status, got.err) == (0, "")
    line = next(line for line in got.out.splitlines() if "with stablehlo" in line)
    places = int(line.split(" places")[0].split()[-1])
    assert line.startswith("levels  popart agrees with stablehlo") and places >= 5, "compare, select, dot, tanh and outputs"
    assert "native agrees with numpy" in got.out


def test_the_op_that_is_converted_to_another_is_named(populus, tmp_path, monkeypatch):
    monkeypatch.setitem(RULES, "tanh", lambda c: c(SinOp, c.input(0)))
    got = populus("run", written(of_two_layers, tmp_path, X, W), "--check-levels", "--tiles", 2)
    assert got.status == 1 and "popart differs from stablehlo first at 'jit(of_two_layers)/tanh', by" in got.err
    assert "popops agrees with popart" in got.out


def test_an_op_in_a_called_function_is_named(populus, tmp_path, monkeypatch):
    monkeypatch.setitem(RULES, "select", lambda c: c(SinOp, c.input(1)))
    got = populus("run", written(of_two_layers, tmp_path, X, W), "--check-levels", "--tiles", 2)
    assert got.status == 1 and "popart differs from stablehlo first at 'select_n', by" in got.err


def test_an_op_that_has_a_name_of_an_op_in_a_loop_is_left_out(populus, tmp_path):
    def looped(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) * 2, jnp.sin(x))

    path = written(looped, tmp_path, X)
    got = populus("run", path, "--check-levels", "--tiles", 2)
    assert (got.status, got.err) == (0, "") and "popart agrees with stablehlo" in got.out


def test_complex_numbers_are_pairs(populus, tmp_path):
    got = populus("run", written(lambda x: (x * x, jnp.abs(x)), tmp_path, (X + 1j).astype(np.complex64)), "--check-levels", "--tiles", 2)
    assert (got.status, got.err) == (0, "") and "popart agrees with stablehlo at all" in got.out


def test_sizes_that_are_stated_are_those_of_xla(populus, tmp_path):
    open_rows = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 4"), np.float32)
    got = populus("run", written(lambda x: jnp.exp(x) @ W, tmp_path, open_rows), "--dim", "arg0.0=5", "--check-levels", "--tiles", 2)
    assert (got.status, got.err) == (0, "") and "popart agrees with stablehlo at all" in got.out


def test_without_jax_the_other_levels_are_compared(populus, tmp_path, monkeypatch):
    path = tmp_path / "model.mlir"
    path.write_text(
        'func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {\n  %y = "stablehlo.negate"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
        "  func.return %y : tensor<4xf32>\n}\n"
    )
    monkeypatch.setattr(xla, "find_spec", lambda name: None)
    got = populus("run", path, "--check-levels", "--tiles", 2)
    assert (got.status, got.err) == (0, "")
    assert "stablehlo is not compared: XLA runs it, which comes with JAX: pip install jax" in got.out
    assert "popops agrees with popart" in got.out


def test_what_xla_does_not_run_is_said(populus, tmp_path):
    path = tmp_path / "model.mlir"
    quantized = "tensor<4x!quant.uniform<i8:f32, 0.5:-3>>"
    path.write_text(
        f'func.func @main(%x : {quantized}) -> {quantized} {{\n  %y = "stablehlo.add"(%x, %x) : ({quantized}, {quantized}) -> {quantized}\n'
        f"  func.return %y : {quantized}\n}}\n"
    )
    got = populus("run", path, "--check-levels", "--tiles", 2)
    assert got.status == 0 and "stablehlo is not compared: XLA on the CPU does not run quantized types" in got.out
