"""Activation memory: the tensors of the forward pass that a program keeps until gradients have read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from populus.dialects.data import ConstantOp
from populus.dialects.signature import input_names, output_names
from populus.dialects.support.diagnostics import where
from populus.dialects.support.element_types import value_bytes


@dataclass(frozen=True)
class SavedTensor:
    """A tensor of the forward pass that gradients read. `readers`: the ops whose gradients read it."""

    name: str
    bytes: int
    readers: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All tensors kept. `default_bytes`: the bytes if every op's gradient read all its operands and results."""

    kept: tuple[SavedTensor, ...]
    default_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of all tensors kept."""
        return sum(k.bytes for k in self.kept)

    def __str__(self) -> str:
        lines = [f"{k.name}: {k.bytes} bytes, read by {', '.join(k.readers)}" for k in self.kept]
        return "\n".join([*lines, f"{self.bytes} bytes in all; {self.default_bytes} if gradients took all operands and results"])


def activation_report(function: FuncOp, outputs: Iterable[str]) -> Report:
    """Reports the kept tensors of a differentiated function whose own results are `outputs`; the others are
    gradients.
    """
    last = function.body.block.last_op
    assert isinstance(last, ReturnOp), last
    named = dict(zip(output_names(function), last.operands))
    forward = _ancestors(named[name] for name in outputs)
    inputs = dict(zip(function.body.block.args, input_names(function)))
    saved: list[SavedTensor] = []
    values = [*function.body.block.args, *(r for op in function.body.block.ops if op in forward for r in op.results)]
    own = {v for op in forward for v in op.operands} | {r for op in forward for r in op.results}
    for value in values:
        if (isinstance(value, OpResult) and isinstance(value.op, ConstantOp)) or value not in own:
            continue
        readers = [u.operation for u in value.uses if u.operation not in forward and u.operation is not last]
        if readers:
            places = tuple(sorted({where(op) for op in readers}))
            name = where(value.op).strip("'") if isinstance(value, OpResult) else inputs[value]  # pyright: ignore[reportArgumentType]
            saved.append(SavedTensor(name, value_bytes(value), places))
    everything = {v for v in own if not (isinstance(v, OpResult) and isinstance(v.op, ConstantOp))}
    return Report(tuple(saved), sum(map(value_bytes, everything)))


def _ancestors(values: Iterable[SSAValue]) -> set[Operation]:
    """Collects the ops on which values depend."""
    ancestors: set[Operation] = set()
    todo = [v.op for v in values if isinstance(v, OpResult)]
    while todo:
        op = todo.pop()
        if op not in ancestors:
            ancestors.add(op)
            todo += [v.op for v in op.operands if isinstance(v, OpResult)]
    return ancestors
