"""Runs an Ir on a model of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from populus.api import compile
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.guard import Guard
from populus.popxl.ir import DeviceToHostStream, HostToDeviceStream, Ir

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

DEVICES = {"cpu": "host", "ipu_model": "gc200"}


class Session:
    """An Ir, compiled. `device`: `ipu_model`, a GC200, or `cpu`, a machine without limits; `tiles`: how many tiles of it.

    Raises PopulusError for another device, and for what cannot be compiled.
    """

    def __init__(self, ir: Ir, device: str = "cpu", *, tiles: int | None = None, engine: str = "auto"):
        if device not in DEVICES:
            raise PopulusError(f"no device '{device}'{did_you_mean(device, DEVICES)}")
        self.ir, self.device = ir, device
        self.program = compile(ir.module(), target=DEVICES[device], tiles=tiles, engine=engine)
        self._attached = 0  # by how many threads that are inside a `with`
        self._counting = Guard()

    @property
    def is_attached(self) -> bool:
        """Whether some `with` of the session is open, of any thread."""
        return self._attached > 0

    def __enter__(self) -> Self:
        with self._counting.lock:
            self._attached += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._counting.lock:
            self._attached -= 1

    def expected_inputs(self) -> list[HostToDeviceStream]:
        """The streams that a run wants arrays for."""
        return list(self.ir.main_graph.loads.values())

    def run(self, inputs: Mapping[HostToDeviceStream, ArrayLike] | None = None) -> dict[DeviceToHostStream, NDArray[Any]]:
        """The arrays of the streams to the host, for arrays (or Python numbers) of those from it. Several threads may run one session.

        Raises PopulusError outside of a `with` of the session, and for inputs that are missing, unknown or of another shape.
        """
        import numpy as np

        if not self.is_attached:
            raise PopulusError("the session is not attached to its device; run it inside `with session:`")
        arrays: dict[str, NDArray[Any]] = {}
        for stream, data in (inputs or {}).items():
            array = np.asarray(data)
            # PopXL converts what NumPy makes of Python's numbers; a narrower type than the stream's never loses anything.
            arrays[stream.name] = array.astype(stream.dtype) if np.can_cast(array.dtype, stream.dtype, "same_kind") else array
        outputs = self.program.run(arrays)
        return {stream: outputs[name] for name, stream in self.ir.main_graph.stores.items()}
