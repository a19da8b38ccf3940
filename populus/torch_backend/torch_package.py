"""PyTorch, which is optional: the fronts that need it say so in one line."""

from __future__ import annotations

from importlib.util import find_spec

from populus.dialects.support.diagnostics import PopulusError


class MissingPackage(PopulusError, ImportError):
    """A package that an optional part needs is not installed."""


def need_torch(what: str) -> None:
    """Raises PopulusError, which is an ImportError too, unless PyTorch and its exporter's package are installed."""
    missing = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if missing:
        raise MissingPackage(f"{what} needs the package {missing[0]}; pip install torch onnxscript")
