"""Meshes of cores: a machine from its file, its formulas against their definition, and predictions that move as its numbers do."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import bf16, f32

import populus
from benchmarks.models import LIGHT, randomised, transformer
from populus.dialects.expr import Arg, Call
from populus.dialects.poplar import GraphOp
from populus.dialects.poplar.machine import FORMATS, Mesh, machine
from populus.dialects.poplar.target import PRESETS, Spec
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver import extensions
from populus.lowering.driver.files import parse_text
from populus.runtime.cycles import FAMILIES, Products, contraction, map_cycles
from populus.runtime.cycles.family import Family
from populus.runtime.cycles.mesh.steps import hidden, outside, transfer
from populus.runtime.profile import profile

N150, P150 = PRESETS["n150"], PRESETS["p150"]
EDGE: dict[str, Any] = {
    "name": "edge", "tiles": 16, "grid": (4, 4), "tile_bytes": 256 * 1024, "clock_hz": 1e9, "launch_cycles": 1000, "signal_cycles": 100,
    "unicast_bytes": 16.5, "row_bytes": 16.0, "column_bytes": 16.0, "multicast_cycles": 200, "issue_cycles": 20, "matrix_macs": 512,
    "formats": ("bf16", "f32"), "phases": {"bf16": 1, "f32": 2}, "unpack_bytes": (32.0, 32.0), "pack_bytes": 32.0,
}  # fmt: skip
DRAM = {
    "dram_size": 2**30, "dram_tile_bytes": 10.0, "dram_read_bytes": 40.0, "dram_write_bytes": 30.0, "dram_stream_bytes": 40.0,
    "dram_cycles": 300,
}  # fmt: skip


def test_both_families_answer_the_same_questions():
    names = [name for name, f in vars(Family).items() if inspect.isfunction(f) and not name.startswith("_")]
    assert set(names) > {"contraction", "map_cycles", "reduce_cycles", "local_copy", "launch"}
    for name, of in itertools.product(names, FAMILIES.values()):
        asked = [p for p in inspect.signature(getattr(Family, name)).parameters if p != "self"]
        assert list(inspect.signature(getattr(of, name)).parameters) == asked, (name, of)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": (4, 5)}, r"machine 'edge': grid = \(4, 5\) has 20 cores and not tiles = 16"),
        ({"gird": (4, 4)}, "machine 'edge' has no field 'gird'; did you mean 'grid'"),
        ({"workers": 6}, "machine 'edge' has no field 'workers'"),
        ({"row_bytes": None}, "machine 'edge': no row_bytes; a machine of kind mesh states each"),
        ({"row_bytes": -1.0}, "machine 'edge': row_bytes = -1.0; expected more than 0"),
        ({"row_bytes": "many"}, "machine 'edge': row_bytes = many; expected a number"),
        ({"row_bytes": float("nan")}, "machine 'edge': row_bytes = nan; expected a number"),
        ({"matrix_macs": 2.5}, "machine 'edge': matrix_macs = 2.5; expected a whole number"),
        ({"grid": 16}, "machine 'edge': grid = 16; expected two numbers"),
        ({"grid": (16.0, 1.0)}, r"machine 'edge': grid = \(16.0, 1.0\); expected a whole number"),
        ({"buffers": 3}, "machine 'edge': buffers = 3; expected 1 or 2"),
        ({"buffers": 0}, "machine 'edge': buffers = 0; expected more than 0"),
        ({"formats": ("bf16", "bfp9")}, "machine 'edge': no format 'bfp9'; did you mean 'bfp8'"),
        ({"formats": ("bf16",)}, "machine 'edge': f32 is in one of formats and phases"),
        ({"phases": {"bf16": 5, "f32": 2}}, "machine 'edge': phases of bf16 = 5; expected 1 to 4"),
        ({"dram_size": 2**30}, "machine 'edge': dram_size without dram_tile_bytes; expected all of dram_size"),
        ({**DRAM, "dram_tile_bytes": 50.0}, "machine 'edge': dram_tile_bytes = 50.0 of one core is more than dram_read_bytes = 40.0"),
        ({**DRAM, "memory": "gddr5"}, "machine 'edge': memory = 'gddr5'; did you mean 'gddr6'\\?; expected ddr4, gddr6, hbm2"),
        ({**DRAM, "banks": 4}, "machine 'edge': banks = 4 with bank_bytes = 0.0; expected both on a machine with DRAM, or neither"),
        ({"memory": "gddr6"}, "machine 'edge': memory = 'gddr6' without dram_size; a machine without DRAM has no kind of it"),
        ({"fitted": ("pack_byte",)}, "machine 'edge': fitted names no field 'pack_byte'; did you mean 'pack_bytes'"),
        ({"reserved_bytes": 2**20}, "machine 'edge': reserved_bytes = 1048576 is not less than the tile's memory"),
        ({"tiles": 16.0}, "machine 'edge': tiles = 16.0; expected a whole number"),
        ({"clock_hz": 0.0}, "machine 'edge': clock_hz = 0.0; expected cycles per second"),
    ],
)
def test_a_field_that_no_mesh_has_is_refused_in_one_line(change: dict[str, Any], message: str):
    fields = {name: value for name, value in {**EDGE, **change}.items() if value is not None}
    with pytest.raises(PopulusError, match=message) as raised:
        machine("mesh", **fields)
    assert "\n" not in str(raised.value)


def test_a_kind_that_is_none_and_an_ipu_with_a_field_of_a_mesh_are_refused():
    with pytest.raises(PopulusError, match="machine 'edge': kind = 'mash'; expected ipu or mesh; did you mean 'mesh'"):
        machine("mash", **EDGE)
    with pytest.raises(PopulusError, match="machine 'x' has no field 'grid'"):
        machine("ipu", name="x", tiles=4, tile_bytes=1024, clock_hz=1e9, grid=(2, 2))
    with pytest.raises(PopulusError, match="machine 'x': no tile_bytes"):
        machine("ipu", name="x", tiles=4, clock_hz=1e9)
    with pytest.raises(PopulusError, match="machine 'x': workers = 0; expected at least 1"):
        machine("ipu", name="x", tiles=4, tile_bytes=1024, clock_hz=1e9, workers=0)


def test_a_mesh_is_overridden_by_its_columns_and_rows():
    small = Spec.of("n150, columns=4, rows=2, dram_size=1073741824").target()
    assert small.mesh is not None and N150.mesh is not None
    assert (small.tiles, small.mesh.grid, small.mesh.dram_size) == (8, (4, 2), 2**30)
    assert small.mesh.unicast_bytes == N150.mesh.unicast_bytes
    with pytest.raises(PopulusError, match="tiles = 16, and its grid has 8 columns and 8 rows; give columns=N and rows=N"):
        Spec.of("n150", tiles=16)
    with pytest.raises(PopulusError, match="target 'n150' has no field 'colums' to override; did you mean 'columns'"):
        Spec.of("n150, colums=4")


@pytest.mark.parametrize("target", [N150, P150], ids=lambda t: t.name)
@pytest.mark.parametrize("size", [32, 256, 1024])
def test_a_product_in_memory_takes_the_best_sub_block_of_the_definition(target: Any, size: int):
    """Cycles of [size, size] x [size, size] in bf16, from the definition with loops over sub-blocks that divide the output."""
    m: Mesh = target.mesh
    blocks, bytes, phases = size // 32, 2048, 4
    best = min(
        (blocks // h) * (blocks // w) * max(h * w * 16 * phases + m.phase_cycles * phases, unpacked(m, h, w, bytes))
        for h in range(1, 9) for w in range(1, 9)
        if h * w <= 8 and blocks % h == 0 and blocks % w == 0
    )  # fmt: skip
    found = float(contraction(Products(1, size, 1, size, size, 1, bf16, target)))
    assert found <= np.ceil(blocks * best + blocks**2 * bytes / m.pack_bytes)
    assert found >= blocks**3 * 16 * phases


def unpacked(m: Mesh, h: int, w: int, bytes: int) -> float:
    second, first = (h * w, h) if w >= h else (w, h * w)
    return second * bytes / m.unpack_bytes[0] + first * bytes / m.unpack_bytes[1]


def test_arrays_of_sizes_give_what_each_size_gives():
    rows, columns = np.array([32, 100, 300]), np.array([64, 33, 512])
    together = contraction(Products(1, rows, 1, columns, 256, 1, bf16, N150))
    assert together.tolist() == [float(contraction(Products(1, int(r), 1, int(c), 256, 1, bf16, N150))) for r, c in zip(rows, columns)]


def test_sums_of_four_bytes_halve_the_sub_block():
    assert contraction(Products(1, 256, 1, 256, 256, 1, f32, N150)) > contraction(Products(1, 256, 1, 256, 256, 1, bf16, N150))


def test_what_is_hidden_is_at_most_all_but_one_block():
    """Against the sum over the steps of a loop: the first block moves, then each moves under the one before, and the last computes."""
    assert N150.mesh is not None
    late = N150.mesh.multicast_cycles + N150.mesh.signal_cycles
    for compute, exchange, blocks in itertools.product((0, 5_000, 100_000), (1, 5_000, 80_000), (1, 2, 16, 40)):
        totals = [compute + exchange]
        for n in (2, 4, 8, 16, 32, 64):
            if n <= blocks:
                moved, computed = (exchange + (n - 1) * late) / n, compute / n
                totals.append(moved + sum(max(moved, computed) for _ in range(n - 1)) + computed)
        found = compute + exchange - int(hidden(compute, exchange, blocks, N150))
        assert found == pytest.approx(min(totals), abs=1)
    alone = Spec.of("n150, buffers=1").target()
    assert int(hidden(100_000, 80_000, 16, alone)) == 0


def test_a_map_is_bound_by_the_unit_that_takes_longest():
    add, erf = Call("add", (Arg(1), Arg(2))), Call("erf", (Arg(1),))
    one = map_cycles(1024, add, [bf16, bf16], [False, False], bf16, P150, False)
    assert one == np.ceil(2 * 2048 / 80 + 15)  # unpacked at 80 bytes a cycle
    assert map_cycles(1024, erf, [bf16], [False], bf16, P150, False) == 32 * 102 + 15
    assert map_cycles(1025, add, [bf16, bf16], [False, False], bf16, P150, False) == np.ceil(2 * (2 * 2048 / 80 + 15))


def test_a_transfer_has_latency_and_the_slower_of_rate_and_requests():
    assert transfer(0, N150) == 0
    assert transfer(2048 * 100, N150) == np.ceil(205 + 2048 * 100 / 30.2)
    assert transfer(2048 * 100, N150, many=True) == np.ceil(400 + 2048 * 100 / 27.4)


OWN = """
from populus.dialects.poplar.machine import KIB, machine

