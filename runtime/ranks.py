"""Ranks: processes that `mpiexec` starts, each with some of the replicas. Their mail goes over MPI.

`world()` gives this process's place among them. A guardian sees when a rank is lost, and a rank whose guardian is gone ends.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from json import dumps
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any

import numpy as np

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime import guardian
from populus.runtime.gcl import Array
from populus.runtime.turns import Expected, Wire

LAUNCHERS = (  # variables in which launchers state the number of processes, and this one's
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI
    ("PMI_SIZE", "PMI_RANK"),  # MPICH, Intel MPI, Microsoft MPI
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),  # MVAPICH
)
EAGER = 200  # polls without sleep, some tens of microseconds
LONGEST_SLEEP = 5e-4
ENDED = 1.0  # seconds in which mail of a rank that has ended in order still arrives
LOST = 10.0  # seconds after an error of MPI, before which the guardian ends this rank if another one is lost


def launched() -> tuple[int, int]:
    """Gives the number of this process among those of one `mpiexec`, and how many there are, without loading MPI."""
    for size, rank in LAUNCHERS:
        if os.environ.get(size, "").isdecimal() and os.environ.get(rank, "").isdecimal():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


@dataclass(frozen=True)
class World:
    """This process among the ranks."""

    rank: int
    size: int
    mpi: Any = None
    comm: Any = None
    way: Any = None  # the connection to the guardian, with its word

    def same(self, text: str) -> list[int]:
        """Gives the ranks whose text is another one than rank 0's, the same on each."""
        if self.size == 1:
            return []
        digests = self.shared(_digest(text)).reshape(self.size, -1)
        return [rank for rank in range(self.size) if bytes(digests[rank]) != bytes(digests[0])]

    def shared(self, array: Array) -> Array:
        """Gives the arrays of all ranks, which are of one shape and type: [size, *shape]."""
        found = np.empty((self.size, *array.shape), array.dtype)
        mine = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        _settled(self.comm.Iallgather([mine, self.mpi.BYTE], [found.reshape(-1).view(np.uint8), self.mpi.BYTE]))
        return found

    def told(self, text: str) -> str:
        """Gives the text that rank 0 gives, on each rank."""
        content = np.frombuffer(text.encode(), np.uint8)
        size = np.array([len(content)], np.int64)
        _settled(self.comm.Ibcast([size, self.mpi.INT64_T], 0))
        found = content.copy() if self.rank == 0 else np.empty(int(size[0]), np.uint8)
        _settled(self.comm.Ibcast([found, self.mpi.BYTE], 0))
        return bytes(found).decode()


def _settled(request: Any) -> None:
    """Waits for a request. MPI's own waiting takes the processor from ranks that still compute."""
    polls = 0
    while not request.Test():
        polls = _pause(polls)


def _pause(polls: int) -> int:
    """Lets others have this processor, for longer the more often there was nothing."""
    time.sleep(0 if polls < EAGER else min(LONGEST_SLEEP, 1e-6 * polls))
    return polls + 1


@cache
def world() -> World:
    """Joins the other ranks, once. Raises PopulusError if mpiexec started several and mpi4py is not installed."""
    size = launched()[1]
    if size == 1:
        return World(0, 1)
    try:
        from mpi4py import MPI  # pyright: ignore[reportMissingImports, reportUnknownVariableType], optional
    except (ImportError, RuntimeError) as error:  # the second where there is no library of MPI
        raise PopulusError(
            f"mpiexec started {size} ranks, and mpi4py cannot be loaded ({' '.join(str(error).split())}); pip install mpi4py mpich"
        ) from None
    mpi: Any = MPI  # pyright: ignore[reportUnknownVariableType]
    comm = mpi.COMM_WORLD.Dup()
    if comm.size != size:
        raise PopulusError(f"mpiexec started {size} ranks, and the MPI of mpi4py sees {comm.size}; use the mpiexec of the same MPI")
    found = World(comm.rank, size, mpi, comm)
    found = replace(found, way=_guarded(found))
    atexit.register(leave, "")
    sys.excepthook = _uncaught
    return found


