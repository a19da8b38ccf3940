"""`load_program`: a program that `populus build` made, from Python with NumPy alone."""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from populus.dialects.support.errors import ProgramError, checked
from populus.runtime.built.given import Inputs, array_of, by_name
from populus.runtime.built.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
Type = tuple[tuple[int, ...], "np.dtype[Any]"]

_NAMES = {number: name for name, number in TYPES.items()}
_INPUT, _OUTPUT, _STATE = range(3)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
    )


class _Array(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("rank", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p))


class Runner(ABC):
    """A program that runs on dense arrays: what callers give is checked here.

    `inputs`, `outputs`: (shape, dtype) by name, in order.
    """

    inputs: dict[str, Type]
    outputs: dict[str, Type]

    @abstractmethod
    def start(self, given: Sequence[Array], taken: Sequence[Array]) -> None:
        """Runs the program once on these inputs and outputs, in order."""

    @abstractmethod
    def started(self, given: Sequence[Array], taken: Sequence[Array]) -> Callable[[], None]:
        """Gives a function that runs the program on these arrays, which it keeps."""

    def rest(self) -> None:  # noqa: B027, a library keeps its memory
        """Gives memory that only runs need back to the system, until the next run."""

    def run(self, inputs: Inputs) -> dict[str, Array]:
        """Runs the program and gives the outputs by name, as new arrays.

        `inputs`: arrays by name, or the array of the only input. `program(inputs)` is the same.
        Raises ProgramError for an input that is missing, unknown, or of another shape or element type, and for a value that the
        model refuses.
        """
        named = cast("Mapping[str, Any]", inputs) if type(inputs) is dict else by_name(inputs, self.inputs)
        if named.keys() != self.inputs.keys():
            self._refuse(named)
        given: list[Array] = []
        for name, (shape, dtype) in self.inputs.items():  # as few steps as can be: a small program runs in microseconds
            array = named[name]
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
                array = _fitting(f"input '{name}'", array_of(name, array), (shape, dtype))
            given.append(array)
        taken = [np.empty(shape, dtype) for shape, dtype in self.outputs.values()]
        self.start(given, taken)
        return dict(zip(self.outputs, taken))

    def _refuse(self, inputs: Mapping[str, Any]) -> None:
        """Raises ProgramError for an input that is unknown or missing."""
        if unknown := [name for name in inputs if name not in self.inputs]:
            raise ProgramError(f"the program has no input '{unknown[0]}'; it has {_listed(self.inputs)}")
        if missing := [name for name in self.inputs if name not in inputs]:
            raise ProgramError(f"input '{missing[0]}' is missing ({_text(self.inputs[missing[0]])})")

    __call__ = run

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """Gives a function that runs the program on these arrays, and writes the results into those of `outputs`.

        Each call reads what the inputs hold then: a loop changes their elements and calls it. Raises ProgramError for an array that is
        missing, unknown, not dense or of another type, for an output that cannot be written, and for one that shares memory with another.
        """
        for what, known, arrays in (("input", self.inputs, inputs), ("output", self.outputs, outputs)):
            if list(wrong := known.keys() ^ arrays.keys()):
                raise ProgramError(f"{what} '{min(wrong)}' is missing or unknown; the program has {_listed(known)}")
            for name, type in known.items():
                if _fitting(f"{what} '{name}'", arrays[name], type) is not arrays[name]:
                    raise ProgramError(f"{what} '{name}' is not a dense array, so its memory cannot be used as it is")
        given, taken = [inputs[name] for name in self.inputs], [outputs[name] for name in self.outputs]
        for name, i in zip(self.outputs, range(len(taken))):
            if not taken[i].flags.writeable:
                raise ProgramError(f"output '{name}' is read-only")
            if any(np.may_share_memory(taken[i], other) for other in (*given, *taken[:i])):
                raise ProgramError(f"output '{name}' shares memory with another array of the run")
        return self.started(given, taken)


