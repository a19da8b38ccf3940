"""Branches with a known condition, and loops: written out where they are short, else typed and kept.

A program does not grow with the number of iterations of its loops; only what a few of them make is written out, and loops that
change the shapes of what they carry, which no loop on tiles can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType, UnitAttr, i1, i64
from xdsl.ir import Attribute, Block, Region, SSAValue

from populus.dialects.base.tensor_op import attribute
from populus.dialects.data import ConstantOp, constant_value
from populus.dialects.onnx.schema import OnnxOp, op_class
from populus.dialects.onnx.structure import YieldOp
from populus.dialects.onnx.types import as_tensor, unknown
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.lowering.onnx.structure.place import OPSET, Place, Rules

LONGEST_LOOP = 10_000  # iterations that a loop is written out for
ENDLESS = (1 << 31) - 1  # iterations that tiles count; a number above it is no bound


def _if(p: Place) -> bool:
    """Its branch, where the condition is known; else both branches are typed."""
    condition = p.known(0)
    if condition is None:
        return _kept_if(p)
    taken = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    for result, value in zip(list(p.op.results), p.inline(p.op.region(taken), [])):
        p.replace(result, value)
    return True


def _kept_if(p: Place) -> bool:
    """Both branches give the same types, or sizes that differ along one axis: then the larger one, of which a part is valid."""
    branches = {name: p.typed(p.op.region(name), [], {}) for name in ("then_branch", "else_branch")}
    then, other = (list(_end(region).operands) for region in branches.values())
    if len(then) != len(other):
        raise PopulusError(f"its branches give {len(then)} and {len(other)} results")
    types: list[Attribute] = []
    bounded: dict[int, int] = {}
    for i, (a, b) in enumerate(zip(then, other)):
        axes = {p.walk.bounded[v].axis for v in (a, b) if v in p.walk.bounded} | _differing(a.type, b.type)
        if len(axes) > 1 or -1 in axes:
            raise PopulusError(
                f"its branches give {a.type} and {b.type}; which one is taken is decided when the model runs, "
                "so they have to agree but for the size of one dimension"
            )
        shape = [max(sizes) for sizes in zip(shape_of(a.type), shape_of(b.type))] if axes else []
        types.append(tensor(shape, element_type_of(a.type)) if axes else a.type)
        if axes:
            bounded[i] = next(iter(axes))
    p.keep(branches, types, bounded)
    return False


def _differing(a: Attribute, b: Attribute) -> set[int]:
    """The dimensions in which two types differ; -1 for what is no dimension."""
    if a == b:
        return set()
    first, second = as_tensor(a), as_tensor(b)
    if first is None or second is None or first.element_type != second.element_type or first.get_num_dims() != second.get_num_dims():
        return {-1}
    return {d for d, (m, n) in enumerate(zip(first.get_shape(), second.get_shape())) if m != n}


def _given_types(p: Place, body: Region) -> list[Attribute]:
    """The types of what a loop's body gives, of fixed size."""
    if any(v in p.walk.bounded for v in _end(body).operands):
        raise PopulusError("the size of what it carries or collects depends on the data; a loop on tiles needs one size for all iterations")
    return [v.type for v in _end(body).operands]


def _loop(p: Place) -> bool:
    """Written out if it is known how often it runs and that is little, or if its shapes change on the way. Source: ONNX Loop-25."""
    import numpy as np

    most = p.known(0) if p.has(0) else None
    go = p.known(1) if p.has(1) else np.array(True)
    limit = None if most is None else max(int(most.reshape(-1)[0]), 0)
    body = p.op.region("body")
    begins = None if go is None else bool(go.reshape(-1)[0])
    counted = begins is not None and _goes_on(body)
    if begins is False:
        limit, counted = 0, True
    bound = None if limit is not None and limit > ENDLESS else limit  # torch's number for a `while` is no bound
    if begins is None or (p.has(0) and limit is None):
        return _kept_loop(p, bound, counted)
    if any(v in p.walk.lists for v in p.inputs if v is not None):
        return _written_out(p, limit, begins)
    if counted:
        if limit is None or bound is None:
            raise PopulusError("it has neither a number of iterations nor a condition that ends it")
        if limit and limit * _ops(body) <= p.walk.write_out:
            return _written_out(p, limit, True)
        return p.either(lambda: _kept_loop(p, limit, counted), lambda: _written_out(p, limit, True))
    # A condition that the body computes may follow from what is known, which only writing it out shows.
    return p.either(
        lambda: p.either(lambda: _written_out(p, limit, begins, p.walk.write_out), lambda: _kept_loop(p, bound, counted), reason=1),
        lambda: _written_out(p, limit, begins),
    )


def _goes_on(body: Region) -> bool:
    """Whether a Loop's body always says to go on, as far as one can see."""
    value = _end(body).operands[0]
    while isinstance(value.owner, OnnxOp) and value.owner.OP_TYPE == "Identity":
        value = value.owner.operands[0]
    constant = constant_value(value)
    return value is body.block.args[1] or (constant is not None and constant.size == 1 and bool(constant.reshape(-1)[0]))


def _ops(body: Region) -> int:
    """How many ops a region has, constants left out."""
    return sum(not isinstance(op, ConstantOp) for op in body.walk())


def _end(body: Region) -> YieldOp:
    end = body.block.last_op
    assert isinstance(end, YieldOp), end
    return end


def _written_out(p: Place, limit: int | None, going: bool, room: int | None = None) -> bool:
    """The body as often as it runs, in a row. `room`: at most so many ops."""
    import numpy as np

    carried = [_given(v) for v in p.inputs[2:]]
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


