"""Sequences, optionals, loops and branches that are decided while compiling: nothing of them is left behind shape inference.

The elements of a sequence are values, and its ops say which ones; a loop of known length is its body that often; an If with a
known condition is its branch. What only the running model decides is refused, except a position among elements of one type,
which becomes a selection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, Region, SSAValue

from populus.dialects import shapes
from populus.dialects.data import constant
from populus.dialects.diagnostics import PopulusError
from populus.dialects.element_types import dtype_of, element_type_of, shape_of
from populus.dialects.onnx.schema import OnnxOp, op_class
from populus.dialects.onnx.structure import YieldOp
from populus.dialects.onnx.types import unknown
from populus.dialects.ops import attribute

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPSET = 21  # of the ops that stand for what is resolved
LONGEST_LOOP = 10_000  # iterations that a loop is written out for

Elements = tuple[SSAValue | None, ...]  # None: an element that exists and is not known


class Walk(Protocol):
    """What resolving asks of the walk that it is a part of."""

    lists: dict[SSAValue, Elements]

    def known(self, value: SSAValue) -> NDArray[Any] | None: ...

    def computed(self, value: SSAValue) -> NDArray[Any] | None: ...

    def operation(self, op: Operation) -> None: ...

    def placed_operation(self, op: Operation) -> None: ...


def resolve(op: OnnxOp, walk: Walk) -> bool:
    """Replaces an op of this file's kind by what it stands for; False for any other op."""
    if op.DOMAIN or op.OP_TYPE not in _RULES:
        return False
    return _RULES[op.OP_TYPE](_Place(op, walk))


class _Place:
    """The op that is resolved, and making others in front of it."""

    def __init__(self, op: OnnxOp, walk: Walk):
        self.op = op
        self.walk = walk
        self.inputs = op.inputs

    def input(self, i: int) -> SSAValue:
        value = self.inputs[i]
        assert value is not None, (self.op.name, i)
        return value

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def elements(self, i: int) -> Elements:
        value = self.input(i)
        if value not in self.walk.lists:
            raise PopulusError(f"its input {i} is {value.type}, which is given when the model runs; tiles hold tensors only")
        return self.walk.lists[value]

    def known(self, i: int) -> NDArray[Any] | None:
        return self.walk.computed(self.input(i))

    def gives(self, value: SSAValue | Elements) -> bool:
        """The op's only result is this value, or this sequence."""
        (result,) = self.op.results
        if isinstance(value, tuple):
            self.walk.lists[result] = value
        else:
            self.replace(result, value)
        return True

    def replace(self, result: SSAValue, value: SSAValue) -> None:
        if value in self.walk.lists:
            self.walk.lists[result] = self.walk.lists[value]
        value.name_hint = value.name_hint or result.name_hint
        result.replace_all_uses_with(value)

    def insert(self, op: Operation) -> None:
        assert self.op.parent is not None
        op.location = self.op.location
        self.op.parent.insert_op_before(op, self.op)

    def constant(self, array: NDArray[Any]) -> SSAValue:
        self.insert(op := constant(array))
        return op.result

    def ints(self, *values: int) -> SSAValue:
        import numpy as np

        return self.constant(np.array(values, np.int64))

    def make(self, op_type: str, *inputs: SSAValue, **attributes: int) -> SSAValue:
        """The result of another ONNX op, typed."""
        op = op_class("", op_type, OPSET).make(inputs, [unknown], {name: attribute(value) for name, value in attributes.items()})
        self.insert(op)
        marker = YieldOp(op.results[0])  # typing an op replaces its results; what reads them is kept up to date
        self.insert(marker)
        self.walk.operation(op)
        result = marker.operands[0]
        marker.detach()
        marker.erase()
        return result

    def inline(self, region: Region, arguments: Sequence[SSAValue]) -> list[SSAValue]:
        """A copy of a region's ops with these arguments in front of the op; what it yields."""
        block = region.block
        if len(block.args) != len(arguments):
            raise PopulusError(f"its body takes {len(block.args)} inputs and is given {len(arguments)}")
        mapper: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments))
        copies = [op.clone(mapper) for op in block.ops]
        assert self.op.parent is not None
        for copy in copies:
            self.op.parent.insert_op_before(copy, self.op)
        *body, end = copies
        assert isinstance(end, YieldOp), end
        for copy in body:
            self.walk.placed_operation(copy)
        results = list(end.operands)
        end.detach()
        end.erase()
        return results


