"""Programs of JAX, exported to files of StableHLO, give on tiles what XLA gives."""

from __future__ import annotations

import numpy as np
import pytest

import populus

jax = pytest.importorskip("jax", reason="JAX is an extra")
from helpers.jax_programs import PARAMS, PROGRAMS, digits, exported, train_step, training  # noqa: E402
from populus import jax as pjax  # noqa: E402

ROUNDED = {"predator and prey": 1e-4}
"""The largest difference, of a result's largest element, where it is not 1e-5: the steps follow from estimates of errors."""


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
    near(list(found.values()), jax.tree.leaves(jax.jit(function)(*arguments)), ROUNDED.get(name, 1e-5))


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
