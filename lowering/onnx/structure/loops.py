"""Loops: short ones are unrolled, others typed and kept.

A program does not grow with the iterations of its loops. Only loops with few ops are unrolled, and loops that change
the shapes of what they carry, which tiles cannot run.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import TensorType, UnitAttr, i1, i64
from xdsl.ir import Attribute, Block, Region, SSAValue

from populus.dialects.base.tensor_op import attribute
from populus.dialects.data import ConstantOp, constant_value
from populus.dialects.onnx.schema import OnnxOp, op_class
from populus.dialects.onnx.sizes import Size, as_size
from populus.dialects.onnx.sizes import size as size_named
from populus.dialects.onnx.structure import YieldOp
from populus.dialects.onnx.types import as_tensor, unknown
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.lowering.onnx.shape_inputs import asked_for
from populus.lowering.onnx.structure.growth import (
    CarriedSizes,
    Grown,
    Growth,
    asked_bound,
    growths,
    stated_bound,
    yields_rows,
)
from populus.lowering.onnx.structure.resolution import OPSET, Resolution, Rules
from populus.lowering.onnx.valid_sizes import Axes, described, is_prefix, is_whole, names_of, prefix, symbol, texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_LOOP = 10_000  # iterations of the longest loop that is unrolled
ENDLESS = (1 << 31) - 1  # iterations that tiles can count; a larger number is no bound


def _yielded_types(p: Resolution, body: Region, outside: Container[str], checked: int = 0) -> list[Attribute]:
    """Gives the types that a loop's body yields: of its condition, and of what follows the first `checked` values that it carries.

    Raises PopulusError for a size that is not known `outside`.
    """
    going, *values = _end(body).operands
    valid, values = p.walk.valid, [going, *values[checked:]]
    if any(name not in outside for v in values if v in valid.axes for name in names_of(valid.axes[v])):
        raise PopulusError("the size of what it carries or collects depends on the data; a loop on tiles needs one size for all iterations")
    return [v.type for v in values]


def _loop(p: Resolution) -> bool:
    """Unrolls a Loop of few known iterations, or of changing shapes; else types and keeps it.

    Source: ONNX Loop-25.
    """
    import numpy as np

    most = p.known(0) if p.has(0) else None
    go = p.known(1) if p.has(1) else np.array(True)
    limit = None if most is None else max(int(most.reshape(-1)[0]), 0)
    body = p.op.region("body")
    if len(body.block.args) < 2 or not _end(body).operands:
        takes, gives = len(body.block.args), len(_end(body).operands)
        raise PopulusError(f"its body takes {takes} inputs and gives {gives} outputs; expected at least 2 and 1: a number and a condition")
    begins = None if go is None else bool(go.reshape(-1)[0])
    counted = begins is not None and _goes_on(body)
    if begins is False:
        limit, counted = 0, True
    stated = stated_bound(p.op)
    if stated is not None and limit is not None and counted and limit > stated:
        raise PopulusError(f"it runs {limit} times, and its bound is stated to be {stated}")
    bound = None if limit is not None and limit > ENDLESS else limit  # torch exports a `while` with this number
    if stated is not None:
        bound = stated if bound is None else min(bound, stated)
    if p.has(0) and (size := p.walk.valid.symbols.get(p.input(0))) is not None:
        return _kept_loop(p, p.walk.valid.upper(size.reshape(-1)[0]), counted, size.reshape(-1)[0])
    if begins is None or (p.has(0) and limit is None):
        return _kept_loop(p, bound, counted)
    if any(v in p.walk.lists for v in p.inputs if v is not None):
        return _unrolled(p, limit, begins)
    if counted:
        if limit is None or bound is None:
            raise PopulusError("it has neither a number of iterations nor a condition that ends it")
        if limit and limit * _ops(body) <= p.walk.write_out:
            return _unrolled(p, limit, True)
        return p.either(lambda: _kept_loop(p, limit, counted), lambda: _unrolled(p, limit, True))
    # A condition that the body computes may depend on known values alone; only unrolling shows it.
    return p.either(
        lambda: p.either(lambda: _unrolled(p, limit, begins, p.walk.write_out), lambda: _kept_loop(p, bound, counted), reason=1),
        lambda: _unrolled(p, limit, begins),
    )


def _goes_on(body: Region) -> bool:
    """Tells whether a Loop's body provably never ends the loop."""
    value = _end(body).operands[0]
    while isinstance(value.owner, OnnxOp) and value.owner.OP_TYPE == "Identity":
        value = value.owner.operands[0]
    constant = constant_value(value)
    return value is body.block.args[1] or (constant is not None and constant.size == 1 and bool(constant.reshape(-1)[0]))


