"""Trees: the element-wise functions of a term, and the laws of real numbers by which they have one form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from populus.dialects.poplar.affine import Map

if TYPE_CHECKING:
    from xdsl.ir import Attribute


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


# -- arithmetic of real numbers -----------------------------------------------------------------------------------------


def number_of(tree: Tree) -> float | None:
    return tree.value if isinstance(tree, Number) and type(tree.value) is float else None


def simplified(function: str, args: tuple[Tree, ...]) -> Tree:
    """Applies a function. Numbers that change nothing are left out, and a factor that is a number stands once, as the last.

    Laws of real numbers, for float literals only: x^2 = x x, x / c = x (1 / c), c x = x c, (x a) b = x (a b), x 1 = x, x + 0 = x. The order
    of the operands of `add`, `mul`, `max` and `min` is none.
    """
    if function == "square":
        return simplified("mul", (args[0], args[0]))
    if function == "divide" and (c := number_of(args[1])):
        return simplified("mul", (args[0], Number(1 / c)))
    if function == "neg":
        return Apply("neg", args)
    if function == "mul":
        if number_of(args[0]) is not None:
            args = (args[1], args[0])
        if (c := number_of(args[1])) is not None:
            x = args[0]
            if isinstance(x, Apply) and x.function == "mul" and (d := number_of(x.args[1])) is not None:
                x, c = x.args[0], c * d
            if (own := number_of(x)) is not None:
                return Number(rounded(own * c))
            return x if c == 1 else Apply("mul", (x, Number(rounded(c))))
    if function in ("add", "sub") and number_of(args[1]) == 0:
        return args[0]
    if function == "add" and number_of(args[0]) == 0:
        return args[1]
    if function in ("add", "mul", "max", "min") and len(args) == 2:
        args = tuple(sorted(args, key=lambda a: repr(skeleton(a))))
        if number_of(args[0]) is not None:
            args = (args[1], args[0])
    return Apply(function, args)


def rounded(value: float) -> float:
    """Rounds a literal that is the product of others, so that the order in which they were multiplied does not matter."""
    return float(f"{value:.6g}")
