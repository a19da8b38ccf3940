"""Files of options: lines with calls of methods, which are read as data."""

from __future__ import annotations

import ast
from typing import Any

from populus.dialects.support.diagnostics import PopulusError
from populus.poptorch import enums, execution


class ConfigFileError(PopulusError):
    """A line of a file of options that cannot be read."""


def apply_line(options: object, text: str, place: str) -> None:
    """Calls the method of `Options` that a line names. Raises ConfigFileError for anything but `method(arguments)`."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ConfigFileError(f"{place}: {error.msg}: {text.strip()}") from None
    if not isinstance(call, ast.Call):
        raise ConfigFileError(f"{place}: {text.strip()}: a call is expected, such as deviceIterations(4)")
    target: Any = options
    for name in _path(call.func, place):
        if (name.startswith("_") and name != "_Popart") or not hasattr(target, name):
            raise ConfigFileError(f"{place}: Options has no '{name}'")
        target = getattr(target, name)
    target(*(_value(a, place) for a in call.args), **{str(k.arg): _value(k.value, place) for k in call.keywords})


def _path(node: ast.expr, place: str) -> list[str]:
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            return [*_path(node.value, place), node.attr]
        case _:
            raise ConfigFileError(f"{place}: {ast.unparse(node)}: a name is expected")


def _value(node: ast.expr, place: str) -> Any:
    """Gives a constant, a member of an enumeration of poptorch, or an execution strategy without arguments of its own."""
    if isinstance(node, ast.Attribute | ast.Name | ast.Call):
        call = node if isinstance(node, ast.Call) else None
        path = _path(node if call is None else call.func, place)
        if path[0] == "poptorch" and len(path) > 1:
            found: Any = getattr(enums, path[1], None) or (path[1] in execution.__all__ and getattr(execution, path[1])) or None
            for name in path[2:]:
                found = getattr(found, name, None)
            if found is not None:
                return found if call is None else found(*(_value(a, place) for a in call.args))
        raise ConfigFileError(f"{place}: {ast.unparse(node)}: there is no such name in poptorch")
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ConfigFileError(f"{place}: {ast.unparse(node)}: a number, a string or a name of poptorch is expected") from None