def _ops(body: Region) -> int:
    """Counts the ops of a region, without constants."""
    return sum(not isinstance(op, ConstantOp) for op in body.walk())


def _end(body: Region) -> YieldOp:
    """Gives the terminator of a body."""
    end = body.block.last_op
    assert isinstance(end, YieldOp), end
    return end


def _unrolled(p: Resolution, limit: int | None, going: bool, room: int | None = None) -> bool:
    """Unrolls a loop. `room`: the largest number of ops. Raises PopulusError if that is not possible."""
    import numpy as np

    carried = [_required(v) for v in p.inputs[2:]]
    i, body = 0, p.op.region("body")
    size = max(_ops(body), 1)
    scanned: list[list[SSAValue]] = [[] for _ in range(len(_end(body).operands) - 1 - len(carried))]
    while going and (limit is None or i < limit):
        if i >= LONGEST_LOOP or (room is not None and (i + 1) * size > max(room, size)):
            raise PopulusError(f"it has more than {i} iterations, which are not written out")
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
    collected = _outputs(p)[len(carried) :]
    stacked = [None if result is None or not result.uses else _stacked(p, column, 0) for result, column in zip(collected, scanned)]
    for result, value in zip(_outputs(p), [*carried, *stacked]):
        if result is not None and value is not None:
            p.replace(result, value)
    return True


def _kept_loop(p: Resolution, limit: int | None, counted: bool, size: Size | None = None) -> bool:
    """Types a Loop and keeps it. Raises PopulusError if a carried value changes its type otherwise than by growing evenly.

    `size`: the number of iterations at run time, if sizes of dimensions make it.
    """
    carried, valid = [_required(v) for v in p.inputs[2:]], p.walk.valid
    outside = set(valid.bounds)
    body = p.typed(p.op.region("body"), _arguments(p, [v.type for v in carried]), *_facts(p, carried))
    if found := growths(valid, carried, yields_rows(body)):
        return _grown_loop(p, limit, counted, size, found)
    going, *yielded = _yielded_types(p, body, outside)
    _agree(carried, yielded, _counting(p))
    _check_going(going)
    rows = yielded[len(carried) :]
    if limit is None and any(o is not None and o.uses for o in _outputs(p)[len(carried) :]):
        raise PopulusError(
            "the number of its iterations is decided when the model runs, and it collects a row of each; "
            f"tiles need to know the most there can be{_counting(p)}{asked_bound(p.op)}"
        )
    types = [*(v.type for v in carried), *(tensor((limit or 0, *shape_of(t)), element_type_of(t)) for t in rows)]
    checked = _is_checked(p, size)
    bounded = None if counted and not checked else dict.fromkeys(range(len(carried), len(types)), 0)
    over = prefix(limit or 0, limit or 0 if size is None else size)
    rows_of = [valid.of(v) for v in yields_rows(body)[len(carried) :]]
    _same_sizes(p, carried, yields_rows(body))
    if bounded and any(not is_whole(a) for axes in rows_of for a in axes):
        raise PopulusError("it collects rows of a bounded size until a condition ends it; bind the dimension to one size")
    p.keep({"body": body}, types, bounded, [*(valid.of(v) for v in carried), *((over, *axes) for axes in rows_of)])
    _state_iterations(p, limit, counted, checked)
    return False


