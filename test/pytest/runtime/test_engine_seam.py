"""An engine of a loaded file answers for memory, compiling and launches, and runs what all engines run, to NumPy's bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import populus
from helpers.concurrent_runs import model, models, same
from helpers.random_programs import Calls
from populus.dialects.poplar import CallOp, FamilyOp, TaskOp
from populus.dialects.support import registries
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.codelets.cost import flops
from populus.runtime.cycles import Vertex
from populus.runtime.session import graph_of

EXAMPLE = Path(__file__).parents[3] / "examples/engines/counting.py"


@pytest.mark.parametrize("name", models())
def test_the_example_gives_numpys_bits(name: str):
    on = {e: populus.compile(models()[name], engine=e, load=[EXAMPLE]) for e in ("numpy", "counting")}
    inputs = on["numpy"].signature.random(3)
    assert on["counting"].session.engine == "counting"
    assert same(on["counting"].run(inputs), on["numpy"].run(inputs))


def test_random_programs_with_functions_give_numpys_bits():
    calls = 0
    for seed in range(12):
        module = Calls(seed).module()
        on = {e: populus.compile(module.clone(), engine=e, load=[EXAMPLE]) for e in ("numpy", "counting")}
        inputs = on["numpy"].signature.random(seed)
        assert same(on["counting"].run(inputs), on["numpy"].run(inputs)), seed
        calls += sum(isinstance(op, CallOp) for op in on["numpy"].module("poplar").walk())
    assert calls > 0


def test_a_task_runs_as_its_steps():
    a, b, c = (np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32) for i in range(3))
    product = model("net (float[64,64] x) => (float[64,64] y) { h = MatMul(x, u) r = Relu(h) y = MatMul(r, v) }", u=a, v=b)
    on = {e: populus.compile(product, engine=e, load=[EXAMPLE]) for e in ("numpy", "counting")}
    assert any(isinstance(op, TaskOp) for op in on["counting"].module("poplar").walk())
    assert same(on["counting"].run({"x": c}), on["numpy"].run({"x": c}))


def test_the_counts_are_those_of_the_program():
    """Each family runs once in a program without loops, so the counts of two runs are twice those of its text."""
    program = populus.compile(models()["window"], engine="counting", load=[EXAMPLE])
    graph = graph_of(program.module("poplar"))
    families = [op for op in graph.walk() if isinstance(op, FamilyOp)]
    inputs = program.signature.random(1)
    for _ in range(2):
        program.run(inputs)
    counts = program.session.loaded.counts
    assert sum(c.operations for c in counts.values()) == 2 * sum(flops(Vertex.of(f, graph.machine)) for f in families) > 0
    named = [name for key, c in counts.items() if key != "copy" for name in key.split("+") * c.launches]
    assert sorted(named) == sorted(2 * [f.codelet.data for f in families])
    assert all(c.bytes > 0 for c in counts.values())
    lines = program.session.loaded.report().splitlines()
    assert len(lines) == 1 + len(counts)


def test_a_loop_runs_its_turns():
    program = populus.compile(models()["loop"], engine="counting", load=[EXAMPLE])
    x = np.arange(5, dtype=np.float32)
    assert program.run({"x": x})["y"].tolist() == (x * 2**7).tolist()


def test_the_example_is_a_page_of_code():
    assert EXAMPLE.read_text().count("\n") <= 150


OWN = """
from populus.runtime.engine.engine import Engine


class OwnProgram(Engine):
    ENGINE = "NAME"
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (OWN.replace("NAME", "numpy"), "engine 'numpy' lacks bind, compile, memory"),
        (EXAMPLE.read_text().replace('ENGINE: ClassVar = "counting"', 'ENGINE: ClassVar = "numpy"'), "engine 'numpy' is one of ours"),
        ("class Own:\n    ENGINE = 'own'\n", "engine 'own' lacks the base class Engine"),
    ],
)
def test_an_engine_that_cannot_be_is_one_line(text: str, why: str, tmp_path: Path):
    path = tmp_path / "own.py"
    path.write_text(text)
    with registries.restored(), pytest.raises(PopulusError) as error:
        populus.load(path)
    assert why in str(error.value)
    assert str(error.value).startswith(str(path))


def test_engines_are_checked_after_the_file_is_read():
    with pytest.raises(PopulusError, match="no engine 'countin'; did you mean 'counting'"):
        populus.compile(models()["rows"], engine="countin", load=[EXAMPLE])
    with pytest.raises(PopulusError, match="the counting engine checks no sample"):
        populus.compile(models()["rows"], engine="counting", sample=3, load=[EXAMPLE]).run({"x": np.zeros((6, 10), np.float32)})
