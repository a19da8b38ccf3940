"""Scores of classifiers: post-transforms, and the label of the best class."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.math import arg_index

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # in the order of TreeEnsemble-5's numbers


def transformed(c: Conversion, y: Term, transform: str | None) -> Term:
    """Applies `post_transform` to scores [n, classes].

    PROBIT is onnxruntime's approximation of the inverse of the normal distribution. Raises PopulusError for
    an unknown one.
    """
    last = len(shape(y.value)) - 1
    match transform:
        case None | "NONE":
            return y
        case "LOGISTIC":
            return Term(c, c.insert(popart.SigmoidOp(y.value)))
        case "SOFTMAX":
            return Term(c, c.insert(popart.SoftmaxOp(y.value, axis=last)))
        case "SOFTMAX_ZERO":
            return _softmax_zero(c, y, last)
        case "PROBIT":
            return _inverse_erf(c, y * 2.0 - 1.0) * 1.41421356
        case _:
            raise PopulusError(f"post_transform is '{transform}'; {', '.join(POST_TRANSFORMS)} are expected")


def _softmax_zero(c: Conversion, y: Term, axis: int) -> Term:
    """Computes a softmax that leaves out scores of 0, which stay near 0."""
    largest = Term(c, c.insert(popart.ReduceMaxOp(y.value, axes=(axis,), keep=True)))
    nonzero = y.abs() > 1e-7
    exponential = _exp(c, y - largest)
    counted = nonzero.where(exponential, 0.0)
    total = Term(c, c.insert(popart.ReduceSumOp(counted.value, axes=(axis,), keep=True)))
    return nonzero.where(exponential, y * _exp(c, largest * -1.0)) / (total.equals(0.0)).where(total + 1.0, total)


def _exp(c: Conversion, x: Term) -> Term:
    """Computes e^x."""
    return Term(c, c.insert(popart.ExpOp(x.value)))


def _inverse_erf(c: Conversion, x: Term) -> Term:
    """Approximates the inverse of erf, with a = 0.147.

    Source: S. Winitzki, "A handy approximation for the error function and its inverse" (2008).
    """
    log = Term(c, c.insert(popart.LogOp(((x * -1.0 + 1.0) * (x + 1.0)).value)))
    v = log * 0.5 + 2 / (3.14159 * 0.147)
    size = ((v * v - log * (1 / 0.147)).sqrt() - v).sqrt()
    return (x < 0.0).where(size * -1.0, size)


def labelled(c: Conversion, y: Term, scores: Term, labels: Sequence[int] | Sequence[str]) -> list[Output]:
    """Gives the label of the largest score of each row, [n], and the scores as f32, [n, classes].

    `y`: the scores that decide, `scores`: those of the result. Raises PopulusError if there are fewer labels
    than scores.
    """
    import numpy as np

    known = c.handles(str(v) for v in labels) if labels and isinstance(labels[0], str) else np.array(labels, np.int64)
    if shape(y.value)[1] > len(known):
        raise PopulusError(f"it has {shape(y.value)[1]} scores and {len(known)} labels")
    index = c.reshape(arg_index(c, y.value, 1, largest=True, last=False), (shape(y.value)[0],))
    return [c.insert(popart.GatherOp(c.constant(known), index, axis=0)), c.cast(scores.value, f32)]
