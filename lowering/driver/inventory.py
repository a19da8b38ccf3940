"""What a model needs, node by node, and whether it is there: the table of `populus check`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from populus.dialects.data import ConstantOp, constant
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.structure import CustomOp
from populus.dialects.onnx.types import SequenceType, UnknownType, as_tensor, is_static, spelled, string
from populus.dialects.support.diagnostics import PopulusError, place
from populus.dialects.texts import handles
from populus.lowering.onnx.custom_ops import NO_CUSTOMS, Customs
from populus.lowering.onnx.host_ops import check_strings, function_of, handled, is_text
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.onnx.infer_shapes import bind_dims
from populus.lowering.onnx.inference import Inference, set_type
from populus.lowering.onnx.to_popart import Converter

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Row:
    """One node of a model."""

    node: str
    op_type: str
    domain: str  # "" for ONNX's own
    opset: int  # the opset that brought this version of the op
    dtype: str  # of its first tensor input, as ONNX spells it
    status: str  # "tile", "host" or "missing"
    reason: str  # why it is missing, or what the host does; else ""


def inventory(model: str | os.PathLike[str] | ModelProto, *, dims: Mapping[str, int] = {}, customs: Customs = NO_CUSTOMS) -> list[Row]:
    """A row for each node, in order. Each is typed and converted by itself: what fails says why.

    Dimensions that `dims` leaves open are taken to be 1. A node that reads what a missing node gives may not be judged; it counts as
    missing then, with that reason. Raises PopulusError if the model cannot be read at all.
    """
    module = import_onnx(model, dims=dims, customs=_Any())
    return [row for function in module.ops if isinstance(function, FuncOp) for row in _Survey(function, customs).rows()]


class _Any:
    """The custom ops of every domain: whether one is defined is judged for each node."""

    surveys = True

    def __contains__(self, key: object) -> bool:
        return True


class _Survey:
    """The walk over one function."""

    def __init__(self, function: FuncOp, customs: Customs):
        bind_dims(function, {}, default=1)
        self.block = function.body.block
        self.customs = customs
        self.inference = Inference(customs)

    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for op in list(self.block.ops):
            if isinstance(op, OnnxOp | CustomOp):
                row = _row(op)
                if isinstance(op, OnnxOp) and (function := self.host(op)):
                    rows.append(Row(*row, "host", function))
                    continue
                reason = self.reason(op)
                rows.append(Row(*row, "missing" if reason else "tile", reason))
        return rows

    def host(self, op: OnnxOp) -> str:
        """The host function that an op is; "" if it is none, or does not fit its inputs."""
        name = function_of(op)
        if name is None:
            return ""
        try:
            self.inference.placed_operation(op)
        except PopulusError as error:
            if "the size of its result depends" not in str(error):
                return ""
            # What decides it arrives with the inputs.
            x = as_tensor(op.operands[0].type)
            shape = () if x is None else x.get_shape()
            sizes = {"image.decode": [(1, 1, 3)], "text.split": [(*shape, 1), shape], "text.normalize": [shape]}.get(name, [])
            for result, size in zip(list(op.results), sizes):
                if (type := as_tensor(result.type)) is not None or isinstance(result.type, UnknownType):
                    set_type(result, TensorType(string if type is None else type.element_type, size))
        return name

    def reason(self, op: OnnxOp | CustomOp) -> str:
        """Why an op cannot run; "" if it can."""
        if isinstance(op, OnnxOp):
            try:
                check_strings(op)
            except PopulusError as error:
                return str(error).removeprefix(f"{place(op.location)}: ")
        if unjudged := [v for v in op.operands if not _judged(v, self.inference)]:
            return f"what it reads, %{unjudged[0].name_hint}, is given by a node that is missing"
        try:
            self.inference.placed_operation(op)
            if op in self.inference.resolved or all(r in self.inference.values for r in op.results):
                return ""
            self.convert(op)
        except PopulusError as error:
            return str(error).removeprefix(f"{place(op.location)}: ")
        return ""

    def convert(self, op: OnnxOp | CustomOp) -> None:
        """Converts a copy of an op whose operands are what is known, in a module of its own. Raises PopulusError."""
        import numpy as np

        scratch = FuncOp("scratch", ([handled(v.type) for v in op.operands], []))
        block = scratch.body.block
        mapper: dict[SSAValue, SSAValue] = dict(zip(op.operands, block.args))
        for value in op.operands:
            known = self.inference.known(value)
            made = value.owner.clone() if isinstance(value.owner, ConstantOp) else None
            if made is None and known is not None:
                made = constant(np.array(handles(scratch, known.reshape(-1)), np.int32).reshape(known.shape) if is_text(value) else known)
            if made is not None:
                block.add_op(made)
                mapper[value] = made.result
        copy = op.clone(mapper)
        for result in list(copy.results):
            set_type(result, handled(result.type))
        block.add_op(copy)
        Converter(self.customs).operation(copy)


def _judged(value: SSAValue, inference: Inference) -> bool:
    return is_static(value.type) or isinstance(value.type, SequenceType) or value in inference.lists


def _row(op: OnnxOp | CustomOp) -> tuple[str, str, str, int, str]:
    node = (place(op.location) or "").strip("'")
    dtype = next((spelled(v.type).removeprefix("tensor(").removesuffix(")") for v in (*op.operands, *op.results)), "")
    if isinstance(op, CustomOp):
        return node, op.op_type.data, op.domain.data, op.version.value.data, dtype
    return node, op.OP_TYPE, op.DOMAIN, op.VERSION, dtype
