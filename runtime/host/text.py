"""ONNX's ops on strings, on arrays of Python strings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.host.pattern import RegularExpression

Array = NDArray[Any]
Params = Mapping[str, Any]


def _objects(values: list[str], shape: tuple[int, ...]) -> Array:
    strings = np.empty(len(values), object)
    strings[:] = values
    return strings.reshape(shape)


def concat(params: Params, arrays: list[Array]) -> list[Array]:
    """Concatenates x and y, which broadcast against each other. Source: ONNX StringConcat-20."""
    x, y = np.broadcast_arrays(*arrays)
    return [_objects([a + b for a, b in zip(x.reshape(-1), y.reshape(-1))], x.shape)]


def split(params: Params, arrays: list[Array]) -> list[Array]:
    """Splits each string. Returns the parts along a new last dimension, padded with empty strings, and their number.

    Without a delimiter, any run of white space is one. Source: ONNX StringSplit-20.
    """
    (x,) = arrays
    most = params.get("maxsplit")
    parts = [text.split(params.get("delimiter") or None, -1 if most is None else most) for text in x.reshape(-1)]
    width = max(map(len, parts), default=0)
    padded = [word for p in parts for word in (*p, *[""] * (width - len(p)))]
    return [_objects(padded, (*x.shape, width)), np.array([len(p) for p in parts], np.int64).reshape(x.shape)]


def normalize(params: Params, arrays: list[Array]) -> list[Array]:
    """Removes stop words and changes the case; returns one empty string if none is left. x: [n] or [1, n].

    Case changes are Unicode's for any `locale`. Raises PopulusError for another shape or case change.
    Source: ONNX StringNormalizer-10.
    """
    (x,) = arrays
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise PopulusError(f"x has the shape {list(x.shape)}; [n] or [1, n] is expected")
    changes = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    action = params.get("case_change_action", "NONE")
    if action not in changes:
        raise PopulusError(f"case_change_action is '{action}'; {', '.join(changes)} are expected")
    compared = str if params.get("is_case_sensitive") else str.lower
    stop = {compared(word) for word in params.get("stopwords", ())}
    words = [changes[action](text) for text in x.reshape(-1) if compared(text) not in stop] or [""]
    return [_objects(words, (len(words),) if x.ndim == 1 else (1, len(words)))]


def match(params: Params, arrays: list[Array]) -> list[Array]:
    """Tells for each string if it matches `pattern` as a whole, in time proportional to its length.

    Source: ONNX RegexFullMatch-20.
    """
    (x,) = arrays
    pattern = RegularExpression(params["pattern"])
    return [np.array([pattern.matches(text) for text in x.reshape(-1)], np.bool_).reshape(x.shape)]


def from_numbers(params: Params, arrays: list[Array]) -> list[Array]:
    """Formats numbers as the shortest text that reads back to the same value; integral values have no decimal point.

    Special values are `NaN`, `INF` and `-INF`. Source: ONNX Cast-25, which leaves the form open; integral values are
    as in onnxruntime.
    """
    (x,) = arrays
    return [_objects([_written(v) for v in x.reshape(-1)], x.shape)]


def _written(value: Any) -> str:
    if value.dtype.kind in "iub":
        return str(int(value))
    if np.isnan(value.astype(np.float64)):
        return "NaN"
    if np.isinf(value.astype(np.float64)):
        return "INF" if value > 0 else "-INF"
    return str(value).removesuffix(".0")


def to_numbers(params: Params, arrays: list[Array]) -> list[Array]:
    """Parses text as numbers of `dtype`. Raises PopulusError for text that is not a number, or out of range.

    Source: ONNX Cast-25.
    """
    import ml_dtypes

    (x,) = arrays
    name = params["dtype"]
    try:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise PopulusError(f"dtype is '{name}', which is no type of numbers") from None
    return [np.array([_number(text, dtype) for text in x.reshape(-1)], dtype).reshape(x.shape)]


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iu":
        try:
            value = int(text)
        except ValueError:
            value = int(_float(text, dtype))
        info = np.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise PopulusError(f"the string '{text}' does not fit {dtype}")
        return value
    return _float(text, dtype) if dtype != np.bool_ else bool(_float(text, dtype))


def _float(text: str, dtype: np.dtype[Any]) -> float:
    if re.fullmatch(r"\s*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|infinity|nan)\s*", text, re.IGNORECASE | re.ASCII) is None:
        raise PopulusError(f"the string '{text[:40]}' is no number, which its cast to {dtype} needs")
    return float(text)


def tokenize(params: Params, arrays: list[Array]) -> list[Array]:
    """Splits each string into tokens along a new last dimension, padded with `pad_value`. x: [n] or [b, n].

    Tokens are the matches of `tokenexp`, or the text between `separators`. Tokens shorter than `mincharnum` are left
    out. `mark` adds a start and an end token. Source: onnxruntime, com.microsoft Tokenizer-1.
    """
    (x,) = arrays
    least = params.get("mincharnum", 1)
    if expression := params.get("tokenexp"):
        pattern = RegularExpression(expression)
        tokens = [pattern.find_all(text) for text in x.reshape(-1)]
    else:
        separators = [s for s in params.get("separators", ()) if s]
        tokens = [_between(text, separators) for text in x.reshape(-1)]
    rows = [[token for token in row if len(token) >= least] for row in tokens]
    if params.get("mark"):
        rows = [["\x02", *row, "\x03"] for row in rows]
    width = max(map(len, rows), default=0)
    return [_objects([t for row in rows for t in (*row, *[params["pad_value"]] * (width - len(row)))], (*x.shape, width))]


def _between(text: str, separators: list[str]) -> list[str]:
    if not separators:  # every character is a token
        return list(text)
    parts = [text]
    for separator in separators:
        parts = [piece for part in parts for piece in part.split(separator)]
    return [p for p in parts if p]
