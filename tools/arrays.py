"""Arrays in files (`.npz`, ONNX's `.pb` tensors), and how far two sets of them agree."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.driver.files import read_bytes, replacing
from populus.runtime.differences import largest_difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays: TypeAlias = dict[str, NDArray[Any]]

ATOL = 1e-7  # beside RTOL of the largest element


def read_arrays(paths: Sequence[str], names: Sequence[str]) -> Arrays:
    """The arrays of one `.npz` by name, or of `.pb` files in the order of `names`.

    Raises PopulusError for a file that is neither, or holds Python objects, which are never loaded.
    """
    if len(paths) == 1 and Path(paths[0]).suffix == ".npz":
        return _npz(paths[0])
    if any(Path(path).suffix != ".pb" for path in paths):
        raise PopulusError(f"{', '.join(paths)}: expected one .npz file, or .pb tensors in the order of the model")
    if len(paths) > len(names):
        raise PopulusError(f"{len(paths)} .pb files for {len(names)} tensors: {', '.join(names)}")
    return {name: _pb(path) for name, path in zip(names, paths, strict=False)}


def write_npz(path: str, arrays: Arrays) -> None:
    """Writes arrays by name, completely or not at all."""
    import numpy as np

    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **{name: a.astype(np.str_) if a.dtype == object else a for name, a in arrays.items()})


def plain_arrays(outputs: Mapping[str, Any]) -> Arrays:
    """The outputs as arrays: of maps their values, a row each."""
    import numpy as np

    def rows(maps: list[dict[Any, float]]) -> NDArray[Any]:
        return np.array([list(row.values()) for row in maps], np.float32)

    return {name: rows(cast("list[dict[Any, float]]", o)) if isinstance(o, list) else o for name, o in outputs.items()}


@dataclass(frozen=True)
class Agreement:
    """How an output compares to what was expected: the largest difference, that of the largest element, and what is wrong."""

    name: str
    absolute: float
    relative: float
    problem: str | None

    @property
    def line(self) -> str:
        """One line for the user."""
        return self.problem or f"'{self.name}' differs by at most {self.absolute:.3g} ({self.relative:.3g} of its largest element)"


def compare(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]], rtol: float, atol: float) -> list[Agreement]:
    """An Agreement for each expected array: shape and dtype must be equal, and `|found - expected| <= atol + rtol * max |expected|`.

    Integers and booleans must be within `atol`. NaN agrees with NaN, infinity with the same infinity.
    Raises PopulusError for an expected name that was not found.
    """
    for name in expected:
        if name not in found:
            raise PopulusError(f"the expected '{name}' is not an output{did_you_mean(name, found)}")
    return [_agreement(name, found[name], expected[name], rtol, atol) for name in expected]


def _agreement(name: str, found: NDArray[Any], expected: NDArray[Any], rtol: float, atol: float) -> Agreement:
    if expected.dtype.kind == "V" and expected.dtype.itemsize == found.dtype.itemsize:
        expected = expected.view(found.dtype)  # NumPy's files forget ml_dtypes' types but keep the bits
    nothing = float("nan")
    if expected.dtype.kind == "U":  # NumPy's files have strings of one length
        expected = expected.astype(object)
    if found.dtype != expected.dtype or found.shape != expected.shape:
        problem = f"'{name}' is {found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
        return Agreement(name, nothing, nothing, problem)
    most = largest_difference(found, expected)
    if found.dtype == object:
        unlike = int((found != expected).sum())
        said = f"'{name}' does not agree: {unlike} of {found.size} strings differ" if unlike else None
        return Agreement(name, most.absolute, most.relative, said)
    allowed = atol + (0.0 if found.dtype.kind in "iub" else rtol * most.size)
    if most.absolute <= allowed:
        return Agreement(name, most.absolute, most.relative, None)
    rule = f"atol {atol:g}" if found.dtype.kind in "iub" else f"atol {atol:g} + rtol {rtol:g} of the largest element, {most.size:.3g}"
    problem = (
        f"'{name}' does not agree: it differs by {most.absolute:.3g}, beyond {rule}; "
        f"most at {list(most.index)}: {found[most.index]}, expected {expected[most.index]}"
    )
    return Agreement(name, most.absolute, most.relative, problem)


def _npz(path: str) -> Arrays:
    import numpy as np

    if not Path(path).is_file():
        raise PopulusError(f"{path}: no such file")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError, OSError, KeyError) as error:
        raise PopulusError(f"{path}: not a file of plain arrays: {' '.join(str(error).split())}") from error


def _pb(path: str) -> NDArray[Any]:
    from google.protobuf.message import DecodeError
    from onnx import TensorProto, numpy_helper

    try:
        return numpy_helper.to_array(TensorProto.FromString(read_bytes(path)))
    except (DecodeError, ValueError, TypeError) as error:
        raise PopulusError(f"{path}: not an ONNX tensor: {' '.join(str(error).split())}") from error
