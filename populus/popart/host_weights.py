"""The host's copies of a session's weights, apart from those of the device: `weightsToHost`, `weightsFromHost`, `readWeights`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.output_files import replacing
from populus.lowering.onnx.importer.read import read_model

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    from populus.popart.dataflow import PyWeightsIO
    from populus.program.source import Arrays


def arrays_of(model: ModelProto) -> Arrays:
    """Gives the weights of a model."""
    from onnx import numpy_helper

    return {t.name: numpy_helper.to_array(t).copy() for t in model.graph.initializer}


class HostWeights:
    """Holds weights and states between steps, on the device and on the host. `model`: with the weights at the start."""

    def __init__(self, model: ModelProto):
        self._model = model
        self._weights: Arrays = {}  # that gradients move, or that change between runs
        self._variables: Arrays = {}  # that a batch assigns
        self._state: Arrays = {}  # of the optimizer
        self._host: Arrays = arrays_of(model)
        self._in_sync = True

    def _held(self) -> Iterable[Arrays]:
        return (self._weights, self._variables, self._state)

    def weightsFromHost(self) -> None:
        """Takes the host's weights, and states of the optimizer, to the device."""
        for held in self._held():
            held.update({n: self._host[n].copy() for n in held if n in self._host})
        self._in_sync = True

    def weightsToHost(self) -> None:
        """Takes the device's weights, and states of the optimizer, to the host, where `readWeights` finds them."""
        for held in self._held():
            self._host.update({n: a.copy() for n, a in held.items()})
        self._in_sync = True

    copyDeviceWeightsToHost = weightsToHost

    def areHostWeightsInSync(self) -> bool:
        """Tells whether no step has run since the weights were taken to or from the host."""
        return self._in_sync

    def markHostWeightsInSync(self) -> None:
        """States that the host's weights are those of the device."""
        self._in_sync = True

    def markHostWeightsOutOfSync(self) -> None:
        """States that the host's weights are not those of the device."""
        self._in_sync = False

    def _weight(self, name: str) -> NDArray[Any]:
        if name not in self._host:
            raise PopulusError(f"there is no weight '{name}'{did_you_mean(name, self._host)}")
        return self._host[name]

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Fills arrays with the host's weights, by their names. Raises PopulusError for one that there is not."""
        import numpy as np

        for name, array in weightsIo.weights.items():
            np.copyto(array, self._weight(name))

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Takes the host's weights from arrays, by their names; `weightsFromHost` takes them to the device.

        Raises PopulusError for one that there is not, or of another shape, and for one that is a constant of the program.
        """
        for name, array in weightsIo.weights.items():
            self._write(name, array)

    def _write(self, name: str, array: NDArray[Any]) -> None:
        old = self._weight(name)
        if array.shape != old.shape:
            raise PopulusError(f"'{name}' is {list(old.shape)}; {list(array.shape)} is given")
        if not any(name in held for held in self._held()):
            raise PopulusError(f"'{name}' is a constant of the program; set constantWeights = False in the options to change it")
        self._host[name] = array.astype(old.dtype)

    def resetHostWeights(self, modelProtoOrFilename: bytes | str, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False) -> None:
        """Takes the host's weights from a model; `weightsFromHost` takes them to the device.

        Raises PopulusError for a weight that the session has not, unless it is to be ignored, and for constants of the program.
        """
        from onnx import ModelProto

        given = modelProtoOrFilename
        model = ModelProto.FromString(given) if isinstance(given, bytes) else read_model(given)
        for name, array in arrays_of(model).items():
            if name in self._host or not ignoreWeightsInModelWithoutCorrespondingHostWeight:
                self._write(name, array)

    def modelToHost(self, filename: str) -> None:
        """Writes the model with the weights that the device has now, and takes them to the host."""
        self.weightsToHost()
        with replacing(filename) as partial:
            partial.write_bytes(self._with_weights().SerializeToString())

    def _with_weights(self) -> ModelProto:
        from onnx import ModelProto, numpy_helper

        model = ModelProto()
        model.CopyFrom(self._model)
        for tensor in model.graph.initializer:
            tensor.CopyFrom(numpy_helper.from_array(self._host[tensor.name], tensor.name))
        return model
