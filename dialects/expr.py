"""Scalar expressions: the formula of an element-wise op, shared by `popart`, `popops` and the tiles.

    select(_1, mul(_1, 0.5), gte(_1, 0.0))

`_1`, `_2`, ... are the operands. A literal takes the element type of what it meets. Build with Python operators
(`x * 0.5`, `x >= 0`) and the functions of this file (`exp(x)`, `select(a, b, condition)`); print and parse as
`#expr.fn<...>`; differentiate with `derivative`; substitute with `substitute`. Values are computed by `runtime/expr.py`.
Names and meanings follow `popops::expr` where PopLibs has the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, Data, Dialect
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from populus.dialects.element_types import is_float, is_integer, is_packed, size_in_bytes

Literal: TypeAlias = float | int | bool
Like: TypeAlias = "Expr | Literal"


class Expr:
    """An expression; `+ - * / % **`, comparisons and `& | ~` build larger ones."""

    __slots__ = ()

    def __add__(self, other: Like) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Like) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Like) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: Like) -> Expr:
        return call("sub", other, self)

    def __mul__(self, other: Like) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: Like) -> Expr:
        return call("mul", other, self)

    def __truediv__(self, other: Like) -> Expr:
        return call("divide", self, other)

    def __rtruediv__(self, other: Like) -> Expr:
        return call("divide", other, self)

    def __mod__(self, other: Like) -> Expr:
        return call("rem", self, other)

    def __pow__(self, other: Like) -> Expr:
        return call("pow", self, other)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __invert__(self) -> Expr:
        return call("not", self)

    def __and__(self, other: Like) -> Expr:
        return call("and", self, other)

    def __or__(self, other: Like) -> Expr:
        return call("or", self, other)

    def __lt__(self, other: Like) -> Expr:
        return call("lt", self, other)

    def __le__(self, other: Like) -> Expr:
        return call("lte", self, other)

    def __gt__(self, other: Like) -> Expr:
        return call("gt", self, other)

    def __ge__(self, other: Like) -> Expr:
        return call("gte", self, other)

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True, slots=True, repr=False)
class Arg(Expr):
    """Operand number `index`, from 1."""

    index: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Const(Expr):
    """A literal. Its element type is that of the operands which it meets."""

    value: Literal

    # 0.0 and -0.0, 1 and 1.0 and true, and NaN with itself: equal means "the same text".
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and _literal(self.value) == _literal(other.value)

    def __hash__(self) -> int:
        return hash(_literal(self.value))


@dataclass(frozen=True, slots=True, repr=False)
class Cast(Expr):
    """The operand converted to an element type; with `bits`, its bits taken for an element of that type, of the same size."""

    x: Expr
    type: Attribute
    bits: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Call(Expr):
    """A function of the table below, applied."""

    function: str
    args: tuple[Expr, ...]


Slopes: TypeAlias = "Sequence[Like | None]"
Derivative: TypeAlias = "Callable[[Expr, Expr], Slopes] | Callable[[Expr, Expr, Expr], Slopes] | Callable[[Expr, Expr, Expr, Expr], Slopes]"


@dataclass(frozen=True)
class Function:
    """What an expression can call.

    `derivative(y, *args)` gives dy/d(arg) for each argument (None: does not depend on it); absent where the function has
    none. `result`: `same` as the arguments, or `bool`. `takes`: the element types it is defined on. `flops`: floating point
    operations per element, as PopLibs counts them (0 for bits and comparisons made by the integer unit).
    """

    arity: int
    derivative: Derivative | None = None
    result: str = "same"
    takes: str = "number"  # number | float | integer | bool | any
    flops: int = 1


def call(function: str, *args: Like) -> Call:
    """`function` applied to expressions or literals. Raises KeyError for an unknown function (a mistake in an op's code)."""
    assert len(args) == FUNCTIONS[function].arity, (function, args)
    return Call(function, tuple(lift(a) for a in args))


def lift(x: Like) -> Expr:
    return x if isinstance(x, Expr) else Const(x)


def select(a: Like, b: Like, condition: Like) -> Expr:
    """`a` where `condition` holds, `b` elsewhere."""
    return call("select", a, b, condition)


def equal(a: Like, b: Like) -> Expr:
    return call("equal", a, b)


def maximum(a: Like, b: Like) -> Expr:
    """The larger; NaN if either is NaN."""
    return call("max", a, b)


def minimum(a: Like, b: Like) -> Expr:
    return call("min", a, b)


def clamp(x: Like, low: Like, high: Like) -> Expr:
    return call("min", call("max", x, low), high)


def cast(x: Like, type: Attribute) -> Expr:
    return Cast(lift(x), type)


def bits(x: Like, type: Attribute) -> Expr:
    """The bits of x as an element of another type of the same size."""
    return Cast(lift(x), type, bits=True)


def _unary(name: str) -> Callable[[Like], Expr]:
    def build(x: Like) -> Expr:
        return call(name, x)

    build.__name__ = name
    build.__doc__ = f"`{name}` of each element."
    return build


(
    absolute, exp, log, log1p, expm1, sqrt, rsqrt, sigmoid, tanh, erf, sin, cos, tan, asin, acos, atan, sinh, cosh, asinh,
    acosh, atanh, floor, ceil, nearbyint, trunc, signum, square, inv, isnan, isinf, isfinite,
) = map(_unary, (
    "abs", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "tanh", "erf", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor", "ceil", "nearbyint", "trunc", "signum", "square", "inv",
    "isnan", "isinf", "isfinite",
))  # fmt: skip


def _nothing(y: Expr, *args: Expr) -> Sequence[Like | None]:
    """Constant almost everywhere (or not a number at all): no gradient flows."""
    return [None] * len(args)


TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)

