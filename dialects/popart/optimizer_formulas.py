"""Formulas of optimizers, each once: expressions of expressions, which the ops of `optimizer.py` and the ops of PopXL map over tensors.

A running average's beta is given as `rest`, 1 - beta, which keeps its accuracy in f32; `t` counts updates, this one among them.
"""

from __future__ import annotations

from populus.dialects import expr
from populus.dialects.expr import Expr, Like, maximum, minimum, select


def plus_decay(g: Expr, w: Expr, decay: Like) -> Expr:
    """Adds the gradient of `decay / 2 |w|^2` to g."""
    return g + decay * w


def shrink(w: Expr, rate: Like, decay: Like) -> Expr:
    """Computes `w (1 - rate decay)`: a decay of the weight itself, which passes the gradient by."""
    return w * (1 - expr.lift(rate) * decay)


def average(a: Expr, x: Expr, rest: Like) -> Expr:
    """Computes the running average `beta a + (1 - beta) x`."""
    return a + rest * (x - a)


def average_square(a: Expr, x: Expr, rest: Like) -> Expr:
    """Computes the running average of squares, `beta a + (1 - beta) x^2`."""
    return a + rest * (x * x - a)


def mean(a: Expr, x: Expr, count: Like) -> Expr:
    """Computes `(count a + x) / (count + 1)`: the mean of what was met, `count` times before."""
    return expr.lift(count) / (expr.lift(count) + 1) * a + x / (expr.lift(count) + 1)


def scale(x: Expr, factor: Like) -> Expr:
    """Computes `factor x`."""
    return x * factor


def rest_of(beta: Expr) -> Expr:
    """Computes 1 - beta."""
    return 1 - beta


def add_scaled(a: Expr, x: Expr, factor: Like) -> Expr:
    """Computes `a + factor x`."""
    return a + factor * x


def add_scaled_square(a: Expr, x: Expr, factor: Like) -> Expr:
    """Computes `a + factor x^2`."""
    return a + factor * (x * x)


def sum_square(s: Expr, x: Expr) -> Expr:
    """Computes the sum of squares `s + x^2`."""
    return s + x * x


def correction(t: Expr, rest: Like) -> Expr:
    """Computes `1 - beta^t`, accurately for beta near 1: a running average that began with zeros is divided by it."""
    return -expr.expm1(t * expr.log1p(-expr.lift(rest)))


def adam(m: Expr, v: Expr, epsilon: Like) -> Expr:
    """Computes `m / (sqrt(v) + epsilon)`. Source: Kingma and Ba, 2015."""
    return m / (expr.sqrt(v) + epsilon)


def corrected_adam(m: Expr, v: Expr, c1: Expr, c2: Expr, epsilon: Like) -> Expr:
    """Computes `m / c1 / (sqrt(v / c2) + epsilon)`, c1 and c2 the corrections of m and v."""
    return (m / c1) / (expr.sqrt(v) / expr.sqrt(c2) + epsilon)


def corrected_adamax(m: Expr, u: Expr, c1: Expr, epsilon: Like) -> Expr:
    """Computes `m / c1 / (u + epsilon)`, c1 the correction of m."""
    return (m / c1) / (u + epsilon)


def decayed_max(u: Expr, x: Expr, rest: Like) -> Expr:
    """Computes `max(beta u, x)`, AdaMax's norm."""
    return maximum(u - rest * u, x)


def adadelta(u: Expr, v: Expr, d: Expr, epsilon: Like) -> Expr:
    """Computes `sqrt(u + epsilon) / sqrt(v + epsilon) d`. Source: Zeiler, 2012."""
    return expr.sqrt(u + epsilon) / expr.sqrt(v + epsilon) * d


def trust(p: Expr, q: Expr, limit: Like | None = None) -> Expr:
    """Computes `min(sqrt(p), limit) / sqrt(q)`, the ratio of two norms from their squares; 1 where one is 0. Source: You et al., 2020."""
    norm = expr.sqrt(p) if limit is None else minimum(expr.sqrt(p), limit)
    return select(norm / expr.sqrt(q), 1.0, (p > 0) & (q > 0))


def descend(w: Expr, x: Expr, rate: Like) -> Expr:
    """Computes `w - rate x`."""
    return w - rate * x
