"""make portability: the tests of numbers as other machines would run them.

    python -m benchmarks.portability                 # as in CI: a machine without vectors, and four with them
    python -m benchmarks.portability --full          # each setting by itself
    python -m benchmarks.portability --only cascadelake -- -n 2    # all tests as one of them

A setting is a set of environment variables and the facts that a process must then observe: OpenBLAS's kernels, NumPy's loops,
and the CPU that machine code is made for. If a fact differs, the setting is skipped, and the table says so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from populus.runtime.engine.native.codegen.cpu import CPUS, binding

ROOT = Path(__file__).parent.parent

# Tests that may depend on the machine: products compared between plans and engines, formulas, rows, threads, signals, the demo.
NUMBERS = (
    "test/pytest/lowering/test_offload.py::test_what_waits_outside_changes_no_result",
    "test/pytest/lowering/test_offload.py::test_training_steps_are_the_same_with_weights_outside",
    "test/pytest/lowering/test_outline.py::test_twelve_layers_are_one_that_is_called_twelve_times",
    "test/pytest/runtime/test_byte_products.py::test_convolutions_of_other_shapes_are_onnxruntimes",
    "test/pytest/runtime/test_codelets.py",
    "test/pytest/runtime/test_native_engine.py::test_a_formula_gives_the_bits_that_numpy_gives",
    "test/pytest/runtime/test_native_engine.py::test_a_form_is_native_and_gives_what_numpy_gives",
    "test/pytest/runtime/test_native_engine.py::test_code_for_another_cpu_is_not_taken",
    "test/pytest/runtime/test_native_engine.py::test_exp_tanh_and_log_are_within_4_units_in_the_last_place",
    "test/pytest/runtime/test_native_planes.py",
    "test/pytest/runtime/test_native_threads.py::test_an_interruption_ends_a_run_and_leaves_the_session_as_it_was",
    "test/pytest/runtime/test_native_threads.py::test_workers_whose_run_never_began_are_sent_home",
    "test/pytest/runtime/test_winograd.py::test_tiles_give_the_convolution_on_every_engine",
    "test/pytest/test_numerics.py::test_an_element_is_near_its_value_in_doubles",
    "test/pytest/test_numerics.py::test_special_floats_are_what_ieee_says",
    "test/pytest/test_numerics.py::test_a_sum_is_near_its_value_in_doubles",
    "test/pytest/tools/test_populus_demo.py::test_the_demo_goes_through_every_level_and_agrees_twice",
    "test/seeds/test_onnc.py::test_C3_a_convolution_and_its_relu_need_one_buffer",
    "test/seeds/test_onnc.py::test_C4_a_model_larger_than_its_tiles_runs_by_way_of_memory_outside",
)


@dataclass(frozen=True)
class Setting:
    """`variables` of a process, and the `facts` that it must observe. `ignored`: SIGINT is ignored, as under nohup."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    ignored: bool = False

    def __add__(self, other: Setting) -> Setting:
        return Setting(
            f"{self.name}, {other.name}",
            {**self.variables, **other.variables},
            {**self.facts, **other.facts},
            self.ignored or other.ignored,
        )


def blas(kernel: str) -> Setting:
    return Setting(f"BLAS {kernel}", {"OPENBLAS_CORETYPE": kernel}, {"BLAS": kernel})


def loops(name: str, *without: str) -> Setting:
    """Disables the CPU features of NumPy's loops whose names begin with these."""
    features: Mapping[str, bool] = np._core._multiarray_umath.__cpu_features__  # pyright: ignore[reportAttributeAccessIssue]
    dispatched: Sequence[str] = np._core._multiarray_umath.__cpu_dispatch__  # pyright: ignore[reportAttributeAccessIssue]
    disabled = [f for f in dispatched if f.startswith(without) and features[f]]
    kept = [f for f in dispatched if f not in disabled and features[f]]
    return Setting(f"NumPy {name}", {"NPY_DISABLE_CPU_FEATURES": " ".join(disabled)}, {"NumPy": kept, "disabled": bool(disabled)})


def native(cpu: str) -> Setting:
    return Setting(f"native {cpu}", {"POPULUS_NATIVE_CPU": cpu}, {"native": cpu})


# Code for a CPU that this one is not: its text, in vectors that LLVM cuts (test/helpers/cut_vectors.py).
PLACES = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "test")]))


def cut(cpu: str) -> Setting:
    variables = {"PYTEST_ADDOPTS": "-p helpers.cut_vectors", "PYTHONPATH": PLACES, "POPULUS_CUT_CPU": cpu}
    return Setting(f"native {cpu}, cut", variables, {"native": f"cut-{cpu}"})


def code(cpu: str) -> Setting:
    """Takes the code of a CPU: in its own instructions if this one has them, else cut."""
    llvm = binding()
    here = {name for name, there in llvm.get_host_cpu_features().items() if there}
    needed = {feature[1:] for feature in CPUS["x86_64"][cpu].split(",") if feature}
    return native(cpu) if needed <= here else cut(cpu)


