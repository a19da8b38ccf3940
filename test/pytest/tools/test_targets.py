"""`populus targets` and `populus new-target --kind mesh`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.models import transformer
from populus.dialects.poplar.target import PRESETS


def test_all_machines_are_listed_with_what_judges_them(populus, tmp_path: Path):
    assert populus("new-target", "Edge", "--kind", "mesh", "--folder", str(tmp_path)).status == 0
    got = populus("targets", "--load", str(tmp_path / "edge.py"))
    header, *lines = got.out.splitlines()
    assert got.status == 0 and header.split()[:3] == ["name", "kind", "tiles"]
    listed = {line.split()[0]: line.split()[1] for line in lines}
    assert listed == {**{name: target.kind for name, target in PRESETS.items()}, "edge": "mesh"}
    assert next(line for line in lines if line.startswith("n150")).endswith(PRESETS["n150"].judged)
    assert next(line for line in lines if line.startswith("edge")).endswith("nothing")


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
