"""Formula of connected element-wise ops, as a normal form over their common operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsl.ir import Operation, SSAValue

from populus.dialects.popart import AddOp, DivOp, ElementwiseOp, MulOp, NegOp, SubOp
from populus.lowering.popart.patterns.normal_form import NoNormalForm, Polynomial, leaf, normal_form, number
from populus.lowering.popart.rewriting import made_by, scalar

DEEPEST = 16  # element-wise ops: an exporter's decomposition of an activation or norm has fewer


class Formulas:
    """Normal forms of values in terms of leaves.

    `leaves`: the values that are operands, by number. A value that no element-wise op produces becomes a leaf
    when visited.
    """

    def __init__(self, root: Operation, *leaves: SSAValue):
        self.root = root
        self.leaves = list(leaves)
        self.known: dict[SSAValue, Polynomial] = {v: leaf(i) for i, v in enumerate(leaves)}
        self.ops: dict[Operation, None] = {}
        self.begun = 0

    def of(self, value: SSAValue) -> Polynomial:
        """Computes the normal form of a value. Raises NoNormalForm."""
        if value not in self.known:
            self.known[value] = self._found(value)
        return self.known[value]

    def _found(self, value: SSAValue) -> Polynomial:
        if (literal := scalar(value)) is not None:
            return number(literal)
        op = made_by(value, ElementwiseOp, self.root)
        if op is None:
            self.leaves.append(value)
            return leaf(len(self.leaves) - 1)
        if self.begun >= DEEPEST:  # counted before the recursion: a chain may be long
            raise NoNormalForm
        self.begun += 1
        operands = {i: self.of(o) for i, o in enumerate(op.operands, 1)}
        self.ops[op] = None
        return normal_form(op.formula(), operands)


def between(root: ElementwiseOp, x: SSAValue) -> list[Operation] | None:
    """Lists the element-wise ops that compute the root's result from `x` and literals; None if there are others, or more than DEEPEST."""
    found: dict[Operation, None] = {}
    waiting: list[SSAValue] = [root.y]
    while waiting:
        value = waiting.pop()
        if value is x or scalar(value) is not None:
            continue
        op = made_by(value, ElementwiseOp, root)
        if op is None or len(found) >= DEEPEST:
            return None
        if op not in found:
            found[op] = None
            waiting.extend(op.operands)
    return list(found)


def sources(root: ElementwiseOp) -> Iterator[SSAValue]:
    """Yields the values of the root's type on which it depends through element-wise ops, the nearest first."""
    seen: dict[SSAValue, None] = dict.fromkeys(root.operands)
    waiting = list(seen)
    while waiting and len(seen) <= DEEPEST:
        value = waiting.pop(0)
        if value.type == root.y.type and scalar(value) is None:
            yield value
        op = made_by(value, ElementwiseOp, root)
        if op is not None:
            fresh = [o for o in op.operands if o not in seen]
            seen.update(dict.fromkeys(fresh))
            waiting.extend(fresh)


ARITHMETIC = (AddOp, SubOp, MulOp, DivOp, NegOp)


def has_function(root: ElementwiseOp) -> bool:
    """Tells whether an op that is more than arithmetic computes the root's result, among the nearest DEEPEST element-wise ops.

    It looks at classes alone, so an op in a long chain of sums and products costs little.
    """
    seen: dict[ElementwiseOp, None] = {root: None}
    waiting = [root]
    while waiting:
        op = waiting.pop(0)
        if not isinstance(op, ARITHMETIC):
            return True
        makers = (made_by(o, ElementwiseOp, root) for o in op.operands)
        fresh = [maker for maker in makers if maker is not None and maker not in seen]
        seen.update(dict.fromkeys(fresh))
        if len(seen) <= DEEPEST:
            waiting.extend(fresh)
    return False


def private(ops: Iterable[Operation], root: Operation) -> bool:
    """Tells whether the results of all these ops, except the root, have no uses outside them."""
    inside = set(ops)
    return all(use.operation in inside for op in inside if op is not root for r in op.results for use in r.uses)
