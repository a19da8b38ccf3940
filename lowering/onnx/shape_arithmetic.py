"""Values of ops that compute shapes, in NumPy: the ops that exporters write between Shape and Reshape.

Used during type inference, when an op cannot be converted and run yet. Rows are by ONNX op type, of all versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from populus.dialects.onnx.attributes import filling
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.types import element_numbered
from populus.dialects.support.budget import LARGEST_FOLDED
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_known

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Inputs: TypeAlias = Sequence[Array | None]


def evaluate(op: OnnxOp, inputs: Inputs) -> list[Array] | None:
    """Computes the outputs of an op from its inputs (None: absent); None if the op has no row or cannot be computed."""
    if op.DOMAIN or op.OP_TYPE not in _ROWS:
        return None
    result = _ROWS[op.OP_TYPE](op, inputs)
    return result if isinstance(result, list) or result is None else [result]


def listed(op: OnnxOp, inputs: Inputs, position: int, attribute: str) -> list[int] | None:
    """Gives integers that are an attribute in old versions of an op and an input in new ones; None if in neither."""
    if (entries := op.property(attribute)) is not None:
        return [int(v) for v in entries]
    if position < len(inputs) and (array := inputs[position]) is not None:
        return [int(v) for v in array.reshape(-1)]
    return None


def _binary(f: Callable[[Array, Array], Any]) -> Callable[[OnnxOp, Inputs], Array | None]:
    """Makes the row of a binary function; broadcasting of opset 6 and older is left out."""

    def row(op: OnnxOp, inputs: Inputs) -> Array | None:
        import numpy as np

        a, b = inputs
        assert a is not None
        assert b is not None
        if op.property("axis") is not None or op.property("broadcast"):  # opset 6 and older
            return None
        return np.asarray(f(a, b))

    return row


def _unary(f: Callable[[Array], Any]) -> Callable[[OnnxOp, Inputs], Array]:
    """Makes the row of a unary function."""

    def row(op: OnnxOp, inputs: Inputs) -> Array:
        import numpy as np

        assert inputs[0] is not None
        return np.asarray(f(inputs[0]))

    return row


def _fold(name: str) -> Callable[[OnnxOp, Inputs], Array | None]:
    """Makes the row of a NumPy function that combines any number of inputs."""

    def row(op: OnnxOp, inputs: Inputs) -> Array | None:
        import functools

        import numpy as np

        arrays = [a for a in inputs if a is not None]
        return None if op.VERSION < 8 and len(arrays) > 1 else np.asarray(functools.reduce(getattr(np, name), arrays))

    return row


def _divide(a: Array, b: Array) -> Array | None:
    """Divides; integers towards zero, as in C. Source: ONNX Div-14."""
    import numpy as np

    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    if not np.all(b):
        return None
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient).astype(a.dtype)


def _gather(op: OnnxOp, inputs: Inputs) -> Array | None:
    import numpy as np

    x, indices = inputs
    assert x is not None
    assert indices is not None
    axis = op.property("axis") or 0
    if indices.size and not (-x.shape[axis] <= indices.min() and indices.max() < x.shape[axis]):
        return None
    return np.take(x, indices, axis)


def _concat(op: OnnxOp, inputs: Inputs) -> Array:
    import numpy as np

    axis = op.property("axis")
    return np.concatenate([a for a in inputs if a is not None], 1 if axis is None else axis)  # Concat-1's default


def _unsqueeze(op: OnnxOp, inputs: Inputs) -> Array:
    import numpy as np

    assert inputs[0] is not None
    axes = listed(op, inputs, 1, "axes") or []
    return np.expand_dims(inputs[0], tuple(axes))


def _squeeze(op: OnnxOp, inputs: Inputs) -> Array:
    import numpy as np

    assert inputs[0] is not None
    axes = listed(op, inputs, 1, "axes")
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


def _slice(op: OnnxOp, inputs: Inputs) -> Array:
    x = inputs[0]
    assert x is not None
    begins, ends = listed(op, inputs, 1, "starts") or [], listed(op, inputs, 2, "ends") or []
    axes = listed(op, inputs, 3, "axes") or list(range(len(begins)))
    steps = listed(op, inputs, 4, "steps") or [1] * len(begins)
    index = [slice(None)] * x.ndim
    for begin, end, axis, step in zip(begins, ends, axes, steps):
        n = x.shape[axis]
        if step < 0:  # a start below -n is the first element; an end below -n is past it, which Python spells None
            index[axis] = slice(max(begin, -n), None if end < -n else end, step) if n else slice(0, 0)
        else:
            index[axis] = slice(begin, end, step)
    return x[tuple(index)]


def _cast(op: OnnxOp, inputs: Inputs) -> Array | None:
    import numpy as np

    to = op.property("to")
    element = element_numbered(CAST_1[to.upper()] if isinstance(to, str) else to)
    if element is None or not is_known(element) or dtype_of(element).name.startswith("float8"):
        return None
    assert inputs[0] is not None
    with np.errstate(invalid="ignore"):
        return inputs[0].astype(dtype_of(element))


def _cast_like(op: OnnxOp, inputs: Inputs) -> Array | None:
    import numpy as np

    x, like = inputs
    assert x is not None
    assert like is not None
    if like.dtype.name.startswith("float8"):
        return None
    with np.errstate(invalid="ignore"):
        return x.astype(like.dtype)


# TensorProto.DataType by name, as Cast-1 states it
CAST_1 = {
    "FLOAT": 1,
    "UINT8": 2,
    "INT8": 3,
    "UINT16": 4,
    "INT16": 5,
    "INT32": 6,
    "INT64": 7,
    "BOOL": 9,
    "FLOAT16": 10,
    "DOUBLE": 11,
    "UINT32": 12,
    "UINT64": 13,
}


def range_length(start: float, limit: float, delta: float) -> int:
    """Computes the number of elements of a Range: the ceiling of `(limit - start) / delta`, at least 0.

    Exact for integers of any size. Raises PopulusError if the quotient is not finite.
    """
    if isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int):
        return max(0, -((start - limit) // delta))
    count = (limit - start) / delta
    if not math.isfinite(count):
        raise PopulusError(f"from {start} to {limit} by {delta} there is no number of elements")
    return max(0, math.ceil(count))


def _range(op: OnnxOp, inputs: Inputs) -> Array | None:
    import numpy as np

    start, limit, delta = (a.reshape(-1)[0] for a in inputs if a is not None)
    if delta == 0:
        return None
    count = range_length(start.item(), limit.item(), delta.item())
    if count > LARGEST_FOLDED:  # more than any shape arithmetic needs
        return None
    return (start + np.arange(count) * delta).astype(start.dtype)


def _constant_of_shape(op: OnnxOp, inputs: Inputs) -> Array:
    import numpy as np

    assert inputs[0] is not None
    return np.broadcast_to(filling(op.property("value")), [int(n) for n in inputs[0]])


def _reshape(op: OnnxOp, inputs: Inputs) -> Array:
    x = inputs[0]
    assert x is not None
    shape = listed(op, inputs, 1, "shape") or []
    if not op.property("allowzero"):
        shape = [x.shape[d] if n == 0 else n for d, n in enumerate(shape)]
    return x.reshape(shape)


def _transpose(op: OnnxOp, inputs: Inputs) -> Array:
    assert inputs[0] is not None
    return inputs[0].transpose(op.property("perm"))


def _expand(op: OnnxOp, inputs: Inputs) -> Array:
    import numpy as np

    x, shape = inputs
    assert x is not None
    assert shape is not None
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(n) for n in shape)))


def _tile(op: OnnxOp, inputs: Inputs) -> Array | None:
    import numpy as np

    if op.VERSION < 6 or inputs[0] is None or inputs[1] is None:
        return None
    return np.tile(inputs[0], inputs[1])


def _where(op: OnnxOp, inputs: Inputs) -> Array:
    import numpy as np

    condition, a, b = inputs
    assert condition is not None
    assert a is not None
    assert b is not None
    return np.where(condition, a, b)


def _reduce(name: str) -> Callable[[OnnxOp, Inputs], Array | None]:
    """Makes the row of a NumPy reduction."""

    def row(op: OnnxOp, inputs: Inputs) -> Array | None:
        import numpy as np

        x = inputs[0]
        assert x is not None
        axes = listed(op, inputs, 1, "axes")
        if not axes and op.property("noop_with_empty_axes"):
            return x
        keepdims = op.property("keepdims") != 0
        f: Any = getattr(np, name)
        return np.asarray(f(x, axis=tuple(axes) if axes else None, keepdims=keepdims)).astype(x.dtype)

    return row


def _split(op: OnnxOp, inputs: Inputs) -> list[Array] | None:
    import numpy as np

    x = inputs[0]
    assert x is not None
    axis = op.property("axis") or 0
    sizes = listed(op, inputs, 1, "split") or equal_parts(x.shape[axis], op.property("num_outputs") or len(op.outputs))
    if sum(sizes) != x.shape[axis]:
        return None  # ONNX's inference reports it
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def equal_parts(size: int, parts: int) -> list[int]:
    """Computes the sizes of `parts` equal parts; the last is smaller if need be. Source: ONNX Split-18."""
    each = -(-size // parts)
    return [max(0, min(each, size - i * each)) for i in range(parts)]


def _nonzero(op: OnnxOp, inputs: Inputs) -> Array:
    import numpy as np

    assert inputs[0] is not None
    return np.asarray(np.nonzero(np.atleast_1d(inputs[0])), np.int64)


def _mod(op: OnnxOp, inputs: Inputs) -> Array | None:
    import numpy as np

    a, b = inputs
    assert a is not None
    assert b is not None
    if b.dtype.kind in "iu" and not np.all(b):
        return None
    return np.fmod(a, b) if op.property("fmod") else np.mod(a, b)


def _numpy(name: str) -> Callable[..., Any]:
    """Makes a function that calls NumPy's `name`, and imports NumPy when called."""

    def call(*arrays: Array) -> Any:
        import numpy as np

        return getattr(np, name)(*arrays)

    return call


