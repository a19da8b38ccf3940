"""Code that a process maps without LLVM: the same results as LLVM's loader gives, and no import of it where objects are kept."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import llvmlite
import numpy as np
import pytest

from populus.dialects.expr import Arg, erf, exp, tanh
from populus.runtime.built.code import Flat, MappedCode
from populus.runtime.engine.native.codegen import cpu, jit
from populus.runtime.engine.native.codegen.cpu import described, machine
from populus.runtime.engine.native.codegen.flat import flat
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.kernels import elementwise

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or machine().architecture != "x86_64", reason="code is flat on Linux for x86-64; elsewhere LLVM loads it"
)

PROGRAM = """
import sys
import numpy as np, onnx, populus
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 4]) for n in "xy")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])], "g", [x], [y])
program = populus.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), target="host", threads=1)
y = program.run({"x": np.arange(16, dtype=np.float32).reshape(4, 4)})["y"]
print(any(m.startswith("llvmlite") for m in sys.modules), y.tobytes().hex())
"""


def result(kernel: Kernel, *words: int) -> int:
    library = Library(machine())
    code = library.load([kernel])
    held = np.array([*words, 0], np.int64)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.address(kernel))
    found = call(held.ctypes.data, 0, 1)
    del code
    return found


def by_both_loaders(monkeypatch, run):
    mine = run()
    with monkeypatch.context() as patched:
        patched.setattr(jit, "flat", lambda *given: None)
        return mine, run()


def test_a_call_of_the_c_library_and_a_table_of_constants_give_what_llvm_gives(monkeypatch):
    x, formula = np.linspace(-9, 9, 37, dtype=np.float32), Arg(1) % (tanh(Arg(1)) + 2.5) + exp(Arg(1)) * erf(Arg(1))

    def run():
        y = np.empty_like(x)
        [launch] = elementwise.formula(Library(machine()), formula, [x], y) or []
        launch()
        assert type(launch.code[0]) is (MappedCode if jit.flat is flat else jit.LoadedCode)
        return y.tobytes()

    mine, llvms = by_both_loaders(monkeypatch, run)
    assert mine == llvms


def test_a_kernel_with_a_variable_is_loaded_by_llvm():
    text = """@count = internal global i64 41
define i64 @{}(ptr %args, i64 %first, i64 %end) {{
  %old = load volatile i64, ptr @count
  %new = add i64 %old, 1
  store volatile i64 %new, ptr @count
  ret i64 %new
}}
"""
    kernel = Kernel("a kernel that counts", lambda name, _: text.format(name))
    assert flat(jit.object_code(text.format(kernel.name), machine()), kernel.name) is None
    assert result(kernel) == 42


def test_an_object_of_another_cpu_or_without_the_kernel_is_not_flat():
    text = "define i64 @k(ptr %args, i64 %first, i64 %end) {\n  ret i64 1\n}\n"
    here = jit.object_code(text, machine())
    assert flat(here, "k") is not None
    assert flat(here, "another") is None
    assert flat(jit.object_code(text, described("aarch64")), "k") is None
    assert flat(b"", "k") is None


def test_kernels_of_one_piece_keep_their_names_and_addresses_of_functions():
    parts = [Flat(b"\xc3" * 3, {"a": 0}), Flat(b"\x90\xc3" + bytes(8), {"b": 1}, [("fmodf", 2)])]
    joined = Flat.joined(parts)
    assert (joined.at, joined.outside) == ({"a": 0, "b": 65}, [("fmodf", 66)])
    assert Flat.from_bytes(joined.to_bytes()) == joined
    for damaged in (b"", joined.to_bytes()[:-1], joined.to_bytes() + b"\0", b"x" + joined.to_bytes()):
        assert Flat.from_bytes(damaged) is None
    with pytest.raises(OSError, match="no function 'no_such_function'"):
        MappedCode(Flat(bytes(8), {}, [("no_such_function", 0)]))


def test_a_process_whose_kernels_are_kept_does_not_import_llvmlite(tmp_path, monkeypatch):
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    for name in ("POPULUS_CHECK", "POPULUS_GUARD"):
        monkeypatch.delenv(name, raising=False)
    first, second = (
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split() for _ in range(2)
    )
    assert (first[0], second[0]) == ("True", "False")
    assert first[1] == second[1]


def test_llvm_describes_a_cpu_once_and_again_where_the_system_describes_another(tmp_path, monkeypatch):
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    asked, ask = [], cpu._asked
    monkeypatch.setattr(cpu, "_asked", lambda: asked.append(1) or ask())
    first = cpu._host()
    assert (cpu._host(), len(asked)) == (first, 1)
    monkeypatch.setattr(cpu, "processor", lambda: "another CPU")
    assert (cpu._host(), len(asked)) == (first, 2)


def test_llvm_s_library_alone_says_of_this_cpu_what_llvmlite_says(monkeypatch):
    alone, llvm = cpu._asked(), cpu.binding()
    said = llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    assert (alone.triple, alone.cpu, alone.features, alone.llvmlite) == (*said, llvmlite.__version__)
    monkeypatch.setattr(cpu.os.path, "dirname", lambda path: "/nowhere")  # as on systems whose library has another name
    assert cpu._asked() == alone


def test_to_ask_for_the_cpu_imports_no_binding_of_llvm(tmp_path):
    code = "import sys; from populus.runtime.engine.native.codegen.cpu import machine; machine(); print('llvmlite.binding' in sys.modules)"
    environment = {**os.environ, "POPULUS_CACHE": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout
    assert said == ("False\n" if sys.platform == "linux" else "True\n")