def _position(p: _Place, i: int, length: int) -> int | None:
    """The position that input i gives, from the front; None if it is known only when the model runs. Raises if out of range."""
    found = p.known(i)
    if found is None:
        return None
    position = int(found.reshape(-1)[0])
    if not -length <= position < length:
        raise PopulusError(f"position {position} is asked of a sequence of {length}")
    return position % length


def _alike(values: Sequence[SSAValue | None]) -> list[SSAValue]:
    """The values, which have one type. Raises PopulusError if not."""
    found = [_there(v) for v in values]
    if len(types := {v.type for v in found}) > 1:
        texts = ", ".join(sorted(map(str, types)))
        raise PopulusError(f"a position that is known only when the model runs chooses among {texts}; tiles need one type")
    return found


def _there(value: SSAValue | None) -> SSAValue:
    if value is None:
        raise PopulusError("the element that is read has a size that is known only when the model runs")
    return value


def _construct(p: _Place) -> bool:
    return p.gives(tuple(p.inputs))


def _identity(p: _Place) -> bool:
    """Of a sequence; of a tensor it is an op like others."""
    value = p.input(0)
    if value not in p.walk.lists:
        return False
    return p.gives(p.walk.lists[value])


def _empty(p: _Place) -> bool:
    return p.gives(())


def _length(p: _Place) -> bool:
    import numpy as np

    return p.gives(p.constant(np.array(len(p.elements(0)), np.int64)))


def _at(p: _Place) -> bool:
    elements = p.elements(0)
    position = _position(p, 1, len(elements))
    if position is not None:
        return p.gives(_there(elements[position]))
    chosen, *others = _alike(elements)
    index = _from_front(p, p.input(1), len(elements))
    for i, other in enumerate(others, 1):
        chosen = p.make("Where", p.make("Equal", index, _like(p, i, index)), other, chosen)
    return p.gives(chosen)


def _from_front(p: _Place, position: SSAValue, length: int) -> SSAValue:
    """A position that is known when the model runs, counted from the front."""
    behind = p.make("Less", position, _like(p, 0, position))
    return p.make("Where", behind, p.make("Add", position, _like(p, length, position)), position)


def _like(p: _Place, value: int, other: SSAValue) -> SSAValue:
    import numpy as np

    return p.constant(np.array(value, dtype_of(element_type_of(other.type))))


def _insert(p: _Place) -> bool:
    elements, new = p.elements(0), p.input(1)
    length = len(elements)
    if not p.has(2):
        return p.gives((*elements, new))
    found = p.known(2)
    if found is not None:
        position = int(found.reshape(-1)[0])
        if not -length <= position <= length:
            raise PopulusError(f"position {position} is asked of a sequence of {length}")
        listed = list(elements)
        listed.insert(position, new)
        return p.gives(tuple(listed))
    values = _alike([*elements, new])[:-1]
    index = _from_front(p, p.input(2), length)
    result: list[SSAValue] = []
    for i in range(length + 1):
        here = new if i == length else values[i]
        if i > 0:
            # element i - 1 moves here if the new one stands before
            here = p.make("Where", p.make("Less", index, _like(p, i, index)), values[i - 1], here)
        if i < length:
            here = p.make("Where", p.make("Equal", index, _like(p, i, index)), new, here)
        result.append(here)
    return p.gives(tuple(result))


def _erase(p: _Place) -> bool:
    elements = p.elements(0)
    length = len(elements)
    if not length:
        raise PopulusError("the sequence is empty; there is nothing to erase")
    position = _position(p, 1, length) if p.has(1) else length - 1
    if position is not None:
        return p.gives((*elements[:position], *elements[position + 1 :]))
    values = _alike(elements)
    index = _from_front(p, p.input(1), length)
    kept = [p.make("Where", p.make("Greater", index, _like(p, i, index)), values[i], values[i + 1]) for i in range(length - 1)]
    return p.gives(tuple(kept))


