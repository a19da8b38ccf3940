"""Runs every level of a program on the same inputs and finds the first place whose value differs from the level above.

Values are compared by place: ops of one ONNX node keep its name through all levels (`traces`). The values of the level `onnx`
come from ONNX's reference evaluator, and those of a file of StableHLO from XLA; both serve as oracles only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ml_dtypes import finfo
from numpy.typing import NDArray

from populus.compare.xla import has_stablehlo
from populus.compare.xla import trace as run_by_xla
from populus.dialects.signature.complex_pairs import as_pairs
from populus.dialects.signature.valid_lengths import trimmed
from populus.dialects.support.diagnostics import PopulusError
from populus.program.open_program import OpenProgram
from populus.runtime.differences import RTOL, largest_difference
from populus.runtime.traces import Key, TensorTrace, TileTrace, Trace

if TYPE_CHECKING:
    from onnx import NodeProto

    from populus.program.program import Program
    from populus.program.source import Arrays
    from populus.runtime.host.strings import Strings
    from populus.runtime.session import Session

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Comparison:
    """The comparison of two levels: the number of common places, and the first that differs (None: none does).

    `difference`: the largest, relative to the value's largest element. `times`: the number of the execution that differs, from 0.
    `skipped`: the reason why the level was not run. `magnified`: places that differ although their nodes agree with ONNX's on the
    level's own values of their inputs, as a softmax of numbers of 1e9 does, which their last bits decide. `note`: what more is known of
    the first place that differs.
    """

    level: str
    above: str
    places: int
    first: str | None
    difference: float
    skipped: str | None = None
    times: int = 0
    magnified: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"{self.level} is not compared: {self.skipped}"
        if self.first is None:
            alike = f"{self.level} agrees with {self.above} at all {self.places} places that both have"
            return alike + (f", but for rounding that {' and '.join(map(repr, self.magnified))} magnify" if self.magnified else "")
        again = f" in its execution {self.times + 1}" if self.times else ""
        at = f"'{self.first}'{again}{self.note and f' {self.note}'}"
        far = f", by {self.difference:.3g} of its largest element" if self.difference < inf else ""
        return f"{self.level} differs from {self.above} first at {at}{far}"


def compare_levels(program: Program, inputs: Mapping[str, Array], rtol: float = RTOL) -> Iterator[Comparison]:
    """Compares each level with the one above it, yielding a Comparison as soon as a level has run.

    `rtol`: tolerance relative to a value's largest element. A level that ONNX's reference, or XLA, cannot run is skipped, with the
    reason.
    Raises PopulusError if another level cannot be run, and for inputs that do not match the model.
    """
    if isinstance(program, OpenProgram):
        program = program.sized_for(inputs)
    checked = program.signature.checked(inputs)
    with program.signature.handled(checked) as (strings, handled):
        yield from _compare_levels(program, checked, handled, strings, rtol)


def _compare_levels(program: Program, checked: Arrays, handled: Arrays, strings: Strings, rtol: float) -> Iterator[Comparison]:
    above: tuple[str, Trace] | None = None
    nodes: Nodes | None = None
    padding = program.signature.padding
    at = {} if padding is None else padding.sizes(checked)
    handled = handled if padding is None else padding.padded(handled, at)
    if has_stablehlo(program.source):
        try:
            above = "stablehlo", _by_xla(program, checked)
        except PopulusError as error:
            yield Comparison("stablehlo", "", 0, None, 0.0, str(error))
    for level in program.levels:
        if level == "onnx" and not _has_model(program):
            continue
        try:
            found = trace(program, level, checked if level == "onnx" else handled)
        except PopulusError as error:
            if level != "onnx":
                raise
            yield Comparison(level, "", 0, None, 0.0, str(error))  # a custom op, or one that the reference lacks
            continue
        if level != "onnx":  # between inputs and outputs, values have the sizes of the bounds
            outputs = {name: found[_output(name)][0] for name in program.signature.outputs}
            outputs = trimmed(outputs if padding is None else padding.trimmed(outputs, at), program.signature.bounded)
            found |= {_output(name): [array] for name, array in outputs.items()}
        found = {key: [_handled(array, strings) for array in arrays] for key, arrays in found.items()}
        if above is not None:
            yield _compared(level, found, *above, rtol, nodes)
        above = level, found
        if level == "onnx" and padding is None:
            nodes = Nodes(program, checked, found)


def _handled(array: Array, strings: Strings) -> Array:
    """Gives an array as programs have it: handles of strings, and pairs of complex numbers."""
    return strings.encode(array) if array.dtype.kind in "OU" else as_pairs(array) if array.dtype.kind == "c" else array


def trace(program: Program, level: str, inputs: Mapping[str, Array]) -> Trace:
    """Runs a level and gives its values by place, and its outputs."""
    if level == "onnx":
        return _reference(program, inputs)
    if level == "poplar":
        session = _tiles(program)
        tiles = TileTrace(session.graph)
        outputs, found = session.run(inputs, tiles.observe), tiles.results
    else:
        from populus.runtime.interpreter import run_function

        tensors = TensorTrace()
        outputs, found = run_function(program.module(level), dict(inputs), tensors.observe), tensors.results
    return {**found, **{_output(name): [array] for name, array in outputs.items()}}


def _tiles(program: Program) -> Session:
    """Loads the tile program into the engine that was named, else into NumPy's: `compare_engines` finds what the native one changes."""
    from populus.runtime.session import Session

    return program.session if program.engine != "auto" else Session(program.module("poplar"), "numpy", program.options.sample)


