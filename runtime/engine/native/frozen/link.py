"""Shared library of a frozen program: its kernels and the runtime in C, by the system's compiler."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime import built
from populus.runtime.engine.native.codegen import object_cache
from populus.runtime.engine.native.codegen.cpu import machine
from populus.runtime.engine.native.codegen.jit import file_object
from populus.runtime.engine.native.frozen.freeze import Frozen, write_weights
from populus.runtime.engine.native.frozen.own_kernels import SUMS
from populus.runtime.engine.native.run.step_loop import WALK, WORKER

SOURCES = Path(built.__file__).parent
API = ("version", "load", "unload", "count", "describe", "open", "close", "run", "get_state", "set_state", "error")
RUNTIME = ("runtime.c", "cpu.h", "populus.h")
COMPILED = ("-fPIC", "-O2", "-std=gnu11", "-fvisibility=hidden", "-g0", "-pthread")
CALLED = """extern int64_t {0}(int64_t *, int64_t *, int64_t, int64_t);
extern void {1}(int64_t *, int64_t), {2}(const void *, int64_t, uint64_t *);
int64_t (*const populus_walk)(int64_t *, int64_t *, int64_t, int64_t) = {0};
void (*const populus_worker)(int64_t *, int64_t) = {1};
void (*const populus_sums)(const void *, int64_t, uint64_t *) = {2};
"""  # the kernels that the runtime calls by name
FLAGS = (
    *("-shared", *COMPILED, "-s", "-Wl,--build-id=none"),
    *("-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,--version-script=exports"),
)


def compiler(architecture: str, named: str | None = None) -> list[str]:
    """Finds the command of a C compiler for an architecture. `named`: the command to use, as the user gave it.

    Raises PopulusError, with what to install, if there is none.
    """
    if named or (named := os.environ.get("CC")):
        words = named.split()
        if shutil.which(words[0]) is None:
            raise PopulusError(f"there is no C compiler '{words[0]}'")
        return words
    cross = architecture != machine().architecture or sys.platform != "linux"
    names = [f"{architecture}-linux-gnu-gcc"] if cross else ["cc", "gcc", "clang"]
    for name in names:
        if (found := shutil.which(name)) is not None:
            return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-gnu.2.17"]
    package = f"gcc-{architecture.replace('_', '-')}-linux-gnu" if cross else "gcc"
    raise PopulusError(
        f"building needs a C compiler, and there is no {', '.join(names)} here; install one (Debian: apt install {package}; "
        "or: pip install ziglang)"
    )


def write_parts(frozen: Frozen, folder: Path, name: str, identity: bytes, embed: bool) -> tuple[list[str], list[str]]:
    """Writes the parts of a library: an object of each kernel, and C. Gives the names of all, and those that a compiler is called with."""
    kernels = [*frozen.kernels, WALK, WORKER, SUMS]
    objects = [f"k{i}.o" for i in range(len(kernels))]
    for kernel, file in zip(kernels, objects):
        (folder / file).write_bytes(file_object(kernel, frozen.plan))
    names = [kernel.name for kernel in frozen.kernels]
    declared = "".join(f"extern void {n}(void);\n" for n in names) + CALLED.format(WALK.name, WORKER.name, SUMS.name)
    low, high = np.frombuffer(identity, np.uint64).tolist()
    own = [*objects, "table.c", "exports", "runtime.c", "cpu.h", "populus.h"]
    (folder / "table.c").write_text(
        f"#include <stdint.h>\n{declared}void (*const populus_kernels[])(void) = {{{', '.join([*names, '0'])}}};\n"
        f'const uint64_t populus_identity[2] = {{{low}u, {high}u}};\nconst char populus_file[] = "{name}.bin";\n'
    )
    (folder / "exports").write_text(f"{{ global: {' '.join(f'populus_{f};' for f in API)} local: *; }};\n")
    for source in ("runtime.c", "cpu.h", "populus.h"):
        shutil.copyfile(SOURCES / source, folder / source)
    sources = ["runtime.c", "table.c", *objects]
    if embed:
        (folder / "data.S").write_text(
            '.section .rodata.populus,"a"\n.balign 4096\n.globl populus_data\n.hidden populus_data\n'
            f'populus_data: .incbin "{name}.bin"\n.section .note.GNU-stack,"",%progbits\n'
        )
        sources.append("data.S")
        own.append("data.S")
    return own, sources


def arguments(name: str, sources: Sequence[str]) -> list[str]:
    """Lists the compiler's arguments for a library."""
    return [*FLAGS, f"-Wl,-soname,lib{name}.so", *sources, "-o", f"lib{name}.so", "-Wl,--as-needed", "-lm", "-ldl"]


