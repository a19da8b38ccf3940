"""Meanings of library calls give what an engine's run of their tiles gives, and a planted error in one is caught by that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import onnx
import pytest
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i1

from helpers.node_models import node_cases
from helpers.proof_values import unlike
from populus.dialects import poplin, popnn, popops
from populus.dialects.poplar.meaning import Whole
from populus.dialects.poplar.partition import Access
from populus.dialects.poplar.points import TooMany
from populus.lowering.driver.pipeline import WATCHING
from populus.onnx_backend import Prepared
from populus.proof.programs import execute
from populus.proof.report import Undecided
from populus.proof.terms import Terms

MOST = 16  # elements of an output that are evaluated


class Calls:
    """Keeps the terms of the program of library calls."""

    def __init__(self):
        self.terms, self.results = Terms(), None

    def begin(self, module) -> None:
        pass

    def after(self, p, ctx, module) -> None:
        if p.name == "popart-to-popops":
            self.results = execute(self.terms, module)


def differences(name: str) -> list[str]:
    """Compares elements of outputs, by the meanings of calls and by a run of the tiles."""
    case, watcher = node_cases()[f"test_{name}"], Calls()
    prepared = Prepared(case.model or onnx.load(f"{case.model_dir}/model.onnx"), "host", 4, "numpy")
    assert case.data_sets is not None, name
    named = prepared.named(list(case.data_sets[0][0]))
    token = WATCHING.set(watcher)
    try:
        program, rest = prepared.program(named)
    finally:
        WATCHING.reset(token)
    assert watcher.results is not None, name
    return unlike(watcher.terms, watcher.results, program.run(rest), named, MOST)


def changed(op: type, change: Callable[[Whole], Whole], which: int = -1):
    """Plants a change in one of the families that an op means."""

    def plant(patch) -> None:
        right = op.meaning

        def meaning(self):
            found = list(right(self))
            found[which] = change(found[which])
            return found

        patch.setattr(op, "meaning", meaning)

    return plant


def moved(field: str, dim: int, by: int):
    """A field that is read, or written, at another place."""

    def change(whole: Whole) -> Whole:
        def access(a: tuple[Access, ...]) -> tuple[Access, ...]:
            return tuple(Access(x.terms, x.offset + by) if d == dim % len(a) else x for d, x in enumerate(a))

        return replace(whole, fields=tuple((n, k, access(a) if n == field else a) for n, k, a in whole.fields))

    return change


def scaled(field: str, dim: int, by: int):
    """A field that is read at another distance."""

    def change(whole: Whole) -> Whole:
        def access(a: tuple[Access, ...]) -> tuple[Access, ...]:
            first = [(axis, c * by) if k == 0 else (axis, c) for k, (axis, c) in enumerate(a[dim].terms)]
            return tuple(Access(tuple(first), x.offset) if d == dim % len(a) else x for d, x in enumerate(a))

        return replace(whole, fields=tuple((n, k, access(a) if n == field else a) for n, k, a in whole.fields))

    return change


def swapped(field: str, one: int, other: int):
    """A field of which two dimensions are taken for each other."""

    def change(whole: Whole) -> Whole:
        def access(a: tuple[Access, ...]) -> tuple[Access, ...]:
            found = list(a)
            found[one], found[other] = found[other], found[one]
            return tuple(found)

        return replace(whole, fields=tuple((n, k, access(a) if n == field else a) for n, k, a in whole.fields))

    return change


def shorter(axis: str):
    """An axis without its last place."""
    return lambda whole: replace(whole, axes=tuple((a, n - (a == axis)) for a, n in whole.axes))


def parameter(name: str, value):
    """Another parameter of the codelet."""
    return lambda whole: replace(whole, params={**whole.params, name: value})


def codelet(name: str):
    """Another codelet."""
    return lambda whole: replace(whole, codelet=name)


TRUE, FALSE = IntegerAttr(1, i1), IntegerAttr(0, i1)
PLANTED = {
    "conv: a row further": ("basic_conv_with_padding", changed(poplin.ConvolutionOp, moved("x", 2, 1))),
    "conv: a column less": ("basic_conv_with_padding", changed(poplin.ConvolutionOp, moved("x", 3, -1))),
    "conv: twice the stride": ("conv_with_strides_padding", changed(poplin.ConvolutionOp, scaled("x", 2, 2))),
    "conv: taps transposed": ("basic_conv_without_padding", changed(poplin.ConvolutionOp, swapped("x", 2, 3))),
    "conv: a tap less": ("basic_conv_without_padding", changed(poplin.ConvolutionOp, shorter("k1"))),
    "matmul: a term less": ("matmul_2d", changed(poplin.MatMulOp, shorter("k"))),
    "matmul: a row further": ("matmul_2d", changed(poplin.MatMulOp, moved("a", 1, 1))),
    "matmul: groups": ("matmul_3d", changed(poplin.MatMulOp, moved("b", 0, 1))),
    "pool: a tap less": ("maxpool_2d_default", changed(popnn.PoolOp, shorter("k0"))),
    "pool: a row further": ("averagepool_2d_pads", changed(popnn.PoolOp, moved("x", 2, 1))),
    "pool: another kind": ("maxpool_2d_default", changed(popnn.PoolOp, parameter("kind", StringAttr("sum")))),
    "pool: padding that counts": ("averagepool_2d_pads", changed(popnn.PoolOp, parameter("count_padding", TRUE))),
    "softmax: its logarithm": ("softmax_axis_2", changed(popnn.SoftmaxOp, parameter("log", TRUE))),
    "softmax: another row": ("softmax_axis_2", changed(popnn.SoftmaxOp, codelet("whiten"))),
    "reduce: a term less": ("reduce_sum_keepdims_random", changed(popops.ReduceOp, shorter("r1"))),
    "reduce: squares": ("reduce_sum_keepdims_random", changed(popops.ReduceOp, parameter("op", StringAttr("square_add")))),
    "reduce: the least": ("reduce_max_keepdims_random", changed(popops.ReduceOp, parameter("op", StringAttr("min")))),
    "concat: a part at the begin": ("concat_2d_axis_0", changed(popops.ConcatOp, moved("y", 0, -1))),
    "pad: a place further": ("constant_pad", changed(popops.PadOp, moved("y", 2, 1))),
    "gather: indices transposed": ("gather_0", changed(popops.MultiSliceOp, moved("indices", 0, 1))),
    "top_k: the least": ("top_k", changed(popops.TopKOp, parameter("largest", FALSE))),
    "scatter: another combination": ("scatternd_add", changed(popops.MultiUpdateOp, parameter("op", StringAttr("set")))),
    "map: one operand for the other": ("sub", changed(popops.MapOp, moved("x2", 0, 1))),
}
"""Errors in meanings, each with the node test whose run catches it."""


@pytest.mark.parametrize("name", sorted({name for name, _ in PLANTED.values()}))
def test_the_meaning_of_calls_gives_what_a_run_gives(name):
    assert not differences(name)


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_error_in_a_meaning_is_caught(planted, monkeypatch):
    name, plant = PLANTED[planted]
    plant(monkeypatch)
    try:
        wrong = differences(name)
    except (ValueError, IndexError, KeyError, ArithmeticError, Undecided, TooMany) as error:
        wrong = [repr(error)]
    assert wrong
