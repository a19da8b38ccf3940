"""Bounded dimensions of `@main`: their bounds, and the valid sizes of arguments and results as texts.

    func.func @main(%x: tensor<4x512xf32>, %n: tensor<i32>) attributes {
      dimension_bounds = {seq = array<i64: 1, 512>},
      argument_sizes = [["", "seq"], []], result_sizes = [["", "seq"]]}

A tensor has the upper bound of each dimension. The first elements along an axis are valid, as many as its size says
(`dialects/onnx/sizes.py`). An empty text stands for an axis that is valid as a whole.
The input `size.seq`, an i32 scalar, is the size at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr, IntegerAttr, StringAttr, i32, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation

from populus.dialects.base.tensor_op import ints
from populus.dialects.signature import input_names, output_names, state_names
from populus.dialects.support.diagnostics import PopulusError, named
from populus.dialects.support.element_types import tensor

Texts: TypeAlias = tuple[tuple[str, ...], ...]

BOUNDS, ARGUMENTS, RESULTS = "dimension_bounds", "argument_sizes", "result_sizes"
EQUAL, LIMITS = "equal_sizes", "size_limits"
PREFIX = "size."  # of the inputs that are sizes


EXPECTED = "a least size of at least 0 and a greatest of at least 1, not below the least"


def are_bounds(low: int, high: int) -> bool:
    """Tells whether sizes lie between two numbers, both inclusive, as `EXPECTED` says."""
    return 0 <= low <= high and high >= 1


def check_bounds(name: str, low: int, high: int) -> None:
    """Raises PopulusError for bounds of a dimension that no size has."""
    if not are_bounds(low, high):
        raise PopulusError(f"dimension '{name}' is bounded by {low} and {high}; expected {EXPECTED}")


def open_dimensions(
    function: FuncOp, found: Mapping[str, tuple[int, int]], texts: Sequence[Sequence[str]], limits: Mapping[str, int] = {}
) -> None:
    """Gives a function bounded dimensions: their bounds, the sizes of its arguments, and an argument `size.NAME` for each.

    `texts`: the size of each axis of each argument. `limits`: the greatest values of sizes that dimensions make.
    Raises PopulusError for a name that an argument has already.
    """
    names, block = input_names(function), function.body.block
    for name in found:
        if PREFIX + name in names:
            raise PopulusError(f"the model has an input '{PREFIX + name}', which is the name of the size of '{name}'")
        argument = block.insert_arg(tensor((), i32), len(block.args))
        argument.location = named(PREFIX + name)
    state_names(function, inputs=[*names, *(PREFIX + name for name in found)])
    set_bounds(function, found)
    set_sizes(function, ARGUMENTS, [*texts, *[()] * len(found)])
    set_limits(function, limits)
    function.update_function_type()


def set_bounds(op: Operation, bounds: Mapping[str, tuple[int, int]]) -> None:
    """Records the least and the greatest size of each dimension."""
    op.attributes[BOUNDS] = DictionaryAttr({name: DenseArrayBase.from_list(i64, pair) for name, pair in bounds.items()})


def bounds(op: Operation) -> dict[str, tuple[int, int]]:
    """Returns the least and the greatest size of each bounded dimension; empty if there is none."""
    if (found := op.attributes.get(BOUNDS)) is None:
        return {}
    result: dict[str, tuple[int, int]] = {}
    for name, pair in found.data.items() if isinstance(found, DictionaryAttr) else ():
        assert isinstance(pair, DenseArrayBase), pair
        low, high = ints(cast("DenseArrayBase[Any]", pair))
        result[name] = (low, high)
    return result


def set_limits(op: Operation, limits: Mapping[str, int]) -> None:
    """Records the greatest values of sizes that several dimensions make, such as `past + cur`."""
    if limits:
        op.attributes[LIMITS] = DictionaryAttr({text: IntegerAttr(n, i64) for text, n in limits.items()})


def limits(op: Operation) -> dict[str, int]:
    """Returns what `set_limits` recorded; a run has to keep them."""
    found = op.attributes.get(LIMITS)
    entries = found.data.items() if isinstance(found, DictionaryAttr) else ()
    return {text: n.value.data for text, n in entries if isinstance(n, IntegerAttr)}


def set_sizes(op: Operation, key: str, texts: Sequence[Sequence[str]]) -> None:
    """Records the sizes of all arguments (`ARGUMENTS`) or results (`RESULTS`), one text for each axis."""
    op.attributes[key] = ArrayAttr([ArrayAttr([StringAttr(t) for t in axes]) for axes in texts])


def sizes(op: Operation, key: str) -> Texts:
    """Returns the sizes that `set_sizes` recorded; empty if there are none."""
    return tuple(_strings(entry) for entry in _entries(op.attributes.get(key)))


def require_equal(op: Operation, first: str, second: str) -> None:
    """Records that two sizes have to be equal in each run."""
    pairs = dict.fromkeys([*equal_sizes(op), (first, second)])
    op.attributes[EQUAL] = ArrayAttr([ArrayAttr([StringAttr(t) for t in pair]) for pair in pairs])


def equal_sizes(op: Operation) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of sizes that have to be equal in each run."""
    return tuple((first, second) for first, second in map(_strings, _entries(op.attributes.get(EQUAL))))


def _entries(attribute: Attribute | None) -> tuple[Attribute, ...]:
    return cast("ArrayAttr[Attribute]", attribute).data if isinstance(attribute, ArrayAttr) else ()


def _strings(attribute: Attribute) -> tuple[str, ...]:
    return tuple(entry.data for entry in _entries(attribute) if isinstance(entry, StringAttr))


class Sizes:
    """The sizes of a function's arguments and results by name, before others are added."""

    def __init__(self, function: FuncOp):
        self.function = function
        self.arguments = dict(zip(input_names(function), sizes(function, ARGUMENTS)))
        self.results = dict(zip(output_names(function), sizes(function, RESULTS)))

    def extend(self, arguments: Mapping[str, str], results: Mapping[str, str]) -> None:
        """Records the sizes of new arguments and results. Without bounded dimensions, it does nothing.

        `arguments`: the result whose sizes a new argument has. `results`: the argument whose sizes a new result has.
        """
        if not bounds(self.function):
            return
        before = {**self.arguments, **{new: self.results.get(old, ()) for new, old in arguments.items()}}
        after = {**self.results, **{new: self.arguments.get(old, ()) for new, old in results.items()}}
        set_sizes(self.function, ARGUMENTS, [before.get(name, ()) for name in input_names(self.function)])
        set_sizes(self.function, RESULTS, [after.get(name, ()) for name in output_names(self.function)])
