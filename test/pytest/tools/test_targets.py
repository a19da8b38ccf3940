"""`populus targets` and `populus new-target --kind mesh`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.models import transformer
from populus.dialects.poplar.target import PRESETS, machine
from populus.dialects.support.diagnostics import PopulusError


def test_all_machines_are_listed_with_what_judges_them(populus, tmp_path: Path):
    assert populus("new-target", "Edge", "--kind", "mesh", "--folder", str(tmp_path)).status == 0
    got = populus("targets", "--load", str(tmp_path / "edge.py"))
    header, *lines = got.out.splitlines()
    assert got.status == 0 and header.split()[:3] == ["name", "kind", "tiles"]
    listed = {line.split()[0]: line.split()[1] for line in lines}
    assert listed == {**{name: target.kind for name, target in PRESETS.items()}, "edge": "mesh"}
    assert next(line for line in lines if line.startswith("n150")).endswith(PRESETS["n150"].judged)
    assert next(line for line in lines if line.startswith("edge")).endswith("nothing")


def test_several_files_are_listed_by_paths_relative_to_the_folder(populus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Once the second file made the first one be read by its whole path, which counted as another file of the same machine."""
    monkeypatch.chdir(tmp_path)
    assert populus("new-target", "edge", "--kind", "mesh").status == populus("new-target", "pair").status == 0
    got = populus("targets", "--load", "edge.py", "--load", "pair.py")
    assert (got.status, got.err) == (0, "")
    assert [line.split()[0] for line in got.out.splitlines()][-2:] == ["edge", "pair"]
    Path("other.py").write_text(Path("edge.py").read_text())
    got = populus("targets", "--load", "edge.py", "--load", "other.py")
    assert got.status == 1 and "other.py: target 'edge' is one of edge.py; give yours another name" in got.err


def test_a_file_with_a_wrong_field_is_one_line_that_names_the_file(populus, tmp_path: Path):
    assert populus("new-target", "Edge", "--kind", "mesh", "--folder", str(tmp_path)).status == 0
    file = tmp_path / "edge.py"
    file.write_text(file.read_text().replace("row_bytes=", "row_byte="))
    got = populus("targets", "--load", str(file))
    assert (got.status, got.out) == (1, "")
    assert got.err.count("\n") == 1 and str(file) in got.err
    assert "machine 'edge' has no field 'row_byte'; did you mean 'row_bytes'" in got.err


def test_the_fewest_tiles_of_a_mesh_are_whole_rows(populus, tmp_path: Path):
    """Once other numbers of tiles than its own were taken not to fit, because no grid had them."""
    model = tmp_path / "model.onnx"
    model.write_bytes(transformer(hidden=16, heads=2, feed_forward=16).SerializeToString())
    got = populus("profile", str(model), "--target", "n150, columns=4, rows=4", "--what-if")
    assert got.status == 0
    (line,) = (line for line in got.out.splitlines() if line.startswith("fewest tiles"))
    assert line.split()[2] == "4"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clock_hz": "1e9"}, "clock_hz = '1e9'; expected cycles per second"),
        ({"clock_hz": True}, "clock_hz = True; expected cycles per second"),
        ({"tiles": "64"}, "tiles = 64; expected a whole number"),
        ({"tiles": True}, "tiles = True; expected a whole number"),
        ({"tiles": 0}, "tiles = 0; expected at least 1"),
        ({"types": "f32"}, "types = 'f32'; expected a tuple of element types, such as (f32, i32)"),
        ({"types": ("f32",)}, "types = ('f32',); expected a tuple of element types, such as (f32, i32)"),
        ({"lacks": "pool"}, "lacks = 'pool'; expected a tuple of names, such as ('pool',)"),
        ({"joins": "yes"}, "joins = 'yes'; expected True or False"),
        ({"judged": 3}, "judged = 3; expected a text"),
    ],
)
def test_a_field_of_another_type_is_told_in_one_line(fields, message):
    with pytest.raises(PopulusError) as refused:
        machine("ipu", **{"name": "m", "tiles": 64, "tile_bytes": 65536, "clock_hz": 1e9, **fields})
    assert str(refused.value) == f"machine 'm': {message}"
    with pytest.raises(PopulusError, match="machine 'm' has no field 'tile'; did you mean 'tiles'?"):
        machine("ipu", name="m", tile=64)


def test_the_page_of_machines_has_the_numbers_of_a_gc200():
    page = (Path(__file__).parents[3] / "docs" / "new-target.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    found = {name: row[2] for row in rows if len(row) == 3 for name in [*re.findall(r"`(\w+)`", row[0])][:1]}
    numbers = {n: int(v.split(",")[0]) for n, v in found.items() if re.fullmatch(r"\d+(, \d+)?", v)}
    assert {"tiles", "tile_bytes", "exchange_bytes", "conv_macs", "link_bytes"} <= numbers.keys()
    assert numbers == {n: getattr(PRESETS["gc200"], n) for n in numbers}
    assert float(found["clock_hz"]) == PRESETS["gc200"].clock_hz
