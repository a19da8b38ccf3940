"""Compiler of LLVM text to object code, and loader of object code as functions that are called by address."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias
from weakref import WeakValueDictionary, finalize

from populus.dialects.support.guard import Guard, once
from populus.dialects.support.package_hash import engine_hash
from populus.runtime.built.code import Flat, MappedCode
from populus.runtime.engine.native.codegen import object_cache
from populus.runtime.engine.native.codegen.cpu import WASM, Machine, binding, machine
from populus.runtime.engine.native.codegen.flat import flat
from populus.runtime.engine.native.codegen.masked import apart
from populus.runtime.engine.native.codegen.store import stored
from populus.runtime.engine.native.codegen.touched import Touches


@dataclass(frozen=True)
class Kernel:
    """Function to compile: `build(name, machine)` gives LLVM text that defines it under this name.

    `key` determines the text, together with the machine and this package's source. `touches`: what a launch with some arguments
    reads and writes; None if that is not stated. `vectors`: the text has the vectors and the order of its machine code, so LLVM's
    passes, which take half of its time, would gain nothing.
    """

    key: str
    build: Callable[[str, Machine], str]
    touches: Touches | None = None
    vectors: bool = False

    @property
    def name(self) -> str:
        """Symbol of the function, a hash of its key."""
        return f"populus_{hashlib.sha256(self.key.encode()).hexdigest()[:24]}"

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and other.key == self.key


def target_machine(host: Machine) -> Any:
    """Creates LLVM's target machine for a CPU. Its code may be placed anywhere, by a linker or by this process."""
    llvm = binding()
    if host.architecture != machine().architecture:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(host.triple)
    # By itself LLVM makes vectors of 32 bytes for CPUs whose clock once fell with wider ones.
    features = host.features + (",-prefer-256-bit" if host.vector_bytes == 64 else "")
    abi = {"abiname": "lp64d"} if host.architecture == "riscv64" else {}
    return target.create_target_machine(cpu=host.cpu, features=features, opt=2, reloc="pic", codemodel="small", **abi)


def optimised(text: str, host: Machine, vectors: bool = False) -> tuple[Any, Any]:
    """Runs LLVM's passes on the text, unless it has its `vectors`. Returns its module, and the target machine to emit it with."""
    llvm, target = binding(), target_machine(host)
    module = llvm.parse_assembly(text, llvm.create_context())  # one of its own, which its types and constants leave with
    module.triple, module.data_layout = host.triple, str(target.target_data)
    module.verify()
    if vectors:
        return module, target
    # No interleaving: then a loop over some dozens of elements still runs in vectors.
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization, options.loop_interleaving, options.slp_vectorization = True, False, False
    options.loop_unrolling = False  # an unrolled block of sums does not fit the registers
    with options, llvm.create_pass_builder(target, options) as builder, _freed(builder.getModulePassManager()) as passes:
        passes.run(module, builder)
    return module, target


@contextmanager
def _freed(passes: Any) -> Generator[Any, None, None]:
    """Frees a manager of passes at the end: in llvmlite 0.50 it inherits a `_dispose` that does nothing before the one that frees."""
    from llvmlite.binding.ffi import ObjectRef
    from llvmlite.binding.newpassmanagers import NewPassManager

    with passes:
        try:
            yield passes
        finally:
            if type(passes)._dispose is ObjectRef._dispose:  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
                NewPassManager._dispose(passes)  # pyright: ignore[reportPrivateUsage]


ROOM = 64 << 20  # bytes of address space that LLVM has surely enough with, for a kernel or for the code of some


def _require_room() -> None:
    """Raises MemoryError if the system refuses more memory: LLVM would end the process."""
    try:
        mmap.mmap(-1, ROOM).close()
    except OSError as error:
        raise MemoryError(f"for machine code: the system refuses {ROOM >> 20} MiB more") from error


def object_code(text: str, host: Machine, vectors: bool = False) -> bytes:
    """Compiles LLVM text to machine code, for this process or for a linker. `vectors`: as a kernel says of its text."""
    _require_room()
    module, target = optimised(text, host, vectors)
    return bytes(target.emit_object(module))


def kept_object(kernel: Kernel, plan: Machine, made: Callable[[], None], emitted: Machine | None = None) -> bytes:
    """Returns the object code of a kernel with the text for `plan`, from the cache or a store of a wheel; else calls `made` too.

    `emitted`: the CPU whose instructions it has, by default `plan`'s.
    """
    host = emitted or plan
    of = [host.triple, host.cpu, host.features, host.llvmlite]
    # The text's hash, with that of this file, which chooses LLVM's options, names the object. The package's hash finds it without
    # emitting the text, so no source can be forgotten. A wheel's store has this package's hash too.
    asked = _hashed(kernel.key, engine_hash(), plan.triple, plan.cpu, plan.features, *of)
    if (known := object_cache.get(asked)) is not None and (content := _object(kernel, known.decode())) is not None:
        return content
    if (content := stored(store_name(kernel, plan), plan, host)) is not None:
        return content
    text = kernel.build(kernel.name, plan)
    if host.architecture == WASM:
        text = apart(text)
    named = _hashed(text, compiler(), "vectors" if kernel.vectors else "", *of)
    content = _object(kernel, named)
    if content is None:
        made()
        content = object_code(text, host, kernel.vectors)
        object_cache.put(named, content)
    object_cache.put(asked, named.encode())
    return content


def store_name(kernel: Kernel, plan: Machine) -> str:
    """Hashes what the code of a kernel depends on, but for the features of the CPU."""
    return _hashed(kernel.key, engine_hash(), plan.architecture)


