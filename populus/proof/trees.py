"""Trees: the element-wise functions of a term."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from populus.dialects.expr import FUNCTIONS
from populus.dialects.poplar.affine import Map, Set

if TYPE_CHECKING:
    from xdsl.ir import Attribute


T = TypeVar("T")


class Leaf(NamedTuple):
    """An element of a node: `at` maps the index of the piece's element to the node's."""

    node: int
    at: Map


class Number(NamedTuple):
    """A literal."""

    value: float | int | bool


class Apply(NamedTuple):
    """A function of elements."""

    function: str
    args: tuple[Tree, ...]


class Converted(NamedTuple):
    """An element converted to another type; with `bits`, its bits taken for one."""

    type: Attribute
    bits: bool
    x: Tree


Tree: TypeAlias = "Leaf | Number | Apply | Converted"
Skeleton: TypeAlias = "tuple[object, ...]"


@dataclass(frozen=True)
class Piece:
    """Elements of one form."""

    elements: Set
    tree: Tree

    @cached_property
    def form(self) -> Skeleton:
        """The tree without its maps."""
        return skeleton(self.tree)

    @cached_property
    def ends(self) -> tuple[list[float], list[float]]:
        """The first and the last place in each dimension."""
        x, dims = self.elements, range(self.elements.n_dim())
        firsts, lasts = [x.dim_min_val(d) for d in dims], [x.dim_max_val(d) for d in dims]
        return [v.to_python() if v.is_int() else -inf for v in firsts], [v.to_python() if v.is_int() else inf for v in lasts]


Pieces: TypeAlias = "list[Piece]"


def leaves(tree: Tree) -> Iterator[Leaf]:
    """Yields the leaves of a tree, in order."""
    match tree:
        case Leaf():
            yield tree
        case Apply(_, args):
            for a in args:
                yield from leaves(a)
        case Converted(_, _, x):
            yield from leaves(x)
        case Number():
            pass


class Folded(Generic[T]):
    """A fact of a tree by those of its operands: of a tree that stands in another it is known. It keeps the trees, by their ids."""

    def __init__(self, make: Callable[[Tree, Sequence[T]], T]) -> None:
        self._make = make
        self._found: dict[int, tuple[Tree, T]] = {}

    def of(self, tree: Tree) -> T:
        """Returns the fact of a tree."""
        match tree:
            case Apply(_, args):
                operands = args
            case Converted(_, _, x):
                operands = (x,)
            case _:
                return self._make(tree, ())
        if (found := self._found.get(id(tree))) is None:
            found = self._found[id(tree)] = (tree, self._make(tree, [self.of(x) for x in operands]))
        return found[1]


def size(tree: Tree, operands: Sequence[int]) -> int:
    """Counts the leaves and literals of a tree, each part that it shares as often as it stands there."""
    return 1 if isinstance(tree, Leaf | Number) else sum(operands)


def skeleton(tree: Tree) -> Skeleton:
    """Gives a tree without its maps, to compare."""
    match tree:
        case Leaf(node, _):
            return ("leaf", node)
        case Apply(function, args):
            return (function, *(skeleton(a) for a in args))
        case Converted(to, bits, x):
            return ("as", str(to), bits, skeleton(x))
        case Number(value):
            return ("number", type(value).__name__, repr(value))


def float_name(element: str) -> bool:
    """Tells whether the name of an element type is one of floats."""
    return element.startswith(("f", "bf"))


def float_result(function: str, operands: Sequence[bool]) -> bool:
    """Tells whether a function's result is known to be a float. `operands`: whether each operand is."""
    return FUNCTIONS[function].result != "bool" and any(operands[:2] if function == "select" else operands)


def form(tree: Tree, constants: Container[int]) -> Skeleton:
    """Gives a tree without its maps and without the values of float constants."""
    match tree:
        case Leaf(node, _):
            return ("leaf", CONSTANT if node in constants else node)
        case Apply(function, args):
            return (function, *(form(a, constants) for a in args))
        case Converted(to, bits, x):
            return ("as", str(to), bits, form(x, constants))
        case Number(value):
            return ("number", "float") if type(value) is float else ("number", type(value).__name__, repr(value))


CONSTANT = -1
"""The place of a constant in a form."""


def numbers(tree: Tree) -> Iterator[float]:
    """Yields the float literals of a tree, in order."""
    match tree:
        case Number(value):
            if type(value) is float:
                yield value
        case Apply(_, args):
            for a in args:
                yield from numbers(a)
        case Converted(_, _, x):
            yield from numbers(x)
        case Leaf():
            pass
