"""Tables of the rows that graphs load and store, whose number is known when the whole program is.

While graphs are built, a table has more rows than any machine could hold, another number for each stream; `with_rows` puts the true
numbers in.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from populus.dialects.support.element_types import element_type_of, shape_of, tensor

_MARK = 1 << 40


def row_mark(number: int) -> int:
    """Gives what stands for the number of rows of a stream, by the stream's number."""
    return _MARK + number


def buffer_mark(number: int) -> int:
    """Gives what stands for the number of rows of a remote buffer, by its number."""
    return 2 * _MARK + number


def with_rows(module: ModuleOp, rows: Mapping[int, int]) -> ModuleOp:
    """Gives the module with the number of rows in place of each mark."""

    def is_tensor(type: Attribute) -> bool:
        return isinstance(type, TensorType)

    def changed(type: Attribute) -> Attribute:
        sizes = shape_of(type) if is_tensor(type) else ()
        return tensor((rows[sizes[0]], *sizes[1:]), element_type_of(type)) if sizes and sizes[0] in rows else type

    for op in list(module.walk()):
        values = [*op.results, *(a for region in op.regions for block in region.blocks for a in block.args)]
        for value in values:
            if (type := changed(value.type)) != value.type:
                Rewriter.replace_value_with_new_type(value, type)
        if isinstance(op, FuncOp):
            inputs, outputs = op.function_type.inputs.data, op.function_type.outputs.data
            op.function_type = FunctionType.from_lists([changed(t) for t in inputs], [changed(t) for t in outputs])
    return module
