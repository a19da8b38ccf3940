"""Attributes of ops are Python values, whether the class declares their type or not."""

from __future__ import annotations

import copy
from typing import ClassVar

import pytest
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, f16, f32, i1, i64
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.utils.exceptions import PyRDLOpDefinitionError, VerifyException
from xdsl.utils.test_value import create_ssa_value

from populus.dialects.expr import Expr, select
from populus.dialects.popart import GemmOp, LeakyReluOp, SoftmaxOp
from populus.dialects.popart.base import UnaryOp
from populus.dialects.popart.definition import definition_of
from populus.dialects.support.constraints import choice, flag, number, whole
from populus.dialects.support.element_types import tensor

X = create_ssa_value(tensor((2,), f32))


@irdl_op_definition
class TypedOp(UnaryOp):
    """`y = alpha x`."""

    name = "test.typed"
    alpha: float = number(0.5)
    axis: int = whole(1)
    keep: bool = flag(True)
    mode: str = choice(("up", "down"), "up")
    plain = prop_def(FloatAttr, default_value=FloatAttr(2.0, f32))

    def forward(self, x: Expr) -> Expr:
        return select(self.alpha * x, x, x > self.axis) if self.keep and self.mode == "up" else x


@irdl_op_definition
class UndeclaredOp(UnaryOp):
    """`y = alpha x`."""

    name = "test.undeclared"
    alpha = number(0.5)
    axis = whole(1)
    keep = flag(True)
    mode = choice(("up", "down"), "up")

    def forward(self, x: Expr) -> Expr:
        return select(self.alpha * x, x, x > self.axis) if self.keep and self.mode == "up" else x


def test_a_declared_type_is_the_type_of_the_value():
    op = TypedOp(X, alpha=0.25, keep=False)
    assert (op.alpha, op.axis, op.keep, op.mode) == (0.25, 1, False, "up")
    assert [type(v) for v in (op.alpha, op.axis, op.keep, op.mode)] == [float, int, bool, str]


def test_the_ir_holds_attributes_of_the_same_types():
    op = TypedOp(X)
    expected = {"alpha": FloatAttr(0.5, f32), "axis": IntegerAttr(1, i64), "keep": IntegerAttr(1, i1), "mode": StringAttr("up")}
    assert {name: op.properties[name] for name in expected} == expected
    assert op.plain == FloatAttr(2.0, f32), "xDSL's own declarations give attributes"


def test_a_value_that_is_set_is_an_attribute_in_the_ir():
    op = TypedOp(X)
    op.alpha, op.axis, op.keep, op.mode = 0.125, 3, False, "down"
    assert [op.properties[n] for n in ("alpha", "axis", "keep", "mode")] == [
        FloatAttr(0.125, f32),
        IntegerAttr(3, i64),
        IntegerAttr(0, i1),
        StringAttr("down"),
    ]
    op.alpha = FloatAttr(0.75, f16)
    assert op.alpha == 0.75 and op.properties["alpha"] == FloatAttr(0.75, f16)


def test_an_undeclared_type_is_a_python_value_too():
    op = UndeclaredOp(X, alpha=0.25)
    assert (op.alpha, op.axis, op.keep, op.mode) == (0.25, 1, True, "up")
    assert [type(v) for v in (op.alpha, op.axis, op.keep, op.mode)] == [float, int, bool, str]
    assert UndeclaredOp(X).formula() == TypedOp(X).formula()


def test_a_value_is_no_attribute():
    op = LeakyReluOp(X, alpha=0.25)
    assert type(op.alpha) is float and type(SoftmaxOp(X, axis=0).axis) is int
    assert op.alpha == 0.25 and "alpha = 2.500000e-01 : f32" in str(op)


def test_a_value_is_an_operators_attribute_again():
    op = LeakyReluOp(X, alpha=0.25)
    op.properties["alpha"] = FloatAttr(0.25, f16)
    assert LeakyReluOp(X, alpha=op.alpha).alpha == 0.25
    flags = UndeclaredOp(X, keep=UndeclaredOp(X, keep=False).keep)
    assert flags.properties["keep"] == IntegerAttr(0, i1)


def test_literals_of_formulas_are_plain():
    formula = UndeclaredOp(X).alpha * UndeclaredOp(X, keep=False).formula()
    assert type(formula.args[0].value) is float


def test_values_are_copied():
    value = LeakyReluOp(X, alpha=0.25).alpha
    assert copy.deepcopy(value) == copy.copy(value) == 0.25


def test_kinds_are_those_of_the_declarations():
    kinds = {p.name: p.kind for p in definition_of(TypedOp).properties.values()}
    assert kinds == {"alpha": "float", "axis": "int", "keep": "bool", "mode": "string", "plain": "float"}


def test_a_declared_type_that_the_values_do_not_have_is_refused():
    with pytest.raises(PyRDLOpDefinitionError, match="class WrongOp: `alpha: int` has values of type float; declare `alpha: float`"):

        @irdl_op_definition
        class WrongOp(UnaryOp):
            name = "test.wrong"
            alpha: int = number(0.5)  # pyright: ignore[reportAssignmentType]

            def forward(self, x: Expr) -> Expr:
                return x


def test_a_declared_attribute_class_is_refused():
    with pytest.raises(PyRDLOpDefinitionError, match="class FormerOp: `alpha: FloatAttr` has values of type float; declare `alpha: float`"):

        @irdl_op_definition
        class FormerOp(UnaryOp):
            name = "test.former"
            alpha: FloatAttr = number(0.5)  # pyright: ignore[reportAssignmentType]

            def forward(self, x: Expr) -> Expr:
                return x


def test_a_flag_is_one_bit():
    op = TypedOp(X)
    op.properties["keep"] = IntegerAttr(1, i64)
    with pytest.raises(VerifyException, match="true or false is expected"):
        op.verify()


def test_a_flag_without_a_default_is_required():
    @irdl_op_definition
    class RequiredOp(UnaryOp):
        """`y = x`."""

        name = "test.required"
        T: ClassVar = UnaryOp.T
        keep: bool = flag(None)

        def forward(self, x: Expr) -> Expr:
            return x

    assert definition_of(RequiredOp).properties["keep"].required


def test_an_operand_by_its_name_is_the_one_at_its_place():
    op = GemmOp(*(values := [create_ssa_value(tensor(shape, f32)) for shape in ((2, 3), (3, 4))]), None)
    assert (op.a, op.b, op.c, op.y) == (*values, None, op.results[0])
    assert isinstance(op, GemmOp)
    assert not isinstance(op, LeakyReluOp)
    assert not isinstance(2, GemmOp)
    with pytest.raises(NotImplementedError, match="Cannot write to named operands"):
        op.a = values[1]
