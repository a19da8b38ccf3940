"""A place names one value: what a rewrite makes has the place of the op whose result it stands for, whatever a pattern says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.ir import SSAValue

import populus
from populus.compare.levels import compare_levels
from populus.dialects import popart
from populus.dialects.data import ConstantOp
from populus.dialects.support.diagnostics import fused, named, place
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.lowering.popart.rewriting import Pattern, Rewriting, rewrite


def normalised(weights_are_nodes: bool) -> ModelProto:
    """y = batch norm of two convolutions with the same weights, each an output."""
    rng = np.random.default_rng(0)
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "scale": (4,), "bias": (4,), "mean": (4,), "variance": (4,)}
    tensors = [numpy_helper.from_array(rng.random(shape, np.float32) + 0.5, name) for name, shape in shapes.items()]
    constants = [helper.make_node("Constant", [], [t.name], name=f"constant {t.name}", value=t) for t in tensors]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "variance"], ["y"], name="norm"),
        helper.make_node("Conv", ["x", "w"], ["z"], name="other"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        constants + nodes if weights_are_nodes else nodes,
        "g",
        [info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [info("y", TensorProto.FLOAT, [1, 4, 4, 4]), info("z", TensorProto.FLOAT, [1, 4, 4, 4])],
        [] if weights_are_nodes else tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("weights_are_nodes", [False, True], ids=["initializers", "Constant nodes"])
def test_weights_that_a_rewrite_has_changed_have_the_place_of_what_they_are_for(weights_are_nodes: bool):
    program = populus.compile(normalised(weights_are_nodes), tiles=2)
    prefix = "constant " if weights_are_nodes else ""
    convs = [op for op in program.module("popart").walk() if isinstance(op, popart.ConvOp)]
    found = {str(place(op.location)): str(place(op.w.owner.location)) for op in convs if isinstance(op.w.owner, ConstantOp)}
    assert found == {"'conv' + 'norm'": f"'{prefix}w' + 'conv' + 'norm'", "'other'": f"'{prefix}w'"}
    for comparison in compare_levels(program, program.signature.random(1)):
        assert comparison.first is None, str(comparison)


class Misplacing(Pattern[popart.NegOp]):
    """`-(-x)` is `|x| sign x`, by a pattern that says wrong places."""

    ROOTS = (popart.NegOp,)

    def rewrite(self, op: popart.NegOp, r: Rewriting) -> Sequence[SSAValue] | None:
        inner = op.x.owner
        if not isinstance(inner, popart.NegOp):
            return None
        made = [popart.AbsOp(inner.x), popart.SignOp(inner.x)]
        values = [r.insert(m) for m in made]
        made.append(popart.MulOp(*values))
        for m in made:
            m.location = inner.location
        return [r.insert(made[-1])]


TEXT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = popart.neg %x : tensor<4xf32> loc("first")
  %1 = popart.neg %0 : tensor<4xf32> loc("second")
  func.return %1 : tensor<4xf32>
}
"""


def test_no_pattern_can_give_a_new_op_the_place_of_another_value():
    module = LocatingParser(context(), TEXT).parse_module()
    (function,) = module.body.block.ops
    assert isinstance(module, ModuleOp)
    rewrite(function.regions[0].block, [Misplacing()])
    made = [op for op in function.walk() if op.name.startswith("popart.")]
    assert [(op.name, place(op.location)) for op in made] == [
        (name, "'first' + 'second'") for name in ("popart.abs", "popart.sign", "popart.mul")
    ]


def test_the_last_place_of_a_fusion_stays_last():
    a, b = named("a"), named("b")
    assert place(fused(a, b, UnknownLoc(), a)) == "'b' + 'a'"
    assert place(fused(fused(a, b), a)) == "'b' + 'a'"
    assert fused(a, a) == a
