"""Functions with several lists of parameters, as bindings of C++ have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any


def bound(name: str, overloads: Sequence[Sequence[str]], args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Gives arguments by name, of the first list that takes them.

    Raises TypeError if none does.
    """
    for names in overloads:
        given = dict(zip(names, args))
        if len(args) <= len(names) and all(n in names and n not in given for n in named):
            return {**given, **named}
    lists = " or ".join(f"({', '.join(names)})" for names in overloads)
    raise TypeError(f"{name} takes {lists}; {len(args)} values and {', '.join(named) or 'no names'} are given")


def overloaded(*texts: str) -> Callable[[Callable[..., Any]], Any]:
    """Makes a method of several lists of parameters, each a text of names.

    The function is called with the arguments by name, as one dictionary after `self`. `overloads` of the method has the lists.
    """
    overloads = [text.split() for text in texts]

    def made(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def method(self: Any, *args: Any, **named: Any) -> Any:
            return function(self, bound(function.__name__, overloads, args, named))

        method.overloads = overloads  # pyright: ignore[reportAttributeAccessIssue]
        return method

    return made