def _guarded(found: World) -> tuple[socket.socket, str]:
    """Connects to the guardian, which rank 0 starts."""
    address = ""
    if found.rank == 0:
        command = [sys.executable, "-I", "-S", str(Path(guardian.__file__)), str(found.size)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        address = f"{socket.gethostname()} {process.stdout.readline().decode()}"
    host, port, word = found.told(address).split()
    here = socket.gethostname() == host
    way = guardian.alive(socket.create_connection(("127.0.0.1" if here else host, int(port)), timeout=30))
    way.settimeout(None)
    way.sendall(_message(word, number=str(found.rank), place=f"process {os.getpid()} on {socket.gethostname()}"))
    Thread(target=_heed, args=(way,), name="guardian", daemon=True).start()
    return way, word


def _message(word: str, **fields: str) -> bytes:
    return (dumps({"word": word, **fields}) + "\n").encode()


_LEAVING = Event()  # this rank ends in order
_ENDED: set[int] = set()  # ranks that have ended in order


def _heed(way: socket.socket) -> None:
    """Reads the guardian's messages, which tell who has ended in order. Ends this process when it closes the connection: a rank is lost."""
    with suppress(OSError):
        while given := way.recv(4):
            _ENDED.add(int.from_bytes(given, "big"))
    if not _LEAVING.is_set():
        os._exit(1)


def joined() -> World | None:
    """Gives this process's place, if it has joined other ranks."""
    return world() if world.cache_info().currsize and world().size > 1 else None


def leave(said: str) -> None:
    """Tells the guardian that this rank ends in order, or why it fails; a message that several ranks have is printed once."""
    if (found := joined()) is None:
        return
    way, word = found.way
    if not said:
        for wire in _WIRES.values():
            wire.flush()
        _LEAVING.set()
    try:
        way.sendall(_message(word, said=said))
        if said:
            time.sleep(guardian.GRACE + 5)  # the guardian closes the connection before
            os._exit(1)
    except OSError:
        os._exit(1)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Ends all ranks for an exception that nobody catches: MPI would wait for the others forever."""
    if not issubclass(kind, PopulusError):
        sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    leave(f"populus: {' '.join(str(error).split()) or kind.__name__}")


def failed(line: str) -> bool:
    """Ends this rank with a line, of which rank 0 or the guardian prints one. Gives False if there are no other ranks.

    Before the ranks have joined, each fails alone; then those but rank 0 are silent, as all run one command.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if joined() is not None:
        leave(line)
    return launched()[0] > 0


class MpiWire(Wire):
    """Mail between the replicas of different ranks: two messages each, the step and the array."""

    def __init__(self, found: World, mine: int):
        self._world, self._mine = found, mine
        self._sent: list[tuple[Any, Any]] = []  # requests, with the memory that they read
        self._heads: dict[tuple[int, int, int], tuple[Any, Array]] = {}
        self._bodies: dict[tuple[int, int, int], tuple[Any, Array]] = {}
        self.seconds = 0.0  # that this process has waited
        self.bytes = 0  # sent

    @staticmethod
    def of(mine: int) -> MpiWire:
        """Gives this process's wire for so many replicas on each rank."""
        if mine not in _WIRES:
            _WIRES[mine] = MpiWire(world(), mine)
        return _WIRES[mine]

    def flush(self) -> None:
        """Waits until all that was sent is under way, so that MPI may end."""
        for request, _ in self._sent:
            _settled(request)
        self._sent = []

    def _tag(self, source: int, target: int, tag: int) -> int:
        return tag * self._mine * self._mine + source % self._mine * self._mine + target % self._mine

    def send(self, source: int, target: int, label: str, array: Array, tag: int) -> None:
        with self._known():
            self._send(target // self._mine, self._tag(source, target, tag), label, array)

    def _send(self, rank: int, tag: int, label: str, array: Array) -> None:
        content = np.ascontiguousarray(array)
        for part in (_digest(label), content.reshape(-1).view(np.uint8)):
            self._sent.append((self._world.comm.Isend([part, self._world.mpi.BYTE], rank, tag), part))
        self.bytes += content.nbytes
        self._sent = [(request, part) for request, part in self._sent if not request.Test()]

    def receive(self, expected: Sequence[Expected]) -> tuple[Expected, Array]:
        begun, polls = time.perf_counter(), 0
        begun_waiting = begun
        with self._known():
            while True:
                for e in expected:
                    if (array := self._came(e)) is not None:
                        self.seconds += time.perf_counter() - begun
                        return e, array
                polls = _pause(polls)
                if (gone := next((e for e in expected if e.source // self._mine in _ENDED), None)) is None:
                    begun_waiting = time.perf_counter()
                elif time.perf_counter() - begun_waiting > ENDED:
                    raise PopulusError(f"rank {gone.source // self._mine} has ended, and replica {gone.target} waits for it: {gone.label}")

    @contextmanager
    def _known(self) -> Generator[None, None, None]:
        """Leaves MPI's errors about a lost rank to the guardian, which knows which one it was."""
        try:
            yield
        except self._world.mpi.Exception as error:
            time.sleep(LOST)
            raise PopulusError(f"MPI: {' '.join(str(error).split())}") from None

    def _came(self, e: Expected) -> Array | None:
        """Gives an array once it is there."""
        comm, byte, pair = self._world.comm, self._world.mpi.BYTE, e.key
        rank, tag = e.source // self._mine, self._tag(*e.key)
        if pair not in self._bodies:
            if pair not in self._heads:
                head = np.empty(16, np.uint8)
                self._heads[pair] = comm.Irecv([head, byte], rank, tag), head
            request, head = self._heads[pair]
            if not request.Test():
                return None
            if bytes(head) != bytes(_digest(e.label)):
                raise PopulusError(f"replicas of one group are at different steps: replica {e.source} does not come to {e.label}")
            body = np.empty(e.like.shape, e.like.dtype)
            self._bodies[pair] = comm.Irecv([body.reshape(-1).view(np.uint8), byte], rank, tag), body
        request, body = self._bodies[pair]
        if not request.Test():
            return None
        del self._heads[pair], self._bodies[pair]
        return body


_WIRES: dict[int, MpiWire] = {}


def _digest(label: str) -> Array:
    return np.frombuffer(blake2b(label.encode(), digest_size=16).digest(), np.uint8)


def digest_of(arrays: Mapping[str, Array]) -> str:
    """Gives a digest of arrays by name, with their types and shapes."""
    found = blake2b(digest_size=16)
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
