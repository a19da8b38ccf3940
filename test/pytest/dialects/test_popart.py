"""What the base classes of `popart` give to an op that only states a formula, and what they say of one that states less."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from xdsl.builder import Builder
from xdsl.dialects.builtin import FloatAttr, TensorType, f16, f32, i1, i32
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.test_value import create_ssa_value

from populus.dialects import popart
from populus.dialects.base.op_modules import ops_of
from populus.dialects.data import constant
from populus.dialects.expr import Expr
from populus.dialects.popart import NoGradient, PopartOp, UnaryOp, calls, train
from populus.dialects.support.diagnostics import PopulusError, named
from populus.dialects.support.element_types import element_type_of, shape_of
from populus.dialects.support.shapes import ShapeError
from populus.runtime.interpreter import evaluate_op


def value(*shape: int, element: Attribute = f32) -> SSAValue:
    return create_ssa_value(TensorType(element, list(shape)))


@irdl_op_definition
class CubeOp(UnaryOp):
    """`y = scale x^3`."""

    name = "custom.cube"
    scale = prop_def(FloatAttr, default_value=FloatAttr(1.0, f32))

    def forward(self, x: Expr) -> Expr:
        return self.scale.value.data * (x * x * x)


@irdl_op_definition
class RowsOp(PopartOp):
    """The sum of each row; lowers to another op of its level."""

    name = "custom.rows"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [TensorType(element_type_of(self.x.type), list(shape_of(self.x.type)[:1]))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.insert(b, popart.ReduceSumOp(self.x, axes=(1,)))]


@irdl_op_definition
class SilentOp(PopartOp):
    """Says nothing but its type."""

    name = "custom.silent"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [TensorType(f32, [1])]


def inserted(op: PopartOp, *grads: SSAValue) -> tuple[list[str], Sequence[SSAValue | None]]:
    """The text of the expressions of what `gradient` inserts, and what it gives."""
    block = Block([op])
    values = op.gradient(Builder(InsertPoint.at_end(block)), grads)
    return [str(o.properties.get("expr", o.name)) for o in list(block.ops)[1:]], values


def test_a_formula_is_a_whole_op():
    op = CubeOp(value(2), scale=0.5)
    op.verify()
    assert op.y.type == TensorType(f32, [2])
    assert op.aliases() == [(0, 0)]
    np.testing.assert_array_equal(evaluate_op(op, [np.array([2, -2], np.float32)])[0], [4, -4])
    block = Block([op])
    results = op.lower(Builder(InsertPoint.at_end(block)))
    assert str(op.next_op) == "%0 = popops.map <mul(0.5, mul(mul(_1, _1), _1))>(%1) : (tensor<2xf32>) -> tensor<2xf32>"
    assert results[0].type == op.y.type


def test_a_gradient_reads_only_what_its_expression_reads():
    x, g = value(4), value(4)
    leaky = popart.LeakyReluOp(x, alpha=0.5)
    texts, values = inserted(leaky, g)
    assert texts == ["#expr.fn<select(_2, mul(0.5, _2), gte(_1, 0))>"]
    assert isinstance(made := values[0], SSAValue)
    assert list(made.owner.operands) == [leaky.y, g]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_slope_of_zero_or_less_cannot_be_told_from_the_result():
    x, g = value(4), value(4)
    for alpha in (0.0, -0.5):
        _, values = inserted(popart.LeakyReluOp(x, alpha=alpha), g)
        assert isinstance(made := values[0], SSAValue)
        assert list(made.owner.operands) == [x, g]  # pyright: ignore[reportAttributeAccessIssue]


def test_the_gradient_of_a_sum_is_passed_on_and_summed_where_it_was_stretched():
    a, b, g = value(3, 4), value(4), value(3, 4)
    texts, values = inserted(popart.AddOp(a, b), g)
    assert texts == ["popops.reduce"]
    assert values[0] is g
    assert isinstance(values[1], SSAValue)
    assert values[1].type == b.type


def test_nothing_flows_to_a_condition_or_through_a_step():
    assert inserted(popart.WhereOp(value(2, element=i1), value(2), value(2)), value(2))[1][0] is None
    assert inserted(popart.FloorOp(value(2)), value(2)) == ([], [None])
    assert inserted(popart.CastOp(value(2), to=i32), value(2, element=i32)) == ([], [None])


def test_an_op_without_gradient_or_lowering_is_named_at_its_place():
    op = SilentOp(value(1))
    op.location = named("net/silent")
    with pytest.raises(NoGradient, match="'net/silent': custom.silent has no gradient"):
        op.gradient(Builder(InsertPoint.at_end(Block())), [value(1)])
    with pytest.raises(PopulusError, match="'net/silent': custom.silent has no lowering; give its class `lower`"):
        op.lower(Builder(InsertPoint.at_end(Block())))


def test_an_op_without_a_row_is_evaluated_through_its_lowering():
    assert evaluate_op(RowsOp(value(2, 3)), [np.ones((2, 3), np.float32)])[0].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: popart.AddOp(value(2), value(3)), "shapes 2 and 3 do not broadcast"),
        (lambda: popart.AddOp(value(2), value(2, element=f16)), "mixes element types f16, f32"),
        (lambda: popart.TanhOp(value(2, element=i32)), "tanh takes float elements, not i32"),
        (lambda: popart.ReshapeOp(value(2, 3), shape=(4,)), "2x3 has 6 elements, 4 4"),
        (lambda: popart.ReshapeOp(value(4), shape=(-2, -2)), "a size of -2x-2 is negative"),
        (lambda: popart.ExpandOp(value(1), shape=(-1,)), "a size of -1 is negative"),
        (lambda: popart.ConcatOp(value(2, 3), value(2, 4), axis=0), "2x3 and 2x4 differ beside dimension 0"),
        (lambda: popart.MatMulOp(value(2, 3), value(2, 3)), "2x3 times 2x3; the last dimension of a"),
        (lambda: popart.GemmOp(value(2, 3), value(3, 4), value(5, 2, 4)), "c is 5x2x4, which does not stretch to 2x4"),
        (lambda: popart.PadOp(value(2), None, lower=(2,), upper=(0,), mode="reflect"), "cannot be mirrored by 2; at most 1"),
        (lambda: popart.SliceOp(value(4), begins=(0,), ends=(5,), steps=(1,)), r"\[0:5:1\] leaves a dimension of 4"),
        (lambda: popart.SoftmaxOp(value(4), axis=1), "there is no dimension 1 of 1"),
        (lambda: popart.GatherOp(value(4), value(2), axis=0), "not integers"),
        (lambda: popart.GroupNormOp(value(1, 4), value(4), value(4), groups=3), "4 channels do not divide into 3 groups"),
    ],
)
def test_operands_that_do_not_fit_are_refused_when_an_op_is_made(make, message):
    with pytest.raises((ShapeError, VerifyException), match=message):
        make()


def test_convolutions_say_what_disagrees():
    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    with pytest.raises(ShapeError, match="w has 3 input channels, x has 4; group = 1 needs 1 times as many"):
        popart.ConvOp(value(1, 4, 5, 5), value(2, 3, 3, 3), **window)
    with pytest.raises(ShapeError, match="the bias is 3; one for each of 2 output channels is expected"):
        popart.ConvOp(value(1, 3, 5, 5), value(2, 3, 3, 3), value(3), **window)
    with pytest.raises(ShapeError, match="a kernel that reaches 7 does not fit 5 elements"):
        popart.ConvOp(value(1, 3, 5, 5), value(2, 3, 7, 7), **window)


def test_constant_indices_are_made_positive_when_lowering_and_checked():
    def gather(*indices: int) -> popart.GatherOp:
        op = popart.GatherOp(value(4), block.insert(constant(np.array(indices))).result, axis=0)
        op.location = named("pick")
        return op

    block = Builder(InsertPoint.at_end(Block()))
    lowered = gather(-1, 2).lower(block)[0].owner
    assert lowered.operands[1].owner.array().tolist() == [3, 2]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(PopulusError, match="'pick': popart.gather: index -5 is outside dimension 0 of x, which has 4 elements"):
        gather(-5, 0).lower(block)


def test_batch_norm_of_constants_is_one_product_and_sum():
    block = Block(arg_types=[TensorType(f32, [1, 2, 3])])
    b = Builder(InsertPoint.at_end(block))
    vectors = [b.insert(constant(np.array(v, np.float32))).result for v in ([1, 2], [0, 1], [1, 1], [4, 1])]
    op = b.insert(popart.BatchNormOp(block.args[0], *vectors, epsilon=0.0))
    y = op.lower(b)[0]
    assert str(y.owner.properties["expr"]) == "#expr.fn<add(mul(_1, _2), _3)>"  # pyright: ignore[reportAttributeAccessIssue]


def test_every_op_class_of_the_folder_is_in_a_dialect():
    folder = Path(popart.__file__).parent
    modules = [import_module(f"populus.dialects.popart.{path.stem}") for path in sorted(folder.glob("[!_]*.py"))]
    defined = {op for module in modules for op in (*ops_of("popart.", vars(module)), *ops_of("train.", vars(module)))}
    assert defined == {*popart.POPART.operations, *train.TRAIN.operations}
