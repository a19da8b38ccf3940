"""Libraries for 64-bit ARM and RISC-V under emulation: for how many models they have every bit of the native engine on this CPU.

python -m benchmarks.cross_bits [--step N] [--from N]     every N-th of ONNX's node tests; by default 6, which is 314
python -m benchmarks.cross_bits --nets [MODEL ..]         the models of the table of speeds, by default all

Lanes are `aarch64`, and `riscv64` with vector registers of 128 and of 256 bits. It needs qemu-user and cross compilers (Debian: apt install
qemu-user gcc-aarch64-linux-gnu gcc-riscv64-linux-gnu libc6-dev-arm64-cross libc6-dev-riscv64-cross).
"""

# pyright: basic
from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import populus
from benchmarks.same_bits import NOT_RUN, Case, compared, nets, node_tests
from benchmarks.speed import HOST
from populus.runtime.engine.native.frozen.link import SOURCES, compiler

LANES = {  # the architecture that is built for, and the emulator's CPU
    "aarch64": ("aarch64", "max"),
    "riscv64, 128": ("riscv64", "rv64,v=true,vlen=128,vext_spec=v1.0"),
    "riscv64, 256": ("riscv64", "rv64,v=true,vlen=256,vext_spec=v1.0"),
}
CHUNK = 20
"""Libraries that one process runs."""


def built(program: populus.Program, folder: Path) -> None:
    """Builds the libraries of a model, a folder for each architecture."""
    for architecture in dict.fromkeys(a for a, _ in LANES.values()):
        populus.build(program, folder / architecture, cpu=architecture)


def run(runner: Path, lane: str, made: list[Case]) -> list[tuple[str, str]]:
    """Runs libraries in one emulated process. Returns what came of each, and a text."""
    architecture, cpu = LANES[lane]
    with tempfile.TemporaryDirectory() as place:
        files = [(Path(place, f"{i}.in"), Path(place, f"{i}.out")) for i in range(len(made))]
        for case, (given, _) in zip(made, files):
            given.write_bytes(b"".join(array.tobytes() for array in case.given.values()))
        lines = [f"{case.folder / architecture / 'libmodel.so'}\n{given}\n{taken}\n" for case, (given, taken) in zip(made, files)]
        Path(place, "list").write_text("".join(lines))
        command = [
            f"qemu-{architecture}",
            "-cpu",
            cpu,
            "-L",
            f"/usr/{architecture}-linux-gnu",
            runner / architecture,
            "2",
            Path(place, "list"),
        ]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        said = done.stdout.splitlines()
        if done.returncode or len(said) != len(made):
            if len(made) == 1:
                kind = NOT_RUN if f"target/{architecture[:5]}" in done.stderr and "Assertion" in done.stderr else "ended"
                return [(f"{lane}: {kind}", f"{made[0].name}: status {done.returncode}, {done.stderr.strip()[-100:]}")]
            return [one for case in made for one in run(runner, lane, [case])]
        found = []
        for case, text, (_, taken) in zip(made, said, files, strict=True):
            kind, what = case.judged(outputs(case, taken.read_bytes()) if text == "ok" else None, "" if text == "ok" else text)
            found.append((f"{lane}: {kind}", what))
        return found


def outputs(case: Case, content: bytes) -> dict[str, bytes]:
    """Cuts the outputs of a run, one after the other, by the sizes of those that are expected."""
    found, at = {}, 0
    for name, array in (case.expected or {}).items():
        found[name], at = content[at : at + array.nbytes], at + array.nbytes
    return found


def main() -> int:
    """Prints counts as they grow, and what is not equal. Gives 0 if every library has the native engine's bits."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cross_bits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", type=int, default=6)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--nets", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for architecture in dict.fromkeys(a for a, _ in LANES.values()):
            if shutil.which(f"qemu-{architecture}") is None:
                sys.exit(f"there is no qemu-{architecture} here; Debian: apt install qemu-user")
            command = [
                *compiler(architecture),
                "-O1",
                "-I",
                SOURCES,
                Path(__file__).with_suffix(".c"),
                "-o",
                Path(place, architecture),
                "-ldl",
            ]
            subprocess.run([*map(str, command)], check=True)
        judged = lambda made: [one for lane in LANES for one in run(Path(place), lane, made)]  # noqa: E731
        if options.nets is not None:
            return compared(nets(options.nets or HOST), built, judged, 1)
        return compared(node_tests(options.first, options.step), built, judged, CHUNK)


if __name__ == "__main__":
    sys.exit(main())
