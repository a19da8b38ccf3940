"""`Error`: a mistake in the use of a model; and members of `PoplarExecutor` that there are not."""

from __future__ import annotations

from typing import Any

from populus.dialects.support.diagnostics import PopulusError


class Error(PopulusError, RuntimeError):
    """A mistake in the use of a model. `message` is its text; there is no component or location of an SDK."""

    type = location = recovery_action = ""

    @property
    def message(self) -> str:
        """The text."""
        return str(self)


class Absent:
    """Members that are refused by name."""

    def _no_clock(self) -> tuple[float, float, float]:
        """Raises PopulusError: a machine that is not there has no latency."""
        raise Error("latencies are those of hardware, which is not there; cycleCount() estimates the cycles of a call")

    getLatency = getHostIpuLatency = getComputeLatency = getIpuHostLatency = getPerfCounters = _no_clock

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Raises PopulusError: an executable is not written."""
        raise Error(f"{filename}: an executable is not written; torch.save(model.state_dict()) keeps the weights")

    def compileAndExport(self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Raises PopulusError, as `save`."""
        self.save(filename, export_model)

    def loadExecutable(self, filename: str) -> None:
        """Raises PopulusError, as `save`."""
        raise Error(f"{filename}: an executable is not read; call the model, which compiles it")
