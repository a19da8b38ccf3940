"""Points of `populus explore` beside those of ZigZag, on one core with an array of multiply-adds.

    python -m venv peers && peers/bin/pip install zigzag-dse==3.9.1 six
    python -m benchmarks.explored_peers --zigzag peers/bin/python

The core is ZigZag's own `tpu_like`: 32 x 32 multiply-adds, and DRAM of 8 elements a cycle; the elements of its memory vary. ZigZag's
elements are bytes and ours floats, so our memory and rates have four times the bytes. Each tool runs in one process.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, shape_inference

import populus
from benchmarks.models import MODELS, transformer
from populus.exploration.front import front_of

ELEMENTS = (1 << 20, 1 << 21, 1 << 22, 1 << 23)  # of the memory on the chip
MACHINE = """
from populus.dialects.poplar.machine import machine

MACHINE = machine(
    kind="mesh", name="array", tiles=1, grid=(1, 1), tile_bytes=8 << 20, clock_hz=1e9, launch_cycles=0, signal_cycles=1,
    unicast_bytes=128.0, row_bytes=128.0, column_bytes=128.0, multicast_cycles=1, issue_cycles=0, dram_size=8 << 30, dram_tile_bytes=32.0,
    dram_read_bytes=32.0, dram_write_bytes=32.0, dram_stream_bytes=32.0, dram_cycles=1, matrix_macs=1024, formats=("f32",),
    phases={"f32": 1}, sub_block=16, unpack_bytes=(1024.0, 1024.0), pack_bytes=1024.0,
)
"""
# Runs in ZigZag's interpreter: a model, seconds of the CPU that it may take, bits of memory; prints a line for each point.
ZIGZAG = """
import json, logging, os, resource, sys, time
import yaml, zigzag
from zigzag.api import get_hardware_performance_zigzag as weigh

logging.disable(logging.CRITICAL)
model, folder, limit, *sizes = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
inputs = os.path.join(os.path.dirname(zigzag.__file__), "inputs")
for size in map(int, sizes):
    with open(inputs + "/hardware/tpu_like.yaml") as text:
        core = yaml.safe_load(text)
    core["memories"]["sram_2MB"]["size"] = size
    with open(folder + "/core.yaml", "w") as text:
        yaml.safe_dump(core, text, sort_keys=False)
    begun = time.process_time()
    try:
        _, cycles, _ = weigh(model, folder + "/core.yaml", inputs + "/mapping/tpu_like.yaml", opt="latency", dump_folder=folder + "/dump",
                             loma_show_progress_bar=False)
    except Exception as error:
        cycles = None
        print(type(error).__name__, error, file=sys.stderr)
    print("POINT", json.dumps({"cycles": cycles, "seconds": time.process_time() - begun}), flush=True)
"""


@dataclass(frozen=True)
class Found:
    """The points of one tool for one model, by the elements of memory: cycles, None for one that cannot be, and CPU seconds a point."""

    cycles: Sequence[float | None]
    seconds: float

    @property
    def front(self) -> int:
        """Counts the points that none beats in cycles and memory."""
        return len(front_of([(c, float(n)) for c, n in zip(self.cycles, ELEMENTS) if c is not None]))


def models(folder: Path) -> Mapping[str, Path]:
    """Writes a product of 1,024 x 1,024 matrices, a layer of BERT-base for 128 tokens, and ResNet-50, with the shapes of all values."""
    square = [1024, 1024]
    weights = numpy_helper.from_array(np.zeros(square, np.float32), "w")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, square) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "product", info[:1], info[1:], [weights])
    product = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    made = {"product": product, "BERT layer": transformer(), "ResNet-50": MODELS["resnet50"]()}
    found: dict[str, Path] = {}
    for name, model in made.items():
        found[name] = folder / f"{name.replace(' ', '_')}.onnx"
        found[name].write_bytes(shape_inference.infer_shapes(model).SerializeToString())
    return found


def of_zigzag(python: str, model: Path, folder: Path, limit: int) -> Found:
    """Weighs the points by ZigZag, as many as it ends within `limit` seconds of the CPU. Ends the program if it does not run."""
    sizes = [str(8 * n) for n in ELEMENTS]
    command = [python, "-c", ZIGZAG, str(model), str(folder), str(limit), *sizes]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode > 0:
        sys.exit(f"benchmarks.explored_peers: {python}: {ran.stderr.strip().splitlines()[-1]}")
    points: list[dict[str, Any]] = [json.loads(line[6:]) for line in ran.stdout.splitlines() if line.startswith("POINT ")]
    seconds = sum(p["seconds"] for p in points) / len(points) if points else math.inf
    return Found([p["cycles"] for p in points], seconds)


def of_populus(model: Path, folder: Path) -> Found:
    """Weighs the points by `populus explore`, in one process."""
    (folder / "array.py").write_text(MACHINE)
    begun = process_time()
    vary = {"tile_bytes": [4 * n for n in ELEMENTS]}
    found = populus.explore(str(model), machine="array", load=[folder / "array.py"], vary=vary, processes=1)
    seconds = (process_time() - begun) / len(ELEMENTS)
    return Found([p["measures"]["cycles"] if "measures" in p else None for p in found.points], seconds)


def table(zigzag: Mapping[str, Found], ours: Mapping[str, Found]) -> str:
    """Formats a line for each model."""
    lines = [
        "| model | tool | CPU seconds a point | on the front | cycles by elements of memory: "
        + ", ".join(f"{n >> 20} Mi" for n in ELEMENTS)
        + " |",
        "|---|---|---|---|---|",
    ]
    for model in ours:
        for tool, found in (("ZigZag", zigzag[model]), ("Populus", ours[model])):
            cycles = ", ".join("-" if c is None else f"{c:,.0f}" for c in found.cycles)
            seconds = "over the limit" if math.isinf(found.seconds) else f"{found.seconds:.1f}"
            lines.append(f"| {model} | {tool} | {seconds} | {found.front} of {len(found.cycles)} | {cycles} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.explored_peers")
    parser.add_argument("--zigzag", metavar="PYTHON", required=True, help="an interpreter that has zigzag-dse")
    parser.add_argument("--limit", type=int, default=3600, metavar="S", help="seconds of the CPU for ZigZag's points of one model (3600)")
    args = parser.parse_args()
    with TemporaryDirectory() as text:
        folder = Path(text)
        made = models(folder)
        theirs = {name: of_zigzag(args.zigzag, model, folder, args.limit) for name, model in made.items()}
        print(table(theirs, {name: of_populus(model, folder) for name, model in made.items()}))


if __name__ == "__main__":
    main()
