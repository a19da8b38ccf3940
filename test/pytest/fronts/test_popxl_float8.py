"""PopXL's 8-bit floats: conversions on the host and in programs, moved, printed, and products of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from populus import popxl
from populus.popart import poplar_application_runtime_error
from populus.popxl import dtypes, fp8_utils, ops

FORMATS = {popxl.float8_143: ml_dtypes.float8_e4m3fnuz, popxl.float8_152: ml_dtypes.float8_e5m2fnuz}
BYTES = np.arange(256, dtype=np.uint8)
SPECIAL = [0, -0.0, 1e-9, 244, -250, 61000, 62000, np.inf, -np.inf, np.nan]
X = (np.concatenate([SPECIAL, np.geomspace(1e-5, 7e4, 990)]) * np.where(np.arange(1000) % 3, 1, -1)).astype(np.float32)


def stored(t: popxl.Tensor) -> popxl.DeviceToHostStream:
    stream = popxl.d2h_stream(t.shape, t.dtype, "out")
    ops.host_store(stream, t)
    return stream


def run(ir: popxl.Ir, engine: str = "numpy") -> dict[popxl.DeviceToHostStream, np.ndarray]:
    with popxl.Session(ir, "ipu_model", tiles=4, engine=engine) as session:
        return session.run()


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_bytes_of_the_host_are_ml_dtypes_numbers(format: popxl.dtype):
    theirs = BYTES.view(FORMATS[format])
    numbers = fp8_utils.host_pow2scale_cast_from_fp8(BYTES.view(format.as_numpy()), popxl.float64)
    np.testing.assert_array_equal(numbers, theirs.astype(np.float64))
    back = fp8_utils.host_pow2scale_cast_to_fp8(X, format)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(back.view(np.uint8), X.astype(FORMATS[format]).view(np.uint8))


def test_the_host_scales_and_saturates():
    cast = fp8_utils.host_pow2scale_cast_to_fp8
    assert cast(np.float32(0.75), popxl.float8_143, 1).view(np.uint8) == 0b01000100  # 1.5
    assert cast(np.float32([250, -1e9]), popxl.float8_143, nan_on_overflow=False).view(np.uint8).tolist() == [0x7F, 0xFF]
    with pytest.raises(RuntimeError, match="log2_scale is from -32 to 31, not 32"):
        cast(np.float32(1), popxl.float8_143, 32)
    with pytest.raises(RuntimeError, match=r"src.dtype int64 is no float"):
        cast(np.arange(3), popxl.float8_143)


def test_the_best_scale_moves_numbers_into_the_range():
    small, large = np.full(4, 2.0**-20, np.float32), np.full(4, 3.0 * 2**20, np.float32)
    for x in (small, large):
        error, scale = fp8_utils.host_fp8_mse_scale(x, popxl.float8_143)
        assert error == 0
        assert 2.0**-10 <= x[0] * 2.0**scale <= 240
    assert fp8_utils.host_fp8_mse_scale_pb(small, popxl.float8_143) > 0 > fp8_utils.host_fp8_mse_scale_pb(large, popxl.float8_143)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_programs_convert_as_the_host_does(format: popxl.dtype, engine: str):
    ir = popxl.Ir()
    with ir.main_graph:
        scale = popxl.variable(-3, popxl.int32)
        bytes = ops.pow2scale_cast_to_fp8(popxl.variable(X), scale, format)
        out = stored(bytes), stored(ops.pow2scale_cast_from_fp8(bytes, ops.negate(scale), popxl.float32))
    found = run(ir, engine)
    expected = fp8_utils.host_pow2scale_cast_to_fp8(X, format, -3)
    np.testing.assert_array_equal(found[out[0]], expected)
    np.testing.assert_array_equal(found[out[1]], fp8_utils.host_pow2scale_cast_from_fp8(expected, popxl.float32, 3))


def test_products_are_those_of_the_numbers():
    a, b = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    x, w = (fp8_utils.host_pow2scale_cast_to_fp8(v, popxl.float8_143) for v in (a, b))
    a, b = (fp8_utils.host_pow2scale_cast_from_fp8(v, popxl.float32) for v in (x, w))
    ir = popxl.Ir()
    with ir.main_graph:
        left, right, scale = popxl.variable(x), popxl.constant(w), popxl.constant(2, popxl.int32)
        image, kernel = left.reshape((1, 1, 8, 8)), ops.slice(right, [0, 0], [3, 3]).reshape((1, 1, 3, 3))
        streams = [
            stored(ops.matmul_pow2scaled(left, right, scale)),
            stored(ops.conv_pow2scaled(image, kernel, scale, padding=(1, 1, 1, 1))),
            stored(ops.conv_transpose_pow2scaled(image, kernel, scale, padding=(1, 1, 1, 1))),
        ]
    found = [run(ir)[s] for s in streams]
    padded = np.pad(a, 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))
    expected = [a @ b, *(np.einsum("ijkl,kl->ij", windows, k) for k in (b[:3, :3], b[:3, :3][::-1, ::-1]))]
    for mine, theirs in zip(found, expected):
        assert mine.dtype == np.float16
        np.testing.assert_allclose(mine.reshape(8, 8), theirs * 4, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("throws", [True, False])
def test_a_scale_of_more_bits_stops_a_run_unless_the_option_says_otherwise(throws: bool):
    ir = popxl.Ir()
    ir._pb_ir.getSessionOptions().throwIfLog2ScaleTensorNotInRange = throws
    with ir.main_graph:
        x = popxl.variable(X[:4], popxl.float8_143)
        stored(ops.pow2scale_cast_from_fp8(x, popxl.constant(100, popxl.int32), popxl.float32))
    if throws:
        with pytest.raises(poplar_application_runtime_error, match="from -32 to 31, not 100"):
            run(ir)
    else:
        run(ir)


def test_what_does_not_fit_is_refused():
    with popxl.Ir().main_graph:
        x, scale = popxl.variable(X, popxl.float8_143), popxl.constant(0, popxl.int32)
        with pytest.raises(TypeError, match="is no 8-bit float"):
            ops.pow2scale_cast_to_fp8(x, scale, popxl.float16)
        with pytest.raises(ValueError, match="must be a scalar tensor"):
            ops.matmul_pow2scaled(x, x, popxl.constant([1, 2], popxl.int32))
        with pytest.raises(TypeError, match=r"must be of type popxl.int32"):
            ops.matmul_pow2scaled(x, x, popxl.constant(1, popxl.int8))
        with pytest.raises(TypeError, match="a concat operation must have the same type: these are float8_143, float8_152"):
            ops.concat([x, popxl.variable(X, popxl.float8_152)])
        with pytest.raises(TypeError, match="consider pow2scale_cast_to_fp8"):
            ops.cast(x, popxl.float8_143)
        with pytest.raises(RuntimeError, match="log2_scale is of float8_143 and float8_152 alone, not of float32"):
            popxl.variable(X, popxl.float32, log2_scale=1)


def test_variables_and_streams_keep_their_bytes():
    data = BYTES.view(dtypes.np_dtype_float8_152)
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(data)
        loaded = ops.host_load(popxl.h2d_stream(data.shape, popxl.float8_152, "in"))
        out = stored(ops.concat([loaded, x]).reshape((2, 256)).T[::2])
    with popxl.Session(ir, "ipu_model", tiles=4) as session:
        (stream,) = session.expected_inputs()
        found = session.run({stream: data[::-1]})[out]
        session.write_variable_data(x, data[::-1])
    np.testing.assert_array_equal(found, np.stack([data[::-1], data]).T[::2])
    np.testing.assert_array_equal(session.get_tensor_data(x), data[::-1])