def _reference(program: Program, inputs: Mapping[str, Array]) -> Trace:
    """Runs ONNX's reference evaluator. A node and an initializer may have the same name."""
    from onnx import (
        ModelProto,
        load_model,  # pyright: ignore[reportUnknownVariableType]
    )

    from populus.runtime.onnx_reference import run_reference

    model: Any = program.source.model
    proto = model if isinstance(model, ModelProto) else load_model(cast("str", model))
    values = run_reference(model, inputs)
    found: Trace = {(t.name, 0): [values[t.name]] for t in proto.graph.initializer}
    for index, node in enumerate(proto.graph.node):
        outputs = [o for o in node.output if o]
        name = _place(node, index)
        if made := [values[o] for o in outputs if o in values]:
            found[name, 0] = [*found.pop((name, 0), []), *made]
    return {**found, **{_output(o.name): [values[o.name]] for o in proto.graph.output if o.name in values}}


def _by_xla(program: Program, inputs: Arrays) -> Trace:
    """Runs the file of StableHLO by XLA."""
    outputs, found = run_by_xla(program.source, inputs, list(program.signature.outputs))
    return {**found, **{_output(name): [array] for name, array in outputs.items()}}


def _place(node: NodeProto, index: int) -> str:
    """Gives the place of a model's node: its name, or that of its first output."""
    return node.name or next((o for o in node.output if o), f"{node.op_type}_{index}")


def _has_model(program: Program) -> bool:
    from xdsl.dialects.builtin import ModuleOp

    model = program.source.model
    return not isinstance(model, ModuleOp) and not (isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".mlir"))


def _output(name: str) -> Key:
    return f"output {name}", 0


def first_difference(found: Trace, expected: Trace, rtol: float) -> str | None:
    """Gives the first place whose value differs between two traces, in the order of `expected`; None if none does."""
    return _compared("", found, "", expected, rtol).first


