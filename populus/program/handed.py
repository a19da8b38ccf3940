"""The child's part of `compile(apart=True)`: a program is frozen, and its weights are written into the file of the parent."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.extensions import known
from populus.program.apart import Handed
from populus.program.building import files_of, frozen_program, is_worth_keeping, note_of, refuse_python
from populus.program.open_program import OpenProgram
from populus.program.program import Program
from populus.program.ready import absolute, line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.program.ready import Place

_DONTNEED = 4  # of madvise


def handed(program: Program, place: Place | None, begun: int, file: int) -> Handed | str:
    """Freezes a program and writes its weights into an open file; it no longer has them then. Returns the reason if it cannot be built.

    `place`, `begun`: as for `kept` of `building.py`.
    """
    from populus.runtime.engine.native.codegen.cpu import NATIVE
    from populus.runtime.engine.native.frozen.keep import flat_code

    if isinstance(program, OpenProgram):
        return f"dimension '{next(name for names in program.names.values() for name in names.values())}' is open"
    try:
        refuse_python(program.signature, padded=True)
        frozen = frozen_program(program, NATIVE, {}, padded=True, here=True)
    except (PopulusError, ImportError) as error:
        return f"{error}"
    if frozen.checks:
        return "tables of 64 MiB and more stay in the model's file"
    if (code := flat_code(frozen)) is None:
        return "code for this CPU needs a linker"
    opened, lines, settled = program.source.once().opened, list[str](), False
    if opened is not None and isinstance(program.source.model, str | os.PathLike):
        files = files_of(absolute(program.source.model), opened.proto)
        lines, settled = list(map(line, files)), place is not None and place.settled(files, begun)
    keeps = place is not None and settled and not known() and is_worth_keeping(program, place)
    note, identity = note_of(program.signature), os.urandom(16)
    try:
        frozen.form.write(f"/proc/self/fd/{file}", identity, _giving_back(frozen.form.constants))
    except OSError as error:
        return f"its weights cannot be written: {error.strerror or error}"
    return Handed(code.to_bytes(), identity.hex(), note, lines, keeps)


def _giving_back(constants: Sequence[NDArray[Any]]) -> Callable[[NDArray[Any]], None]:
    """Gives a function that returns the pages of a constant to the system: the file has them, and this process ends.

    Pages that another constant lies on stay.
    """
    page = mmap.PAGESIZE
    ends = sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array in constants if array.nbytes)
    shared = {a for a, b in pairwise(ends) if b[0] < a[1]} | {b for a, b in pairwise(ends) if b[0] < a[1]}
    advise = ctypes.CDLL(None).madvise

    def give_back(array: NDArray[Any]) -> None:
        begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
        first, last = -(-begin // page) * page, end // page * page
        if first < last and (begin, end) not in shared:
            advise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _DONTNEED)

    return give_back
