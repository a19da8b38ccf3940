"""Arrays of files, and comparing them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.differences import Difference, largest_difference
from populus.tools.arrays import compare, read_arrays, write_npz

X = np.array([1, 2, 4], np.float32)


def problem(found, expected, rtol=1e-3, atol=1e-7):
    (a,) = compare({"y": np.asarray(found)}, {"y": np.asarray(expected)}, rtol, atol)
    return a.problem


def test_equal_arrays_agree():
    assert problem(X, X) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_agree_with_themselves_only(value):
    other = X.copy()
    other[1] = value
    assert problem(other, other) is None
    assert problem(X, other) is not None
    assert problem(other, X) is not None


def test_the_largest_difference_is_shown_and_where_it_is():
    expected = np.array([[1, 2], [4, 8]], np.float32)
    found = np.array([[1.5, 2], [4, 6]], np.float32)
    rule = "atol 1e-07 + rtol 0.001 of the largest element, 8"
    assert problem(found, expected) == f"'y' does not agree: it differs by 2, beyond {rule}; most at [1, 1]: 6.0, expected 8.0"


def test_a_tolerance_is_of_the_largest_element_and_not_of_each():
    """A sum of large numbers near zero carries their rounding."""
    expected = np.array([17, 1e-6], np.float32)
    assert problem(expected + np.float32(2.1e-5), expected) is None
    assert problem(expected + np.float32(2.1e-2), expected) is not None
    assert problem(expected[1:] + np.float32(2.1e-5), expected[1:]) is not None


def test_integers_do_not_round():
    tokens = np.array([50000, 7], np.int64)
    found = tokens + np.array([0, 1])
    assert problem(found, tokens) == "'y' does not agree: it differs by 1, beyond atol 1e-07; most at [1]: 8, expected 7"
    assert problem(found, tokens, atol=1) is None


def test_an_infinite_element_has_no_part_in_the_size_of_the_others():
    expected = np.array([np.inf, np.nan, 1], np.float32)
    assert problem(expected + np.float32(0.1), expected) is not None
    assert largest_difference(expected, expected) == Difference(0.0, 1.0, 0.0, (0,))


def test_shape_and_dtype_are_part_of_the_answer():
    assert problem(X.reshape(1, 3), X) == "'y' is float32[1, 3], expected float32[3]"
    assert problem(X.astype(np.float64), X) == "'y' is float64[3], expected float32[3]"


def test_64_bit_integers_are_compared_exactly():
    big = np.array([2**63 - 1], np.int64)
    assert problem(big, big - 1, rtol=0, atol=0) is not None
    assert problem(np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), rtol=0, atol=0) is not None


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "uint64", "float16", "float32", "float64"])
def test_scalars_are_compared_too(dtype):
    one, zero = np.ones((), dtype), np.zeros((), dtype)
    assert problem(one, one) is None
    assert problem(one, zero) is not None


def test_the_relative_difference_is_of_the_largest_expected_element():
    (a,) = compare({"y": X * np.float32(1.5)}, {"y": X}, 1, 0)
    assert (a.absolute, a.relative, a.problem) == (2.0, 0.5, None)


@given(stn.arrays(np.float32, stn.array_shapes(min_dims=0, max_dims=2, min_side=0), elements=st.floats(width=32)))
def test_anything_agrees_with_itself_at_no_tolerance(array):
    assert problem(array, array, 0, 0) is None


def test_an_expected_name_that_is_no_output_is_refused():
    with pytest.raises(PopulusError, match="the expected 'yy' is not an output; did you mean 'y'?"):
        compare({"y": X}, {"yy": X}, 0, 0)


def test_npz_and_pb_files_give_arrays(tmp_path):
    write_npz(str(tmp_path / "a.npz"), {"x": X, "onnx::y/0": X})
    assert list(read_arrays([str(tmp_path / "a.npz")], ["x"])) == ["x", "onnx::y/0"]
    (tmp_path / "0.pb").write_bytes(onnx.numpy_helper.from_array(X).SerializeToString())
    assert np.array_equal(read_arrays([str(tmp_path / "0.pb")], ["x", "z"])["x"], X)


def test_bfloat16_survives_a_file(tmp_path):
    array = X.astype(ml_dtypes.bfloat16)
    write_npz(str(tmp_path / "a.npz"), {"y": array})
    assert compare({"y": array}, read_arrays([str(tmp_path / "a.npz")], ["y"]), 0, 0)[0].problem is None


def bad_files(folder):
    np.savez(folder / "objects.npz", x=np.array([{}], object))
    (folder / "cut.npz").write_bytes(b"PK\x03\x04")
    (folder / "text.npz").write_text("no arrays")
    (folder / "text.pb").write_text("no tensor")
    (folder / "x.csv").write_text("1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("objects.npz", "not a file of plain arrays: .* arrays of Python objects are never loaded"),
        ("cut.npz", "not a file of plain arrays"),
        ("text.npz", "not a file of plain arrays"),
        ("no.npz", "no such file"),
        ("text.pb", "not an ONNX tensor"),
        ("no.pb", "no such file"),
        ("x.csv", "expected one .npz file, or .pb tensors"),
    ],
)
def test_a_file_that_holds_no_arrays_is_one_line(name, message, tmp_path):
    bad_files(tmp_path)
    with pytest.raises(PopulusError, match=message) as caught:
        read_arrays([str(tmp_path / name)], ["x"])
    assert name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_imaginary_parts_are_compared(dtype):
    expected = np.array([3 + 4j, 1 - 2j, np.nan], dtype)
    found = expected.copy()
    assert problem(found, expected) is None
    found[1] += 0.5j
    assert problem(found, expected) == (
        "'y' does not agree: it differs by 0.5, beyond atol 1e-07 + rtol 0.001 of the largest element, 5; "
        "most at [1]: (1-1.5j), expected (1-2j)"
    )