def write_makefile(folder: Path, name: str, architecture: str, sources: Sequence[str]) -> None:
    """Writes a Makefile that links the parts in a folder by the compiler of their architecture."""
    text = (SOURCES / "parts.mk").read_text(encoding="utf-8")
    words = {
        "@NAME@": name,
        "@ARCHITECTURE@": architecture,
        "@SOURCES@": " ".join(sources),
        "@ARGUMENTS@": " ".join(arguments(name, sources)),
    }
    for mark, value in words.items():
        text = text.replace(mark, value)
    (folder / "Makefile").write_text(text, encoding="utf-8")


def write_library(frozen: Frozen, folder: Path, name: str, command: Sequence[str] | None, embed: bool) -> None:
    """Writes a library with its weights and an example; without a command its parts. Raises PopulusError if the compiler fails."""
    identity = write_weights(frozen, folder, name)
    if command is None:
        _, sources = write_parts(frozen, folder, name, identity, embed)
        write_makefile(folder, name, frozen.plan.architecture, sources)
        return
    link(frozen, folder, name, identity, command, embed)
    shutil.copyfile(SOURCES / "example.c", folder / "example.c")
    (folder / "Makefile").write_text((SOURCES / "example.mk").read_text(encoding="utf-8").replace("@NAME@", name), encoding="utf-8")
    if embed:
        (folder / f"{name}.bin").unlink()


def link(frozen: Frozen, folder: Path, name: str, identity: bytes, command: Sequence[str], embed: bool) -> None:
    """Writes `lib<name>.so`, and with `embed` puts `<name>.bin` of the folder inside. Raises PopulusError if the compiler fails."""
    own, sources = write_parts(frozen, folder, name, identity, embed)
    (folder / "runtime.o").write_bytes(runtime_object(command, folder))
    _run([*command, *arguments(name, ["runtime.o", *(source for source in sources if source != "runtime.c")])], folder)
    for file in (*own, "runtime.o"):
        if file != "populus.h":
            (folder / file).unlink()


def runtime_object(command: Sequence[str], folder: Path) -> bytes:
    """Returns the runtime in C as an object. One that this compiler made from the same sources is taken from the cache of objects."""
    key = hashlib.sha256(repr((list(command), COMPILED, [(SOURCES / name).read_bytes() for name in RUNTIME])).encode())
    for word in command:
        if (found := shutil.which(word)) is not None:
            at = os.stat(found)
            key.update(repr((os.path.realpath(found), at.st_size, at.st_mtime_ns)).encode())
    if (known := object_cache.get(name := f"runtime-{key.hexdigest()}")) is not None:
        return known
    with tempfile.TemporaryDirectory(dir=folder, prefix="runtime-") as made:
        for source in RUNTIME:
            shutil.copyfile(SOURCES / source, Path(made, source))
        _run([*command, *COMPILED, "-c", "runtime.c", "-o", "runtime.o"], Path(made))
        content = Path(made, "runtime.o").read_bytes()
    object_cache.put(name, content)
    return content


def _run(words: Sequence[str], folder: Path) -> None:
    """Runs the C compiler in a folder. Raises PopulusError with its first line of an error."""
    done = subprocess.run(words, cwd=folder, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines() or ["no message"]
        raise PopulusError(f"the C compiler {words[0]} failed: {lines[0]}")
