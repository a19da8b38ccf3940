"""Linear ops with constant weights: a factor or term of each output channel becomes part of the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import TABLE, Handle, StoredAttr, is_loaded, may_wait
from populus.dialects.popart import calls
from populus.dialects.support.element_types import dtype_of, element_of, tensor
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
    added = _added(op)
    extra = None if added is None else array_of(added)
    if not is_loaded(weights) or len(calls.shape(weights)) < 2 or (added is not None and extra is None):
        return None
    t = None if extra is None else _times(extra, factor)
    if t is not None and not np.isfinite(t).all():
        return None
    scaled = _scaling(op, factor)
    remake = _remaking(weights, scaled)
    new_w = None if remake is None else _later(r, op, weights, factor, remake)
    if new_w is None:
        array = array_of(weights)
        assert array is not None, op
        w = scaled(array)
        if not np.isfinite(w).all():
            return None
        computation = ("factor", op.name, getattr(op, "group", 1), getattr(op, "trans_b", False), factor.tobytes())
        new_w = r.computed([weights], computation, lambda: w, weights)
    if remake is not None and (made := _handle(new_w)) is not None:
        TABLE.remake_by(made, remake)  # an engine that has packed it can then let it go
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


def _remaking(old: SSAValue, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[], NDArray[np.uint8]] | None:
    """Gives the function that makes the content of `change(old)`, if `old` is a file's or is computed from one; else None."""
    if (source := _handle(old)) is None:
        return None
    remake, dtype, shape = TABLE.remake(source), dtype_of(calls.element(old)), calls.shape(old)

    def changed(content: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.ascontiguousarray(change(content.view(dtype).reshape(shape))).reshape(-1).view(np.uint8)

    if remake is not None:
        return lambda: changed(remake())
    return partial(_of_file, source, changed) if TABLE.is_mapped(source) else None


def _of_file(handle: Handle, change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    content = TABLE.bytes(handle)
    assert content is not None, handle
    return change(content)


_MOST: WeakKeyDictionary[Handle, float] = WeakKeyDictionary()  # a bound of the magnitudes in contents that are made later


def _later(r: Rewriting, op: Linear, weights: SSAValue, factor: Vector, make: Callable[[], NDArray[np.uint8]]) -> SSAValue | None:
    """Inserts the scaled weights, which `make` makes when they are first read.

    Returns None for small ones, or if their extremes do not tell that all stay finite, or if some elements do not differ.
    """
    source, shape, dtype = _handle(weights), calls.shape(weights), dtype_of(calls.element(weights))
    along = _along(op, factor, len(shape))
    if source is None or along is None or dtype != np.float32 or not may_wait(prod(shape) * dtype.itemsize):
        return None
    if (most := _MOST.get(source)) is None:
        array = array_of(weights)
        assert array is not None, op
        most = float(np.abs(extremes(weights, array)).max())
    most *= float(np.abs(factor).max())
    if not most < float(np.finfo(np.float32).max) / 2:  # or an element is NaN
        return None
    every, item = np.broadcast_to(along, shape), dtype.itemsize

    def elements(at: NDArray[np.int64]) -> NDArray[Any]:
        given = TABLE.bytes_at(source, (at[:, None] * item + np.arange(item)).reshape(-1).tolist())
        return _times(np.frombuffer(given, dtype), every[np.unravel_index(at, shape)])

    def some(places: Sequence[int]) -> bytes:
        at, byte = np.divmod(np.asarray(places), item)
        return elements(at).view(np.uint8).reshape(-1, item)[np.arange(len(at)), byte].tobytes()

    few = elements(np.array([0, every.size // 2, every.size - 1]))
    if not (few != few[0]).any():
        return None
    made = r.later(tensor(shape, element_of(dtype)), make, some, weights)
    if (handle := _handle(made)) is not None:
        _MOST[handle] = most
    return made


def _handle(value: SSAValue) -> Handle | None:
    """Gives the handle of a stored constant; None for any other value."""
    stored = getattr(value.owner, "value", None)
    return stored.data if isinstance(stored, StoredAttr) else None


_EXTREMES: WeakKeyDictionary[Handle, NDArray[Any]] = WeakKeyDictionary()


def extremes(value: SSAValue, array: NDArray[Any]) -> NDArray[Any]:
    """Gives the least and the greatest element of a constant, whose elements are `array`: both are NaN if one is. It is read once."""
    handle = _handle(value)
    found = None if handle is None else _EXTREMES.get(handle)
    if found is None:
        found = np.array([array.min(), array.max()], array.dtype)
        if handle is not None:
            _EXTREMES[handle] = found
    return found


def _scaling(op: Linear, factor: Vector) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Gives the function that multiplies each output channel of the op's weights by its factor. It does not refer to the op."""
    if isinstance(op, popart.ConvTransposeOp):  # [group * in, out, kernel..]
        group = op.group

        def split(w: NDArray[Any]) -> NDArray[Any]:
            parts = w.reshape(group, w.shape[0] // group, *w.shape[1:])
            return _times(parts, factor.reshape(group, 1, -1, *(1,) * (w.ndim - 2))).reshape(w.shape)

        return split
    along = _along(op, factor, len(calls.shape(op.operands[1])))
    assert along is not None, op
    return lambda w: _times(w, along)


def _along(op: Linear, factor: Vector, dims: int) -> Vector | None:
    """Reshapes the factors of output channels to be broadcast to the weights; None if the weights have to be reshaped too."""
    if isinstance(op, popart.ConvTransposeOp):
        return None
    if isinstance(op, popart.ConvOp):
        return factor.reshape(-1, *(1,) * (dims - 1))
    return factor[:, None] if isinstance(op, popart.GemmOp) and op.trans_b else factor


def _times(array: NDArray[Any], factor: Vector) -> NDArray[Any]:
    """Computes `array * factor` in f64 and rounds to the array's type, blockwise: f64 copies of all weights cost
    more time.
    """
    product = np.empty(np.broadcast_shapes(array.shape, factor.shape), array.dtype)
    with np.errstate(over="ignore"):
        return np.multiply(array, factor, out=product, dtype=np.float64, casting="unsafe")
