"""Results of a call from those of its micro batches, and names and shapes for messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from populus.popart.reserved import GRADIENT, PREFIXES
from populus.poptorch.enums import OutputMode
from populus.torch_backend.export import PREFIX, Exported

_NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}


def chosen(values: Sequence[Any], mode: OutputMode, period: int, parts: int, copies: int = 1) -> Any:
    """Gives what a call returns of an output: each replica's last value or sum, or values one after the other.

    `values`: of each micro batch in turn, those of all `copies` replicas. `parts`: micro batches of a device iteration on a replica;
    `period`: that of `EveryN`. Several values lie along the first dimension; scalars become a row.
    """
    if mode == OutputMode.Sum:
        values = [np.sum(values[k::copies], axis=0, dtype=values[0].dtype) for k in range(copies)]
    elif mode == OutputMode.Final:
        values = values[-copies:]
    elif mode == OutputMode.EveryN:
        values = [v for i, v in enumerate(values) if (i // (parts * copies) + 1) % period == 0]
    if len(values) == 1:
        return values[0]
    return np.stack(values) if values[0].ndim == 0 else np.concatenate(values)


def narrow_tensor(array: Any) -> Any:
    """Gives a tensor of PyTorch, of 32 bits in place of 64."""
    found = torch.from_numpy(np.array(array))
    return found.to(_NARROW.get(found.dtype, found.dtype))


UPDATED = PREFIXES["reservedUpdatedVarPrefix"]()


def names_of(found: Exported, trained: Iterable[str]) -> list[str]:
    """Lists the tensors that nodes of a model compute, with its inputs, and gradients and new values of trained weights."""
    inside = [*found.inputs, *(o for n in found.model.graph.node for o in n.output if o)]
    return [*inside, *(prefix + n.removeprefix(PREFIX) for n in trained for prefix in (GRADIENT, UPDATED))]


def shapes_text(shapes: Sequence[tuple[Any, ...]]) -> str:
    """Formats shapes and types for a message."""
    return ", ".join(f"{str(dtype).removeprefix('torch.')} {list(shape)}" for shape, dtype in shapes) or "none"
