"""Factorisations of JAX give on tiles what LAPACK gives: as JAX writes them for the CPU, and for the platform of `populus.jax`."""

from __future__ import annotations

import numpy as np
import pytest

import populus

jax = pytest.importorskip("jax", reason="JAX is an extra")
import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402
from jax.scipy import linalg  # noqa: E402

RANDOM = np.random.default_rng(35)


def drawn(*shape: int):
    return RANDOM.normal(size=shape).astype(np.float32)


def positive(n: int):
    a = drawn(n, n)
    return a @ a.T + n * np.eye(n, dtype=np.float32)


def solution(a, b):
    return (jnp.linalg.solve(a, b) ** 2).sum()


SINGULAR = np.array([[1, 2, 3], [2, 4, 6], [1, 0, 1]], np.float32)
CASES = {
    "lu, tall, of a batch": (jax.lax.linalg.lu, drawn(2, 4, 3)),
    "lu, wide": (jax.lax.linalg.lu, drawn(3, 5)),
    "lu, singular": (jax.lax.linalg.lu, SINGULAR),
    "inverse": (jnp.linalg.inv, drawn(2, 5, 5)),
    "determinant": (jnp.linalg.det, drawn(4, 4)),
    "gradient of solve": (jax.grad(solution, argnums=(0, 1)), positive(5), drawn(5)),
    "cholesky, by a loop": (jnp.linalg.cholesky, positive(35)),
    "cholesky, upper": (lambda a: jnp.linalg.cholesky(a, upper=True), positive(4)),
    "cholesky, not positive": (jnp.linalg.cholesky, -positive(3)),
    "triangular, by a loop": (lambda a, b: linalg.solve_triangular(a, b, lower=False), positive(35), drawn(35, 2)),
    "triangular, transposed": (lambda a, b: linalg.solve_triangular(a, b, trans=1, lower=True), positive(4), drawn(4, 2)),
    "triangular, by a unit diagonal": (lambda a, b: linalg.solve_triangular(a, b, unit_diagonal=True), positive(4), drawn(4, 2)),
    "qr, tall, of a batch": (jnp.linalg.qr, drawn(2, 6, 4)),
    "qr, wide": (jnp.linalg.qr, drawn(3, 5)),
    "qr, complete": (lambda a: jnp.linalg.qr(a, mode="complete"), drawn(5, 3)),
    "qr, singular": (jnp.linalg.qr, np.triu(SINGULAR)),
    "inverse, of no rows": (jnp.linalg.inv, drawn(0, 0)),
    "inverse, of no matrix": (jnp.linalg.inv, drawn(0, 3, 3)),
    "solve, of no columns": (jnp.linalg.solve, positive(3), drawn(3, 0)),
    "cholesky, of no rows": (jnp.linalg.cholesky, drawn(2, 0, 0)),
    "qr, of large numbers": (jnp.linalg.qr, drawn(4, 4) * np.float32(1e25)),
}


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("name", CASES)
def test_a_factorisation_gives_what_lapack_gives(name, platform, tmp_path):
    function, *arguments = CASES[name]
    file = tmp_path / "model.mlir"
    file.write_bytes(export.export(jax.jit(function), platforms=[platform])(*arguments).mlir_module_serialized)
    program = populus.compile(file, engine="numpy")
    found = program.run(dict(zip(program.signature.inputs, arguments, strict=True)))
    for a, b in zip(found.values(), jax.tree.leaves(jax.jit(function)(*arguments)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        size = np.abs(np.asarray(b, np.float64)).max(initial=0, where=np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=0, atol=0 if a.dtype.kind in "biu" else 2e-5 * size)


def test_a_loop_over_columns_is_as_long_as_for_any_size(tmp_path):
    def ops(n: int) -> int:
        file = tmp_path / f"{n}.mlir"
        written = export.export(jax.jit(jnp.linalg.solve), platforms=["tpu"])(drawn(n, n), drawn(n))
        file.write_bytes(written.mlir_module_serialized)
        return sum(1 for _ in populus.compile(file, engine="numpy", level="popart").module("popart").walk())

    assert ops(64) == ops(40)


def test_an_option_of_lapack_that_is_none_is_refused_by_name(tmp_path):
    written = export.export(jax.jit(linalg.solve_triangular), platforms=["cpu"])(positive(3), drawn(3))
    file = tmp_path / "model.mlir"
    file.write_text(written.mlir_module().replace("side = 76", "side = 88"))
    with pytest.raises(populus.PopulusError, match="lapack_strsm_ffi: side is X; one of L, R is expected"):
        populus.compile(file)
