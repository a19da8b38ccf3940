"""An ONNX op with what its operands are, for its definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import Attribute, SSAValue

from populus.dialects.data import constant_value
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.poplar.affine import broadcast_map
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.proof.report import Undecided
from populus.proof.terms import Terms
from populus.proof.trees import Pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

Results: TypeAlias = "list[Pieces]"


@dataclass(frozen=True)
class Node:
    """An ONNX op with what its operands are."""

    t: Terms
    op: OnnxOp
    values: Mapping[SSAValue, Pieces]

    def has(self, i: int) -> bool:
        """Tells whether an input is given."""
        return self.op.input(i) is not None

    def value(self, i: int) -> SSAValue:
        """Gives an input. Raises Undecided if it is left out."""
        value = self.op.input(i)
        if value is None:
            raise Undecided("an input is left out")
        return value

    def x(self, i: int) -> Pieces:
        """Gives what an input is."""
        return self.values[self.value(i)]

    def shape(self, i: int) -> tuple[int, ...]:
        """Gives the shape of an input."""
        return shape_of(self.value(i).type)

    def element(self, i: int) -> Attribute:
        """Gives the element type of an input."""
        return element_type_of(self.value(i).type)

    @property
    def full(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return shape_of(self.op.results[0].type)

    def get(self, name: str) -> Any:
        """Gives an attribute or its default; None if there is none."""
        return self.op.property(name)

    def known(self, i: int) -> NDArray[Any]:
        """Gives a constant input, or one that is computed of constants. Raises Undecided for another."""
        array = constant_value(self.value(i))
        if array is None:
            array = self.t.ground.array(self.x(i), self.shape(i), dtype_of(self.element(i)))
        if array is None:
            raise Undecided(f"input {i} is no constant")
        return array

    def ints(self, i: int, attribute: str) -> list[int] | None:
        """Gives integers of an attribute, or of a constant input; None if there is neither."""
        stated = self.get(attribute)
        if stated is not None:
            return [int(v) for v in stated]
        return [int(v) for v in self.known(i).reshape(-1)] if i and self.has(i) else None

    def axis(self, rank: int, name: str = "axis") -> int:
        """Gives an axis, counted from the front."""
        return int(self.get(name)) % rank

    def stretched(self, i: int, full: tuple[int, ...]) -> Pieces:
        """Gives an input that is broadcast."""
        shape = self.shape(i)
        if len(shape) > len(full):
            raise Undecided(f"{list(shape)} as {list(full)}")
        return self.x(i) if shape == full else self.t.seen(self.x(i), broadcast_map(full, shape))
