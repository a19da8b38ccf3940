"""Errors in the class of a user's op, with its file and line."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import IRDLOperation, VarResultDef
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from populus.dialects.support.diagnostics import PopulusError


def is_ours(kind: type[Operation]) -> bool:
    """Tells whether a class is of this project, so that its errors are not a user's."""
    return kind.__module__.partition(".")[0] == "populus"


def file_of(kind: type[Operation]) -> str:
    """Returns the file of a class; its module if the file is unknown."""
    try:
        return inspect.getsourcefile(kind) or kind.__module__
    except (OSError, TypeError):
        return kind.__module__


def at(op: Operation, method: str) -> str:
    """Formats the line of a method in a user's class for the end of a message, ` (own.py:30)`; empty for ours."""
    kind = type(op)
    if is_ours(kind):
        return ""
    code = getattr(inspect.unwrap(getattr(kind, method)), "__code__", None)
    file = file_of(kind)
    ours = code is not None and os.path.abspath(code.co_filename) == os.path.abspath(file)
    return f" ({file}:{code.co_firstlineno})" if code is not None and ours else f" ({file})"


def fault(op: Operation, method: str, error: BaseException) -> str:
    """Formats an error: ``its `lower` raises KeyError: 'w' (own.py:33)``. The line is the innermost of the user's file.

    The member is the outermost of the file: a `forward` of the user's is called by an `infer` of ours.
    """
    file = os.path.abspath(file_of(type(op)))  # a file that was named by a relative path keeps that in its frames
    found = [f for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == file]
    said = " ".join(str(error).split())
    member, place = (found[0].name, f" ({found[-1].filename}:{found[-1].lineno})") if found else (method, at(op, method))
    return f"its `{member}` raises {type(error).__name__}{f': {said}' if said else ''}{place}"


def blamed(error: BaseException, file: str) -> str:
    """Formats any error that a user's file took part in: ``its `aliases` raises KeyError: 'w' (own.py:33)``.

    The member is the outermost function of the file, the line its innermost. An error without the file is named by its type alone.
    """
    said = f"{type(error).__name__}{': ' if str(error) else ''}{' '.join(str(error).split())}"
    frames = [(f.f_code.co_name, line) for f, line in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == file]
    return f"its `{frames[0][0]}` raises {said} ({file}:{frames[-1][1]})" if frames else f"it ends with {said}"


LOADED = "populus_loaded_"
"""Begins the names of the modules that `--load` makes of files."""


def of_a_file(error: BaseException) -> str | None:
    """Formats an error that passed through a loaded file: `own.py:14: KeyError: 'w'`, with its innermost line there; None for others."""
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__) if _is_loaded(f.f_globals)]
    if not frames:
        return None
    said = " ".join(str(error).split())
    return f"{frames[-1][0]}:{frames[-1][1]}: {type(error).__name__}{f': {said}' if said else ''}"


def _is_loaded(names: dict[str, Any]) -> bool:
    return str(names.get("__name__")).startswith(LOADED)


@contextmanager
def asked(op: Operation, method: str, title: Callable[[], str]) -> Generator[None, None, None]:
    """Turns an error of a user's method into a PopulusError that begins with `title`, unless it is a diagnostic already."""
    try:
        yield
    except (DiagnosticException, VerifyException):
        raise
    except (Exception, SystemExit) as error:  # a user's file must not end our process
        if is_ours(type(op)):
            raise
        raise PopulusError(f"{title()}: {fault(op, method, error)}") from error


def values(op: Operation, method: str, found: object, title: Callable[[], str], none: bool = False) -> Sequence[Any]:
    """Checks the result of a method: a sequence of values (`none`: or None for some). Raises PopulusError if it is not."""
    if (strange := misfit(found, SSAValue, none)) is None:
        return cast("Sequence[Any]", found)
    wanted = "a list of values" + (", or None," if none else "")
    raise PopulusError(f"{title()}: its `{method}` gives {strange}; {wanted} is expected{at(op, method)}")


def arrays(op: Operation, found: object, types: Sequence[tuple[tuple[int, ...], Any]], title: Callable[[], str]) -> list[Any]:
    """Checks what `evaluate` gives: an array for each result, of the shape and element type in `types`. Raises PopulusError."""
    import numpy as np

    numpy = cast("Any", np)  # the type checker knows an array's attributes in part only
    said, given = f"{_said(found)}; a list of arrays is expected", list[Any]()
    if isinstance(found, Sequence):
        given = [numpy.asarray(a) if isinstance(a, numpy.generic) else a for a in cast("Sequence[Any]", found)]
        said = f"{len(given)} arrays for {len(types)} results" if len(given) != len(types) else ""
    for i, (a, (shape, dtype)) in enumerate(zip(given, types)):
        if not said and not isinstance(a, numpy.ndarray):
            said = f"{_said(a)} for result {i}; an array is expected"
        if not said and (a.shape != shape or a.dtype != dtype):
            said = f"{list(a.shape)} of {a.dtype} for result {i}; `infer` says {list(shape)} of {np.dtype(dtype)}"
    if said:
        raise PopulusError(f"{title()}: its `evaluate` gives {said}{at(op, 'evaluate')}")
    return given


def check_types(op: IRDLOperation, found: object) -> None:
    """Raises VerifyException unless a shape rule gives a tensor type for each result of a class."""
    if (strange := misfit(found, TensorType, none=False)) is not None:
        raise VerifyException(f"its `infer` gives {strange}; a list of tensor types is expected{at(op, 'infer')}")
    definitions, types = op.get_irdl_definition().results, cast("Sequence[object]", found)
    if not any(isinstance(d, VarResultDef) for _, d in definitions) and len(types) != len(definitions):
        names = ", ".join(name for name, _ in definitions)
        raise VerifyException(f"its `infer` gives {len(types)} types; the results are {names}{at(op, 'infer')}")


def operand_name(op: Operation, i: int) -> str:
    """Returns the name of operand i in the op's class, or its number if several share the name."""
    names = [n for n, _ in type(op).get_irdl_definition().operands] if isinstance(op, IRDLOperation) else []
    return f"'{names[i]}'" if len(names) == len(op.operands) else str(i)


def misfit(found: object, kind: type, none: bool) -> str | None:
    """Returns the fault of a list that should have items of one kind; None if it has none."""
    if not isinstance(found, Sequence):
        return _said(found)
    wrong = [v for v in cast("Sequence[object]", found) if not isinstance(v, kind) and not (none and v is None)]
    return f"a list with {_said(wrong[0])}" if wrong else None


def _said(found: object) -> str:
    return repr(found) if found is None or isinstance(found, int | float | str) else f"a {type(found).__name__}"
