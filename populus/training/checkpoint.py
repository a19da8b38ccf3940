"""Checkpoints of a training run: a folder of safetensors files, written atomically, with a checksum of each tensor.

newest, skipped = read_newest("run/")
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import replacing
from populus.dialects.support.tensor_file import write_tensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 2
KEYS = {"1": {"populus", "training"}, "2": {"populus", "training", "sums"}}  # keys of each format's metadata; format 1 had no checksums
KEPT = 2  # the newest, and one more in case the newest is damaged


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name (`weight:W`, `state:W:NAME`, `losses`), and the settings that a resumed run must have."""

    step: int
    tensors: dict[str, NDArray[Any]]
    settings: dict[str, Any]
    validations: list[dict[str, Any]]
    progress: dict[str, Any] = field(default_factory=dict[str, Any])  # values other than tensors that change from step to step


def write(folder: str | os.PathLike[str], checkpoint: Checkpoint) -> Path:
    """Writes `step-<n>.safetensors`, flushed to disk, and removes all but the last two checkpoints. Raises PopulusError."""
    import numpy as np

    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PopulusError(f"{place}: not a folder that can be written to: {error.strerror}") from error
    about = {
        "step": checkpoint.step,
        "settings": checkpoint.settings,
        "validations": checkpoint.validations,
        "progress": checkpoint.progress,
    }
    tensors = {name: np.asarray(a, order="C") for name, a in checkpoint.tensors.items()}
    training = json.dumps(about)
    metadata = {"populus": str(FORMAT), "training": training, "sums": json.dumps(_sums(training, tensors))}
    path = place / f"step-{checkpoint.step:09}.safetensors"
    with replacing(path) as partial, partial.open("wb") as file:
        write_tensors(file, tensors, metadata)
        file.flush()
        os.fsync(file.fileno())
    _settle(place)
    for old in (*files(place)[KEPT:], *place.glob("step-*.partial")):  # partial files are left by processes that were killed
        old.unlink(missing_ok=True)
    return path


def _sums(training: str, tensors: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Computes a checksum of each tensor with its type and shape, by name, and one of the metadata, under the name ""."""
    import numpy as np

    found = {"": sha256(training.encode()).hexdigest()}
    for name, a in tensors.items():
        digest = sha256(f"{a.dtype} {list(a.shape)} ".encode())
        digest.update(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
        found[name] = digest.hexdigest()
    return found


def _settle(folder: Path) -> None:
    """Flushes the folder's entries to disk, on systems that support it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise PopulusError(f"{folder}: the disk does not take what was written: {error.strerror}") from error
    finally:
        os.close(descriptor)


def files(folder: str | os.PathLike[str]) -> list[Path]:
    """Lists the checkpoints of a folder, newest first."""
    return sorted(Path(folder).glob("step-*.safetensors"), reverse=True)


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint and verifies the checksum of each tensor. Files of format 1 have no checksums.

    Raises PopulusError for a file that is damaged or is no checkpoint.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with cast("Any", safe_open(os.fspath(path), framework="numpy")) as found:
            metadata: dict[str, str] = found.metadata() or {}
            if "populus" not in metadata or "training" not in metadata:
                raise PopulusError(f"{os.fspath(path)}: not a checkpoint of populus train")
            if KEYS.get(metadata["populus"]) != set(metadata):
                raise ValueError(f"format {metadata['populus']!r} with {', '.join(sorted(metadata))}")
            tensors: dict[str, NDArray[Any]] = {str(name): found.get_tensor(name) for name in found.keys()}  # noqa: SIM118  # no dict
        if "sums" in metadata:
            _compare(json.loads(metadata["sums"]), _sums(metadata["training"], tensors))
        about = json.loads(metadata["training"])
        return Checkpoint(about["step"], tensors, about["settings"], about["validations"], about.get("progress", {}))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise PopulusError(f"{os.fspath(path)}: a damaged checkpoint: {' '.join(str(error).split())}") from error


def _compare(written: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raises ValueError if a checksum does not match."""
    for name in {**written, **found}:
        if written.get(name) != found.get(name):
            what = f"tensor '{name}'" if name else "what it says about the run"
            raise ValueError(f"{what} differs from what was written")


def read_newest(folder: str | os.PathLike[str]) -> tuple[Checkpoint | None, list[str]]:
    """Reads the newest intact checkpoint; gives it with a line for each damaged newer one. Gives None if there are no checkpoints.

    Raises PopulusError if all checkpoints are damaged.
    """
    skipped: list[str] = []
    found = files(folder)
    for path in found:
        try:
            return read(path), skipped
        except PopulusError as error:
            skipped.append(str(error))
    if found:
        raise PopulusError(f"{skipped[0]}; no other in {os.fspath(folder)} can be read, so remove them to begin again")
    return None, []


def differing(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> list[str]:
    """Lists the differences between a checkpoint's tensors and the expected ones, each as a phrase."""
    missing = [f"'{name}' is missing" for name in expected if name not in found]
    extra = [f"'{name}' is not the model's" for name in found if name not in expected]
    other = [
        f"'{name}' is {found[name].dtype}{list(found[name].shape)}, expected {a.dtype}{list(a.shape)}"
        for name, a in expected.items()
        if name in found and (found[name].shape != a.shape or found[name].dtype != a.dtype)
    ]
    return [*other, *missing, *extra]
