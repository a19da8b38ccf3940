"""The inventory of a model with open dimensions, at sizes that the model takes: those of its examples are not in the file.

`populus check` tries sizes that images, sentences and samples have, until every node can be compiled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.func import FuncOp

from populus.dialects.onnx.dimensions import parts
from populus.dialects.onnx.types import as_tensor
from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.inventory import Row, surveyed
from populus.lowering.onnx.custom_ops import Customs
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.onnx.importer.build import ANY_OP
from populus.lowering.onnx.importer.given_values import given_values
from populus.lowering.onnx.importer.opened import OpenedModel
from populus.lowering.onnx.infer_shapes import texts_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from onnx import ModelProto

# The sizes of open dimensions that are no batch, in the order in which they are tried.
SIZES = (1, 64, 224, 640, 512, 320, 256, 384, 128, 416, 299, 1024, 16, 7)
BATCHES = ("b", "bs", "n")  # names of a batch, as exporters and examples write them


@dataclass(frozen=True)
class Plausible:
    """The rows at `sizes` of the open dimensions. `tried`: the sizes before, at which more nodes were missing."""

    rows: list[Row]
    sizes: dict[str, int]
    tried: list[dict[str, int]]


def inventory_at_plausible_sizes(
    model: str | os.PathLike[str] | ModelProto, *, dims: Mapping[str, int], values: Mapping[str, ArrayLike], customs: Customs
) -> Plausible:
    """Makes the inventory at the first sizes at which no node is missing, else at those at which the fewest are.

    `dims` and `values` are given by the user. Raises PopulusError if the model is not readable at all.
    """
    opened = OpenedModel(model)
    constants = given_values(opened.proto, values)
    best: Plausible | None = None
    tried: list[dict[str, int]] = []
    fewest = 0
    for sizes in _plausible(opened, dims, constants):
        try:
            rows, sized = surveyed(opened, {**dims, **sizes}, customs, constants)
        except PopulusError:
            if best is None:
                raise
            continue
        missing = sum(row.status == "missing" for row in rows)
        if best is None or missing < fewest:
            best, fewest = Plausible(rows, sizes, list(tried)), missing
        if not missing or not sized:  # other sizes would not help
            break
        tried.append(sizes)
    assert best is not None, model
    return best if not fewest else Plausible(best.rows, best.sizes, [s for s in tried if s != best.sizes])


def _plausible(opened: OpenedModel, dims: Mapping[str, int], values: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Gives sizes of the dimensions that stay open: 1 for what is a batch, others alike; then all alike."""
    function = main_of(import_onnx(opened, dims=dims, customs=ANY_OP, values=values))
    batches, others = _open(function)
    yield dict.fromkeys((*batches, *others), 1)
    if others:
        yield from ({**dict.fromkeys(batches, 1), **dict.fromkeys(others, n)} for n in SIZES[1:])
    elif batches:
        yield from (dict.fromkeys(batches, n) for n in SIZES[1:])


def _open(function: FuncOp) -> tuple[list[str], list[str]]:
    """Lists the open dimensions: batches, which are called so or first in every input of several dimensions, and others."""
    names = texts_of(function.attributes.get("dim_names"))
    ranks = [0 if (type := as_tensor(a.type)) is None else len(type.get_shape()) for a in function.body.block.args]
    found = {name: True for own in names for name in own if name}
    for own, rank in zip(names, ranks):
        found.update({name: False for d, name in enumerate(own) if name and (d > 0 or rank < 2)})
    plain = [name for name in found if not (own := parts(name)) or own == {name} or not own <= set(found)]
    batches = [name for name in plain if found[name] or name.lower() in BATCHES or name.lower().startswith("batch")]
    return batches, [name for name in plain if name not in batches]
