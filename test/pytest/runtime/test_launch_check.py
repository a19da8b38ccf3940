"""`POPULUS_CHECK=1`: launches are held against the program's accesses; mistakes planted in the engine are refuted when it is loaded."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

import populus
from populus.dialects.poplar.task import Chain
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.proof.launches import LAUNCHES, RefutedLaunches, prove_launches
from populus.proof.report import PROVED, UNDECIDED
from populus.runtime.codelets.undefined import VARIABLE
from populus.runtime.engine.native.codegen.touched import Elements
from populus.runtime.engine.native.kernels import operands, products
from populus.runtime.engine.native.kernels.contraction import Product
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.launch_check import _overlap
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.session import graph_of

Array = NDArray[Any]
node = helper.make_node


def noise(*shape: int, dtype: Any = np.float32) -> Array:
    """Random elements; integers are small."""
    rng = np.random.default_rng(sum(shape))
    return rng.integers(-4, 5, shape).astype(dtype) if np.dtype(dtype).kind in "iu" else rng.standard_normal(shape).astype(dtype)


def model(nodes: list[NodeProto], inputs: dict[str, Array], constants: dict[str, Array]) -> ModelProto:
    """A model whose result is y."""
    graph = helper.make_graph(
        nodes,
        "checked",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


LAST = node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1])
PIXELS = model(
    [node("Conv", ["x", "w"], ["c"], group=2, pads=[1, 1, 1, 1]), LAST, node("TopK", ["t", "k"], ["y", "at"])],
    {"x": noise(2, 4, 6, 5)},
    {"w": noise(8, 2, 3, 3), "k": np.array([3])},
)
BESIDE = model(
    [node("MatMul", ["x", "w"], ["c"]), node("Relu", ["c"], ["f"]), node("Concat", ["c", "f"], ["y"], axis=0)],
    {"x": noise(12, 20)},
    {"w": noise(20, 16)},
)
BACKWARDS = model(
    [node("Slice", ["x", "start", "end", "axes", "step"], ["f"]), node("MaxPool", ["f"], ["y"], kernel_shape=[7, 7])],
    {"x": noise(1, 3, 9, 8)},
    {"start": np.array([-1]), "end": np.array([-100]), "step": np.array([-1]), "axes": np.array([2])},
)
RESIDUAL = model(  # the formula on the product reads what is computed between the two
    [
        node("Relu", ["x"], ["r"]),
        node("Conv", ["r", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Softmax", ["p"], ["q"], axis=1),
        node("Softmax", ["q"], ["s"]),
        node("Add", ["c", "s"], ["y"]),
    ],
    {"x": noise(1, 4, 8, 8)},
    {"w": noise(4, 4, 3, 3)},
)


@dataclass
class Misplaced(Product):
    """Products that take adjacent channels for pixels of a group's channels alone."""

    def __post_init__(self) -> None:
        if self.column_step == self.c.itemsize:
            self.row_step = self.c.itemsize * self.n


def without_negative(rows: Callable[..., Array]) -> Callable[..., Array]:
    """Takes negative offsets for rows outside."""

    def changed(self: Any) -> Array:
        table = rows(self)
        return np.where(table < 0, operands.OUTSIDE, table)

    return changed


