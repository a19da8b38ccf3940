"""Resolution of one op at compile time: the op's inputs, and the ops that take its place."""

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
from populus.lowering.onnx.refused_branches import emptied
from populus.lowering.onnx.valid_sizes import Axes, ValidSizes, record

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPSET = 21  # of the ops that replace a resolved one

Elements = tuple[SSAValue | None, ...]  # None: an element whose size is known only at run time


class TypingWalk(Protocol):
    """The parts of `Inference` that resolving uses."""

    lists: dict[SSAValue, Elements]
    values: dict[SSAValue, NDArray[Any]]
    resolved: list[Operation]
    write_out: int
    valid: ValidSizes

    def known(self, value: SSAValue) -> NDArray[Any] | None: ...

    def computed(self, value: SSAValue) -> NDArray[Any] | None: ...

    def operation(self, op: Operation) -> None: ...

    def placed_operation(self, op: Operation) -> None: ...

    def block(self, block: Block) -> None: ...

    def assign(self, op: Operation, types: list[Attribute]) -> None: ...

    def mark(self, op: OnnxOp, lengths: Mapping[int, Bound]) -> None: ...


class Resolution:
    """The op that is resolved, and the insertion point in front of it."""

    def __init__(self, op: OnnxOp, walk: TypingWalk):
        self.op = op
        self.walk = walk
        self.inputs = op.inputs
        self.copies: list[Region] = []

    def input(self, i: int) -> SSAValue:
        """Gives input `i`, which the schema requires."""
        value = self.inputs[i]
        assert value is not None, (self.op.name, i)
        return value

    def has(self, i: int) -> bool:
        """Tells whether input `i` is present."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def elements(self, i: int) -> Elements:
        """Gives the elements of the sequence at input `i`. Raises PopulusError if it is known only at run time."""
        value = self.input(i)
        if value not in self.walk.lists:
            raise PopulusError(f"its input {i} is {value.type}, which arrives when the model runs; tiles hold tensors only")
        return self.walk.lists[value]

    def known(self, i: int) -> NDArray[Any] | None:
        """Gives the array of input `i`, computed if need be; None if it is known only at run time."""
        return self.walk.computed(self.input(i))

    def gives(self, value: SSAValue | Elements) -> bool:
        """Replaces the op's only result by a value, or makes it a sequence of elements. Returns True."""
        (result,) = self.op.results
        if isinstance(value, tuple):
            self.walk.lists[result] = value
        else:
            self.replace(result, value)
        return True

    def replace(self, result: SSAValue, value: SSAValue) -> None:
        """Replaces a result by a value."""
        if value in self.walk.lists:
            self.walk.lists[result] = self.walk.lists[value]
        value.name_hint = value.name_hint or result.name_hint
        result.replace_all_uses_with(value)

    def insert(self, op: Operation) -> None:
        """Inserts an op in front of the resolved one, with its location."""
        assert self.op.parent is not None
        op.location = self.op.location
        self.op.parent.insert_op_before(op, self.op)

    def constant(self, array: NDArray[Any]) -> SSAValue:
        """Inserts a constant."""
        self.insert(op := constant(array))
        return op.result

    def ints(self, *values: int) -> SSAValue:
        """Inserts a constant list of i64."""
        import numpy as np

        return self.constant(np.array(values, np.int64))

    def make(self, op_type: str, *inputs: SSAValue, **attributes: int | list[int]) -> SSAValue:
        """Inserts another ONNX op, typed, and gives its result."""
        op = op_class("", op_type, OPSET).make(inputs, [unknown], {name: attribute(value) for name, value in attributes.items()})
        return self.made(op)[0]

    def made(self, op: OnnxOp) -> list[SSAValue]:
        """Inserts an op, types it, and gives its results."""
        self.insert(op)
        marker = YieldOp(*op.results)  # typing replaces the op's results; the marker's operands follow
        self.insert(marker)
        self.walk.operation(op)
        results = list(marker.operands)
        marker.detach()
        marker.erase()
        return results

    def inline(self, region: Region, arguments: Sequence[SSAValue]) -> list[SSAValue]:
        """Copies a region's ops in front of the op, with `arguments` for its arguments; gives what it yields.

        Raises PopulusError for a wrong number of arguments.
        """
        block = region.block
        if len(block.args) != len(arguments):
            raise PopulusError(f"its body takes {len(block.args)} inputs, the node passes {len(arguments)}")
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

    def typed(
        self,
        region: Region,
        arguments: Sequence[Attribute],
        known: Mapping[int, NDArray[Any]],
        sizes: Mapping[int, Axes] = {},
        symbols: Mapping[int, NDArray[Any]] = {},
    ) -> Region:
        """Copies a region with arguments of these types, and infers the types that follow.

        `known`, `sizes`, `symbols`: values of arguments, their valid sizes, and arguments that are made of sizes, by position.
        Raises PopulusError for a wrong number of arguments.
        """
        if len(region.block.args) != len(arguments):
            raise PopulusError(f"its body takes {len(region.block.args)} inputs, the node passes {len(arguments)}")
        copy = region.clone()
        self.copies.append(copy)
        for argument, type in zip(list(copy.block.args), arguments):
            Rewriter.replace_value_with_new_type(argument, type)
        self.walk.values.update({copy.block.args[i]: array for i, array in known.items()})
        for i, axes in sizes.items():
            self.walk.valid.state(copy.block.args[i], axes)
        self.walk.valid.symbols.update({copy.block.args[i]: array for i, array in symbols.items()})
        resolved = len(self.walk.resolved)
        try:
            self.walk.block(copy.block)
        except (PopulusError, VerifyException):
            del self.walk.resolved[resolved:]
            raise
        return copy

    def drop_copies(self) -> None:
        """Erases the ops of the copies that were not kept, which would stay users of values around the op."""
        for copy in self.copies:
            for block in copy.blocks:
                emptied(block)

    def keep(
        self,
        regions: Mapping[str, Region],
        types: Sequence[Attribute],
        bounded: Mapping[int, int] | None = None,
        sizes: Sequence[Axes] | None = None,
    ) -> None:
        """Keeps the op with typed regions.

        `types`: of all outputs. `bounded`: the axis of each output with a run-time valid length. `sizes`: the valid sizes of the
        outputs of a loop.
        """
        for name, typed in regions.items():
            region = self.op.region(name)
            for block in list(region.blocks):
                region.erase_block(block, safe_erase=False)
            typed.move_blocks(region)
        self.walk.assign(self.op, [t for o, t in zip(self.op.outputs, types) if o is not None])
        alike = self.op.OP_TYPE != "If"  # a loop collects as many rows of each result
        self.walk.mark(self.op, {i: Bound(axis, self.op if alike else i) for i, axis in (bounded or {}).items()})
        if sizes is None:
            self._sized(set(bounded or ()))
            return
        for i, axes in enumerate(sizes):
            if i not in (bounded or ()) and (output := self.op.output(i)) is not None:
                self.walk.valid.state(output, axes)
        record(self.op, self.walk.valid)

    def _sized(self, bounded: set[int]) -> None:
        """Records the sizes of a branch's results, on which its regions agree; those of `bounded` are marked already."""
        yielded = [list(end.operands) for region in self.op.regions if (end := region.block.last_op) is not None]
        valid = self.walk.valid
        if self.op.OP_TYPE != "If" or not any(v in valid.axes for values in yielded for v in values):
            return
        for i, values in enumerate(zip(*yielded)):
            if i not in bounded and (output := self.op.output(i)) is not None:
                valid.state(output, valid.of(values[0]))
        record(self.op, valid)

    def either(self, first: Callable[[], bool], second: Callable[[], bool], reason: int = 0) -> bool:
        """Returns the result of `first`; if it raises, undoes its ops and returns that of `second`.

        `reason`: selects the error that is raised if both fail: that of the first (0) or the second.
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
    """Checks that the values have one type, and gives them. Raises PopulusError otherwise."""
    elements = [there(v) for v in values]
    if len(types := {v.type for v in elements}) > 1:
        texts = ", ".join(sorted(map(str, types)))
        raise PopulusError(f"a position that is known only when the model runs chooses among {texts}; tiles need one type")
    return elements


def there(value: SSAValue | None) -> SSAValue:
    """Gives an element. Raises PopulusError if its size is known only at run time."""
    if value is None:
        raise PopulusError("the element that is read has a size that is known only when the model runs")
    return value


Rules: TypeAlias = "Mapping[str, Callable[[Resolution], bool]]"
"""The function that resolves an op of each type; it returns False for an op that stays, typed if it has subgraphs."""