_ROWS: dict[str, Callable[[OnnxOp, Inputs], Array | list[Array] | None]] = {
    "Abs": _unary(_numpy("abs")),
    "Add": _binary(_numpy("add")),
    "And": _binary(_numpy("logical_and")),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _unary(_numpy("ceil")),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _binary(_divide),
    "Equal": _binary(_numpy("equal")),
    "Expand": _expand,
    "Floor": _unary(_numpy("floor")),
    "Gather": _gather,
    "Greater": _binary(_numpy("greater")),
    "GreaterOrEqual": _binary(_numpy("greater_equal")),
    "Identity": _unary(lambda a: a),
    "Less": _binary(_numpy("less")),
    "LessOrEqual": _binary(_numpy("less_equal")),
    "Max": _fold("maximum"),
    "Min": _fold("minimum"),
    "Mod": _mod,
    "Mul": _binary(_numpy("multiply")),
    "Neg": _unary(_numpy("negative")),
    "NonZero": _nonzero,
    "Not": _unary(_numpy("logical_not")),
    "Or": _binary(_numpy("logical_or")),
    "Range": _range,
    "ReduceMax": _reduce("max"),
    "ReduceMin": _reduce("min"),
    "ReduceProd": _reduce("prod"),
    "ReduceSum": _reduce("sum"),
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _binary(_numpy("subtract")),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
