"""The functions that a codelet in Python may call, by the names that Python gives them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """A function of floats whose value is a float. `c`: its name in C's library; `op`: the op of `math`, if there is one."""

    arity: int
    c: str
    op: str = ""


def _row(name: str, arity: int = 1, c: str = "", op: str | None = None) -> tuple[str, Function]:
    return name, Function(arity, c or name, name if op is None else op)


FLOATS: dict[str, Function] = dict(
    (
        _row("acos"), _row("acosh"), _row("asin"), _row("asinh"), _row("atan"), _row("atan2", 2), _row("atanh"), _row("cbrt"),
        _row("copysign", 2), _row("cos"), _row("cosh"), _row("erf"), _row("erfc", op=""), _row("exp"), _row("exp2"), _row("expm1"),
        _row("fmod", 2, op=""), _row("gamma", c="tgamma", op=""), _row("hypot", 2, op=""), _row("lgamma", op=""), _row("log"),
        _row("log10"), _row("log1p"), _row("log2"), _row("pow", 2, op="powf"), _row("sin"), _row("sinh"), _row("sqrt"), _row("tan"),
        _row("tanh"),
    )
)  # fmt: skip
ROUNDED = ("ceil", "floor", "round", "trunc")  # of a float, an integer; round: a half to the even one
TESTS = ("isfinite", "isinf", "isnan")  # of a float, a boolean
OTHERS = ("abs", "bool", "degrees", "fabs", "float", "int", "len", "max", "min", "radians")  # composed of what there is
SCRATCH = {"floats": "float", "ints": "int", "bools": "bool"}
KNOWN = tuple(sorted((*FLOATS, *ROUNDED, *TESTS, *OTHERS)))
