"""Mistakes that are planted in passes, one at a time, and the model in which they show.

A mistake is what a wrong line in a pass would leave: after the pass has run, an op is changed; or a function that a pass calls is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, DictionaryAttr, FloatAttr, IntegerAttr, ModuleOp, StringAttr, f32, i1, i64
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import expr, popart, popops
from populus.dialects.data import ConstantOp, array_attribute
from populus.dialects.poplar import FamilyOp, SliceOp
from populus.lowering.driver.passes import PASSES
from populus.runtime.traces import place

Mutate = Callable[[Any], None]


def model() -> ModelProto:
    """A chain of nodes with names, with a skip or two, in which no element equals another."""
    rng = np.random.default_rng(0)

    def drawn(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)

    def given(name: str, value: Any, dtype: Any = np.int64) -> TensorProto:
        return numpy_helper.from_array(np.array(value, dtype), name)

    initial = [
        *(drawn("w", 6, 3, 3, 3), drawn("b", 6), drawn("scale", 6), drawn("shift", 6), drawn("mean", 6)),
        *(given("variance", rng.random(6) + 0.5, np.float32), drawn("w2", 6, 1, 3, 3), drawn("wg", 20, 36), drawn("bg", 20)),
        *(drawn("wq", 20, 20), drawn("gamma", 20), drawn("beta", 20), given("pads", [0, 0, 0, 0, 0, 0, 1, 1])),
        *(given("one", [1]), given("five", [5]), given("rows", [2, 0, 3]), given("flat", [1, 36]), given("four", [4, 5])),
        *(given("axis", 1), given("half", [0.5], np.float32)),
    ]
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w", "b"], ["c1"], name="conv", strides=[2, 1], pads=[1, 0, 0, 1]),
        n("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], ["c2"], name="norm"),
        n("LeakyRelu", ["c2"], ["c3"], name="leaky", alpha=0.2),
        n("Conv", ["c3", "w2"], ["c4"], name="depthwise", group=6),
        n("MaxPool", ["c4"], ["c5"], name="pool", kernel_shape=[2, 2], strides=[1, 2]),
        n("Pad", ["c5", "pads"], ["c6"], name="pad"),
        n("Transpose", ["c6"], ["c7"], name="transpose", perm=[0, 2, 3, 1]),
        n("Reshape", ["c7", "flat"], ["c8"], name="reshape"),
        n("Gemm", ["c8", "wg", "bg"], ["g"], name="gemm", transB=1),
        n("LayerNormalization", ["g", "gamma", "beta"], ["l"], name="layer"),
        n("MatMul", ["l", "wq"], ["q"], name="product"),
        n("Sub", ["q", "g"], ["d"], name="difference"),
        n("Reshape", ["d", "four"], ["d2"], name="square"),
        n("Softmax", ["d2"], ["s"], name="softmax", axis=-1),
        n("CumSum", ["s", "axis"], ["cs"], name="sums"),
        n("Gather", ["cs", "rows"], ["r"], name="gather", axis=0),
        n("ReduceMean", ["r"], ["m"], name="mean of rows", axes=[1]),
        n("Div", ["r", "m"], ["v"], name="quotient"),
        n("Slice", ["v", "one", "five", "one"], ["sl"], name="slice"),
        n("Tanh", ["sl"], ["t"], name="tanh"),
        n("Greater", ["t", "half"], ["gt"], name="greater"),
        n("Where", ["gt", "t", "sl"], ["y"], name="where"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [1, 3, 8, 7])], [info("y", TensorProto.FLOAT, [3, 4])], initial)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made


@dataclass(frozen=True)
class Mistake:
    """`mutate`: what is done to the op of this name and place once a pass has run, and where that is to be found: level and node."""

    title: str
    after: str
    op: str
    place: str
    mutate: Mutate
    found: tuple[str, str]


def ints(*values: int) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i64, values)


def sets(**properties: Any) -> Mutate:
    """Changes attributes of an op."""
    return lambda op: op.properties.update(properties)


def swaps(first: int, second: int) -> Mutate:
    """Exchanges two operands."""

    def mutate(op: Operation) -> None:
        op.operands[first], op.operands[second] = op.operands[second], op.operands[first]

    return mutate


def params(**values: Any) -> Mutate:
    """Changes parameters of a family's codelet."""

    def mutate(op: FamilyOp) -> None:
        op.params = DictionaryAttr({**op.params.data, **values})

    return mutate


def map_of(e: expr.Expr) -> Mutate:
    """Makes a map compute something else."""
    return sets(expr=expr.ExprAttr(e))


def family_of(e: expr.Expr) -> Mutate:
    """Makes a family of maps compute something else."""
    return params(expr=expr.ExprAttr(e))


def without_bias(op: popart.GemmOp) -> None:
    kept = {name: value for name, value in op.properties.items() if name != "operandSegmentSizes"}
    new = popart.GemmOp(op.operands[0], op.operands[1], None, **kept)
    new.location = op.location
    Rewriter.replace_op(op, new)


def with_turned_weights(op: Operation) -> None:
    turned = popops.DimShuffleOp(op.operands[1], permutation=(0, 2, 1))
    turned.location = op.location
    Rewriter.insert_op(turned, InsertPoint.before(op))
    op.operands[1] = turned.results[0]


