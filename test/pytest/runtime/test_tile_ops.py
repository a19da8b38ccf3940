"""Functions of codelets: their ops are made when machine code is, and their key tells what determines the ops."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from xdsl.dialects.builtin import bf16, f16, f32, f64, i32

from helpers.codelet_engines import by_emitted_llvm, by_engine
from populus.dialects.poplar import tile_mlir
from populus.dialects.poplar.tile_code import IntVector, Vector, codelet, floats
from populus.dialects.poplar.tile_mlir import Operand, function_of
from populus.dialects.support.element_types import ui8, ui32


@codelet
def doubled(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = x[i] * 2.0


@codelet
def shifted(x: Vector, y: Vector, n: int) -> None:
    kept = floats(n + 1)
    for i in range(len(y)):
        kept[n] = x[i]
        y[i] = kept[n] % 3.0


@codelet
def counted(x: IntVector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = float(x[i])


@codelet(axes={"x": "n", "at": "i", "y": "i"})
def unless_negative(x: Vector, at: IntVector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = 1.0
        if at[i] < 0:
            pass
        else:
            y[i] = x[at[i]]


def test_a_branch_without_statements_has_a_block():
    inputs = {"x": np.float32([5, 6]), "at": np.int32([-1, 1, 0])}
    for way in (by_emitted_llvm, partial(by_engine, engine="native")):
        assert way(unless_negative, inputs, {"y": ((3,), np.float32)}, {})["y"].tolist() == [1, 6, 5]


def test_functions_with_one_key_have_one_text():
    made: dict[str, set[str]] = {}
    texts: set[str] = set()
    operands = [
        Operand((4,), element, strides, halves)
        for element, strides, halves in (
            *product((f16, f32, f64, bf16), (None, (1,), (3,)), (False,)), (f16, None, True), (bf16, None, True), (f16, (3,), True),
        )
    ]  # fmt: skip
    for x, code, n, lane in product(operands, (doubled, shifted), (2, 5), ("", "i")):
        function = function_of(code, {"x": x, "y": Operand((4,), f32)}, {"n": n}, lane)
        text = str(function.module())
        made.setdefault(function.key, set()).add(text)
        texts.add(text)
    assert all(len(t) == 1 for t in made.values())
    assert len(texts) > 40


def test_the_sign_of_integers_is_part_of_the_key():
    assert len({function_of(counted, {"x": Operand((4,), e), "y": Operand((4,), f32)}).key for e in (i32, ui32, ui8)}) == 3


def test_a_program_whose_machine_code_is_kept_makes_no_ops(monkeypatch: pytest.MonkeyPatch):
    x = np.arange(6, dtype=np.float32)
    first = by_engine(doubled, {"x": x}, {"y": ((6,), np.float32)}, {}, "native", 2)
    monkeypatch.setattr(tile_mlir, "ModuleOp", None)
    assert by_engine(doubled, {"x": x}, {"y": ((6,), np.float32)}, {}, "native", 2)["y"].tolist() == first["y"].tolist() == (x * 2).tolist()
    with pytest.raises(TypeError):
        function_of(doubled, {"x": Operand((6,), f32), "y": Operand((6,), f32)}).module()
