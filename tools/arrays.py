"""Arrays in files (`.npz`, ONNX's `.pb` tensors), and comparisons of two sets of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.output_files import replacing
from populus.lowering.driver.files import read_bytes
from populus.runtime.differences import largest_difference
from populus.tools.npz import read_npz

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays: TypeAlias = dict[str, NDArray[Any]]

ATOL = 1e-7  # in addition to RTOL times the largest element


def read_arrays(paths: Sequence[str], names: Sequence[str]) -> Arrays:
    """Reads the arrays of one `.npz` by name, or of `.pb` files in the order of `names`.

    Raises PopulusError for other files, and for files with Python objects, which are never loaded.
    """
    if len(paths) == 1 and Path(paths[0]).suffix == ".npz":
        return read_npz(paths[0])
    if any(Path(path).suffix != ".pb" for path in paths):
        raise PopulusError(f"{', '.join(paths)}: expected one .npz file, or .pb tensors in the order of the model")
    if len(paths) > len(names):
        raise PopulusError(f"{len(paths)} .pb files for {len(names)} tensors: {', '.join(names)}")
    return {name: _pb(path) for name, path in zip(names, paths, strict=False)}


def write_npz(path: str, arrays: Arrays) -> None:
    """Writes arrays by name, atomically."""
    import numpy as np

    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **{name: a.astype(np.str_) if a.dtype == object else a for name, a in arrays.items()})


def plain_arrays(outputs: Mapping[str, Any]) -> Arrays:
    """Converts outputs to arrays; a map becomes the rows of its values."""
    import numpy as np

    def rows(maps: list[dict[Any, float]]) -> NDArray[Any]:
        return np.array([list(row.values()) for row in maps], np.float32)

    return {name: rows(cast("list[dict[Any, float]]", o)) if isinstance(o, list) else o for name, o in outputs.items()}


@dataclass(frozen=True)
class Agreement:
    """The comparison of an output with its expected array: the largest difference, absolute and relative, and the fault if any."""

    name: str
    absolute: float
    relative: float
    problem: str | None

    @property
    def line(self) -> str:
        """Formats the comparison as one line."""
        return self.problem or f"'{self.name}' differs by at most {self.absolute:.3g} ({self.relative:.3g} of its largest element)"


def compare(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]], rtol: float, atol: float) -> list[Agreement]:
    """Compares each expected array: equal shape and dtype, and `|found - expected| <= atol + rtol * max |expected|`.

    Integers and booleans must be within `atol`. NaN agrees with NaN, infinity with the same infinity.
    Raises PopulusError for an expected name that is not an output.
    """
    for name in expected:
        if name not in found:
            raise PopulusError(f"the expected '{name}' is not an output{did_you_mean(name, found)}")
    return [_agreement(name, found[name], expected[name], rtol, atol) for name in expected]


def _agreement(name: str, found: NDArray[Any], expected: NDArray[Any], rtol: float, atol: float) -> Agreement:
    if expected.dtype.kind == "V" and expected.dtype.itemsize == found.dtype.itemsize:
        expected = expected.view(found.dtype)  # NumPy's files drop the types of ml_dtypes but keep the bits
    nothing = float("nan")
    if expected.dtype.kind == "U":  # NumPy's files store strings of a fixed length
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


def _pb(path: str) -> NDArray[Any]:
    from google.protobuf.message import DecodeError
    from onnx import TensorProto

    from populus.lowering.onnx.importer.read import read_tensor

    try:
        return read_tensor(TensorProto.FromString(read_bytes(path)), None)
    except DecodeError as error:
        raise PopulusError(f"{path}: not an ONNX tensor: {' '.join(str(error).split())}") from error
    except PopulusError as error:
        raise PopulusError(f"{path}: not an ONNX tensor: {error}") from error
