"""Ops that change a tensor in place, as optimizers do. Factors are numbers or tensors of one element; each gives an alias of its first.

Floats of 16 bits are changed in f32 and rounded once: 0.9 in f16 is so far from 0.9 that `1 - 0.9` is wrong by a thousandth.
"""

from __future__ import annotations

from populus.popxl import dtypes
from populus.popxl.errors import WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import cast_to, emit, fixed, set_in_place, wide
from populus.popxl.ops.elementwise import add, div, mul, pow, sqrt, sub, where
from populus.popxl.ops.shape import reshape, transpose
from populus.popxl.tensor import Tensor

Factor = float | Tensor
NO_WEIGHT = "Weight decay requires weight to not be None."


def _scalar(f: Factor, like: Tensor) -> Tensor:
    """Gives a factor in a tensor's element type."""
    return reshape(cast_to(f, like.dtype), ()) if isinstance(f, Tensor) else fixed(f, like)


def _same(t: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """Gives t and X in the type in which t is changed. Raises ValueError for another shape."""
    if t.shape != X.shape:
        raise WrongValue(f"{t.id} is {list(t.shape)}; what it is changed by is {list(X.shape)}")
    wide_t = wide(t)
    return wide_t, cast_to(X, wide_t.dtype)


@recorded("CopyVarUpdate")
def copy_var_update_(t: Tensor, X: Tensor) -> Tensor:
    """Computes `t = X`."""
    return set_in_place(t, _same(t, X)[1], "copy_var_update")


@recorded("Accumulate")
def accumulate_(t: Tensor, X: Tensor, f: Factor | None = None) -> Tensor:
    """Computes `t = t + f X`."""
    old, x = _same(t, X)
    return set_in_place(t, add(old, x if f is None else mul(_scalar(f, old), x)), "accumulate")


@recorded("Accumulate")
def accumulate_square_(t: Tensor, X: Tensor, f: Factor = 1.0) -> Tensor:
    """Computes `t = t + f X^2`."""
    old, x = _same(t, X)
    return set_in_place(t, add(old, mul(_scalar(f, old), mul(x, x))), "accumulate_square")


@recorded("Accumulate")
def accumulate_mean_(t: Tensor, X: Tensor, step: Factor) -> Tensor:
    """Computes `t = (step t + X) / (step + 1)`: the mean of what was accumulated, with `step` the number of times before."""
    old, x = _same(t, X)
    n = _scalar(step, old)
    return set_in_place(t, add(mul(div(n, add(n, 1)), old), div(x, add(n, 1))), "accumulate_mean")


@recorded("Accumulate")
def accumulate_moving_average_(t: Tensor, X: Tensor, f: Factor) -> Tensor:
    """Computes `t = f t + (1 - f) X`."""
    old, x = _same(t, X)
    k = _scalar(f, old)
    return set_in_place(t, add(mul(k, old), mul(sub(1, k), x)), "accumulate_moving_average")


@recorded("Accumulate")
def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: Factor) -> Tensor:
    """Computes `t = f t + (1 - f) X^2`."""
    old, x = _same(t, X)
    k = _scalar(f, old)
    return set_in_place(t, add(mul(k, old), mul(sub(1, k), mul(x, x))), "accumulate_moving_average_square")


@recorded("AccumulatorScale")
def accumulator_scale_(t: Tensor, f: Factor) -> Tensor:
    """Computes `t = f t`; with the number 0, zeros whatever t is."""
    if not isinstance(f, Tensor) and f == 0:
        return accumulator_zero_(t)
    old = wide(t)
    return set_in_place(t, mul(old, _scalar(f, old)), "accumulator_scale")


@recorded("AccumulatorScale")
def accumulator_zero_(t: Tensor) -> Tensor:
    """Computes `t = 0`."""
    return set_in_place(t, emit("expand", fixed(0, t), shape=t.shape), "accumulator_zero")


@recorded("PopartSparseAccumulate")
def sparse_accumulate_(t: Tensor, X: Tensor, indices: Tensor, axis: int = 0, f: Factor | None = None, W: Tensor | None = None) -> Tensor:
    """Computes `t[indices[k]] = t[indices[k]] + f X[k]` along an axis, once for each k. `W` tells layouts, which follow without it."""
    order = [axis % t.rank, *(d for d in range(t.rank) if d != axis % t.rank)]
    back = [order.index(d) for d in range(t.rank)]
    x = cast_to(X, t.dtype)
    rows = transpose(x if f is None else mul(_scalar(f, t), x), order)
    found = emit("scatter", transpose(t, order), cast_to(indices, dtypes.int32), rows, reduction="add")
    return set_in_place(t, transpose(found, back), "sparse_accumulate")


