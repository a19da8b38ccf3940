"""`InferenceSession.fromIr`: PopART's session on an Ir that PopXL built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.dataflow import PyStepIO
from populus.popart.devices import DeviceInfo
from populus.popxl.session import Session

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.popxl.internals.options import IrView


class IrSession:
    """An Ir on a device. Arrays go by the names of streams, `stream.tensor_id`; variables keep their values from step to step."""

    def __init__(self, ir: IrView, deviceInfo: DeviceInfo):
        self._ir, self._device = ir.ir, deviceInfo
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """PopXL's session of the Ir. Raises PopulusError before `prepareDevice`."""
        if self._session is None:
            raise PopulusError("the session has no program yet; call prepareDevice first")
        return self._session

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compiles the Ir. Raises PopulusError for what cannot be compiled."""
        self._session = Session(self._ir, self._device)

    def initAnchorArrays(self) -> dict[str, NDArray[Any]]:
        """Gives arrays for the streams to the host, which `run` fills."""
        return {stream.tensor_id: array for stream, array in self.session.create_host_outputs().items()}

    def weightsFromHost(self) -> None:
        """Makes the device's variables the host's copies."""
        with self.session:
            self.session.weights_from_host()

    def weightsToHost(self) -> None:
        """Makes the host's copies of variables those of the device."""
        with self.session:
            self.session.weights_to_host()

    def run(self, stepio: PyStepIO) -> None:
        """Runs one step: reads the inputs, fills the outputs. Raises PopulusError for the name of no stream."""
        streams = {stream.tensor_id: stream for stream in self.session.expected_inputs()}
        if strange := next((name for name in stepio.inputs if name not in streams), None):
            raise PopulusError(f"'{strange}' is no stream from the host{did_you_mean(strange, streams)}")
        with self.session:
            found = self.session.run({streams[name]: array for name, array in stepio.inputs.items()})
        for stream, array in found.items():
            if stream.tensor_id in stepio.outputs:
                stepio.outputs[stream.tensor_id][...] = array
