"""Meshes beside published measurements: rows of a file in, judged lines out."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from benchmarks import mesh_models, mesh_ops, mesh_rows, mesh_traffic
from benchmarks.mesh_products import Product, planned
from populus.dialects.poplar.target import PRESETS
from populus.dialects.support.diagnostics import PopulusError

N150, P150 = PRESETS["n150"], PRESETS["p150"]
# Source: tenstorrent/tt-metal@06bd3735, tables of tech_reports/GEMM_FLOPS, replayed, hand-tuned blocks: machine, m, k, n, format, fidelity,
# grid, place of first operand and result, cycles by the profiler. The constants were fitted to rows of these tables, these among them.
PRODUCTS = (
    ("n150", 512, 1024, 2048, "BFLOAT16", "HiFi2", "8x8", "L1", 48132),
    ("n150", 8192, 8192, 8192, "BFLOAT16", "HiFi2", "8x8", "DRAM", 12620141),
    ("n150", 3328, 2560, 2560, "BFLOAT8_B", "LoFi", "8x8", "DRAM", 283862),
    ("n150", 512, 512, 512, "BFLOAT4_B", "LoFi", "8x8", "L1", 7121),
    ("p150", 640, 1664, 3328, "BFLOAT16", "HiFi2", "13x10", "L1", 48726),
    ("p150", 5120, 5632, 5632, "BFLOAT8_B", "HiFi2", "11x10", "DRAM", 1672613),
    ("p150", 1280, 3328, 3328, "BFLOAT16", "HiFi4", "13x10", "L1", 235272),
    ("p150", 640, 1408, 1408, "BFLOAT4_B", "LoFi", "11x10", "L1", 20317),
)


def row(**fields: Any) -> dict[str, str]:
    return {name: str(fields.get(name, "")) for name in mesh_rows.COLUMNS}


def product(machine: str, m: int, k: int, n: int, format: str, fidelity: str, grid: str, place: str, cycles: int) -> dict[str, str]:
    return row(
        id=f"{machine}-{m}-{k}-{n}", kind="gemm", machine=machine, op="matmul manual", m=m, k=k, n=n, format=format, fidelity=fidelity,
        grid=grid, in0=place, in1="DRAM", out=place, trace=1, device_cycles=cycles, value=cycles, unit="ns", use="fit",
    )  # fmt: skip


ROWS = [product(*p) for p in PRODUCTS]


@pytest.mark.parametrize("given", ROWS, ids=lambda r: r["id"])
def test_a_published_product_is_predicted_within_an_eighth(given: dict[str, str]):
    ratio = float(planned(given, PRESETS[given["machine"]]).until_summed) / float(given["device_cycles"])
    assert ratio == pytest.approx(1, abs=0.125)


@pytest.mark.parametrize("given", ROWS, ids=lambda r: r["id"])
def test_our_plan_is_at_least_as_good_as_both_published_ones(given: dict[str, str]):
    target = PRESETS[given["machine"]]
    found = Product.of(given, target)
    published = [found.tuned(), found.chosen(target.room)]
    assert found.own(target) <= min(float(found.cycles(plan).all) for plan in published)


def test_the_fitted_numbers_are_named_and_at_most_five():
    for target in (N150, P150):
        assert target.mesh is not None
        assert 0 < len(target.mesh.fitted) <= 5


# Source: tenstorrent/tt-low-level-documentation@e2237789, data_movement_doc, CSV tables: machine, test, shape, cycles.
FLOWS = (
    ("n150", "L1 One to One", 256, 2048, "Same axis=True", 17281),
    ("n150", "L1 One to Row", 256, 2048, "Mechanism=multicast_linked;Loopback=True", 19343),
    ("n150", "L1 One to Column", 256, 8192, "Mechanism=multicast;Loopback=True", 107056),
    ("n150", "DRAM Interleaved One from All", 256, 2048, "NoC Index=0", 17260),
    ("p150", "L1 One to One", 1, 64, "Same axis=True", 207),
    ("p150", "DRAM Interleaved One from All", 256, 8192, "NoC Index=0", 34955),
)


@pytest.mark.parametrize(("machine", "op", "transactions", "size", "more", "cycles"), FLOWS)
def test_a_flow_of_the_network_is_predicted_within_an_eighth(machine: str, op: str, transactions: int, size: int, more: str, cycles: int):
    shape = f"Number of Transactions={transactions};Transaction Size (bytes)={size};{more}"
    found = mesh_traffic.predicted(row(op=f"Noc Estimator - {op}", shape=shape, unit="cycles"), PRESETS[machine])
    assert found is not None
    assert found / cycles == pytest.approx(1, abs=0.125)


# Source: tenstorrent/tt-perf-report@00b7324a, tests/data, kernel time of BinaryNg: machine, cores, operands, result, nanoseconds. With one
# operand the other is a number.
SHARDED, DRAM, L1 = ("BFLOAT16 TILE " + place for place in ("L1_HEIGHT_SHARDED", "DRAM_INTERLEAVED", "L1_INTERLEAVED"))
BINARY = (
    ("n150", 64, (f"1x1x32x1280 {DRAM}",) * 2, f"1x1x32x1280 {DRAM}", 2803),
    ("n150", 64, (f"1x1x32x5120 {DRAM}",), f"1x1x32x5120 {DRAM}", 6655),
    ("p150", 20, (f"1x1x30720x64 {SHARDED}",) * 2, f"1x1x30720x64 {SHARDED}", 5312),
    ("p150", 20, (f"1x159x160x32 {DRAM}",), f"1x159x160x32 {DRAM}", 20039),
    ("p150", 20, (f"1x1x160x160 {L1}",), f"1x1x160x160 {L1}", 2156),
    ("p150", 20, (f"1x384x1280x32 {DRAM}", f"1x1x32x32 {DRAM}"), f"1x384x1280x32 {DRAM}", 1249070),
)


@pytest.mark.parametrize(("machine", "cores", "operands", "result", "measured"), BINARY)
def test_a_core_fills_a_scalar_s_block_once_and_a_row_s_for_each_result(
    machine: str, cores: int, operands: tuple[str, ...], result: str, measured: float
):
    shape = f"{' ; '.join(operands)} ; -> {result}"
    found = mesh_ops.predicted(row(op="net: BinaryNg", grid=f"{cores} cores", shape=shape, fidelity="HiFi4"), PRESETS[machine])
    assert found is not None
    assert found / measured == pytest.approx(1, abs=0.2)


def test_rows_that_no_number_is_about_are_counted_and_not_predicted(tmp_path: Path):
    file = written(tmp_path, [*ROWS, row(kind="noc", machine="n150", op="PCIe Read Bandwidth Sweep", unit="cycles", value=1, use="judge")])
    lines = {(line.name, line.use): line for line in mesh_rows.judged(mesh_rows.read(file), N150)}
    network = lines["network", "judge"]
    assert (network.rows, len(network.ratios)) == (1, 0) and "0 of 1 | -" in str(network)
    own = lines["products, the row's own plan, cycles", "fit"]
    assert (own.rows, len(own.ratios), own.far) == (4, 4, 0)
    assert own.error == pytest.approx(sum(abs(r - 1) for r in own.ratios) / 4)


def test_the_report_names_the_lines_and_the_fitted_numbers(tmp_path: Path):
    text = mesh_rows.report(written(tmp_path, ROWS), "p150")
    assert "| products, the row's own plan, cycles | fit | 4 of 4 |" in text
    assert "phase_cycles = 11.2" in text and "reads_while_sending = True" in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "BFLOAT9"}, "KeyError 'BFLOAT9'"),
        ({"m": "many"}, "ValueError"),
        ({"grid": "8"}, "IndexError"),
        ({"device_cycles": ""}, "ValueError"),
        ({"grid": "0x8"}, "ZeroDivisionError"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_the_others_are_predicted(tmp_path: Path, change: dict[str, str], why: str):
    file = written(tmp_path, [*ROWS, {**ROWS[0], "id": "odd", **change}])
    own = next(line for line in mesh_rows.judged(mesh_rows.read(file), N150) if line.name == "products, the row's own plan, cycles")
    assert (own.rows, len(own.ratios)) == (5, 4)
    assert f"not read: row odd (gemm, matmul manual): {why}" in mesh_rows.report(file, "n150")


def test_a_file_that_is_none_is_one_line(tmp_path: Path):
    with pytest.raises(PopulusError, match="missing.csv: .*No such file"):
        mesh_rows.read(tmp_path / "missing.csv")
    (tmp_path / "short.csv").write_text("id,kind,machin\n1,gemm,n150\n")
    with pytest.raises(PopulusError, match="short.csv: no column 'machine'; did you mean 'machin'"):
        mesh_rows.read(tmp_path / "short.csv")
    with pytest.raises(PopulusError, match="no row is of n150: expected machine n150 or wormhole, 64 cores"):
        mesh_rows.judged([ROWS[-1]], N150)
    with pytest.raises(PopulusError, match="gc200 is of kind ipu; rows of a file judge a mesh"):
        mesh_rows.report(written(tmp_path, ROWS), "gc200")


def written(folder: Path, rows: list[dict[str, str]]) -> Path:
    file = folder / "rows.csv"
    with file.open("w", newline="") as text:
        writer = csv.DictWriter(text, mesh_rows.COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return file


OURS = Path(__file__).parents[2] / "benchmarks/mesh_rows.csv"


@pytest.mark.parametrize(("target", "most"), [(N150, 0.03), (P150, 0.025)], ids=lambda t: getattr(t, "name", ""))
def test_products_with_their_own_plan_are_as_near_as_the_page_says(target: Any, most: float):
    lines = {line.name: line for line in mesh_rows.judged(mesh_rows.read(OURS), target)}
    own = lines["products, the row's own plan, cycles"]
    assert own.error <= most and own.far == 0 and len(own.ratios) == own.rows >= 20
    assert lines["the same, without anomalies"].error <= 0.065
    better = lines["our plan over the better published one, by the model"]
    assert max(better.ratios) <= 1 and better.mean <= 0.96
    page = (Path(__file__).parents[2] / "docs/mesh-measured.md").read_text()
    assert all(str(line) in page for line in lines.values())
    assert mesh_rows.moved(mesh_rows.read(OURS), target) in page


def test_without_a_field_that_matters_the_errors_grow():
    text = mesh_rows.moved(mesh_rows.read(OURS), N150)
    errors = {line.split("|")[1].strip(): float(line.split("|")[2].split()[0]) for line in text.splitlines()[2:]}
    for name in ("sub_block", "buffers", "phase_cycles", "unpack_bytes", "dram_cycles", "column_bytes"):
        assert errors[f"`{name}`"] > 2 * errors["nothing"], name


# Published totals of networks: tt-metal's tables of models and its tests of device time, as the page states them.
NETWORKS = (
    ("n150", "Llama 3.1 8B", "batch 32", "tokens/s/user, decode", 26.0),
    ("n150", "Llama-3.1-8B", "batch 1, accuracy", "tokens/s/user, decode", 25.2),
    ("n150", "BERT-large (384)", "batch 8", "items/s, device kernels only", 371),
    ("n150", "ResNet-50", "batch 16", "items/s, device kernels only", 6335),
    ("p150", "Llama 3.1 8B", "batch 32", "tokens/s/user, decode", 33.1),
    ("p150", "ResNet-50", "batch 32", "items/s, device kernels only", 14689),
)


@pytest.mark.parametrize(("machine", "op", "shape", "metric", "value"), NETWORKS)
def test_totals_of_networks_are_within_a_quarter_of_the_published(
    machine: str, op: str, shape: str, metric: str, value: float, tmp_path: Path
):
    given = row(kind="model", machine=machine, op=op, shape=shape, metric=metric, value=value, unit="1/s", use="judge")
    text = mesh_rows.report(written(tmp_path, [given]), machine)
    name = "networks, decoding" if "decode" in metric else "networks, kernels alone"
    assert f"| {name} | judge | 1 of 1 |" in text and f"| {op}, {shape} | {metric} |" in text
    ratio = float(text.split(f"| {op}, {shape} |")[1].split("|")[3])
    assert 0.75 <= ratio <= 1.25


def test_a_network_without_a_known_plan_is_not_predicted():
    given = row(
        kind="model", machine="n150", op="Whisper", shape="batch 1", metric="tokens/s/user, decode", value=105, unit="1/s", use="judge"
    )
    assert mesh_models.predicted(given, N150) is None


def test_a_decoder_s_token_waits_for_its_weights_in_proportion():
    net = mesh_models.DECODERS["Llama 3.1 8B"]
    on = mesh_models.Machine(N150)
    few, many = (sum(mesh_models.decoder(on, net, 1, bytes, mesh_models.BFP8)) for bytes in (mesh_models.BFP8, mesh_models.BF16))
    blocks = 3 * net.layers * net.hidden * net.inner / 1024
    assert many - few == pytest.approx(blocks * (mesh_models.BF16 / 267 - on.request), rel=0.01)


def test_places_are_correlated_and_equal_numbers_share_theirs():
    assert mesh_rows.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert mesh_rows.spearman([4, 3, 2, 1], [10, 20, 30, 40]) == pytest.approx(-1)
    assert mesh_rows.spearman([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.9487, abs=1e-4)  # by hand: 4.5 / sqrt(4.5 * 5)


@pytest.mark.parametrize("target", [N150, P150], ids=lambda t: t.name)
def test_products_are_predicted_in_the_order_of_their_measurements(target: Any):
    lines = [line for line in mesh_rows.judged(mesh_rows.read(OURS), target) if line.name != mesh_rows.OWN]
    assert lines and all(line.rank >= 0.95 for line in lines)
