"""Kills a rank of `populus train` at random moments, and resumes: what the others say, how soon they end, and what checkpoints hold.

python -m benchmarks.replica_faults --ranks 3 --moments 20
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

from benchmarks.replica_scaling import MPIEXEC, mlp
from populus.dialects.support.diagnostics import PopulusError
from populus.training import checkpoint


def command(folder: Path, name: str, ranks: int, epochs: int, *more: str) -> list[str]:
    """Gives the command that trains into a folder of checkpoints, by ranks."""
    train = [sys.executable, "-m", "populus.tools.main", "train", str(folder / "net.onnx"), "--data", str(folder / "data.npz")]
    rest = ["--batch", "24", "--epochs", str(epochs), "--every", "1", "--tiles", "2", "--engine", "numpy"]
    return [MPIEXEC, "-n", str(ranks), *train, *rest, "--checkpoint", str(folder / name), *more]


def children(pid: int) -> list[int]:
    """Lists the processes that a process has started, and those that these have."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found += [int(stat.parent.name), *children(int(stat.parent.name))]
    return found


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """Lists the ranks that `mpiexec` started, in the order of their numbers."""
    ranks: dict[int, int] = {}
    for pid in children(process.pid):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        number = next((v.partition("=")[2] for v in environment if v.startswith("PMI_RANK=")), "")
        if number and b"guardian" not in line and b"populus.tools.main" in line and b"mpiexec" not in line and b"hydra" not in line:
            ranks[int(number)] = pid
    return [ranks[n] for n in sorted(ranks)]


def moment(folder: Path, name: str, ranks: int, epochs: int, rng: random.Random, shard: list[str]) -> tuple[float, int, int, list[str]]:
    """Ends a random rank, after a random number of checkpoints and a random while; gives seconds, rank, step, and lines."""
    process = subprocess.Popen(
        command(folder, name, ranks, epochs, *shard), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    written, wait, victim = rng.randrange(1, 60), rng.random() * 0.02, rng.randrange(ranks)
    while process.poll() is None:
        steps = [int(re.sub(r"\D", "", f.stem)) for f in checkpoint.files(folder / name)]
        if steps and max(steps) >= written:
            break
        time.sleep(0.002)
    time.sleep(wait)
    os.kill(ranks_of(process)[victim], signal.SIGKILL)
    begun = time.monotonic()
    _, text = process.communicate(timeout=60)
    return time.monotonic() - begun, victim, written, [line for line in text.splitlines() if line.startswith("populus: ")]


def main() -> None:
    """Runs the moments, and prints a line for each and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng, epochs = random.Random(args.seed), 10
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        onnx.save(mlp(6, 8, 3), folder / "net.onnx")
        g = np.random.default_rng(0)
        np.savez(folder / "data.npz", x=g.normal(size=(24 * 8, 6)).astype(np.float32), labels=g.integers(0, 3, 24 * 8))
        subprocess.run(command(folder, "whole", args.ranks, epochs), check=True, stdout=subprocess.DEVNULL)
        whole, _ = checkpoint.read_newest(folder / "whole")
        assert whole is not None
        wrong = 0
        for n in range(args.moments):
            shard = ["--shard", "states"] if n % 2 else []
            seconds, victim, written, lines = moment(folder, str(n), args.ranks, epochs, rng, shard)
            faults = [] if len(lines) == 1 and f"rank {victim} of {args.ranks}" in lines[0] else [f"lines: {lines}"]
            faults += [f"{seconds:.1f} s"] if seconds > 30 else []
            for file in checkpoint.files(folder / str(n)):
                try:
                    checkpoint.read(file)
                except PopulusError as error:
                    faults.append(str(error))
            again = args.ranks if n % 4 else 1  # another number for a quarter of them
            done = subprocess.run(command(folder, str(n), again, epochs), check=False, capture_output=True, text=True)
            faults += [] if done.returncode == 0 else [done.stderr]
            found, _ = checkpoint.read_newest(folder / str(n))
            assert found is not None
            far = max(float(np.abs(found.tensors[t] - a).max()) for t, a in whole.tensors.items())
            if (again == args.ranks and far) or far > 1e-6:
                faults.append(f"resumed by {again}: {far:g} away")
            wrong += bool(faults)
            ended = f"rank {victim} after step {written}: the others ended in {seconds:.1f} s"
            print(f"{ended}; resumed by {again}: {far:g}", *faults, flush=True)
        print(f"{args.moments - wrong} of {args.moments} moments as promised")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
