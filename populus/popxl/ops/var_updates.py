"""Ops that change a tensor in place, as optimizers do. Factors are numbers or tensors of one element; each gives an alias of its first.

Floats of 16 bits are changed in f32 and rounded once: 0.9 in f16 is so far from 0.9 that `1 - 0.9` is wrong by a thousandth.
"""

from __future__ import annotations

from populus.dialects.popart import optimizer_formulas as formulas
from populus.popxl import dtypes
from populus.popxl.errors import WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import cast_to, emit, fixed, mapped, set_in_place, wide
from populus.popxl.ops.elementwise import add
from populus.popxl.ops.shape import reshape, transpose
from populus.popxl.tensor import Tensor

Factor = float | Tensor
NO_WEIGHT = "Weight decay requires weight to not be None."


def _scalar(f: Factor, like: Tensor) -> Factor:
    """Gives a factor in a tensor's element type; a number beside floats as it is."""
    if isinstance(f, Tensor):
        return reshape(cast_to(f, like.dtype), ())
    return fixed(f, like) if like.dtype.is_int else f


def _rest(f: Factor, like: Tensor) -> Factor:
    """Gives 1 - f, of a number in double precision."""
    factor = _scalar(f, like)
    return mapped(formulas.rest_of, factor) if isinstance(factor, Tensor) else 1 - factor


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
    return set_in_place(t, add(old, x) if f is None else mapped(formulas.add_scaled, old, x, _scalar(f, old)), "accumulate")


@recorded("Accumulate")
def accumulate_square_(t: Tensor, X: Tensor, f: Factor = 1.0) -> Tensor:
    """Computes `t = t + f X^2`."""
    old, x = _same(t, X)
    return set_in_place(t, mapped(formulas.add_scaled_square, old, x, _scalar(f, old)), "accumulate_square")


@recorded("Accumulate")
def accumulate_mean_(t: Tensor, X: Tensor, step: Factor) -> Tensor:
    """Computes `t = (step t + X) / (step + 1)`: the mean of what was accumulated, with `step` the number of times before."""
    old, x = _same(t, X)
    return set_in_place(t, mapped(formulas.mean, old, x, _scalar(step, old)), "accumulate_mean")


@recorded("Accumulate")
def accumulate_moving_average_(t: Tensor, X: Tensor, f: Factor) -> Tensor:
    """Computes `t = f t + (1 - f) X`."""
    old, x = _same(t, X)
    return set_in_place(t, mapped(formulas.average, old, x, _rest(f, old)), "accumulate_moving_average")


@recorded("Accumulate")
def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: Factor) -> Tensor:
    """Computes `t = f t + (1 - f) X^2`."""
    old, x = _same(t, X)
    return set_in_place(t, mapped(formulas.average_square, old, x, _rest(f, old)), "accumulate_moving_average_square")


@recorded("AccumulatorScale")
def accumulator_scale_(t: Tensor, f: Factor) -> Tensor:
    """Computes `t = f t`; with the number 0, zeros whatever t is."""
    if not isinstance(f, Tensor) and f == 0:
        return accumulator_zero_(t)
    old = wide(t)
    return set_in_place(t, mapped(formulas.scale, old, _scalar(f, old)), "accumulator_scale")


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
    rows = transpose(x if f is None else mapped(formulas.scale, x, _scalar(f, t)), order)
    found = emit("scatter", transpose(t, order), cast_to(indices, dtypes.int32), rows, reduction="add")
    return set_in_place(t, transpose(found, back), "sparse_accumulate")


def _correction(beta: Factor | None, step: Tensor, like: Tensor, name: str) -> Tensor:
    """Gives what a moment is divided by, as it began with zeros. Raises ValueError if the beta is missing."""
    if beta is None:
        raise WrongValue(f"Bias correction requires both beta1 and beta2 to not be None. {name} is missing beside time_step")
    return mapped(formulas.correction, cast_to(reshape(step, ()), like.dtype), _rest(beta, like))


def _updater(found: Tensor, second: Tensor, weight: Tensor | None, decay: Factor | None) -> Tensor:
    """Gives `found + decay weight`, in the weight's type, or without one in that of the second moment."""
    if decay is not None and not isinstance(decay, Tensor) and decay == 0:
        decay = None
    if weight is None:
        if decay is not None:
            raise WrongValue(NO_WEIGHT)
        return found if second.dtype.is_int else cast_to(found, second.dtype)
    if decay is not None:
        found = mapped(formulas.plus_decay, found, cast_to(weight, found.dtype), _scalar(decay, found))
    return cast_to(found, weight.dtype)


def _floats(t: Tensor) -> Tensor:
    """Gives integers, and floats of 16 bits, as single-precision numbers."""
    return cast_to(t, dtypes.float32) if t.dtype.is_int else wide(t)


def _moments(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Gives both in the type of what they are divided by."""
    v = _floats(second)
    return cast_to(_floats(first), v.dtype), v


def _next(time_step: Tensor) -> Tensor:
    """Gives the step, one further, in place."""
    return set_in_place(time_step, add(time_step, 1), "time_step")


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
    m, v = _moments(acc_first_order, acc_second_order)
    if time_step is None:
        found = mapped(formulas.adam, m, v, _scalar(epsilon, v))
    else:
        step = _next(time_step)
        c1, c2 = _correction(beta1, step, m, "beta1"), _correction(beta2, step, v, "beta2")
        found = mapped(formulas.corrected_adam, m, v, c1, c2, _scalar(epsilon, v))
    return _updater(found, acc_second_order, weight, weight_decay)


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
    m, v = _moments(acc_first_order, acc_second_order)
    correction = _correction(beta1, _next(time_step), m, "beta1")
    found = mapped(formulas.corrected_adamax, m, v, correction, _scalar(epsilon, v))
    return _updater(found, acc_second_order, weight, weight_decay)


@recorded("AdamVarUpdate")
def adam_var_update(
    t: Tensor, x: Tensor, r1: Tensor, r2: Tensor, learning_rate: Factor | None = None, max_weight_norm: Factor | None = None
) -> Tensor:
    """Computes `t = t - lr min(sqrt r1, max_weight_norm) / sqrt r2 x`, with the ratio 1 where one of the norms is 0.

    Without a learning rate it is 1; without a largest norm there is none.
    """
    p, q = _floats(r1), _floats(r2)
    limit = () if max_weight_norm is None else (_scalar(max_weight_norm, p),)
    old = wide(t)
    rate = mapped(formulas.trust, p, cast_to(q, p.dtype), *limit)
    if learning_rate is not None:
        rate = mapped(formulas.scale, rate, _scalar(learning_rate, rate))
    return set_in_place(t, mapped(formulas.descend, old, cast_to(x, old.dtype), _scalar(rate, old)), "adam_var_update")
