"""Winograd's algorithm: its choice, its values on every engine, and what does not depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

import populus
from populus.dialects.poplar import FamilyOp
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.codelets.winograd import transformed_weights
from populus.runtime.engine.native.codegen.cpu import CPUS, machine
from populus.runtime.engine.native.kernels.winograd import block_rows
from populus.runtime.engine.native.run.program import NativeProgram

Array = NDArray[Any]


def model(w: Array, x: tuple[int, ...], pads: tuple[int, ...] = (1, 1, 1, 1), **attributes: Any) -> onnx.ModelProto:
    """A model of one convolution by a constant."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="layer", pads=pads, **attributes)],
        "one",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(w.dtype), x)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def families(module: ModuleOp) -> list[FamilyOp]:
    return [op for op in module.walk() if isinstance(op, FamilyOp)]


def direct(x: Array, w: Array, pads: tuple[int, ...] = (1, 1, 1, 1), dilations: tuple[int, int] = (1, 1)) -> Array:
    """The convolution in f64."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    (down, across), (high, wide) = dilations, (n - 2 * d for n, d in zip(x.shape[2:], dilations))
    starts = [(i, j, i * down, j * across) for i in range(3) for j in range(3)]
    parts = [np.einsum("oc,bchw->bohw", w[:, :, i, j], x[:, :, r : r + high, q : q + wide]) for i, j, r, q in starts]
    return np.sum(parts, axis=0)


SIZES: dict[str, tuple[int, int, tuple[int, ...], tuple[int, ...]]] = {  # channels out and in, images and plane, pads
    "even": (32, 16, (1, 16, 28, 28), (1, 1, 1, 1)),
    "odd sizes, two images": (34, 20, (2, 20, 21, 23), (1, 1, 1, 1)),
    "no padding": (17, 16, (1, 16, 23, 24), (0, 0, 0, 0)),
    "padding of some sides": (16, 19, (1, 19, 22, 25), (2, 0, 0, 1)),
}


@pytest.mark.parametrize("accuracy", ["standard", "fast"])
@pytest.mark.parametrize("name", SIZES)
def test_tiles_give_the_convolution_on_every_engine(name: str, accuracy: str):
    oc, ic, shape, pads = SIZES[name]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape).astype(np.float32), rng.standard_normal((oc, ic, 3, 3)).astype(np.float32)
    expected = direct(x, w, pads)
    found: dict[str, Array] = {}
    for engine in ("native", "numpy", "strict"):
        program = populus.compile(model(w, shape, pads), engine=engine, accuracy=accuracy, tiles=6)
        (family,) = families(program.module("poplar"))
        assert family.codelet.data == "winograd"
        assert str(family.params.data["tile"]) == f"{2 if accuracy == 'standard' else 4} : i64"
        found[engine] = program.run({"x": x})["y"]
        assert np.abs(found[engine] - expected).max() <= (1e-6 if accuracy == "standard" else 1e-5) * np.abs(expected).max(), engine


DILATED: dict[str, tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, int]]] = {  # as SIZES, and dilations
    "rows": (32, 16, (1, 16, 41, 21), (1, 1, 1, 1), (2, 1)),
    "rows of two images": (16, 17, (2, 17, 40, 20), (5, 0, 3, 1), (3, 1)),
    "both sides": (64, 64, (1, 64, 21, 27), (2, 2, 2, 2), (2, 2)),
    "columns": (65, 64, (1, 64, 11, 35), (1, 0, 0, 4), (1, 3)),
}


@pytest.mark.parametrize("name", DILATED)
def test_a_dilated_convolution_is_one_in_tiles_for_each_place_modulo_its_dilations(name: str):
    oc, ic, shape, pads, dilations = DILATED[name]
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-8, 9, n).astype(np.float32) for n in (shape, (oc, ic, 3, 3)))
    for engine in ("native", "numpy", "strict"):
        program = populus.compile(model(w, shape, pads, dilations=dilations), engine=engine, tiles=6)
        assert [f.codelet.data for f in families(program.module("poplar"))].count("winograd") == dilations[0] * dilations[1]
        np.testing.assert_array_equal(program.run({"x": x})["y"], direct(x, w, pads, dilations), engine)


def test_small_integers_are_exact_in_tiles_of_2():
    rng = np.random.default_rng(0)
    x, w = rng.integers(-8, 9, (1, 16, 17, 30)).astype(np.float32), rng.integers(-8, 9, (16, 16, 3, 3)).astype(np.float32)
    for engine in ("native", "numpy"):
        program = populus.compile(model(w, x.shape), engine=engine)
        assert [f.codelet.data for f in families(program.module("poplar"))] == ["winograd"]
        np.testing.assert_array_equal(program.run({"x": x})["y"], direct(x, w))


def test_a_sample_of_vertices_gives_what_the_whole_family_gives():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 32, 30, 30)).astype(np.float32), rng.standard_normal((16, 32, 3, 3)).astype(np.float32)
    for accuracy in ("standard", "fast"):
        populus.compile(model(w, x.shape), engine="strict", sample=3, accuracy=accuracy).run({"x": x})


@pytest.mark.parametrize(
    ("w", "x", "attributes"),
    [
        ((16, 16, 3, 3), (1, 16, 28, 28), {"strides": [2, 2]}),
        ((16, 16, 3, 3), (1, 16, 28, 28), {"dilations": [2, 2]}),
        ((64, 64, 3, 3), (1, 64, 90, 90), {"dilations": [5, 5]}),
        ((16, 16, 3, 3), (1, 16, 28, 28), {"dilations": [4, 1]}),
        ((32, 16, 3, 3), (1, 32, 28, 28), {"group": 2}),
        ((16, 8, 3, 3), (1, 8, 28, 28), {}),
        ((16, 16, 3, 3), (1, 16, 8, 8), {}),
    ],
)
def test_other_convolutions_stay_direct(w: tuple[int, ...], x: tuple[int, ...], attributes: dict[str, Any]):
    program = populus.compile(model(np.ones(w, np.float32), x, **attributes), accuracy="fast")
    assert "winograd" not in [f.codelet.data for f in families(program.module("poplar"))]


def test_other_types_targets_and_an_exact_mode_stay_direct():
    w, x = np.ones((16, 16, 3, 3), np.float32), (1, 16, 28, 28)
    for changed, options in ((w.astype(np.float64), {}), (w, {"target": "gc200"}), (w, {"accuracy": "exact"})):
        program = populus.compile(model(changed, x), **options)
        assert "winograd" not in [f.codelet.data for f in families(program.module("poplar"))]
    with pytest.raises(PopulusError, match="no accuracy 'fasst'; did you mean 'fast'"):
        populus.compile(model(w, x), accuracy="fasst")


@pytest.mark.parametrize(("accuracy", "further"), [("exact", 0), ("standard", 0), ("fast", 3)])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_an_infinity_or_nan_goes_beyond_the_outputs_that_read_it_in_tiles_of_4_alone(value: float, accuracy: str, further: int):
    rng = np.random.default_rng(8)
    x, w = rng.normal(size=(1, 16, 28, 28)).astype(np.float32), rng.normal(size=(32, 16, 3, 3)).astype(np.float32)
    finite = direct(x, w)
    x[0, 3, 12, 12] = value
    expected = direct(x, w)
    own, near = (np.zeros(finite.shape, bool) for _ in range(2))
    own[:, :, 11:14, 11:14] = True
    near[:, :, 11 - further : 14 + further, 11 - further : 14 + further] = True
    for engine in ("numpy", "native"):
        y = populus.compile(model(w, x.shape), engine=engine, accuracy=accuracy).run({"x": x})["y"]
        assert not np.isfinite(y[own]).any()
        np.testing.assert_allclose(y[~near], finite[~near], rtol=0, atol=1e-5 * np.abs(finite).max())
        assert np.isfinite(y[near & ~own]).all() == (accuracy != "fast"), engine
        if accuracy == "exact":
            np.testing.assert_array_equal(y[own], expected[own])
        elif value == np.inf:
            assert np.isnan(y[own]).sum() > own.sum() / 2 > np.isnan(expected[own]).sum() == 0


def test_the_program_does_not_grow_with_channels_or_tiles():
    def ops(channels: int, side: int) -> int:
        module = populus.compile(model(np.ones((channels, channels, 3, 3), np.float32), (1, channels, side, side))).module("poplar")
        return sum(1 for _ in module.walk())

    assert ops(16, 12) == ops(96, 12) == ops(16, 120)


def test_threads_share_few_and_many_blocks_with_the_same_bits():
    rng = np.random.default_rng(0)
    for images, channels, side in ((3, 64, 40), (1, 256, 10)):
        x, w = (rng.standard_normal(s).astype(np.float32) for s in ((images, channels, side, side), (channels, channels, 3, 3)))
        found: list[bytes] = []
        for threads in (1, 3):
            program = populus.compile(model(w, x.shape), engine="native", threads=threads)
            found.append(program.run({"x": x})["y"].tobytes())
            ran = program.session._program  # pyright: ignore[reportPrivateUsage]
            assert isinstance(ran, NativeProgram), ran
            kernels = [launch.kernel.key for launch in ran.table.launches.values()]
            if threads == 3 and side == 10:
                assert kernels == ["winograd one transform", "winograd one multiply", "winograd one back"]
            else:
                assert kernels == ["winograd"]
        assert found[0] == found[1]


def test_threads_have_scratch_memory_for_each_and_not_for_each_chunk():
    """In several runs, after one that ended in the middle, as in a forked child."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((16, 16, 24, 24), (16, 16, 3, 3)))
    found: dict[int, tuple[int, list[bytes]]] = {}
    for threads in (1, 2, 3):
        program = populus.compile(model(w, x.shape), engine="native", threads=threads)
        ran = program.session._program  # pyright: ignore[reportPrivateUsage]
        assert isinstance(ran, NativeProgram), ran
        [launch] = ran.table.launches.values()
        assert launch.kernel.key == "winograd" and launch.units == (1 if threads == 1 else 4 * threads)
        busy = ran.workspace.busy
        assert busy is not None
        results: list[bytes] = []
        for left in (0, 0, (1 << threads) - 1):
            busy[0] = left
            results.append(program.run({"x": x})["y"].tobytes())
            assert busy[0] == 0
        found[threads] = ran.workspace.needed, results
        assert ran.table.scratch.nbytes == ran.workspace.needed
    once, results = found[1]
    assert found == {n: (n * once, results) for n in found} and len(set(results)) == 1


