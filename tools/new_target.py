"""write a file with a machine of your own, and its test: `populus new-target Mesh64` makes mesh64.py and test_mesh64.py

`--kind mesh`: a mesh of cores with DRAM; `--kind ipu`: tiles of threads that compute and exchange in turns.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from populus.dialects.poplar.target import PRESETS, is_ours
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import replacing_all
from populus.tools.command import UsageError

TARGET = '''"""{stem}: a machine of your own. `populus run MODEL --load {stem}.py --target {stem}` simulates it."""

from populus.dialects.poplar.machine import IPU_TYPES, KIB, machine

MACHINE = machine(
    kind="ipu",
    name="{stem}",
    tiles=64,
    tile_bytes=256 * KIB,
    clock_hz=1e9,
    workers=4,  # threads of a tile
    exchange_bytes=4,  # that a tile receives or sends in a cycle
    exchange_setup_cycles=30,
    sync_cycles=150,
    vector_bytes=8,  # of one vector instruction
    conv_units=8,  # out-channels of a call of the matrix unit, which sums conv_inputs in-channels
    conv_inputs=8,
    conv_macs=8,  # multiply-adds of floats in a cycle
    reserved_bytes=4 * KIB,
    types=IPU_TYPES,  # element types that a tile holds
)
'''

MESH = '''"""{stem}: a machine of your own. `populus run MODEL --load {stem}.py --target {stem}` simulates it.

Cycles are of clock_hz, rates bytes a cycle of one core. docs/machine-of-your-own.md says how to find each number.
"""

from populus.dialects.poplar.machine import KIB, machine

MACHINE = machine(
    kind="mesh",
    name="{stem}",
    tiles=64,
    grid=(8, 8),  # columns and rows, whose product is tiles
    tile_bytes=1024 * KIB,
    reserved_bytes=64 * KIB,
    clock_hz=1e9,
    launch_cycles=1500,  # of an empty program
    signal_cycles=200,  # from one core to another
    unicast_bytes=30.0,  # to one core
    row_bytes=27.5,  # to all cores of a row
    column_bytes=27.5,  # to all cores of a column
    multicast_cycles=400,  # until all have it
    hop_cycles=9,
    issue_cycles=33,  # of one request
    dram_size=8 * 1024**3,  # leave out the fields of dram_ for a machine without
    dram_tile_bytes=30.0,  # read by one core
    dram_read_bytes=160.0,  # read by all cores together
    dram_write_bytes=100.0,
    dram_stream_bytes=160.0,  # read by the few that send an operand to all others
    dram_cycles=475,  # until the first bytes
    banks=8,  # of DRAM, each read by the core beside it
    bank_bytes=21.0,  # read from one bank by that core
    memory="ddr4",  # or gddr6, hbm2: decides the energy of its bytes
    matrix_macs=2048,  # multiply-adds a cycle and phase
    formats=("bf16", "bfp8", "f32"),
    phases={{"bf16": 4, "bfp8": 2, "f32": 4}},  # passes of the multipliers over a format's bits
    sub_block=8,  # blocks of output in the registers
    unpack_bytes=(48.0, 64.0),  # to the registers, of the second operand and of the first
    pack_bytes=64.0,
)
'''

TEST = '''"""Programs for {stem} are legal, fit in memory, and agree with the host's results."""

from pathlib import Path

import numpy as np

import populus
from populus.lowering.driver.legality import illegal

FILE = Path(__file__).with_name("{stem}.py")


def test_a_product_runs_on_it() -> None:
    with populus.Builder() as b:
        b.output("y", b.op("relu", b.op("matmul", b.input("x", (32, 48)), b.input("w", (48, 16)))[0])[0])
    program = populus.compile(b.module(), target="{stem}", load=[FILE], engine="strict")
    inputs = program.signature.random()
    expected = populus.compile(b.module()).run(inputs)["y"]
    assert np.allclose(program.run(inputs)["y"], expected, rtol=1e-5, atol=1e-5)
    assert not illegal(program.module("poplar"), "{stem}")
    summary = program.profile().summary
    assert summary["fits"]
    assert summary["cycles"] > 0
'''


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus new-target`."""
    parser.add_argument("name", metavar="NAME", help="its name, such as mesh64")
    parser.add_argument("--kind", choices=("ipu", "mesh"), default="ipu", help="the family of its formulas (ipu)")
    parser.add_argument("--folder", default=".", metavar="DIR", help="where to write the files (here)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    stem = args.name.lower()
    taken = stem in PRESETS and is_ours(PRESETS[stem])
    if not re.fullmatch(r"[a-z][a-z0-9_]*", stem) or taken:
        why = "there already" if taken else "not a name for a machine; expected letters and digits, such as mesh64"
        raise UsageError(f"'{args.name}' is {why}")
    folder = Path(args.folder)
    if not folder.is_dir():
        raise PopulusError(f"{folder}: no such folder")
    files = {folder / f"{stem}.py": MESH if args.kind == "mesh" else TARGET, folder / f"test_{stem}.py": TEST}
    if there := [path for path in files if path.exists()]:
        raise PopulusError(f"{there[0]}: already exists; choose another name or folder")
    with replacing_all(list(files)) as partials:
        for partial, text in zip(partials, files.values()):
            partial.write_text(text.format(stem=stem))
    print(*(printable(str(file)) for file in files), sep="\n")
    return 0
