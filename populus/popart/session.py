"""`InferenceSession` and what it is given: devices, anchors, arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from populus.api import compile
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.onnx.importer.read import read_model
from populus.program import Program

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class AnchorReturnType:
    """Which batches of a step a tensor is fetched from: `All`, `Final`, every `n`th (`EveryN`), or the `Sum` of all. Source: PopART."""

    name: str = "All"
    n: int = 1

    def __post_init__(self) -> None:
        kinds = ("All", "EveryN", "Final", "Sum")
        if self.name not in kinds:
            raise PopulusError(f"there is no AnchorReturnType '{self.name}'{did_you_mean(self.name, kinds)}")
        if self.n < 1 or (self.name != "EveryN" and self.n != 1):
            raise PopulusError(
                f"AnchorReturnType('{self.name}', {self.n}): n is for EveryN, from 1 on"
            )

    def fetches(self, batch: int, batches: int) -> bool:
        """Whether the host gets the tensor behind this batch."""
        return batch == batches - 1 if self.name in ("Final", "Sum") else (batch + 1) % self.n == 0

    def shape(self, shape: tuple[int, ...], batches: int) -> tuple[int, ...]:
        """Of the array that a step fills."""
        return shape if batches == 1 or self.name in ("Final", "Sum") else (batches // self.n, *shape)


class DataFlow:
    """How many batches a step has, and the tensors that are fetched, each with how often. Of several batches, inputs have them first."""

    def __init__(self, batchesPerStep: int, anchors: Mapping[str, AnchorReturnType] | Iterable[str]):
        if batchesPerStep < 1:
            raise PopulusError(f"batchesPerStep = {batchesPerStep}; a step has at least 1")
        self.batches = batchesPerStep
        kinds: dict[str, AnchorReturnType] = {}
        if isinstance(anchors, Mapping):
            kinds.update(cast("Mapping[str, AnchorReturnType]", anchors))
        self.anchors: dict[str, AnchorReturnType] = {name: kinds.get(name, AnchorReturnType()) for name in anchors}


@dataclass(frozen=True)
class DeviceInfo:
    """A machine: its name, and how many tiles of it."""

    target: str
    tiles: int | None = None


class DeviceManager:
    """Makes devices."""

    def createCpuDevice(self) -> DeviceInfo:
        """A machine without limits."""
        return DeviceInfo("host")

    def createIpuModelDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """A GC200, with `tilesPerIPU` tiles. Raises PopulusError for another option than that and `numIPUs` = 1."""
        if strange := [o for o in options if o not in ("numIPUs", "tilesPerIPU")]:
            raise PopulusError(f"no option '{strange[0]}'{did_you_mean(strange[0], ('numIPUs', 'tilesPerIPU'))}")
        if int(options.get("numIPUs", 1)) != 1:
            raise PopulusError(f"numIPUs = {options['numIPUs']}; programs are for one machine")
        tiles = options.get("tilesPerIPU")
        return DeviceInfo("gc200", None if tiles is None else int(tiles))


@dataclass
class PyStepIO:
    """The arrays of one step: what goes in, and what is filled with what comes out."""

    inputs: Mapping[str, ArrayLike]
    outputs: dict[str, NDArray[Any]] = field(default_factory=dict[str, Any])


class InferenceSession:
    """A model on a device. `fnModel`: bytes of `getModelProto`, or a file. Ops of yours are known once `populus.load` has read their file.

    Raises PopulusError for an anchor that is no output, and for what cannot be compiled.
    """

    def __init__(self, fnModel: bytes | str, dataFlow: DataFlow, deviceInfo: DeviceInfo):
        from onnx import ModelProto

        self._model = ModelProto.FromString(fnModel) if isinstance(fnModel, bytes) else read_model(fnModel)
        outputs = [o.name for o in self._model.graph.output]
        if strange := [a for a in dataFlow.anchors if a not in outputs]:
            raise PopulusError(f"'{strange[0]}' is no output of the model{did_you_mean(strange[0], outputs)}; addOutputTensor makes it one")
        self._anchors, self._batches, self._device = dataFlow.anchors, dataFlow.batches, deviceInfo
        self.fetched_bytes = 0
        """What the host has got, of all steps: fewer where anchors are fetched less often."""
        self._program: Program | None = None

    def prepareDevice(self) -> None:
        """Compiles the model."""
        self._program = compile(self._model, target=self._device.target, tiles=self._device.tiles)

    @property
    def program(self) -> Program:
        """The compiled model. Raises PopulusError before `prepareDevice`."""
        if self._program is None:
            raise PopulusError("the session has no program yet; call prepareDevice first")
        return self._program

    def initAnchorArrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for the anchors, which `run` fills."""
        import numpy as np

        from populus.dialects.support.element_types import dtype_of, shape_of

        types = self.program.signature.outputs
        shapes = {a: of.shape(shape_of(types[a]), self._batches) for a, of in self._anchors.items()}
        return {a: np.zeros(shapes[a], dtype_of(types[a].element_type)) for a in self._anchors}

    def run(self, stepio: PyStepIO) -> None:
        """One step: reads the inputs, fills the outputs. Raises PopulusError for inputs that are not of as many batches."""
        import numpy as np

        inputs = {name: np.asarray(a) for name, a in stepio.inputs.items()}
        for name, a in inputs.items():
            if self._batches > 1 and (a.ndim == 0 or len(a) != self._batches):
                raise PopulusError(f"input '{name}' has shape {list(a.shape)}; {self._batches} batches are expected as its first dimension")
        sums: dict[str, NDArray[Any]] = {}
        for batch in range(self._batches):
            outputs = self.program.run({n: a if self._batches == 1 else a[batch] for n, a in inputs.items()})
            for name, array in stepio.outputs.items():
                of = self._anchors[name]
                found = outputs[name]
                if of.name == "Sum":
                    found = sums[name] = found + sums[name] if name in sums else found
                if of.fetches(batch, self._batches):
                    np.copyto(array if array.shape == found.shape else array[batch // of.n], found)
                    self.fetched_bytes += found.nbytes
