"""Softmax and whitening by their definitions, along any dimensions."""

from __future__ import annotations

from populus.dialects import expr
from populus.dialects.poplar.affine import Map, Set, identity
from populus.proof.terms import Terms
from populus.proof.trees import Pieces


def softmax(t: Terms, x: Pieces, full: Set, to_row: Map, log: bool) -> Pieces:
    """Makes exp(x - max) / sum of exp(x - max), or its logarithm. `to_row`: index -> that of its row."""
    _1, _2 = expr.Arg(1), expr.Arg(2)
    largest = t.reduced("max", to_row.range(), to_row.reverse(), x, identity(full))
    shifted = t.elementwise(_1 - _2, full, [x, t.seen(largest, to_row)], True)
    e = t.elementwise(expr.exp(_1), full, [shifted], True)
    total = t.reduced("add", to_row.range(), to_row.reverse(), e, identity(full))
    if log:
        return t.elementwise(_1 - expr.log(_2), full, [shifted, t.seen(total, to_row)], True)
    return t.elementwise(_1 / _2, full, [e, t.seen(total, to_row)], True)


def whitened(t: Terms, x: Pieces, full: Set, to_row: Map, count: int, epsilon: float, centre: bool = True) -> Pieces:
    """Makes (x - mean) / sqrt(variance + epsilon); without `centre`, x / sqrt(mean of x^2 + epsilon). `count`: elements of a row."""
    centred, _, root = moments(t, x, full, to_row, count, epsilon, centre)
    return t.elementwise(expr.Arg(1) / expr.Arg(2), full, [centred, t.seen(root, to_row)], True)


def moments(t: Terms, x: Pieces, full: Set, to_row: Map, count: int, epsilon: float, centre: bool = True) -> tuple[Pieces, Pieces, Pieces]:
    """Makes x - mean, and of each row the mean and sqrt(variance + epsilon); without `centre`, the mean is 0."""
    _1, _2 = expr.Arg(1), expr.Arg(2)
    rows = to_row.range()
    mean: Pieces = []
    if centre:
        mean = t.elementwise(_1 / float(count), rows, [t.reduced("add", rows, to_row.reverse(), x, identity(full))], True)
        x = t.elementwise(_1 - _2, full, [x, t.seen(mean, to_row)], True)
    squares = t.reduced("square_add", rows, to_row.reverse(), x, identity(full))
    return x, mean, t.elementwise(expr.sqrt(_1 / float(count) + epsilon), rows, [squares], True)
