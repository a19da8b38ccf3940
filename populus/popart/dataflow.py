"""The data of a step: its batches, the tensors that the host fetches, and the arrays that it reads and fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.enums import ENUMS
from populus.popart.overloads import bound
from populus.popart.tensor_info import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_FIRST = {"TileSet": "Compute", "ExchangeStrategy": "JustInTime", "ReplicatedStreamMode": "Replicate"}
_KINDS = {k.lower(): k for k in ("All", "EveryN", "Final", "Sum")}


class AnchorReturnType:
    """The batches of a step from which a tensor is fetched: `All`, `Final`, every `n`th (`EveryN`), or the `Sum` of all. Source: PopART."""

    LISTS: ClassVar[Sequence[Sequence[str]]] = (
        ("anchorReturnTypeString", "tileSet", "exchangeStrategy"),
        ("anchorReturnTypeString", "returnPeriod", "tileSet", "exchangeStrategy"),
    )

    def __init__(self, *args: Any, **named: Any):
        given = bound("AnchorReturnType", self.LISTS, args, named)
        values = list(given.values())
        name = str(given.get("anchorReturnTypeString", "All"))
        if name.lower() not in _KINDS:
            raise PopulusError(f"there is no AnchorReturnType '{name}'{did_you_mean(name, _KINDS.values())}")
        self.name = _KINDS[name.lower()]
        stated = next((v for v in values[1:] if isinstance(v, int) and not isinstance(v, Enum)), None)
        self.n = 1 if stated is None else stated
        if self.n < 1 or (self.name != "EveryN" and stated not in (None, 1)):
            raise PopulusError(f"AnchorReturnType('{name}', {stated}): n is for EveryN, from 1 on")
        kinds = {type(v).__name__: v for v in values[1:] if isinstance(v, Enum)}
        self._kinds = {n: kinds.get(n, ENUMS[n].__members__[_FIRST[n]]) for n in ("TileSet", "ExchangeStrategy")}

    def id(self) -> Enum:
        """Gives the kind, of `AnchorReturnTypeId`."""
        return ENUMS["AnchorReturnTypeId"].__members__[self.name]

    def tileSet(self) -> Enum:
        """Gives the tiles that give the tensor; it changes no result."""
        return self._kinds["TileSet"]

    def exchangeStrategy(self) -> Enum:
        """Tells when the tensor is given; it changes no result."""
        return self._kinds["ExchangeStrategy"]

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

    LISTS: ClassVar[Sequence[Sequence[str]]] = (
        ("batchesPerStep", "anchorTensors"),
        ("batchesPerStep", "anchorIds", "anchorReturnType"),
    )

    def __init__(self, *args: Any, **named: Any):
        given = bound("DataFlow", self.LISTS, args, named)
        self.batches = int(given.get("batchesPerStep", 1))
        if self.batches < 1:
            raise PopulusError(f"batchesPerStep = {self.batches}; a step has at least 1")
        names: Any = given.get("anchorTensors", given.get("anchorIds", ()))
        kinds: dict[str, AnchorReturnType] = {}
        if isinstance(names, Mapping):
            kinds.update(cast("Mapping[str, AnchorReturnType]", names))
        default = given.get("anchorReturnType") or AnchorReturnType("All")
        self.kinds: dict[str, AnchorReturnType] = {name: kinds.get(name, default) for name in cast("Iterable[str]", names)}
        """The tensors that are fetched, each with its frequency."""

    def anchors(self) -> list[str]:
        """Lists the tensors that the host gets."""
        return list(self.kinds)

    def batchesPerStep(self) -> int:
        """Counts the batches of a step."""
        return self.batches

    def setBatchesPerStep(self, batchesPerStep: int) -> None:
        """Changes how many batches a step has."""
        self.batches = batchesPerStep

    def isAnchored(self, id: str) -> bool:
        """Tells whether the host gets a tensor."""
        return id in self.kinds

    def nAnchors(self) -> int:
        """Counts the tensors that the host gets."""
        return len(self.kinds)

    def art(self, id: str) -> AnchorReturnType:
        """Tells how often the host gets a tensor."""
        return self.kinds[id]


class IStepIO:
    """A step's inputs and outputs: `PyStepIO` or `PyStepIOCallback`."""


class IWeightsIO:
    """Weights by their names: `PyWeightsIO`."""


class InputShapeInfo:
    """Types of inputs that a model leaves open, by their names."""

    def __init__(self) -> None:
        self._infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """States the type of an input."""
        self._infos[id] = info

    def has(self, id: str) -> bool:
        """Tells whether a type was stated."""
        return id in self._infos

    def get(self, id: str) -> TensorInfo:
        """Gives the type of an input. Raises PopulusError if none was stated."""
        if id not in self._infos:
            raise PopulusError(f"no type was stated for '{id}'{did_you_mean(id, self._infos)}")
        return self._infos[id]

    def names(self) -> list[str]:
        """Lists the inputs whose types were stated."""
        return list(self._infos)


class InputSettings:
    """The tiles that take an input, when, and whether replicas share it; on one replica it changes no result."""

    LISTS: ClassVar[Sequence[Sequence[str]]] = (("tileSet", "exchangeStrategy"), ("relicatedStreamMode",), ("replicatedStreamMode",))

    def __init__(self, *args: Any, **named: Any):
        kinds = {type(v).__name__: v for v in bound("InputSettings", self.LISTS, args, named).values()}
        self._kinds = {name: kinds.get(name, ENUMS[name].__members__[first]) for name, first in _FIRST.items()}

    def tileSet(self) -> Enum:
        """Gives the tiles that take the input."""
        return self._kinds["TileSet"]

    def exchangeStrategy(self) -> Enum:
        """Tells when the input is taken."""
        return self._kinds["ExchangeStrategy"]

    def replicatedStreamMode(self) -> Enum:
        """Tells whether replicas share the input."""
        return self._kinds["ReplicatedStreamMode"]


@dataclass
class PyStepIO(IStepIO):
    """The arrays of one step: what goes in, and what is filled with what comes out."""

    inputs: Mapping[str, ArrayLike]
    outputs: dict[str, NDArray[Any]] = field(default_factory=dict[str, Any])

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Accepts what switches PopART's checks of sizes; they are always made."""


@dataclass
class PyStepIOCallback(IStepIO):
    """Functions that give the inputs of each batch, and arrays for its outputs."""

    input_callback: Callable[[str, bool], ArrayLike]
    input_complete_callback: Callable[[str], None]
    output_callback: Callable[[str], NDArray[Any]]
    output_complete_callback: Callable[[str], None]


@dataclass
class PyWeightsIO(IWeightsIO):
    """Arrays by the names of weights, which `readWeights` fills and `writeWeights` reads."""

    weights: dict[str, NDArray[Any]]
