"""Ops of `ai.graphcore` for neural networks on graphs, and for connectionist temporal classification, written as ONNX ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.enums import DataType
from populus.popart.tensor_info import dtype_of_number
from populus.popart.translation import Body

_NEVER = -1e30  # the logarithm of a probability of 0, which stays finite in sums

# A spline of degree d is one of these polynomials of v in each of d + 1 pieces: coefficients from v^0 on.
# Source: torch_spline_conv, B-splines on uniform knots.
_PIECES: Mapping[int, Sequence[Sequence[float]]] = {
    1: ((1, -1), (0, 1)),
    2: ((1 / 2, -1, 1 / 2), (1 / 2, 1, -1), (0, 0, 1 / 2)),
    3: ((1 / 6, -1 / 2, 1 / 2, -1 / 6), (4 / 6, 0, -1, 1 / 2), (1 / 6, 1 / 2, 1 / 2, -1 / 2), (0, 0, 0, 1 / 6)),
}


def spline_basis(b: Body, pseudo: str, kernel_size: str, is_open: str) -> Sequence[str]:
    """Computes the products of B-splines at the coordinates of each edge, and the weights that they belong to.

    `pseudo`: `[edges, dims]`, in [0, 1]. `kernel_size`, `is_open`: for each dimension. With `degree` d, an edge has `(d + 1)^dims` of both.
    Raises PopulusError for another degree than 1, 2 or 3.
    """
    import numpy as np

    degree, (edges, dims) = b.attr("degree", 1), b.shape()
    if degree not in _PIECES:
        raise PopulusError(f"degree = {degree}; 1, 2 or 3 is expected")
    x = b.cast(pseudo, np.float32)
    sizes, opened = b.cast(kernel_size, np.int64), b.cast(is_open, np.float32)
    span = b("Sub", b.cast(sizes, np.float32), b("Mul", opened, b.const(float(degree), np.float32)))
    v = b("Mul", x, span)  # edges, dims
    whole = b("Floor", v)
    part, first = b("Sub", v, whole), b.cast(whole, np.int64)
    each = [_piece(b, part, p) for p in _PIECES[degree]]
    at = [b("Mod", b("Add", first, b.const(k, np.int64)), sizes) for k in range(degree + 1)]
    strides = [b.const(1, np.int64)]
    for d in range(dims - 1):
        strides.append(b("Mul", strides[-1], b("Gather", sizes, b.const(d, np.int64))))
    stacked = b("Concat", *(b.reshape(p, [1, edges, dims]) for p in each), axis=0)  # pieces, edges, dims
    places = b("Concat", *(b.reshape(p, [1, edges, dims]) for p in at), axis=0)
    width = int(degree) + 1
    basis, place = b.const(1, np.float32), b.const(0, np.int64)
    for d in range(dims):
        pieces = b.ints(s // width**d % width for s in range(width**dims))
        basis = b("Mul", basis, b("Gather", _column(b, stacked, d, edges), pieces, axis=0))
        place = b("Add", place, b("Mul", b("Gather", _column(b, places, d, edges), pieces, axis=0), strides[d]))
    found = [b("Transpose", v, perm=[1, 0]) for v in (basis, place)]  # edges, splines
    return [b.cast(found[0], b.dtype()), b.cast(found[1], np.int32)]


def _column(b: Body, x: str, d: int, edges: int) -> str:
    """Gives the rows of one dimension: `[pieces, edges]`."""
    return b.reshape(b("Gather", x, b.ints([d]), axis=2), [-1, edges])


def _piece(b: Body, v: str, coefficients: Sequence[float]) -> str:
    """Computes a polynomial, by Horner's rule."""
    import numpy as np

    y = b.const(coefficients[-1], np.float32)
    for c in reversed(coefficients[:-1]):
        y = b("Add", b("Mul", y, v), b.const(c, np.float32))
    return y


def spline_weighting(b: Body, x: str, weights: str, basis: str, places: str) -> str:
    """Computes `y[e, o] = sum over s, i of basis[e, s] x[e, i] weights[places[e, s], i, o]`."""
    import numpy as np

    edges, channels = b.shape()
    splines, outputs = b.shape(3)[1], b.shape(1)[2]
    chosen = b("Gather", weights, b.cast(places, np.int64), axis=0)  # edges, splines, channels, outputs
    flat = b.reshape(chosen, [edges, splines, channels * outputs])
    mixed = b("MatMul", b.reshape(basis, [edges, 1, splines]), flat)
    y = b("MatMul", b.reshape(x, [edges, 1, channels]), b.reshape(mixed, [edges, channels, outputs]))
    return b.reshape(y, [edges, outputs])


