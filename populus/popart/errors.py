"""PopART's exceptions, by its names; each is a PopulusError."""

from __future__ import annotations

from populus.dialects.support.diagnostics import PopulusError


class poplar_runtime_error(PopulusError):
    """An error of a program that runs."""


class poplar_application_runtime_error(poplar_runtime_error):
    """An error that a program's own data bring about while it runs."""
