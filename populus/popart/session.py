"""`InferenceSession` and what it is given: devices, anchors, arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from populus.api import Program, compile
from populus.dialects.diagnostics import PopulusError, did_you_mean
from populus.lowering.import_onnx.read import read_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class AnchorReturnType:
    """Which steps of a batch a tensor is fetched from. A session runs one step at a time, so `All` and `Final` are one."""

    name: str = "All"


class DataFlow:
    """How many batches a step has (1), and the tensors that are fetched."""

    def __init__(self, batchesPerStep: int, anchors: Mapping[str, AnchorReturnType] | Iterable[str]):
        if batchesPerStep != 1:
            raise PopulusError(f"batchesPerStep = {batchesPerStep}; a step has 1 batch here, so call run for each")
        self.anchors = list(anchors)


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
        self._anchors, self._device = dataFlow.anchors, deviceInfo
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

        from populus.dialects.element_types import dtype_of, shape_of

        types = self.program.signature.outputs
        return {a: np.zeros(shape_of(types[a]), dtype_of(types[a].element_type)) for a in self._anchors}

    def run(self, stepio: PyStepIO) -> None:
        """One step: reads the inputs, fills the outputs."""
        import numpy as np

        outputs = self.program.run({name: np.asarray(a) for name, a in stepio.inputs.items()})
        for name, array in stepio.outputs.items():
            np.copyto(array, outputs[name])
