"""Products of floats on the native engine: panels for a single row, and where panels begin in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import populus
from populus.dialects.data import StoredAttr
from populus.dialects.poplar.memory import ConstOp
from populus.dialects.support.constant_table import TABLE
from populus.runtime.codelets.task import Task
from populus.runtime.engine.arena import ALIGNMENT
from populus.runtime.engine.native.codegen.cpu import Machine, machine
from populus.runtime.engine.native.codegen.jit import Kernel, library
from populus.runtime.engine.native.kernels.contraction import ALONE, FIRST_WORD, STAGE, Product, lanes_of
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.panels import lines, offsets
from populus.runtime.engine.native.kernels.places import places_of
from populus.runtime.engine.native.run.program import NativeProgram

Array = NDArray[Any]


def product(x: Array, w: Array) -> tuple[Array, Launch]:
    """The product of x and a constant on one tile, and its launch."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    program = populus.compile(model, engine="native", tiles=1)
    ran = program.session._program  # pyright: ignore[reportPrivateUsage]
    assert isinstance(ran, NativeProgram), ran
    (launch,) = (launch for launch in ran.table.launches.values() if launch.kernel.key == "blocks")
    return program.run({"x": x})["y"], launch


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 70, 515])
def test_one_row_has_the_bits_of_that_row_among_others(columns: int, dtype: Any):
    rng = np.random.default_rng(columns)
    x, w = rng.standard_normal((7, 1100)).astype(dtype), rng.standard_normal((1100, columns)).astype(dtype)
    alone, _ = product(x[:1], w)
    among, _ = product(x, w)
    assert alone.tobytes() == among[:1].tobytes()


def test_one_row_has_wide_panels_that_are_read_in_one_stage():
    x, w = np.ones((1, 3000), np.float32), np.ones((3000, 1000), np.float32)
    vectors = -(-1000 // lanes_of(machine(), x.dtype))
    found, launch = product(x, w)
    assert (found == 3000).all()
    assert launch.units == -(-vectors // ALONE)
    assert launch.args[FIRST_WORD - 1] == 1  # the number of stages
    _, launch = product(np.ones((2, 3000), np.float32), w)
    assert launch.units == -(-vectors // machine().block[1])


def test_panels_begin_a_line_of_the_cache():
    rng = np.random.default_rng(0)
    for rows, columns in ((1, 40), (7, 24), (5, 3)):
        _, launch = product(rng.standard_normal((rows, 50)).astype(np.float32), rng.standard_normal((50, columns)).astype(np.float32))
        packed = launch.args[3]
        assert isinstance(packed, np.ndarray), packed
        assert packed.ctypes.data % ALIGNMENT == 0


def _farthest(name: str, machine: Machine) -> str:
    """Emits a block that stores the address of its last prefetch instead of sums."""
    return f"""define void @{name}(ptr %a, ptr %rows, ptr %depth, ptr %b, ptr %c, i64 %step, i64 %valid, ptr %ends, i64 %slices, i64 %stage,
    ptr %buffer, ptr %ahead, i64 %pace, ptr %words, i64 %row, i64 %column) {{
  %high = getelementptr i64, ptr %ends, i64 %slices
  %end = load i64, ptr %high
  %last = sub i64 %end, 1
  %bytes = mul i64 %pace, %last
  %far = getelementptr i8, ptr %ahead, i64 %bytes
  store ptr %far, ptr %c
  ret void
}}
"""


@pytest.mark.parametrize("k", [40, 3 * STAGE // 64])
def test_blocks_fetch_nothing_after_the_last_panel(k: int):
    rows, columns = 50, 100
    a, b, c = np.ones((rows, k)), np.ones((k, columns)), lines((rows, columns), "f8")
    c[:] = 0
    product = Product(library(), a, offsets((rows,), (8 * k,)), offsets((k,), (8,)), c, 8 * columns, 8, columns)
    packed = product.packed(b, offsets((k,), (8 * columns,)), offsets((columns,), (8,)), None)
    launch = product.launch(packed.room)
    assert launch is not None
    fake = Kernel("farthest prefetch", _farthest)
    launch.args = [*launch.args[:5], fake, fake, fake, fake, *launch.args[9:]]
    launch()
    fetched = np.sort(c.view(np.int64)[c != 0]) - packed.room.ctypes.data
    assert len(fetched) == launch.units
    assert 0 <= fetched[0]
    assert fetched[-1] < packed.room.nbytes
    assert fetched[-1] >= packed.room.nbytes - 8 * k * product.panels.broad * product.panels.lanes  # the last panel itself is fetched


def test_a_constant_is_kept_once_as_its_panels_and_given_back_from_them():
    w = np.random.default_rng(5).standard_normal((40, 37)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "kept",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [16, 37])],
        [numpy_helper.from_array(w, "w")],
    )
    program = populus.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), engine="native")
    (constant,) = (op for op in program.module("poplar").walk() if isinstance(op, ConstOp))
    assert isinstance(constant.value, StoredAttr)
    assert not TABLE.is_released(constant.value.data)
    assert isinstance(program.session._program, NativeProgram)
    assert TABLE.is_released(constant.value.data)
    np.testing.assert_array_equal(constant.array().reshape(w.shape), w)


def test_places_are_bits_of_a_positive_word():
    task = Task({}, {}, {}, threads=100)
    task.workspace.places = 100
    task.workspace.busy = task.workspace.own(8).view(np.int64)
    assert 1 << places_of(task, 100)[1] < 1 << 64
    assert places_of(task, 5)[1] == 5
