"""A module as text after each pass, in numbered files of a folder."""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.data import Handle, blobs_of, save_blobs
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import replacing
from populus.lowering.driver.files import text_of


class Dumper:
    """Dumper of numbered module files, and of the stored constants that any of them refers to."""

    def __init__(self, folder: Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PopulusError(f"{folder}: not a folder that can be written to: {error.strerror}") from error
        self.folder = folder
        self.count = 0
        self.blobs: dict[str, Handle] = {}

    def write(self, name: str, module: ModuleOp) -> None:
        """Writes the module after pass `name`, and the constants if there are new ones."""
        new = {key: handle for key, handle in blobs_of(module).items() if key not in self.blobs}
        if new:  # before a later pass can fail: every file stays readable
            self.blobs.update(new)
            with replacing(self.folder / "weights.safetensors") as partial:
                save_blobs(self.blobs, partial)
        with replacing(self.folder / f"{self.count:02}-{name}.mlir") as partial:
            partial.write_text(text_of(module, locations=True))
        self.count += 1
