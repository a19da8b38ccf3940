"""The root of all errors of this package, and the check of an argument's type. They need no other package."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class ProgramError(Exception):
    """A mistake in the use of a model or program, in one line. `PopulusError` is one too."""

    def __str__(self) -> str:
        """Gives the message in one line that a terminal only shows, whatever the names in a model's file have."""
        return printable(" ".join(super().__str__().splitlines()))


class PopulusWarning(UserWarning):
    """A condition that a user should know about but that stops nothing, in one line."""


def printable(text: str) -> str:
    """Escapes characters that do more than show themselves: controls, marks of direction, surrogates, unassigned ones. Lines stay.

    A terminal obeys an escape sequence in a name. A stream may refuse a surrogate: a byte of a path that is not UTF-8 becomes `\\udce9`.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def checked(
    value: object, kinds: type[T] | tuple[type[T], ...], argument: str, expected: str, error: type[ProgramError] = ProgramError
) -> T:
    """Gives a value of one of these kinds. Raises `error`, naming the argument, for another one."""
    if not isinstance(value, kinds):
        raise error(f"`{argument}` is a {type(value).__qualname__}; expected {expected}")
    return value
