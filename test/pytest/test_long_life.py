"""A process that compiles and runs many programs keeps no session, tile program, open file or machine code of those that are dropped."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import populus
from populus.dialects.expr import Arg, Expr, maximum, minimum, select, tanh
from populus.dialects.poplar.program import GraphOp
from populus.runtime.engine.native.codegen import jit
from populus.runtime.engine.native.codegen.cpu import machine
from populus.runtime.engine.native.codegen.jit import Code, Kernel, Library
from populus.runtime.engine.native.kernels import elementwise
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.expr import evaluate
from populus.runtime.session import Session

FILES = Path("/proc/self/fd")
MAPPINGS = Path("/proc/self/maps")


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


def formula_of(i: int) -> Expr:
    """A formula of one form, with numbers of its own."""
    a, b, c, d, e = (1.0013 + i * n % 97 / 64 for n in (3, 5, 7, 11, 13))
    x = Arg(1)
    clipped = minimum(maximum(select(x, x * (a / 100), x >= b), -c), d + 4)
    return (tanh(clipped * e + clipped * clipped * b) + 1.0) * 0.5 / (a + 3) - select(x, x - d, x < e)


def test_formulas_that_differ_in_numbers_share_their_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    library, x = Library(machine()), np.linspace(-9, 9, 24, dtype=np.float32)
    for i in range(1, 51):
        y = np.empty_like(x)
        [launch] = elementwise.formula(library, formula_of(i), [x], y) or []
        launch()
        assert np.allclose(y, evaluate(formula_of(i), [x]), rtol=2e-6, atol=1e-6)
    assert library.compiled == 1


def test_programs_that_differ_in_numbers_share_their_kernels():
    def kernels(factor: float) -> set[str]:
        [graph] = populus.compile(scaled(factor), tiles=2, engine="numpy").module("poplar").body.block.ops
        return {k.name for launch in NativeProgram(graph).table.launches.values() for k in launch.kernels}

    assert kernels(1.1) == kernels(1.3) == kernels(0.7)


def kernel(i: int) -> Kernel:
    text = "define i64 @{}(ptr %args, i64 %first, i64 %end) {{\n  ret i64 {}\n}}\n"
    return Kernel(f"the number {i}", lambda name, machine: text.format(name, i % 2))


def codes() -> int:
    gc.collect()
    return sum(isinstance(o, Code) for o in gc.get_objects())


@pytest.mark.parametrize("loader", ["ours", "LLVM's"])
def test_the_code_of_dropped_programs_is_freed(tmp_path, monkeypatch, loader):
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    if loader != "ours":
        monkeypatch.setattr(jit, "flat", lambda *given: None)
    library = Library(machine())
    kept = Launch(library, kernel(0), [], 1)
    kept()
    address, before, mapped = library.address(kernel(0)), codes(), []
    for i in range(1, 61):
        Launch(library, kernel(2 * i), [], 1)()
        if i % 20 == 0:
            assert codes() == before + jit.RECENT
            mapped.append(len(MAPPINGS.read_text().splitlines()) if MAPPINGS.exists() else 0)
    assert max(mapped) - mapped[0] <= 2  # the heap may grow
    assert library.compiled == 61
    kept()
    assert library.address(kernel(0)) == address


def test_code_that_another_thread_drops_is_freed_later(tmp_path, monkeypatch):
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "flat", lambda *given: None)  # LLVM loads it, as on another system
    monkeypatch.setattr(jit, "RECENT", 0)
    library, waiting = Library(machine()), len(jit._DROPPED)
    code = library.load([kernel(2)])
    with jit._LLVM.lock:  # this thread is in LLVM
        del code
        assert len(jit._DROPPED) == waiting + 1
    library.load([kernel(4)])
    assert not jit._DROPPED


def test_a_thread_that_drops_code_leaves_llvm_to_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "flat", lambda *given: None)  # LLVM loads it, as on another system
    monkeypatch.setattr(jit, "RECENT", 0)
    code, entered = Library(machine()).load([kernel(6)]), list[bool]()
    del code

    def enter() -> None:
        entered.append(jit._LLVM.lock.acquire(blocking=False))
        if entered[0]:
            jit._LLVM.lock.release()

    other = threading.Thread(target=enter)
    other.start()
    other.join()
    assert entered == [True]


def test_each_manager_of_passes_is_freed_once(monkeypatch):
    from llvmlite.binding import newpassmanagers

    free, freed = newpassmanagers.NewPassManager._dispose, list[object]()
    monkeypatch.setattr(newpassmanagers.NewPassManager, "_dispose", lambda passes: (freed.append(passes), free(passes)))
    for i in range(3):
        jit.object_code(f"define i64 @f() {{ ret i64 {i} }}", machine())
        assert len(freed) == i + 1
