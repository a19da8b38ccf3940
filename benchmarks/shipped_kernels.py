"""Kernels of the nets of this folder as a wheel has them, compiled for levels of CPUs (`runtime/engine/native/codegen/store.py`).

python -m benchmarks.shipped_kernels FOLDER [MODEL ..]     `make wheel` puts the files of FOLDER into the wheel
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from unittest.mock import patch

import populus
from benchmarks.models import MODELS
from populus.program.building import frozen_program
from populus.runtime.engine.native.codegen import jit, store
from populus.runtime.engine.native.codegen.cpu import Machine, described
from populus.runtime.engine.native.frozen.own_kernels import OWN

THREADS = (1, 2)  # more threads cut work into other chunks, by kernels that are mostly the same


def kernels(program: populus.Program, level: str) -> dict[str, jit.Kernel]:
    """Gives the kernels of a program for a level: those of its steps, and those that packing its constants calls."""
    asked, real = dict[str, jit.Kernel](), jit.kept_object

    def noted(kernel: jit.Kernel, plan: Machine, made: Callable[[], None], emitted: Machine | None = None) -> bytes:
        if plan == described(level):
            asked[kernel.name] = kernel
        return real(kernel, plan, made, emitted)

    with patch.object(jit, "kept_object", noted):
        frozen = frozen_program(program, level, {})
    return asked | {kernel.name: kernel for kernel in (*frozen.kernels, *OWN.values())}


def compiled(kernel: jit.Kernel, level: str) -> tuple[str, store.Stored]:
    """Compiles a kernel for a level. Returns its name in a store, and its object."""
    plan, asked = described(level), store.Asked.like(described(level))
    content = jit.object_code(kernel.build(kernel.name, asked), plan, kernel.vectors)
    return jit.store_name(kernel, plan), store.Stored(frozenset(asked.features_asked), content)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Compiles the kernels of nets for levels of CPUs.")
    parser.add_argument("folder")
    parser.add_argument("models", nargs="*", default=list(MODELS), help="names of benchmarks.models")
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, tuple[str, store.Stored]]] = {level: {} for level in store.LEVELS}  # by kernel
    for name in options.models:
        model = MODELS[name]()
        for threads in THREADS:
            program = populus.compile(model, target="host", threads=threads, cache=False)
            for level, held in found.items():
                held |= {name: compiled(kernel, level) for name, kernel in kernels(program, level).items() if name not in held}
    os.makedirs(options.folder, exist_ok=True)
    for level, held in found.items():
        store.write(dict(sorted(held.values(), key=lambda kernel: kernel[0])), options.folder, level)
        print(f"{level}: {len(held)} kernels, {os.path.getsize(store.path(options.folder, level)) / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    main()