def _concat(p: _Place) -> bool:
    values = [_there(v) for v in p.elements(0)]
    if not values:
        raise PopulusError("the sequence is empty; nothing is there to be joined")
    axis = p.op.property("axis")
    if p.op.property("new_axis"):
        values = [p.make("Unsqueeze", v, p.ints(axis)) for v in values]
    return p.gives(p.make("Concat", *values, axis=axis))


def _split(p: _Place) -> bool:
    x = p.input(0)
    shape = shape_of(x.type)
    axis = shapes.axis(p.op.property("axis") or 0, len(shape))
    n = shape[axis]
    squeezed = False
    if not p.has(1):
        sizes = [1] * n
        squeezed = p.op.property("keepdims") == 0
    elif (found := p.known(1)) is None:
        kind = p.input(1).type
        if not isinstance(kind, TensorType) or len(kind.get_shape()) != 1:
            raise PopulusError("the size of its parts is known only when the model runs, so their number is not known")
        return p.gives((None,) * kind.get_shape()[0])
    elif found.ndim == 0:
        each = int(found)
        if each < 1:
            raise PopulusError(f"parts of {each} elements are asked for")
        sizes = [min(each, n - i) for i in range(0, n, each)]
    else:
        sizes = [int(v) for v in found]
    if sum(sizes) != n or min(sizes, default=0) < 0:
        raise PopulusError(f"the parts {sizes} are {sum(sizes)} elements, dimension {axis} has {n}")
    parts: list[SSAValue] = []
    begin = 0
    for size in sizes:
        part = p.make("Slice", x, p.ints(begin), p.ints(begin + size), p.ints(axis))
        parts.append(p.make("Squeeze", part, p.ints(axis)) if squeezed else part)
        begin += size
    return p.gives(tuple(parts))


def _map(p: _Place) -> bool:
    """A body for each position; inputs that are no sequences are given to each."""
    first = p.elements(0)
    columns: list[list[SSAValue]] = [[] for _ in p.op.results]
    if any(v in p.walk.lists and len(p.walk.lists[v]) != len(first) for v in p.inputs if v is not None):
        raise PopulusError("its sequences differ in length")
    for i in range(len(first)):
        arguments: list[SSAValue] = []
        for k, value in enumerate(p.inputs):
            assert value is not None, k
            arguments.append(_there(p.elements(k)[i]) if value in p.walk.lists else value)
        for column, value in zip(columns, p.inline(p.op.region("body"), arguments)):
            column.append(value)
    for result, column in zip(p.op.results, columns):
        p.walk.lists[result] = tuple(column)
    return True


def _optional(p: _Place) -> bool:
    if not p.inputs:
        return p.gives(())
    value = p.input(0)
    return p.gives(p.walk.lists.get(value, (value,)))


def _has_element(p: _Place) -> bool:
    import numpy as np

    if not p.has(0):
        return p.gives(p.constant(np.array(False)))
    value = p.input(0)
    return p.gives(p.constant(np.array(value not in p.walk.lists or len(p.walk.lists[value]) > 0)))


def _get_element(p: _Place) -> bool:
    value = p.input(0)
    if value not in p.walk.lists:
        return p.gives(value)
    (result,) = p.op.results
    elements = p.walk.lists[value]
    if isinstance(value.owner, OnnxOp) and value.owner.OP_TYPE == "Optional" and _holds_tensor(value.owner, p):
        return p.gives(_there(elements[0]))
    if not elements:
        raise PopulusError("its optional has no element")
    p.walk.lists[result] = elements
    return True


def _holds_tensor(op: OnnxOp, p: _Place) -> bool:
    return bool(op.operands) and op.operands[0] not in p.walk.lists


def _if(p: _Place) -> bool:
    """Only with a known condition."""
    condition = p.known(0)
    if condition is None:
        return False
    taken = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    for result, value in zip(list(p.op.results), p.inline(p.op.region(taken), [])):
        p.replace(result, value)
    return True


