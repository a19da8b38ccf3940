"""The evaluator of expressions with NumPy: once (`evaluate`), or bound to arrays and run repeatedly (`bind_map`).

A formula of many steps runs over the arrays in blocks that stay in the cache. The result does not depend on the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from populus.dialects.expr import Expr
from populus.runtime.tape import PRIMITIVES, READ_LATE, ROUNDED, VIEWED_AS_INTEGERS, Array, DType, Tape, TapeStep, as_bits, tape_of

BLOCK = 1 << 14  # elements: 64 KB of f32, so that operands and a few temporaries fit the second-level cache


def evaluate(e: Expr, arrays: Sequence[Array], out: Array | None = None) -> Array:
    """Computes `e` over arrays that broadcast against each other, into `out` or a new array of the broadcast shape.

    Element types are those of the arrays, without promotion. Integers wrap around; narrow floats round after each
    function.
    """
    arrays = [np.asarray(a) for a in arrays]
    if out is None:
        tape = tape_of(e, tuple(a.dtype for a in arrays))
        out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)), tape.dtype)
    bind_map(e, arrays, out)()
    return out


def bind_map(e: Expr, inputs: Sequence[Array], out: Array) -> Callable[[], None]:
    """Gives a function that computes `e` over the arrays' current content into `out`, which has the broadcast shape.

    Inputs may have any strides. `out` may be one of the inputs, element for element; it must not overlap one otherwise.
    """
    tape = tape_of(e, tuple(a.dtype for a in inputs))
    assert out.dtype == tape.dtype, (out.dtype, tape.dtype)
    operands = [*(np.broadcast_to(a, out.shape) for a in inputs), out]
    shape, strides = coalesced(out.shape, [a.strides for a in operands], [a.itemsize for a in operands])
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


def coalesced(sizes: Sequence[int], strides: Sequence[Sequence[int]], items: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Merges neighbouring dimensions where the strides of all arrays allow it. `items`: bytes of an element of each array.

    Returns the sizes, and the strides of each array in bytes.
    """
    shape: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for d in reversed(range(len(sizes))):
        if sizes[d] == 1:
            continue
        if shape and all(own[d] == s[0] * shape[0] for own, s in zip(strides, found)):
            shape[0] *= sizes[d]
            continue
        shape.insert(0, sizes[d])
        for own, s in zip(strides, found):
            s.insert(0, own[d])
    return (shape, found) if shape else ([1], [[item] for item in items])


def _strided(a: Array, shape: list[int], strides: list[int]) -> Array:
    if a.dtype.kind == "V" or a.dtype.isbuiltin == 2:  # NumPy's as_strided does not support other libraries' types
        return as_strided(a.view(f"u{a.itemsize}"), shape, strides, writeable=a.flags.writeable).view(a.dtype)
    return as_strided(a, shape, strides, writeable=a.flags.writeable)


def _blocks(shape: tuple[int, ...], limit: int) -> Iterator[tuple[int | slice, ...]]:
    """Gives the indices of row-major blocks of an array of this shape: at most `limit` elements each, or one row."""
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
    """Gives the calls that run a tape over arrays of one shape, block by block."""
    if out.size == 0:
        return []
    first_step = len(tape.operands) + len(tape.literals)
    if tape.result < first_step:
        source = [*inputs, *tape.literals][tape.result]
        return [(_copy, (source, out))]
    # If an input shares memory with the output, a step must not write the output before that input has been read.
    in_place = any(np.may_share_memory(a, out) for a in inputs)
    slots, homes = _allocate(tape, scratch_result=in_place)
    whole = len(tape.steps) == 1 and slots == [] and all(_direct(tape.steps[0], [a]) for a in (*inputs, out))
    limit = out.size if whole else min(BLOCK, out.size)
    scratch = [np.empty(limit, dtype) for dtype in slots]
    spare: dict[tuple[int, DType], Array] = {}  # contiguous copies of operands and results that a rounded step needs
    calls: list[Bound] = []
    for index in _blocks(out.shape, limit):
        target = out[index]

        def room(i: int, dtype: DType, shape: tuple[int, ...] = target.shape, size: int = target.size) -> Array:
            # NumPy uses a scalar loop for a single element, so two are computed and one is used.
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
    """Tells if NumPy uses its vector loops: for a literal, or for two or more contiguous elements."""
    return a.ndim == 0 or (a.flags.c_contiguous and a.size > 1)


def _direct(step: TapeStep, arrays: Sequence[Array]) -> bool:
    """Tells if a step gives the same bits on these arrays as on contiguous copies."""
    return step.name not in ROUNDED or all(map(_plain, arrays))


def _bound(step: TapeStep, args: list[Array], out: Array) -> Bound:
    if step.name in VIEWED_AS_INTEGERS:
        args, out = [as_bits(a) for a in args], as_bits(out)
    return PRIMITIVES[step.name], (*args, out)


def _allocate(tape: Tape, scratch_result: bool) -> tuple[list[DType], list[int | None]]:
    """Allocates scratch buffers. Returns their element types, and for each step the buffer that it writes; None: the
    output.

    With `scratch_result`, the output shares memory with an operand. Then the last step writes the output only if it
    reads its operands before it writes.
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