class BuiltProgram(Runner):
    """A loaded program: `run` computes.

    `inputs`, `outputs`, `states`: (shape, dtype) by name, in order. States begin as zeros and stay from run to run. Threads may
    share it; their runs take turns.
    """

    def __init__(self, library: str, threads: int):
        self._library = _opened(library)
        self._model, self._session = ctypes.c_void_p(), ctypes.c_void_p()
        self._lock = Lock()
        self._check(self._library.populus_load(None, ctypes.byref(self._model)))
        self._check(self._library.populus_open(self._model, threads, ctypes.byref(self._session)))
        self.inputs, self.outputs, self.states = (self._described(role) for role in (_INPUT, _OUTPUT, _STATE))
        # What the library is told of a run's arrays, but for their addresses.
        self._given, self._taken = (_descriptions(types.values()) for types in (self.inputs, self.outputs))

    def __del__(self) -> None:
        library = getattr(self, "_library", None)
        if library is not None:
            library.populus_close(self._session)
            library.populus_unload(self._model)

    def start(self, given: Sequence[Array], taken: Sequence[Array]) -> None:
        with self._lock:
            _place(self._given, given)
            _place(self._taken, taken)
            self._run(self._given, self._taken)

    def started(self, given: Sequence[Array], taken: Sequence[Array]) -> Callable[[], None]:
        places = _descriptions(self.inputs.values()), _descriptions(self.outputs.values())
        _place(places[0], given)
        _place(places[1], taken)

        def run(held: object = (given, taken)) -> None:
            with self._lock:
                self._run(*places)

        return run

    def _run(self, given: ctypes.Array[_Array], taken: ctypes.Array[_Array]) -> None:
        self._check(self._library.populus_run(self._session, given, len(given), taken, len(taken)), self._session)

    def state(self, name: str) -> Array:
        """Gives a copy of a state. Raises ProgramError for another name."""
        array = np.empty(*self._known(name))
        with self._lock:
            self._check(self._library.populus_get_state(self._session, self._number(name), _arrays([array])), self._session)
        return array

    def set_state(self, name: str, value: Any) -> None:
        """Replaces a state, for the next run. Raises ProgramError for another name, shape or element type."""
        array = _fitting(f"state '{name}'", value, self._known(name))
        with self._lock:
            self._check(self._library.populus_set_state(self._session, self._number(name), _arrays([array])), self._session)

    def _known(self, name: str) -> Type:
        if name not in self.states:
            raise ProgramError(f"there is no state '{name}'; there are {_listed(self.states)}")
        return self.states[name]

    def _number(self, name: str) -> int:
        return list(self.states).index(name)

    def _described(self, role: int) -> dict[str, Type]:
        found: dict[str, Type] = {}
        for i in range(self._library.populus_count(self._model, role)):
            tensor = self._library.populus_describe(self._model, role, i).contents
            found[tensor.name.decode()] = (tuple(tensor.shape[: tensor.rank]), type_of(tensor.type))
        return found

    def _check(self, status: int, session: ctypes.c_void_p | None = None) -> None:
        if status:
            raise ProgramError(self._library.populus_error(session).decode(errors="replace"))


def load_program(folder: str | os.PathLike[str], threads: int | None = None) -> BuiltProgram:
    """Loads the program that `populus build` wrote to a folder. It needs neither a compiler nor any package but NumPy.

    `threads`: by default POPULUS_THREADS, or the CPUs of this process. Raises ProgramError for a folder without a whole program, and
    for one that was built for another CPU.
    """
    checked(folder, (str, os.PathLike), "folder", "the path of a folder that populus build wrote")
    place = os.fspath(folder) or os.curdir
    count = threads_of(threads)
    try:
        found = [name for name in os.listdir(place) if name.startswith("lib") and name.endswith(".so")]
    except OSError:
        found = []
    if len(found) != 1:
        raise ProgramError(f"{place}: {'no' if not found else 'more than one'} program that populus build made (lib*.so) is here")
    return BuiltProgram(os.path.realpath(os.path.join(place, found[0])), count)