def with_other_rows(op: ConstantOp) -> None:
    op.value = array_attribute(np.array([2, 1, 3]))


def one_lower(op: SliceOp) -> None:
    begins, ends = list(op.begins.get_values()), list(op.ends.get_values())
    op.properties.update(begins=ints(*begins[:2], begins[2] + 1, begins[3]), ends=ints(*ends[:2], ends[2] + 1, ends[3]))


x, y, z = expr.Arg(1), expr.Arg(2), expr.Arg(3)
CONVERTED, LOWERED, FUSED, TILED = "onnx-to-popart", "popart-to-popops", "popops-fuse", "popops-to-poplar"
MISTAKES = [
    Mistake("wrong padding", CONVERTED, "popart.conv", "conv", sets(pads=ints(0, 1, 1, 0)), ("popart", "norm")),
    Mistake("wrong sign", CONVERTED, "popart.leaky_relu", "leaky", sets(alpha=FloatAttr(-0.2, f32)), ("popart", "leaky")),
    Mistake("swapped operands", CONVERTED, "popart.sub", "difference", swaps(0, 1), ("popart", "difference")),
    Mistake("wrong axis", CONVERTED, "popart.softmax", "softmax", sets(axis=IntegerAttr(0, i64)), ("popart", "softmax")),
    Mistake("dropped bias", CONVERTED, "popart.gemm", "gemm", without_bias, ("popart", "gemm")),
    Mistake("wrong epsilon", CONVERTED, "popart.layer_norm", "layer", sets(epsilon=FloatAttr(100.0, f32)), ("popart", "layer")),
    Mistake("wrong constant", CONVERTED, "data.constant", "rows", with_other_rows, ("popart", "rows")),
    Mistake("swapped branches", CONVERTED, "popart.where", "where", swaps(1, 2), ("popart", "where")),
    Mistake("wrong begin", CONVERTED, "popart.slice", "slice", sets(begins=ints(0, 0), ends=ints(3, 4)), ("popart", "slice")),
    Mistake("wrong order of weights", LOWERED, "poplin.matmul", "product", with_turned_weights, ("popops", "product")),
    Mistake("wrong reduction", LOWERED, "popops.reduce", "mean of rows", sets(op=StringAttr("max")), ("popops", "mean of rows")),
    Mistake("wrong pooling", LOWERED, "popnn.pool", "pool", sets(kind=StringAttr("average")), ("popops", "pool")),
    Mistake("wrong stride", LOWERED, "popnn.pool", "pool", sets(strides=ints(1, 3), pads=ints(0, 0, 0, 1)), ("popops", "pool")),
    Mistake("wrong end", LOWERED, "popops.pad", "pad", sets(lower=ints(0, 0, 1, 1), upper=ints(0, 0, 0, 0)), ("popops", "pad")),
    Mistake("no pad at all", LOWERED, "popops.pad", "sums", sets(lower=ints(0, 0), upper=ints(0, 1)), ("popops", "sums")),
    Mistake("wrong epsilon of the call", LOWERED, "popnn.whiten", "layer", sets(epsilon=FloatAttr(100.0, f32)), ("popops", "layer")),
    Mistake("wrong fusion of maps", FUSED, "popops.map", "leaky", map_of(x - y), ("popops", "leaky")),
    Mistake("wrong function", FUSED, "popops.map", "tanh", map_of(expr.exp(x)), ("popops", "tanh")),
    Mistake("wrong literal", FUSED, "popops.map", "where", map_of(expr.select(x, y, expr.call("gt", x, 2.0))), ("popops", "where")),
    Mistake("wrong sign of a family", TILED, "poplar.family @map", "difference", family_of(x + y), ("poplar", "difference")),
    Mistake("swapped fields", TILED, "poplar.family @map", "layer", family_of(x * z + y), ("poplar", "layer")),
    Mistake("a logarithm too many", TILED, "poplar.family @softmax", "softmax", params(log=IntegerAttr(1, i1)), ("poplar", "softmax")),
    Mistake("largest of rows", TILED, "poplar.family @reduce", "mean of rows", params(op=StringAttr("max")), ("poplar", "mean of rows")),
    Mistake("wrong kind of window", TILED, "poplar.family @pool", "pool", params(kind=StringAttr("sum")), ("poplar", "pool")),
    Mistake("a copy to the wrong rows", TILED, "poplar.slice", "pad", one_lower, ("poplar", "pad")),
]


def kind(op: Operation) -> str:
    return f"{op.name} @{op.codelet.data}" if isinstance(op, FamilyOp) else op.name


def planted(monkeypatch: pytest.MonkeyPatch, mistake: Mistake) -> list[int]:
    """Changes the pass; how many ops were changed each time that it has run."""
    pass_class = PASSES[mistake.after]()
    apply, counts = pass_class.apply, list[int]()

    def wrong(self: Any, ctx: Context, module: ModuleOp) -> None:
        apply(self, ctx, module)
        found = [op for op in module.walk() if kind(op) == mistake.op and place(op) == mistake.place]
        for op in found[:1]:
            mistake.mutate(op)
        counts.append(len(found))

    monkeypatch.setattr(pass_class, "apply", wrong)
    return counts
