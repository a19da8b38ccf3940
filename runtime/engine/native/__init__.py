"""Engine `native`: families as machine code, which LLVM makes for the CPU at hand and a cache stores on disk."""

from __future__ import annotations

from populus.dialects.support.diagnostics import PopulusError


class NoMachineCodeError(PopulusError):
    """The compiler is missing, or does not support this CPU."""
