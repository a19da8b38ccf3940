"""Values that inputs of a program have to have: those from which a model's stated shapes follow.

    func.func @main(%x, %shape) attributes {required = [{input = 1, op = "Expand", x = [3, 1], y = [3, 4], zero = false}]}

A shape that a model both states and computes from an input is compiled as stated; the input is compared when it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import DenseArrayBase, DictionaryAttr, IntegerAttr, StringAttr, i1, i64
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import ints
from populus.dialects.signature.entries import add_record, records
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY = "required"


@dataclass(frozen=True)
class Required:
    """Input number `input` makes an `op` (an ONNX op type) of x's shape give the shape y. `zero`: a 0 in it is no "as in x"."""

    input: int
    op: str
    x: tuple[int, ...]
    y: tuple[int, ...]
    zero: bool = False

    def check(self, name: str, array: NDArray[Any]) -> None:
        """Raises PopulusError if the input with this name has a value from which another shape follows."""
        values = [int(v) for v in array.reshape(-1)]
        try:
            found = shapes.text(self.result(values))
        except (PopulusError, VerifyException, ValueError) as error:
            found = str(error)
        if found != shapes.text(self.y):
            made = f"the program was compiled for {self.op} of {shapes.text(self.x)} to {shapes.text(self.y)}"
            raise PopulusError(f"input '{name}' is {values}, which gives {found}; {made}")

    def result(self, values: list[int]) -> tuple[int, ...]:
        """Computes the op's result shape for these values of the input. Raises PopulusError or ValueError if they do not fit x."""
        match self.op:
            case "Expand":
                return shapes.broadcast(self.x, tuple(values))
            case "Reshape":
                return shapes.reshape(self.x, self._sizes(values))
            case "Squeeze":
                axes = shapes.axes(values, len(self.x)) if values else [d for d, n in enumerate(self.x) if n == 1]
                return tuple(n for d, n in enumerate(self.x) if d not in axes)
            case "Unsqueeze":
                axes = shapes.axes(values, len(self.x) + len(values))
                rest = iter(self.x)
                return tuple(1 if d in axes else next(rest) for d in range(len(self.x) + len(values)))
            case _:
                raise AssertionError(self.op)

    def _sizes(self, values: list[int]) -> list[int]:
        """Replaces 0 in a Reshape's shape by x's size in that dimension."""
        if self.zero:
            return values
        if any(v == 0 and d >= len(self.x) for d, v in enumerate(values)):
            raise PopulusError(f"a 0 where {shapes.text(self.x)} has no dimension")
        return [self.x[d] if v == 0 else v for d, v in enumerate(values)]


def require(op: Operation, required: Required) -> None:
    """Records on a function what one of its inputs has to be."""
    entry: dict[str, Attribute] = {
        "input": IntegerAttr(required.input, i64),
        "op": StringAttr(required.op),
        "x": DenseArrayBase.from_list(i64, required.x),
        "y": DenseArrayBase.from_list(i64, required.y),
        "zero": IntegerAttr(int(required.zero), i1),
    }
    add_record(op, KEY, entry)


def required(op: Operation) -> list[Required]:
    """Returns the required values recorded on a function or graph."""
    return [_read(entry) for entry in records(op, KEY)]


def _read(entry: DictionaryAttr) -> Required:
    input, op, x, y, zero = (entry.data[name] for name in ("input", "op", "x", "y", "zero"))
    assert isinstance(input, IntegerAttr)
    assert isinstance(op, StringAttr)
    assert isinstance(x, DenseArrayBase)
    assert isinstance(y, DenseArrayBase)
    assert isinstance(zero, IntegerAttr)
    return Required(
        input.value.data, op.data, ints(cast("DenseArrayBase[Any]", x)), ints(cast("DenseArrayBase[Any]", y)), bool(zero.value.data)
    )
