"""Activations that exporters decompose, recognised by the normal form of their formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Block, SSAValue

from populus.dialects import expr, popart
from populus.dialects.expr import Arg, Expr
from populus.dialects.popart import ElementwiseOp, UnaryOp, calls
from populus.lowering.popart.patterns.formulas import Formulas, between, has_function, private, sources
from populus.lowering.popart.patterns.normal_form import EPSILON, NoNormalForm, Polynomial, alike, leaf, leaves_of, normal_form
from populus.lowering.popart.rewriting import Pattern, Rewriting

Make = Callable[[SSAValue], UnaryOp]


class Activation(Pattern[ElementwiseOp]):
    """Element-wise ops that compute a known activation are that op: gelu (by erf or tanh), swish, hard_swish, mish,
    softplus.

    Legal: they have one operand that is no constant, and no other op reads a value between them. Each op's own
    formula is its normal form. Literals may differ by their rounding to the element type. PopART has `Gelu` and
    `Swish` as builder ops.
    """

    ROOTS = (popart.MulOp, popart.DivOp, popart.LogOp, popart.AddOp)
    EXACT = False

    def rewrite(self, op: ElementwiseOp, r: Rewriting) -> Sequence[SSAValue] | None:
        element = calls.element(op.y)
        if element not in EPSILON or not has_function(op):
            return None
        for x in sources(op):
            ops = between(op, x)  # before any formula, as most element-wise ops have several operands or readers
            if ops is None or len(ops) < 2 or not private(ops, op):
                continue
            formulas = Formulas(op, x)
            try:
                form_of_op = formulas.of(op.y)
            except NoNormalForm:
                return None
            if leaves_of(form_of_op) != {0}:
                continue
            make = next((make for make, form in forms() if alike(form, form_of_op, element)), None)
            if make is not None:
                return [r.insert(make(x))]
        return None


_SPELLINGS: list[tuple[Make, Callable[[Expr], Expr]]] = [
    # equivalent formulas of ops whose own formula is rewritten for the accuracy of large x
    (popart.MishOp, lambda x: x * expr.tanh(expr.log(1 + expr.exp(x)))),
    (popart.SoftplusOp, lambda x: expr.log(1 + expr.exp(x))),
]


@cache
def forms() -> list[tuple[Make, Polynomial]]:
    """Pairs the activations with their normal forms."""
    makes: list[Make] = [
        popart.GeluOp,
        lambda x: popart.GeluOp(x, tanh=True),
        popart.SwishOp,
        lambda x: popart.SwishOp(x, alpha=1.702),  # the sigmoid approximation of gelu
        popart.HardSwishOp,
        popart.MishOp,
        popart.SoftplusOp,
    ]
    return [(m, _form(m)) for m in makes] + [(m, normal_form(spelled(Arg(1)), {1: leaf(0)})) for m, spelled in _SPELLINGS]


def _form(make: Make) -> Polynomial:
    """Computes the normal form of an op's own formula."""
    return normal_form(make(Block(arg_types=[TensorType(f32, [1])]).args[0]).formula(), {1: leaf(0)})
