"""Normal forms of formulas: equal for different spellings of one function.

A formula is a polynomial of atoms: operands, and functions of polynomials. `x/2 (1 + tanh(c (x + d x^3)))` and
`0.5 x + 0.5 x tanh(c x (1 + d x^2))` have one normal form. `alike` compares two up to the rounding of their
literals. Sums and products are regrouped as in real arithmetic, so equal normal forms are equal functions up to
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import bf16, f16, f32, f64
from xdsl.ir import Attribute

from populus.dialects.expr import Arg, Call, Cast, Const, Expr

MOST_TERMS = 24  # terms of a polynomial: an activation has fewer
ROUNDINGS = 8  # relative difference of literals: one may be a product of several


class NoNormalForm(Exception):
    """The formula has no normal form here: it is too large, or is not a function of numbers."""


@dataclass(frozen=True)
class Leaf:
    """Operand number `index`."""

    index: int


@dataclass(frozen=True)
class Function:
    """A function of polynomials."""

    name: str
    args: tuple[Polynomial, ...]


Atom: TypeAlias = "Leaf | Function"
Powers: TypeAlias = "frozenset[tuple[Atom, int]]"
Polynomial: TypeAlias = "tuple[tuple[Powers, float], ...]"  # products of powers with their coefficients, sorted

ONE: Powers = frozenset()
EPSILON: Mapping[Attribute, float] = {f16: 2.0**-10, bf16: 2.0**-7, f32: 2.0**-23, f64: 2.0**-52}


def leaf(index: int) -> Polynomial:
    """Makes the polynomial of operand number `index`."""
    return ((frozenset({(Leaf(index), 1)}), 1.0),)


def number(value: float) -> Polynomial:
    """Makes a constant polynomial."""
    return ((ONE, value),) if value else ()


def normal_form(e: Expr, operands: Mapping[int, Polynomial]) -> Polynomial:
    """Computes the normal form of an expression over operands with these normal forms. Raises NoNormalForm."""
    match e:
        case Arg(index):
            return operands[index]
        case Const(value):
            if not math.isfinite(value):
                raise NoNormalForm
            return number(float(value))
        case Call(function, args):
            forms = [normal_form(a, operands) for a in args]
            if function in _UNARY:
                return _UNARY[function](forms[0])
            return _BINARY[function](forms[0], forms[1]) if function in _BINARY else applied(function, *forms)
        case _:
            assert isinstance(e, Cast), e
            raise NoNormalForm


def alike(a: Polynomial, b: Polynomial, element: Attribute) -> bool:
    """Tells whether two normal forms are one function, up to the rounding of literals of this element type."""
    return _alike(a, b, ROUNDINGS * EPSILON[element])


def _alike(a: Polynomial, b: Polynomial, tolerance: float) -> bool:
    rest = list(b)
    for powers, factor in a:
        for i, (other, f) in enumerate(rest):
            if math.isclose(factor, f, rel_tol=tolerance) and _alike_powers(powers, other, tolerance):
                del rest[i]
                break
        else:
            return False
    return not rest


def _alike_powers(a: Powers, b: Powers, tolerance: float) -> bool:
    rest = list(b)
    for atom, power in a:
        for i, (other, p) in enumerate(rest):
            if power == p and _alike_atoms(atom, other, tolerance):
                del rest[i]
                break
        else:
            return False
    return not rest


def _alike_atoms(a: Atom, b: Atom, tolerance: float) -> bool:
    if isinstance(a, Function) and isinstance(b, Function):
        return a.name == b.name and len(a.args) == len(b.args) and all(_alike(p, q, tolerance) for p, q in zip(a.args, b.args))
    return a == b


def leaves_of(p: Polynomial) -> set[int]:
    """Collects the numbers of the operands in a normal form."""
    leaves: set[int] = set()
    for powers, _ in p:
        for atom, _ in powers:
            leaves |= {atom.index} if isinstance(atom, Leaf) else set[int]().union(*map(leaves_of, atom.args))
    return leaves


# -- arithmetic ------------------------------------------------------------------------------------------------------


def _collected(terms: Sequence[tuple[Powers, float]]) -> Polynomial:
    total: dict[Powers, float] = {}
    for powers, factor in terms:
        total[powers] = total.get(powers, 0.0) + factor
    if len(total) > MOST_TERMS:
        raise NoNormalForm
    nonzero = [(p, f) for p, f in total.items() if f]
    return tuple(sorted(nonzero, key=lambda term: (len(term[0]), sorted(map(repr, term[0])))))


def add(a: Polynomial, b: Polynomial) -> Polynomial:
    """Adds two polynomials."""
    return _collected((*a, *b))


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """Multiplies two polynomials. Raises NoNormalForm if the product is too large."""
    return _collected([(_joined(p, q), f * g) for p, f in a for q, g in b])


def _joined(a: Powers, b: Powers) -> Powers:
    total = dict(a)
    for atom, power in b:
        total[atom] = total.get(atom, 0) + power
    return frozenset((atom, power) for atom, power in total.items() if power)


def scaled(a: Polynomial, factor: float) -> Polynomial:
    """Multiplies a polynomial by a number."""
    return _collected([(p, f * factor) for p, f in a])


def power(a: Polynomial, exponent: int) -> Polynomial:
    """Raises a polynomial to a whole power; a negative power of a sum is the function `inv`."""
    if exponent < 0:
        return inverse(power(a, -exponent))
    result = number(1.0)
    for _ in range(exponent):
        result = times(result, a)
    return result


def inverse(a: Polynomial) -> Polynomial:
    """Inverts a polynomial. Raises NoNormalForm for zero."""
    if not a:
        raise NoNormalForm
    if len(a) == 1:
        ((powers, factor),) = a
        return ((frozenset((atom, -p) for atom, p in powers), 1 / factor),)
    first = a[0][1]  # the constant term, if there is one
    return ((frozenset({(Function("inv", (scaled(a, 1 / first),)), 1)}), 1 / first),)


def applied(name: str, *args: Polynomial) -> Polynomial:
    """Makes the polynomial of a function call."""
    return ((frozenset({(Function(name, args), 1)}), 1.0),)


def _root(a: Polynomial) -> Polynomial:
    return applied("sqrt", a)


def _value(a: Polynomial) -> float | None:
    """Returns the value of a constant polynomial; None for another."""
    if not a:
        return 0.0
    return a[0][1] if len(a) == 1 and a[0][0] == ONE else None


def _pow(a: Polynomial, b: Polynomial) -> Polynomial:
    exponent = _value(b)
    if exponent is None or abs(exponent) > 8:
        raise NoNormalForm
    if exponent == int(exponent):
        return power(a, int(exponent))
    if 2 * exponent == int(2 * exponent):
        return power(_root(a), int(2 * exponent))
    raise NoNormalForm


def _extreme(name: str) -> Callable[[Polynomial, Polynomial], Polynomial]:
    """Builds `max(c p + d, e)` as `c max(p + d / c, e / c)`, where c > 0 is the first coefficient of a term with
    operands.
    """

    def build(a: Polynomial, b: Polynomial) -> Polynomial:
        if _value(a) is not None:
            a, b = b, a
        bound, first = _value(b), next((f for p, f in a if p != ONE), 0.0)
        if bound is None or first <= 0:
            return applied(name, a, b)
        return scaled(applied(name, scaled(a, 1 / first), number(bound / first)), first)

    return build


def _sigmoid(a: Polynomial) -> Polynomial:
    return inverse(add(number(1.0), applied("exp", scaled(a, -1))))


_UNARY: dict[str, Callable[[Polynomial], Polynomial]] = {
    "inv": inverse,
    "log1p": lambda a: applied("log", add(number(1.0), a)),
    "neg": lambda a: scaled(a, -1),
    "rsqrt": lambda a: inverse(_root(a)),
    "sigmoid": _sigmoid,
    "sqrt": _root,
    "square": lambda a: times(a, a),
}

_BINARY: dict[str, Callable[[Polynomial, Polynomial], Polynomial]] = {
    "add": add,
    "divide": lambda a, b: times(a, inverse(b)),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "mul": times,
    "pow": _pow,
    "sub": lambda a, b: add(a, scaled(b, -1)),
}