FUNCTIONS: dict[str, Function] = {
    # name: arity, derivative of y with respect to each argument
    "abs": Function(1, lambda y, x: [signum(x)]),
    "acos": Function(1, lambda y, x: [-rsqrt(1.0 - x * x)], takes="float"),
    "acosh": Function(1, lambda y, x: [rsqrt(x * x - 1.0)], takes="float"),
    "add": Function(2, lambda y, a, b: [1, 1]),
    "and": Function(2, _nothing, takes="bool", flops=0),
    "asin": Function(1, lambda y, x: [rsqrt(1.0 - x * x)], takes="float"),
    "asinh": Function(1, lambda y, x: [rsqrt(x * x + 1.0)], takes="float"),
    "atan": Function(1, lambda y, x: [inv(1.0 + x * x)], takes="float"),
    "atan2": Function(2, lambda y, a, b: [b / (a * a + b * b), -a / (a * a + b * b)], takes="float"),
    "atanh": Function(1, lambda y, x: [inv(1.0 - x * x)], takes="float"),
    "bitwise_and": Function(2, _nothing, takes="integer", flops=0),
    "bitwise_not": Function(1, _nothing, takes="integer", flops=0),
    "bitwise_or": Function(2, _nothing, takes="integer", flops=0),
    "bitwise_xor": Function(2, _nothing, takes="integer", flops=0),
    "ceil": Function(1, _nothing, takes="float"),
    "cos": Function(1, lambda y, x: [-sin(x)], takes="float"),
    "cosh": Function(1, lambda y, x: [sinh(x)], takes="float"),
    "divide": Function(2, lambda y, a, b: [inv(b), -y / b]),
    "equal": Function(2, _nothing, result="bool", takes="any"),
    "erf": Function(1, lambda y, x: [exp(-(x * x)) * TWO_OVER_SQRT_PI], takes="float"),
    "exp": Function(1, lambda y, x: [y], takes="float"),
    "expm1": Function(1, lambda y, x: [y + 1.0], takes="float"),
    "floor": Function(1, _nothing, takes="float"),
    "gt": Function(2, _nothing, result="bool"),
    "gte": Function(2, _nothing, result="bool"),
    "inv": Function(1, lambda y, x: [-(y * y)]),
    "isfinite": Function(1, _nothing, result="bool", takes="float"),
    "isinf": Function(1, _nothing, result="bool", takes="float"),
    "isnan": Function(1, _nothing, result="bool", takes="float"),
    "log": Function(1, lambda y, x: [inv(x)], takes="float"),
    "log1p": Function(1, lambda y, x: [inv(1.0 + x)], takes="float"),
    "lt": Function(2, _nothing, result="bool"),
    "lte": Function(2, _nothing, result="bool"),
    # At a tie the first argument gets the gradient, so that it flows once.
    "max": Function(2, lambda y, a, b: [select(1.0, 0.0, a >= b), select(0.0, 1.0, a >= b)]),
    "min": Function(2, lambda y, a, b: [select(1.0, 0.0, a <= b), select(0.0, 1.0, a <= b)]),
    "mul": Function(2, lambda y, a, b: [b, a]),
    "nearbyint": Function(1, _nothing, takes="float"),  # half to even
    "neg": Function(1, lambda y, x: [-1]),
    "not": Function(1, _nothing, takes="bool", flops=0),
    "or": Function(2, _nothing, takes="bool", flops=0),
    "pow": Function(2, lambda y, a, b: [b * call("pow", a, b - 1), select(y * log(maximum(a, 1e-38)), 0.0, a > 0)]),
    "rem": Function(2, lambda y, a, b: [1, -trunc(a / b)], flops=3),  # sign of the dividend, as C's fmod
    "rsqrt": Function(1, lambda y, x: [y * inv(x) * -0.5], takes="float"),
    "select": Function(3, lambda y, a, b, c: [select(1, 0, c), select(0, 1, c), None], takes="any"),
    "shift_left": Function(2, _nothing, takes="integer", flops=0),
    "shift_right": Function(2, _nothing, takes="integer", flops=0),
    "sigmoid": Function(1, lambda y, x: [y * (1.0 - y)], takes="float"),
    "signum": Function(1, _nothing),
    "sin": Function(1, lambda y, x: [cos(x)], takes="float"),
    "sinh": Function(1, lambda y, x: [cosh(x)], takes="float"),
    "sqrt": Function(1, lambda y, x: [inv(y) * 0.5], takes="float"),
    "square": Function(1, lambda y, x: [x * 2]),
    "sub": Function(2, lambda y, a, b: [1, -1]),
    "tan": Function(1, lambda y, x: [1.0 + y * y], takes="float"),
    "tanh": Function(1, lambda y, x: [1.0 - y * y], takes="float"),
    "trunc": Function(1, _nothing, takes="float"),
    "xor": Function(2, _nothing, takes="bool", flops=0),
}