def test_all_cpus_that_round_products_alike_have_the_same_bits():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 18, 13, 21)).astype(np.float32), rng.standard_normal((18, 18, 3, 3)).astype(np.float32)
    module = populus.compile(model(w, x.shape)).module("poplar")
    first: dict[bool, bytes] = {}
    for name in (None, *CPUS.get(machine().triple.partition("-")[0], {})):
        try:
            program = NativeProgram(module.body.block.first_op, cpu=name)  # pyright: ignore[reportArgumentType]
        except PopulusError:  # a CPU whose features this one lacks
            continue
        found = program.run({"x": x})["y"].tobytes()
        assert first.setdefault(program.library.host.fused, found) == found, name


PROGRAM = """
poplar.graph @main target <host, tiles = 4> {{
  %x = poplar.var "x" : !poplar.tensor<1x5x9x7xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<1x5x9x7xf32>
  %w = poplar.var "w" : !poplar.tensor<6x5x3x3xf32>
  poplar.stream_in "w" to %w : !poplar.tensor<6x5x3x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x6x9x7xf32>
  poplar.execute "e" {{
    poplar.family @winograd {{tile = {tile}}} for (b = 1, oc = 6 in 2, ic = 5, o0 = 9 in 2 by 4, o1 = 7, k0 = 3, k1 = 3) on (oc, o0)
      in x = %x[b, ic, o0 + k0 - 1, o1 + k1 - 1] : !poplar.tensor<1x5x9x7xf32>
      in w = %w[oc, ic, k0, k1] : !poplar.tensor<6x5x3x3xf32>
      out y = %y[b, oc, o0, o1] : !poplar.tensor<1x6x9x7xf32>
  }}
  poplar.stream_out %y to "y" : !poplar.tensor<1x6x9x7xf32>
}}
"""


