"""In-place marks: programs that really overwrite what is marked give what those without marks do."""

from __future__ import annotations

import random

import numpy as np
import pytest
from xdsl.dialects.builtin import FunctionType, IntegerAttr, f32, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, OpResult, Region, SSAValue, SSAValues

import populus
from populus.dialects import popart
from populus.dialects.base.tensor_op import INPLACE, TensorOp
from populus.dialects.data import constant
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.support.element_types import shape_of, tensor
from populus.lowering.popart.inplace import mark
from populus.lowering.popart.to_popops import lower_block
from populus.runtime.interpreter import evaluate_op
from populus.runtime.session import Session

SHAPE = (4, 4)


def program(seed: int) -> FuncOp:
    """Element-wise ops, views and products of square matrices that use each other's results."""
    rng = random.Random(seed)
    block = Block(arg_types=[tensor(SHAPE, f32)] * 2)
    values: list[SSAValue] = list(block.args)

    def add(op) -> None:
        block.add_op(op)
        values.append(op.results[0])

    add(constant(np.arange(16, dtype=np.float32).reshape(SHAPE)))
    for _ in range(rng.randint(4, 16)):
        x = values[-1] if rng.random() < 0.6 else rng.choice(values)
        alike = [v for v in values if v.type == x.type]
        match rng.randrange(8):
            case 0 | 1:
                add(rng.choice([popart.NegOp, popart.TanhOp, popart.AbsOp])(x))
            case 2 | 3 | 4:
                add(rng.choice([popart.AddOp, popart.SubOp, popart.MaxOp])(x, rng.choice(alike)))
            case 5:
                flat = len(shape_of(x.type)) == 2
                add(popart.ReshapeOp(x, shape=(16,) if flat else SHAPE))
            case 6 if len(shape_of(x.type)) == 2:
                add(popart.TransposeOp(x, permutation=(1, 0)))
            case _ if len(shape_of(x.type)) == 2:
                add(popart.SoftmaxOp(x, axis=1))
            case _:
                add(popart.TanhOp(x))
    results = [*rng.sample(values, min(2, len(values))), values[-1]]
    block.add_op(ReturnOp(*results))
    type = FunctionType.from_lists([a.type for a in block.args], [r.type for r in results])
    return FuncOp("main", type, Region(block))


def overwriting(block: Block, inputs: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """The results of a block whose marked ops write into the array of the marked operand, and whose views are NumPy's."""
    values: dict[SSAValue, np.ndarray] = dict(zip(block.args, inputs))
    marks = 0
    for op in block.ops:
        arrays = [values[o] for o in op.operands]
        if isinstance(op, ReturnOp):
            return arrays, marks
        found = op.attributes.get(INPLACE)
        if isinstance(op, TensorOp) and op.is_view:
            x = arrays[0]
            values[op.results[0]] = x.T if isinstance(op, popart.TransposeOp) else x.reshape(shape_of(op.results[0].type))
        elif isinstance(found, IntegerAttr):
            marks += 1
            arrays[found.value.data][...] = evaluate_op(op, [a.copy() for a in arrays])[0]
            values[op.results[0]] = arrays[found.value.data]
        else:
            values[op.results[0]] = np.array(evaluate_op(op, arrays)[0])
    raise AssertionError("no return")


@pytest.mark.parametrize("seed", range(150))
def test_overwriting_what_is_marked_changes_nothing(seed: int):
    function = program(seed)
    block = function.body.block
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(SHAPE).astype(np.float32) for _ in block.args]
    expected, none = overwriting(block, [i.copy() for i in inputs])
    assert none == 0
    expected = [e.copy() for e in expected]
    mark(block)
    given = [i.copy() for i in inputs]
    found, _ = overwriting(block, given)
    assert all(f.tobytes() == e.tobytes() for f, e in zip(found, expected))
    assert all(g.tobytes() == i.tobytes() for g, i in zip(given, inputs))  # the caller's arrays are as they were


def test_random_programs_have_marks():
    marked = 0
    for seed in range(50):
        block = program(seed).body.block
        mark(block)
        marked += sum(INPLACE in op.attributes for op in block.ops)
    assert marked > 50


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_tiles_follow_marks(seed: int):
    from xdsl.dialects.builtin import ModuleOp

    plain, marked = (ModuleOp([program(seed)]) for _ in range(2))
    (function,) = marked.body.block.ops
    mark(function.regions[0].block)
    expected = populus.compile(plain, target="gc200", tiles=4)
    inputs = expected.signature.random(seed)
    program_ = populus.compile(marked, target="gc200", tiles=4)
    for engine in ("numpy", "strict", "native"):
        a = Session(expected.module("poplar"), engine).run(inputs)
        b = Session(program_.module("poplar"), engine).run(inputs)
        assert all(a[name].tobytes() == b[name].tobytes() for name in a)


def test_an_op_may_have_priorities_of_its_own():
    class Lazy(popart.AddOp):
        def inplace_priority(self):
            return [(1, 20.0), (0, 10.0)]

    block = Block(arg_types=[tensor(SHAPE, f32)])
    a, b = popart.TanhOp(block.args[0]), popart.NegOp(block.args[0])
    last = Lazy(a.results[0], b.results[0])
    assert isinstance(last, PopartOp)
    block.add_ops([a, b, last, ReturnOp(last.results[0])])
    mark(block)
    assert last.attributes[INPLACE].value.data == 1


class PairOp(popart.AddOp):
    """Gives the sum and the difference."""

    name = "acme.pair"

    def __init__(self, *operands, priorities):
        super().__init__(*operands)
        self.results = SSAValues([*self.results, OpResult(self.results[0].type, self, 1)])
        self.priorities = priorities

    def inplace_priority(self):
        return self.priorities

    def lower(self, b):
        return [calls.map(b, Arg(1) + Arg(2), *self.operands), calls.map(b, Arg(1) - Arg(2), *self.operands)]


def marked_pair(priorities) -> tuple[PairOp, Block]:
    block = Block(arg_types=[tensor(SHAPE, f32)])
    a, b = popart.TanhOp(block.args[0]), popart.NegOp(block.args[0])
    pair = PairOp(a.results[0], b.results[0], priorities=priorities)
    block.add_ops([a, b, pair, ReturnOp(*pair.results)])
    mark(block)
    return pair, block


def test_each_result_may_overwrite_an_operand():
    pair, block = marked_pair([(0, 10.0), (1, 20.0, 1), (0, 5.0, 1)])
    assert list(pair.attributes[INPLACE].get_values()) == [0, 1]
    lower_block(block, None)
    made = list(block.ops)[-3:-1]
    assert [op.attributes[INPLACE].value.data for op in made] == [0, 1]


def test_two_results_do_not_overwrite_one_operand():
    pair, _ = marked_pair([(0, 10.0), (0, 5.0, 1)])
    assert pair.attributes[INPLACE] == IntegerAttr(0, i64)
