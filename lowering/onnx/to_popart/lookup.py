"""Conversions of `ai.onnx.ml` ops that look keys up. Numbers are their own keys; strings are handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import f32, i32, i64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape

if TYPE_CHECKING:
    from numpy.typing import NDArray


def found_at(c: Conversion, x: SSAValue, keys: NDArray[Any]) -> SSAValue:
    """Finds the position of each element of `x` among the keys: i32 in the shape of `x`, -1 if it is no key.

    Of equal keys, the last counts. NaN equals NaN.
    """
    import numpy as np

    spread = c.reshape(x, (*shape(x), 1))
    same = c.insert(popart.EqualOp(spread, c.constant(keys)))
    if is_float(element(x)) and (nans := np.isnan(keys.astype(np.float64))).any():
        both = c.insert(popart.AndOp(c.insert(popart.IsNanOp(spread)), c.constant(nans)))
        same = c.insert(popart.OrOp(same, both))
    numbered = c.insert(popart.WhereOp(same, c.constant(np.arange(len(keys), dtype=np.int32)), c.constant(np.array(-1, np.int32))))
    return c.insert(popart.ReduceMaxOp(numbered, axes=(len(shape(x)),), keep=False))


def looked_up(c: Conversion, x: SSAValue, keys: NDArray[Any], values: NDArray[Any], default: Any) -> SSAValue:
    """Gives the value of each key, and `default` (of the values' dtype) for elements that are no key."""
    import numpy as np

    table = np.concatenate([values, np.array([default], values.dtype)])  # -1 is its last
    return c.insert(popart.GatherOp(c.constant(table), found_at(c, x, keys), axis=0))


def label_encoder(c: Conversion) -> Output:
    """Converts LabelEncoder. Raises PopulusError if keys and values differ in number.

    Source: LabelEncoder-4; LabelEncoder-1 numbers its classes.
    """
    import numpy as np

    x = c.input(0)
    if c.version == 1:
        names = c.handles(c.list("classes_strings"))
        numbers = np.arange(len(names), dtype=np.int64)
        if element(x) == i32:  # strings
            return looked_up(c, x, names, numbers, int(c.get("default_int64")))
        return looked_up(c, x, numbers, names, c.handles([c.get("default_string")])[0])
    keys, values = _listed(c, "keys"), _listed(c, "values")
    if keys is None or values is None or len(keys[0]) != len(values[0]):
        counts = [0 if v is None else len(v[0]) for v in (keys, values)]
        raise PopulusError(f"it has {counts[0]} keys and {counts[1]} values; equally many are expected")
    array, kind = values
    tensor = c.get("default_tensor")
    if tensor is not None:
        default = c.handles(map(str, tensor.reshape(-1)))[0] if kind == "string" else tensor.reshape(-1)[0]
    elif kind == "string":
        default = c.handles([c.get("default_string")])[0]
    elif kind == "tensor":
        default = array.dtype.type(-1 if array.dtype.kind in "iu" else -0.0)
    else:
        default = c.get("default_int64" if kind == "int64" else "default_float")
    known = keys[0]
    if keys[1] != "string":
        known = known.astype(dtype_of(element(x)))
    return looked_up(c, x, known, array, default)


def _listed(c: Conversion, name: str) -> tuple[NDArray[Any], str] | None:
    """Reads keys or values, strings as handles: the array, and the kind of the attribute that has them."""
    import numpy as np

    for kind, dtype in (("int64", np.int64), ("float", np.float32)):
        if (entries := c.get(f"{name}_{kind}s")) is not None:
            return np.array(entries, dtype), kind
    if (entries := c.get(f"{name}_strings")) is not None:
        return c.handles(entries), "string"
    if (entries := c.get(f"{name}_tensor")) is not None:
        flat = entries.reshape(-1)
        return (c.handles(map(str, flat)), "string") if flat.dtype == object else (flat, "tensor")
    return None


def category_mapper(c: Conversion) -> Output:
    """Converts CategoryMapper: strings to the integers of their categories, or back. Source: CategoryMapper-1."""
    import numpy as np

    x = c.input(0)
    names, numbers = c.handles(c.list("cats_strings")), np.array(c.list("cats_int64s"), np.int64)
    if len(names) != len(numbers):
        raise PopulusError(f"it has {len(names)} strings and {len(numbers)} integers as categories; equally many are expected")
    if element(x) == i32:
        return looked_up(c, x, names, numbers, int(c.get("default_int64")))
    return looked_up(c, x, numbers, names, c.handles([c.get("default_string")])[0])


def one_hot_encoder(c: Conversion) -> Output:
    """Converts OneHotEncoder: 1 where an element is the category, along a new last dimension.

    Raises PopulusError for `zeros = 0`, which requires an error at run time. Source: OneHotEncoder-1.
    """
    import numpy as np

    x = c.input(0)
    if names := c.get("cats_strings"):
        keys = c.handles(names)
    else:
        keys = np.array(c.list("cats_int64s"), np.int64)
        x = c.cast(x, i64)
    if not c.get("zeros"):
        raise PopulusError("zeros = 0 asks for an error where an element is no category, which tiles cannot raise; zeros = 1 is supported")
    same = c.insert(popart.EqualOp(c.reshape(x, (*shape(x), 1)), c.constant(keys)))
    return c.cast(same, f32)


def tf_idf_vectorizer(c: Conversion) -> Output:
    """Converts TfIdfVectorizer: counts of each n-gram in a row (TF), its presence (IDF), or both, times `weights`.

    The items of an n-gram stand 1 + skip apart, for each skip up to `max_skip_count`. x: [n] or [b, n].
    Source: TfIdfVectorizer-9.
    """
    import numpy as np

    x = c.input(0)
    rank, n = len(shape(x)), shape(x)[-1] if shape(x) else 1
    if rank not in (1, 2):
        raise PopulusError(f"x has {rank} dimensions; [n] or [b, n] is expected")
    x = c.reshape(x, (shape(x)[0] if rank == 2 else 1, n))
    batch = shape(x)[0]
    strings = c.get("pool_strings")
    pool = c.handles(strings) if strings else np.array(c.get("pool_int64s"), np.int64).astype(dtype_of(element(x)))
    starts, at = [int(v) for v in c.get("ngram_counts")], [int(v) for v in c.get("ngram_indexes")]
    least, most, skips = int(c.get("min_gram_length")), int(c.get("max_gram_length")), int(c.get("max_skip_count"))
    width = max(at, default=-1) + 1
    y: SSAValue | None = None
    numbered = 0
    for length in range(1, len(starts) + 1):
        end = starts[length] if length < len(starts) else len(pool)
        grams = pool[starts[length - 1] : end].reshape(-1, length)
        places, numbered = np.array(at[numbered : numbered + len(grams)], np.int32), numbered + len(grams)
        if not least <= length <= most or not len(grams):
            continue
        counts: SSAValue | None = None
        for skip in range(skips + 1 if length > 1 else 1):
            positions = n - (length - 1) * (skip + 1)
            if positions > 0:
                more = _occurrences(c, x, grams, skip, positions)
                counts = more if counts is None else c.insert(popart.AddOp(counts, more))
        if counts is not None:
            placed = _placed(c, counts, places, width)
            y = placed if y is None else c.insert(popart.AddOp(y, placed))
    if y is None:
        y = c.constant(np.zeros((batch, width), np.float32))
    mode, weights = c.get("mode"), c.get("weights")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise PopulusError(f"mode is '{mode}'; TF, IDF and TFIDF are expected")
    if mode == "IDF":
        y = c.cast(c.insert(popart.GreaterOp(y, c.scalar(0.0, y))), f32)
    if mode != "TF" and weights is not None:
        scale = np.ones(width, np.float32)
        scale[at] = np.array(weights, np.float32)
        y = c.insert(popart.MulOp(y, c.constant(scale)))
    return c.reshape(y, (width,)) if rank == 1 else y


def _placed(c: Conversion, counts: SSAValue, places: NDArray[Any], width: int) -> SSAValue:
    """Moves column i of the counts to column places[i] of the result, and sums columns of equal place: [b, width]."""
    import numpy as np

    if len(set(places)) < len(places):
        return c.insert(popart.MatMulOp(counts, c.constant((places[:, None] == np.arange(width)).astype(np.float32))))
    if len(places) == width and (places == np.arange(width)).all():
        return counts
    source = np.full(width, len(places), np.int32)
    source[places] = np.arange(len(places), dtype=np.int32)
    nothing = c.constant(np.zeros((shape(counts)[0], 1), np.float32))
    return c.insert(popart.GatherOp(c.insert(popart.ConcatOp(counts, nothing, axis=1)), c.constant(source), axis=1))


def _occurrences(c: Conversion, x: SSAValue, grams: NDArray[Any], skip: int, positions: int) -> SSAValue:
    """Counts each n-gram in each row: [b, grams], f32."""
    batch = shape(x)[0]
    all_same: SSAValue | None = None
    for k in range(grams.shape[1]):
        begin = k * (skip + 1)
        window = c.insert(popart.SliceOp(x, begins=(0, begin), ends=(batch, begin + positions), steps=(1, 1)))
        same = c.insert(popart.EqualOp(c.reshape(window, (batch, positions, 1)), c.constant(grams[:, k].copy())))
        all_same = same if all_same is None else c.insert(popart.AndOp(all_same, same))
    assert all_same is not None
    return c.insert(popart.ReduceSumOp(c.cast(all_same, f32), axes=(1,), keep=False))


RULES: Rules = {
    "TfIdfVectorizer": tf_idf_vectorizer,
    "ai.onnx.ml.CategoryMapper": category_mapper,
    "ai.onnx.ml.LabelEncoder": label_encoder,
    "ai.onnx.ml.OneHotEncoder": one_hot_encoder,
}
