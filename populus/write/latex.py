"""Scalar expressions as LaTeX, for the pages of ops.

latex(select(x, 0.1 * x, x >= 0), ["x"])    # \\begin{cases} x & x \\ge 0 \\\\ 0.1 \\, x & \\text{otherwise} \\end{cases}
"""

from __future__ import annotations

from collections.abc import Sequence

from populus.dialects.expr import Arg, Call, Cast, Const, Expr

# function -> format and binding strength (1: loosest); arguments that bind more loosely get parentheses
_INFIX = {
    "add": ("{} + {}", 4), "sub": ("{} - {}", 4), "mul": (r"{} \, {}", 5),
    "lt": ("{} < {}", 3), "lte": (r"{} \le {}", 3), "gt": ("{} > {}", 3), "gte": (r"{} \ge {}", 3), "equal": ("{} = {}", 3),
    "and": (r"{} \wedge {}", 2), "or": (r"{} \vee {}", 1), "xor": (r"{} \oplus {}", 1),
}  # fmt: skip
_AROUND = {
    "abs": r"\lvert {} \rvert", "ceil": r"\lceil {} \rceil", "exp": "e^{{{}}}", "floor": r"\lfloor {} \rfloor",
    "inv": r"\frac{{1}}{{{}}}", "rsqrt": r"\frac{{1}}{{\sqrt{{{}}}}}", "sqrt": r"\sqrt{{{}}}", "divide": r"\frac{{{}}}{{{}}}",
    "max": r"\max({}, {})", "min": r"\min({}, {})", "log": r"\ln({})",
    "select": r"\begin{{cases}} {} & {} \\ {} & \text{{otherwise}} \end{{cases}}",
}  # fmt: skip
_TIGHT = 9


def latex(e: Expr, names: Sequence[str]) -> str:
    """Formats the expression as LaTeX, with `names` for its operands."""
    return _written(e, names)[0]


def _written(e: Expr, names: Sequence[str]) -> tuple[str, int]:
    """Formats an expression; gives the text and its binding strength."""
    match e:
        case Arg(index):
            return names[index - 1], _TIGHT
        case Const(value):
            return f"{value:g}" if isinstance(value, float) else str(value).lower(), _TIGHT if value >= 0 else 4
        case Cast(x, to):
            return rf"\operatorname{{{to}}}({_written(x, names)[0]})", _TIGHT
        case Call("select", (a, b, condition)):
            return _AROUND["select"].format(*(_written(part, names)[0] for part in (a, condition, b))), 1
        case Call("neg", (x,)):
            return f"-{_within(x, names, 5)}", 4
        case Call("not", (x,)):
            return rf"\neg {_within(x, names, _TIGHT)}", 6
        case Call("square" | "pow", args):
            power = "2" if len(args) == 1 else _written(args[1], names)[0]
            return f"{_within(args[0], names, _TIGHT)}^{{{power}}}", 8
        case Call(function, args) if function in _INFIX:
            text, binds = _INFIX[function]
            # a - (b - c) keeps its parentheses
            return text.format(_within(args[0], names, binds), _within(args[1], names, binds + (function == "sub"))), binds
        case Call(function, args) if function in _AROUND:
            return _AROUND[function].format(*(_written(a, names)[0] for a in args)), _TIGHT
        case Call(function, args):
            return rf"\operatorname{{{function}}}({', '.join(_written(a, names)[0] for a in args)})", _TIGHT
        case _:
            raise AssertionError(type(e))


def _within(e: Expr, names: Sequence[str], least: int) -> str:
    text, binds = _written(e, names)
    return text if binds >= least else f"({text})"
