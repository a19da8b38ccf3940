"""The values of expressions, with NumPy: at once (`evaluate`), or bound to arrays and run again and again (`bind_map`).

A formula of many steps goes over the arrays in blocks that stay in the cache. The blocking never shows in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from populus.dialects.expr import Expr
from populus.runtime.tape import PRIMITIVES, READ_LATE, ROUNDED, VIEWED_AS_INTEGERS, Array, DType, Step, Tape, as_bits, tape_of

BLOCK = 1 << 14  # elements: 64 KB of f32, so that operands and a few temporaries fit a second-level cache


def evaluate(e: Expr, arrays: Sequence[Array], out: Array | None = None) -> Array:
    """`e` over arrays that broadcast against each other.

    Element types are those of the arrays: nothing is promoted, integers wrap, narrow floats round after each function.
    """
    arrays = [np.asarray(a) for a in arrays]
    if out is None:
        tape = tape_of(e, tuple(a.dtype for a in arrays))
        out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)), tape.dtype)
    bind_map(e, arrays, out)()
    return out


def bind_map(e: Expr, inputs: Sequence[Array], out: Array) -> Callable[[], None]:
    """A function that computes `e` over the arrays' present content into `out`, of the broadcast shape.

    Inputs may have any strides. `out` may be one of them, element for element; it may not overlap one otherwise.
    """
    tape = tape_of(e, tuple(a.dtype for a in inputs))
    assert out.dtype == tape.dtype, (out.dtype, tape.dtype)
    operands = [*(np.broadcast_to(a, out.shape) for a in inputs), out]
    shape, strides = coalesced(operands)
    arrays = [_strided(a, shape, s) for a, s in zip(operands, strides)]
    calls = _bind(tape, arrays[:-1], arrays[-1])
    if len(calls) == 1:
        function, args = calls[0]

        def run_one() -> None:
            with np.errstate(all="ignore"):
                function(*args)

        return run_one

    def run() -> None:
        with np.errstate(all="ignore"):
            for function, args in calls:
                function(*args)

    return run


def coalesced(arrays: list[Array]) -> tuple[list[int], list[list[int]]]:
    """(sizes, byte strides of each array), of arrays of one shape, neighbouring dimensions merged where all of them
    allow it.
    """
    shape: list[int] = []
    strides: list[list[int]] = [[] for _ in arrays]
    for d in reversed(range(arrays[0].ndim)):
        n = arrays[0].shape[d]
        if n == 1:
            continue
        if shape and all(a.strides[d] == s[0] * shape[0] for a, s in zip(arrays, strides)):
            shape[0] *= n
        else:
            shape.insert(0, n)
            for a, s in zip(arrays, strides):
                s.insert(0, a.strides[d])
    if not shape:
        return [1], [[a.itemsize] for a in arrays]
    return shape, strides


def _strided(a: Array, shape: list[int], strides: list[int]) -> Array:
    if a.dtype.kind == "V" or a.dtype.isbuiltin == 2:  # NumPy's as_strided knows no names of other libraries' types
        return as_strided(a.view(f"u{a.itemsize}"), shape, strides, writeable=a.flags.writeable).view(a.dtype)
    return as_strided(a, shape, strides, writeable=a.flags.writeable)


def _blocks(shape: tuple[int, ...], limit: int) -> Iterator[tuple[int | slice, ...]]:
    """Indices that cut an array of this shape in row-major order into parts of at most `limit` elements, or of one row."""
    inner = 1
    d = len(shape)
    while d > 0 and inner * shape[d - 1] <= limit:
        d -= 1
        inner *= shape[d]
    if d == 0:
        yield ()
        return
    rows = max(1, limit // inner)
    for outer in np.ndindex(*shape[: d - 1]):
        for begin in range(0, shape[d - 1], rows):
            yield (*outer, slice(begin, min(begin + rows, shape[d - 1])))


Bound = tuple[Callable[..., object], tuple[Array, ...]]


def _bind(tape: Tape, inputs: list[Array], out: Array) -> list[Bound]:
    """The calls that run a tape over arrays of one shape, block after block."""
    if out.size == 0:
        return []
    first_step = len(tape.operands) + len(tape.literals)
    if tape.result < first_step:
        source = [*inputs, *tape.literals][tape.result]
        return [(_copy, (source, out))]
    # What is written before an operand at the same place has been read would be lost.
    in_place = any(np.may_share_memory(a, out) for a in inputs)
    slots, homes = _allocate(tape, scratch_result=in_place)
    whole = len(tape.steps) == 1 and slots == [] and all(_direct(tape.steps[0], [a]) for a in (*inputs, out))
    limit = out.size if whole else min(BLOCK, out.size)
    scratch = [np.empty(limit, dtype) for dtype in slots]
    spare: dict[tuple[int, DType], Array] = {}  # for what a rounded step cannot read or write where it is
    calls: list[Bound] = []
    for index in _blocks(out.shape, limit):
        target = out[index]

        def room(i: int, dtype: DType, shape: tuple[int, ...] = target.shape, size: int = target.size) -> Array:
            # Of a single element NumPy takes a scalar loop: two are computed, and one kept.
            buffer = spare.setdefault((i, dtype), np.empty(max(limit, 2), dtype))
            return buffer[:2] if size == 1 else buffer[:size].reshape(shape)

        values: list[Array] = [a[index] for a in inputs] + list(tape.literals)
        packed: dict[int, Array] = {}
        for step, home in zip(tape.steps, homes):
            result = target if home is None else scratch[home][: target.size].reshape(target.shape)
            args = [values[i] for i in step.args]
            if not _direct(step, args):
                for position, i in enumerate(step.args):
                    if not _plain(values[i]):
                        if i not in packed:
                            packed[i] = room(i, values[i].dtype)
                            calls.append((_copy, (values[i], packed[i])))
                        args[position] = packed[i]
            place = result if _direct(step, [result]) else room(-1, step.dtype)
            calls.append(_bound(step, args, place))
            if place is not result:
                calls.append((_copy, (place if target.size > 1 else place[:1].reshape(target.shape), result)))
            values.append(result)
        if homes[-1] is not None:
            calls.append((_copy, (values[tape.result], target)))
    return calls


def _copy(source: Array, target: Array) -> None:
    np.copyto(target, source)


def _plain(a: Array) -> bool:
    """Whether NumPy takes its vector loops: a literal, or two elements or more side by side."""
    return a.ndim == 0 or (a.flags.c_contiguous and a.size > 1)


def _direct(step: Step, arrays: Sequence[Array]) -> bool:
    """Whether a step gives the same bits on these arrays as on contiguous copies of them."""
    return step.name not in ROUNDED or all(map(_plain, arrays))


def _bound(step: Step, args: list[Array], out: Array) -> Bound:
    if step.name in VIEWED_AS_INTEGERS:
        args, out = [as_bits(a) for a in args], as_bits(out)
    return PRIMITIVES[step.name], (*args, out)


def _allocate(tape: Tape, scratch_result: bool) -> tuple[list[DType], list[int | None]]:
    """Scratch buffers (their element types), and for each step the one that it writes; None: the output itself.

    With `scratch_result`, the output holds an operand too: only a last step that reads before it writes goes there
    directly.
    """
    first_step = len(tape.operands) + len(tape.literals)
    last_read = {i: n for n, step in enumerate(tape.steps) for i in step.args}
    slots: list[DType] = []
    free: list[int] = []
    homes: list[int | None] = []
    for n, step in enumerate(tape.steps):
        late = {step.args[p] for p in READ_LATE.get(step.name, ())}
        dying = [i for i in dict.fromkeys(step.args) if i >= first_step and last_read[i] == n]
        early = [homes[i - first_step] for i in dying if i not in late]
        free.extend(h for h in early if h is not None)
        if n == len(tape.steps) - 1 and not (scratch_result and any(i < len(tape.operands) for i in late)):
            homes.append(None)
        else:
            slot = next((s for s in free if slots[s] == step.dtype), None)
            if slot is None:
                slot = len(slots)
                slots.append(step.dtype)
            else:
                free.remove(slot)
            homes.append(slot)
        free.extend(h for h in (homes[i - first_step] for i in dying if i in late) if h is not None)
    assert tape.result == first_step + len(tape.steps) - 1, tape
    return slots, homes
