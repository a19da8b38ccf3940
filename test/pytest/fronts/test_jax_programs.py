"""Programs of JAX, exported to files of StableHLO, give on tiles what XLA gives."""

from __future__ import annotations

import numpy as np
import pytest

import populus

jax = pytest.importorskip("jax", reason="JAX is an extra")
from helpers.jax_programs import PARAMS, PROGRAMS, digits, exported, train_step, training  # noqa: E402
from populus import jax as pjax  # noqa: E402


def near(found, wanted, rtol: float):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        assert a.shape == b.shape and a.dtype == b.dtype
        size = np.abs(np.asarray(b, np.float64)).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=0, atol=0 if a.dtype.kind in "biu" else rtol * size)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_exported_program_gives_what_xla_gives(name, tmp_path):
    function, arguments = PROGRAMS[name]()
    file, arrays = tmp_path / "model.mlir", jax.tree.leaves(arguments)
    written = exported(function, arguments)
    if len(name) % 2:
        file.write_bytes(written.mlir_module_serialized)
    else:
        file.write_text(written.mlir_module())
    program = populus.compile(file, engine="strict", tiles=4)
    found = program.run(dict(zip(program.signature.inputs, map(np.asarray, arrays), strict=True)))
    near(list(found.values()), jax.tree.leaves(jax.jit(function)(*arguments)), 1e-5)


@pytest.mark.parametrize("engine", ["strict", "native"])
def test_ten_steps_of_adam_give_what_xla_gives(engine):
    step, own = pjax.jit(train_step, donate_argnums=1, engine=engine), jax.jit(train_step)
    state = wanted = training()
    for i in range(10):
        x, y = digits(6)
        state, value = step(np.int32(i), state, x, y)
        wanted, expected = own(np.int32(i), wanted, x, y)
        np.testing.assert_allclose(value, expected, rtol=2e-5)
    assert all(isinstance(leaf, pjax.Resident) for leaf in jax.tree.leaves(state))
    near(*([np.asarray(leaf) for leaf in jax.tree.leaves(PARAMS(s))] for s in (state, wanted)), 1e-4)


@pytest.mark.parametrize("typed", [True, False])
def test_random_numbers_of_a_key_that_is_given_are_those_of_jax(typed):
    def drawn(key):
        first, second = jax.random.split(key)
        return jax.random.uniform(first, (8,)), jax.random.normal(second, (3,))

    key = (jax.random.key if typed else jax.random.PRNGKey)(1)
    near(list(pjax.jit(drawn)(key)), list(jax.jit(drawn)(key)), 1e-6)


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_that_are_results_are_those_of_jax(generator):
    key = jax.random.key(1, impl=generator)
    found, wanted = (
        jit(lambda k: (k, jax.random.wrap_key_data(jax.random.key_data(k) + 1, impl=generator)))(key) for jit in (pjax.jit, jax.jit)
    )
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and jax.random.key_data(a).tolist() == jax.random.key_data(b).tolist()


def test_what_jax_would_compute_itself_is_refused_in_one_line():
    x = np.ones((4,), np.float32)
    doubled = pjax.jit(lambda a: 2 * a)
    for call in (lambda: jax.grad(lambda a: doubled(a).sum())(x), lambda: jax.vmap(doubled)(x), lambda: jax.jit(doubled)(x)):
        with pytest.raises(populus.PopulusError, match="is called while JAX traces it; transform first"):
            call()

    def printed(a):
        jax.debug.print("{}", a)
        return a

    def called(a):
        return jax.pure_callback(np.sin, a, a)

    for function in (printed, called):
        with pytest.raises(populus.PopulusError, match="calls Python while it runs .* return the value instead"):
            pjax.jit(function)(x)
