"""Mistakes are planted in the native engine, one at a time, and the comparison with numpy names the op and the tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import populus
from helpers.command import Command
from helpers.planted_mistakes import model
from populus.compare.engines import compare_engines
from populus.compare.levels import Comparison
from populus.compare.validation import validating
from populus.dialects import expr
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.codelets.task import Task
from populus.runtime.engine.native import NoMachineCodeError
from populus.runtime.engine.native.run import program as native

pytest.importorskip("llvmlite")

Form = Callable[..., Any]


def found(tiles: int = 4) -> Comparison:
    program = populus.compile(model(), tiles=tiles)
    return compare_engines(program, program.signature.random(0))


@pytest.mark.parametrize("tiles", [1, 4, 64])
def test_without_a_mistake_the_engines_agree(tiles: int):
    comparison = found(tiles)
    assert str(comparison) == f"native agrees with numpy at all {comparison.places} places that both have"
    assert comparison.places > 20


@dataclass(frozen=True)
class Planted:
    """A wrong kernel: that of `codelet` has other parameters. `first` is the op that is named."""

    codelet: str
    params: dict[str, Any]
    first: str


KERNELS = (
    Planted("pool", {"kind": "mean"}, "pool"),
    Planted("fill", {"value": 1.0}, "pad"),
    Planted("whiten", {"epsilon": 1e3}, "layer"),
    Planted("softmax", {"log": True}, "softmax"),
    Planted("reduce", {"op": "max"}, "mean of rows"),
)


def plant(monkeypatch: pytest.MonkeyPatch, planted: Planted, right: Callable[[str], Form | None] = native.native_form) -> list[int]:
    """Makes the native form of a codelet wrong; counts the kernels that are."""
    made: list[int] = []

    def form(codelet: str) -> Form | None:
        of = right(codelet)
        if of is None or codelet != planted.codelet:
            return of

        def bound(library: Any, task: Task, *rest: Any) -> Any:
            made.append(1)
            return of(library, replace(task, params={**task.params, **planted.params}), *rest)

        return bound

    monkeypatch.setattr(native, "native_form", form)
    return made


@pytest.mark.parametrize("planted", KERNELS, ids=lambda p: p.codelet)
def test_a_wrong_kernel_is_named_with_its_op(planted: Planted, monkeypatch: pytest.MonkeyPatch):
    made = plant(monkeypatch, planted)
    comparison = found()
    assert made
    assert comparison.first == planted.first, str(comparison)
    assert f"native differs from numpy first at '{planted.first}' in '" in str(comparison)


def test_a_wrong_formula_in_the_stores_of_a_product_is_named(monkeypatch: pytest.MonkeyPatch):
    """No step of the program has the product's sums in memory: the formula's result is what differs."""
    right, made = native.Formula, list[int]()

    def wrong(expression: expr.Expr, *rest: Any) -> Any:
        made.append(1)
        return right(expression + 1, *rest)

    monkeypatch.setattr(native, "Formula", wrong)
    comparison = found()
    assert made
    assert comparison.first in ("leaky", "gemm"), str(comparison)  # by the CPU, the first whose formula is in the stores


def test_a_wrong_copy_is_named(monkeypatch: pytest.MonkeyPatch):
    right = native.copy
    monkeypatch.setattr(native, "copy", lambda library, source, target: right(library, source[..., ::-1], target))
    assert found().first == "pad"


def test_a_wrong_join_of_right_steps_is_told_apart(monkeypatch: pytest.MonkeyPatch):
    right = native.NativeProgram.compute

    def twice(self: native.NativeProgram) -> None:
        right(self)
        for name, array in self._run_results.items():
            self._run_results[name] = array + 1

    monkeypatch.setattr(native.NativeProgram, "compute", twice)
    comparison = found()
    assert comparison.first == "output y"
    assert "native differs from numpy first at 'output y' though each step by itself agrees, by " in str(comparison)


def test_without_a_compiler_the_engines_are_not_compared(monkeypatch: pytest.MonkeyPatch):
    def none(*_: object) -> None:
        raise NoMachineCodeError("the native engine needs llvmlite")

    monkeypatch.setattr(native.NativeProgram, "begin", none)
    assert str(found()) == "native is not compared: the native engine needs llvmlite"
    with validating(kinds=()) as passes:
        populus.compile(model(), tiles=4)
    assert "the native engine" not in dict(passes.compared)


def test_a_validation_ends_with_the_native_engine(monkeypatch: pytest.MonkeyPatch):
    with validating(kinds=()) as passes:
        populus.compile(model(), tiles=4)
    assert passes.compared[-1] == ("the native engine", 1)
    plant(monkeypatch, KERNELS[3])
    line = r"^native differs from numpy first at 'softmax' in '.*', by .* \(inputs: drawn\)$"
    with pytest.raises(PopulusError, match=line), validating():
        populus.compile(model(), tiles=4)


def test_the_command_compares_the_engines(populus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    onnx.save(model(), tmp_path / "m.onnx")
    run = ("run", tmp_path / "m.onnx", "--tiles", 4, "--check-levels")
    right = populus(*run)
    assert (right.status, right.err) == (0, "")
    assert "native agrees with numpy at all " in right.out
    plant(monkeypatch, KERNELS[3])
    wrong = populus(*run)
    assert wrong.status == 1
    assert "native differs from numpy first at 'softmax' in '" in wrong.err
    assert "poplar agrees with popops" in wrong.out
