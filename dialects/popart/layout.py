"""Layouts of tensors above the tile level, planar or with one dimension in blocks, and the ops that convert between them.

    nChw8c of [N, C, H, W] is a tensor [N, ceil(C / 8), H, W, 8], whose elements beyond C are zero

A value in a blocked layout is a tensor of the blocked shape: nothing else in the IR has to know of layouts. `popart.pack` makes it from
a planar one, `popart.unpack` gives the planar one back, without the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Data, SSAValue
from xdsl.irdl import irdl_attr_definition, irdl_op_definition, operand_def, prop_def, result_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from populus.dialects.popart import calls
from populus.dialects.popart.base import Examples, PopartOp
from populus.dialects.support.constraints import whole
from populus.dialects.support.element_types import element_type_of, shape_of, tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """`block` elements of dimension `dim` side by side, innermost; planar without a block. Source: oneDNN's nChw8c."""

    block: int = 0
    dim: int = 1

    def __str__(self) -> str:
        return f"blocked {self.block} at {self.dim}" if self.block else "planar"

    def physical(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Computes the shape of a tensor in this layout."""
        if not self.block:
            return tuple(shape)
        return (*shape[: self.dim], -(-shape[self.dim] // self.block), *shape[self.dim + 1 :], self.block)

    def fits(self, shape: Sequence[int]) -> bool:
        """Tells whether a tensor of a shape can have this layout."""
        return not self.block or len(shape) > self.dim

    def pack(self, array: NDArray[Any]) -> NDArray[Any]:
        """Packs a planar array into this layout."""
        import numpy as np

        if not self.block:
            return array
        around = [(0, -array.shape[self.dim] % self.block if d == self.dim else 0) for d in range(array.ndim)]
        padded = np.pad(array, around)
        shape = list(padded.shape)
        shape[self.dim : self.dim + 1] = [shape[self.dim] // self.block, self.block]
        return np.ascontiguousarray(np.moveaxis(padded.reshape(shape), self.dim + 1, -1))

    def unpack(self, array: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """Unpacks an array of this layout into a planar array of this shape."""
        import numpy as np

        if not self.block:
            return array
        outer = np.moveaxis(array, -1, self.dim + 1)
        flat = outer.reshape(*shape[: self.dim], -1, *shape[self.dim + 1 :])
        return np.ascontiguousarray(flat[(slice(None),) * self.dim + (slice(0, shape[self.dim]),)])


PLANAR = Layout()
NCHW8C = Layout(8)


@irdl_attr_definition
class LayoutAttr(Data[Layout]):
    """`#popart.layout<planar>`, `#popart.layout<blocked 8 at 1>`."""

    name = "popart.layout"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Layout:
        with parser.in_angle_brackets():
            if parser.parse_optional_keyword("planar") is not None:
                return PLANAR
            parser.parse_keyword("blocked")
            block = parser.parse_integer(allow_boolean=False, allow_negative=False)
            parser.parse_keyword("at")
            return Layout(block, parser.parse_integer(allow_boolean=False, allow_negative=False))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


@irdl_op_definition
class PackOp(PopartOp):
    """`y = x in the layout`: dimension dim in blocks of block elements, the last one filled with zeros. Source: oneDNN's reorder."""

    name = "popart.pack"
    EXAMPLES: ClassVar[Examples] = [([(2, 11, 3)], {"layout": LayoutAttr(NCHW8C)})]
    x = operand_def(TensorType)
    layout = prop_def(LayoutAttr, default_value=LayoutAttr(NCHW8C))
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, layout = shape_of(self.x.type), self.layout.data
        if not layout.fits(shape):
            raise VerifyException(f"x is {self.x.type}, which has no dimension {layout.dim} to be in blocks")
        return [tensor(layout.physical(shape), element_type_of(self.x.type))]

    def evaluate(self, *arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        return [self.layout.data.pack(arrays[0])]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        layout, shape = self.layout.data, shape_of(self.x.type)
        if not layout.block:
            return [self.x]
        d, block = layout.dim, layout.block
        rest = -shape[d] % block
        x = calls.pad(b, self.x, [0] * len(shape), [rest if i == d else 0 for i in range(len(shape))])
        x = calls.reshape(b, x, (*shape[:d], (shape[d] + rest) // block, block, *shape[d + 1 :]))
        return [calls.transpose(b, x, [i for i in range(len(shape) + 1) if i != d + 1] + [d + 1])]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        extent = shape_of(self.x.type)[self.layout.data.dim] if self.layout.data.block else 0
        return [calls.insert(b, UnpackOp(grads[0], layout=self.layout, extent=extent))]


@irdl_op_definition
class UnpackOp(PopartOp):
    """`y = x out of the layout`, whose dimension dim has extent elements; without what fills the last block. Source: oneDNN's reorder."""

    name = "popart.unpack"
    EXAMPLES: ClassVar[Examples] = [([(2, 2, 3, 8)], {"layout": LayoutAttr(NCHW8C), "extent": 11})]
    x = operand_def(TensorType)
    layout = prop_def(LayoutAttr, default_value=LayoutAttr(NCHW8C))
    extent = whole()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, layout, extent = shape_of(self.x.type), self.layout.data, self.extent
        if not layout.block:
            return [tensor(shape, element_type_of(self.x.type))]
        d = layout.dim
        if len(shape) < d + 2 or shape[-1] != layout.block or shape[d] != -(-extent // layout.block):
            raise VerifyException(f"x is {self.x.type}; {layout} with {extent} elements is expected")
        return [tensor((*shape[:d], extent, *shape[d + 1 : -1]), element_type_of(self.x.type))]

    def evaluate(self, *arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        return [self.layout.data.unpack(arrays[0], shape_of(self.y.type))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        shape, layout = shape_of(self.x.type), self.layout.data
        if not layout.block:
            return [self.x]
        d, last = layout.dim, len(shape) - 1
        x = calls.transpose(b, self.x, [*range(d + 1), last, *range(d + 1, last)])
        x = calls.reshape(b, x, (*shape[:d], shape[d] * layout.block, *shape[d + 1 : last]))
        return [calls.slice_dim(b, x, d, 0, self.extent)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [calls.insert(b, PackOp(grads[0], layout=self.layout))]