# -- reading an expression -------------------------------------------------------------------------------------------


def args_of(e: Expr) -> set[int]:
    """The operand numbers that an expression reads."""
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
    """The functions that an expression calls, once for each call; a cast counts as `cast`."""
    match e:
        case Cast(x, _):
            return ["cast", *functions_of(x)]
        case Call(function, args):
            return [function, *(f for a in args for f in functions_of(a))]
        case _:
            return []


def substitute(e: Expr, values: Mapping[int, Expr]) -> Expr:
    """`e` with operands replaced; operands not in `values` stay."""
    match e:
        case Arg(index):
            return values.get(index, e)
        case Cast(x, type, bits):
            return Cast(substitute(x, values), type, bits)
        case Call(function, args):
            return Call(function, tuple(substitute(a, values) for a in args))
        case _:
            return e


def infer(e: Expr, operands: Sequence[Attribute]) -> Attribute:
    """The element type of an expression over operands of these element types.

    Raises VerifyException where a function does not take its arguments' type, types differ, or nothing fixes the type.
    """
    result = _infer(e, operands)
    if result is None:
        raise VerifyException(f"{e} has only literals, so no element type")
    return result


def _infer(e: Expr, operands: Sequence[Attribute]) -> Attribute | None:
    match e:
        case Arg(index):
            if not 1 <= index <= len(operands):
                raise VerifyException(f"_{index} is read, but there are {len(operands)} operands")
            return operands[index - 1]
        case Const(value):
            return i1 if isinstance(value, bool) else None
        case Cast(x, type, bits):
            source = _infer(x, operands)
            if bits and (source is None or size_in_bytes(source) != size_in_bytes(type)):
                raise VerifyException(f"the bits of {source or 'a literal'} are no {type}; the sizes differ")
            return type
        case Call(function, args):
            types = [_infer(a, operands) for a in args]
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
    """d e / d _index, simplified; None where `e` does not depend on it (or only through a step function).

    `y`: an expression for the value of `e` itself, which then appears where the derivative can be told from it.
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
    """a * b without multiplications by one and minus one; selects of zero and one are pulled outwards."""
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


# -- text ------------------------------------------------------------------------------------------------------------


def _literal(value: Literal) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


def _text(e: Expr) -> str:
    match e:
        case Arg(index):
            return f"_{index}"
        case Const(value):
            return _literal(value)
        case Cast(x, to, bits):
            return f"{'bits' if bits else 'cast'}({_text(x)}, {to})"
        case Call(function, args):
            return f"{function}({', '.join(map(_text, args))})"
        case _:
            raise AssertionError(type(e))


def parse(parser: AttrParser) -> Expr:
    """The expression at the parser's position. Raises ParseError there."""
    minus = parser.parse_optional_punctuation("-") is not None
    if parser.parse_optional_keyword("inf") is not None:
        return Const(-math.inf if minus else math.inf)
    number = parser.parse_optional_number()
    if number is not None:
        if minus:  # `-0` is an integer, `-0.0` is not
            number = -number
        return Const(number)
    if minus:
        parser.raise_error("a number is expected after '-'")
    position = parser.pos
    word = parser.parse_identifier("an expression")
    match word:
        case "nan":
            return Const(math.nan)
        case "true" | "false":
            return Const(word == "true")
        case "cast" | "bits":
            parser.parse_punctuation("(")
            x = parse(parser)
            parser.parse_punctuation(",")
            type = parser.parse_type()
            parser.parse_punctuation(")")
            return Cast(x, type, word == "bits")
        case _ if word.startswith("_") and word[1:].isdigit():
            return Arg(int(word[1:]))
        case _ if word in FUNCTIONS:
            args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse(parser))
            if len(args) != FUNCTIONS[word].arity:
                parser.raise_error(f"{word} takes {FUNCTIONS[word].arity} arguments, not {len(args)}", position)
            return Call(word, tuple(args))
        case _:
            parser.raise_error(f"'{word}' is not a function of expressions", position)


@irdl_attr_definition
class ExprAttr(Data[Expr]):
    """`#expr.fn<add(_1, mul(_2, 0.5))>`."""

    name = "expr.fn"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Expr:
        with parser.in_angle_brackets():
            return parse(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(_text(self.data))


EXPR = Dialect("expr", [], [ExprAttr])
