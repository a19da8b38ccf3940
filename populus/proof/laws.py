"""Laws of real numbers, by which element-wise functions have one form: constants are computed, and stand once, as the last operand.

| law | form |
|---|---|
| order of `add`, `mul`, `max`, `min`, `and`, `or`, `equal` | operands in one order; sums and products in one chain |
| `x^2`, `-x`, `x - y` | `x x`, `x (-1)`, `x + y (-1)` |
| `x / y`, `1 / (1 / x)`, `1 / (x y)` | `x (1 / y)`, `x`, `(1 / x) (1 / y)` |
| `sqrt(1 / x)`, `sqrt(x a)` for a number a > 0 | `1 / sqrt(x)`, `sqrt(x) sqrt(a)` |
| `x^(n/4)`, `log1p(x)`, `expm1(x)` | products, square roots and quotients, `log(x + 1)`, `exp(x) - 1` |
| `(x a) b`, `(x + a) + b` | `x (a b)`, `x + (a + b)` for constants a and b |
| `(x + a) b` | `x b + a b` for a constant b that is no number |
| `x 1`, `x + 0` | `x` |
| `log(exp(-abs(x)) + 1) + max(x, 0)`, a number as a boolean | `log(exp(x) + 1)`, `not x = 0` |
| `x a + y b` for numbers a and b | `(x + y (b / a)) a` |
| `select(x, y, true)`, a float as f32 or f64, an iteration's number as i32 or i64 | `x` |
| `sum of x v`, where v is w c for a number or a function of the sum's index, and `sum of x w` was met | `(sum of x w) c` |
| `sum of x v`, where v is a part of w's columns, and `sum of x w` was met | that part of it |

They hold for floats to rounding. The laws of sums and products hold for integers too, which wrap around.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import f32, f64, i1, i32, i64

from populus.dialects import expr
from populus.dialects.poplar import affine, arrays
from populus.dialects.poplar.affine import Map, Set
from populus.dialects.support.element_types import dtype_of
from populus.proof.constants import floating, rounding_of
from populus.proof.memo import Memo
from populus.proof.multiples import alive
from populus.proof.trees import Apply, Converted, Folded, Leaf, Number, Tree, float_name, float_result
from populus.runtime.expr import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xdsl.ir import Attribute

    from populus.proof.nodes import Nodes

    Array: TypeAlias = NDArray[Any]

Place: TypeAlias = tuple[Any, ...]
COMMUTATIVE = ("max", "min", "and", "or", "equal")
WHOLE: Mapping[str, Callable[[int, int], int]] = {"add": operator.add, "mul": operator.mul, "sub": operator.sub}
"""Functions of integers: the same whatever their width, as they wrap around."""
MOST_POWER = 4.0
LEAST = 1e-30  # of a number by which sums are divided
NEAR_ONE = 1e-6  # a factor that is 1 to rounding
FACTORS = ("mul", "divide", "inv", "neg", "sqrt", "rsqrt", "square", "abs", "max", "min")
"""Functions of numbers that are off by a part of themselves, whose results are off by a part of themselves."""
STEP = 2.0**-20
MOST_ELEMENTS = 1 << 26  # of a constant that a law computes
MOST_SHARED = 1 << 16  # of one that it computes beyond a piece


class Laws:
    """The laws, with the constants of a proof."""

    def __init__(self, terms: Nodes):
        self.terms = terms
        self._computed: Memo[Tree | None] = Memo()
        self._floats = Folded(self._float)
        self._places: dict[Hashable, Place] = {}
        self.order = Folded(self._place).of

    def constant(self, tree: Tree) -> bool:
        """Tells whether a tree is a float constant, or an integer."""
        if isinstance(tree, Number):
            return type(tree.value) is not bool
        return isinstance(tree, Leaf) and (array := self.terms.arrays.get(tree.node)) is not None and floating(array.dtype)

    def applied(self, function: str, args: tuple[Tree, ...], elements: Set) -> Tree:
        """Applies a function on some elements."""
        if args and all(map(self.constant, args)) and (found := self.computed(function, args, elements)) is not None:
            return found
        match function, args:
            case "add", (x, y):
                return self.plus(x, y, elements)
            case "mul", (x, y):
                return self.times(x, y, elements)
            case "neg", (x,):
                return self.times(x, Number(-1.0) if self.float(x) else Number(-1), elements)
            case "sub", (x, y):
                return self.plus(x, self.times(y, Number(-1.0) if self.float(x) or self.float(y) else Number(-1), elements), elements)
            case "square", (x,):
                return self.times(x, x, elements)
            case "divide", (x, y) if self.float(x) or self.float(y):
                return self.times(x, self.applied("inv", (y,), elements), elements)
            case "inv", (Apply("inv", (x,)),):
                return x
            case "inv", (Apply("mul", (x, y)),):
                return self.times(self.applied("inv", (x,), elements), self.applied("inv", (y,), elements), elements)
            case "sqrt", (Apply("inv", (x,)),):
                return self.applied("inv", (self.applied("sqrt", (x,), elements),), elements)
            case "sqrt", (Apply("mul", (x, Number(float() as by))),) if by > 0:
                return self.times(self.applied("sqrt", (x,), elements), Number(math.sqrt(by)), elements)
            case "rsqrt", (x,):
                return self.applied("inv", (self.applied("sqrt", (x,), elements),), elements)
            case "log1p", (x,):
                return Apply("log", (self.plus(x, Number(1.0), elements),))
            case "expm1", (x,):
                return self.plus(Apply("exp", (x,)), Number(-1.0), elements)
            case "pow", (x, Number(float() as power)) if (4 * power).is_integer() and 0 < abs(power) <= MOST_POWER:
                return self.power(x, power, elements)
            case "select", (x, y, Number(bool() as holds)):
                return x if holds else y
            case _:
                return Apply(function, tuple(sorted(args, key=self.order)) if function in COMMUTATIVE else args)

    def float(self, tree: Tree) -> bool:
        """Tells whether a tree is known to be of floats."""
        return self._floats.of(tree)

    def _float(self, tree: Tree, operands: Sequence[bool]) -> bool:
        match tree:
            case Number(value):
                return type(value) is float
            case Leaf(node, _):
                return self.terms.float_node(node)
            case Apply(function, _):
                return float_result(function, operands)
            case Converted(to, _, _):
                return float_name(str(to))

    def _place(self, tree: Tree, operands: Sequence[Place]) -> Place:
        """Places a tree in an order that new names of nodes keep, as of what two loops carry. Trees equal but for maps share a place."""
        match tree:
            case Number(value):
                own: Place = (0, type(value).__name__, repr(value))
            case Leaf(node, _):
                own = (1, node)
            case Apply(function, _):
                own = (2, function)
            case Converted(to, bits, _):
                own = (3, str(to), bits)
        return self._places.setdefault((own, *map(id, operands)), (*own, *operands))

    def converted(self, to: Attribute, bits: bool, x: Tree) -> Tree:
        """Converts: a number becomes a number; a float that becomes an f32 or f64 stays as it is, to rounding."""
        self.terms.element_types[str(to)] = to
        if bits:
            return Converted(to, bits, x)
        if to == i1 and not isinstance(x, Number):
            return Apply("not", (Apply("equal", tuple(sorted((x, Number(0.0) if self.float(x) else Number(0)), key=self.order))),))
        self.terms.coarsest = max(self.terms.coarsest, rounding_of(dtype_of(to)))
        if isinstance(x, Number) and (value := number_as(x.value, to)) is not None:
            return Number(value)
        if isinstance(x, Leaf) and (array := self.terms.arrays.get(x.node)) is not None and _computes(array.dtype, dtype_of(to)):
            return Leaf(self.terms.once.of(("converted", str(to)), (array,), lambda: self._converted(x.node, array, to)), x.at)
        counted = isinstance(x, Leaf) and self.terms.nodes[x.node].kind == "turn"
        return x if (counted and to in (i32, i64)) or (to in (f32, f64) and self.float(x)) else Converted(to, bits, x)

    def _converted(self, number: int, array: Array, to: Attribute) -> int:
        with np.errstate(all="ignore"):
            new = np.ascontiguousarray(array.astype(dtype_of(to)))
        if number not in self.terms.computed:
            return self.terms.constant(new)
        return self.terms.made(new, max(self.terms.rounding[number], rounding_of(new.dtype)), self.terms.computed[number])

    def plus(self, x: Tree, y: Tree, elements: Set) -> Tree:
        """Adds: one chain of operands in one order, the constant last. A number by which the first is multiplied is that of the sum."""
        terms: list[tuple[Tree, float]] = []
        constant: Tree | None = None
        work: list[tuple[Tree, float]] = [(x, 1), (y, 1)]
        while work:
            t, factor = work.pop()
            t, own = factored(t)
            factor *= own
            if isinstance(t, Apply) and t.function == "add":
                work += [(a, factor) for a in t.args]
                continue
            if not self.constant(t) or (scaled := self.scaled(t, factor, elements)) is None:
                terms.append((t, factor))
            elif constant is None:
                constant = scaled
            elif (total := self.computed("add", (constant, scaled), elements)) is not None:
                constant = total
            else:
                terms.append((t, factor))
        if not terms:
            assert constant is not None, (x, y)
            return constant
        terms = _softplus(terms, self.order)
        terms.sort(key=lambda term: self.order(term[0]))
        first = terms[0][1]
        if type(first) is not float or not LEAST < abs(first) < 1 / LEAST:
            first = 1
        if constant is not None and first != 1:
            quotient = self.computed("divide", (constant, Number(first)), elements)
            if quotient is None or (not self.finite(quotient) and self.finite(constant)):
                return Apply("add", (x, y))
            constant = quotient
        found = _chain("add", [_multiplied(t, factor if first == 1 else factor / first) for t, factor in terms])
        if constant is not None and constant not in (Number(0.0), Number(0)):
            found = Apply("add", (found, constant))
        return _multiplied(found, first)

    def finite(self, constant: Tree) -> bool:
        """Tells whether all numbers of a constant are finite."""
        if isinstance(constant, Number):
            return math.isfinite(constant.value)
        return isinstance(constant, Leaf) and bool(np.isfinite(self.terms.arrays[constant.node].astype(np.float64)).all())

    def scaled(self, constant: Tree, by: float, elements: Set) -> Tree | None:
        """Multiplies a constant by a number."""
        return constant if by == 1 else self.computed("mul", (constant, Number(by)), elements)

    def times(self, x: Tree, y: Tree, elements: Set) -> Tree:
        """Multiplies: one chain of factors in one order, the number or constant last. Constants go over a sum."""
        factors, constant = self.chained("mul", (x, y), elements)
        if constant is None or not factors:
            return constant or _chain("mul", factors)
        if isinstance(constant, Number):
            return _multiplied(_chain("mul", factors), constant.value)
        match factors:
            case [Apply("add", (a, b))] if self.constant(b):
                return self.plus(self.times(a, constant, elements), self.times(b, constant, elements), elements)
            case _:
                pass
        for factor in factors:
            if isinstance(factor, Leaf) and (rows := alive(self.terms, factor.node)) is not None:  # 0 by any number is 0
                constant = self.computed("mul", (constant, self.terms.moved(rows, factor.at)), elements) or constant
        return Apply("mul", (_chain("mul", factors), constant))

    def chained(self, function: str, operands: tuple[Tree, ...], elements: Set) -> tuple[list[Tree], Tree | None]:
        """Lists the operands of a chain in one order, and computes its constant; None if there is none."""
        found: list[Tree] = []
        constant: Tree | None = None
        work = list(operands)
        while work:
            t = work.pop()
            if isinstance(t, Apply) and t.function == function:
                work += t.args
            elif not self.constant(t):
                found.append(t)
            elif constant is None:
                constant = t
            elif (total := self.computed(function, (constant, t), elements)) is not None:
                constant = total
            else:
                found.append(t)
        return sorted(found, key=self.order), constant

    def power(self, x: Tree, power: float, elements: Set) -> Tree:
        """Raises to a power that is a multiple of 1/4, by products and square roots."""
        if power < 0:
            return self.applied("inv", (self.power(x, -power, elements),), elements)
        root = self.applied("sqrt", (x,), elements)
        factors = [x] * int(power) + [root] * (power % 1 >= 0.5) + [self.applied("sqrt", (root,), elements)] * (power % 0.5 > 0)
        found = factors[0]
        for factor in factors[1:]:
            found = self.times(found, factor, elements)
        return found

    # -- constants

    def computed(self, function: str, args: tuple[Tree, ...], elements: Set) -> Tree | None:
        """Computes a function of constants: a number, or a new constant over the dimensions that matter. None for too odd a set."""
        numbers = [a.value for a in args if isinstance(a, Number)]
        if any(type(n) is int for n in numbers):
            whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
            return Number(WHOLE[function](*whole)) if function in WHOLE and len(whole) == len(args) else None
        if len(numbers) == len(args):
            return Number(_evaluated(function, [np.float64(n) for n in numbers]))
        if (bounds := self.terms.do(affine.bounds_of_box, elements)) is None:
            return None
        of = tuple(a.node if isinstance(a, Leaf) else a for a in args)
        maps = tuple(a.at for a in args if isinstance(a, Leaf))
        key, own = ("shared", bounds, of), [a for a in args if isinstance(a, Leaf)]
        bounds = self.terms.once.of(key, maps, partial(self._shared, bounds, own))
        return self._computed.of((function, of, bounds), maps, lambda: self._table(function, args, bounds))

    def _shared(self, bounds: tuple[range, ...], of: list[Leaf]) -> tuple[range, ...]:
        """Widens a box to all indices for which constants are known, so that the pieces of a tensor share what is computed of them."""
        boxes = [found for x in of if (found := self.terms.do(_known, x.at, self.terms.nodes[x.node].elements)) is not None]
        whole = _in_all(boxes) if len(boxes) == len(of) else bounds
        used = [d for d in range(len(bounds)) if any(self.terms.do(affine.depends_on, x.at, d) for x in of)]
        holds = all(w.start <= b.start and b.stop <= w.stop for b, w in zip(bounds, whole))
        return whole if holds and math.prod(len(whole[d]) for d in used) <= MOST_SHARED else bounds

    def _table(self, function: str, args: tuple[Tree, ...], bounds: tuple[range, ...]) -> Tree | None:
        """Computes a function of constants over a box: a constant of the dimensions that matter."""
        used = [d for d in range(len(bounds)) if any(isinstance(a, Leaf) and self.terms.do(affine.depends_on, a.at, d) for a in args)]
        sizes = [len(bounds[d]) for d in used]
        if math.prod(sizes) > MOST_ELEMENTS:
            return None
        operands = [self.values(a, bounds, tuple(used)) for a in args]
        value = _evaluated(function, operands)
        if np.asarray(value).dtype == bool:
            return None
        flat = np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float64), math.prod(sizes)))
        rounding = max((self.terms.rounding[a.node] for a in args if isinstance(a, Leaf)), default=0.0) or rounding_of(np.dtype(np.float32))
        size = _size(function, operands, [self.values(a, bounds, tuple(used), True) for a in args], value)
        node = self.terms.made(flat, rounding, None if size is None else np.ascontiguousarray(np.broadcast_to(size, flat.size)))
        if (number := self.terms.uniform.get(node)) is not None:
            return number
        i, place, step = affine.names("i", len(bounds)), ["0"], 1
        for d in reversed(used):
            place.append(f"{step}*i{d} - {step * bounds[d].start}")
            step *= len(bounds[d])
        where = " and ".join(f"{r.start} <= {v} < {r.stop}" for v, r in zip(i, bounds)) or "true"
        return Leaf(node, affine.read_map(f"{{ [{', '.join(i)}] -> [{' + '.join(place)}] : {where} }}"))

    def values(self, tree: Tree, bounds: tuple[range, ...], along: tuple[int, ...], sizes: bool = False) -> Array:
        """Gives the numbers of a constant in a box, in row-major order of the dimensions `along`. `sizes`: of what they were computed."""
        if isinstance(tree, Number):
            return np.float64(0 if sizes else tree.value) * np.ones(())
        assert isinstance(tree, Leaf), tree
        array = self.terms.computed.get(tree.node) if sizes else self.terms.arrays[tree.node]
        if array is None:
            return np.zeros(())
        small = math.prod(len(bounds[d]) for d in along) <= MOST_SHARED
        at = self.terms.do(arrays.places, tree.at, bounds, along) if small else arrays.places(tree.at, bounds, along)
        return array.astype(np.float64)[at]


def _softplus(terms: list[tuple[Tree, float]], order: Callable[[Tree], Place]) -> list[tuple[Tree, float]]:
    """Puts `log(exp(x) + 1)` for the two terms of a sum by which it is computed without overflow."""
    for t, factor in terms:
        match t:
            case Apply("log", (Apply("add", (Apply("exp", (Apply("mul", (Apply("abs", (x,)), Number(-1.0))),)), Number(1.0))),)):
                other = (Apply("max", tuple(sorted((x, Number(0.0)), key=order))), factor)
                if other in terms:
                    whole = Apply("log", (Apply("add", (Apply("exp", (x,)), Number(1.0))),))
                    return [(whole, factor), *(term for term in terms if term not in (other, (t, factor)))]
            case _:
                pass
    return terms


def _computes(dtype: np.dtype[Any], to: np.dtype[Any]) -> bool:
    """Tells whether a constant is converted by its numbers: to floats, and of integers to integers, by their lowest bits."""
    return floating(to) or (dtype.kind in "iu" and to.kind in "iu")


def _known(at: Map, elements: Set) -> tuple[range, ...] | None:
    return affine.bounds_of_box(at.intersect_range(elements).domain())


def _in_all(boxes: Sequence[tuple[range, ...]]) -> tuple[range, ...]:
    return tuple(range(max(r.start for r in own), min(r.stop for r in own)) for own in zip(*boxes))


def factored(tree: Tree) -> tuple[Tree, float]:
    """Splits off the number by which a tree is multiplied; 1 if there is none."""
    match tree:
        case Apply("mul", (x, Number(value))):
            return x, value
        case _:
            return tree, 1


def _multiplied(tree: Tree, by: float) -> Tree:
    return tree if by == 1 or math.isclose(by, 1, rel_tol=NEAR_ONE) else Apply("mul", (tree, Number(by)))


def _evaluated(function: str, arrays: list[Any]) -> Any:
    args = [expr.Arg(i + 1) for i in range(len(arrays))]
    with np.errstate(all="ignore"):
        found = evaluate(expr.call(function, *args), [np.asarray(a, np.float64) for a in arrays])
    return found if found.ndim else found[()].item()


def _size(function: str, arrays: list[Array], sizes: list[Array], value: Any) -> Array | None:
    """Gives by how much relative errors of 1 of a function's operands would change its results; None for the results' own size."""
    if function in FACTORS and not any(s.any() for s in sizes):
        return None
    with np.errstate(all="ignore"):
        if function in ("add", "sub"):
            return sum((np.abs(a) + s for a, s in zip(arrays, sizes)), np.zeros(()))
        found = np.zeros(())
        for k, (a, s) in enumerate(zip(arrays, sizes)):
            moved = _evaluated(function, [*arrays[:k], a + STEP * (np.abs(a) + s), *arrays[k + 1 :]])
            found = found + np.abs(moved - value) / STEP
    return np.nan_to_num(found, posinf=0.0)


def _chain(function: str, operands: Sequence[Tree]) -> Tree:
    found = operands[0]
    for t in operands[1:]:
        found = Apply(function, (found, t))
    return found


def number_as(value: float | int | bool, to: Attribute) -> float | int | bool | None:
    """Converts a number to an element type, an integer by its lowest bits; None for a float that the type does not have."""
    dtype = dtype_of(to)
    if floating(dtype):
        with np.errstate(all="ignore"):
            return float(np.float64(value).astype(dtype))
    whole = int(value) if math.isfinite(value) else None
    if dtype.kind not in "iu" or whole is None:
        return None
    wrapped = lowest_bits(whole, dtype)
    return wrapped if wrapped == whole or isinstance(value, int) else None


def lowest_bits(value: int, dtype: np.dtype[Any]) -> int:
    """Gives the integer of a type that has the lowest bits of another."""
    low, count = int(np.iinfo(dtype).min), 1 << (8 * dtype.itemsize)
    return (value - low) % count + low
