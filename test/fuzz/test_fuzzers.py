"""A sample of each fuzzer in child processes: `make fuzz` runs fresh seeds of all."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

from fuzz.__main__ import main
from fuzz.children import BYTES, FINDINGS, Outcome, asking, outcomes
from fuzz.table import TABLE, Fuzzer
from populus.dialects.support.diagnostics import PopulusError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guarded memory and limits are those of Linux")
pytest.importorskip("onnxruntime")

SAMPLES = [
    *[("texts", 0, 60), ("texts", 60, 60), ("files", 0, 80), ("files", 80, 80), ("gradients", 0, 6), ("gradients", 6, 6)],
    *[("patterns", 0, 60), ("states", 0, 40), ("states", 40, 40), ("proofs", 0, 50), ("edits", 0, 30)],
]
"""Fuzzers whose samples are run here, with the first seed and how many. The other fuzzers have tests of their own."""
GOOD = {
    "texts": "runs", "files": "read", "gradients": "agrees", "patterns": "declines", "states": "agrees",
    "proofs": "proved", "edits": "told apart",
}


@pytest.mark.parametrize(("name", "first", "count"), SAMPLES)
def test_a_sample_has_no_findings(name: str, first: int, count: int):
    found = dict(outcomes(range(first, first + count), TABLE[name].judge))
    assert {seed: outcome for seed, outcome in found.items() if outcome[0] in FINDINGS} == {}
    assert Counter(kind for kind, _ in found.values())[GOOD[name]] > 0


def ending(seed: int) -> Outcome:
    """Ends as its seed says."""
    match seed:
        case 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 2:
            raise PopulusError("one line")
        case 3:
            raise PopulusError("two\nlines")
        case 4:
            raise KeyError("seed")
        case 6:
            with asking():
                os.kill(os.getpid(), signal.SIGFPE)
        case 7:
            with suppress(KeyError), asking():
                raise KeyError("oracle")
            os.kill(os.getpid(), signal.SIGSEGV)
        case 9:
            np.empty(2 * BYTES, np.uint8)
        case _:
            return "agrees", "tab\tand\nline"
    return "", ""


def test_each_end_of_a_seed_is_told_from_the_others():
    found = dict(outcomes(range(10), ending))
    kinds = [kind for kind, _ in found.values()]
    assert kinds == ["agrees", "signal", "refused", "refused", "failed", "agrees", "no oracle", "signal", "agrees", "memory"]
    assert found[0][1] == "tab\tand\nline"
    assert found[1][1] == "SIGSEGV"
    assert found[3][1] == "populus: two lines"
    assert "KeyError: 'seed'" in found[4][1]
    assert found[6][1] == "it ends by SIGFPE"


def test_a_seed_gives_the_same_case_again():
    for fuzzer in TABLE.values():
        if fuzzer.name != "tiles":  # whose text has the hashes of constants, made when they are printed
            assert fuzzer.kept(7) == fuzzer.kept(7)


def test_a_finding_is_printed_with_what_repeats_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path):
    fuzzer = Fuzzer("texts", "", ending, lambda seed: f"case {seed}", ".mlir")
    monkeypatch.setattr("fuzz.__main__.TABLE", {"texts": fuzzer})
    monkeypatch.setattr("sys.argv", ["fuzz", "texts", "--start", "4", "--count", "2", "--save", str(tmp_path)])
    assert main() == 1
    assert "again: python test/fuzz texts --start 4 --count 1" in capsys.readouterr().out
    assert (tmp_path / "texts-4.mlir").read_text() == "case 4"
