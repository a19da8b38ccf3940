"""A mesh beside published measurements: `python -m benchmarks.calibration --machine n150 --rows FILE.csv`.

FILE.csv has a row for each measurement: its kind (gemm, noc, dram, conv, eltwise, op), machine, op, sizes, format, places, value, and
`use`, which says whether constants may be fitted to it. Each line has the mean distance of predicted / measured from 1, apart by `use`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import mesh_models, mesh_ops, mesh_traffic
from benchmarks.mesh_products import Product, nanoseconds, planned
from populus.dialects.poplar.target import Target, make_target
from populus.dialects.support.diagnostics import PopulusError, did_you_mean

Row = Mapping[str, str]
COLUMNS = ("id", "kind", "machine", "op", "m", "k", "n", "shape", "format", "fidelity", "grid", "in0", "in1", "out", "trace", "metric",
           "value", "unit", "device_cycles", "use", "note")  # fmt: skip
# Rows of these machines are judged by the numbers of ours: chips of the same kind, some with fewer cores.
OURS = {
    "n150": ("n150", "wormhole, 64 cores"),
    "p150": ("p150", "p100", "p100/p150 (110 cores)", "blackhole", "blackhole, 64 cores"),
}
OWN = "our plan over the better published one, by the model"
NEAR = 0.25  # a product is predicted within it


@dataclass(frozen=True)
class Line:
    """The rows of one kind: predicted / measured of each that has a prediction."""

    name: str
    use: str
    ratios: Sequence[float]
    rows: int
    unread: Sequence[str] = ()  # rows whose numbers no formula could read, and why
    measured: Sequence[float] = ()  # of each ratio

    @property
    def error(self) -> float:
        """The mean distance of the ratios from 1."""
        return sum(abs(r - 1) for r in self.ratios) / len(self.ratios)

    @property
    def rank(self) -> float:
        """Spearman's coefficient of what is predicted and what was measured."""
        return spearman([ratio * value for ratio, value in zip(self.ratios, self.measured, strict=True)], self.measured)

    @property
    def mean(self) -> float:
        return sum(self.ratios) / len(self.ratios)

    @property
    def far(self) -> int:
        """The rows that are not within NEAR."""
        return sum(abs(r - 1) > NEAR for r in self.ratios)

    def __str__(self) -> str:
        rows = f"{len(self.ratios)} of {self.rows}"
        if not self.ratios:
            return f"| {self.name} | {self.use} | {rows} | - | - | - | - | - |"
        values = f"{100 * self.error:.1f} % | {self.mean:.3f} | {min(self.ratios):.2f} | {max(self.ratios):.2f} | {self.far}"
        return f"| {self.name} | {self.use} | {rows} | {values} |"


def read(file: Path) -> list[Row]:
    """Reads the rows of a file. Raises PopulusError for one that cannot be read, or that lacks a column."""
    try:
        with file.open(newline="") as text:
            reader = csv.DictReader(text)
            given = tuple(reader.fieldnames or ())
            if lacking := [name for name in COLUMNS if name not in given]:
                raise PopulusError(f"{file}: no column '{lacking[0]}'{did_you_mean(lacking[0], given)}; expected {', '.join(COLUMNS)}")
            return list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PopulusError(f"{file}: {error}") from None


def _ratio(predicted: float | None, measured: str) -> float | None:
    return None if predicted is None else predicted / float(measured)


def _cycles(row: Row, target: Target) -> float | None:
    return _ratio(float(planned(row, target).until_summed), row["device_cycles"])


def _time(row: Row, target: Target) -> float | None:
    return None if "clock below nominal" in row["note"] else _ratio(nanoseconds(planned(row, target), target), row["value"])


def _own(row: Row, target: Target) -> float | None:
    """Compares with the better of the row's plan and the library's."""
    product = Product.of(row, target)
    return product.own(target) / min(float(planned(row, target).all), float(product.cycles(product.chosen(target.room)).all))


