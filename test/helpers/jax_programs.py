"""Programs of JAX with arguments: name -> (function, arguments). Most of what they compute is JAX's own library code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.example_libraries import optimizers, stax
from jax.experimental import ode, rnn, sparse
from jax.scipy import cluster, linalg, ndimage, optimize, signal, special, stats
from jax.scipy.sparse.linalg import cg

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def draw(*shape: int, scale: float = 1.0) -> Any:
    """Draws floats, the same for the same shape."""
    return (np.random.default_rng(sum(shape) + len(shape)).normal(size=shape) * scale).astype(np.float32)


def floats(*values: float) -> Any:
    """Makes a vector."""
    return np.array(values, np.float32)


def at(*values: int) -> Any:
    """Makes indices."""
    return np.array(values, np.int32)


def layers(net: tuple[Any, Any], *shape: int) -> Program:
    """Makes the program of a net of stax, with drawn weights."""
    init, apply = net
    return apply, (init(jax.random.key(0), shape)[1], draw(*shape))


MLP = stax.serial(stax.Dense(32), stax.Relu, stax.Dense(16), stax.Gelu, stax.Dense(10), stax.LogSoftmax)
CONVNET = stax.serial(
    stax.Conv(8, (3, 3), padding="SAME"), stax.BatchNorm(), stax.Relu, stax.MaxPool((2, 2), (2, 2)),
    stax.Conv(16, (3, 3), strides=(2, 2)), stax.Elu, stax.AvgPool((2, 2)), stax.Flatten, stax.Dense(10), stax.Softmax,
)  # fmt: skip
BRANCH = stax.serial(stax.Conv(8, (1, 1)), stax.BatchNorm(), stax.Relu, stax.Conv(8, (3, 3), padding="SAME"), stax.BatchNorm())
RESIDUAL = stax.serial(stax.FanOut(2), stax.parallel(BRANCH, stax.Conv(8, (1, 1))), stax.FanInSum, stax.Relu)
DECODER = stax.serial(stax.ConvTranspose(6, (3, 3), strides=(2, 2), padding="SAME"), stax.Sigmoid, stax.ConvTranspose(1, (2, 2)), stax.Tanh)


def loss(params: Any, x: Any, y: Any) -> Any:
    """Computes the mean cross entropy of the classifier."""
    return -jnp.mean(jnp.sum(MLP[1](params, x) * jax.nn.one_hot(y, 10), axis=1))


INIT, UPDATE, PARAMS = optimizers.adam(1e-2)


def train_step(i: Any, state: Any, x: Any, y: Any) -> Any:
    """Computes a step of Adam."""
    value, grads = jax.value_and_grad(loss)(PARAMS(state), x, y)
    return UPDATE(i, grads, state), value


def classifier_weights() -> Any:
    """Draws the classifier's weights."""
    return MLP[0](jax.random.key(0), (6, 20))[1]


def training() -> Any:
    """Makes the state of the classifier before the first step."""
    return INIT(classifier_weights())


def digits(count: int) -> tuple[Any, Any]:
    """Draws examples for the classifier."""
    return draw(count, 20), np.arange(count, dtype=np.int32) * 7 % 10


def attention(x: Any, w: Any) -> Any:
    """Computes a causal layer of a transformer, its norm in front."""
    normed = jax.nn.standardize(x, axis=-1)
    q, k, v = (jnp.einsum("btd,dhk->bthk", normed, w[n]) for n in "qkv")
    x = x + jnp.einsum("bthk,hkd->btd", jax.nn.dot_product_attention(q, k, v, is_causal=True), w["o"])
    return x + jax.nn.silu(jax.nn.standardize(x, axis=-1) @ w["up"]) @ w["down"]


def lstm(x: Any, lengths: Any, h: Any, c: Any, weights: Any) -> Any:
    """Computes two layers of an LSTM over sequences of different lengths."""
    unpacked = rnn.unpack_lstm_weights(weights, 5, 8, 2, False)
    sizes = {"input_size": 5, "hidden_size": 8, "num_layers": 2}
    return rnn.lstm_ref(x, h, c, *unpacked, seq_lengths=lengths, dropout=0.0, bidirectional=False, **sizes)


