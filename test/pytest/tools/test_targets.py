"""`populus targets` and `populus new-target --kind mesh`."""

from __future__ import annotations

from pathlib import Path

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
