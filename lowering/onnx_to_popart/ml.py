"""Ops of `ai.onnx.ml`."""

from __future__ import annotations

from populus.dialects import popart
from populus.lowering.onnx_to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx_to_popart.formula import Term
from populus.lowering.onnx_to_popart.tensor import from_front


def array_feature_extractor(c: Conversion) -> Output:
    """Columns by index; a row of them becomes a matrix. Source: ArrayFeatureExtractor-1."""
    x, at = c.input(0), c.input(1)
    rank, count = len(shape(x)), shape(at)[-1]
    columns = from_front(c, c.reshape(at, (count,)), shape(x)[-1])
    y = c.insert(popart.GatherOp(x, columns, axis=rank - 1))
    return c.reshape(y, (1, count)) if rank == 1 else y


def binarizer(c: Conversion) -> Output:
    """1 above the threshold, 0 elsewhere. Source: Binarizer-1."""
    x = Term(c, c.input(0))
    return c.cast((x > float(c.get("threshold") or 0.0)).value, element(x.value))


RULES: Rules = {"ai.onnx.ml.ArrayFeatureExtractor": array_feature_extractor, "ai.onnx.ml.Binarizer": binarizer}
