"""Random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, StringAttr, TensorType, f32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from populus.dialects import poprand
from populus.dialects.base.tensor_op import ints
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.support.constraints import number, whole


@irdl_op_definition
class RandomOp(PopartOp):
    """Numbers of a distribution: `uniform` in [a, b), `normal` with mean a and deviation b, `bernoulli` with probability a.

    They follow from `seed`, two words, and `stream`, which tells several ops with one seed apart. No gradient flows to the seed.
    Source: ONNX RandomUniform-22, RandomNormal-22, Bernoulli-22.
    """

    name = "popart.random"
    SEED: ClassVar[int | None] = 0
    seed = operand_def(TensorType)
    distribution = prop_def(StringAttr)
    a = number(0.0)
    b = number(1.0)
    stream = whole(0)
    shape = prop_def(DenseArrayBase.constr(i64))
    element = prop_def(Attribute, default_value=f32)
    y = result_def(TensorType)

    def _call(self) -> poprand.RandomOp:
        return poprand.RandomOp(
            self.seed,
            distribution=self.distribution,
            a=self.a,
            b=self.b,
            stream=self.stream,
            shape=ints(self.shape),
            element=self.element,
        )

    def infer(self) -> Sequence[TensorType[Attribute]]:
        call = self._call()
        types = call.infer()
        call.erase()
        return types

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.insert(b, self._call())]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [None]
