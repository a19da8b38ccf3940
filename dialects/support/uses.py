"""Values that are replaced together: an op that reads many of them gets its operands once, as xDSL copies all for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from xdsl.ir import Block, Operation, SSAValue

WIDE = 64  # operands: an op of more gets them together


def replace_uses(pairs: Iterable[tuple[SSAValue, SSAValue]]) -> None:
    """Replaces each first value of some pairs by its second, in all ops. No second value is another pair's first.

    A value without a name gets that of the one that it replaces.
    """
    into = {old: new for old, new in pairs if old is not new}
    assert into.keys().isdisjoint(into.values()), into
    readers: Counter[Operation] = Counter(use.operation for old in into for use in old.uses)
    for reader, count in readers.items():
        if count > 1:
            reader.operands = [into.get(v, v) for v in reader.operands]
    for old, new in into.items():
        old.replace_all_uses_with(new)


class LateUses:
    """Replaces values of a block one after another. Its wide ops get what they read together, when they are settled."""

    def __init__(self, block: Block):
        self.block = block
        self.waiting = dict[Operation, None]()
        self.into = dict[SSAValue, SSAValue]()  # for those that wait
        self.awaited = set[SSAValue]()

    def replace(self, old: SSAValue, new: SSAValue) -> None:
        """Replaces a value in all ops that read few. A value without a name gets that of the one that it replaces."""
        if old is new:
            return
        late = old in self.awaited
        for use in tuple(old.uses):
            if len(use.operation.operands) > WIDE and use.operation.parent is self.block:
                self.waiting[use.operation] = None
                late = True
            else:
                use.operation.operands[use.index] = new
        if late:
            self.into[old] = new
            self.awaited.add(new)
        new.name_hint = new.name_hint or old.name_hint

    @staticmethod
    def erase(op: Operation) -> None:
        """Erases an op whose results are all replaced; an op that waits may still name them."""
        op.detach()
        op.drop_all_references()

    def settle(self, reader: Operation) -> None:
        """Gives an op all its operands, if it waits for them. The work is that of its operands."""
        if reader in self.waiting:
            del self.waiting[reader]
            reader.operands = [self._last(v) for v in reader.operands]

    def settle_all(self) -> None:
        """Gives all ops of the block that wait their operands."""
        for reader in list(self.waiting):
            if reader.parent is self.block:  # else it was erased
                self.settle(reader)
        assert not any(old.uses for old in self.into), self.block

    def _last(self, value: SSAValue) -> SSAValue:
        while value in self.into:
            value = self.into[value]
        return value
