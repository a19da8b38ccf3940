"""Examples of an op's operands, for `populus check-op`: shapes, and if need be types, values and ranges.

EXAMPLES = [([(2, 3), Input((4,), "int64", low=0, high=2)], {"axis": 1})]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from populus.dialects.base.tensor_op import Plain

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Input:
    """An operand of an example. `values` has the shape, or else random values of `shape` lie in `low` .. `high`, both included.

    `dtype`: NumPy's name of its element type. Without it, a float operand has the type that is checked, and another operand the
    first type that its class allows.
    """

    shape: Sequence[int] = ()
    dtype: str | None = None
    low: float | None = None
    high: float | None = None
    values: ArrayLike | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, of `values` if they are stated."""
        import numpy as np

        return tuple(self.shape) if self.values is None else np.shape(self.values)

    def array(self, dtype: Any, seed: int) -> NDArray[Any]:
        """Makes the operand, of an element type: its values, or random ones for a seed. Floats are distinct, and not near 0."""
        import numpy as np

        if self.values is not None:
            return np.array(self.values).astype(dtype)
        g, count = np.random.default_rng(seed), int(np.prod(self.sizes))
        if np.dtype(dtype).kind in "iub":
            low, high = (self.low, self.high) if self.low is not None and self.high is not None else (0, 1)
            return g.integers(int(low), int(high), self.sizes, np.int64, endpoint=True).astype(dtype)
        places = g.permutation(count).reshape(self.sizes)
        if self.low is None or self.high is None:
            return ((places - count // 2) * 0.11 + 0.06).astype(dtype)
        return (self.low + (places + 0.5) / max(count, 1) * (self.high - self.low)).astype(dtype)


Operand: TypeAlias = "Sequence[int] | Input | None"
Examples: TypeAlias = "Sequence[tuple[Sequence[Operand], Mapping[str, Plain]]]"


def problem(examples: object) -> bool:
    """Tells whether `EXAMPLES` is something else than a list of pairs of operands and attributes by name."""
    return not isinstance(examples, Sequence) or not all(map(_is_example, cast("Sequence[object]", examples)))


def _is_example(example: object) -> bool:
    if not isinstance(example, tuple) or len(cast("tuple[object, ...]", example)) != 2:
        return False
    operands, attributes = cast("tuple[object, object]", example)
    return isinstance(attributes, Mapping) and isinstance(operands, Sequence) and all(map(_is_operand, cast("Sequence[object]", operands)))


def _is_operand(operand: object) -> bool:
    if isinstance(operand, Input):
        try:
            operand = operand.sizes
        except ValueError:  # rows of unlike lengths
            return False
    return operand is None or (
        isinstance(operand, Sequence) and all(isinstance(n, int) and n >= 0 for n in cast("Sequence[object]", operand))
    )
