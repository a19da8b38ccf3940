"""The part of PopXL's inside that programs reach for: options of compilation, which change nothing that is computed."""

from __future__ import annotations

from typing import Any

OPTIONS: dict[str, Any] = {
    "aliasZeroCopy": True,
    "cachePath": "session_cache",
    "constantWeights": False,
    "dotChecks": set[str](),
    "enableEngineCaching": False,
    "enableExplicitMainLoops": True,
    "enableOutlining": False,
    "engineOptions": dict[str, str](),
    "explicitRecomputation": True,
    "logDir": "",
    "outlineThreshold": 1.0,
    "throwIfLog2ScaleTensorNotInRange": True,
    "useHostCopyOps": True,
    "virtualGraphMode": None,
}


class SessionOptions:
    """The options of `OPTIONS`. All but `throwIfLog2ScaleTensorNotInRange` are about memory, caches, logs or the form of graphs.

    These are kept and not followed.
    Raises AttributeError for another.
    """

    def __init__(self) -> None:
        self.__dict__.update({name: value.copy() if hasattr(value, "copy") else value for name, value in OPTIONS.items()})

    @property
    def checks_scales(self) -> bool:
        """Tells whether a run fails with a scale of an 8-bit float that is no number of 6 bits."""
        return bool(self.__dict__["throwIfLog2ScaleTensorNotInRange"])

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in OPTIONS:
            raise AttributeError(f"there is no session option '{name}'; there are {', '.join(OPTIONS)}")
        self.__dict__[name] = value


class Internals:
    """The part of `popart._internal.ir.Ir` that programs of PopXL reach for."""

    def __init__(self) -> None:
        self._options = SessionOptions()

    def getSessionOptions(self) -> SessionOptions:
        """Gives the options, to be set."""
        return self._options

    def logIr(self) -> None:
        """Accepts the wish for a log of the graphs; `str(ir.module())` is one."""

    def updateVertices(self) -> None:
        """Accepts the wish to bring marks of ops up to date; there are none to."""
