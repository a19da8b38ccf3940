"""Attention: rows of values, mixed by how queries agree with keys."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.matmul import product, transposed
from populus.dialects.poplar.sums import narrowed, widened
from populus.dialects.popnn import SoftmaxOp
from populus.dialects.support import shapes
from populus.dialects.support.constraints import number
from populus.dialects.support.element_types import element_type_of, is_float, shape_of, tensor
from populus.dialects.support.shapes import ShapeError


@irdl_op_definition
class AttentionOp(PopartOp):
    """`y = softmax(scale q k^T + mask) v`, the softmax along the last dimension.

    q: [batch.., queries, size], k: [batch.., keys, size], v: [batch.., keys, width], batch dimensions equal; mask broadcasts to
    [batch.., queries, keys]. The gradient computes the softmax again rather than keep it. Source: ONNX Attention-23.
    """

    name = "popart.attention"
    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    scale = number(1.0)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        q, k, v = (shape_of(o.type) for o in (self.q, self.k, self.v))
        if len(q) < 2 or not len(q) == len(k) == len(v) or q[:-2] != k[:-2] or k[:-1] != v[:-1] or q[-1] != k[-1]:
            found = ", ".join(map(shapes.text, (q, k, v)))
            raise ShapeError(f"q, k and v are {found}; [.., queries, size], [.., keys, size] and [.., keys, width] are expected")
        if len(elements := {element_type_of(o.type) for o in self.operands}) > 1 or not is_float(element_type_of(self.q.type)):
            raise VerifyException(f"element types {', '.join(sorted(map(str, elements)))}; one type of floats is expected")
        scores = (*q[:-1], k[-2])
        if self.mask is not None and shapes.broadcast(shape_of(self.mask.type), scores) != scores:
            raise ShapeError(f"the mask is {shapes.text(shape_of(self.mask.type))}, which does not stretch to {shapes.text(scores)}")
        return [tensor((*q[:-1], v[-1]), element_type_of(self.q.type))]

    def _weights(self, b: Builder) -> SSAValue:
        """Builds the softmax of the scores. The scale applies to q or to the scores, whichever is smaller."""
        q, scale, shape = self.q, self.scale, calls.shape(self.q)
        early = shape[-1] <= calls.shape(self.k)[-2]
        if scale != 1 and early:
            q = calls.map(b, Arg(1) * scale, q)
        scores = product(b, q, transposed(b, self.k))
        formula = Arg(1) if scale == 1 or early else Arg(1) * scale
        if self.mask is None:
            scores = calls.map(b, formula, scores)
        else:
            scores = calls.map(b, formula + Arg(2), scores, self.mask)
        return calls.insert(b, SoftmaxOp(scores))

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [product(b, self._weights(b), self.v)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        g, scale = grads[0], self.scale
        p = self._weights(b)
        dp = product(b, g, transposed(b, self.v))
        along = len(calls.shape(p)) - 1
        own = calls.element(p)
        of_p, of_dp = widened(Arg(1), own), widened(Arg(2), own)
        total = calls.reduce(b, "add", calls.map(b, of_p * of_dp, p, dp), [along])
        total = calls.reshape(b, total, (*calls.shape(p)[:-1], 1))
        ds = calls.map(b, narrowed(of_p * (of_dp - Arg(3)), own), p, dp, total)
        dt = ds if scale == 1 else calls.map(b, Arg(1) * scale, ds)
        results: list[SSAValue | None] = [product(b, dt, self.k), product(b, transposed(b, dt), self.q), product(b, transposed(b, p), g)]
        if self.mask is not None:
            results.append(calls.sum_to(b, ds, calls.shape(self.mask)))
        return results
