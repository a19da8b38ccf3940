"""Block floats: rounding against its definition, weights of programs on all engines, their bytes, phases, and bad input."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import bf16

import populus
from benchmarks.models import transformer
from populus.dialects.poplar import ConstOp, ParamOp
from populus.dialects.poplar.target import PRESETS, Spec
from populus.dialects.support.block_floats import BLOCK, MAGNITUDES, bytes_an_element, rounded
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.runtime.cycles import Products, contraction
from populus.runtime.memory import bytes_of
from populus.runtime.session import graph_of


def exponent(x: float) -> int:
    """Gives the exponent of a float's leading bit, with that of f32's field of 0 for numbers below 2^-126."""
    return int(np.float32(x).view(np.uint32) >> 23 & 0xFF) - 127


def of_definition(block: list[float], digits: int) -> list[float]:
    """Rounds a block of finite numbers one by one, in exact arithmetic."""
    shared = max(map(exponent, block))
    found: list[float] = []
    for x in block:
        if exponent(x) == -127:
            found.append(0.0)
            continue
        unit = Fraction(2) ** (shared - digits + 1)
        cut = unit / 2 ** (24 - digits)  # the last of 24 bits
        exact = abs(Fraction(float(x))) // cut * cut / unit
        whole = min(round(exact), 2**digits - 1)  # Python's round takes ties to even
        value = float(whole * unit)
        found.append(0.0 if value < 2.0**-126 else value if x > 0 else -value)
    return found


@pytest.mark.parametrize("format", MAGNITUDES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_rounding_is_that_of_the_definition(format: str, dtype: Any):
    g = np.random.default_rng(3)
    spread = g.standard_normal((300, BLOCK)) * 2.0 ** g.integers(-12, 3, (300, BLOCK))
    scales = 2.0 ** g.integers(-125, 120, (300, 1))
    ties = g.integers(-300, 300, (60, BLOCK)) / 2.0 ** g.integers(0, 6, (60, 1))
    small = g.standard_normal((30, BLOCK)) * 2.0**-127
    zeros = np.zeros((2, BLOCK))
    x = np.concatenate([spread * scales, ties, small, zeros, np.full((1, BLOCK), 1.9999)]).astype(np.float32).astype(dtype)
    expected = [of_definition([float(v) for v in row], MAGNITUDES[format]) for row in x]
    found = rounded(x, format, 1)
    assert found.dtype == x.dtype
    assert found.astype(np.float32).tobytes() == np.array(expected, np.float32).tobytes()
    assert (found.astype(ml_dtypes.bfloat16).astype(np.float32) == found.astype(np.float32)).all()  # bf16 holds both formats


def test_a_block_of_one_exponent_is_rounded_as_ml_dtypes_rounds_three_digits():
    x = np.random.default_rng(4).uniform(1, 1.87, (50, BLOCK)).astype(np.float32)
    assert (rounded(x, "bfp4", 1) == x.astype(ml_dtypes.float8_e5m2).astype(np.float32)).all()


@pytest.mark.parametrize("format", MAGNITUDES)
@pytest.mark.parametrize("shape", [(5,), (3, 17), (40, 2, 3), (16, 1), (2, 0)])
def test_a_last_block_is_filled_up_with_zeros_along_any_dimension(format: str, shape: tuple[int, ...]):
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    for dimension in range(len(shape)):
        found = np.moveaxis(rounded(x, format, dimension), dimension, -1)
        rows = np.moveaxis(x, dimension, -1)
        for begin in range(0, shape[dimension], BLOCK):
            own = rows[..., begin : begin + BLOCK].reshape(-1, min(BLOCK, shape[dimension] - begin))
            expected = np.array([of_definition(row.tolist(), MAGNITUDES[format]) for row in own], np.float32)
            assert (found[..., begin : begin + BLOCK].reshape(own.shape) == expected.reshape(own.shape)).all()


def test_infinities_and_nan_stay_and_take_small_neighbours_to_zero():
    block = np.array([np.inf, -np.inf, np.nan, 1.0, -3e38, 0.0] + [1e30] * 10, np.float32)
    found = rounded(block[None], "bfp8", 1)[0]
    assert found[0] == np.inf and found[1] == -np.inf and np.isnan(found[2])
    assert found[3] == 0 and found[5] == 0 and abs(found[4] / -3e38 - 1) < 1 / 32
    assert not np.isnan(np.delete(found, 2)).any()


def test_equal_elements_stay_one_element():
    x = np.broadcast_to(np.float32(0.3), (1000, 1000))
    found = rounded(x, "bfp4", 1)
    assert found.strides == (0, 0) and found[0, 0] == of_definition([np.float32(0.3)], 3)[0]


def product(shape: tuple[int, int], dtype: Any, name: str = "w") -> tuple[Any, np.ndarray[Any, Any]]:
    """Makes a product by weights whose sums are exact, and whose blocks lose digits."""
    w = (np.random.default_rng(6).integers(-300, 300, shape) / 64).astype(np.float32).astype(dtype)
    with populus.Builder() as b:
        b.output("y", b.op("matmul", b.input("x", (4, shape[0]), dtype), b.constant(w))[0])
    return b.module(), w


@pytest.mark.parametrize("format", MAGNITUDES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_engines_multiply_by_the_rounded_weights_bit_for_bit(format: str, dtype: Any):
    module, w = product((48, 37), dtype)
    x = np.random.default_rng(7).integers(-8, 8, (4, 48)).astype(np.float32).astype(dtype)
    exact = x.astype(np.float64) @ rounded(w, format, 1).astype(np.float64)
    assert (exact != x.astype(np.float64) @ w.astype(np.float64)).any()
    for engine in ("numpy", "strict", "native"):
        program = populus.compile(module, target="n150, columns=2, rows=2", engine=engine, weight_format=format)
        assert program.run({"x": x})["y"].tobytes() == exact.astype(np.float32).astype(dtype).tobytes(), engine
        again = populus.compile(parse_text(context(), str(program.module("poplar")), "again.mlir"), engine=engine)
        assert again.run({"x": x})["y"].tobytes() == exact.astype(np.float32).astype(dtype).tobytes(), engine


def test_channels_out_share_an_exponent_in_a_convolution():
    g = np.random.default_rng(8)
    w, x = (g.integers(-300, 300, (20, 3, 2, 2)) / 64).astype(np.float32), g.integers(-8, 8, (1, 3, 6, 6)).astype(np.float32)
    with populus.Builder() as b:
        ones = {"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4, "group": 1}
        b.output("y", b.op("conv", b.input("x", x.shape), b.constant(w), **ones)[0])
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (2, 2), (1, 2))
    exact = np.einsum("chwij,ocij->ohw", windows, rounded(w, "bfp8", 0).astype(np.float64))
    for engine in ("numpy", "strict", "native"):
        program = populus.compile(b.module(), target="n150, columns=2, rows=2", engine=engine, weight_format="bfp8")
        assert (program.run({"x": x})["y"][0] == exact).all(), engine


def storages(program: populus.Program, kind: Any) -> list[Any]:
    return [op for op in graph_of(program.module("poplar")).walk() if isinstance(op, kind) and op.type.block]


def test_tiles_and_dram_keep_the_bytes_of_the_format_and_loads_are_shorter():
    module, _ = product((1024, 4096), np.float32)
    plain = populus.compile(module, target="n150, tile_bytes=262144, reserved_bytes=65536, columns=4, rows=2")
    small = {
        f: populus.compile(module, target="n150, tile_bytes=262144, reserved_bytes=65536, columns=4, rows=2", weight_format=f)
        for f in MAGNITUDES
    }
    moved = [plain.profile().summary["host_bytes"], *(p.profile().summary["host_bytes"] for p in small.values())]
    assert moved[0] > moved[1] > moved[2]
    for format, program in small.items():
        constants = storages(program, ConstOp)
        assert sum(op.type.bytes for op in constants) == pytest.approx(1024 * 4096 * bytes_an_element(format), abs=len(constants))
    whole = populus.compile(module, target="n150", weight_format="bfp8")
    (constant,) = storages(whole, ConstOp)
    cells = constant.layout.cells
    assert bytes_of(constant).max() == pytest.approx(1024 * 4096 / cells * constant.layout.copies * 17 / 16, rel=0.1)


def test_functions_take_their_weights_in_the_format():
    program = populus.compile(transformer(layers=3), target="p150", weight_format="bfp8", engine="numpy")
    formats = {op.type.block for op in storages(program, (ConstOp, ParamOp))}
    assert formats == {"bfp8"} and (storages(program, ParamOp) or len(storages(program, ConstOp)) >= 12)


def test_a_product_of_fewer_bits_unpacks_faster_and_fidelity_sets_its_phases():
    n150 = PRESETS["n150"]
    plain, block = (
        contraction(Products(1, 256, 1, 256, 256, 1, bf16, Spec.of("n150", fidelity="LoFi").target(), block=b)) for b in ("", "bfp8")
    )
    assert block < plain
    by_phases = [
        float(contraction(Products(1, 512, 1, 512, 512, 1, bf16, Spec.of("n150", fidelity=f).target())))
        for f in ("LoFi", "HiFi2", "HiFi3", "HiFi4")
    ]
    assert by_phases == sorted(by_phases) and len(set(by_phases)) > 2
    assert by_phases[-1] == float(contraction(Products(1, 512, 1, 512, 512, 1, bf16, n150)))
    module, _ = product((512, 512), ml_dtypes.bfloat16)
    cycles = [populus.compile(module, target="n150", fidelity=f).profile().summary["compute_cycles"] for f in ("LoFi", "HiFi4", None)]
    assert cycles[0] < cycles[1] == cycles[2]
    text = str(populus.compile(module, target="n150", fidelity="HiFi2").module("poplar"))
    assert "fidelity = 2" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_format": "bfp9"}, "weight_format = bfp9; did you mean 'bfp8'"),
        ({"weight_format": "bfp8", "target": "gc200"}, "weight_format = bfp8: target gc200 has no such format; n150, p150 have it"),
        ({"weight_format": "bfp8", "target": "host"}, "weight_format = bfp8: target host has no such format; n150, p150 have it"),
        ({"weight_format": 8}, "weight_format = 8; expected a text"),
        ({"fidelity": "HiFi5"}, "fidelity = HiFi5; did you mean 'HiFi.'"),
        ({"fidelity": "LoFi", "target": "gc200"}, "fidelity = LoFi: target gc200 multiplies in one way; meshes such as n150 have phases"),
        ({"target": "n150, fidelity=5"}, r"fidelity = 5; expected 1 to 4 \(LoFi, HiFi2, HiFi3, HiFi4\), or 0 for each format's own phases"),
    ],
)
def test_formats_and_fidelities_that_a_machine_lacks_are_one_line(options: dict[str, Any], message: str):
    module, _ = product((4, 4), np.float32)
    with pytest.raises(PopulusError, match=message) as raised:
        populus.compile(module, **{"target": "n150", **options})
    assert "\n" not in str(raised.value)


def test_a_text_below_popart_has_its_weights_as_they_are():
    module, _ = product((4, 4), np.float32)
    below = populus.compile(module, target="n150", engine="numpy").module("popops")
    with pytest.raises(PopulusError, match="weight_format = bfp8 is of levels onnx, stablehlo and popart; the text is at popops"):
        populus.compile(below, target="n150", weight_format="bfp8")


def test_nothing_computes_into_a_block_format():
    module, _ = product((48, 32), np.float32)
    text = str(populus.compile(module, target="n150", weight_format="bfp8", engine="numpy").module("poplar"))
    output = next(line for line in text.splitlines() if "poplar.var" in line and "4x32xf32" in line)
    wrong = text.replace(output, output.replace("xf32>", "xf32, bfp8>"))
    with pytest.raises(Exception, match=r"bfp8"):
        parse_text(context(), wrong, "wrong.mlir").verify()