def predator_prey(y: Any, times: Any, rates: Any) -> Any:
    """Integrates the equations of Lotka and Volterra by Dormand and Prince's method, whose steps the error decides."""
    a, b, c, d = rates
    return ode.odeint(lambda y, t: jnp.array([a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]]), y, times, rtol=1e-6, atol=1e-6)


def rosenbrock(x: Any) -> Any:
    """Minimises Rosenbrock's function by BFGS."""

    def f(x: Any) -> Any:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    found = optimize.minimize(f, x, method="BFGS", options={"maxiter": 4})
    return found.x, found.fun


def poisson(b: Any) -> Any:
    """Solves Poisson's equation on a square by conjugate gradients."""

    def laplace(u: Any) -> Any:
        p = jnp.pad(u, 1)
        return 4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

    return cg(laplace, b, tol=1e-4, maxiter=40)[0]


def gaussian_process(x: Any, y: Any, at: Any) -> Any:
    """Computes mean, variance and likelihood of a Gaussian process with the kernel of squared distances."""

    def kernel(a: Any, b: Any) -> Any:
        return jax.vmap(lambda p: jax.vmap(lambda q: jnp.exp(-0.5 * jnp.sum((p - q) ** 2)))(b))(a)

    factor = linalg.cholesky(kernel(x, x) + 0.1 * jnp.eye(len(x)), lower=True)
    weights, cross = linalg.cho_solve((factor, True), y), kernel(at, x)
    v = linalg.solve_triangular(factor, cross.T, lower=True)
    return cross @ weights, kernel(at, at) - v.T @ v, -0.5 * y @ weights - jnp.sum(jnp.log(jnp.diag(factor)))


def waves(u: Any, speed: Any) -> Any:
    """Steps the wave equation on a ring of cells."""

    def step(_: Any, state: Any) -> Any:
        u, v = state
        v = v + speed * sum(jnp.roll(u, s, a) - u for s in (1, -1) for a in (0, 1))
        return u + v, v

    return lax.fori_loop(0, 20, step, (u, jnp.zeros_like(u)))


def planets(x: Any, v: Any, m: Any) -> Any:
    """Moves bodies by the gradient of their energy, in leaps of half a step; gives the orbit."""

    def energy(x: Any) -> Any:
        apart = jnp.sqrt(jnp.sum((x[:, None] - x[None]) ** 2, -1) + 0.1)
        return -jnp.sum(jnp.triu(m[:, None] * m / apart, 1))

    def leap(state: Any, _: Any) -> Any:
        x, v = state
        v = v - 0.005 * jax.grad(energy)(x) / m[:, None]
        x = x + 0.01 * v
        v = v - 0.005 * jax.grad(energy)(x) / m[:, None]
        return (x, v), (x, energy(x) + 0.5 * jnp.sum(m * jnp.sum(v**2, -1)))

    return lax.scan(leap, (x, v), None, length=12)


def clipped(params: Any, x: Any, y: Any) -> Any:
    """Computes the mean of the gradients of single examples, each clipped to a norm of 1."""
    grads = jax.vmap(jax.grad(lambda p, a, b: loss(p, a[None], b[None])), (None, 0, 0))(params, x, y)
    return jax.tree.map(lambda g: g.mean(0), jax.vmap(lambda g: optimizers.clip_grads(g, 1.0))(grads))


def hessian(w: Any, x: Any, y: Any) -> Any:
    """Computes gradient, Hessian and its product with a vector, of a logistic regression."""

    def f(w: Any) -> Any:
        return jnp.mean(jax.nn.softplus(-y * (x @ w))) + 0.1 * jnp.sum(w**2)

    return jax.grad(f)(w), jax.hessian(f)(w), jax.jvp(jax.grad(f), (w,), (jnp.ones_like(w),))[1]