class Nodes:
    """The nodes of a model by place, each computed by ONNX's reference on the values that another level has for its inputs."""

    def __init__(self, program: Program, inputs: Mapping[str, Array], values: Trace):
        from onnx import numpy_helper

        from populus.runtime.onnx_reference import model_of

        self.model, self.values = model_of(cast("Any", program.source.model)), values
        self.given = {t.name: numpy_helper.to_array(t) for t in self.model.graph.initializer} | dict(inputs)
        places = [(node, _place(node, i)) for i, node in enumerate(self.model.graph.node)]
        self.of = {place: node for node, place in places}
        self.maker = {output: (place, i) for node, place in places for i, output in enumerate(node.output) if output}

    def explain(self, place: str, found: Trace, rtol: float, explained: Sequence[str]) -> bool:
        """Tells whether the value of a place is that of its node on the level's own values of the node's inputs.

        These have to be near to ONNX's, or of a place that is explained.
        """
        from populus.runtime.onnx_reference import run_node

        maker = self.maker.get(place.removeprefix("output "), (place, 0))[0] if place.startswith("output ") else place
        node = self.of.get(maker)
        if node is None or any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
            return False
        read = {name: self._value(name, found, rtol, explained) for name in node.input if name}
        if any(value is None for value in read.values()):
            return False
        difference = _difference(found[place, 0], run_node(self.model, node, cast("Any", read)))
        return difference is not None and difference <= rtol

    def _value(self, name: str, found: Trace, rtol: float, explained: Sequence[str]) -> Array | None:
        """Gives a level's value of a name, in the shape that ONNX has; None if the level does not show it, or if it is another."""
        if name in self.given:
            return self.given[name]
        place, number = self.maker.get(name, ("", 0))
        here, there = found.get((place, 0), ()), self.values.get((place, 0), ())
        if len(here) != len(there) or number >= len(here) or here[number].size != there[number].size:
            return None
        value = here[number].reshape(there[number].shape).astype(there[number].dtype)
        near = place in explained or largest_difference(value, there[number]).relative <= max(rtol, rounding(there[number]))
        return value if near else None


def _compared(level: str, found: Trace, above: str, expected: Trace, rtol: float, nodes: Nodes | None = None) -> Comparison:
    count, magnified = 0, list[str]()
    for (place, times), arrays in expected.items():
        here = found.get((place, times), ())
        difference = _difference(here, arrays)
        if here and place.startswith("output ") and (difference is None or here[0].shape != arrays[0].shape):
            return Comparison(level, above, count, place, inf, note=f"of {_type(here[0])} instead of {_type(arrays[0])}")
        if difference is None:
            continue
        count += 1
        if not difference <= max(rtol, *map(rounding, arrays)):
            if nodes is None or times or not nodes.explain(place, found, rtol, magnified):
                return Comparison(level, above, count, place, difference, times=times)
            magnified.append(place)
    return Comparison(level, above, count, None, 0.0, magnified=tuple(magnified))


def _difference(found: Sequence[Array], expected: Sequence[Array]) -> float | None:
    """Computes the difference between two levels at one place, relative to the largest element; None if no shapes and kinds match.

    If a place has several values, a value matches if any value of the other level is near. All values of one of the levels
    have to match: of a loop that is written out, a level may show one iteration twice. If the levels have different numbers of
    values, because one fuses some of them, a single near value is enough.
    """
    forwards = _nearest([[_distance(f, e) for f in found] for e in expected])
    if not forwards:
        return None
    if not len(forwards) == len(expected) == len(found):
        return min(forwards)
    return min(max(forwards), max(_nearest([[_distance(f, e) for e in expected] for f in found])))


def _nearest(distances: Sequence[Sequence[float | None]]) -> list[float]:
    """Gives the smallest distance of each row that has one."""
    rows = ([d for d in row if d is not None] for row in distances)
    return [min(row) for row in rows if row]


def _distance(found: Array, expected: Array) -> float | None:
    """Computes the difference of two values, relative to the expected one; None if their shapes or kinds differ."""
    if _unit_free(found) != _unit_free(expected) or _kind(found) != _kind(expected):
        return None
    return largest_difference(found.reshape(expected.shape), expected).relative


def _unit_free(array: Array) -> tuple[int, ...]:
    """Drops dimensions of 1 from the shape, because levels add and remove them."""
    return tuple(n for n in array.shape if n != 1)


def _type(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _kind(array: Array) -> str:
    """Tells floats, integers and booleans apart: a node with values and indices has both, of one shape."""
    return {"V": "f", "u": "i"}.get(array.dtype.kind, array.dtype.kind)


def rounding(array: Array) -> float:
    """Gives ten units in the last place of a 16-bit float: levels round their steps, and a sum of two may magnify that."""
    halves = array.dtype.itemsize == 2 and _kind(array) == "f"
    return 10 * float(cast("Any", finfo(array.dtype)).eps) if halves else 0.0