def _is(kind: str, op: str = "") -> Callable[[Row], bool]:
    return lambda row: row["kind"] == kind and (not op or row["op"] == op) and (kind != "gemm" or row["trace"] == "1")


def _plain(row: Row) -> bool:
    return _is("gemm", "matmul oob")(row) and "anomaly" not in row["note"]


def _judged(kind: str) -> Callable[[Row], bool]:
    """Selects the ops of the networks that are judged: all but OFT, whose element-wise ops are of functions that no row names."""
    return lambda row: row["kind"] == kind and not row["op"].startswith("OFT")


def _op(row: Row, target: Target) -> float | None:
    return _ratio(mesh_ops.predicted(row, target), row["value"])


def _model(row: Row, target: Target) -> float | None:
    return _ratio(mesh_models.predicted(row, target), row["value"])


LINES: dict[str, tuple[Callable[[Row], bool], Callable[[Row, Target], float | None]]] = {
    "products, the row's own plan, cycles": (_is("gemm", "matmul manual"), _cycles),
    "products, the row's own plan, time": (_is("gemm", "matmul manual"), _time),
    "products, the library's rule, cycles": (_is("gemm", "matmul oob"), _cycles),
    "the same, without anomalies": (_plain, _cycles),
    OWN: (_is("gemm"), _own),
    "network": (_is("noc"), lambda row, target: _ratio(mesh_traffic.predicted(row, target), row["value"])),
    "DRAM": (_is("dram"), lambda row, target: _ratio(mesh_traffic.predicted(row, target), row["value"])),
    "convolutions": (_is("conv"), _op),
    "convolutions, without OFT": (_judged("conv"), _op),
    "element-wise ops, layouts": (_is("eltwise"), _op),
    "element-wise ops, layouts, without OFT": (_judged("eltwise"), _op),
    "other single ops": (_is("op"), _op),
    "other single ops, without OFT": (_judged("op"), _op),
    "networks, kernels alone": (lambda row: row["kind"] == "model" and "device" in row["metric"], _model),
    "networks, decoding": (lambda row: row["kind"] == "model" and "decode" in row["metric"], _model),
}


# The column that a line's predictions are of, if it is not the value.
_CYCLES = ("products, the row's own plan, cycles", "products, the library's rule, cycles", "the same, without anomalies")
MEASURED: dict[str, str] = dict.fromkeys(_CYCLES, "device_cycles")


