"""Launches: the elements that the native engine hands to kernels, held against the accesses of the families and copies that they compute.

It loads the program and compares sets of bytes, all of them, as `runtime/engine/native/run/launch_check.py` says.
"""

from __future__ import annotations

from time import perf_counter

from populus.dialects.poplar.program import GraphOp
from populus.proof.passes import Row
from populus.proof.report import PROVED, UNDECIDED
from populus.runtime.engine.native import NoMachineCodeError
from populus.runtime.engine.native.run.launch_check import holding
from populus.runtime.tasks import with_tasks

LAUNCHES = "launches of the native engine"


class RefutedLaunches(Exception):
    """Raised for a launch that touches other elements than its task. Its text names the step, the operand and the number of bytes."""


def prove_launches(graph: GraphOp) -> Row:
    """Loads a tile program on the native engine, and proves for each task that its launches touch what its accesses say.

    Not decided is a program of which a kernel states nothing, or steps that NumPy computes. Raises RefutedLaunches.
    """
    begin = perf_counter()
    try:
        from populus.runtime.engine.native.run.program import NativeProgram

        with holding():
            program = NativeProgram(with_tasks(graph))
    except (ImportError, NoMachineCodeError) as why:
        return Row(LAUNCHES, UNDECIDED, str(why), perf_counter() - begin)
    except AssertionError as why:
        raise RefutedLaunches(f"{LAUNCHES} are refuted: {why}") from why
    assert program.check is not None
    reasons = [f"@{key.split(maxsplit=1)[0]} states nothing" for key in sorted(program.check.unstated)]
    reasons += [f"NumPy computes {count} of '{name}'" for name, count in program.fallbacks.items()]
    found = f"{program.check.tasks} tasks"
    return Row(LAUNCHES, UNDECIDED if reasons else PROVED, "; ".join([found, *reasons]), perf_counter() - begin)
