"""A sample of mutated tile programs: `make fuzz FUZZERS=tiles` runs more. And guarded memory itself."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuzz.children import FINDINGS, outcomes
from fuzz.tile_programs import judge, judged
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.runtime.codelets import IMPLEMENTATIONS
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Run, Task
from populus.runtime.engine.guarded_memory import PAGE, GuardedMemory
from populus.runtime.session import Session

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guarded memory and limits are those of Linux")

SEEDS, EACH = 40, 20


@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
def test_a_mutated_program_is_refused_in_one_line_or_runs_alike_on_all_engines(first: int):
    found = dict(outcomes(range(first, first + EACH), judge))
    assert {seed: outcome for seed, outcome in found.items() if outcome[0] in FINDINGS} == {}
    assert Counter(kind for kind, _ in found.values())["runs"] > 0


FILL = """
poplar.graph @main target <host> {
  %y = poplar.var "y" : !poplar.tensor<5xf32>
  poplar.execute "e" { poplar.family @fill {value = 1.0 : f32} for (i = 5) out y = %y[i] : !poplar.tensor<5xf32> }
  poplar.stream_out %y to "y" : !poplar.tensor<5xf32>
}
"""


def beyond(elements: int) -> Callable[[Task], Run]:
    """A kernel that writes one element so far after the last of y."""

    def kernel(task: Task) -> Run:
        y: Any = task["y"]
        wide = np.lib.stride_tricks.as_strided(y, (y.size + elements,), y.strides)

        def run() -> None:
            wide[y.size + elements - 1] = 7

        return run

    return kernel


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_a_write_beside_a_variable_is_found_after_its_step(engine: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POPULUS_GUARD", "1")
    whole = Session(parse_text(context(), FILL, "fill.mlir"), engine)
    assert whole.run({})["y"].tolist() == [1] * 5
    monkeypatch.setitem(IMPLEMENTATIONS, "fill", Implementation(beyond(1), IMPLEMENTATIONS["fill"].cycles))
    with pytest.raises(AssertionError, match="4 bytes beside 'y' were written"):
        Session(parse_text(context(), FILL, "fill.mlir"), engine).run({})


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_touch_of_the_page_beside_a_variable_ends_the_process(side: str):
    if (child := os.fork()) == 0:
        block = GuardedMemory().block(100, "y")
        at = -PAGE if side == "before" else 128
        faulthandler.disable()
        ctypes.string_at(block.ctypes.data + at, 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGSEGV, signal.SIGBUS)


PART_READ = """
builtin.module {
  poplar.graph @main target <host, tiles = 4> {
    %x = poplar.var "x" on [1, 1, 3] at 0 : !poplar.tensor<1x1x3xf32>
    poplar.stream_in "x" to %x : !poplar.tensor<1x1x3xf32>
    %w = poplar.var "w" on [1, 1, 1] at 16 : !poplar.tensor<1x1x1xf32>
    poplar.stream_in "w" to %w : !poplar.tensor<1x1x1xf32>
    %y = poplar.var "y" on [1, 1, 3 in 3] order [2] at 32 : !poplar.tensor<1x1x3xf32>
    poplar.execute "y" {
      poplar.family @conv for (b = 1, oc = 1, ic = 1, o0 = 3 in 3, k0 = 5) on (o0)
        in x = %x[b, ic, o0 + k0] : !poplar.tensor<1x1x3xf32>
        in w = %w[oc, ic, k0] : !poplar.tensor<1x1x1xf32>
        out y = %y[b, oc, o0] : !poplar.tensor<1x1x3xf32>
    }
    poplar.stream_out %y to "y" : !poplar.tensor<1x1x3xf32>
  } {peak_tile_bytes = 44 : i64}
}
"""


@pytest.mark.parametrize("kernel", [3, 5])
def test_a_vertex_whose_windows_end_inside_of_its_part_runs_on_all_engines(kernel: int):
    assert judged(PART_READ.replace("k0 = 5", f"k0 = {kernel}"), 0) == ("runs", "")