SHARED = dict(
    clock_hz=1e9, launch_cycles=1000, signal_cycles=100, unicast_bytes=16.5, row_bytes=16, column_bytes=16, multicast_cycles=200,
    issue_cycles=20, matrix_macs=512, formats=("bf16", "f32"), phases={"bf16": 1, "f32": 2}, unpack_bytes=(32, 32), pack_bytes=32,
)
EDGE = machine(
    kind="mesh", name="edge4", tiles=16, grid=(4, 4), tile_bytes=256 * KIB, dram_size=2**30, dram_tile_bytes=10, dram_read_bytes=40,
    dram_write_bytes=30, dram_stream_bytes=40, dram_cycles=300, **SHARED,
)
RING = machine(kind="mesh", name="ring12", tiles=12, grid=(12, 1), tile_bytes=1536 * KIB, **SHARED)
"""


@pytest.fixture
def own(tmp_path: Path):
    """Two machines and a copy of n150 with twice the DRAM, from one file each."""
    source = Path(inspect.getfile(extensions)).parents[2] / "dialects/poplar/machines/n150.py"
    text = source.read_text().replace('name="n150"', 'name="twice"').replace("12 * 1024**3", "24 * 1024**3")
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "twice.py").write_text(text.replace("dram_tile_bytes=30.3", "dram_tile_bytes=60.6").replace("=167.0", "=334.0"))
    with extensions.restored():
        for name in ("own.py", "twice.py"):
            extensions.load(tmp_path / name)
        yield


def test_three_machines_of_ones_own_are_files_and_no_code(own: None):
    model = transformer(hidden=64, heads=2, feed_forward=128)
    inputs = populus.compile(model).signature.random()
    expected = populus.compile(model, engine="numpy").run(inputs)
    for name in ("edge4", "ring12", "n150"):
        program = populus.compile(model, target=name, engine="strict")
        found, summary = program.run(inputs), program.profile().summary
        assert all(np.allclose(found[k], expected[k], rtol=1e-4, atol=1e-5) for k in expected), name
        assert summary["fits"] and summary["cycles"] == (
            summary["compute_cycles"] + summary["exchange_cycles"] + summary["sync_cycles"] - summary["hidden_cycles"]
        )
    assert PRESETS["ring12"].mesh is not None and PRESETS["ring12"].mesh.dram_size == 0
    assert PRESETS["twice"].mesh is not None and PRESETS["twice"].mesh.dram_size == 24 * 2**30
    wide = transformer(hidden=256, heads=4, feed_forward=1024)
    few, many = (populus.compile(wide, target=name).profile().summary["compute_cycles"] for name in ("ring12", "n150"))
    assert few > 3 * many  # 12 cores of 512 multiply-adds, and 64 of 2,048 in twice the phases


def test_every_field_of_a_mesh_is_on_the_page_of_ones_own():
    page = (Path(__file__).parents[3] / "docs/machine-of-your-own.md").read_text()
    assert [name for name in (*inspect.signature(Mesh).parameters, "formats") if f"`{name}`" not in page] == []
    assert set(dict(N150.mesh.phases)) <= set(FORMATS) if N150.mesh else False


STREAM = """poplar.graph @main target <TARGET> {
  %o = poplar.var "o" outside : !poplar.tensor<1048576xf32>
  %a = poplar.var "a" on [1048576 in 64] order [0] : !poplar.tensor<1048576xf32>
  poplar.copy %o to %a : !poplar.tensor<1048576xf32>
}
"""


def test_bytes_from_dram_take_the_faster_of_all_cores_and_those_beside_the_banks_and_are_a_bound():
    beside = 475 + 205
    for name, rate, late in (
        ("n150", 12 * 21.9, beside),
        ("n150, banks=0, bank_bytes=0", 167.0, 475),
        ("n150, dram_read_bytes=300", 300.0, 475),
        ("n150, unicast_bytes=20", 12 * 20.0, beside),  # what the readers send on
    ):
        module = parse_text(context(), STREAM.replace("TARGET", name), "test.mlir")
        graph = module.body.block.first_op
        assert isinstance(graph, GraphOp)
        found = profile(graph)
        (step,) = found.steps
        assert step.exchange == np.ceil(late + 4 * 2**20 / rate)
        assert found.summary["at_outside_bound_cycles"] == round(4 * 2**20 / np.ceil(rate))
        assert step.host_bytes == 4 * 2**20


def test_a_load_is_read_by_at_most_as_many_cores_as_there_are_and_packets():
    assert N150.mesh is not None
    few = Spec.of("n150, columns=4, rows=2").target()
    assert outside(2**20, few) == np.ceil(475 + min(2**20 / 167, 205 + 2**20 / (8 * 21.9)))
    assert outside(3 * 2048, replace(N150, mesh=replace(N150.mesh, dram_read_bytes=1.0))) == np.ceil(475 + 205 + 2048 / 21.9)


@pytest.mark.parametrize(("copied", "is_read"), [("%a to %o", False), ("%o to %p", True)])
def test_bytes_to_dram_take_the_rate_of_writes(copied: str, is_read: bool):
    """From DRAM to DRAM they are read and written."""
    declared = '%p = poplar.var "p" outside : !poplar.tensor<1048576xf32>\n  poplar.copy ' + copied
    text = STREAM.replace("TARGET", "n150").replace("poplar.copy %o to %a", declared)
    graph = parse_text(context(), text, "test.mlir").body.block.first_op
    assert isinstance(graph, GraphOp)
    (step,) = profile(graph).steps
    written, read = np.ceil(475 + 4 * 2**20 / 104), np.ceil(475 + 205 + 4 * 2**20 / (12 * 21.9))
    assert step.exchange == written + is_read * read


def test_a_product_that_hides_its_exchange_says_so_in_the_profile_and_its_file(tmp_path: Path):
    with populus.Builder() as b:
        b.output("y", b.op("matmul", b.input("x", (1024, 2048)), b.input("w", (2048, 1024)))[0])
    found = populus.compile(b.module(), target="n150").profile()
    step = max(found.steps, key=lambda s: s.hidden)
    assert 0 < step.hidden < min(step.compute, step.exchange)
    assert step.cycles == step.compute + step.exchange + step.sync - step.hidden
    assert found.summary["hidden_cycles"] == sum(s.hidden * s.count for s in found.steps)
    alone = populus.compile(b.module(), target="n150, buffers=1").profile().summary
    assert alone["hidden_cycles"] == 0 and alone["cycles"] > found.summary["cycles"]


def wide_product(transposed: bool = False) -> object:
    """[4, 512] x [512, 4096] in f32: weights of 8 MiB, twice the memory of a 4 x 4 mesh with 256 KiB."""
    with populus.Builder() as b:
        x, w = b.input("x", (4, 512)), np.arange(512 * 4096, dtype=np.float32).reshape(512, 4096) % 61 / 64
        weights = b.op("transpose", b.constant(np.ascontiguousarray(w.T)), permutation=[1, 0])[0] if transposed else b.constant(w)
        b.output("y", b.op("relu", b.op("matmul", x, weights)[0])[0])
    return b.module()


@pytest.mark.parametrize("transposed", [False, True])
def test_weights_of_twice_the_memory_stream_from_dram_in_pieces(own: None, transposed: bool):
    """Once one step read two pieces, and a piece behind a transposition was loaded with the whole."""
    module = wide_product(transposed)
    inputs = populus.compile(module).signature.random()
    expected = populus.compile(module, engine="numpy").run(inputs)["y"]
    for engine in ("strict", "numpy", "native"):
        program = populus.compile(module, target="edge4", engine=engine)
        assert np.allclose(program.run(inputs)["y"], expected, rtol=1e-5, atol=1e-5), engine
    summary = program.profile().summary
    assert summary["fits"] and summary["host_bytes"] > 512 * 4096 * 4 - 16 * 256 * 1024  # at least what the cores do not hold
    loads = [s for s in program.profile().steps if s.kind == "copy" and s.host_bytes]
    assert len(loads) > 2 and max(s.host_bytes for s in loads) <= 16 * 256 * 1024 / 2


def test_a_model_beyond_dram_or_without_any_is_refused_in_one_line(own: None):
    message = r"keeps \d+ KiB in DRAM, \d+ KiB more than the 4096 KiB of edge4; largest: .* use a target with more DRAM"
    with pytest.raises(PopulusError, match=message) as raised:
        populus.compile(wide_product(), target="edge4, dram_size=4194304")
    assert "\n" not in str(raised.value)
    with pytest.raises(PopulusError, match="the model needs .* KiB on tile .* of ring12"):
        populus.compile(wide_product(), target="ring12, tile_bytes=262144")


@pytest.mark.parametrize("engine", ["strict", "numpy", "native"])
def test_bf16_is_rounded_to_nearest_even_at_each_store(engine: str):
    """Against ml_dtypes, bit for bit: a sum and a product of elements, of which each is stored."""
    x, y = (np.random.default_rng(seed).standard_normal((64, 96)).astype(ml_dtypes.bfloat16) for seed in (1, 2))
    with populus.Builder() as b:
        a, c = b.input("a", x.shape, ml_dtypes.bfloat16), b.input("c", y.shape, ml_dtypes.bfloat16)
        b.output("sum", b.op("add", a, c)[0])
        b.output("product", b.op("mul", a, c)[0])
    found = populus.compile(b.module(), target="n150", engine=engine).run({"a": x, "c": y})
    for name, exact in (("sum", x.astype(np.float64) + y.astype(np.float64)), ("product", x.astype(np.float64) * y.astype(np.float64))):
        assert found[name].dtype == ml_dtypes.bfloat16
        assert found[name].tobytes() == exact.astype(np.float32).astype(ml_dtypes.bfloat16).tobytes()


@pytest.mark.parametrize("name", ["squeezenet", "bvlc_alexnet"])
def test_a_net_runs_on_a_mesh_with_the_results_of_the_host(name: str):
    """Alexnet's weights of 151 MB stream: all tiles have 89 MB."""
    model = randomised(LIGHT / f"light_{name}.onnx")
    host = populus.compile(model, engine="native")
    inputs = host.signature.random()
    expected = host.run(inputs)
    for more in ({"engine": "native"}, {"engine": "strict", "sample": 1}):
        program = populus.compile(model, target="n150", narrow=True, **more)
        found = program.run(inputs)
        for key, wanted in expected.items():
            assert np.abs(found[key] - wanted).max() <= 1e-5 * np.abs(wanted).max(), more
    assert program.profile().summary["fits"]