def _grown_loop(p: Resolution, limit: int | None, counted: bool, size: Size | None, growths: Mapping[int, Growth]) -> bool:
    """Types a Loop whose carried values grow, in buffers for the most iterations, and keeps it. Raises PopulusError without that number."""
    carried, valid = [_required(v) for v in p.inputs[2:]], p.walk.valid
    if limit is None:
        i, growth = next(iter(growths.items()))
        sizes = enumerate(shape_of(carried[i].type))
        grown = "x".join(f"({n} + {growth.step} * iterations)" if d == growth.axis else str(n) for d, n in sizes)
        raise PopulusError(f"it carries {grown}, and tiles need to know the most iterations there can be{_counting(p)}{asked_bound(p.op)}")
    sized = CarriedSizes(valid, carried, growths, limit)
    number, outside = valid.counted(max(limit - 1, 0)), set(valid.bounds)
    begins = [sized.at(i, size_named(number)) for i in range(len(carried))]
    arguments = _arguments(p, [sized.type(i) for i in range(len(carried))])
    known, _ = _facts(p, carried)
    body = p.typed(
        p.op.region("body"),
        arguments,
        known,
        {i: axes for i, axes in enumerate(begins, 2) if not all(map(is_whole, axes))},
        {0: symbol(number, shape_of(arguments[0]))},
    )
    sized.check(yields_rows(body)[: len(carried)], size_named(number))
    outside.discard(number)
    going, *rows = _yielded_types(p, body, outside, len(carried))
    _check_going(going)
    checked = _is_checked(p, size)
    iterations, count = as_size(limit) if size is None else size, None
    if not counted or checked:
        count = valid.counted(limit)
        iterations = size_named(count)
    types = [*(sized.type(i) for i in range(len(carried))), *(tensor((limit, *shape_of(t)), element_type_of(t)) for t in rows)]
    rows_of = [(prefix(limit, iterations), *valid.of(v)) for v in yields_rows(body)[len(carried) :]]
    p.keep({"body": body}, types, None, [*(sized.at(i, iterations) for i in range(len(carried))), *rows_of])
    Grown(number, count, tuple(map(texts, begins))).record(p.op, valid)
    _state_iterations(p, limit, counted, checked)
    return False


def _facts(p: Resolution, carried: Sequence[SSAValue]) -> tuple[Mapping[int, NDArray[Any]], Mapping[int, Axes]]:
    """Gives what is known of the arguments of a Loop's body, by position: that it goes on, and the sizes of what is carried."""
    import numpy as np

    return {1: np.array(True)}, {i: p.walk.valid.of(v) for i, v in enumerate(carried, 2) if v in p.walk.valid.axes}


def _arguments(p: Resolution, carried: Sequence[Attribute]) -> list[Attribute]:
    """Lists the types of the arguments of a Loop's body."""
    number, flag = (as_tensor(a.type) for a in p.op.region("body").block.args[:2])
    return [_single(number, i64), _single(flag, i1), *carried]


def _check_going(type: Attribute) -> None:
    """Raises PopulusError if the type of a Loop's condition is not one element."""
    if as_tensor(type) is None or math.prod(shape_of(type)) != 1:
        raise PopulusError(f"whether it goes on is {type}; one boolean is expected")


def _is_checked(p: Resolution, size: Size | None) -> bool:
    """Tells whether a run may reach the bound that the user states for a Loop, and go on; such a run is refused."""
    stated = stated_bound(p.op)
    most = p.known(0) if p.has(0) else None
    return stated is not None and size is None and (most is None or int(most.reshape(-1)[0]) > stated)


def _state_iterations(p: Resolution, limit: int | None, counted: bool, checked: bool) -> None:
    """Records the number of iterations on a typed Loop: the most, whether it is exact, and whether a run of more is refused."""
    if limit is not None:
        p.op.attributes["trips"] = attribute(limit)
    if counted:
        p.op.attributes["counted"] = UnitAttr()
    if checked:
        p.op.attributes["checked"] = UnitAttr()


