"""Encoding (`popart-encode`): weights of products in a block format, in which the machine keeps and multiplies them."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntAttr, ModuleOp, StringAttr, TensorType, bf16, f32
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from populus.dialects.data import BlockAttr, ConstantOp, computed_constant, retyped
from populus.dialects.popart.base import PopartOp
from populus.dialects.poplar.target import Spec, check_block_format
from populus.dialects.support.block_floats import rounded
from populus.dialects.support.element_types import element_type_of, shape_of


@dataclass(frozen=True)
class PopartEncodePass(ModulePass):
    """Rounds constants of f32 and bf16 that only products and convolutions multiply to the block format `weights`.

    Their element type stays, their tensor type gets the encoding `#data.block`. The 16 elements of a block are neighbours along the
    columns of the product, which are the channels out of a convolution. Constants that anything else reads, or products in two ways,
    stay as they are. `target`: the machine that must have the format. Raises PopulusError for another format or machine. To rounding.
    """

    name = "popart-encode"
    weights: str | None = None
    target: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.weights is None:
            return
        check_block_format(self.weights, Spec.of(self.target or "host").target())
        for constant in [inner for inner in op.walk() if isinstance(inner, ConstantOp)]:
            if (dimension := _rows_of(constant)) is not None:
                encode(constant, self.weights, dimension)


def _rows_of(constant: ConstantOp) -> int | None:
    """Returns the dimension along which all readers have blocks; None if some has none, or they differ."""
    if element_type_of(constant.result.type) not in (f32, bf16):
        return None
    found = {use.operation.block_rows().get(use.index) if isinstance(use.operation, PopartOp) else None for use in constant.result.uses}
    return found.pop() if len(found) == 1 else None


def encode(constant: ConstantOp, format: str, dimension: int) -> None:
    """Rounds a constant, and says so in its type."""
    value = computed_constant(
        [constant.result], ("popart-encode", format, dimension), lambda: rounded(constant.array(), format, dimension)
    ).value
    shape, element = shape_of(constant.result.type), element_type_of(constant.result.type)
    type = TensorType(element, shape, BlockAttr(StringAttr(format), IntAttr(dimension)))
    constant.value = retyped(value, type)
    Rewriter.replace_value_with_new_type(constant.result, type)
