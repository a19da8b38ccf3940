"""Values that are replaced together: an op that reads many of them gets its operands once, as xDSL copies all for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue


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
