"""OpenVINO's custom operations, row by row."""

from __future__ import annotations

import numpy as np
import pytest

import populus
from populus.dialects.diagnostics import PopulusError
from populus.lowering import extensions

PICK = '''

from xdsl.dialects.builtin import TensorType, i32

from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.poplar.tile_code import IntVector, Vector, codelet


@codelet(axes={"table": "n", "indices": "i", "y": "i"})
def picked_in_seeds(table: Vector, indices: IntVector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = table[indices[i]]


@irdl_op_definition
class PickOp(PopartOp):
    """`y[i] = table[indices[i]]`. Source: a test."""

    name = "acme.pick"
    table = operand_def(TensorType)
    indices = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self):
        return [TensorType(self.table.type.element_type, self.indices.type.get_shape())]

    def lower(self, b):
        return [calls.codelet(b, picked_in_seeds, self.table, self.indices, shape=self.indices.type.get_shape())]


pick = function_of(PickOp)
'''
SQUARED = '''

from populus.dialects.popart import AddOp, MulOp
from populus.dialects.popart.base import PopartOp


@irdl_op_definition
class SquaredOp(PopartOp):
    """`y = x x + x`, by two built-in ops. Source: a test."""

    name = "acme.squared"
    ONNX: ClassVar = ("com.acme", "Squared", 1)
    T: ClassVar = tensors("T", f32)
    x = operand_def(T)
    y = result_def(T)

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        return [b.insert(AddOp(b.insert(MulOp(self.x, self.x)), self.x)).y]
'''


def test_V12_a_view_of_a_tensor_is_worked_on_without_a_copy(changed):
    pick = extensions.load(changed(more=PICK)).module.pick
    with populus.Builder() as b:
        part = b.op("slice", b.input("t", (9,)), begins=(2,), ends=(8,), steps=(2,))[0]
        b.output("y", pick(part, b.input("i", (3,), "int32")))
    program = populus.compile(b.module(), tiles=1)
    assert not [op for op in program.module("poplar").walk() if op.name == "poplar.copy"]
    assert program.run({"t": np.arange(9, dtype=np.float32), "i": np.array([2, 0, 1], np.int32)})["y"].tolist() == [6, 2, 4]


@pytest.mark.parametrize("engine", ["numpy", "strict"])
def test_V14_a_kernel_that_fails_leaves_the_session_usable(engine, changed):
    pick = extensions.load(changed(more=PICK)).module.pick
    with populus.Builder() as b:
        b.output("y", pick(b.input("t", (4,)), b.input("i", (2,), "int32"), name="pick"))
    program = populus.compile(b.module(), tiles=2, engine=engine)
    table = np.arange(4, dtype=np.float32)
    with pytest.raises(PopulusError, match="index 7 of table is outside of the 4 elements of dimension 0"):
        program.run({"t": table, "i": np.array([0, 7], np.int32)})
    assert program.run({"t": table, "i": np.array([3, 1], np.int32)})["y"].tolist() == [3, 1]


def test_V16_a_kernel_reads_what_a_view_shows(changed):
    pick = extensions.load(changed(more=PICK)).module.pick
    with populus.Builder() as b:
        back = b.op("slice", b.input("t", (4,)), begins=(3,), ends=(-1,), steps=(-1,))[0]
        b.output("y", pick(back, b.input("i", (2,), "int32")))
    for engine in ("numpy", "strict"):
        program = populus.compile(b.module(), tiles=2, engine=engine)
        assert program.run({"t": np.arange(4, dtype=np.float32), "i": np.array([0, 3], np.int32)})["y"].tolist() == [3, 0]


def test_V19_one_file_has_several_ops(changed):
    extension = extensions.load(changed(more=PICK + SQUARED))
    assert [op.name for op in extension.ops] == ["acme.leaky_relu", "acme.pick", "acme.squared"]


def test_V22_a_node_becomes_two_built_in_ops(changed, model):
    program = populus.compile(model("Squared"), load=[changed(more=SQUARED)])
    text = str(program.module("popops"))
    assert "acme" not in text
    assert "popops.map" in text
    assert program.run({"x": np.array([-1, 0, 2], np.float32)})["y"].tolist() == [0, 0, 6]
