"""Program cache: compiled programs on disk, reused when equal content is compiled for the same machine.

A program's key is a hash. It covers the model's content (not its names and locations), the passes with their
options, and the files that define its ops and passes. It also covers the modules that these files import,
this package's code, and the versions of its dependencies. A change of any of these compiles anew. The folder
is a `DiskCache`: whole files or none, of this user alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region
from xdsl.utils.exceptions import ParseError, VerifyException

from populus.dialects.data import TABLE, blobs_of, load_blobs, save_blobs
from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.disk_cache import DiskCache, default_folder
from populus.dialects.support.package_hash import package_hash
from populus.lowering.driver import sources
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.driver.files import parse_text, text_of
from populus.lowering.driver.pipeline import Pipeline

LIMIT = 4 << 30  # bytes
MAGIC = b"populus program 2\n"
BETWEEN = "// -----\n"
NO_WEIGHTS = "0"


@dataclass(frozen=True)
class ProgramCache:
    """Folder of programs. `limit`: the most bytes that they may take."""

    folder: Path
    limit: int = LIMIT

    @staticmethod
    def default() -> ProgramCache | None:
        """Returns the cache below POPULUS_CACHE, or else below the user's cache folder; None if POPULUS_CACHE is empty."""
        folder = default_folder("populus-programs")
        return None if folder is None else ProgramCache(folder)

    @property
    def _disk(self) -> DiskCache:
        return DiskCache(self.folder, MAGIC, self.limit)

    def get(self, ctx: Context, key: str) -> tuple[ModuleOp, ModuleOp] | None:
        """Reads (the program, a module whose `@main` has its signature); None if there is no complete one.

        Programs are verified like any text.
        """
        program, weights = _names(key)
        if (content := self._disk.read(program)) is None:
            return None
        try:
            stated, _, text = content.decode().partition("\n")
            place = self.folder / weights
            if stated != NO_WEIGHTS and not (self._disk.owned(weights) and size_and_header(place) == stated):
                return None
            blobs = load_blobs(place) if stated != NO_WEIGHTS else []
            signature, made = (parse_text(ctx, part, program) for part in text.split(BETWEEN))
            assert all(TABLE.key(handle) for handle in blobs)  # keeps the contents alive until here
        except (OSError, ValueError, PopulusError, ParseError, VerifyException):
            return None
        if stated != NO_WEIGHTS:
            self._disk.used(weights)
        return made, signature

    def put(self, key: str, program: ModuleOp, signature: ModuleOp) -> None:
        """Stores a program. Without space or permission, nothing is stored, and one warning says so."""
        name, weights = _names(key)
        blobs = blobs_of(program)
        try:
            stated = NO_WEIGHTS
            if blobs:  # weights first: then a stored program always has its weights
                with self._disk.written(weights) as partial:
                    save_blobs(blobs, partial)
                    stated = size_and_header(partial)
            text = f"{stated}\n{text_of(signature, locations=True)}{BETWEEN}{text_of(program, locations=True)}"
            with self._disk.written(name) as partial:
                partial.write_bytes(self._disk.framed(name, text.encode()))
            self._disk.trim()
        except (OSError, PopulusError) as error:
            self._disk.warn_unwritable(error)


def size_and_header(weights: Path) -> str:
    """Writes the size of a file of weights and the hash of its header; the header has the hash of each of the constants."""
    size = weights.stat().st_size
    with weights.open("rb") as file:
        length = file.read(8)
        header = file.read(min(int.from_bytes(length, "little"), size))
    return f"{size} {sha256(length + header).hexdigest()}"


def _names(key: str) -> tuple[str, str]:
    return f"{key}.program", f"{key}.safetensors"


def key_of(module: ModuleOp, pipeline: Pipeline, definitions: Iterable[str]) -> str:
    """Computes a program's key from its module and pipeline. `definitions`: digests of the loaded extensions."""
    digest = sha256()
    own = {module_of_op.__name__: module_of_op for op in module.walk() if (module_of_op := _module_of(type(op))) is not None}
    # `every`: an attribute that counts in vain costs a miss; one that is left out would give another model's program.
    content = content_hash(module, every=True)
    parts = [content, str(pipeline), *sorted(definitions), *(sources.digest_of(own[name]) for name in sorted(own))]
    for part in (*parts, package_hash(), *(f"{name} {version(name)}" for name in ("xdsl", "numpy", "onnx"))):
        digest.update(len(part).to_bytes(8, "little") + part.encode())
    return digest.hexdigest()


def _module_of(kind: type) -> ModuleType | None:
    """Finds the module of a class that belongs neither to this package nor to xDSL: an op defined next to the
    model.
    """
    if kind.__module__.partition(".")[0] in ("populus", "xdsl"):
        return None
    module = sys.modules.get(kind.__module__)
    return module if getattr(module, "__file__", None) is not None else None


def signature_module(module: ModuleOp) -> ModuleOp:
    """Builds a module whose `@main` has only the arguments, results and attributes of this module's."""
    from xdsl.dialects.test import TestOp  # this import loads register allocation, 20 ms

    main = main_of(module)
    last = main.body.block.last_op
    assert isinstance(last, ReturnOp), last
    block = Block(arg_types=[a.type for a in main.body.block.args])
    for new, old in zip(block.args, main.body.block.args):
        new.name_hint = old.name_hint
    made = TestOp(result_types=[o.type for o in last.operands])
    block.add_ops([made, ReturnOp(*made.results)])
    function = FuncOp("main", ([a.type for a in block.args], [r.type for r in made.results]), Region(block))
    function.attributes.update(main.attributes)
    return ModuleOp([function])