@lru_cache(1)
def compiler() -> str:
    """Hashes what compiles a text: this file."""
    with open(__file__, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _hashed(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _object(kernel: Kernel, name: str) -> bytes | None:
    """Returns an object of the cache that has the kernel's symbol: LLVM ends the process on what is no object."""
    content = object_cache.get(name)
    return content if content is not None and kernel.name.encode() in content else None


def file_object(kernel: Kernel, plan: Machine) -> bytes:
    """Returns the object code of a kernel for a linker."""
    with _LLVM.lock:
        return kept_object(kernel, plan, lambda: None)


WASM_CALLS = frozenset(("fmod", "fmodf"))  # functions of C's library that JavaScript has with equal bits


@lru_cache(1)
def _c_library() -> Any:
    return ctypes.CDLL("msvcrt" if os.name == "nt" else None)


def c_functions(names: Iterable[str], host: Machine) -> bool:
    """Makes functions of C's library known to compiled code. Returns False if one of them is not there."""
    if host.architecture == WASM:
        return set(names) <= WASM_CALLS
    for name in names:
        try:
            function = getattr(_c_library(), name)
        except (AttributeError, OSError):
            return False
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None, name
        _CALLED[name] = address
    return True


_CALLED: dict[str, int] = {}  # addresses of functions of C's library that compiled code may call


def empty_engine(host: Machine) -> Any:
    """Creates LLVM's loader of objects, which knows the functions of C's library that code may call."""
    llvm = binding()
    for name, address in _CALLED.items():
        llvm.add_symbol(name, address)
    # An engine owns its module and its target machine, and deletes them with itself.
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(host))


# One thread enters LLVM at a time. A fork waits for it: a lock that LLVM holds would stay locked in the child.
_LLVM = Guard()


def _enter() -> None:
    _LLVM.lock.acquire()


def _leave() -> None:
    _LLVM.lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_enter, after_in_parent=_leave, after_in_child=_leave)


class LoadedCode:
    """Machine code of some kernels that LLVM loaded. Its memory is freed when nothing refers to the object any more."""

    __slots__ = ("__weakref__", "addresses")

    def __init__(self, engine: Any, names: Iterable[str]):
        self.addresses = {name: int(engine.get_function_address(name)) for name in names}
        assert all(self.addresses.values()), self.addresses
        finalize(self, _dropped, engine).atexit = False


Code: TypeAlias = LoadedCode | MappedCode

_DROPPED: deque[Any] = deque()  # engines whose code nobody uses, which the next thread in LLVM frees


def _dropped(engine: Any) -> None:
    _DROPPED.append(engine)
    # Not inside of LLVM: the collector of garbage may call this at any place of this thread.
    if not _LLVM.mine and _LLVM.lock.acquire(blocking=False):
        try:
            _free()
        finally:
            _LLVM.lock.release()


def _free() -> None:
    while _DROPPED:
        _DROPPED.popleft().close()


RECENT = 16  # loads whose code stays without a program, so that a model which is compiled again finds it


def loaded_code(objects: Mapping[str, bytes], host: Machine) -> Code:
    """Loads objects by the name of their kernel: without LLVM where they need no other linker than ours."""
    flats = [flat(content, name) for name, content in objects.items()] if sys.platform == "linux" else [None]
    whole = [found for found in flats if found is not None]
    if len(whole) == len(flats):
        return MappedCode(Flat.joined(whole))
    llvm, engine = binding(), empty_engine(host)
    for content in objects.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    return LoadedCode(engine, objects)


class Library:
    """Compiled kernels of a process, for one machine.

    `emitted`: another machine, whose instructions run the kernels that `host` shapes.
    """

    def __init__(self, host: Machine, emitted: Machine | None = None):
        self.host = host
        self.emitted = emitted
        self.compiled = 0  # number of kernels that were not in the cache
        self._codes: WeakValueDictionary[str, Code] = WeakValueDictionary()  # by name of kernel
        self._recent: OrderedDict[Code, None] = OrderedDict()

    def load(self, kernels: Iterable[Kernel]) -> tuple[Code, ...]:
        """Makes the kernels callable; takes their objects from the cache if present.

        Returns their code. An address is valid as long as this is kept.
        """
        wanted = {k.name: k for k in kernels}
        found = self._found(wanted)
        if len(found) < len(wanted):
            with _LLVM.lock:
                found = self._found(wanted)  # another thread may have loaded some
                missing = {name: kernel for name, kernel in wanted.items() if name not in found}
                if missing:
                    found |= dict.fromkeys(missing, self._load(missing))
                _free()
        return tuple(dict.fromkeys(found.values()))

    def _found(self, names: Iterable[str]) -> dict[str, Code]:
        return {name: code for name in names if (code := self._codes.get(name)) is not None}

    def _load(self, missing: Mapping[str, Kernel]) -> Code:
        _require_room()
        before = self.compiled
        code = loaded_code({name: self._object(kernel) for name, kernel in missing.items()}, self.emitted or self.host)
        self._codes.update(dict.fromkeys(missing, code))
        self._recent[code] = None
        while len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        if self.compiled > before:
            object_cache.trim()
        return code

    def address(self, kernel: Kernel) -> int:
        """Returns the address of a kernel whose code the caller keeps."""
        return self._codes[kernel.name].addresses[kernel.name]

    def _object(self, kernel: Kernel) -> bytes:
        return kept_object(kernel, self.host, self._made, self.emitted)

    def _made(self) -> None:
        self.compiled += 1


@once
def library_of(host: Machine, emitted: Machine | None) -> Library:
    """Returns the library of a machine, as `Library` describes it."""
    return Library(host, emitted)


def library(cpu: str | None = None) -> Library:
    """Returns the library of this machine, or of the CPU `cpu`, whose instructions this machine must have."""
    return library_of(machine(cpu), None)
