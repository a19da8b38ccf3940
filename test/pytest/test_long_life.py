"""A process that compiles and runs many programs keeps no session, tile program or open file of those that are dropped."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import populus
from populus.dialects.poplar.program import GraphOp
from populus.runtime.session import Session

FILES = Path("/proc/self/fd")


def scaled(factor: float) -> ModelProto:
    """A program with a literal of its own."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy"]
    k = helper.make_tensor("k", TensorProto.FLOAT, [], [factor])
    nodes = [helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("Exp", ["m"], ["y"])]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [k])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def ran(factor: float, engine: str) -> None:
    found = populus.compile(scaled(factor), tiles=2, engine=engine).run({"x": np.ones(8, np.float32)})["y"]
    assert np.allclose(found, np.exp(np.float32(factor)), rtol=1e-5)


def live() -> dict[str, int]:
    """Counts what programs hold."""
    gc.collect()
    objects = gc.get_objects()
    counts = {kind.__name__: sum(isinstance(o, kind) for o in objects) for kind in (Session, GraphOp)}
    return {**counts, "files": len(os.listdir(FILES)) if FILES.exists() else 0}


@pytest.mark.parametrize(("engine", "programs"), [("numpy", 40), ("native", 5), ("strict", 10)])
def test_nothing_of_dropped_programs_stays(engine: str, programs: int):
    ran(0.5, engine)
    before = live()
    for i in range(programs):
        ran(1 + i / 256, engine)
    assert live() == before
