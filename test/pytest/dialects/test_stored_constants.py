"""Stored constants are handles: names that nothing changes, whose contents a table has."""

from __future__ import annotations

import dataclasses
import gc
import sys
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region
from xdsl.parser import Parser

from populus.dialects.data import LATER, TABLE, ConstantOp, StoredAttr, constant, joined_constant, load_blobs, save_blobs, store
from populus.dialects.support.constant_table import RUN, SAMPLES, ConstantTable, EqualContents, Handle
from populus.dialects.table import context
from populus.lowering.popart.cse import PopartCsePass

SIZE = 1000


def content(i: int, sampled: bool = True) -> np.ndarray:
    """An array that differs from others of its kind in a sampled byte, or in bytes that are not sampled."""
    array = np.arange(SIZE, dtype=np.int32)
    step = array.nbytes // SAMPLES
    array.view(np.uint8)[step : step + RUN] += np.frombuffer(np.uint64(i if sampled else 0).tobytes(), np.uint8)
    array.view(np.uint8)[RUN : 2 * RUN] += np.frombuffer(np.uint64(0 if sampled else i).tobytes(), np.uint8)
    return array


def module(arrays: list[np.ndarray]) -> ModuleOp:
    """A function that returns these constants."""
    ops = [constant(array) for array in arrays]
    types = [op.result.type for op in ops]
    function = FuncOp("main", FunctionType.from_lists([], types), Region(Block([*ops, ReturnOp(*(op.result for op in ops))])))
    return ModuleOp([function])


def handles(of: ModuleOp) -> list[Handle]:
    return [op.value.data for op in of.walk() if isinstance(op, ConstantOp) and isinstance(op.value, StoredAttr)]


def calls(run: Callable[[], object]) -> int:
    """Counts the calls of functions, Python's and C's, without those that release what earlier tests left."""
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.collect()
    gc.disable()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    return count


def test_a_handle_is_a_name_that_nothing_changes():
    handle = store(content(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(handle, "number", 2)  # noqa: B010
    with pytest.raises((AttributeError, TypeError)):
        setattr(handle, "bytes", None)  # noqa: B010
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(StoredAttr(handle), "data", handle)  # noqa: B010
    other = store(content(1))
    assert handle != other
    assert StoredAttr(handle) == StoredAttr(handle) != StoredAttr(other)
    assert hash(StoredAttr(handle)) == hash(StoredAttr(handle)) != hash(StoredAttr(other))
    assert TABLE.equal(handle, other)


def test_a_content_leaves_memory_with_its_last_handle():
    array = content(1)
    handle, gone = store(array), weakref.ref(array)
    attribute = StoredAttr(handle)
    del array, handle
    np.testing.assert_array_equal(TABLE.bytes(attribute.data), content(1).view(np.uint8))
    del attribute
    assert gone() is None


@pytest.mark.parametrize("sampled", [True, False])
def test_merging_constants_is_linear(monkeypatch: pytest.MonkeyPatch, sampled: bool):
    """Even where all samples agree, so that contents are compared and hashed."""
    reads = 0

    def counted(self: ConstantTable, handle: Handle) -> object:
        nonlocal reads
        reads += 1
        return bytes_of(self, handle)

    bytes_of, each = ConstantTable.bytes, []
    PopartCsePass().apply(context(), module([content(1)]))  # imports are no part of the count
    monkeypatch.setattr(ConstantTable, "bytes", counted)
    for n in (500, 2000, 8000):
        made, reads = module([content(i, sampled) for i in range(n)]), 0
        each.append(calls(lambda made=made: PopartCsePass().apply(context(), made)) / n)
        assert len({*handles(made)}) == n
        assert reads == 0 if sampled else reads <= 4 * n
    assert max(each) < 1.05 * min(each), each


def test_equal_contents_of_a_module_become_one_handle_and_op():
    arrays = [content(1), content(2), content(1), content(3, sampled=False), content(4, sampled=False), content(3, sampled=False)]
    made = module(arrays)
    assert len({*handles(made)}) == 6
    PopartCsePass().apply(context(), made)
    assert len(handles(made)) == 4
    (returned,) = (op for op in made.walk() if isinstance(op, ReturnOp))
    for operand, array in zip(returned.operands, arrays, strict=True):
        assert isinstance(operand.owner, ConstantOp)
        np.testing.assert_array_equal(operand.owner.array(), array)


def test_contents_that_are_let_go_or_only_known_by_hash_are_compared():
    first, second, third = (store(content(i)) for i in (7, 7, 8))
    TABLE.release(second, lambda: content(7).view(np.uint8))
    found = EqualContents()
    assert [found.first(h) for h in (first, second, third)] == [first, first, third]
    unloaded = [TABLE.named(f"{i:016x}") for i in (1, 2)]
    assert [found.first(h) for h in unloaded] == unloaded


def test_texts_name_constants_by_their_hash_and_are_read_back(tmp_path):
    made = module([content(5), np.arange(3, dtype=np.float32), np.full((99,), 2.0, np.float32)])
    text = str(made)
    assert text.count("#data.stored<") == 1
    again = Parser(context(), text).parse_module()
    assert again.is_structurally_equivalent(made)
    save_blobs(made, tmp_path / "w.safetensors")
    del made, again
    gc.collect()
    alone = Parser(context(), text).parse_module()
    [handle] = handles(alone)
    assert TABLE.is_gone(handle)
    kept = load_blobs(tmp_path / "w.safetensors")
    assert kept == [handle]
    np.testing.assert_array_equal(TABLE.bytes(handle), content(5).view(np.uint8))
    assert str(alone) == text


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_large_concatenation_is_made_when_it_is_read(axis):
    shapes = [tuple(n if d == axis else m for d, m in enumerate((30, 40, 50))) for n in (7, 200, 93)]
    arrays = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)]
    parts = [constant(array) for array in arrays]
    made = joined_constant([part.result for part in parts], axis)
    expected = np.concatenate(arrays, axis)
    assert expected.nbytes >= LATER
    handle, whole = made.value.data, store(expected)
    assert not TABLE.is_here(handle)
    assert not TABLE.is_gone(handle)
    assert not TABLE.is_released(handle)
    assert TABLE.sample(handle) == TABLE.sample(whole)
    assert EqualContents().first(handle) is handle
    made.verify()
    places = [expected.nbytes - 1, 0, 4567, 4567, 12]
    twice = joined_constant([made.result, made.result], axis)
    assert TABLE.bytes_at(handle, places) == TABLE.bytes_at(whole, places)
    assert TABLE.sample(twice.value.data) == TABLE.sample(store(np.concatenate([expected, expected], axis)))
    assert not TABLE.is_here(handle)
    assert TABLE.equal(handle, whole)
    assert TABLE.is_here(handle)
    np.testing.assert_array_equal(made.array(), expected)


def test_a_concatenation_of_equal_elements_is_one_element():
    array = np.full(LATER, 2, np.float32)
    dense = constant(array)
    stored = ConstantOp.create(properties={"value": StoredAttr(store(array))}, result_types=[dense.result.type])
    for part in (dense, stored):
        assert joined_constant([part.result, part.result], 0).value.data.data == np.float32(2).tobytes()
