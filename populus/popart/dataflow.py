"""The data of a step: its batches, the tensors that the host fetches, and the arrays that it reads and fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_KINDS = {k.lower(): k for k in ("All", "EveryN", "Final", "Sum")}


@dataclass(frozen=True)
class AnchorReturnType:
    """The batches of a step from which a tensor is fetched: `All`, `Final`, every `n`th (`EveryN`), or the `Sum` of all. Source: PopART."""

    name: str = "All"
    n: int = 1
    tileSet: object = None
    exchangeStrategy: object = None

    def __post_init__(self) -> None:
        if self.name.lower() not in _KINDS:
            raise PopulusError(f"there is no AnchorReturnType '{self.name}'{did_you_mean(self.name, _KINDS.values())}")
        object.__setattr__(self, "name", _KINDS[self.name.lower()])
        n = self.n if isinstance(cast("object", self.n), int) else 1
        if n < 1 or (self.name != "EveryN" and n != 1):
            raise PopulusError(f"AnchorReturnType('{self.name}', {self.n}): n is for EveryN, from 1 on")
        object.__setattr__(self, "n", n)

    def rp(self) -> int:
        """Gives the number of batches of which one is fetched."""
        return self.n

    def fetches(self, batch: int, batches: int) -> bool:
        """Tells whether the host gets the tensor after this batch."""
        return batch == batches - 1 if self.name in ("Final", "Sum") else (batch + 1) % self.n == 0

    def shape(self, shape: tuple[int, ...], batches: int, parts: int = 1) -> tuple[int, ...]:
        """Gives the shape of the array that a step fills; a batch may be of several parts."""
        if self.name in ("Final", "Sum"):
            return shape
        lead = (*((batches // self.n,) if batches > 1 else ()), *((parts,) if parts > 1 else ()))
        return (*lead, *shape)


class DataFlow:
    """The number of batches of a step, and the tensors that are fetched, each with its frequency.

    Inputs have several batches as their first dimension.
    """

    def __init__(
        self, batchesPerStep: int = 1, anchors: Mapping[str, AnchorReturnType] | Iterable[str] = (), art: AnchorReturnType | None = None
    ):
        if batchesPerStep < 1:
            raise PopulusError(f"batchesPerStep = {batchesPerStep}; a step has at least 1")
        self.batches = batchesPerStep
        kinds: dict[str, AnchorReturnType] = {}
        if isinstance(anchors, Mapping):
            kinds.update(cast("Mapping[str, AnchorReturnType]", anchors))
        self.anchors: dict[str, AnchorReturnType] = {name: kinds.get(name, art or AnchorReturnType()) for name in anchors}

    def batchesPerStep(self) -> int:
        """Counts the batches of a step."""
        return self.batches

    def setBatchesPerStep(self, batchesPerStep: int) -> None:
        """Changes how many batches a step has."""
        self.batches = batchesPerStep

    def isAnchored(self, id: str) -> bool:
        """Tells whether the host gets a tensor."""
        return id in self.anchors

    def nAnchors(self) -> int:
        """Counts the tensors that the host gets."""
        return len(self.anchors)

    def art(self, id: str) -> AnchorReturnType:
        """Tells how often the host gets a tensor."""
        return self.anchors[id]


@dataclass
class PyStepIO:
    """The arrays of one step: what goes in, and what is filled with what comes out."""

    inputs: Mapping[str, ArrayLike]
    outputs: dict[str, NDArray[Any]] = field(default_factory=dict[str, Any])

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Accepts what switches PopART's checks of sizes; they are always made."""


@dataclass
class PyStepIOCallback:
    """Functions that give the inputs of each batch, and arrays for its outputs."""

    input_callback: Callable[[str, bool], ArrayLike]
    input_complete_callback: Callable[[str], None]
    output_callback: Callable[[str], NDArray[Any]]
    output_complete_callback: Callable[[str], None]


@dataclass
class PyWeightsIO:
    """Arrays by the names of weights, which `readWeights` fills and `writeWeights` reads."""

    weights: dict[str, NDArray[Any]]