def spearman(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Computes Spearman's coefficient: the correlation of places, equal numbers sharing the mean of theirs."""
    return float(np.corrcoef(_places(predicted), _places(measured))[0, 1])


def _places(values: Sequence[float]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def ranks(lines: Iterable[Line]) -> str:
    """Formats Spearman's coefficient of each kind of rows that has five or more."""
    head = "| rows | use | number | Spearman's coefficient |\n|---|---|---|---|"
    good = [line for line in lines if len(line.ratios) >= 5 and line.name != OWN]
    return "\n".join((head, *(f"| {line.name} | {line.use} | {len(line.ratios)} | {line.rank:.3f} |" for line in good)))


def judged(rows: Iterable[Row], target: Target, names: Collection[str] = tuple(LINES)) -> list[Line]:
    """Predicts all rows of a machine, for the lines of these names.

    A row whose numbers cannot be read is counted and not predicted. Raises PopulusError for a machine without rows.
    """
    machines = OURS.get(target.name, (target.name,))
    own = [row for row in rows if row["machine"] in machines]
    if not own:
        raise PopulusError(f"no row is of {target.name}: expected machine {' or '.join(machines)}")
    lines: list[Line] = []
    for name in names:
        selects, ratio = LINES[name]
        for use in sorted({row["use"] for row in own}):
            chosen = [row for row in own if row["use"] == use and selects(row)]
            found = [_checked(ratio, row, target) for row in chosen]
            if chosen:
                good = [(r, float(row[MEASURED.get(name, "value")])) for r, row in zip(found, chosen, strict=True) if isinstance(r, float)]
                unread = [r for r in found if isinstance(r, str)]
                lines.append(Line(name, use, [r for r, _ in good], len(chosen), unread, [value for _, value in good]))
    return lines


def _checked(ratio: Callable[[Row, Target], float | None], row: Row, target: Target) -> float | str | None:
    """Predicts a row; says why its numbers cannot be read if they cannot."""
    try:
        found = ratio(row, target)
    except (ValueError, KeyError, IndexError, ZeroDivisionError, StopIteration) as error:
        return f"row {row['id']} ({row['kind']}, {row['op']}): {type(error).__name__} {error}"
    if found is not None and not math.isfinite(found):
        return f"row {row['id']} ({row['kind']}, {row['op']}): its prediction is {found}"
    return None if found is None else float(found)


# A field as it would be if the machine had no such limit.
WITHOUT: dict[str, Any] = {
    "sub_block": 1, "buffers": 1, "phase_cycles": 0.0, "unpack_bytes": (math.inf, math.inf), "signal_cycles": 0.0, "multicast_cycles": 0.0,
    "dram_cycles": 0.0, "reader_cycles": 0.0, "row_bytes": math.inf, "column_bytes": math.inf, "dram_tile_bytes": math.inf,
    "dram_stream_bytes": math.inf, "dram_write_bytes": math.inf, "step_cycles": 0.0, "launch_cycles": 0.0, "busy_clock_hz": 0.0,
}  # fmt: skip
MOVED = (*tuple(LINES)[:2], "the same, without anomalies")


def moved(rows: Sequence[Row], target: Target) -> str:
    """Formats the mean errors of products without each field: 1 block in the registers, 1 buffer, no cycles, no limit of a rate."""
    lines = ["| without | own plan, cycles | own plan, time | library's rule, cycles |", "|---|---|---|---|"]
    mesh = target.mesh
    assert mesh is not None
    for name, value in {"": None, **WITHOUT}.items():
        changed = replace(target, mesh=replace(mesh, **{name: value})) if name else target
        found = {line.name: line for line in judged(rows, changed, MOVED)}
        cells = [f"{100 * found[line].error:.1f} %" if line in found else "-" for line in MOVED]
        lines.append(f"| {f'`{name}`' if name else 'nothing'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(file: Path, name: str, fields: bool = False) -> str:
    """Formats the judged lines of a machine, and the numbers of it that were fitted. `fields`: also what each field moves."""
    target = make_target(name)
    mesh = target.mesh
    if mesh is None:
        raise PopulusError(f"{name} is of kind {target.kind}; rows of a file judge a mesh")
    fitted = ", ".join(f"{field} = {getattr(mesh, field)}" for field in mesh.fitted) or "none"
    head = "| rows of " + name + " | use | predicted | mean error | mean | least | most | beyond 25 % |\n|---|---|---|---|---|---|---|---|"
    rows = read(file)
    more = ("\n" + moved(rows, target),) if fields else ()
    lines = judged(rows, target)
    networks = tuple(
        f"| {row['op']}, {row['shape']} | {row['metric']} | {float(row['value']):,g} | {found:,.1f} | {found / float(row['value']):.2f} |"
        for row in rows
        if row["kind"] == "model" and row["machine"] == name and (found := mesh_models.predicted(row, target)) is not None
    )
    if networks:
        more = (f"\n| network on {name} | quantity | published | predicted | ratio |\n|---|---|---|---|---|", *networks, *more)
    unread = dict.fromkeys(why for line in lines for why in line.unread)
    more = (*(f"not read: {why}" for why in unread), *more)
    more = ("\n" + ranks(lines), *more)
    return "\n".join((head, *map(str, lines), f"\nfitted to replayed products with their own plan, `fit`: {fitted}", *more))