def _corrected(m: Tensor, beta: Factor | None, step: Tensor | None, name: str) -> Tensor:
    """Gives a moment without the bias of its beginning with zeros. Raises ValueError if the beta is missing."""
    if step is None:
        return m
    if beta is None:
        raise WrongValue(f"Bias correction requires both beta1 and beta2 to not be None. {name} is missing beside time_step")
    return div(m, sub(1, pow(_scalar(beta, m), cast_to(reshape(step, ()), m.dtype))))


def _updater(second: Tensor, denominator: Tensor, weight: Tensor | None, decay: Factor | None, epsilon: Factor, m: Tensor) -> Tensor:
    """Gives `m / (denominator + epsilon) + decay weight`, in the weight's type, or without one in that of the second moment."""
    found = div(cast_to(m, denominator.dtype), add(denominator, _scalar(epsilon, denominator)))
    if weight is None:
        if decay is not None and (isinstance(decay, Tensor) or decay != 0):
            raise WrongValue(NO_WEIGHT)
        return found if second.dtype.is_int else cast_to(found, second.dtype)
    if decay is not None and (isinstance(decay, Tensor) or decay != 0):
        found = add(found, mul(_scalar(decay, found), cast_to(weight, found.dtype)))
    return cast_to(found, weight.dtype)


def _floats(t: Tensor) -> Tensor:
    """Gives integers, and floats of 16 bits, as single-precision numbers."""
    return cast_to(t, dtypes.float32) if t.dtype.is_int else wide(t)


def _next(time_step: Tensor | None) -> Tensor | None:
    """Gives the step, one further, in place."""
    return None if time_step is None else set_in_place(time_step, add(time_step, 1), "time_step")


@recorded("AdamUpdater")
def adam_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Factor | None = None,
    beta1: Factor | None = None,
    beta2: Factor | None = None,
    epsilon: Factor = 1e-07,
) -> Tensor:
    """Computes `m / (sqrt(v) + epsilon) + weight_decay weight`, Adam's update.

    With a `time_step`, which becomes one more, m is divided by `1 - beta1^step`, and v by `1 - beta2^step`.
    Raises ValueError for a decay without the weight, and a step without the betas.
    """
    if weight_decay is not None and weight is None:
        raise WrongValue(NO_WEIGHT)
    step = _next(time_step)
    m = _corrected(_floats(acc_first_order), beta1, step, "beta1")
    v = sqrt(_corrected(_floats(acc_second_order), beta2, step, "beta2"))
    return _updater(acc_second_order, v, weight, weight_decay, epsilon, m)


lamb_updater = adam_updater


@recorded("AdamUpdater")
def adamax_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Factor | None = None,
    beta1: Factor = 0.9,
    epsilon: Factor = 1e-07,
) -> Tensor:
    """Computes `m / (1 - beta1^step) / (v + epsilon) + weight_decay weight`, AdaMax's update; the step becomes one more.

    Raises ValueError for a decay without the weight, and for no step.
    """
    if time_step is None:
        raise WrongValue("AdaMax requires time_step to not be None.")
    m = _corrected(_floats(acc_first_order), beta1, _next(time_step), "beta1")
    return _updater(acc_second_order, _floats(acc_second_order), weight, weight_decay, epsilon, m)


@recorded("AdamVarUpdate")
def adam_var_update(
    t: Tensor, x: Tensor, r1: Tensor, r2: Tensor, learning_rate: Factor | None = None, max_weight_norm: Factor | None = None
) -> Tensor:
    """Computes `t = t - lr min(sqrt r1, max_weight_norm) / sqrt r2 x`, with the ratio 1 where one of the norms is 0.

    Without a learning rate it is 1; without a largest norm there is none.
    """
    weight_norm, norm = sqrt(_floats(r1)), sqrt(_floats(r2))
    if max_weight_norm is not None:
        weight_norm = emit("min", weight_norm, _scalar(max_weight_norm, weight_norm))
    ones = fixed(1, norm)
    usable = emit("and", emit("greater", weight_norm, fixed(0, weight_norm)), emit("greater", norm, fixed(0, norm)))
    ratio = where(usable, div(weight_norm, where(usable, norm, ones)), ones)
    step = mul(_scalar(1.0 if learning_rate is None else learning_rate, ratio), ratio)
    old = wide(t)
    return set_in_place(t, sub(old, mul(_scalar(step, old), cast_to(x, old.dtype))), "adam_var_update")
