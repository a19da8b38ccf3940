"""Linear ops with constant weights: a factor or term of each output channel becomes part of the weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import TABLE, Handle, StoredAttr, is_loaded
from populus.dialects.popart import calls
from populus.dialects.support.element_types import dtype_of
from populus.lowering.popart.rewriting import Rewriting, array_of

Vector: TypeAlias = NDArray[np.float64]
Convolving: TypeAlias = popart.ConvOp | popart.ConvTransposeOp
Linear: TypeAlias = Convolving | popart.GemmOp | popart.MatMulOp
LINEAR = (popart.ConvOp, popart.ConvTransposeOp, popart.GemmOp, popart.MatMulOp)


def channel_axis(op: TensorOp) -> int:
    """Returns the dimension of the result that has the output channels; -1 for a result without dimensions."""
    return 1 if isinstance(op, popart.ConvOp | popart.ConvTransposeOp | popart.BatchNormOp) else len(calls.shape(op.results[0])) - 1


def per_channel(value: SSAValue, op: TensorOp) -> Vector | None:
    """Returns a constant operand, of an element-wise op on the result of `op`, as one f64 number for each output
    channel.

    Returns None if it is not constant, not of floats, or varies along another dimension.
    """
    array, shape = array_of(value), calls.shape(op.results[0])
    axis = channel_axis(op)
    if array is None or array.dtype.kind in "biu" or array.ndim > len(shape) or axis < 0:
        return None
    full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if any(n != 1 for d, n in enumerate(full.shape) if d != axis) or full.shape[axis] not in (1, shape[axis]):
        return None
    return np.broadcast_to(full.reshape(-1).astype(np.float64), (shape[axis],))


def rounded(r: Rewriting, array: NDArray[Any], like: SSAValue) -> SSAValue:
    """Inserts a constant with the element type and name of `like`, from which it is computed."""
    return r.constant(array.astype(dtype_of(calls.element(like)), copy=False), like)


def _bias(r: Rewriting, array: NDArray[Any], op: Linear, added: SSAValue | None) -> SSAValue:
    return rounded(r, array, added) if added is not None else r.constant(array.astype(dtype_of(calls.element(op.operands[0]))))


def with_factor(r: Rewriting, op: Linear, factor: Vector, axis: int) -> SSAValue | None:
    """Inserts the op with weights that multiply its result by `factor` along dimension `axis`.

    Returns None if that is not the dimension of channels, or if the weights are not constant, are a vector, or become infinite.
    """
    if axis != channel_axis(op):
        return None
    weights = op.operands[1]
    array, added = array_of(weights), _added(op)
    extra = None if added is None else array_of(added)
    if array is None or array.ndim < 2 or (added is not None and extra is None):
        return None
    scaled = _scaling(op, factor)
    w = scaled(array)
    t = None if extra is None else _times(extra, factor)
    if not all(np.isfinite(a).all() for a in (w, t) if a is not None):
        return None
    computation = ("factor", op.name, getattr(op, "group", 1), getattr(op, "trans_b", False), factor.tobytes())
    new_w = r.computed([weights], computation, lambda: w, weights)
    _remade(new_w, weights, scaled)
    return _again(r, op, new_w, None if t is None or added is None else rounded(r, t, added))


def with_term(r: Rewriting, op: Linear, term: Vector, axis: int) -> SSAValue | None:
    """Inserts the op with a bias that adds `term` along dimension `axis` to its result.

    Returns None if that is not the dimension of channels, the op takes no bias, or its bias is not constant.
    """
    added = _added(op)
    if axis != channel_axis(op) or isinstance(op, popart.MatMulOp) or (added is not None and not is_loaded(added)):
        return None
    if isinstance(op, popart.GemmOp) and op.beta != 1:
        return None
    before = None if added is None else array_of(added)
    total = term if before is None else before.astype(np.float64) + term
    return _again(r, op, op.operands[1], _bias(r, total, op, added))


def _added(op: Linear) -> SSAValue | None:
    """Returns the op's addend, its bias; None if it has none."""
    return op.operands[2] if len(op.operands) > 2 else None


def _again(r: Rewriting, op: Linear, weights: SSAValue, added: SSAValue | None) -> SSAValue:
    """Inserts the same op with other weights."""
    x, properties = op.operands[0], {n: v for n, v in op.properties.items() if n != "operandSegmentSizes"}
    if isinstance(op, popart.MatMulOp):
        return r.insert(popart.MatMulOp(x, weights))
    return r.insert(type(op)(x, weights, added, **properties))


def _remade(new: SSAValue, old: SSAValue, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    """Lets the constant `new`, which is `change` of `old`, be computed again, if `old` is a file's or is computed from one.

    An engine that has packed `new` can then let it go.
    """
    made, source = (getattr(v.owner, "value", None) for v in (new, old))
    if not isinstance(made, StoredAttr) or not isinstance(source, StoredAttr):
        return
    remake, dtype, shape = TABLE.remake(source.data), dtype_of(calls.element(old)), calls.shape(old)

    def changed(array: NDArray[Any]) -> NDArray[np.uint8]:
        return np.ascontiguousarray(change(array)).reshape(-1).view(np.uint8)

    if remake is not None:
        TABLE.remake_by(made.data, lambda: changed(remake().view(dtype).reshape(shape)))
    elif TABLE.is_mapped(source.data):
        TABLE.remake_by(made.data, partial(_of_file, source.data, lambda content: changed(content.view(dtype).reshape(shape))))


def _of_file(handle: Handle, change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    content = TABLE.bytes(handle)
    assert content is not None, handle
    return change(content)


def _scaling(op: Linear, factor: Vector) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Gives the function that multiplies each output channel of the op's weights by its factor. It does not refer to the op."""
    match op:
        case popart.ConvOp():
            return lambda w: _times(w, factor.reshape(-1, *(1,) * (w.ndim - 1)))
        case popart.ConvTransposeOp():  # [group * in, out, kernel..]
            group = op.group

            def split(w: NDArray[Any]) -> NDArray[Any]:
                parts = w.reshape(group, w.shape[0] // group, *w.shape[1:])
                return _times(parts, factor.reshape(group, 1, -1, *(1,) * (w.ndim - 2))).reshape(w.shape)

            return split
        case popart.GemmOp():
            along = factor[:, None] if op.trans_b else factor
            return lambda w: _times(w, along)
        case popart.MatMulOp():
            return lambda w: _times(w, factor)


def _times(array: NDArray[Any], factor: Vector) -> NDArray[Any]:
    """Computes `array * factor` in f64 and rounds to the array's type, blockwise: f64 copies of all weights cost
    more time.
    """
    product = np.empty(np.broadcast_shapes(array.shape, factor.shape), array.dtype)
    with np.errstate(over="ignore"):
        return np.multiply(array, factor, out=product, dtype=np.float64, casting="unsafe")