def hidden_markov(start: Any, moves: Any, seen: Any) -> Any:
    """Computes the likelihood of sequences, and the filtered states, by products of matrices in a tree."""
    steps = jax.nn.log_softmax(moves)[None] + seen[1:, None, :]
    first = jax.nn.log_softmax(start) + seen[0]
    trees = lax.associative_scan(lambda a, b: special.logsumexp(a[..., :, :, None] + b[..., None, :, :], axis=-2), steps)
    states = special.logsumexp(first[None, :, None] + trees, axis=1)
    return special.logsumexp(states[-1]), states


def images(x: Any, at: Any) -> Any:
    """Resizes images by three methods, samples one between its pixels, and blurs it."""
    kernel = jnp.outer(jnp.array([1.0, 2, 1]), jnp.array([1.0, 2, 1])) / 16
    sizes = (("bilinear", 13), ("cubic", 12), ("nearest", 5))
    resized = [jax.image.resize(x, (n, n + 1), method) for method, n in sizes]
    return resized, ndimage.map_coordinates(x, [at[0], at[1]], order=1, mode="nearest"), signal.convolve2d(x, kernel, mode="same")


def metropolis(key: Any, x: Any) -> Any:
    """Samples a density of two hills by Metropolis's walk, many chains at once."""

    def density(x: Any) -> Any:
        return jnp.logaddexp(stats.norm.logpdf(x, -1.5, 0.8), stats.norm.logpdf(x, 1.5, 0.5))

    def step(x: Any, key: Any) -> Any:
        a, b = jax.random.split(key)
        proposed = x + jax.random.normal(a, x.shape)
        taken = jnp.log(jax.random.uniform(b, x.shape)) < density(proposed) - density(x)
        return jnp.where(taken, proposed, x), taken.mean()

    return lax.scan(step, x, jax.random.split(jax.random.wrap_key_data(key), 10))


def clusters(x: Any, centres: Any) -> Any:
    """Moves centres to the means of the points next to them, until they rest."""

    def step(state: Any) -> Any:
        centres, _, i = state
        code, _ = cluster.vq.vq(x, centres)
        sums = jax.ops.segment_sum(x, code, num_segments=len(centres))
        counts = jax.ops.segment_sum(jnp.ones(len(x)), code, num_segments=len(centres))
        return sums / jnp.maximum(counts, 1)[:, None], centres, i + 1

    state = lax.while_loop(lambda s: (s[2] < 20) & jnp.any(s[0] != s[1]), step, (centres, centres + 1, 0))
    return state[0], state[2], cluster.vq.vq(x, state[0])[0]


def neighbours(x: Any, known: Any, labels: Any) -> Any:
    """Classifies points by the votes of the nearest ones, and ranks them."""
    apart = jnp.sum((x[:, None] - known) ** 2, -1)
    near, which = lax.top_k(-apart, 5)
    votes = jax.vmap(lambda l: jnp.bincount(l, length=4))(labels[which])
    return votes.argmax(1), jnp.argsort(near[:, 0]), jnp.median(apart, axis=1), jnp.unique(labels, size=4)


def graph_net(edges: Any, weights: Any, x: Any, w: Any) -> Any:
    """Computes two layers of a graph net, whose adjacency is a sparse matrix, and the gradient by its weights."""
    matrix = sparse.BCOO((weights, edges), shape=(len(x), len(x)))
    return jax.value_and_grad(lambda w: jnp.sum(jax.nn.softmax(matrix @ jax.nn.relu(matrix @ (x @ w[0])) @ w[1]) ** 2))(w)


def special_functions(x: Any) -> Any:
    """Computes functions of probability theory and their derivatives."""
    functions = (special.gammaln, special.digamma, special.erfc, special.ndtri, special.i0e, special.expit, special.xlogy)
    u = jax.nn.sigmoid(x)
    values = [f(u, u) if f is special.xlogy else f(u) for f in functions]
    return values, special.gammainc(1.5 + u, 2 * u), jax.vmap(jax.grad(lambda v: stats.beta.logpdf(v, 2.0, 3.0)))(u)


