"""Sources of codelets: a function of a file, and the file of its own by which a tile program carries a codelet.

Such a file is Python that anyone may load, and is read here as a syntax tree: nothing of it is run.

    from math import sqrt
    from populus.custom import Vector, codelet

    @codelet(axes={'x': 'row n', 'y': 'row'})
    def norm(x: Vector, y: Vector) -> None:
        ...
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias

from populus.dialects.poplar.tile_functions import KNOWN
from populus.dialects.support.diagnostics import PopulusError

CUSTOM = "populus.custom"  # where a file finds the types of vectors and our functions
TYPES = ("BoolVector", "IntVector", "Vector")
OPTIONS: Mapping[str, type] = {"axes": dict, "whole": str, "steps": int}
MOST_CHARACTERS = 1 << 20  # of a file

Options: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, eq=False)
class Source:
    """A function before it is read: its file, its first line there, and the values that names outside of it have.

    `function`: the Python function, if there is one; otherwise the source is `written`.
    """

    name: str
    file: str
    first: int
    names: Mapping[str, Any]
    function: Callable[..., Any] | None = None
    written: str = ""

    @staticmethod
    def of(function: Callable[..., Any]) -> Source:
        """Makes the source of a Python function."""
        assert isinstance(function, FunctionType), function
        code = function.__code__
        return Source(function.__name__, code.co_filename, code.co_firstlineno, function.__globals__, function)

    def text(self) -> str:
        """Returns the function's text. Raises OSError if its file is not there."""
        return self.written if self.function is None else textwrap.dedent(inspect.getsource(self.function))

    @property
    def doc(self) -> str:
        """The docstring."""
        if self.function is not None:
            return inspect.cleandoc(self.function.__doc__ or "")
        tree = ast.parse(self.written).body[0]
        assert isinstance(tree, ast.FunctionDef), self.name
        return ast.get_docstring(tree) or ""


def file_of(texts: Sequence[str], numbers: Mapping[str, float], modules: Sequence[str], library: Sequence[str], options: Options) -> str:
    """Writes the file of a codelet: `texts` of its helpers and, last, its own; the `numbers` and functions that they name.

    `modules`: `math`, if a function is called by its full name. `library`: our functions. `options`: those of `@codelet` that are given.
    """
    functions = [_undecorated(text) for text in texts]
    defined = {tree.name for _, tree in functions} | set(numbers)
    words = {n.id for _, tree in functions for n in ast.walk(tree) if isinstance(n, ast.Name)} - defined
    of_math = sorted(w for w in words if w in KNOWN and hasattr(math, w) and w != "pow")
    ours = sorted((*library, *(t for t in TYPES if t in words), "codelet"))
    lines = [f"import {m}" for m in modules]
    lines += [f"from math import {', '.join(of_math)}"] if of_math else []
    lines += [f"from {CUSTOM} import {', '.join(ours)}"]
    lines += ["", *(f"{name} = {_literal(number)}" for name, number in sorted(numbers.items()))] if numbers else []
    for i, (text, _) in enumerate(functions):
        lines.append("")
        if i == len(functions) - 1:
            lines.append(f"@codelet({', '.join(f'{n}={v!r}' for n, v in options.items())})" if options else "@codelet")
        lines += text
    return "\n".join(line.rstrip() for line in lines)


def _undecorated(text: str) -> tuple[list[str], ast.FunctionDef]:
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef), text
    return text.splitlines()[tree.lineno - 1 : tree.end_lineno], tree


def _literal(number: float) -> str:
    if number != number:
        return "1e999 - 1e999"
    return re.sub(r"\binf\b", "1e999", repr(number))


def read_file(text: str, file: str, library: Sequence[Callable[..., Any]]) -> tuple[Source, Options]:
    """Reads the file of a codelet: the source of its last function, and the options of its `@codelet`.

    Raises PopulusError, with the line, for anything that `file_of` does not write.
    """
    if len(text) > MOST_CHARACTERS:
        raise PopulusError(f"{file}: {len(text)} characters; a codelet has at most {MOST_CHARACTERS}")
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PopulusError(f"{file}:{getattr(error, 'lineno', None) or 1}: not Python: {error}") from None
    lines, ours = text.splitlines(), {f.__name__: f for f in library}
    names: dict[str, Any] = {}
    options: Options | None = None
    source: Source | None = None
    for node in body:
        match node:
            case ast.Import([ast.alias("math", None)]):
                names["math"] = math
            case ast.ImportFrom("math", _, 0):
                pass  # functions are known by their names
            case ast.ImportFrom(module, imported, 0) if module == CUSTOM:
                names |= {a.name: ours[a.name] for a in imported if a.name in ours}
            case ast.Assign([ast.Name(name)], value) if (number := _number(value)) is not None:
                names[name] = number
            case ast.FunctionDef(name):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                source = Source(name, file, first, names, written="\n".join(lines[first - 1 : node.end_lineno]))
                names[name] = source
                options = _options(node)
            case _:
                raise PopulusError(f"{file}:{node.lineno}: `{ast.unparse(node).splitlines()[0]}` is not of a codelet's file")
    if source is None or options is None:
        raise PopulusError(f"{file}: the file of a codelet ends with a function under @codelet")
    return source, options


def _number(value: ast.expr) -> float | None:
    """Returns a literal number or boolean, and NaN for the difference of infinities; None for anything else."""
    match value:
        case ast.BinOp(ast.Constant(float()), ast.Sub(), ast.Constant(float())):
            return math.nan
        case ast.Constant(bool() | int() | float() as number):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
            return -number
        case _:
            return None


def _options(node: ast.FunctionDef) -> Options | None:
    """Returns the options of a function's `@codelet`; None if it has another decorator, or none."""
    match node.decorator_list:
        case [ast.Name("codelet")]:
            return {}
        case [ast.Call(ast.Name("codelet"), [], keywords)]:
            try:
                found = {k.arg or "": ast.literal_eval(k.value) for k in keywords}
            except ValueError:
                return None
            alright = all(isinstance(v, OPTIONS.get(n, ())) for n, v in found.items())
            alright = alright and all(isinstance(t, str) for pair in found.get("axes", {}).items() for t in pair)
            return found if alright else None
        case _:
            return None