def loaded(proto: ModelProto, **options: Any) -> NativeProgram:
    """The model as the native engine has loaded it."""
    found = populus.compile(proto, engine="native", tiles=16, **options).session._program  # pyright: ignore[reportPrivateUsage]
    assert isinstance(found, NativeProgram), found
    return found


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Plants mistakes, which the engine does not notice until the check is on."""
    monkeypatch.setenv(VARIABLE, "0")
    return monkeypatch


@pytest.mark.parametrize("proto", [PIXELS, BESIDE, BACKWARDS, RESIDUAL], ids=["pixels", "beside", "backwards", "residual"])
def test_what_is_right_passes(proto: ModelProto, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "1")
    check = loaded(proto).check
    assert check is not None
    assert check.tasks > 0
    assert not check.unstated


def test_pixels_that_overwrite_one_another_are_refuted(planted: pytest.MonkeyPatch):
    planted.setattr(products, "Product", Misplaced)
    loaded(PIXELS)
    planted.setenv(VARIABLE, "1")
    with pytest.raises(AssertionError, match="@conv: launch 'blocks' writes again 464 bytes"):
        loaded(PIXELS)


def test_a_proof_has_a_row_for_launches_and_refutes_pixels_that_overwrite_one_another(planted: pytest.MonkeyPatch):
    graph = graph_of(populus.compile(PIXELS, engine="numpy", tiles=16).module("poplar"))
    row = prove_launches(graph)
    assert (row.passes, row.verdict) == (LAUNCHES, PROVED)
    assert int(row.why.removesuffix(" tasks")) > 0
    planted.setattr(products, "Product", Misplaced)
    with pytest.raises(RefutedLaunches, match="@conv: launch 'blocks' writes again 464 bytes"):
        prove_launches(graph)


def test_a_kernel_that_states_nothing_leaves_launches_open(planted: pytest.MonkeyPatch):
    planted.setattr(Launch, "touched", None)
    row = prove_launches(graph_of(populus.compile(BESIDE, engine="numpy", tiles=16).module("poplar")))
    assert row.verdict == UNDECIDED
    assert "states nothing" in row.why


def test_sums_that_are_not_stored_though_others_read_them_are_refuted(planted: pytest.MonkeyPatch):
    planted.setattr(Chain, "touched_elsewhere", lambda self: None)
    loaded(BESIDE)
    planted.setenv(VARIABLE, "1")
    with pytest.raises(AssertionError, match="c is not written: 768 bytes"):
        loaded(BESIDE)


def test_rows_that_are_taken_for_padding_are_refuted(planted: pytest.MonkeyPatch):
    planted.setattr(operands.Side, "rows", without_negative(operands.Side.rows))
    loaded(BACKWARDS)
    planted.setenv(VARIABLE, "1")
    with pytest.raises(AssertionError, match="@pool: x is not read"):
        loaded(BACKWARDS)


LONG = """
poplar.graph @main target <host, tiles = 1> {
  %x = poplar.var "x" on [1, 1, 2, 4, 5] at 0 : !poplar.tensor<1x1x2x4x5xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<1x1x2x4x5xf32>
  %w = poplar.var "w" on [1, 3, 2, 3, 1] at 160 : !poplar.tensor<1x3x2x3x1xf32>
  poplar.stream_in "w" to %w : !poplar.tensor<1x3x2x3x1xf32>
  %y = poplar.var "y" on [1, 1, 3, 2, 3] at 240 : !poplar.tensor<1x1x3x2x3xf32>
  %z = poplar.var "z" on [3, 2] at 320 : !poplar.tensor<3x2xf32>
  poplar.stream_in "z" to %z : !poplar.tensor<3x2xf32>
  %r = poplar.var "r" on [1, 2] at 344 : !poplar.tensor<1x2xf32>
  poplar.stream_in "r" to %r : !poplar.tensor<1x2xf32>
  poplar.execute "c" {
    poplar.family @conv for (b = 1, g = 1, oc = 3, ic = 2, o0 = 2, o1 = 3, k0 = 3, k1 = 2147483648)
      in x = %x[b, g, ic, o0 + k0, o1 + k1 * 2] : !poplar.tensor<1x1x2x4x5xf32>
      in w = %w[g, oc, ic, k0, k1] : !poplar.tensor<1x3x2x3x1xf32>
      out y = %y[b, g, oc, o0, o1] : !poplar.tensor<1x1x3x2x3xf32>
  }
  poplar.execute "m" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (d0 = 0, d1 = 2)
      in x1 = %r[0, d1] : !poplar.tensor<1x2xf32>
      out y = %z[d0, d1] : !poplar.tensor<3x2xf32>
  }
  poplar.stream_out %y to "y" : !poplar.tensor<1x1x3x2x3xf32>
  poplar.stream_out %z to "z" : !poplar.tensor<3x2xf32>
} {peak_tile_bytes = 352 : i64}
"""


def test_an_axis_far_longer_than_its_view_and_one_of_no_points_are_checked_by_what_they_reach(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "1")
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x, w, z = noise(1, 1, 2, 4, 5), noise(1, 3, 2, 3, 1), noise(3, 2)
    outputs = populus.compile(parse_text(context(), LONG, "long.mlir"), engine="native").run({"x": x, "w": w, "z": z, "r": noise(1, 2)})
    expected = sum(np.einsum("ixy,oi->oxy", x[0, 0, :, k : k + 2, :3], w[0, :, :, k, 0]) for k in range(3))
    np.testing.assert_allclose(outputs["y"][0, 0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(outputs["z"], z)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - taken < 1 << 20  # kB; the axis as numbers is 16 GiB


# -- what kernels state is true -----------------------------------------------------------------------------------------

IMAGE = noise(2, 4, 10, 9)
FLIP = {"start": np.array([-1]), "end": np.array([-100]), "axes": np.array([2]), "step": np.array([-1])}
STATED: dict[str, tuple[list[NodeProto], Array, dict[str, Array]]] = {
    "matmul": ([node("MatMul", ["x", "w"], ["y"])], noise(13, 20), {"w": noise(20, 70)}),
    "matmul of f16": ([node("MatMul", ["x", "w"], ["y"])], noise(13, 20, dtype=np.float16), {"w": noise(20, 7, dtype=np.float16)}),
    "gemm, relu": (
        [node("Gemm", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])],
        noise(13, 20),
        {"w": noise(20, 33), "b": noise(33)},
    ),
    "one row": ([node("MatMul", ["x", "w"], ["y"])], noise(1, 20), {"w": noise(20, 70)}),
    "transposed": ([node("Transpose", ["x"], ["t"]), node("MatMul", ["t", "w"], ["y"])], noise(20, 13), {"w": noise(20, 70)}),
    "conv": (
        [node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1]), node("Relu", ["c"], ["y"])],
        IMAGE,
        {"w": noise(6, 4, 5, 5), "b": noise(6)},
    ),
    "conv of single elements": (
        [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])],
        noise(2, 4, 8, 8),
        {"w": noise(6, 4, 1, 1), "b": noise(6)},
    ),
    "winograd": (
        [node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["y"])],
        noise(1, 32, 28, 28),
        {"w": noise(32, 32, 3, 3), "b": noise(32)},
    ),
    "depthwise": (
        [node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], group=4), node("Relu", ["c"], ["y"])],
        IMAGE,
        {"w": noise(4, 1, 3, 3), "b": noise(4)},
    ),
    "large depthwise": ([node("Conv", ["x", "w"], ["y"], group=4)], IMAGE, {"w": noise(4, 1, 7, 7)}),
    "flipped depthwise": (
        [node("Slice", ["x", *FLIP], ["f"]), node("Conv", ["f", "w"], ["y"], group=4, dilations=[2, 2])],
        IMAGE,
        {"w": noise(4, 1, 3, 3), **FLIP},
    ),
    "channels last": ([node("Conv", ["x", "w"], ["c"], group=2), LAST, node("Exp", ["t"], ["y"])], IMAGE, {"w": noise(6, 2, 3, 3)}),
    "bytes of a pool": ([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3])], noise(2, 4, 10, 9, dtype=np.int8), {}),
    "volumes": ([node("AveragePool", ["x"], ["y"], kernel_shape=[2, 3, 2], pads=[1, 1, 0, 1, 0, 1])], noise(1, 2, 5, 6, 7), {}),
    "small pool": ([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0])], IMAGE, {}),
    "large pool": ([node("AveragePool", ["x"], ["y"], kernel_shape=[7, 7], pads=[3, 3, 3, 3])], IMAGE, {}),
    "one column": ([node("MaxPool", ["x"], ["y"], kernel_shape=[6, 9], dilations=[1, 1])], IMAGE, {}),
    "softmax": ([node("Softmax", ["x"], ["y"], axis=1)], IMAGE, {}),
    "norm": ([node("LayerNormalization", ["x", "s"], ["y"])], IMAGE, {"s": noise(9)}),
    "sums": ([node("ReduceSum", ["x", "axes"], ["y"])], IMAGE, {"axes": np.array([0, 2, 3])}),
    "sums across": ([node("ReduceSum", ["x", "axes"], ["y"])], IMAGE, {"axes": np.array([0, 1])}),
    "largest": ([node("ReduceMax", ["x", "axes"], ["y"])], IMAGE, {"axes": np.array([1])}),
    "positions": ([node("TopK", ["x", "k"], ["v", "y"], axis=1)], IMAGE, {"k": np.array([2])}),
    "copies": ([node("Transpose", ["x"], ["t"], perm=[3, 0, 2, 1]), node("Pad", ["t", "p"], ["y"])], IMAGE, {"p": np.array([1] * 8)}),
    "a formula": ([node("Mul", ["x", "r"], ["m"]), node("Tanh", ["m"], ["y"])], IMAGE, {"r": noise(4, 1, 9)}),
    "bytes": (
        [node("MatMulInteger", ["x", "w"], ["c"]), node("Cast", ["c"], ["f"], to=1), node("Mul", ["f", "s"], ["y"])],
        noise(13, 20, dtype=np.uint8),
        {"w": noise(20, 70, dtype=np.int8), "s": np.array(0.5, np.float32)},
    ),
    "bytes alone": ([node("MatMulInteger", ["x", "w"], ["y"])], noise(13, 19, dtype=np.uint8), {"w": noise(19, 5, dtype=np.int8)}),
    "convolution of bytes": (
        [node("ConvInteger", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Cast", ["c"], ["y"], to=1)],
        noise(2, 8, 6, 6, dtype=np.uint8),
        {"w": noise(16, 8, 3, 3, dtype=np.int8)},
    ),
    "depthwise of bytes": (
        [node("ConvInteger", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=32), node("Cast", ["c"], ["y"], to=1)],
        noise(2, 32, 6, 5, dtype=np.uint8),
        {"w": noise(32, 1, 3, 3, dtype=np.int8)},
    ),
    "depthwise of bytes alone": (
        [node("ConvInteger", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=32)],
        noise(2, 32, 6, 5, dtype=np.uint8),
        {"w": noise(32, 1, 3, 3, dtype=np.int8)},
    ),
    "winograd of bytes": (  # on CPUs that add pairs of products; others take direct sums
        [node("ConvInteger", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Cast", ["c"], ["y"], to=1)],
        noise(2, 32, 12, 10, dtype=np.uint8),
        {"w": noise(32, 32, 3, 3, dtype=np.int8)},
    ),
}


def marked(elements: list[Elements], begin: int, bytes: int) -> Array:
    """The bytes of a memory that are elements."""
    bits = np.zeros(bytes, np.bool_)
    for e in elements:
        for piece in e.pieces():
            at = np.add.outer(piece - begin, np.arange(e.item)).reshape(-1)
            bits[at[(at >= 0) & (at < bytes)]] = True
    return bits


@pytest.mark.parametrize("name", STATED)
def test_a_launch_writes_what_its_kernel_states_and_reads_no_more(name: str, monkeypatch: pytest.MonkeyPatch):
    nodes, x, constants = STATED[name]
    monkeypatch.setenv(VARIABLE, "1")
    ran = loaded(model(nodes, {"x": x}, constants), threads=1)
    arena = ran._arena  # pyright: ignore[reportPrivateUsage]
    assert arena is not None
    assert ran.check is not None
    assert not ran.check.unstated
    launches = list(ran.table.launches.values())
    assert launches
    g = np.random.default_rng(7)
    for launch in launches:
        touched = launch.touched
        assert touched is not None, launch.kernel.key
        begin = arena.ctypes.data
        written, read = (marked(list(e), begin, arena.size) for e in (touched.writes, touched.reads))
        memory = g.integers(0, 64, arena.size, np.uint8)  # floats without NaN, whose bits may change
        changed, results = np.zeros(arena.size, np.bool_), list[Array]()
        for _ in range(3):
            arena[:] = memory
            launch()
            changed |= arena != memory
            results.append(arena[written].copy())
            # All else changes: what is not read, and what is written without being read.
            memory = np.where(read, memory, ~memory & 63)
        assert not (changed & ~written).any(), launch.kernel.key
        items = {e.item for e in touched.writes}
        whole = np.add.reduceat(changed[written], np.arange(0, written.sum(), min(items))) if written.any() else np.ones(1)
        assert (whole > 0).all(), launch.kernel.key
        assert all(r.tobytes() == results[0].tobytes() for r in results), launch.kernel.key


ROWS = noise(6, 4)
WORDS_OF = {
    name: STATED[name]
    for name in (
        "matmul",
        "conv",
        "winograd",
        "depthwise",
        "large depthwise",
        "small pool",
        "large pool",
        "volumes",
        "bytes of a pool",
        "depthwise of bytes",
        "depthwise of bytes alone",
        "winograd of bytes",
        "softmax",
        "norm",
        "sums",
        "sums across",
        "largest",
        "positions",
        "copies",
        "a formula",
        "matmul of f16",
        "gemm, relu",
        "bytes",
        "bytes alone",
        "convolution of bytes",
        "conv of single elements",
    )
} | {
    "ending of a matrix": ([node("MatMul", ["x", "w"], ["c"]), node("Add", ["c", "x"], ["y"])], noise(13, 20), {"w": noise(20, 20)}),
    "ending of winograd": (
        [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Add", ["c", "x"], ["y"])],
        noise(1, 32, 28, 28),
        {"w": noise(32, 32, 3, 3)},
    ),
    "packed weights": (
        [node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=64, N=24, bits=4, block_size=32)],
        noise(5, 64),
        {"w": noise(24, 2, 16, dtype=np.uint8), "s": noise(24, 2)},
    ),
    "packed weights and many rows": (
        [node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=64, N=24, bits=4, block_size=32)],
        noise(40, 64),
        {"w": noise(24, 2, 16, dtype=np.uint8), "s": noise(24, 2)},
    ),
    "taken rows": ([node("Gather", ["t", "x"], ["y"], axis=1)], np.array([2, 0, 2]), {"t": noise(2, 5, 4)}),
    "taken elements": ([node("Gather", ["t", "x"], ["y"], axis=2)], np.array([2, 0, 2]), {"t": noise(2, 5, 4)}),
    "updated rows": ([node("ScatterND", ["x", "at", "u"], ["y"])], ROWS, {"at": np.array([[4], [1]]), "u": noise(2, 4)}),
}


@pytest.mark.parametrize("name", WORDS_OF)
def test_words_of_an_operand_with_other_strides_are_refuted(name: str, planted: pytest.MonkeyPatch):
    nodes, x, constants = WORDS_OF[name]
    proto, right = model(nodes, {"x": x}, constants), operands.walk

    def wrong(accesses: Any, points: Any, strides: Any) -> operands.Walk:
        found = right(accesses, points, strides)
        item = min(map(abs, found.bytes.values()))
        return operands.Walk(found.points, {axis: n if abs(n) == item else 2 * n for axis, n in found.bytes.items()})

    planted.setattr(operands, "walk", wrong)
    loaded(proto)
    planted.setenv(VARIABLE, "1")
    refused = r"beside the|is not read|is not written|writes again|more than once|reads scratch memory|is written while"
    with pytest.raises(AssertionError, match=refused):
        loaded(proto)


DOUBLED = """
poplar.graph @main target <gc200, tiles = 4> {
  %k = poplar.const "k" dense<2.0> : tensor<16xf32> on [16 in 4] order [0] : !poplar.tensor<16xf32>
  %a = poplar.var "a" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  %b = poplar.var "b" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  poplar.stream_in "a" to %a : !poplar.tensor<16xf32>
  poplar.execute "b" {
    poplar.family @map {expr = #expr.fn<mul(_1, _2)>} for (i = 16 in 4) on (i)
      in x1 = %a[i] : !poplar.tensor<16xf32>
      in x2 = %k[i] : !poplar.tensor<16xf32>
      out y = %b[i] : !poplar.tensor<16xf32>
  }
  poplar.stream_out %b to "b" : !poplar.tensor<16xf32>
}
"""


def test_a_constant_on_guarded_memory_is_no_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("POPULUS_GUARD", "1")
    monkeypatch.setenv(VARIABLE, "1")
    path = tmp_path / "doubled.mlir"
    path.write_text(DOUBLED)
    a = np.arange(16, dtype=np.float32)
    np.testing.assert_array_equal(populus.compile(path, engine="native").run({"a": a})["b"], 2 * a)


def test_no_elements_overlap_nothing():
    none, some = Elements.at(64, 4, (0, 4), (3, 4)), Elements.at(0, 4, (100, 4))
    assert none.count == 0
    assert not _overlap(none.span, some.span)
    assert not _overlap(some.span, none.span)
    assert _overlap(some.span, some.span)


def test_elements_of_a_table_longer_than_a_piece_come_in_pieces():
    elements = Elements.at(8, 4, (10, 4), (3, 40))
    for most in (1, 4, 7, 100):
        pieces = list(elements.pieces(most))
        assert max(piece.size for piece in pieces) <= most
        assert sorted(np.concatenate(pieces)) == [8 + 4 * i + 40 * j for j in range(3) for i in range(10)]
