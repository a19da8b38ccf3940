"""make portability: a setting is run only where it is what it says."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from benchmarks import portability
from benchmarks.portability import FULL, NOHUP, ROOT, SAMPLE, Setting, blas, loops, native, obstacle, result, threads
from populus.runtime.engine.native.codegen.cpu import CPUS, machine


def test_a_setting_that_cannot_be_had_says_what_is_found_instead():
    assert obstacle(native("later")).endswith("POPULUS_NATIVE_CPU = later is no CPU that code is made for here; there are " + names())
    assert obstacle(Setting("", {"POPULUS_THREADS": "2"}, {"threads": 3})) == "threads is 2"
    assert obstacle(blas("Zenith")).startswith("BLAS is ")


def names() -> str:
    return ", ".join(sorted(CPUS[machine().triple.partition("-")[0]]))


def test_a_setting_that_is_there_runs_the_tests_in_it(tmp_path):
    (tmp_path / "test_it.py").write_text("import signal\n\ndef test_it():\n    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN\n")
    cell, output = result(threads(1) + NOHUP, [str(tmp_path)])
    assert (cell.partition(",")[0], output) == ("1 passed", "")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored, and so its processes
    try:
        cell, output = result(threads(1), [str(tmp_path)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert cell.startswith("1 failed") and "assert" in output


def test_settings_add_up_and_have_names_of_their_own():
    both = threads(2) + NOHUP
    assert (both.name, both.facts["threads"], both.facts["SIGINT"], both.ignored) == ("threads 2, SIGINT ignored", 2, "ignored", True)
    assert len({s.name for s in FULL}) == len(FULL)
    assert all(setting in FULL for setting in SAMPLE)


def test_numpy_without_features_keeps_the_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(np._core._multiarray_umath, "__cpu_dispatch__", ["X86_V3", "X86_V4", "AVX512_SPR"])
    monkeypatch.setattr(np._core._multiarray_umath, "__cpu_features__", {"X86_V3": True, "X86_V4": True, "AVX512_SPR": False})
    without = loops("AVX2", *portability.WIDE)
    assert without.variables == {"NPY_DISABLE_CPU_FEATURES": "X86_V4"}
    assert without.facts == {"NumPy": ["X86_V3"], "disabled": True}


def test_the_tests_of_numbers_are_there():
    assert all((ROOT / test.partition("::")[0]).is_file() for test in portability.NUMBERS)
