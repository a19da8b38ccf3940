"""The text of a tile program says what it computes: a process that loads nothing but `populus-opt` runs it to the same bits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

import populus
from benchmarks.models import randomised
from helpers.concurrent_runs import model, same
from helpers.wheel_models import NETS, light
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.declared import CodeletOp
from populus.dialects.poplar.tile_code import read_codelet
from populus.dialects.support import registries
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of, write_module
from populus.lowering.poplar.declare import PoplarDeclarePass
from populus.training.session import TrainingSession

EXAMPLES = Path(__file__).parents[2] / "examples"

# In a process of its own: each text through populus-opt, which verifies it and prints it anew, and from that text to results.
CHILD = """
import sys
from pathlib import Path
import numpy as np
from populus.dialects.table import context
from populus.lowering.driver.files import read_module
from populus.runtime.session import Session
from populus.tools.populus_opt import main

for name in sys.argv[1:]:
    path = Path(name)
    again = path.with_name(f"again_{path.name}")
    assert main([str(path), "-o", str(again)]) == 0, name
    session = Session(read_module(context(), again), engine="native" if "native" in path.name else "numpy")
    np.savez(path.with_suffix(".out.npz"), **session.run(dict(np.load(path.with_suffix(".in.npz")))))
"""


def written(program: populus.Program, inputs: Mapping[str, np.ndarray], folder: Path, name: str) -> tuple[Path, dict[str, np.ndarray]]:
    """Writes a program's text with its inputs; gives its path, and the results of this process. The name has the engine, or it is numpy."""
    module = program.module("poplar").clone()
    PoplarDeclarePass().apply(context(), module)
    path = folder / f"{name}.mlir"
    write_module([module], text_of(module, locations=True), path)
    np.savez(path.with_suffix(".in.npz"), **inputs)
    return path, program.run(dict(inputs))


