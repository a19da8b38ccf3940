"""Maps that a model returns: their values stay a tensor, of which the host makes the maps."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from populus.dialects.signature.map_outputs import Map, note
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import shape_of
from populus.lowering.onnx.structure.resolution import Resolution, Rules


def _zip_map(p: Resolution) -> bool:
    """Records a map for each row, from labels to scores. Source: ai.onnx.ml ZipMap-1.

    Raises PopulusError for a wrong number of labels, or if another node reads the map.
    """
    x = p.input(0)
    keys: list[int | str] = p.op.property("classlabels_strings") or p.op.property("classlabels_int64s") or []
    shape = shape_of(x.type)
    if not shape or shape[-1] != len(keys):
        raise PopulusError(f"it has {len(keys)} keys for rows of {shape[-1] if shape else 1} values")
    (result,) = p.op.results
    for use in result.uses:
        function = use.operation.parent_op()
        if not isinstance(use.operation, ReturnOp) or not isinstance(function, FuncOp):
            raise PopulusError("a map is read by another node; models can only return maps")
        name = cast("ArrayAttr[Attribute]", function.attributes["output_names"]).data[use.index]
        assert isinstance(name, StringAttr)
        note(function, Map(name.data, tuple(keys)))
    result.replace_all_uses_with(x)
    return True


RULES: Rules = {"ai.onnx.ml.ZipMap": _zip_map}
