"""Analysis of expressions: operands, functions, element type, derivatives; and substitution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import IntegerType, i1
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from populus.dialects.expr.terms import FUNCTIONS, Arg, Call, Cast, Const, Expr, call, lift, select
from populus.dialects.support.element_types import is_float, is_integer, is_packed, is_unsigned, size_in_bytes


def args_of(e: Expr) -> set[int]:
    """Collects the operand numbers that an expression reads."""
    match e:
        case Arg(index):
            return {index}
        case Cast(x, _):
            return args_of(x)
        case Call(_, args):
            return set[int]().union(*map(args_of, args))
        case _:
            return set()


def functions_of(e: Expr) -> list[str]:
    """Lists the functions that an expression calls, once for each call; a cast counts as `cast`."""
    match e:
        case Cast(x, _):
            return ["cast", *functions_of(x)]
        case Call(function, args):
            return [function, *(f for a in args for f in functions_of(a))]
        case _:
            return []


def substitute(e: Expr, values: Mapping[int, Expr]) -> Expr:
    """Replaces operands of `e`; operands not in `values` stay."""
    match e:
        case Arg(index):
            return values.get(index, e)
        case Cast(x, type, bits):
            return Cast(substitute(x, values), type, bits)
        case Call(function, args):
            return Call(function, tuple(substitute(a, values) for a in args))
        case _:
            return e


def infer(e: Expr, operands: Sequence[Attribute], literals: bool = False) -> Attribute:
    """Infers the element type of an expression over operands of these element types, in one walk.

    `literals`: a literal has to be a value of the element type that it meets, unlike 300 of i8.
    Raises VerifyException if a function does not accept its arguments' type, types differ, or the type is undetermined.
    """
    result = _infer(e, operands, literals)
    if result is None:
        raise VerifyException(f"{e} has only literals, so no element type")
    return result


def _infer(e: Expr, operands: Sequence[Attribute], literals: bool) -> Attribute | None:
    match e:
        case Arg(index):
            if not 1 <= index <= len(operands):
                raise VerifyException(f"_{index} is read, but there are {len(operands)} operands")
            return operands[index - 1]
        case Const(value):
            return i1 if isinstance(value, bool) else None
        case Cast(x, type, bits):
            source = _infer(x, operands, literals)
            if bits and (source is None or size_in_bytes(source) != size_in_bytes(type)):
                raise VerifyException(f"the bits of {source or 'a literal'} are no {type}; the sizes differ")
            return type
        case Call(function, args):
            types = [_infer(a, operands, literals) for a in args]
            if literals and (met := next((t for t in types if t is not None and t != i1), None)) is not None:
                for a in args:
                    if isinstance(a, Const) and not _fits(a.value, met):
                        raise VerifyException(f"{a} is no {met}")
            if function == "select":
                if types[2] != i1:
                    raise VerifyException(f"the condition of {e} is {types[2]}, not i1")
                types = types[:2]
            known = {t for t in types if t is not None}
            if len(known) > 1:
                raise VerifyException(f"{e} mixes element types {', '.join(sorted(map(str, known)))}; cast one of them")
            type = known.pop() if known else None
            definition = FUNCTIONS[function]
            if type is not None and not _takes(definition.takes, type):
                raise VerifyException(f"{function} takes {definition.takes} elements, not {type}")
            return i1 if definition.result == "bool" else type
        case _:
            raise AssertionError(e)


def _fits(value: bool | int | float, type: Attribute) -> bool:
    """Tells whether a literal is a value of an element type: integers have bounds and no fractions."""
    if not isinstance(type, IntegerType) or isinstance(value, bool) or type == i1:
        return True
    integer = cast("IntegerType[int]", type)
    bits, unsigned = integer.width.data, is_unsigned(integer)
    low, high = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return float(value).is_integer() and low <= int(value) < high


def _takes(kind: str, type: Attribute) -> bool:
    match kind:
        case "float":
            return is_float(type)
        case "integer":
            return is_integer(type) and not is_packed(type)
        case "bool":
            return type == i1
        case "number":
            return type != i1 and not is_packed(type)
        case _:
            return True


def derivative(e: Expr, index: int, y: Expr | None = None) -> Expr | None:
    """Derives `d e / d _index`, simplified; None if `e` does not depend on it, or only through a step function.

    `y`: an expression for the value of `e`, which the derivative uses where it can be computed from that value.
    Raises VerifyException naming a function that has no derivative.
    """
    match e:
        case Arg(i):
            return Const(1) if i == index else None
        case Const():
            return None
        case Cast(x, type, bits):
            inner = derivative(x, index)
            if inner is not None and bits:
                raise VerifyException("bits has no derivative")
            if inner is None or not is_float(type):
                return None
            return inner if isinstance(inner, Const) else Cast(inner, type)
        case Call(function, args):
            inner = [derivative(a, index) for a in args]
            if all(d is None for d in inner):
                return None
            rule = FUNCTIONS[function].derivative
            if rule is None:
                raise VerifyException(f"{function} has no derivative")
            total: Expr | None = None
            for outer, d in zip(rule(e if y is None else y, *args), inner, strict=True):
                if outer is not None and d is not None:
                    term = times(lift(outer), d)
                    total = term if total is None else call("add", total, term)
            return total
        case _:
            raise AssertionError(e)


def times(a: Expr, b: Expr) -> Expr:
    """Multiplies a by b, without factors of one and minus one; selects of zero and one move outwards."""
    for x, other in ((a, b), (b, a)):
        match x:
            case Const(1):
                return other
            case Const(-1):
                return x if isinstance(other, Const) and other.value == 1 else -other
            case Call("select", (p, q, condition)) if isinstance(p, Const) and isinstance(q, Const):
                return select(_scaled(p, other), _scaled(q, other), condition)
            case _:
                pass
    return a * b


def _scaled(constant: Const, other: Expr) -> Expr:
    if constant.value == 0:
        return constant
    return times(constant, other)