def agree_elsewhere(cases: list[tuple[Path, dict[str, np.ndarray]]]) -> None:
    """Runs texts in another process, of as many threads, and compares results bit for bit."""
    texts = [str(path) for path, _ in cases]
    ran = subprocess.run([sys.executable, "-c", CHILD, *texts], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for path, expected in cases:
        found = np.load(path.with_suffix(".out.npz"))
        assert sorted(found) == sorted(expected)
        assert same(dict(found), expected), path.name


def of_codelet(rows: int = 6, engine: str = "native") -> populus.Program:
    module = populus.load(EXAMPLES / "row_norm.py").module
    with populus.Builder() as b:
        b.output("y", module.row_norm(b.input("x", (rows, 5))))
    return populus.compile(b.module(), target="gc200", tiles=4, engine=engine)


def classifier() -> ModelProto:
    """Two layers, of random weights."""
    g = np.random.default_rng(0)
    text = "net (float[8, 6] x) => (float[8, 3] y) { h = Gemm<transB = 1>(x, u) r = Relu(h) y = Gemm<transB = 1>(r, v) }"
    return model(text, u=g.standard_normal((16, 6)).astype(np.float32), v=g.standard_normal((3, 16)).astype(np.float32))


def test_nine_nets_run_from_their_texts(tmp_path: Path):
    """Two of them with random weights, which lie beside the text; those of the others, as shipped, are numbers in it."""
    cases: list[tuple[Path, dict[str, np.ndarray]]] = []
    for name in NETS:
        net = randomised(light(name), seed=3) if name in ("shufflenet", "squeezenet") else light(name)
        program = populus.compile(net, engine="numpy")
        cases.append(written(program, program.signature.random(1), tmp_path, name))
    agree_elsewhere(cases)


def test_codelets_in_python_run_from_the_text(tmp_path: Path):
    cases: list[tuple[Path, dict[str, np.ndarray]]] = []
    for engine in ("numpy", "native"):
        program = of_codelet(engine=engine)
        inputs = program.signature.random(2)
        cases.append(written(program, inputs, tmp_path, f"norm_{engine}"))
        np.testing.assert_allclose(cases[-1][1]["y"], np.sqrt((inputs["x"] ** 2).sum(1)), rtol=1e-6)
    agree_elsewhere(cases)


def test_a_training_step_runs_from_the_text(tmp_path: Path):
    program = TrainingSession(classifier(), optimizer="adam", engine="numpy").program
    inputs = {n: np.full_like(a, 0.01) if n.startswith("Hyper") else np.abs(a) for n, a in program.signature.random(4).items()}
    path, expected = written(program, inputs, tmp_path, "step")
    assert all(np.isfinite(a).all() for a in expected.values())
    assert (expected["loss"] > 0).all()
    agree_elsewhere([(path, expected)])


# -- the file of a codelet


def test_every_example_of_a_codelet_is_read_again_from_its_file():
    found = 0
    for path in [EXAMPLES / "row_norm.py", *sorted((EXAMPLES / "ops").glob("*.py"))]:
        with registries.restored():
            for code in populus.load(path).codelets:
                again = read_codelet(code.text, "@again")
                assert (again.symbol, again.text, again.doc) == (code.symbol, code.text, code.doc)
                found += 1
    assert found >= 5


def test_a_text_says_the_codelet_by_itself():
    text = text_of(of_codelet(7).module("poplar"), locations=False)
    with registries.restored():
        for name in [name for name, c in CODELETS.items() if c.code is not None]:
            del CODELETS[name]
        module = parse_text(context(), text, "norm.mlir")
        (symbol,) = (op for op in module.walk() if isinstance(op, CodeletOp))
        assert CODELETS[symbol.sym_name.data].code is not None
        assert text_of(module, locations=False) == text


def text_with(body: str, name: str = "twice.00000000") -> str:
    return f"poplar.codelet @{name} python\n" + "\n".join("  " + '"' + line.replace('"', "'") + '"' for line in body.split("\n"))


TWICE = """from populus.custom import Vector, codelet

@codelet
def twice(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = 2 * x[i]"""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (TWICE, "@twice.00000000: the body is that of @twice."),
        (TWICE + "\n    open(3)", "`open(3)` is not allowed"),
        ("import os\n" + TWICE, "@twice.00000000:1: `import os` is not of a codelet's file"),
        ("SIZE = open('a')\n" + TWICE, "`SIZE = open('a')` is not of a codelet's file"),
        (TWICE.replace("@codelet", "@codelet(axes=print())"), "ends with a function under @codelet"),
        (TWICE.replace("@codelet", "@codelet(cycles=3)"), "ends with a function under @codelet"),
        (TWICE.replace("@codelet\n", ""), "ends with a function under @codelet"),
        (TWICE.replace("x[i]", "x[i"), "@twice.00000000:6: not Python"),
        (TWICE.replace("2 * x[i]", "1 + " * 3000 + "x[i]"), "recursion depth"),
        (TWICE.replace("2 * x[i]", "1 + " * 500 + "x[i]"), "nested too deeply"),
        ("", "ends with a function under @codelet"),
    ],
)
def test_a_body_that_is_no_codelet_is_refused_and_nothing_of_it_runs(body: str, why: str):
    with pytest.raises(PopulusError) as refused:
        parse_text(context(), text_with(body), "t.mlir")
    assert why in " ".join(str(refused.value).split())


def test_helpers_that_multiply_are_refused():
    """Each is read anew for every call: thirty of them that call the next one twice would be a billion."""
    helpers = ["def h0(a: float) -> float:\n    return a"]
    helpers += [f"def h{i}(a: float) -> float:\n    return h{i - 1}(a) + h{i - 1}(a)" for i in range(1, 31)]
    own = TWICE.partition("codelet\n")[2].replace("2 *", "h30(1.0) *")
    body = "\n".join(["from populus.custom import Vector, codelet", *helpers, own])
    with pytest.raises(PopulusError, match="helpers are called more than"):
        parse_text(context(), text_with(body), "t.mlir")


def test_a_contract_of_another_version_is_refused():
    module = of_codelet().module("poplar").clone()
    PoplarDeclarePass().apply(context(), module)
    graph = """poplar.codelet @fill contract {form = "fill", inputs = [], output = "y", params = {value = "number"}}"""
    assert str(parse_text(context(), graph, "t.mlir"))
    with pytest.raises(PopulusError, match="@fill has the contract .* in this version, not"):
        parse_text(context(), graph.replace('"number"', '"flag"'), "t.mlir")
