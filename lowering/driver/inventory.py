"""Inventory of a model: one row for each node, saying whether it runs on tiles or the host, or is missing
(`populus check`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import ConstantOp, constant
from populus.dialects.onnx.protos import has_function
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.structure import CustomOp
from populus.dialects.onnx.types import SequenceType, UnknownType, as_tensor, is_static, spelled, string
from populus.dialects.signature import input_names
from populus.dialects.signature.string_table import handles
from populus.dialects.support.diagnostics import PopulusError, between, place
from populus.lowering.onnx.custom_ops import NO_CUSTOMS, Customs
from populus.lowering.onnx.dynamic_sizes import reads_sizes
from populus.lowering.onnx.host_ops import CUSTOM, FUNCTIONS, SizeUnknown, check_strings, function_of, handled, is_text
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.onnx.importer.build import ANY_OP, MISSING
from populus.lowering.onnx.infer_shapes import bind_dims
from populus.lowering.onnx.inference import set_type
from populus.lowering.onnx.shape_inputs import deciding_inputs
from populus.lowering.onnx.structure import RULES as RESOLVED
from populus.lowering.onnx.to_popart import RULES, Converter

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    from populus.lowering.onnx.importer.opened import OpenedModel


@dataclass(frozen=True)
class Row:
    """One node of a model."""

    node: str
    op_type: str
    domain: str  # "" for ONNX's own domain
    opset: int  # the opset that introduced this version of the op
    dtype: str  # element type of the first tensor operand, in ONNX's spelling
    status: str  # "tile", "host" or "missing"; in `arriving` also "open"
    reason: str  # the reason for "missing" or "open", or the name of the host function; else ""


def inventory(model: str | os.PathLike[str] | ModelProto, *, dims: Mapping[str, int] = {}, customs: Customs = NO_CUSTOMS) -> list[Row]:
    """Makes a row for each node, in order. Each node is typed and converted alone; a failure is the row's
    reason.

    Dimensions that `dims` does not bind are taken to be 1. A node that reads a result of a missing node may
    not be typeable; it is then missing too, with that reason. Raises PopulusError if the model is not
    readable at all.
    """
    return surveyed(model, dims, customs, {})[0]


def surveyed(
    model: str | os.PathLike[str] | ModelProto | OpenedModel, dims: Mapping[str, int], customs: Customs, values: Mapping[str, NDArray[Any]]
) -> tuple[list[Row], bool]:
    """Makes the rows as `inventory`, with inputs that are constants, and tells whether a node is missing for its sizes.

    Raises PopulusError if the model is not readable at all.
    """
    module = import_onnx(model, dims=dims, customs=ANY_OP, values=values)
    surveys = [_Survey(function, customs) for function in module.ops if isinstance(function, FuncOp)]
    rows = [row for survey in surveys for row in survey.rows()]
    return rows, any(survey.sized for survey in surveys)


def arriving(model: ModelProto) -> list[Row]:
    """Makes the rows of a model whose inputs bring open sizes, structure, and values that decide shapes.

    A node is `open` if it fails without these inputs and depends on them. It is `missing` if no input can
    help. Raises PopulusError if the model is not readable at all.
    """
    module = import_onnx(model, customs=ANY_OP)
    deciding = deciding_inputs(model, structural=True)
    return [row for function in module.ops if isinstance(function, FuncOp) for row in _Survey(function, NO_CUSTOMS, deciding).rows()]


class _Survey:
    """Survey of one function.

    `deciding`: the names of the inputs whose values are known only at run time; None: there are none.
    """

    def __init__(self, function: FuncOp, customs: Customs, deciding: Sequence[str] | None = None):
        self.open = set[SSAValue]()  # values that depend on run-time inputs
        self.sized = False  # a node is missing that other sizes may help
        awaited: list[int] = []
        if deciding is not None:
            named = zip(function.body.block.args, input_names(function))
            awaited = [i for i, (a, name) in enumerate(named) if name in deciding or not is_static(a.type) or as_tensor(a.type) is None]
        bind_dims(function, {}, default=1, tensors=deciding is None)
        self.block = function.body.block
        self.open |= {self.block.args[i] for i in awaited}
        self.customs = customs
        self.inference = Converter(customs).inference

    def rows(self) -> list[Row]:
        """Makes a row for each node of the function, in order."""
        return [self.row(op) for op in list(self.block.ops) if isinstance(op, OnnxOp | CustomOp)]

    def row(self, op: OnnxOp | CustomOp) -> Row:
        """Types and converts one node, and makes its row."""
        row = _row(op)
        waits = any(v in self.open for inner in op.walk() for v in inner.operands)
        before = op.prev_op
        if function := self.host(op):
            status, reason = "host", function
        else:
            reason = self.unfit(op) or self.reason(op)
            status = "missing" if reason else "tile"
            self.sized |= bool(reason) and not self.unfit(op) and all(map(self.ruled, op.walk())) and all(map(self.judged, op.operands))
            if reason and waits and not self.unfit(op) and all(map(self.ruled, op.walk())):
                status = "open"
        if waits:  # also the results of ops inserted in its place
            for made in (*between(self.block, before, op), op):
                self.open.update(made.results)
        return Row(*row, status, reason)

    def ruled(self, op: Operation) -> bool:
        """Tells whether a rule exists for this kind of op, so that it can run for some inputs."""
        if isinstance(op, CustomOp):
            return (op.domain.data, op.op_type.data) in {**self.customs, **CUSTOM} and MISSING not in op.attributes
        if not isinstance(op, OnnxOp):
            return True
        name = f"{op.DOMAIN}.{op.OP_TYPE}" if op.DOMAIN else op.OP_TYPE
        return name in RULES or name in RESOLVED or name in FUNCTIONS or name in ("Shape", "Size") or has_function(op)

    def host(self, op: OnnxOp | CustomOp) -> str:
        """Returns the host function that computes an op; "" if there is none, or it does not accept the op's
        operands.
        """
        name = function_of(op)
        if name is None:
            return ""
        try:
            self.inference.operation(op)
        except SizeUnknown:  # the deciding value is a run-time input
            x = as_tensor(op.operands[0].type)
            shape = () if x is None else x.get_shape()
            sizes = {"image.decode": [(1, 1, 3)], "text.split": [(*shape, 1), shape], "text.normalize": [shape]}.get(name, [])
            sizes = [(*shape, 1)] if name == "text.tokenize" else sizes
            for result, size in zip(list(op.results), sizes):
                if (type := as_tensor(result.type)) is not None or isinstance(result.type, UnknownType):
                    set_type(result, TensorType(string if type is None else type.element_type, size))
        except (PopulusError, VerifyException):
            return ""
        return name

    def unfit(self, op: OnnxOp | CustomOp) -> str:
        """Returns the reason why an op cannot run for any operands; "" if there is none."""
        if isinstance(op, CustomOp):
            return why.data if isinstance(why := op.attributes.get(MISSING), StringAttr) else ""
        try:
            check_strings(op)
        except PopulusError as error:
            return str(error).removeprefix(f"{place(op.location)}: ")
        return ""

    def reason(self, op: OnnxOp | CustomOp) -> str:
        """Returns the reason why an op cannot run for what is known of its operands; "" if it can."""
        if unjudged := [v for v in op.operands if not self.judged(v)]:
            return f"its operand %{unjudged[0].name_hint} is the result of a missing node"
        before = op.prev_op
        try:
            self.inference.placed_operation(op)
            if op in self.inference.resolved:
                for made in between(self.block, before, op):
                    if isinstance(made, OnnxOp | CustomOp) and made not in self.inference.resolved:
                        self.convertible(made)
                return ""
            self.convertible(op)
        except PopulusError as error:
            return str(error).removeprefix(f"{place(op.location)}: ")
        return ""

    def convertible(self, op: OnnxOp | CustomOp) -> None:
        """Raises PopulusError if a typed op cannot be converted."""
        known = all(r in self.inference.values for r in op.results)
        # An op that reads sizes was converted to find its type.
        if not known and not (isinstance(op, OnnxOp) and reads_sizes(op, self.inference.valid)):
            self.convert(op)

    def judged(self, value: SSAValue) -> bool:
        """Tells whether the type of a value is known, so that its readers can be judged."""
        return is_static(value.type) or isinstance(value.type, SequenceType) or value in self.inference.lists

    def convert(self, op: OnnxOp | CustomOp) -> None:
        """Converts a copy of an op with its known operands, in a scratch function. Raises PopulusError if that
        fails.
        """
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


def _row(op: OnnxOp | CustomOp) -> tuple[str, str, str, int, str]:
    node = (place(op.location) or "").strip("'")
    dtype = next((spelled(v.type).removeprefix("tensor(").removesuffix(")") for v in (*op.operands, *op.results)), "")
    if isinstance(op, CustomOp):
        return node, op.op_type.data, op.domain.data, op.version.value.data, dtype
    return node, op.OP_TYPE, op.DOMAIN, op.VERSION, dtype
