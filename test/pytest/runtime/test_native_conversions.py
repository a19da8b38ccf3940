"""Conversions between element types: bit for bit those of the numpy engine, from all values of types of up to 16 bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from helpers.formulas import PAIRS, SPECIAL, same_bits
from populus.dialects.support.element_types import element_of
from populus.runtime.tape import truncate

SMALL = ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
PACKED = ("int2", "int4", "uint2", "uint4")
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
WORDS = np.arange(1 << 16, dtype=np.uint16)
F16, BF16 = WORDS.view(np.float16), WORDS.view(ml_dtypes.bfloat16)
# All f32 whose last 16 bits are 0, and their neighbours: all ties of floats of 8 bits, and the numbers beside them.
UPPER = WORDS.astype(np.uint32) << 16
F32 = np.unique(np.concatenate([UPPER, UPPER + 1, UPPER - 1])).view(np.float32)


def near(values):
    """The f64 that equal values, and those beside them."""
    with np.errstate(all="ignore"):
        wide = values.astype("f8")
        return np.concatenate([wide, np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf)])


def name_of(dtype):
    return str(element_of(np.dtype(dtype)))


@pytest.mark.parametrize("small", SMALL)
def test_floats_of_a_byte_are_widened_exactly_and_rounded_to_the_nearest(small):
    dtype = np.dtype(getattr(ml_dtypes, small))
    every = np.arange(256, dtype=np.uint8).view(dtype)
    same_bits("cast(_1, f32)", every, out="f32")
    same_bits("cast(_1, i8)", every, out="i8")
    for x in (F16, F32, near(F32)):
        same_bits(f"cast(_1, {name_of(dtype)})", x, out=name_of(dtype))
    same_bits("select(_1, _2, gt(_3, 0))", every, every[::-1].copy(), np.arange(-128, 128).astype("i4"), out=name_of(dtype))


@pytest.mark.parametrize("packed", PACKED)
def test_integers_of_less_than_a_byte_are_the_last_bits(packed):
    dtype = np.dtype(getattr(ml_dtypes, packed))
    same_bits("cast(_1, f32)", np.arange(256, dtype=np.uint8).view(dtype), out="f32")
    same_bits("cast(_1, i8)", np.arange(256, dtype=np.uint8).view(dtype), out="i8")
    for x in (F16, np.arange(-128, 128).astype("i1"), np.arange(-70_000, 70_000).astype("i4")):
        same_bits(f"cast(_1, {name_of(dtype)})", x, out=name_of(dtype))


def test_f64_is_rounded_to_16_bits_as_numpy_does():
    with np.errstate(all="ignore"):
        ties = (F16[:-1].astype("f8") + F16[1:].astype("f8")) / 2
    x = np.concatenate([near(F16), near(ties), [5e-324, 1e-310, 1e308, -1e308]])
    same_bits("cast(_1, f16)", x, out="f16")
    same_bits("cast(_1, bf16)", near(F32), out="bf16")


EDGES = np.array([s * 2.0**k + o for s in (1, -1) for k in (0, 7, 8, 15, 16, 24, 31, 32, 62, 63, 64, 65) for o in (-1, -0.5, 0, 0.5, 1)])


@pytest.mark.parametrize("to", INTEGERS)
def test_floats_become_integers_with_the_same_bits_beyond_their_range_too(to):
    g = np.random.default_rng(0)
    x = np.concatenate([g.normal(size=10_000) * 10.0 ** g.integers(-3, 25, 10_000), EDGES, SPECIAL])
    with np.errstate(all="ignore"):
        for values in (F16, BF16, x.astype("f4"), near(x)):
            same_bits(f"cast(_1, {name_of(to)})", values, out=name_of(to))


@pytest.mark.parametrize("source", ["i4", "u4", "i8", "u8"])
def test_integers_become_the_nearest_float(source):
    g, limits = np.random.default_rng(0), np.iinfo(source)
    x = np.concatenate([g.integers(limits.min, limits.max, 10_000, source, True), np.array([limits.min, limits.max, 0, 1], source)])
    x = np.concatenate([x >> np.array(n, source) for n in (0, 3, 5)])
    for to in ("f16", "bf16", "f32", "f64"):
        same_bits(f"cast(_1, {to})", x, out=to)


def test_the_rule_of_floats_beyond_an_integers_range():
    def of(values, to):
        out = np.empty(len(values), to)
        truncate(np.array(values), out)
        return out.tolist()

    assert of([-0.9, 0.9, 127.0, 128.0, 255.0, 256.0, -1.0, -129.0, 3e9, np.nan], "u1") == [0, 0, 127, 128, 255, 0, 255, 127, 0, 0]
    assert of([128.0, -129.0, 65536.0 + 5, np.inf], "i1") == [-128, 127, 5, 0]
    assert of([2.0**31, -(2.0**31), -(2.0**31) - 0.5, np.nan], "i4") == [-(2**31)] * 4
    assert of([-1.0, 2.0**32 - 1, 2.0**32 + 7, np.nan], "u4") == [2**32 - 1, 2**32 - 1, 7, 0]
    assert of([2.0**63, 2.0**64 - 2048, -1.0, 2.0**64, np.nan], "u8") == [2**63, 2**64 - 2048, 2**64 - 1, 2**63, 2**63]


@pytest.mark.parametrize(("dtype", "out"), [("f4", "f32"), ("f8", "f64")])
def test_the_remainder_of_floats_is_exact(dtype, out):
    g = np.random.default_rng(0)
    a, b = (np.concatenate([g.normal(size=5000) * 10.0 ** g.integers(-10, 10, 5000), p]).astype(dtype) for p in PAIRS)
    same_bits("rem(_1, _2)", a, b, out=out)


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u2"])
def test_powers_of_integers_wrap_around(dtype):
    low = np.iinfo(dtype).min
    a, b = (x.ravel() for x in np.meshgrid(np.arange(max(low, -9), 10), np.arange(max(low, -5), 71)))
    same_bits("pow(_1, _2)", a.astype(dtype), b.astype(dtype), out=name_of(dtype))