@pytest.mark.parametrize("tile", [2, 4])
def test_weights_may_be_variables(tile: int, tmp_path: Any):
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM.format(tile=tile))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 5, 9, 7)).astype(np.float32), rng.standard_normal((6, 5, 3, 3)).astype(np.float32)
    for engine in ("native", "numpy", "strict"):
        found = populus.compile(path, engine=engine).run({"x": x, "w": w})["y"]
        assert np.abs(found - direct(x, w)).max() < 1e-5, engine


@pytest.mark.parametrize("tile", [2, 4])
def test_weights_are_transformed_in_f64_and_rounded_once(tile: int):
    w = np.random.default_rng(0).standard_normal((3, 4, 3, 3)).astype(np.float32)
    u = transformed_weights(tile, w)
    points = {2: [0, 1, -1], 4: [0, 0.75, -0.75, 1.5, -1.5]}[tile]
    rows = [[q**j / np.prod([q - r for r in points if r != q]) for j in range(3)] for q in points] + [[0, 0, 1]]
    g = np.array(rows)
    exact = np.einsum("pi,qj,ocij->pqoc", g, g, w.astype(np.float64)).reshape(u.shape)
    scale = np.abs(exact).max()
    if tile == 2:  # signs of the points 0 and -1 differ from the table's, on both sides of the product
        u, exact = np.abs(u), np.abs(exact)
    assert u.dtype == np.float32
    assert np.abs(u - exact).max() <= 2.0**-23 * scale


