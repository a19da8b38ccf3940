"""run a program of several replicas in several processes, as PopDist's `poprun` does."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from populus.dialects.support.diagnostics import PopulusError
from populus.popdist import ONLY, TOTAL
from populus.tools.command import UsageError, whole

# Options of the original that say where chips and machines are. They are accepted: there are none.
PLACES = (
    *("ipus-per-replica", "num-ilds", "numa-aware", "print-topology", "executable-cache-path", "mpi-local-args", "mpi-global-args"),
    *("vipu-partition", "vipu-allocation", "vipu-cluster", "vipu-server-host", "vipu-server-port", "vipu-server-timeout"),
    *("update-partition", "remove-partition", "reset-partition"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus poprun`."""
    parser.epilog = "Options about chips, partitions and MPI are accepted, and have no effect."
    add = parser.add_argument
    add("--num-replicas", type=whole(1), default=1, metavar="N", help="replicas of the program, of all instances; default 1")
    add("--num-instances", type=whole(1), default=1, metavar="M", help="processes, each with N / M replicas; default 1")
    add("--only-output-from-instance", type=whole(0), metavar="I", help="let this instance alone print; errors of all are printed")
    add("-v", "--vv", action="count", dest="loud", help=argparse.SUPPRESS)
    for name in PLACES:
        add(f"--{name}", metavar="X", help=argparse.SUPPRESS)
    add("words", metavar="COMMAND", nargs=argparse.REMAINDER, help="the program: python FILE ARGS, or another command")


def execute(args: argparse.Namespace) -> int:
    """Replaces this process by the command, or by the launcher of MPI that starts it.

    Raises PopulusError for replicas that are not a multiple of instances, and for a command that there is not.
    """
    replicas, instances, words = args.num_replicas, args.num_instances, args.words
    if not words:
        raise UsageError("no program is given: populus poprun --num-replicas 2 --num-instances 2 python train.py")
    if replicas % instances:
        raise PopulusError(f"{replicas} replicas cannot be dealt to {instances} instances in equal numbers")
    if args.only_output_from_instance not in (None, *range(instances)):
        raise PopulusError(f"--only-output-from-instance {args.only_output_from_instance}: instances are 0 to {instances - 1}")
    command = [*launcher(instances), *program(words)]
    environment = {"POPULUS_THREADS": str(max(1, len(os.sched_getaffinity(0)) // instances)), **os.environ, TOTAL: str(replicas)}
    if args.only_output_from_instance is not None:
        environment[ONLY] = str(args.only_output_from_instance)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise PopulusError(f"{command[0]}: {(error.strerror or str(error)).lower()}") from None


def launcher(instances: int) -> list[str]:
    """Gives the words that start so many processes, none for one. Raises PopulusError if MPI is not installed."""
    if instances == 1:
        return []
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("mpiexec", path=beside)
    if found is None or find_spec("mpi4py") is None:
        raise PopulusError(f"{instances} instances are ranks of MPI, which is not installed; pip install mpi4py mpich")
    return [found, "-n", str(instances)]


def program(words: Sequence[str]) -> list[str]:
    """Gives the command of an instance: a Python program runs as by `populus run-program`, another one as it is."""
    python = re.fullmatch(r"python[\d.]*", Path(words[0]).name) is not None and len(words) > 1 and not words[1].startswith("-")
    return [sys.executable, "-m", "populus", "run-program", *words[1:]] if python else list(words)
