"""Errors that are Python's own kinds too, which programs of PopXL catch."""

from __future__ import annotations

from populus.dialects.support.diagnostics import PopulusError


class UndefinedValue(PopulusError):
    """A tensor has no such property."""


class NotAttached(PopulusError, RuntimeError, ValueError):
    """A session runs outside of its `with`."""


class WrongState(PopulusError, RuntimeError):
    """A call at a place where it has no meaning."""


class WrongValue(PopulusError, ValueError):
    """A value that does not fit."""


class WrongKey(PopulusError, KeyError):
    """A name that there is not."""

    __str__ = Exception.__str__  # KeyError quotes its text


class WrongType(PopulusError, TypeError):
    """A value of a kind that does not fit."""


class Missing(PopulusError, NotImplementedError):
    """A way that a front end does not go."""


class Unsupported(PopulusError, RuntimeError):
    """Data or a type that a function of the host does not take."""