def test_a_block_has_all_rows_if_they_fit_and_few_rows_if_not():
    assert block_rows(16, 7, 7, 64, 64, 16) == 7
    assert block_rows(16, 112, 112, 64, 64, 16) < 8
    assert 1 <= block_rows(16, 14, 14, 512, 512, 16) <= 14


def net(w: Array, bias: Array, x: tuple[int, ...]) -> onnx.ModelProto:
    """A model of one convolution by a constant, a bias and a clip, which follow in the stores."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w", "bias"], ["c"], name="layer", pads=(1, 1, 1, 1)),
            helper.make_node("Relu", ["c"], ["y"], name="relu"),
        ],
        "one",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


MACHINES: dict[str, tuple[int, int, tuple[int, ...], int, list[str]]] = {  # channels out and in, images and plane, tiles, engines
    "even": (64, 64, (1, 64, 56, 56), 256, ["native", "numpy", "strict"]),
    "odd sizes, two images": (64, 48, (2, 48, 35, 41), 256, ["native", "numpy", "strict"]),
    "sums in slices": (256, 256, (1, 256, 14, 14), 1472, ["native", "numpy"]),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_of_many_tiles_states_transforms_and_products(name: str):
    oc, ic, shape, tiles, engines = MACHINES[name]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape).astype(np.float32), rng.standard_normal((oc, ic, 3, 3)).astype(np.float32)
    bias = rng.standard_normal(oc).astype(np.float32)
    expected = np.maximum(direct(x, w) + bias[:, None, None], 0)
    for engine in engines:
        program = populus.compile(net(w, bias, shape), engine=engine, target="gc200", tiles=tiles, optimise="cycles")
        stated = [f.codelet.data for f in families(program.module("poplar"))]
        assert stated == ["winograd_input", "conv", *(["reduce"] * (name == "sums in slices")), "winograd_output", "map"]
        found = program.run({"x": x})["y"]
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max(), engine
        assert not getattr(program.session, "fallbacks", {}), engine


def test_small_integers_are_exact_on_many_tiles():
    rng = np.random.default_rng(0)
    x, w = rng.integers(-8, 9, (1, 64, 29, 30)).astype(np.float32), rng.integers(-8, 9, (64, 64, 3, 3)).astype(np.float32)
    for engine, threads in (("native", 1), ("native", 3), ("numpy", None)):
        program = populus.compile(model(w, x.shape), engine=engine, target="gc200", tiles=256, optimise="cycles", threads=threads)
        assert "winograd_input" in [f.codelet.data for f in families(program.module("poplar"))]
        np.testing.assert_array_equal(program.run({"x": x})["y"], direct(x, w))


def test_tiles_take_fewer_cycles_where_they_are_chosen_and_are_chosen_for_cycles_alone():
    w, shape = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32), (1, 64, 56, 56)
    found: dict[tuple[str, str], tuple[bool, int]] = {}
    for accuracy, aim in (("exact", "cycles"), ("standard", "balanced"), ("standard", "cycles")):
        program = populus.compile(model(w, shape), target="gc200", accuracy=accuracy, optimise=aim)
        stated = [f.codelet.data for f in families(program.module("poplar"))]
        found[accuracy, aim] = "winograd_input" in stated, program.profile().summary["cycles"]
    assert [tiled for tiled, _ in found.values()] == [False, False, True]
    assert found["standard", "cycles"][1] < found["exact", "cycles"][1]
