"""Random programs of library calls: tiles compute what whole arrays do, whatever was moved, merged or written in place."""

from __future__ import annotations

import random

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import populus
from helpers.random_programs import Calls, Programs
from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import verify
from populus.dialects.support.element_types import shape_of
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.runtime.built.steps import SHARED
from populus.runtime.engine.native.run import image, step_table
from populus.runtime.interpreter import run_function
from populus.runtime.session import Session

PROGRAMS = 90  # thousands of others were run once; those that failed then follow
CALLS = 20
FAILED = (1098, 1437, 2616, 4288, 6061, 7092)


@pytest.mark.parametrize("seed", [*range(PROGRAMS), *FAILED])
def test_tiles_compute_what_whole_arrays_do(seed: int):
    compare(Programs(seed).module(), seed)


@pytest.mark.parametrize("seed", range(CALLS))
def test_tiles_compute_what_functions_do(seed: int):
    compare(Calls(seed).module(), seed)


def compare(module: ModuleOp, seed: int) -> None:
    """On random inputs: tiles against the module, with and without fusion, on each engine."""
    verify(module)
    function = main_of(module)
    rng = np.random.default_rng(seed)
    inputs = {f"i{i}": rng.standard_normal(shape_of(a.type)).astype(np.float32) for i, a in enumerate(function.body.block.args)}
    expected = run_function(module, dict(inputs))
    tiles, target = random.Random(seed).choice([(1, "host"), (4, "gc200"), (7, "host"), (64, "gc200")])
    plain = {p.name for p in Pipeline.named("inference-plain").passes}
    for share in (0, 0.5):  # of the passes that could be left out, which are
        lowered = module.clone()
        passes = Pipeline.named("inference").from_level("popops").with_defaults(target=target, tiles=tiles)
        chosen = random.Random(seed)
        off = [p.name for p in passes.passes if p.name not in plain and chosen.random() < share]
        for name in off:
            passes = passes.remove(name)
        passes.run(context(), lowered, verify_each=True)
        for engine in ("numpy", "strict", "native"):
            found = Session(lowered, engine).run(inputs)
            for name, e in expected.items():
                scale = max(float(np.abs(e[np.isfinite(e)]).max(initial=0)), 1e-6)
                np.testing.assert_allclose(found[name] / scale, e / scale, rtol=0, atol=2e-5, err_msg=f"{name} {engine} without {off}")


@pytest.mark.parametrize("seed", range(0, PROGRAMS, 8))
def test_native_code_gives_the_same_bits_on_any_number_of_threads(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(image, "LEAST", SHARED)
    monkeypatch.setattr(step_table, "WOKEN", 0)
    module = Programs(seed).module()
    inputs = populus.compile(module).signature.random(seed)
    Pipeline.named("inference").from_level("popops").with_defaults(target="gc200", tiles=16).run(context(), module)
    expected = Session(module, "native", threads=1).run(inputs)
    for threads in (2, 3):
        found = Session(module, "native", threads=threads).run(inputs)
        assert all(found[name].tobytes() == e.tobytes() for name, e in expected.items())