def threads(n: int) -> Setting:
    variables = {"POPULUS_THREADS": str(n), "OPENBLAS_NUM_THREADS": str(n)}
    return Setting(f"threads {n}", variables, {"threads": n, "BLAS threads": n})


NOHUP = Setting("SIGINT ignored", facts={"SIGINT": "ignored"}, ignored=True)
KERNELS = ("Katmai", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX")
WIDE = ("AVX512", "X86_V4")  # beyond AVX2
LATER = ("AVX512_ICL", "AVX512_SPR")  # beyond the first CPUs with AVX-512

BASELINE = blas("Nehalem") + loops("baseline", "") + native("x86-64") + threads(1) + NOHUP
AVX2_LOOPS = loops("AVX2", *WIDE)
AVX2, AVX512 = blas("Haswell") + AVX2_LOOPS, blas("SkylakeX") + loops("AVX-512", *LATER)


def machines() -> list[Setting]:
    """Lists the sets of features that CPUs of x86-64 have: vectors of AVX2 or AVX-512, without and with dot products of bytes.

    On a CPU without AVX-512, NumPy and OpenBLAS stay with AVX2.
    """
    wide = AVX512 if np._core._multiarray_umath.__cpu_features__.get("AVX512_SKX") else AVX2  # pyright: ignore[reportAttributeAccessIssue]
    return [
        AVX2 + code("x86-64-v3") + threads(2),
        AVX2 + code("alderlake") + threads(2),
        wide + code("x86-64-v4") + threads(2),
        wide + code("cascadelake") + threads(2),
    ]


SAMPLE = [BASELINE, *machines()]
FULL = [
    Setting("as it is"),
    *(blas(kernel) for kernel in KERNELS),
    loops("baseline", ""),
    AVX2_LOOPS,
    *map(native, CPUS["x86_64"]),
    *map(cut, ("x86-64-v4", "alderlake", "cascadelake")),
    threads(1),
    threads(2),
    NOHUP,
    *SAMPLE,
]


def found() -> dict[str, object]:
    """Observes this process's kernels, loops and CPU. Runs a product and a formula, so that unsupported kernels fail here."""
    import threadpoolctl

    from populus.runtime.engine.native.codegen.cpu import machine
    from populus.runtime.engine.native.run.thread_pool import threads_of

    if cpu := os.environ.get("POPULUS_CUT_CPU"):
        importlib.import_module("helpers.cut_vectors").install(cpu)
    features = loops("", "\0").facts["NumPy"]
    assert np.isfinite(np.exp(np.ones((64, 64), np.float32) @ np.full((64, 64), 2.0**-6, np.float32))).all()
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["internal_api"] == "openblas" and "numpy" in pool["filepath"]]
    return {
        "BLAS": next((pool["architecture"] for pool in pools), "another"),
        "BLAS threads": next((pool["num_threads"] for pool in pools), 0),
        "NumPy": features,
        "disabled": bool(os.environ.get("NPY_DISABLE_CPU_FEATURES")),
        "native": machine().cpu,
        "threads": threads_of(),
        "SIGINT": "ignored" if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else "taken",
    }


def started(setting: Setting, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments in the setting."""
    command = [sys.executable, *arguments]
    if setting.ignored:
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **setting.variables}, capture_output=True, text=True, check=False)


def obstacle(setting: Setting) -> str:
    """Explains why the setting is not available here; empty if it is."""
    done = started(setting, "-m", "benchmarks.portability", "--facts")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"ended by signal {-done.returncode}"
    facts = json.loads(done.stdout)
    return "; ".join(f"{name} is {facts[name]}" for name, wanted in setting.facts.items() if facts[name] != wanted)


def result(setting: Setting, tests: Sequence[str]) -> tuple[str, str]:
    """Runs the tests; gives the table's cell, and the output if tests failed."""
    if reason := obstacle(setting):
        return f"not run: {reason}", ""
    begin = time.perf_counter()
    done = started(setting, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *tests)
    summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()
    counts = summary.strip("= ").partition(" in ")[0]
    return f"{counts}, {time.perf_counter() - begin:.0f} s", done.stdout + done.stderr if done.returncode else ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.portability", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="run every known setting by itself")
    parser.add_argument("--only", default="", metavar="TEXT", help="run settings whose name contains this text")
    parser.add_argument("--facts", action="store_true", help="print the facts of this process, as JSON")
    parser.add_argument("tests", nargs="*", default=NUMBERS, help="arguments of pytest (the tests of numbers)")
    args = parser.parse_args(arguments)
    if args.facts:
        print(json.dumps(found()))
        return 0
    settings = [s for s in (FULL if args.full else SAMPLE) if args.only in s.name]
    width = max((len(s.name) for s in settings), default=0)
    failures: dict[str, str] = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) as pool:
        for setting, (cell, output) in zip(settings, pool.map(lambda s: result(s, args.tests), settings)):
            print(f"{setting.name:{width}}  {cell}", flush=True)
            if output:
                failures[setting.name] = output
    for name, output in failures.items():
        print(f"\n== {name}\n{output}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
