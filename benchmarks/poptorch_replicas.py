"""Compares replicas of public PopTorch programs in one process and by ranks: `python -m benchmarks.poptorch_replicas FOLDER [-k WORD]`.

FOLDER holds copies of graphcore's `poptorch` and `examples`. Each program runs as it is, with 2 and with 4 replicas whatever its options
state: in one process, and by as many ranks of `mpiexec`. Prints the digests of what its models have learned, and of its losses.
Exit 1 if two differ. Drawn digits stand in for MNIST. Wants PyTorch, onnxscript, mpi4py and mpich.
"""

# pyright: basic
from __future__ import annotations

import argparse
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = (
    "poptorch/examples/mnist.py",
    "examples/tutorials/simple_applications/pytorch/mnist/mnist_poptorch_code_only.py --epochs 1",
)


def inner(replicas: int, program: str, *arguments: str) -> None:
    """Runs a program with so many replicas, and prints a digest of its losses and of the tensors of its modules."""
    import torch  # pyright: ignore[reportMissingImports], optional

    from populus import poptorch
    from populus.aliases import installed

    digest, modules, calls = hashlib.sha256(), list[Any](), 0
    train, begin, factor = poptorch.trainingModel, poptorch.Options.__init__, poptorch.Options.replicationFactor

    def begun(options: Any) -> None:
        begin(options)
        factor(options, replicas)

    def taken(values: Any) -> None:
        for value in values if isinstance(values, list | tuple) else [values]:
            digest.update(value.detach().numpy().tobytes())

    def watched(module: Any, *given: Any, **named: Any) -> Any:
        model = train(module, *given, **named)
        modules.append(module)
        call = type(model).__call__

        class Watched(type(model)):  # pyright: ignore[reportUntypedBaseClass]
            def __call__(self, *tensors: Any, **others: Any) -> Any:
                nonlocal calls
                calls += 1
                taken(found := call(self, *tensors, **others))
                return found

        model.__class__ = Watched
        return model

    kind: Any = poptorch.Options
    poptorch.trainingModel, kind.__init__, kind.replicationFactor = watched, begun, lambda options, _: options
    torch.manual_seed(0)
    with installed(), open(os.devnull, "w") as nothing:
        said, sys.stdout, sys.argv = sys.stdout, nothing, [program, *arguments]
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")
        sys.stdout = said
    assert calls, "the program trained nothing"
    for module in modules:
        taken(list(module.state_dict().values()))
    if int(os.environ.get("PMI_RANK", "0")) == 0:
        print(f"{calls} steps, {digest.hexdigest()[:16]}")


def ran(program: Path, arguments: list[str], replicas: int, ranks: int) -> str:
    """Gives what a run prints last."""
    command = [sys.executable, "-m", "benchmarks.poptorch_replicas", "--inner", str(replicas), str(program), *arguments]
    if ranks > 1:
        found = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
        assert found, "mpiexec is not installed"
        command = [found, "-n", str(ranks), *command]
    paths = os.pathsep.join([str(ROOT / "benchmarks/stand_ins"), str(ROOT)])
    env = {"DRAWN": "3200", "POPULUS_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=program.parent, env=env, capture_output=True, text=True, check=False)
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    return lines[-1] if lines else f"status {done.returncode}"


def main() -> int:
    """Prints a line for each program and number of replicas; gives 1 if one differs, or stops."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-k", default="", help="only programs whose name holds this")
    args = parser.parse_args()
    wrong = 0
    for name in (p for p in PROGRAMS if args.k in p):
        file, *options = name.split()
        for replicas in (2, 4):
            one, many = (ran((args.folder / file).resolve(), options, replicas, ranks) for ranks in (1, replicas))
            same = one == many and " steps, " in one
            wrong += not same
            print(f"{'equal ' if same else 'differ'} {replicas} replicas  {name}: {one}" + ("" if same else f" / {many}"), flush=True)
    return wrong > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inner"]:
        inner(int(sys.argv[2]), *sys.argv[3:])
    else:
        sys.exit(main())
