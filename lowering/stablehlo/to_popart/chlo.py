"""Conversions of `chlo`: ops that `popart` has, and those with broadcasting. Others are expanded when a file is read.

`CALLED` has those that the reader keeps as a `custom_call` while it expands the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.lowering.stablehlo.to_popart import elementwise
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Pair, Rule, Rules, Value, as_pair, real, shape
from populus.lowering.stablehlo.to_popart.sorting import top_k


def wide(kind: type[TensorOp]) -> Rule:
    """Makes the rule of a function that is computed in f32 for halves."""
    return lambda c: c.cast(c(kind, c.wide(c.input(0))), c.element())


def infinite(negative: bool, positive: bool) -> Rule:
    """Makes the rule of a test for infinities."""
    return lambda c: c(popart.IsInfOp, c.input(0), detect_negative=negative, detect_positive=positive)


def square(c: Conversion) -> Value | list[Value]:
    """Converts square."""
    x = c.inputs[0]
    return elementwise.RULES["multiply"](with_inputs(c, [x, x]))


def conj(c: Conversion) -> Value:
    """Converts conj."""
    x = as_pair(c, c.inputs[0])
    return Pair(x.real, c(popart.NegOp, x.imag))


def with_inputs(c: Conversion, values: list[Value]) -> Conversion:
    """Makes the same conversion with other operands."""
    return Conversion(c.any, values, c.builder, c.regions, c.lifted)


def broadcast(rule: Rule) -> Rule:
    """Makes the rule of an op with broadcasting: operands are right-aligned, or as `broadcast_dimensions` say for the shorter one."""

    def convert(c: Conversion) -> Value | list[Value]:
        rank, dims = len(c.shape()), c.get("broadcast_dimensions")

        def aligned(x: SSAValue) -> SSAValue:
            if dims is not None and len(shape(x)) == len(dims) < rank:
                sizes = dict(zip(dims, shape(x)))
                x = c.reshape(x, [sizes.get(d, 1) for d in range(rank)])
            return c.expand(x, c.shape())

        def one(value: Value) -> Value:
            return Pair(aligned(value.real), aligned(value.imag)) if isinstance(value, Pair) else aligned(real(value))

        return rule(with_inputs(c, [one(v) for v in c.inputs]))

    return convert


FUNCTIONS: dict[str, Callable[[Conversion], Value | list[Value]]] = {
    "acos": wide(popart.AcosOp),
    "acosh": wide(popart.AcoshOp),
    "asin": wide(popart.AsinOp),
    "asinh": wide(popart.AsinhOp),
    "atan": wide(popart.AtanOp),
    "atanh": wide(popart.AtanhOp),
    "cosh": wide(popart.CoshOp),
    "erf": wide(popart.ErfOp),
    "sinh": wide(popart.SinhOp),
    "tan": wide(popart.TanOp),
    "top_k": top_k,
}
CALLED = {f"chlo.{name}": rule for name, rule in FUNCTIONS.items()}
RULES: Rules = {
    **FUNCTIONS,
    **{f"broadcast_{name}": broadcast(rule) for name, rule in elementwise.RULES.items()},
    "conj": conj,
    "is_inf": infinite(True, True),
    "is_neg_inf": infinite(True, False),
    "is_pos_inf": infinite(False, True),
    "square": square,
}
