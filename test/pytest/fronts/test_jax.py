"""Functions of JAX give on tiles what they give by XLA: forward, derived, in training steps with resident weights."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import populus

jax = pytest.importorskip("jax", reason="JAX is an extra")
from populus import jax as pjax  # noqa: E402

jnp = jax.numpy
RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def near(found, wanted, rtol=2e-5):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
        assert np.shape(a) == b.shape
        np.testing.assert_allclose(np.asarray(a), b, rtol=rtol, atol=rtol * max(1.0, float(np.abs(b).max(initial=0))))


def net(params, x):
    h = jax.nn.gelu(x @ params["w1"] + params["b1"], approximate=False)
    return h @ params["w2"] + params["b2"]


def new_params():
    return {"w1": draw(8, 16), "b1": draw(16), "w2": draw(16, 4), "b2": draw(4)}


def loss(params, x, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(net(params, x)), y[:, None], 1))


def train_step(params, momentum, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum, value


def test_arguments_and_results_are_pytrees():
    def f(params, pair, *, scale):
        a, (b, c) = pair
        return {"sum": a + b * scale, "rest": [c, params["w1"].sum()]}

    args = (new_params(), (draw(3), (draw(3), draw(2))))
    near(pjax.jit(f)(*args, scale=2.0), jax.jit(f)(*args, scale=2.0))


def test_a_static_argument_makes_a_program_of_its_own():
    def f(x, times, mode="sum"):
        return x * times if mode == "sum" else x - times

    g = pjax.jit(f, static_argnames=("times", "mode"))
    x = draw(3)
    near(g(x, 2), x * 2)
    near(g(x, 3), x * 3)
    near(g(x, times=3, mode="other"), x - 3)
    assert g.program(x, 2) is not g.program(x, 3) and g.program(x, 2) is g.program(x, 2)


def test_shapes_and_types_make_programs_of_their_own():
    g = pjax.jit(lambda x: (x * 2).sum())
    assert g(draw(3)).dtype == np.float32 and g(np.arange(4)).dtype == np.int32 and float(g(np.arange(4))) == 12


@pytest.mark.parametrize("engine", ["strict", "native"])
def test_a_training_step_gives_what_jax_gives(engine):
    step, own = pjax.jit(train_step, donate_argnums=(0, 1), engine=engine), jax.jit(train_step)
    params = new_params()
    momentum = jax.tree.map(np.zeros_like, params)
    state, wanted = (params, momentum), (params, momentum)
    for _ in range(4):
        x, y = draw(5, 8), RANDOM.integers(0, 4, 5).astype(np.int32)
        *state, value = step(*state, x, y)
        *wanted, expected = own(*wanted, x, y)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert all(isinstance(leaf, pjax.Resident) for leaf in jax.tree.leaves(state))
    near(jax.tree.map(np.asarray, tuple(state)), tuple(wanted))


def test_a_training_step_has_the_same_bits_each_time_and_agrees_between_engines():
    found = []
    for engine in ("strict", "native", "native"):
        params = {name: np.resize(np.arange(7, dtype=np.float32) / 10, value.shape) for name, value in new_params().items()}
        state = (params, jax.tree.map(np.zeros_like, params))
        step = pjax.jit(train_step, donate_argnums=(0, 1), engine=engine)
        for _ in range(2):
            *state, _ = step(*state, np.ones((5, 8), np.float32), np.arange(5, dtype=np.int32) % 4)
        found.append([np.asarray(leaf) for leaf in jax.tree.leaves(state)])
    for strict, native, again in zip(*found):
        np.testing.assert_array_equal(native, again)
        np.testing.assert_allclose(strict, native, rtol=1e-5, atol=1e-6)  # their sums differ in the last bits


def counter():
    return pjax.jit(lambda s, x: (s + x, s * 1.0), donate_argnums=0)


@pytest.mark.parametrize("engine", ["strict", "native"])
def test_a_donated_scalar_is_counted_on_the_machine(engine):
    step = pjax.jit(lambda n, x: (n + 1, x * 2), donate_argnums=(0, 1), engine=engine)
    count, x = np.int32(3), np.ones(4, np.float32)
    for _ in range(3):
        count, x = step(count, x)
    assert isinstance(count, pjax.Resident) and isinstance(np.asarray(count), np.ndarray)
    assert np.asarray(count).shape == () and np.asarray(count) == 6 and np.asarray(x).tolist() == [8] * 4


def test_a_donated_array_is_gone():
    step = counter()
    first, _ = step(np.zeros(2, np.float32), np.ones(2, np.float32))
    second, _ = step(first, np.ones(2, np.float32))
    assert np.asarray(second).tolist() == [2, 2]
    with pytest.raises(populus.PopulusError, match="was donated to a run"):
        np.asarray(first)


def test_a_result_that_is_not_donated_stays_what_it_was():
    step = counter()
    first, _ = step(np.zeros(2, np.float32), np.ones(2, np.float32))
    other, _ = step(np.full(2, 10, np.float32), np.ones(2, np.float32))
    assert np.asarray(first).tolist() == [1, 1] and np.asarray(other).tolist() == [11, 11]


def test_a_failed_call_leaves_residents_as_they_were():
    step = counter()
    first, _ = step(np.zeros(2, np.float32), np.ones(2, np.float32))
    with pytest.raises(TypeError):
        step(first, np.ones(3, np.float32))
    assert np.asarray(first).tolist() == [1, 1]


def test_errors_name_the_function_and_the_place():
    def f(x):
        return jax.lax.rng_uniform(0.0, 1.0, (3,)) + x

    with pytest.raises(populus.PopulusError, match=r"rng_uniform'.*stablehlo.rng"):
        pjax.jit(f)(draw(3))


PROGRAMS = {
    "scan": (lambda x: jax.lax.scan(lambda c, r: (jnp.tanh(c + r), c * r), x[0], x), [draw(6, 4)]),
    "fori_loop": (lambda x: jax.lax.fori_loop(0, 5, lambda i, v: v * 0.5 + i, x), [draw(4)]),
    "while_loop": (lambda x: jax.lax.while_loop(lambda v: v.sum() < 100, lambda v: v * 2, jnp.abs(x) + 0.1), [draw(4)]),
    "cond": (lambda x: jax.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x), [draw(4)]),
    "scan_gradient": (jax.grad(lambda x: jax.lax.scan(lambda c, r: (jnp.sin(c * r), c), x[0], x)[0].sum()), [draw(6, 4)]),
    "vmap": (jax.vmap(lambda a, b: jnp.linalg.norm(a @ b, axis=0)), [draw(3, 4, 5), draw(3, 5, 2)]),
    "conv": (lambda x, w: jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
             [draw(2, 9, 9, 3), draw(3, 3, 3, 8)]),
    "conv_gradient": (jax.grad(lambda w, x: (jax.lax.conv(x, w, (2, 1), "SAME") ** 2).sum()), [draw(4, 3, 3, 2), draw(2, 3, 8, 7)]),
    "max_pool_gradient": (
        jax.grad(lambda x: (jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2).sum()),
        [draw(1, 8, 8, 2)],
    ),
    "embedding_gradient": (jax.grad(lambda t, i: (t[i] ** 2).sum()), [draw(10, 4), np.array([1, 3, 3, 9], np.int32)]),
    "attention": (lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), [draw(2, 6, 2, 4) for _ in range(3)]),
    "sort": (lambda x: (jnp.sort(x, axis=0), jnp.argsort(-x, axis=1)), [draw(7, 5)]),
    "long_sort": (lambda x: (jnp.sort(x), jnp.argsort(x)), [draw(20000)]),
    "sort_special": (jnp.argsort, [np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1, -np.nan, 0.0], np.float32)]),
    "lexsort": (lambda a, b: jnp.lexsort((a, b)), [np.arange(9) % 4, np.arange(9) % 2]),
    "top_k": (lambda x: jax.lax.top_k(x, 3), [draw(4, 9)]),
    "cumulative": (lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), jnp.maximum.accumulate(x, 0)), [draw(20, 3)]),
    "one_hot_argmax": (lambda x: jax.nn.one_hot(x.argmax(1), 5), [draw(6, 5)]),
    "random": (lambda k: (jax.random.normal(k, (3, 4)), jax.random.randint(k, (5,), 0, 9), jax.random.permutation(k, 6)),
               [np.array([0, 7], np.uint32)]),
    "fft": (lambda x: jnp.abs(jnp.fft.rfft(x)), [draw(3, 12)]),
    "complex": (lambda x: jnp.exp(1j * x) * jnp.conj(1 + 1j * x), [draw(5)]),
    "solve": (lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a @ a.T + 4 * jnp.eye(4)), True), b),
              [draw(4, 4), draw(4, 2)]),
    "special": (lambda x: (jax.scipy.special.gammaln(x), jax.scipy.special.erfinv(x / 9), jax.nn.softplus(x)), [np.abs(draw(7)) + 0.2]),
    "half": (lambda x: jax.nn.softmax(x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16)).astype(jnp.float32), [draw(4, 8)]),
    "hessian": (jax.hessian(lambda x: jnp.sum(jnp.sin(x) ** 3 * x[0])), [draw(4)]),
    "scatter": (lambda x: x.at[jnp.array([0, 2, 2])].add(5.0).at[1].multiply(2.0).at[:, 1].set(0.0), [draw(4, 3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_of_jax_gives_what_xla_gives(name):
    function, arrays = PROGRAMS[name]
    near(pjax.jit(function, engine="strict")(*arrays), jax.jit(function)(*arrays), rtol=2e-2 if name == "half" else 5e-5)


def test_the_training_of_the_page_runs():
    page = (Path(__file__).parents[3] / "docs/stablehlo.md").read_text()
    (text,) = re.findall(r"```python\n(import jax.*?)```", page, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 2  # from log 10
