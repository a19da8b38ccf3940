"""Sequences with known elements: positions, insertions and concatenations are resolved at compile time.

A position that is known only at run time, among elements of one type, becomes a selection. At run time, a position out
of range is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.lowering.onnx.structure.resolution import Resolution, Rules, alike, there


def _position(p: Resolution, i: int, length: int) -> int | None:
    """Gives the position at input `i`, from the front; None if it is known only at run time.

    Raises PopulusError if it is out of range.
    """
    array = p.known(i)
    if array is None:
        return None
    position = int(array.reshape(-1)[0])
    if not -length <= position < length:
        raise PopulusError(f"position {position} is out of range for a sequence of {length}")
    return position % length


def _construct(p: Resolution) -> bool:
    """Resolves SequenceConstruct to its inputs."""
    return p.gives(tuple(p.inputs))


def _identity(p: Resolution) -> bool:
    """Resolves the Identity of a sequence; that of a tensor stays."""
    value = p.input(0)
    if value not in p.walk.lists:
        return False
    return p.gives(p.walk.lists[value])


def _empty(p: Resolution) -> bool:
    """Resolves SequenceEmpty."""
    return p.gives(())


def _length(p: Resolution) -> bool:
    """Resolves SequenceLength to a constant."""
    import numpy as np

    return p.gives(p.constant(np.array(len(p.elements(0)), np.int64)))


def _at(p: Resolution) -> bool:
    """Resolves SequenceAt to an element, or to a selection by a run-time position."""
    elements = p.elements(0)
    position = _position(p, 1, len(elements))
    if position is not None:
        return p.gives(there(elements[position]))
    chosen, *others = alike(elements)
    if not others:
        return p.gives(_only(p, chosen, p.input(1)))
    index = _from_front(p, p.input(1), len(elements))
    for i, other in enumerate(others, 1):
        chosen = p.make("Where", p.make("Equal", index, _like(p, i, index)), other, chosen)
    return p.gives(chosen)


def _only(p: Resolution, value: SSAValue, index: SSAValue) -> SSAValue:
    """Gives the only element; a run-time position out of range is refused."""
    return p.make("Gather", p.make("Unsqueeze", value, p.ints(0)), index, axis=0)


def _from_front(p: Resolution, position: SSAValue, length: int) -> SSAValue:
    """Counts a run-time position from the front; one outside -length .. length - 1 is refused at run time."""
    # The Gather from 0 .. length - 1 refuses a position that is out of range.
    return p.make("Gather", _like(p, range(length), position), position, axis=0)


def _insertion_position(p: Resolution, position: SSAValue, length: int) -> SSAValue:
    """Counts a run-time insertion position from the front: -length .. length, where length appends."""
    negative = p.make("Less", position, _like(p, 0, position))
    counted = p.make("Where", negative, p.make("Add", position, _like(p, length, position)), position)
    # A position that is still negative would count from the end again.
    still = p.make("Less", counted, _like(p, 0, position))
    return _from_front(p, p.make("Where", still, p.make("Sub", counted, _like(p, length + 1, position)), counted), length + 1)


def _like(p: Resolution, value: int | Sequence[int], other: SSAValue) -> SSAValue:
    """Inserts a constant of the element type of `other`."""
    import numpy as np

    return p.constant(np.array(value, dtype_of(element_type_of(other.type))))


def _insert(p: Resolution) -> bool:
    """Resolves SequenceInsert. Raises PopulusError for a known position out of range."""
    elements, new = p.elements(0), p.input(1)
    length = len(elements)
    if not p.has(2):
        return p.gives((*elements, new))
    array = p.known(2)
    if array is not None:
        position = int(array.reshape(-1)[0])
        if not -length <= position <= length:
            raise PopulusError(f"position {position} is out of range for a sequence of {length}")
        listed = list(elements)
        listed.insert(position, new)
        return p.gives(tuple(listed))
    values = alike([*elements, new])[:-1]
    index = _insertion_position(p, p.input(2), length)
    if not length:
        return p.gives((_only(p, new, index),))
    result: list[SSAValue] = []
    for i in range(length + 1):
        here = new if i == length else values[i]
        if i > 0:
            # Element i - 1 moves here if the new one comes before it.
            here = p.make("Where", p.make("Less", index, _like(p, i, index)), values[i - 1], here)
        if i < length:
            here = p.make("Where", p.make("Equal", index, _like(p, i, index)), new, here)
        result.append(here)
    return p.gives(tuple(result))


def _erase(p: Resolution) -> bool:
    """Resolves SequenceErase. Raises PopulusError for an empty sequence."""
    elements = p.elements(0)
    length = len(elements)
    if not length:
        raise PopulusError("the sequence is empty; there is nothing to erase")
    position = _position(p, 1, length) if p.has(1) else length - 1
    if position is not None:
        return p.gives((*elements[:position], *elements[position + 1 :]))
    values = alike(elements)
    index = _from_front(p, p.input(1), length)
    remaining = [p.make("Where", p.make("Greater", index, _like(p, i, index)), values[i], values[i + 1]) for i in range(length - 1)]
    return p.gives(tuple(remaining))


def _concat(p: Resolution) -> bool:
    """Resolves ConcatFromSequence. Raises PopulusError for an empty sequence."""
    values = [there(v) for v in p.elements(0)]
    if not values:
        raise PopulusError("the sequence is empty; there is nothing to concatenate")
    axis = p.op.property("axis")
    if p.op.property("new_axis"):
        values = [p.make("Unsqueeze", v, p.ints(axis)) for v in values]
    return p.gives(p.make("Concat", *values, axis=axis))


def _split(p: Resolution) -> bool:
    """Resolves SplitToSequence. Raises PopulusError if the number of parts is unknown, or their sizes do not fit."""
    x = p.input(0)
    shape = shape_of(x.type)
    axis = shapes.axis(p.op.property("axis") or 0, len(shape))
    n = shape[axis]
    squeezed = False
    if not p.has(1):
        sizes = [1] * n
        squeezed = p.op.property("keepdims") == 0
    elif (stated := p.known(1)) is None:
        kind = p.input(1).type
        if not isinstance(kind, TensorType) or len(kind.get_shape()) != 1:
            raise PopulusError("the size of its parts is known only when the model runs, so their number is not known")
        return p.gives((None,) * kind.get_shape()[0])
    elif stated.ndim == 0:
        each = int(stated)
        if each < 1:
            raise PopulusError(f"its parts have {each} elements; at least 1 is expected")
        sizes = [min(each, n - i) for i in range(0, n, each)]
    else:
        sizes = [int(v) for v in stated]
    if sum(sizes) != n or min(sizes, default=0) < 0:
        raise PopulusError(f"the parts {sizes} are {sum(sizes)} elements, dimension {axis} has {n}")
    parts: list[SSAValue] = []
    begin = 0
    for size in sizes:
        part = p.make("Slice", x, p.ints(begin), p.ints(begin + size), p.ints(axis))
        parts.append(p.make("Squeeze", part, p.ints(axis)) if squeezed else part)
        begin += size
    return p.gives(tuple(parts))


def _map(p: Resolution) -> bool:
    """Inlines the body of a SequenceMap for each position; inputs that are no sequences go to every position."""
    first = p.elements(0)
    columns: list[list[SSAValue]] = [[] for _ in p.op.results]
    if any(v in p.walk.lists and len(p.walk.lists[v]) != len(first) for v in p.inputs if v is not None):
        raise PopulusError("its sequences differ in length")
    for i in range(len(first)):
        arguments: list[SSAValue] = []
        for k, value in enumerate(p.inputs):
            assert value is not None, k
            arguments.append(there(p.elements(k)[i]) if value in p.walk.lists else value)
        for column, value in zip(columns, p.inline(p.op.region("body"), arguments)):
            column.append(value)
    for result, column in zip(p.op.results, columns):
        p.walk.lists[result] = tuple(column)
    return True


RULES: Rules = {
    "ConcatFromSequence": _concat,
    "Identity": _identity,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