def ctc_loss(b: Body, log_probs: str, targets: str, lengths: str, target_lengths: str) -> str:
    """Computes `-log p(targets | x)` of each row, where a path may repeat labels and put blanks between them; reduced.

    `log_probs`: `[T, N, C]`. `targets`: `[N, S]`, its rows filled up beyond `target_lengths`. With reduction Mean, each loss is divided by
    its target's length first. With `zeroInfinity`, a row that no path gives counts 0. Raises PopulusError for shapes that do not fit.
    Source: Graves et al., Connectionist Temporal Classification; PyTorch CTCLoss.
    """
    import numpy as np

    if len(b.shape()) != 3 or b.shape(1)[:1] != b.shape()[1:2] or len(b.shape(1)) != 2:
        raise PopulusError(f"log_probs are {list(b.shape())} and targets {list(b.shape(1))}; [T, N, C] and [N, S] are expected")
    (steps, rows, _), count = b.shape(), b.shape(1)[1]
    wide = 2 * count + 1
    blank = b.const(np.full((rows, count, 1), b.attr("blank", 0)), np.int64)
    pairs = b("Concat", blank, b.reshape(b.cast(targets, np.int64), [rows, count, 1]), axis=2)
    last = b.const(np.full((rows, 1), b.attr("blank", 0)), np.int64)
    path = b("Concat", b.reshape(pairs, [rows, 2 * count]), last, axis=1)
    emitted = b.cast(b("GatherElements", log_probs, b("Expand", path, b.ints([steps, rows, wide])), axis=2), np.float32)
    # From s - 2 a path steps to s if s is a label, and another one than there.
    two_before = b("Concat", b("Expand", last, b.ints([rows, 2])), _part(b, path, 0, wide - 2), axis=1)
    label = b("Not", b("Equal", path, b.const(b.attr("blank", 0), np.int64)))
    skips = b("And", label, b("Not", b("Equal", path, two_before)))
    begins = np.full((rows, wide), _NEVER)
    begins[:, 0] = 0
    state = b.const(begins, np.float32)
    ends = b.reshape(b.cast(lengths, np.int64), [rows, 1])
    for t in range(steps):
        moved = b("Add", _paths(b, state, skips, rows, wide), b.reshape(_row(b, emitted, t), [rows, wide]))
        state = b("Where", b("Greater", ends, b.const(t, np.int64)), moved, state)
    return _finished(b, state, b.reshape(b.cast(target_lengths, np.int64), [rows, 1]))


def _row(b: Body, x: str, t: int) -> str:
    return b("Slice", x, b.ints([t]), b.ints([t + 1]), b.ints([0]))


def _part(b: Body, x: str, begin: int, end: int) -> str:
    return b("Slice", x, b.ints([begin]), b.ints([end]), b.ints([1]))


def _paths(b: Body, state: str, skips: str, rows: int, wide: int) -> str:
    """Computes the logarithm of the sum of the probabilities of staying, of one step, and of two where that is allowed."""
    import numpy as np

    never = b.const(_NEVER, np.float32)
    one = b("Concat", b("Expand", never, b.ints([rows, 1])), _part(b, state, 0, wide - 1), axis=1)
    two = b("Concat", b("Expand", never, b.ints([rows, 2])), _part(b, state, 0, wide - 2), axis=1)
    return _log_sum(b, state, one, b("Where", skips, two, never))


def _log_sum(b: Body, *terms: str) -> str:
    """Computes the logarithm of a sum of exponentials."""
    largest = b("Max", *terms)
    return b("Add", largest, b("Log", b("Sum", *(b("Exp", b("Sub", t, largest)) for t in terms))))


def _finished(b: Body, state: str, lengths: str) -> str:
    """Computes the loss of each row from its states after the last step, reduced."""
    import numpy as np

    rows = b.shape(1)[0]
    at = b("Mul", lengths, b.const(2, np.int64))
    blank = b("GatherElements", state, at, axis=1)
    before = b("GatherElements", state, b("Max", b("Sub", at, b.const(1, np.int64)), b.const(0, np.int64)), axis=1)
    before = b("Where", b("Greater", lengths, b.const(0, np.int64)), before, b.const(_NEVER, np.float32))
    loss = b("Neg", b.reshape(_log_sum(b, blank, before), [rows]))
    none = b.const(0.0 if b.attr("zeroInfinity", 0) else np.inf, np.float32)
    loss = b("Where", b("Less", loss, b.const(-_NEVER / 2, np.float32)), loss, none)
    reduction = b.attr("reduction", "Mean")
    if reduction == "Mean":
        each = b("Max", b.reshape(b.cast(lengths, np.float32), [rows]), b.const(1, np.float32))
        loss = b("ReduceMean", b("Div", loss, each), keepdims=0)
    elif reduction == "Sum":
        loss = b("ReduceSum", loss, keepdims=0)
    return b.cast(loss, _result_type(b))


def _result_type(b: Body) -> Any:
    """Gives the element type that `outDataType` states, or that of the inputs."""
    stated = b.attr("outDataType", "UNDEFINED")
    number = DataType.__members__.get(stated, DataType.UNDEFINED) if isinstance(stated, str) else DataType(stated)
    return b.dtype() if number == DataType.UNDEFINED else dtype_of_number(int(number))


def tensor_remap(b: Body, x: str) -> str:
    """Computes x; PopART lays it out anew, which changes no result."""
    return b("Identity", x)


OPS: Mapping[str, Callable[..., str | Sequence[str]]] = {
    "Ctc": ctc_loss,
    "SplineBasis": spline_basis,
    "SplineWeighting": spline_weighting,
    "TensorRemap": tensor_remap,
}
