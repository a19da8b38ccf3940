"""Conversions of `ai.onnx.ml` ops on numbers: linear models, support vector machines, scalers and imputers.

Trees and lookups have files of their own.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.loop import loop
from populus.lowering.onnx.to_popart.scores import labelled, transformed
from populus.lowering.onnx.to_popart.tensor import from_front

if TYPE_CHECKING:
    from numpy.typing import NDArray


def array_feature_extractor(c: Conversion) -> Output:
    """Converts ArrayFeatureExtractor: columns by index; a vector becomes one row. Source: ArrayFeatureExtractor-1."""
    x, at = c.input(0), c.input(1)
    rank, count = len(shape(x)), math.prod(shape(at))
    columns = from_front(c, c.reshape(at, (count,)), c.length(x, len(shape(x)) - 1))
    y = c.insert(popart.GatherOp(x, columns, axis=rank - 1))
    return c.reshape(y, (1, count)) if rank == 1 else y


def binarizer(c: Conversion) -> Output:
    """Converts Binarizer: 1 above the threshold, 0 elsewhere. Source: Binarizer-1."""
    x = Term(c, c.input(0))
    return c.cast((x > float(c.get("threshold") or 0.0)).value, element(x.value))


def scaler(c: Conversion) -> Output:
    """Converts Scaler: `(x - offset) * scale`. Source: Scaler-1."""
    x = _float(c, c.input(0))
    for name, kind in (("offset", popart.SubOp), ("scale", popart.MulOp)):
        if numbers := c.get(name):
            x = c.insert(kind(x, _row(c, x, numbers, name)))
    return x


def _row(c: Conversion, x: SSAValue, numbers: list[float], name: str) -> SSAValue:
    """Makes a constant of one number for each feature of `x`, or one for all. Raises PopulusError otherwise."""
    import numpy as np

    if len(numbers) not in (1, shape(x)[-1]):
        raise PopulusError(f"'{name}' has {len(numbers)} numbers; x has {shape(x)[-1]} features")
    return c.constant(np.array(numbers if len(numbers) > 1 else numbers[0], np.float32))


def _float(c: Conversion, x: SSAValue) -> SSAValue:
    """Casts `x` to f32."""
    return c.cast(x, f32)


def normalizer(c: Conversion) -> Output:
    """Converts Normalizer: rows over their maximum or norm; a row of zeros stays. Source: Normalizer-1."""
    x = Term(c, _float(c, c.input(0)))
    axis = len(shape(x.value)) - 1
    norm = c.get("norm")
    kinds = {"MAX": popart.ReduceMaxOp, "L1": popart.ReduceL1Op, "L2": popart.ReduceL2Op}
    if norm not in kinds:
        raise PopulusError(f"norm is '{norm}'; {', '.join(kinds)} are expected")
    size = Term(c, c.insert(kinds[norm](x.value, axes=(axis,), keep=True)))
    return (x / size.equals(0.0).where(size * 0.0 + 1.0, size)).value


def imputer(c: Conversion) -> Output:
    """Converts Imputer: replaces elements that equal one value. Source: Imputer-1."""
    import numpy as np

    x = c.input(0)
    dtype = dtype_of(element(x))
    kind = "float" if is_float(element(x)) else "int64"
    values = c.get(f"imputed_value_{kind}s")
    if not values or len(values) not in (1, shape(x)[-1]):
        raise PopulusError(f"'imputed_value_{kind}s' has {len(values or ())} numbers; 1 or {shape(x)[-1]} are expected")
    wanted = c.get(f"replaced_value_{kind}") or 0
    if kind == "float" and math.isnan(wanted):
        missing = c.insert(popart.IsNanOp(x))
    else:
        missing = c.insert(popart.EqualOp(x, c.scalar(wanted, x)))
    return c.insert(popart.WhereOp(missing, c.constant(np.array(values, dtype)), x))


def feature_vectorizer(c: Conversion) -> Output:
    """Converts FeatureVectorizer: joins the features of all inputs as f32. Source: FeatureVectorizer-1."""
    parts = [_float(c, v) for v in c.inputs if v is not None]
    parts = [
        c.reshape(v, (shape(v)[0] if len(shape(v)) > 1 else 1, math.prod(shape(v)[1:]) if len(shape(v)) > 1 else shape(v)[0]))
        for v in parts
    ]
    for i, (part, n) in enumerate(zip(parts, c.list("inputdimensions"))):
        if shape(part)[1] != n:
            raise PopulusError(f"input {i} has {shape(part)[1]} features; inputdimensions says {n}")
    return parts[0] if len(parts) == 1 else c.insert(popart.ConcatOp(*parts, axis=1))


def _rows(c: Conversion) -> SSAValue:
    """Gives `x` as [n, features]: f32, or f64 if it is f64."""
    x = c.input(0)
    x = x if is_float(element(x)) else c.cast(x, f32)
    return c.reshape(x, (1, shape(x)[0])) if len(shape(x)) == 1 else x


def _linear(c: Conversion, x: SSAValue, outputs: int | None) -> Term:
    """Computes `x @ coefficients^T + intercepts`: [n, outputs]. Raises PopulusError if the numbers do not fit."""
    import numpy as np

    features = shape(x)[1]
    coefficients = np.array(c.list("coefficients"), dtype_of(element(x)))
    if not features or coefficients.size % features or (outputs is not None and coefficients.size != outputs * features):
        raise PopulusError(
            f"it has {coefficients.size} coefficients for {features} features" + ("" if outputs is None else f" and {outputs} targets")
        )
    y = c.insert(popart.GemmOp(x, c.constant(coefficients.reshape(-1, features)), None, alpha=1.0, beta=1.0, trans_a=False, trans_b=True))
    if intercepts := c.get("intercepts"):
        if len(intercepts) not in (1, shape(y)[1]):
            raise PopulusError(f"it has {len(intercepts)} intercepts for {shape(y)[1]} rows of coefficients")
        y = c.insert(popart.AddOp(y, c.constant(np.array(intercepts, coefficients.dtype))))
    return Term(c, y)


def linear_regressor(c: Conversion) -> Output:
    """Converts LinearRegressor. Source: LinearRegressor-1."""
    return c.cast(transformed(c, _linear(c, _rows(c), int(c.get("targets"))), c.get("post_transform")).value, f32)


def linear_classifier(c: Conversion) -> list[Output]:
    """Converts LinearClassifier: one score for each class; a single score decides by its sign.

    Source: LinearClassifier-1.
    """
    y = _linear(c, _rows(c), None)
    labels = c.list("classlabels_ints") or c.list("classlabels_strings")
    post = c.get("post_transform")
    if shape(y.value)[1] > 1:
        return labelled(c, y, transformed(c, y, post), labels)
    p = transformed(c, y, post)
    both = Term(c, c.insert(popart.ConcatOp((p * -1.0 + 1.0).value, p.value, axis=1)))
    return _signed(c, y, both if labels else p, labels)


def _signed(c: Conversion, y: Term, scores: Term, labels: list[Any]) -> list[Output]:
    """Gives the second label where `y` ([n, 1]) is above 0, else the first; and the scores."""
    zero = y * 0.0
    pair = Term(c, c.insert(popart.ConcatOp(zero.value, y.value, axis=1)))
    known: list[Any] = labels if len(labels) == 2 else ["0", "1"] if labels and isinstance(labels[0], str) else [0, 1]
    return labelled(c, pair, scores, known)


def _kernel(c: Conversion, x: SSAValue, vectors: NDArray[Any]) -> Term:
    """Computes the kernel of each row of `x` with each vector: [n, vectors]. Source: SVMClassifier-1."""
    gamma, offset, degree = [*c.list("kernel_params"), 0.0, 0.0, 0.0][:3]
    kind = c.get("kernel_type")
    product = Term(c, c.insert(popart.MatMulOp(x, c.constant(vectors.T.copy()))))
    match kind:
        case "LINEAR":
            return product
        case "POLY":
            return (product * gamma + offset).power(float(degree))
        case "SIGMOID":
            return Term(c, c.insert(popart.TanhOp((product * gamma + offset).value)))
        case "RBF":
            squares = Term(c, c.insert(popart.ReduceSumSquareOp(x, axes=(1,), keep=True)))
            distance = squares - product * 2.0 + Term(c, c.constant((vectors * vectors).sum(1)))
            return Term(c, c.insert(popart.ExpOp((distance.max(0.0) * -gamma).value)))
        case _:
            raise PopulusError(f"kernel_type is '{kind}'; LINEAR, POLY, RBF and SIGMOID are expected")


def svm_regressor(c: Conversion) -> Output:
    """Converts SVMRegressor: `kernel(x, vectors) @ coefficients + rho`; with `one_class`, its sign.

    Source: SVMRegressor-1.
    """
    import numpy as np

    x = _rows(c)
    dtype = dtype_of(element(x))
    coefficients, rho = np.array(c.get("coefficients"), dtype), c.get("rho") or [0.0]
    supports = int(c.get("n_supports") or 0)
    if supports:
        vectors = np.array(c.get("support_vectors"), dtype).reshape(supports, -1)
        values = _kernel(c, x, vectors).value
    else:
        values = x
    if shape(values)[1] != coefficients.size:
        raise PopulusError(f"it has {coefficients.size} coefficients for {shape(values)[1]} values")
    y = Term(c, c.insert(popart.MatMulOp(values, c.constant(coefficients.reshape(-1, 1))))) + float(rho[0])
    if c.get("one_class"):
        y = (y > 0.0).where(y * 0.0 + 1.0, -1.0)
    return c.cast(transformed(c, y, c.get("post_transform")).value, f32)


def svm_classifier(c: Conversion) -> list[Output]:
    """Converts SVMClassifier: one decision for each pair of classes, by which the pairs vote.

    `prob_a` and `prob_b` turn the decisions into probabilities. Source: SVMClassifier-1.
    """
    import numpy as np

    x = _rows(c)
    dtype = dtype_of(element(x))
    labels = c.list("classlabels_ints") or c.list("classlabels_strings")
    classes = max(len(labels), 1)
    coefficients, rho = np.array(c.get("coefficients"), dtype), np.array(c.get("rho") or [0.0], dtype)
    each = c.list("vectors_per_class")
    if not sum(each):  # one hyperplane for each class
        rows = coefficients.reshape(classes, -1)
        y = Term(c, c.insert(popart.MatMulOp(x, c.constant(rows.T.copy())))) + float(rho[0])
        return labelled(c, y, transformed(c, y, c.get("post_transform")), labels)
    vectors = np.array(c.get("support_vectors"), dtype).reshape(sum(each), -1)
    table = coefficients.reshape(-1, sum(each))
    starts = np.cumsum([0, *each])
    pairs = list(combinations(range(classes), 2))
    if len(rho) != len(pairs) or len(each) != classes or table.shape[0] != classes - 1:
        raise PopulusError(
            f"it has {len(rho)} offsets, {len(each)} counts of vectors and {table.shape[0]} rows of coefficients for {classes} classes"
        )
    weights = np.zeros((sum(each), len(pairs)), dtype)
    for column, (i, j) in enumerate(pairs):
        weights[starts[i] : starts[i + 1], column] = table[j - 1, starts[i] : starts[i + 1]]
        weights[starts[j] : starts[j + 1], column] = table[i, starts[j] : starts[j + 1]]
    y = Term(c, c.insert(popart.MatMulOp(_kernel(c, x, vectors).value, c.constant(weights)))) + Term(c, c.constant(rho))
    won = (y > 0.0).cast(element(x))
    to = np.zeros((2, len(pairs), classes), dtype)
    for column, (i, j) in enumerate(pairs):
        to[0, column, i] = to[1, column, j] = 1
    votes = Term(c, c.insert(popart.MatMulOp(won.value, c.constant(to[0] - to[1])))) + Term(c, c.constant(to[1].sum(0)))
    if c.get("prob_a"):
        p = _probabilities(c, y, pairs, classes)
        return labelled(c, votes, p, labels)
    if classes == 2:
        y = Term(c, c.insert(popart.ConcatOp((y * -1.0).value, y.value, axis=1)))
    return labelled(c, votes, transformed(c, y, c.get("post_transform")), labels)


def _probabilities(c: Conversion, y: Term, pairs: list[tuple[int, int]], classes: int) -> Term:
    """Computes probabilities of classes from decisions of pairs: [n, classes].

    Up to 100 sweeps, as in LIBSVM; a row that has converged does not change. Source: Wu, Lin, Weng, "Probability
    estimates for multi-class classification by pairwise coupling" (2004), its second method.
    """
    import numpy as np

    dtype = dtype_of(element(y.value))
    a, b = (np.array(c.get(name), dtype) for name in ("prob_a", "prob_b"))
    if len(a) != len(pairs) or len(b) != len(pairs):
        raise PopulusError(f"prob_a and prob_b have {len(a)} and {len(b)} numbers for {len(pairs)} pairs of classes")
    n = shape(y.value)[0]
    chance = Term(c, c.insert(popart.SigmoidOp(((y * Term(c, c.constant(a)) + Term(c, c.constant(b))) * -1.0).value)))
    chance = chance.max(1e-7).min(1.0 - 1e-7)
    to = np.zeros((2, len(pairs), classes, classes), dtype)
    for column, (i, j) in enumerate(pairs):
        to[0, column, i, j] = to[1, column, j, i] = 1
    flat = [Term(c, c.constant(t.reshape(len(pairs), -1))) for t in to]

    def spread(v: Term, t: Term) -> Term:
        return Term(c, c.insert(popart.MatMulOp(v.value, t.value)))

    r = (spread(chance, flat[0]) + spread(chance * -1.0 + 1.0, flat[1])).reshape(n, classes, classes)
    mirrored = Term(c, c.transpose(r.value, (0, 2, 1)))
    own = Term(c, c.insert(popart.ReduceSumSquareOp(mirrored.value, axes=(2,), keep=True)))
    eye = np.eye(classes, dtype=dtype)
    q = own * Term(c, c.constant(eye)) - mirrored * r
    start = c.constant(np.full((n, classes), 1 / classes, dtype))

    def sweep(k: Conversion, index: SSAValue, states: list[SSAValue]) -> list[SSAValue]:
        p, matrix = Term(k, states[0]), Term(k, q.value)
        product = Term(k, k.insert(popart.ReduceSumOp((matrix * p.reshape(n, 1, classes)).value, axes=(2,), keep=False)))
        whole = Term(k, k.insert(popart.ReduceSumOp((p * product).value, axes=(1,), keep=True)))
        error = Term(k, k.insert(popart.ReduceMaxOp((product - whole).abs().value, axes=(1,), keep=True)))
        new = p
        for t in range(classes):
            diagonal = _column(k, matrix, t, t, n)
            diff = (whole - _part(k, product, t, n)) / diagonal
            rows = Term(k, k.constant(eye[t]))
            new = new + diff * rows
            whole = (whole + diff * (diff * diagonal + _part(k, product, t, n) * 2.0)) / ((diff + 1.0) * (diff + 1.0))
            new = new / (diff + 1.0)
            product = (product + diff * _matrix_row(k, matrix, t, n, classes)) / (diff + 1.0)
        return [(error < 0.005 / classes).where(p, new).value]

    return Term(c, loop(c, [start], max(100, classes), sweep)[0])


def _part(c: Conversion, x: Term, t: int, n: int) -> Term:
    """Slices column `t` of [n, classes]: [n, 1]."""
    return Term(c, c.insert(popart.SliceOp(x.value, begins=(0, t), ends=(n, t + 1), steps=(1, 1))))


def _column(c: Conversion, x: Term, t: int, s: int, n: int) -> Term:
    """Takes element (t, s) of each matrix: [n, 1]."""
    return Term(c, c.insert(popart.SliceOp(x.value, begins=(0, t, s), ends=(n, t + 1, s + 1), steps=(1, 1, 1)))).reshape(n, 1)


def _matrix_row(c: Conversion, x: Term, t: int, n: int, classes: int) -> Term:
    """Takes row `t` of each matrix: [n, classes]."""
    return Term(c, c.insert(popart.SliceOp(x.value, begins=(0, t, 0), ends=(n, t + 1, classes), steps=(1, 1, 1)))).reshape(n, classes)


RULES: Rules = {
    "ai.onnx.ml.ArrayFeatureExtractor": array_feature_extractor,
    "ai.onnx.ml.Binarizer": binarizer,
    "ai.onnx.ml.FeatureVectorizer": feature_vectorizer,
    "ai.onnx.ml.Imputer": imputer,
    "ai.onnx.ml.LinearClassifier": linear_classifier,
    "ai.onnx.ml.LinearRegressor": linear_regressor,
    "ai.onnx.ml.Normalizer": normalizer,
    "ai.onnx.ml.SVMClassifier": svm_classifier,
    "ai.onnx.ml.SVMRegressor": svm_regressor,
    "ai.onnx.ml.Scaler": scaler,
}
