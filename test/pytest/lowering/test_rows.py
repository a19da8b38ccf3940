"""Rows of softmax and whitening: the cheaper of whole and cut is taken, and what is cut is computed right."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f16, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from populus.dialects.poplar import FamilyOp, GraphOp
from populus.dialects.popnn import SoftmaxOp, WhitenOp
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.poplar.plan import rows
from populus.runtime.profile import profile
from populus.runtime.session import Session

SHAPES = [[1, 1000], [128, 768], [128, 128], [128, 3072], [512, 768], [8, 8192]]


def lowered(kind: str, shape: list[int], element: object, target: str = "gc200") -> ModuleOp:
    block = Block(arg_types=[TensorType(element, shape)])
    op = SoftmaxOp(block.args[0]) if kind == "softmax" else WhitenOp(block.args[0], epsilon=1e-5)
    block.add_ops([op, ReturnOp(op.results[0])])
    module = ModuleOp([FuncOp("main", FunctionType.from_lists([block.args[0].type], [op.results[0].type]), Region(block))])
    passes = "poplin-to-poplar{target=%s},popnn-to-poplar,popops-to-poplar,poplar-map,poplar-merge,poplar-allocate"
    Pipeline.from_text(passes % f'"{target}"').run(context(), module)
    return module


def is_whole(module: ModuleOp) -> bool:
    return any(isinstance(op, FamilyOp) and op.codelet.data in ("softmax", "whiten") for op in module.walk())


@pytest.mark.parametrize("kind", ["softmax", "whiten"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_rows_are_whole_or_cut_whichever_is_cheaper(kind, shape, monkeypatch):
    for element in (f16, f32):
        chosen = is_whole(lowered(kind, shape, element))
        cycles = {}
        for whole in (True, False):
            monkeypatch.setattr("populus.lowering.poplar.from_popnn.stay_whole", lambda *_, whole=whole: whole)
            module = lowered(kind, shape, element)
            assert is_whole(module) is whole
            cycles[whole] = profile(next(op for op in module.walk() if isinstance(op, GraphOp))).summary["cycles"]
        monkeypatch.undo()
        assert cycles[chosen] <= 1.12 * min(cycles.values()), (shape, element, cycles)


def test_estimates_are_those_of_the_profile():
    from populus.dialects.poplar.target import Spec

    target = Spec.of("gc200").target()
    for kind in ("softmax", "whiten"):
        for shape in SHAPES[:-1]:
            for element in (f16, f32):
                module = lowered(kind, shape, element)
                found = profile(next(op for op in module.walk() if isinstance(op, GraphOp))).summary["cycles"]
                estimate = rows.whole_cycles(kind, shape, element, None, target)
                if not is_whole(module):
                    estimate = rows.cut_cycles(kind, shape, element, target)
                streams = 2 * target.sync_cycles
                assert estimate + streams == pytest.approx(found, rel=0.12), (kind, shape, element)


def test_rows_that_are_cut_are_computed_right():
    x = np.random.default_rng(0).standard_normal((2, 1024)).astype(np.float32) * 3
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    centred = x - x.mean(1, keepdims=True, dtype=np.float64)
    expected = {"softmax": e / e.sum(1, keepdims=True), "whiten": centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)}
    for kind, values in expected.items():
        module = lowered(kind, [2, 1024], f32, "gc200, tiles=64, sync_cycles=0, exchange_setup_cycles=0")
        assert not is_whole(module)
        for engine in ("numpy", "strict", "native"):
            session = Session(module, engine=engine)
            (name,) = session.inputs
            (found,) = session.run({name: x}).values()
            np.testing.assert_allclose(found, values, rtol=2e-6, atol=1e-7)
