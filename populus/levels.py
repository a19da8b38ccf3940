"""Runs every level of a program on the same inputs and finds the first op whose value differs from the level above.

Values are compared by place: ops of one ONNX node keep its name through all levels, so the last value made under a name is
the node's result there. At `onnx` the values are those of ONNX's own reference, an oracle to compare with and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import FusedLoc, LocationAttr, NameLoc
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import ExecuteOp
from populus.dialects.poplar.memory import storage_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.program import IfOp, RepeatOp, WhileOp
from populus.dialects.support.diagnostics import PopulusError, parts_of

if TYPE_CHECKING:
    from populus.api import Arrays, Program
    from populus.runtime.engine.program import Written
    from populus.runtime.host.strings import Strings

Array: TypeAlias = NDArray[Any]
Trace: TypeAlias = dict[str, Array]
"""The value of each place of a level, in the order in which they were made; and of each output, under its name."""

RTOL = 1e-3  # of a value's largest element: inner values may be differences of large ones


@dataclass(frozen=True)
class Comparison:
    """Two levels: how many places they have in common, and the first that differs (None: none does)."""

    level: str
    above: str
    places: int
    first: str | None
    difference: float
    skipped: str | None = None  # why the level was not run

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"{self.level} is not compared: {self.skipped}"
        if self.first is None:
            return f"{self.level} agrees with {self.above} at all {self.places} places that both have"
        return f"{self.level} differs from {self.above} first at '{self.first}', by {self.difference:.3g} of its largest element"


def compare_levels(program: Program, inputs: Mapping[str, Array], rtol: float = RTOL) -> Iterator[Comparison]:
    """A Comparison for each level with the one above it, as they are run.

    A level that ONNX's reference cannot run is skipped, and says so.
    Raises PopulusError where another level cannot be run, and for inputs that are not the model's.
    """
    checked = program.signature.checked(inputs)
    with program.signature.handled(checked) as (strings, handled):
        yield from _compare_levels(program, checked, handled, strings, rtol)


def _compare_levels(program: Program, checked: Arrays, handled: Arrays, strings: Strings, rtol: float) -> Iterator[Comparison]:
    above: tuple[str, Trace] | None = None
    for level in program.levels:
        if level == "onnx" and not _has_model(program):
            continue
        try:
            found = trace(program, level, checked if level == "onnx" else handled)
        except PopulusError as error:
            if level != "onnx":
                raise
            yield Comparison(level, "", 0, None, 0.0, str(error))  # a custom op, or more than the reference knows
            continue
        found = {place: strings.encode(array) if array.dtype.kind in "OU" else array for place, array in found.items()}
        if above is not None:
            yield _compared(level, found, *above, rtol)
        above = level, found


def trace(program: Program, level: str, inputs: Mapping[str, Array]) -> Trace:
    """The values of a level by place, for these inputs."""
    values: Trace = {}
    merged: set[str] = set()
    seen: set[Operation] = set()

    def keep(op: Operation, array: Array) -> None:
        places = _places(op.location)
        if op in seen:  # in a loop, or in a function that is called again: it has no one result
            merged.update(places)
        for place in places[:-1]:  # its result is inside another op now
            merged.add(place)
        for place in places[-1:]:
            values.pop(place, None)  # the last value of a place is its result, and where it stands in the order
            values[place] = array

    if level == "onnx":
        return _reference(program, inputs)
    if level == "poplar":
        for op in program.module(level).walk():
            if isinstance(op, IfOp | RepeatOp | WhileOp):
                merged.update(_places(op.location))  # what bears its name is what it carries, at some time

        def written(step: Operation, made: Written) -> None:
            makers = [f for f in step.families() for _ in f.written()] if isinstance(step, ExecuteOp) else [step] * len(made)
            for i, ((value, array), maker) in enumerate(zip(made, makers, strict=True)):
                if any(_meet(value, later) for later, _ in made[i + 1 :]):  # a family went on in its memory
                    merged.update(_places(maker.location))
                else:
                    keep(maker, array)
            seen.update(makers)

        outputs = program.session.run(inputs, written)
    else:
        from populus.runtime.interpreter import run_function

        def observe(op: Operation, results: list[Array]) -> None:
            if len(results) == 1:
                keep(op, results[0])
            seen.add(op)

        outputs = run_function(program.module(level), dict(inputs), observe)
    kept = {place: array for place, array in values.items() if place not in merged}
    return {**kept, **{_output(name): array for name, array in outputs.items()}}


def _reference(program: Program, inputs: Mapping[str, Array]) -> Trace:
    from onnx import (
        ModelProto,
        load_model,  # pyright: ignore[reportUnknownVariableType]
    )

    from populus.runtime.onnx_reference import run_reference

    model: Any = program.source.model
    proto = model if isinstance(model, ModelProto) else load_model(cast("str", model))
    values = run_reference(model, inputs)
    found: Trace = {}
    for index, node in enumerate(proto.graph.node):
        outputs = [o for o in node.output if o]
        if len(outputs) == 1 and outputs[0] in values:
            found[node.name or outputs[0] or f"{node.op_type}_{index}"] = values[outputs[0]]
    return {**found, **{_output(o.name): values[o.name] for o in proto.graph.output if o.name in values}}


def _has_model(program: Program) -> bool:
    from xdsl.dialects.builtin import ModuleOp

    model = program.source.model
    return not isinstance(model, ModuleOp) and not (isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".mlir"))


def _meet(a: SSAValue, b: SSAValue) -> bool:
    """Whether two views may have memory in common."""
    return storage_of(a) is storage_of(b) and not disjoint(view_of(a), view_of(b))


def _output(name: str) -> str:
    return f"output {name}"


def _places(location: LocationAttr) -> list[str]:
    """The ONNX names of what an op was made of; its result is that of the last."""
    parts = parts_of(location) if isinstance(location, FusedLoc) else [location]
    return [part.desc.data for part in parts if isinstance(part, NameLoc)]


def _compared(level: str, found: Trace, above: str, expected: Trace, rtol: float) -> Comparison:
    common = [place for place in expected if place in found and found[place].size == expected[place].size]
    for place in common:
        difference = _difference(found[place], expected[place])
        if not difference <= rtol:
            return Comparison(level, above, len(common), place, difference)
    return Comparison(level, above, len(common), None, 0.0)


def _difference(a: Array, b: Array) -> float:
    """The largest difference, of the largest finite element; infinite where one is NaN or infinite and the other is not."""
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        return float(not np.array_equal(a.reshape(-1), b.reshape(-1)))
    x, y = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    finite = np.isfinite(y)
    if not np.array_equal(np.isfinite(x), finite) or not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("inf")
    scale = float(np.abs(y[finite]).max(initial=0))
    return float(np.abs(x[finite] - y[finite]).max(initial=0)) / max(scale, 1e-7)
