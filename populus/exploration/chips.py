"""`Chips`: the programs of the chips that compute one run of a model together, run in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType

from populus.dialects.support.element_types import shape_of
from populus.lowering.popart.training_names import SENT
from populus.runtime.turns import InTurn

if TYPE_CHECKING:
    from populus.program.program import Program

Array: TypeAlias = "NDArray[Any]"


class Chips:
    """The programs of all chips of one copy, by their number: stage s has those from `s tensor` on.

    Each takes and gives its part of a tensor that is cut: one dimension is then `tensor` times smaller than that of the whole.
    """

    def __init__(self, programs: Sequence[Program], tensor: int):
        self.programs, self.tensor = programs, tensor

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Any]) -> dict[str, Array]:
        """Computes the outputs of the whole model from its inputs. `outputs`: their types.

        Raises PopulusError if chips do not meet. Raises ValueError if the chips of a stage do not agree on an output that each has whole.
        """

        def one(k: int) -> Mapping[str, Array]:
            program = self.programs[k]
            return program.run({name: self._part(inputs[name], type, k) for name, type in program.signature.inputs.items()})

        found = InTurn(len(self.programs)).run(one)
        made: dict[str, Array] = {}
        for name in (n for n in outputs if n != SENT):
            parts = [each[name] for each in found if name in each]
            made[name] = self._joined(name, parts, shape_of(outputs[name]))
        return made

    def _part(self, whole: Array, type: TensorType[Any], chip: int) -> Array:
        """Gives a chip's part of an input."""
        cut = _cut(whole.shape, shape_of(type))
        return whole if cut is None else np.split(whole, self.tensor, cut)[chip % self.tensor]

    @staticmethod
    def _joined(name: str, parts: Sequence[Array], shape: Sequence[int]) -> Array:
        cut = _cut(shape, parts[0].shape)
        if cut is not None:
            return np.concatenate(parts, cut)
        if any(not np.array_equal(part, parts[0], equal_nan=part.dtype.kind in "fc") for part in parts):
            raise ValueError(f"chips have other values of the output '{name}'")
        return parts[0]


def _cut(whole: Sequence[int], part: Sequence[int]) -> int | None:
    """Gives the dimension in which a part is smaller."""
    return next((d for d, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b), None)
