"""An op that is being resolved while compiling: what it reads, and ops that take its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import attribute
from populus.dialects.data import constant
from populus.dialects.onnx.schema import OnnxOp, op_class
from populus.dialects.onnx.structure import YieldOp
from populus.dialects.onnx.types import unknown
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.dynamic_sizes import Bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPSET = 21  # of the ops that stand for what is resolved

Elements = tuple[SSAValue | None, ...]  # None: an element that exists and is not known


class Walk(Protocol):
    """What resolving asks of the walk that it is a part of."""

    lists: dict[SSAValue, Elements]
    values: dict[SSAValue, NDArray[Any]]
    resolved: list[Operation]
    bounded: dict[SSAValue, Bound]
    write_out: int

    def known(self, value: SSAValue) -> NDArray[Any] | None: ...

    def computed(self, value: SSAValue) -> NDArray[Any] | None: ...

    def operation(self, op: Operation) -> None: ...

    def placed_operation(self, op: Operation) -> None: ...

    def block(self, block: Block) -> None: ...

    def assign(self, op: Operation, types: list[Attribute]) -> None: ...

    def mark(self, op: OnnxOp, bounds: Mapping[int, Bound]) -> None: ...


class Place:
    """The op that is resolved, and making others in front of it."""

    def __init__(self, op: OnnxOp, walk: Walk):
        self.op = op
        self.walk = walk
        self.inputs = op.inputs

    def input(self, i: int) -> SSAValue:
        value = self.inputs[i]
        assert value is not None, (self.op.name, i)
        return value

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def elements(self, i: int) -> Elements:
        value = self.input(i)
        if value not in self.walk.lists:
            raise PopulusError(f"its input {i} is {value.type}, which is given when the model runs; tiles hold tensors only")
        return self.walk.lists[value]

    def known(self, i: int) -> NDArray[Any] | None:
        return self.walk.computed(self.input(i))

    def gives(self, value: SSAValue | Elements) -> bool:
        """The op's only result is this value, or this sequence."""
        (result,) = self.op.results
        if isinstance(value, tuple):
            self.walk.lists[result] = value
        else:
            self.replace(result, value)
        return True

    def replace(self, result: SSAValue, value: SSAValue) -> None:
        if value in self.walk.lists:
            self.walk.lists[result] = self.walk.lists[value]
        value.name_hint = value.name_hint or result.name_hint
        result.replace_all_uses_with(value)

    def insert(self, op: Operation) -> None:
        assert self.op.parent is not None
        op.location = self.op.location
        self.op.parent.insert_op_before(op, self.op)

    def constant(self, array: NDArray[Any]) -> SSAValue:
        self.insert(op := constant(array))
        return op.result

    def ints(self, *values: int) -> SSAValue:
        import numpy as np

        return self.constant(np.array(values, np.int64))

    def make(self, op_type: str, *inputs: SSAValue, **attributes: int | list[int]) -> SSAValue:
        """The result of another ONNX op, typed."""
        op = op_class("", op_type, OPSET).make(inputs, [unknown], {name: attribute(value) for name, value in attributes.items()})
        return self.made(op)[0]

    def made(self, op: OnnxOp) -> list[SSAValue]:
        """The results of an op that is put in place, typed."""
        self.insert(op)
        marker = YieldOp(*op.results)  # typing an op replaces its results; what reads them is kept up to date
        self.insert(marker)
        self.walk.operation(op)
        results = list(marker.operands)
        marker.detach()
        marker.erase()
        return results

    def inline(self, region: Region, arguments: Sequence[SSAValue]) -> list[SSAValue]:
        """A copy of a region's ops with these arguments in front of the op; what it yields."""
        block = region.block
        if len(block.args) != len(arguments):
            raise PopulusError(f"its body takes {len(block.args)} inputs and is given {len(arguments)}")
        mapper: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments))
        copies = [op.clone(mapper) for op in block.ops]
        assert self.op.parent is not None
        for copy in copies:
            self.op.parent.insert_op_before(copy, self.op)
        *body, end = copies
        assert isinstance(end, YieldOp), end
        for copy in body:
            self.walk.placed_operation(copy)
        results = list(end.operands)
        end.detach()
        end.erase()
        return results

    def typed(self, region: Region, arguments: Sequence[Attribute], known: Mapping[int, NDArray[Any]]) -> Region:
        """A copy of a region whose arguments have these types, and all that follows from them. `known`: values of arguments."""
        if len(region.block.args) != len(arguments):
            raise PopulusError(f"its body takes {len(region.block.args)} inputs and is given {len(arguments)}")
        copy = region.clone()
        for argument, type in zip(list(copy.block.args), arguments):
            Rewriter.replace_value_with_new_type(argument, type)
        self.walk.values.update({copy.block.args[i]: array for i, array in known.items()})
        self.walk.block(copy.block)
        return copy

    def keep(self, regions: Mapping[str, Region], types: Sequence[Attribute], bounded: Mapping[int, int] | None = None) -> None:
        """The op stays, with typed regions. `types`: of all its outputs. `bounded`: along which axis the data say how much is valid."""
        for name, typed in regions.items():
            region = self.op.region(name)
            for block in list(region.blocks):
                region.erase_block(block, safe_erase=False)
            typed.move_blocks(region)
        self.walk.assign(self.op, [t for o, t in zip(self.op.outputs, types) if o is not None])
        self.walk.mark(self.op, {i: Bound(axis, self.op) for i, axis in (bounded or {}).items()})

    def either(self, first: Callable[[], bool], second: Callable[[], bool], reason: int = 0) -> bool:
        """What `first` gives; if it cannot, nothing of it stays, and it is what `second` gives.

        `reason`: whose error is raised if neither can, that of the first (0) or the second.
        """
        before, resolved = self.op.prev_op, len(self.walk.resolved)
        try:
            return first()
        except (PopulusError, VerifyException) as error:
            del self.walk.resolved[resolved:]
            while (made := self.op.prev_op) is not before:
                assert made is not None
                made.detach()
                made.erase(safe_erase=False)
            try:
                return second()
            except (PopulusError, VerifyException):
                if reason == 0:
                    raise error from None
                raise


def alike(values: Sequence[SSAValue | None]) -> list[SSAValue]:
    """The values, which have one type. Raises PopulusError if not."""
    found = [there(v) for v in values]
    if len(types := {v.type for v in found}) > 1:
        texts = ", ".join(sorted(map(str, types)))
        raise PopulusError(f"a position that is known only when the model runs chooses among {texts}; tiles need one type")
    return found


def there(value: SSAValue | None) -> SSAValue:
    if value is None:
        raise PopulusError("the element that is read has a size that is known only when the model runs")
    return value


Rules: TypeAlias = "Mapping[str, Callable[[Place], bool]]"
"""What resolves an op of each type: False where it stays, typed if it has subgraphs."""