def adjoint(y: Any, w: Any) -> Any:
    """Computes the gradient of a neural differential equation, whose steps are Runge and Kutta's."""

    def end(w: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            f = lambda y: jnp.tanh(y @ w[0]) @ w[1]  # noqa: E731
            a = f(y)
            b = f(y + 0.05 * a)
            c = f(y + 0.05 * b)
            return y + 0.1 / 6 * (a + 2 * b + 2 * c + f(y + 0.1 * c)), None

        return jnp.sum(lax.scan(jax.checkpoint(step), y, None, length=8)[0] ** 2)

    return jax.value_and_grad(end)(w)


def exported(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Exports a function for the platform on which JAX calls no library of its own."""
    return jax.export.export(jax.jit(function, keep_unused=True), platforms=["tpu"])(*arguments)


TRANSFORMER = {n: draw(16, 4, 4, scale=0.3) for n in "qkv"} | {"o": draw(4, 4, 16, scale=0.3), "up": draw(16, 32), "down": draw(32, 16)}
EDGES = np.stack([np.arange(30) * 7 % 10, np.arange(30) * 3 % 11 % 10], 1).astype(np.int32)
PROGRAMS: dict[str, Callable[[], Program]] = {
    "classifier": lambda: layers(MLP, 6, 20),
    "training": lambda: (train_step, (np.int32(0), training(), *digits(6))),
    "clipped gradients": lambda: (clipped, (classifier_weights(), *digits(6))),
    "convolutional net": lambda: layers(CONVNET, 2, 12, 12, 3),
    "residual block": lambda: layers(RESIDUAL, 2, 6, 6, 8),
    "decoder": lambda: layers(DECODER, 2, 5, 5, 4),
    "transformer layer": lambda: (attention, (draw(2, 7, 16), TRANSFORMER)),
    "lstm": lambda: (lstm, (draw(3, 6, 5), at(6, 4, 2), draw(2, 3, 8), draw(2, 3, 8), draw(rnn.get_num_params_in_lstm(5, 8, 2, False)))),
    "graph net": lambda: (graph_net, (EDGES, np.abs(draw(30)), draw(10, 6), [draw(6, 8), draw(8, 3)])),
    "predator and prey": lambda: (predator_prey, (floats(10, 5), np.linspace(0, 2, 5, dtype=np.float32), floats(1.1, 0.4, 0.1, 0.4))),
    "neural equation": lambda: (adjoint, (draw(4, 3), [draw(3, 8), draw(8, 3)])),
    "waves": lambda: (waves, (draw(12, 12), np.float32(0.1))),
    "planets": lambda: (planets, (draw(5, 2), draw(5, 2, scale=0.1), np.abs(draw(5)) + 1)),
    "Poisson's equation": lambda: (poisson, (draw(9, 9),)),
    "minimum by BFGS": lambda: (rosenbrock, (floats(-1.2, 1, 0.5),)),
    "Gaussian process": lambda: (gaussian_process, (draw(12, 2), draw(12), draw(5, 2))),
    "Hessian": lambda: (hessian, (draw(5), draw(20, 5), np.sign(draw(20)))),
    "hidden Markov model": lambda: (hidden_markov, (draw(4), draw(4, 4), draw(9, 4))),
    "Metropolis's walk": lambda: (metropolis, (np.array([3, 7], np.uint32), draw(32))),
    "clusters": lambda: (clusters, (draw(40, 2), draw(40, 2)[:3])),
    "neighbours": lambda: (neighbours, (draw(8, 3), draw(30, 3), np.arange(30, dtype=np.int32) % 4)),
    "images": lambda: (images, (draw(8, 9), np.abs(draw(2, 10)) * 2)),
    "special functions": lambda: (special_functions, (draw(10),)),
}  # fmt: skip
