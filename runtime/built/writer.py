"""Writer of the file of a built program, as `form.py` describes it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from populus.runtime.built.form import ALIGNMENT, FEATURES, HEAD, MACHINES, MAGIC, PAGE, PIECE, SUMS, VERSION, Base, checksum
from populus.runtime.built.types import TYPES

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"


@dataclass(frozen=True)
class Tensor:
    """An input, output or state. `kept`: its type in memory. `place`: of a state, its offset in a session's memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kept: str = ""
    place: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the elements, as a caller has them."""
        return int(np.prod(self.shape, dtype=np.int64)) * item_bytes(self.dtype)


def item_bytes(dtype: str) -> int:
    """Counts the bytes of an element of a type, given by name."""
    size = {"bfloat16": 2, "bool": 1}.get(dtype)
    if size is None:
        size = 1 if dtype.startswith(("float8", "float4", "int2", "int4", "uint2", "uint4")) else np.dtype(dtype).itemsize
    return size


@dataclass
class Form:
    """A built program, before it is written.

    `words`, `places`: (number of a word, base) of those that are places. `memory`: bytes of a session. `tensors`: inputs, outputs
    and states. `texts`: the error of each step that may refuse. `constants`: in order, each at the offset that `place_constants`
    gives it. `features`: those that the code uses. `loading`: the step from which on loading packs the last `raw` constants into the first
    `packed` bytes of the session's memory; 0: nothing is packed.
    """

    architecture: str
    features: frozenset[str]
    steps: int
    words: NDArray[np.int64]
    places: Sequence[tuple[int, Base]]
    memory: int
    tensors: tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]
    texts: Mapping[int, str]
    constants: Sequence[Array]
    kernels: int
    shared: int
    loading: int = 0
    raw: int = 0
    packed: int = 0
    offsets: list[int] = field(default_factory=list[int])
    front: bytes = b""

    def close(self, constant_words: Mapping[int, int]) -> None:
        """Lays the file out. `constant_words`: number of a word -> the constant that it is in; the word has the offset in it."""
        front, at = self._front()
        begin = -(-(HEAD + at) // PAGE) * PAGE
        for constant in self.constants:
            self.offsets.append(begin)
            begin += -(-constant.nbytes // ALIGNMENT) * ALIGNMENT
        for word, constant in constant_words.items():
            self.words[word] += self.offsets[constant]
        front[0] = self.words.tobytes()
        self._size, self._at_data = begin, -(-(HEAD + at) // PAGE) * PAGE
        content = b"".join(part + bytes(-len(part) % 8) for part in front)
        self.front = content + bytes(self._at_data - HEAD - len(content))

    @property
    def at_raw(self) -> int:
        """Offset of the constants that loading packs, which are the file's last; its size if there are none."""
        return self.offsets[len(self.offsets) - self.raw] if self.raw else self._size

    def _front(self) -> tuple[list[bytes], int]:
        """Builds what is between header and constants. Returns its parts, and their bytes."""
        self.at: list[int] = []
        relocs = np.array([word << 2 | base for word, base in self.places], np.uint32).tobytes()
        every = [t for role in self.tensors for t in role]
        names = bytearray()
        at_names = HEAD
        for part in (self.words.nbytes, len(relocs), 56 * len(every), 16 * len(self.texts)):
            self.at.append(at_names)
            at_names += -(-part // 8) * 8

        def keep(content: bytes) -> int:
            names.extend(bytes(-len(names) % 8))
            names.extend(content)
            return at_names + len(names) - len(content)

        records = [
            [keep(t.name.encode() + b"\0"), keep(np.array(t.shape, np.int64).tobytes()), TYPES[t.dtype], len(t.shape), t.bytes, t.place,
             TYPES[t.kept or t.dtype]]
            for t in every
        ]  # fmt: skip
        texts = [[step, keep(text.encode()[:300] + b"\0")] for step, text in sorted(self.texts.items())]
        parts = [self.words.tobytes(), relocs, np.array(records, np.int64).tobytes(), np.array(texts, np.int64).tobytes(), bytes(names)]
        return parts, at_names - HEAD + len(names)

    def identity(self, more: Iterable[bytes] = ()) -> bytes:
        """Hashes all that the file has, and `more`: 16 bytes."""
        digest = hashlib.sha256(self.front)
        for constant in self.constants:
            digest.update(np.ascontiguousarray(constant).view(np.uint8).data)
        for part in more:
            digest.update(part)
        return digest.digest()[:16]

    def write(self, path: str | Path, identity: bytes, written: Callable[[Array], None] | None = None) -> None:
        """Writes the file. `written`: called with each constant that nothing reads from here on."""
        known = FEATURES[self.architecture]
        mask = sum(1 << known.index(name) for name in self.features if name in known)
        counts = [len(role) for role in self.tensors]
        head = [
            MAGIC, VERSION, *np.frombuffer(identity, np.uint64).tolist(), MACHINES[self.architecture], mask, self._size,
            0, 0, self.steps, len(self.words), len(self.places), self.memory, *counts, *self.at, len(self.texts),
            self._at_data, self.shared, self.kernels, self.loading, self.at_raw, self.packed,
        ]  # fmt: skip
        with open(path, "wb") as file:
            file.write(np.array(head, np.uint64).tobytes().ljust(HEAD, b"\0") + self.front)
            for offset, constant in zip(self.offsets, self.constants):
                file.seek(offset)
                file.write(np.ascontiguousarray(constant).view(np.uint8).data)
                if written is not None:
                    written(constant)
            file.truncate(self._size)
        with open(path, "r+b") as file:  # in pieces: a map of the file would take as much memory as its weights
            found = checksum(np.fromfile(file, np.uint64, 8 * PIECE) for _ in range(0, self._size, 64 * PIECE))
            file.seek(8 * SUMS)
            file.write(found)


def digest(path: Path, at_raw: int) -> bytes:
    """Hashes a written file in pieces of 1 MiB, as a browser's loader does: 16 bytes. `at_raw`: where a piece begins too."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        front = file.read(at_raw)
        for part in (front, file.read()):
            for at in range(0, len(part), 1 << 20):
                found.update(hashlib.sha256(memoryview(part)[at : at + (1 << 20)]).digest())
    return found.digest()[:16]
