"""Branches with a known condition and loops of known length."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from populus.dialects import shapes
from populus.dialects.diagnostics import PopulusError
from populus.dialects.element_types import shape_of
from populus.lowering.onnx_structure.place import Place, Rules

LONGEST_LOOP = 10_000  # iterations that a loop is written out for


def _if(p: Place) -> bool:
    """Only with a known condition."""
    condition = p.known(0)
    if condition is None:
        return False
    taken = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    for result, value in zip(list(p.op.results), p.inline(p.op.region(taken), [])):
        p.replace(result, value)
    return True


def _loop(p: Place) -> bool:
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


RULES: Rules = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