def _same_sizes(p: Resolution, carried: Sequence[SSAValue], following: Sequence[SSAValue]) -> None:
    """Raises PopulusError for a carried value whose valid size changes, or is not the front of its axes."""
    for before, after in zip(carried, following):
        axes = p.walk.valid.of(before)
        if axes != p.walk.valid.of(after) or not all(map(is_prefix, axes)):
            found = f"{described(axes)}, and gives {described(p.walk.valid.of(after))} to the next iteration"
            raise PopulusError(f"it carries {found}; a loop on tiles carries values of one size")


def _single(stated: TensorType[Attribute] | None, element: Attribute) -> TensorType[Attribute]:
    """Gives the type of one element, with the rank that a body states for it."""
    return tensor((1,) * (0 if stated is None else len(stated.get_shape())), element)


def _counting(p: Resolution) -> str:
    """Asks for the number of iterations of a Loop, if that is an input."""
    return asked_for([v for v in p.inputs[:1] if v is not None])


def _agree(carried: Sequence[SSAValue], yielded: Sequence[Attribute], asked: str = "") -> None:
    """Raises PopulusError if a carried value's type differs from that of the next iteration. `asked`: what would help."""
    for before, after in zip(carried, yielded):
        if before.type != after:
            raise PopulusError(
                f"it carries {before.type} and gives {after} to the next iteration; how often it runs is decided when the model runs, "
                f"or is too much to be written out, so they have to agree{asked}"
            )


def _outputs(p: Resolution) -> list[SSAValue | None]:
    """Lists the outputs of the op; None for an absent one."""
    return list(p.op.outputs)


def _required(value: SSAValue | None) -> SSAValue:
    """Gives an input that the schema requires."""
    assert value is not None
    return value


def _stacked(p: Resolution, values: Sequence[SSAValue], axis: int) -> SSAValue:
    """Stacks the values of all iterations along a new dimension. Raises PopulusError if there are none."""
    if not values:
        raise PopulusError("it has no iteration, so the shape of what it collects is not known")
    rows = [p.make("Unsqueeze", v, p.ints(axis)) for v in values]
    return p.make("Concat", *rows, axis=axis)


def _scan(p: Resolution) -> bool:
    """Unrolls a Scan of few positions; else types and keeps it. Source: ONNX Scan-25."""
    if p.op.VERSION < 9:
        return _scan_batches(p)
    count = p.op.property("num_scan_inputs")
    yielded = [_required(v) for v in p.inputs]
    states, inputs = yielded[: len(yielded) - count], yielded[len(yielded) - count :]
    axes = [shapes.axis(a, len(shape_of(v.type))) for a, v in zip(p.op.property("scan_input_axes") or [0] * count, inputs)]
    lengths = {shape_of(v.type)[a] for v, a in zip(inputs, axes)}
    if len(lengths) != 1:
        raise PopulusError(f"its inputs have {', '.join(map(str, sorted(lengths)))} positions; one number is expected")
    (length,) = lengths
    along = [p.walk.valid.of(v)[a] for v, a in zip(inputs, axes)]
    if not all(map(is_whole, along)):
        if len(set(along)) > 1 or not is_prefix(along[0]):
            raise PopulusError("the number of its positions is not one size of dimensions; bind them to one size")
        return _kept_scan(p, states, inputs, axes, length)
    if length and length * _ops(p.op.region("body")) <= p.walk.write_out:
        return _unrolled_scan(p, states, inputs, axes, length)
    return p.either(lambda: _kept_scan(p, states, inputs, axes, length), lambda: _unrolled_scan(p, states, inputs, axes, length))


