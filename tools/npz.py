"""Arrays of `.npz` files, measured by their headers before any memory is taken for them.

NumPy's own reader parses a header as Python text, and takes the memory that it states. This one takes what NumPy writes for plain
arrays and nothing else: a header of one form, and as many bytes as it says.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Any

from populus.dialects.support.budget import check_bytes, check_shape
from populus.dialects.support.diagnostics import PopulusError, no_file
from populus.dialects.support.errors import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"\x93NUMPY"
LARGEST_HEADER = 1 << 16  # bytes; NumPy's headers of plain arrays have 118, or some more for many dimensions
_HEADER = re.compile(
    r"\{'descr': '([<>|=][?biufcSUV]\d{1,9})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,19}, ?)*(?:\d{1,19})?),?\), \}\s*"
)


def read_npz(path: str) -> dict[str, NDArray[Any]]:
    """Reads the arrays of a file by name.

    Raises PopulusError for a file that is no archive, and for a member that is no plain array, has other than the bytes that its
    header states, or takes more memory than POPULUS_LIMITS allows.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            check_bytes(sum(member.file_size for member in members), f"{path}: its arrays")
            return {member.filename.removesuffix(".npy"): _member(archive, member) for member in members}
    except FileNotFoundError:
        raise PopulusError(no_file(path)) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise PopulusError(printable(f"{path}: not a file of plain arrays: {' '.join(str(error).split())}")) from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Reads one array. Raises ValueError if its header is not NumPy's, or does not fit the member's size."""
    import numpy as np

    with archive.open(member) as file:
        dtype, fortran, shape, begin = _header(file, member.filename)
        check_shape(shape, f"'{member.filename}'")
        bytes = math.prod(shape) * dtype.itemsize
        if bytes != member.file_size - begin:
            raise ValueError(f"'{member.filename}' is {dtype}{list(shape)}, {bytes} bytes; the file has {member.file_size - begin} for it")
        content = bytearray(file.read(bytes))
        if len(content) != bytes or file.read(1):
            raise ValueError(f"'{member.filename}' ends after {len(content)} of {bytes} bytes")
    array = np.frombuffer(content, dtype) if dtype.itemsize else np.zeros(math.prod(shape), dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes], name: str) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """Reads a header: element type, whether columns come first, shape, and its own length. Raises ValueError for another text."""
    import numpy as np

    begin = file.read(8)
    width = 2 if begin[6:7] == b"\x01" else 4
    length = int.from_bytes(file.read(width), "little")
    if begin[:6] != MAGIC or begin[6:7] not in (b"\x01", b"\x02", b"\x03") or length > LARGEST_HEADER:
        raise ValueError(f"'{name}' is not an array as NumPy writes it")
    text = file.read(length).decode("latin1")
    match = _HEADER.fullmatch(text)
    if match is None:
        objects = "; arrays of Python objects are never loaded" if "'|O'" in text else ""
        raise ValueError(f"'{name}' is not a plain array: its header is {text[:120].strip()!r}{objects}")
    shape = tuple(int(n) for n in match[3].replace(" ", "").split(",") if n)
    try:
        return np.dtype(match[1]), match[2] == "True", shape, 8 + width + length
    except TypeError as error:
        raise ValueError(f"'{name}' has no element type '{match[1]}'") from error