def _kept_loop(p: Place, limit: int | None, counted: bool) -> bool:
    """Typed and left as a loop. What it carries has the same types in each iteration."""
    import numpy as np

    carried = [_given(v) for v in p.inputs[2:]]
    region = p.op.region("body")
    number, flag = (as_tensor(a.type) for a in region.block.args[:2])
    types = [_single(number, i64), _single(flag, i1), *(v.type for v in carried)]
    body = p.typed(region, types, {1: np.array(True)})
    going, *given = _given_types(p, body)
    _agree(carried, given)
    if as_tensor(going) is None or math.prod(shape_of(going)) != 1:
        raise PopulusError(f"whether it goes on is {going}; one boolean is expected")
    rows = given[len(carried) :]
    if limit is None and any(o is not None and o.uses for o in _outputs(p)[len(carried) :]):
        raise PopulusError(
            "the number of its iterations is decided when the model runs, and it collects a row of each; "
            "tiles need to know the most there can be"
        )
    found = [*(v.type for v in carried), *(tensor((limit or 0, *shape_of(t)), element_type_of(t)) for t in rows)]
    bounded = None if counted else dict.fromkeys(range(len(carried), len(found)), 0)
    p.keep({"body": body}, found, bounded)
    if limit is not None:
        p.op.attributes["trips"] = attribute(limit)
    if counted:
        p.op.attributes["counted"] = UnitAttr()
    return False


def _single(stated: TensorType[Attribute] | None, element: Attribute) -> TensorType[Attribute]:
    """One element, in a tensor of the rank that a body states for it."""
    return tensor((1,) * (0 if stated is None else len(stated.get_shape())), element)


def _agree(carried: Sequence[SSAValue], given: Sequence[Attribute]) -> None:
    for before, after in zip(carried, given):
        if before.type != after:
            raise PopulusError(
                f"it carries {before.type} and gives {after} to the next iteration; how often it runs is decided when the model runs, "
                "or is too much to be written out, so they have to agree"
            )


def _outputs(p: Place) -> list[SSAValue | None]:
    return list(p.op.outputs)


def _given(value: SSAValue | None) -> SSAValue:
    assert value is not None
    return value


def _stacked(p: Place, values: Sequence[SSAValue], axis: int) -> SSAValue:
    """The values of all iterations along a new dimension."""
    if not values:
        raise PopulusError("it has no iteration, so the shape of what it collects is not known")
    rows = [p.make("Unsqueeze", v, p.ints(axis)) for v in values]
    return p.make("Concat", *rows, axis=axis)


def _scan(p: Place) -> bool:
    """A body for each position of the scanned inputs. Source: ONNX Scan-25."""
    if p.op.VERSION < 9:
        return _scan_batches(p)
    count = p.op.property("num_scan_inputs")
    given = [_given(v) for v in p.inputs]
    states, inputs = given[: len(given) - count], given[len(given) - count :]
    axes = [shapes.axis(a, len(shape_of(v.type))) for a, v in zip(p.op.property("scan_input_axes") or [0] * count, inputs)]
    lengths = {shape_of(v.type)[a] for v, a in zip(inputs, axes)}
    if len(lengths) != 1:
        raise PopulusError(f"its inputs have {', '.join(map(str, sorted(lengths)))} positions; one number is expected")
    (length,) = lengths
    if length and length * _ops(p.op.region("body")) <= p.walk.write_out:
        return _scan_written_out(p, states, inputs, axes, length)
    return p.either(lambda: _kept_scan(p, states, inputs, axes, length), lambda: _scan_written_out(p, states, inputs, axes, length))


def _kept_scan(p: Place, states: Sequence[SSAValue], inputs: Sequence[SSAValue], axes: Sequence[int], length: int) -> bool:
    """Typed and left as a loop."""
    rows = [tensor([n for d, n in enumerate(shape_of(v.type)) if d != a], element_type_of(v.type)) for v, a in zip(inputs, axes)]
    body = p.typed(p.op.region("body"), [*(v.type for v in states), *rows], {})
    given = _given_types(p, body)
    _agree(states, given)
    collected = given[len(states) :]
    out_axes = p.op.property("scan_output_axes") or [0] * len(collected)
    types = [*(v.type for v in states)]
    for type, axis in zip(collected, out_axes):
        shape = list(shape_of(type))
        shape.insert(shapes.axis(axis, len(shape) + 1), length)
        types.append(tensor(shape, element_type_of(type)))
    p.keep({"body": body}, types)
    return False


def _scan_written_out(p: Place, states: list[SSAValue], inputs: Sequence[SSAValue], axes: Sequence[int], length: int) -> bool:
    """The body for each position in a row."""
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


def _scan_batches(p: Place) -> bool:
    """Scan-8: a scan for each element of the batch, which is a scan over the batch. Source: ONNX Scan-8."""
    if p.has(0):
        raise PopulusError("Scan-8 with sequence_lens is not supported; convert the model to opset 9 or later")
    count, body = p.op.property("num_scan_inputs"), p.op.region("body")
    given = [_given(v) for v in p.inputs[1:]]
    inner = Block(arg_types=[unknown for _ in given])
    properties = {"num_scan_inputs": attribute(count)}
    if (directions := p.op.properties.get("directions")) is not None:
        properties["scan_input_directions"] = directions
    outputs = [unknown] * len(_end(body).operands)
    scan = op_class("", "Scan", OPSET).make(inner.args, outputs, properties, {"body": body.clone()})
    scan.location = p.op.location
    inner.add_op(scan)
    inner.add_op(YieldOp(*scan.results))
    over = {"num_scan_inputs": attribute(len(given))}
    whole = op_class("", "Scan", OPSET).make(given, outputs, over, {"body": Region(inner)})
    for result, value in zip(_outputs(p), p.made(whole)):
        if result is not None:
            p.replace(result, value)
    return True


RULES: Rules = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
