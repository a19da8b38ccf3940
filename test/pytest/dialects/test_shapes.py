"""Shape rules, and what they say when shapes do not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populus.dialects.support import shapes
from populus.dialects.support.shapes import ShapeError

sizes = st.integers(1, 12)


def test_broadcasting_is_right_aligned_and_one_stretches():
    assert shapes.broadcast((3, 1), (4,)) == (3, 4)
    assert shapes.broadcast((), (2, 0), (1,)) == (2, 0)
    with pytest.raises(ShapeError, match=r"2x3 and 4 do not broadcast: \[3, 4\] meet"):
        shapes.broadcast((2, 3), (4,))


def test_dimensions_count_from_the_end_too():
    assert shapes.axis(-1, 3) == 2
    assert shapes.axes((-1, 0), 3) == (0, 2)
    with pytest.raises(ShapeError, match="no dimension 3 of 3"):
        shapes.axis(3, 3)
    with pytest.raises(ShapeError, match="named twice"):
        shapes.axes((0, -3), 3)


def test_a_reduced_shape_loses_dimensions_or_keeps_them_as_one():
    assert shapes.reduced((2, 3, 4), (1,), keep=False) == (2, 4)
    assert shapes.reduced((2, 3, 4), (1,), keep=True) == (2, 1, 4)


def test_a_reshape_works_out_one_dimension():
    assert shapes.reshape((6, 4), (3, -1)) == (3, 8)
    assert shapes.reshape((0, 4), (0,)) == (0,)
    with pytest.raises(ShapeError, match=r"6x4 \(24 elements\) cannot become 5x-1"):
        shapes.reshape((6, 4), (5, -1))
    with pytest.raises(ShapeError, match="6x4 has 24 elements, 5x5 25"):
        shapes.reshape((6, 4), (5, 5))


def test_a_permutation_names_each_dimension_once():
    assert shapes.permuted((2, 3, 4), (2, 0, 1)) == (4, 2, 3)
    with pytest.raises(ShapeError, match="not a permutation of the 3 dimensions of 2x3x4"):
        shapes.permuted((2, 3, 4), (0, 1, 1))


@given(sizes, sizes, sizes, st.integers(1, 3), st.integers(0, 3), st.integers(0, 3))
def test_windows_are_counted_one_by_one(size, kernel, stride, dilation, before, after):
    reach = (kernel - 1) * dilation + 1
    room = size + before + after
    if reach > room:
        with pytest.raises(ShapeError, match="does not fit"):
            shapes.window(size, kernel, stride, dilation, before, after)
        return
    starts = [s for s in range(0, room, stride) if s + reach <= room]
    assert shapes.window(size, kernel, stride, dilation, before, after) == len(starts)
    if after >= reach:  # as PyTorch requires, since such windows would be all padding
        return
    # Rounded up, one window may hang over the end; none starts in the padding there.
    hanging = [s for s in range(0, size + before, stride) if s == 0 or s - stride + reach < room]
    assert shapes.window(size, kernel, stride, dilation, before, after, ceil=True) == len(hanging)


@given(sizes, st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_same_padding_gives_one_window_for_each_stride(size, kernel, stride, dilation, upper):
    before, after = shapes.same_padding(size, kernel, stride, dilation, upper)
    assert 0 <= (after - before if upper else before - after) <= 1
    assert shapes.window(size, kernel, stride, dilation, before, after) == -(-size // stride)


@given(sizes, st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
def test_a_transposed_window_undoes_a_window(size, kernel, stride, dilation):
    grown = shapes.transposed_window(size, kernel, stride, dilation, 0, 0, 0)
    assert shapes.window(grown, kernel, stride, dilation, 0, 0) == size


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from([-3, -2, -1, 1, 2, 3]))
def test_a_slice_has_as_many_elements_as_a_range(begin, end, step):
    assert shapes.count(begin, end, step) == len(range(begin, end, step))