def _kept_scan(p: Resolution, states: Sequence[SSAValue], inputs: Sequence[SSAValue], axes: Sequence[int], length: int) -> bool:
    """Types a Scan and keeps it."""
    rows = [tensor([n for d, n in enumerate(shape_of(v.type)) if d != a], element_type_of(v.type)) for v, a in zip(inputs, axes)]
    valid = p.walk.valid
    along, outside = valid.of(inputs[0])[axes[0]], set(valid.bounds)
    given = [*map(valid.of, states), *(tuple(x for d, x in enumerate(valid.of(v)) if d != a) for v, a in zip(inputs, axes))]
    body = p.typed(p.op.region("body"), [*(v.type for v in states), *rows], {}, dict(enumerate(given)))
    yielded = _yielded_types(p, body, outside)
    _agree(states, yielded)
    collected = yielded[len(states) :]
    out_axes = p.op.property("scan_output_axes") or [0] * len(collected)
    types = [*(v.type for v in states)]
    sizes = [valid.of(v) for v in states]
    for type, axis, value in zip(collected, out_axes, _end(body).operands[len(states) :]):
        shape, own = list(shape_of(type)), list(valid.of(value))
        own.insert(shapes.axis(axis, len(shape) + 1), along)
        shape.insert(shapes.axis(axis, len(shape) + 1), length)
        types.append(tensor(shape, element_type_of(type)))
        sizes.append(tuple(own))
    _same_sizes(p, states, _end(body).operands)
    p.keep({"body": body}, types, None, sizes)
    return False


def _unrolled_scan(p: Resolution, states: list[SSAValue], inputs: Sequence[SSAValue], axes: Sequence[int], length: int) -> bool:
    """Unrolls a Scan. Raises PopulusError above `LONGEST_LOOP` positions."""
    import numpy as np

    if length > LONGEST_LOOP:
        raise PopulusError(f"it has {length} iterations; up to {LONGEST_LOOP} are written out")
    body = p.op.region("body")
    backwards = p.op.property("scan_input_directions") or [0] * len(inputs)
    columns: list[list[SSAValue]] = [[] for _ in range(len(_end(body).operands) - len(states))]
    for t in range(length):
        rows = [
            p.make("Gather", v, p.constant(np.array(length - 1 - t if back else t, np.int64)), axis=a)
            for v, a, back in zip(inputs, axes, backwards)
        ]
        values = p.inline(body, [*states, *rows])
        states = values[: len(states)]
        for column, value in zip(columns, values[len(states) :]):
            column.append(value)
    out_axes = p.op.property("scan_output_axes") or [0] * len(columns)
    out_backwards = p.op.property("scan_output_directions") or [0] * len(columns)
    results = _outputs(p)
    stacked = [
        None if result is None else _stacked(p, column[::-1] if back else column, axis)
        for result, column, axis, back in zip(results[len(states) :], columns, out_axes, out_backwards)
    ]
    for result, value in zip(results, [*states, *stacked]):
        if result is not None and value is not None:
            p.replace(result, value)
    return True


def _scan_batches(p: Resolution) -> bool:
    """Replaces a Scan-8, which scans each element of a batch, by a scan over the batch of such scans.

    Raises PopulusError for sequence_lens. Source: ONNX Scan-8.
    """
    if p.has(0):
        raise PopulusError("Scan-8 with sequence_lens is not supported; convert the model to opset 9 or later")
    count, body = p.op.property("num_scan_inputs"), p.op.region("body")
    yielded = [_required(v) for v in p.inputs[1:]]
    inner = Block(arg_types=[unknown for _ in yielded])
    properties = {"num_scan_inputs": attribute(count)}
    if (directions := p.op.properties.get("directions")) is not None:
        properties["scan_input_directions"] = directions
    outputs = [unknown] * len(_end(body).operands)
    scan = op_class("", "Scan", OPSET).make(inner.args, outputs, properties, {"body": body.clone()})
    scan.location = p.op.location
    inner.add_op(scan)
    inner.add_op(YieldOp(*scan.results))
    over = {"num_scan_inputs": attribute(len(yielded))}
    whole = op_class("", "Scan", OPSET).make(yielded, outputs, over, {"body": Region(inner)})
    for result, value in zip(_outputs(p), p.made(whole)):
        if result is not None:
            p.replace(result, value)
    return True


RULES: Rules = {
    "Loop": _loop,
    "Scan": _scan,
}