def _loop(p: _Place) -> bool:
    """As often as a known number or known conditions say. Source: ONNX Loop-16."""
    import numpy as np

    most = p.known(0) if p.has(0) else None
    go = p.known(1) if p.has(1) else np.array(True)
    if (p.has(0) and most is None) or go is None:
        raise PopulusError("the number of its iterations is decided when the model runs; it has to be known when compiling")
    limit = None if most is None else int(most.reshape(-1)[0])
    carried = [_given(v) for v in p.inputs[2:]]
    going, i = bool(go.reshape(-1)[0]), 0
    body = p.op.region("body")
    last = body.block.last_op
    assert last is not None
    scanned: list[list[SSAValue]] = [[] for _ in range(len(last.operands) - 1 - len(carried))]
    while going and (limit is None or i < limit):
        if i >= LONGEST_LOOP:
            raise PopulusError(f"it has more than {LONGEST_LOOP} iterations, which are not written out")
        condition, *values = p.inline(body, [p.constant(np.array(i, np.int64)), p.constant(np.array(True)), *carried])
        carried, rest = values[: len(carried)], values[len(carried) :]
        for column, value in zip(scanned, rest):
            column.append(value)
        i += 1
        if limit is None or i < limit:
            known = p.walk.computed(condition)
            if known is None:
                raise PopulusError("whether it goes on is decided when the model runs; that has to be known when compiling")
            going = bool(known.reshape(-1)[0])
    results = _outputs(p)
    for result, value in zip(results, carried):
        if result is not None:
            p.replace(result, value)
    for result, column in zip(results[len(carried) :], scanned):
        if result is not None:
            p.replace(result, _stacked(p, column, 0))
    return True


def _outputs(p: _Place) -> list[SSAValue | None]:
    return list(p.op.outputs)


def _given(value: SSAValue | None) -> SSAValue:
    assert value is not None
    return value


def _stacked(p: _Place, values: Sequence[SSAValue], axis: int) -> SSAValue:
    """The values of all iterations along a new dimension."""
    if not values:
        raise PopulusError("it has no iteration, so the shape of what it collects is not known")
    rows = [p.make("Unsqueeze", v, p.ints(axis)) for v in values]
    return p.make("Concat", *rows, axis=axis)


def _scan(p: _Place) -> bool:
    """A body for each position of the scanned inputs. Source: ONNX Scan-11."""
    if p.op.VERSION < 9:
        raise PopulusError("Scan of opset 8 is not supported; convert the model to opset 9 or later")
    import numpy as np

    count = p.op.property("num_scan_inputs")
    given = [_given(v) for v in p.inputs]
    states, inputs = given[: len(given) - count], given[len(given) - count :]
    body = p.op.region("body")
    last = body.block.last_op
    assert last is not None
    collected = len(last.operands) - len(states)
    axes = [shapes.axis(a, len(shape_of(v.type))) for a, v in zip(p.op.property("scan_input_axes") or [0] * count, inputs)]
    backwards = p.op.property("scan_input_directions") or [0] * count
    lengths = {shape_of(v.type)[a] for v, a in zip(inputs, axes)}
    if len(lengths) != 1:
        raise PopulusError(f"its inputs have {', '.join(map(str, sorted(lengths)))} positions; one number is expected")
    (length,) = lengths
    if length > LONGEST_LOOP:
        raise PopulusError(f"it has {length} iterations; up to {LONGEST_LOOP} are written out")
    columns: list[list[SSAValue]] = [[] for _ in range(collected)]
    for t in range(length):
        rows = [
            p.make("Gather", v, p.constant(np.array(length - 1 - t if back else t, np.int64)), axis=a)
            for v, a, back in zip(inputs, axes, backwards)
        ]
        values = p.inline(body, [*states, *rows])
        states = values[: len(states)]
        for column, value in zip(columns, values[len(states) :]):
            column.append(value)
    out_axes = p.op.property("scan_output_axes") or [0] * collected
    out_backwards = p.op.property("scan_output_directions") or [0] * collected
    results = _outputs(p)
    for result, value in zip(results, states):
        if result is not None:
            p.replace(result, value)
    for result, column, axis, back in zip(results[len(states) :], columns, out_axes, out_backwards):
        if result is not None:
            p.replace(result, _stacked(p, column[::-1] if back else column, axis))
    return True


_RULES: Mapping[str, Callable[[_Place], bool]] = {
    "ConcatFromSequence": _concat,
    "Identity": _identity,
    "If": _if,
    "Loop": _loop,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "Scan": _scan,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
