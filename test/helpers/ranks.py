"""`mpiexec` for tests, where it is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
needs_mpi = pytest.mark.skipif(MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="mpiexec and mpi4py are not installed")


def mpiexec(ranks: int, *command: object, timeout: float = 120, left: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs Python on so many ranks, with one thread each.

    With `left` the launcher leaves the others running when one is lost, so that nothing else than the guardian ends them.
    """
    assert MPIEXEC is not None
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POPULUS_THREADS": "1"}
    return subprocess.run(
        [MPIEXEC, *(["-disable-auto-cleanup"] if left else []), "-n", str(ranks), sys.executable, *map(str, command)],
        check=False, capture_output=True, text=True, timeout=timeout, env=environment,
    )  # fmt: skip
