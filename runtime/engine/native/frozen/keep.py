"""A frozen program as one that this process runs at once, and as the files from which later ones run it (`built/kept.py`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from populus.runtime.built.code import Flat
from populus.runtime.built.form import Base
from populus.runtime.built.kept import Placed
from populus.runtime.built.library import Type
from populus.runtime.engine.native.codegen.flat import flat
from populus.runtime.engine.native.codegen.jit import file_object, library_of
from populus.runtime.engine.native.frozen.freeze import Frozen, write_weights
from populus.runtime.engine.native.frozen.own_kernels import OWN


def placed(frozen: Frozen) -> Placed:
    """Loads the kernels of a program that was frozen for this CPU, and writes their addresses and those of its constants."""
    form, library = frozen.form, library_of(frozen.plan, None)
    code = library.load([*frozen.kernels, *OWN.values()])
    words = form.words.copy()
    at = {base: np.array([word for word, b in form.places if b == base], np.int64) for base in Base}
    kernels = np.array([library.address(kernel) for kernel in frozen.kernels], np.int64)
    words[at[Base.CODE]] = kernels[words[at[Base.CODE]]]
    begins = [constant.ctypes.data - offset for constant, offset in zip(form.constants, form.offsets)]
    words[list(frozen.in_constants)] += np.array([begins[number] for number in frozen.in_constants.values()], np.int64)

    def types(role: int) -> dict[str, Type]:
        return {t.name: (t.shape, np.dtype(t.dtype)) for t in form.tensors[role]}

    return Placed(
        words, at, form.steps, form.memory, types(0), types(1), form.texts, form.shared,
        {name: library.address(kernel) for name, kernel in OWN.items()}, code, form.constants, frozen.checks,
    )  # fmt: skip


def flat_code(frozen: Frozen) -> Flat | None:
    """Returns the code of a program's kernels by number, and of the runner's by name; None where it needs a linker."""
    named = {**{str(i): kernel for i, kernel in enumerate(frozen.kernels)}, **OWN}
    found = {name: flat(file_object(kernel, frozen.plan), kernel.name) for name, kernel in named.items()}
    parts = {name: Flat(f.code, {name: f.at[named[name].name]}, f.outside) for name, f in found.items() if f is not None}
    return Flat.joined(list(parts.values())) if len(parts) == len(named) else None


def write_kept(frozen: Frozen, code: Flat, folder: Path, name: str) -> str:
    """Writes `<name>.bin` and `<name>.code`. Returns the identity of the build."""
    identity = write_weights(frozen, folder, name)
    (folder / f"{name}.code").write_bytes(code.to_bytes())
    return identity.hex()
