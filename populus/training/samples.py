"""Training data: arrays whose first dimension counts samples, checked against a model before computing."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import dtype_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from xdsl.dialects.builtin import TensorType
    from xdsl.ir import Attribute

    from populus.program.source import Arrays


@dataclass(frozen=True)
class Samples:
    """A model's inputs by name and its labels, converted to the types of a step. `len` is the number of samples."""

    inputs: Arrays
    labels: NDArray[Any] | None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def batch(self, rows: NDArray[np.intp]) -> tuple[Arrays, NDArray[Any] | None]:
        """Selects the samples with these numbers."""
        return {name: array[rows] for name, array in self.inputs.items()}, None if self.labels is None else self.labels[rows]


def samples(
    data: object,
    inputs: Mapping[str, TensorType[Attribute]],
    labels: TensorType[Attribute] | None,
    classes: int | None,
    label_name: str | None = None,
    place: str = "data",
) -> Samples:
    """Checks `data` (arrays by name) and converts it to samples for a step; the first dimension of each type is the batch.

    The labels are the array `label_name`; default: the array `labels`, or the only array that is not an input.
    There are none if `labels`, their type, is None. Floats get the model's type. Class numbers, below `classes`, get 32 bits.
    Raises PopulusError, prefixed with `place`, for missing or additional arrays and for wrong shapes or kinds.
    Raises it also for NaN, infinities and class numbers out of range.
    """
    import numpy as np

    if not isinstance(data, Mapping):
        names = ", ".join(f"'{name}': .." for name in (*inputs, *(() if labels is None else (label_name or "labels",))))
        raise PopulusError(f"{place}: a {type(data).__name__}; expected arrays by name: {{{names}}}")
    arrays = {name: np.asarray(array) for name, array in cast("Mapping[str, Any]", data).items()}
    if missing := [name for name in inputs if name not in arrays]:
        raise PopulusError(f"{place}: there is no array '{missing[0]}' for the model's input{did_you_mean(missing[0], arrays)}")
    others = [name for name in arrays if name not in inputs]
    chosen = None if labels is None else label_name or ("labels" if "labels" in others else others[0] if len(others) == 1 else None)
    if labels is not None and (chosen is None or chosen not in arrays):
        what = "several could be the labels" if others and label_name is None else "there are no labels"
        raise PopulusError(f"{place}: {what}; its arrays are {', '.join(arrays)}, so name one of them labels")
    if strange := [name for name in others if name != chosen]:
        raise PopulusError(f"{place}: the model has no input '{strange[0]}'{did_you_mean(strange[0], inputs)}")
    made = {name: _checked(place, name, arrays[name], type) for name, type in inputs.items()}
    answer = None if labels is None or chosen is None else _labels(place, chosen, arrays[chosen], labels, classes)
    counts = {name: len(a) for name, a in made.items()} | ({} if answer is None else {str(chosen): len(answer)})
    if len(set(counts.values())) > 1:
        raise PopulusError(f"{place}: the arrays have different numbers of samples: {', '.join(f'{n} {c}' for n, c in counts.items())}")
    if not all(counts.values()):
        raise PopulusError(f"{place}: there are no samples in it")
    return Samples(made, answer)


def _checked(place: str, name: str, array: NDArray[Any], type: TensorType[Attribute]) -> NDArray[Any]:
    import numpy as np

    dtype, shape = dtype_of(type.element_type), type.get_shape()
    if array.ndim != len(shape) or array.shape[1:] != shape[1:]:
        expected = ", ".join(["samples", *map(str, shape[1:])])
        raise PopulusError(f"{place}: '{name}' is {list(array.shape)}, expected [{expected}]")
    floats = array.dtype.kind == "f" and dtype.kind not in "biu"
    if array.dtype != dtype and not floats:
        raise PopulusError(f"{place}: '{name}' is {array.dtype}, expected {dtype}; array.astype('{dtype}') converts it")
    if dtype.kind not in "biu":
        finite = np.isfinite(array.astype(np.float64, copy=False)).reshape(len(array), -1).all(1)
        if not finite.all():
            raise PopulusError(f"{place}: '{name}' is not finite in sample {int(finite.argmin())} (NaN or infinite)")
    return array.astype(dtype, copy=False)


def _labels(place: str, name: str, array: NDArray[Any], type: TensorType[Attribute], classes: int | None) -> NDArray[Any]:
    import numpy as np

    if classes is None:
        return _checked(place, name, array, type)
    if array.dtype.kind not in "iu":
        raise PopulusError(f"{place}: the labels '{name}' are {array.dtype}; whole numbers from 0 to {classes - 1} are expected")
    shape = type.get_shape()
    if array.ndim != len(shape) or array.shape[1:] != shape[1:]:
        raise PopulusError(f"{place}: the labels '{name}' are {list(array.shape)}, expected {['samples', *shape[1:]]}")
    wrong = ((array < 0) | (array >= classes)).reshape(len(array), -1)
    if wrong.any():
        sample = int(wrong.any(1).argmax())
        value = array.reshape(len(array), -1)[sample][wrong[sample]][0]
        raise PopulusError(f"{place}: the label of sample {sample} is {value}; there are {classes} classes, 0 to {classes - 1}")
    return array.astype(np.int32)


def batches(count: int, batch: int) -> Generator[tuple[NDArray[np.intp], int], None, None]:
    """Yields all samples in order, `batch` at a time, with the number of real ones. Sample 0 fills the last batch."""
    import numpy as np

    for begin in range(0, count, batch):
        rows = np.arange(begin, begin + batch)
        rows[rows >= count] = 0
        yield rows, min(batch, count - begin)
