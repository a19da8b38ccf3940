"""Laws of real numbers, by which element-wise functions have one form: constants are computed, and stand once, as the last operand.

| law | form |
|---|---|
| order and grouping of `add`, `mul`, `max`, `min` | operands in one order; sums in one chain |
| `x^2`, `-x`, `x - y`, `x / c` | `x x`, `x (-1)`, `x + y (-1)`, `x (1 / c)` |
| `(x a) b`, `(x + a) + b`, `(x + a) b` | `x (a b)`, `x + (a + b)`, `x b + a b` for constants a and b |
| `x 1`, `x + 0` | `x` |
| `(sum of x w) c` | `sum of x (w c)` for constants w and c, where c is a function of w's element |

They hold for floats to rounding, and for integers where no division is involved.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from populus.dialects import expr
from populus.dialects.poplar import affine
from populus.dialects.poplar.affine import Map, Set
from populus.proof.memo import Memo
from populus.proof.trees import Apply, Converted, Leaf, Number, Tree, skeleton
from populus.runtime.expr import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.proof.terms import Node, Terms

    Array: TypeAlias = NDArray[Any]

COMMUTATIVE = ("add", "mul", "max", "min")
MOST_ELEMENTS = 1 << 26  # of a constant that a law computes


class Laws:
    """The laws, with the constants of a proof."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self._computed: Memo[Tree | None] = Memo()
        self._multiplied: Memo[Tree | None] = Memo()

    def constant(self, tree: Tree) -> bool:
        """Tells whether a tree is a float constant."""
        if isinstance(tree, Number):
            return type(tree.value) is float
        return isinstance(tree, Leaf) and (array := self.terms.arrays.get(tree.node)) is not None and array.dtype.kind in "fV"

    def applied(self, function: str, args: tuple[Tree, ...], elements: Set) -> Tree:
        """Applies a function on some elements."""
        if args and all(map(self.constant, args)) and (found := self.computed(function, args, elements)) is not None:
            return found
        match function, args:
            case "square", (x,):
                return self.applied("mul", (x, x), elements)
            case "neg", (x,) if self.float(x):
                return self.times(x, Number(-1.0), elements)
            case "sub", (x, y) if self.float(x) or self.float(y):
                return self.plus(x, self.times(y, Number(-1.0), elements), elements)
            case "divide", (x, y) if self.constant(y) and (inverse := self.computed("divide", (Number(1.0), y), elements)) is not None:
                return self.times(x, inverse, elements)
            case "mul", (x, y):
                if self.constant(x):
                    x, y = y, x
                if self.constant(y):
                    return self.times(x, y, elements)
            case "add", (x, y):
                return self.plus(x, y, elements)
            case _:
                pass
        return Apply(function, tuple(sorted(args, key=_order)) if function in COMMUTATIVE else args)

    def float(self, tree: Tree) -> bool:
        """Tells whether a tree is known to be of floats."""
        match tree:
            case Number(value):
                return type(value) is float
            case Leaf(node, _):
                return self.terms.float_node(node)
            case Apply(_, args):
                return any(map(self.float, args))
            case Converted(to, _, _):
                return str(to).startswith(("f", "bf"))

    def plus(self, x: Tree, y: Tree, elements: Set) -> Tree:
        """Adds: one chain of operands in one order, the constant last."""
        terms: list[Tree] = []
        constant: Tree = Number(0.0)
        work = [x, y]
        while work:
            t = work.pop()
            if isinstance(t, Apply) and t.function == "add":
                work += t.args
            elif self.constant(t):
                total = self.computed("add", (constant, t), elements)
                if total is None:
                    terms.append(t)
                else:
                    constant = total
            else:
                terms.append(t)
        if not terms:
            return constant
        terms.sort(key=_order)
        found = terms[0]
        for t in terms[1:]:
            found = Apply("add", (found, t))
        return found if constant == Number(0.0) else Apply("add", (found, constant))

    def times(self, x: Tree, by: Tree, elements: Set) -> Tree:
        """Multiplies by a constant."""
        if by == Number(1.0):
            return x
        if self.constant(x) and (found := self.computed("mul", (x, by), elements)) is not None:
            return found
        match x:
            case Apply("add", (a, b)) if self.constant(b):
                return self.plus(self.times(a, by, elements), self.times(b, by, elements), elements)
            case Apply("mul", (a, b)) if self.constant(b) and (both := self.computed("mul", (b, by), elements)) is not None:
                return self.times(a, both, elements)
            case Leaf(node, at) if (found := self.into_sum(node, at, by)) is not None:
                return found
            case _:
                return Apply("mul", (x, by))

    # -- constants

    def computed(self, function: str, args: tuple[Tree, ...], elements: Set) -> Tree | None:
        """Computes a function of constants: a number, or a new constant over the dimensions that matter. None for too odd a set."""
        if all(isinstance(a, Number) for a in args):
            value = _evaluated(function, [np.float64(a.value) for a in args if isinstance(a, Number)])
            return _number(value) if isinstance(value, float) else Number(value)
        if (shape := affine.shape_of_box(elements)) is None:
            return None
        of = tuple(a.node if isinstance(a, Leaf) else a for a in args)
        maps = tuple(a.at for a in args if isinstance(a, Leaf))
        return self._computed.of((function, of, shape), maps, lambda: self._table(function, args, shape))

    def _table(self, function: str, args: tuple[Tree, ...], shape: tuple[int, ...]) -> Tree | None:
        """Computes a function of constants over a shape: a constant of the dimensions that matter."""
        used = [d for d in range(len(shape)) if any(isinstance(a, Leaf) and affine.depends_on(a.at, d) for a in args)]
        sizes = [shape[d] for d in used]
        if math.prod(sizes) > MOST_ELEMENTS or 0 in shape:
            return None
        grid = np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij", sparse=True)
        columns = [grid[used.index(d)] if d in used else np.zeros((), np.int64) for d in range(len(shape))]
        arrays = [self.values(a, columns) for a in args]
        value = _evaluated(function, arrays)
        if np.asarray(value).dtype == bool:
            return None
        flat = np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float64), sizes)).reshape(-1)
        rounding = max((self.terms.rounding[a.node] for a in args if isinstance(a, Leaf)), default=0.0)
        node = self.terms.constant(flat, rounding)
        if (number := self.terms.uniform.get(node)) is not None:
            return number
        i, place, step = affine.names("i", len(shape)), ["0"], 1
        for d in reversed(used):
            place.append(f"{step}*i{d}")
            step *= shape[d]
        return Leaf(node, affine.read_map(f"{{ [{', '.join(i)}] -> [{' + '.join(place)}] : {affine.within(i, shape)} }}"))

    def values(self, tree: Tree, columns: list[Array]) -> Array:
        """Gives the numbers of a constant at many indices."""
        if isinstance(tree, Number):
            return np.float64(tree.value) * np.ones(())
        assert isinstance(tree, Leaf), tree
        return self.terms.arrays[tree.node].astype(np.float64)[affine.values(tree.at, columns)]

    def into_sum(self, number: int, at: Map, by: Tree) -> Tree | None:
        """Multiplies the constants in a sum of products by a constant; None if there are other products in it, or no such sum."""
        node = self.terms.nodes[number]
        if node.kind != "add" or node.params or not node.parts:
            return None
        maps = (at, by.at) if isinstance(by, Leaf) else (at,)
        return self._multiplied.of((number, by.node if isinstance(by, Leaf) else by), maps, lambda: self._multiply(node, at, by))

    def _multiply(self, node: Node, at: Map, by: Tree) -> Tree | None:
        parts: list[tuple[tuple[int, ...], Map]] = []
        for ids, relation in zip(node.parts, node.maps):
            places = [k for k, i in enumerate(ids) if i in self.terms.arrays]
            if len(places) != 1 or len(ids) != 2:
                return None
            [k] = places
            array = self.terms.arrays[ids[k]].astype(np.float64)
            if isinstance(by, Number):
                scaled = array * by.value
            else:
                assert isinstance(by, Leaf), by
                skip = sum(self.terms.nodes[i].elements.n_dim() for i in ids[:k])
                own = affine.coordinates(relation, skip, 1)  # index of the sum -> element of the constant
                factor = own.reverse().apply_range(at.reverse()).apply_range(by.at)
                if not factor.is_single_valued():
                    return None
                found = affine.values(factor, [np.arange(array.size)])
                scaled = array * np.where(found >= 0, self.terms.arrays[by.node].astype(np.float64)[found], 0.0)
            rounding = self.terms.rounding[ids[k]]
            if isinstance(by, Leaf):
                rounding = max(rounding, self.terms.rounding[by.node])
            new = self.terms.constant(np.ascontiguousarray(scaled), rounding)
            parts.append((tuple(new if j == k else i for j, i in enumerate(ids)), relation))
        [piece] = self.terms.total("add", node.elements, parts)
        assert isinstance(piece.tree, Leaf)
        return Leaf(piece.tree.node, at.apply_range(piece.tree.at))


def _order(tree: Tree) -> str:
    return repr(skeleton(tree))


def _evaluated(function: str, arrays: list[Any]) -> Any:
    args = [expr.Arg(i + 1) for i in range(len(arrays))]
    with np.errstate(all="ignore"):
        found = evaluate(expr.call(function, *args), [np.asarray(a, np.float64) for a in arrays])
    return found if found.ndim else found[()].item()


def _number(value: float) -> Number:
    return Number(value)