def threads_of(count: int | None) -> int:
    """Gives the number of threads that is asked for, by an argument or POPULUS_THREADS; 0: one for each CPU of this process.

    Raises ProgramError for a number below 1 or above 250.
    """
    named = os.environ.get("POPULUS_THREADS", "")
    if count is None and not named:
        return 0
    asked = named if count is None else str(count)
    if not asked.isdecimal() or not 1 <= int(asked) <= 250:
        raise ProgramError(f"threads = {asked}; a program runs on 1 to 250 threads")
    return int(asked)


_LOADED: dict[str, tuple[int, int]] = {}  # libraries of this process: device and inode, which no other file has meanwhile


def _opened(path: str) -> ctypes.CDLL:
    try:
        found = os.stat(path)
        # The system finds a library that is loaded by its path, and would give the old one.
        if _LOADED.setdefault(path, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
            raise ProgramError(f"{path}: was built again since this process loaded it; load it in a new process, or build elsewhere")
        library = ctypes.CDLL(path)
        library.populus_version.restype = ctypes.c_uint32
        version = library.populus_version()
    except (OSError, AttributeError) as error:
        raise ProgramError(f"{path}: is no library that populus build made for this machine ({error})") from None
    if version != 1:
        raise ProgramError(f"{path}: has version {version} of the interface, this package 1; build the model again")
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    arrays = ctypes.POINTER(_Array)
    library.populus_load.argtypes = [ctypes.c_char_p, ctypes.POINTER(pointer)]
    library.populus_open.argtypes = [pointer, ctypes.c_int, ctypes.POINTER(pointer)]
    library.populus_close.argtypes = library.populus_unload.argtypes = [pointer]
    library.populus_close.restype = library.populus_unload.restype = None
    library.populus_count.argtypes, library.populus_count.restype = [pointer, ctypes.c_int], size
    library.populus_describe.argtypes, library.populus_describe.restype = [pointer, ctypes.c_int, size], ctypes.POINTER(_Tensor)
    library.populus_run.argtypes = [pointer, arrays, size, arrays, size]
    library.populus_get_state.argtypes = library.populus_set_state.argtypes = [pointer, size, arrays]
    library.populus_error.argtypes, library.populus_error.restype = [pointer], ctypes.c_char_p
    return library


def _arrays(arrays: Sequence[Array]) -> ctypes.Array[_Array]:
    """Describes dense arrays for the library."""
    made = _descriptions([(array.shape, array.dtype) for array in arrays])
    _place(made, arrays)
    return made


def _descriptions(types: Collection[Type]) -> ctypes.Array[_Array]:
    """Describes dense arrays of these types, without their places."""
    made = (_Array * len(types))()
    for entry, (shape, dtype) in zip(made, types):
        entry.type, entry.rank, entry.shape = TYPES[dtype.name], len(shape), (ctypes.c_int64 * len(shape))(*shape)
    return made


def _place(described: ctypes.Array[_Array], arrays: Sequence[Array]) -> None:
    """Writes where the arrays lie. The caller keeps them."""
    for entry, array in zip(described, arrays):
        entry.data = array.__array_interface__["data"][0]


def _fitting(what: str, value: Any, type: Type) -> Array:
    shape, dtype = type
    array = np.asarray(value)
    if array.dtype != dtype or array.shape != shape:
        raise ProgramError(f"{what} is {_text((array.shape, array.dtype))}, expected {_text(type)}")
    return np.require(array, requirements="C")


def type_of(number: int) -> np.dtype[Any]:
    """Gives the element type of a number of `types.py`."""
    name = _NAMES[number]
    try:
        return np.dtype(name)
    except TypeError:  # a type that only this package has
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _text(type: Type) -> str:
    return f"{type[1]} {list(type[0])}"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"
