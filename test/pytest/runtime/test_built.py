"""Built programs: the C library has the native engine's bits, and refuses what does not fit it; `load_program` needs NumPy alone."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import populus
from helpers import cut_vectors
from helpers.built_nets import compiled, gather, model, net, normal, recurrent
from helpers.command import command
from populus.dialects.support.errors import ProgramError
from populus.program import building
from populus.runtime.built import library as built_library
from populus.runtime.built.form import FEATURES, HEAD, PIECE, SUMS, checksum
from populus.runtime.built.library import _arrays
from populus.runtime.built.types import TYPES
from populus.runtime.engine.native.codegen import jit
from populus.runtime.engine.native.codegen.cpu import machine
from populus.runtime.engine.native.frozen.freeze import write_weights
from populus.runtime.session import Session
from populus.tools.main import main

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler, which users of build need too"
)


def loop():
    """A counted loop, whose counter is a word of the session."""
    w = normal(1, 32, 8), normal(1, 32, 8)
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="lstm", hidden_size=8)]
    return model(nodes, [("x", [6, 1, 8])], [("y", [6, 1, 1, 8])], {"w": w[0], "r": w[1]})


def same(found, expected):
    assert list(found) == list(expected)
    for name, e in expected.items():
        assert found[name].dtype == e.dtype
        assert found[name].tobytes() == e.tobytes(), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("built")
    populus.build(compiled(net()), place, name="net", cpu="x86-64-v2" if os.uname().machine == "x86_64" else "native")
    return place


@pytest.mark.parametrize(("make", "threads"), [(net, 3), (gather, 1), (loop, 2)])
def test_a_library_has_the_bits_of_the_native_engine(make, threads, tmp_path):
    program = compiled(make())
    populus.build(program, tmp_path)
    loaded = populus.load_program(tmp_path, threads=threads)
    inputs = program.signature.random()
    for given in (inputs, program.signature.random(1)):
        same(loaded.run(given), program.run(given))
    assert loaded.inputs == {n: (a.shape, a.dtype) for n, a in inputs.items()}


def test_kernels_are_compiled_once_for_this_process_and_for_a_library(tmp_path, monkeypatch):
    if machine().architecture == "x86_64":
        monkeypatch.setenv("POPULUS_NATIVE_CPU", "x86-64-v2")  # a library has no tile registers
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path / "cache"))
    made, code = [], jit.object_code
    monkeypatch.setattr(jit, "object_code", lambda text, *rest: made.append(text) or code(text, *rest))
    program = compiled(recurrent())
    populus.build(program, tmp_path / "built")
    kernels = len(made)
    assert kernels > 2
    program.session.run(program.signature.random())
    assert len(made) == kernels  # with the loop over steps and that of its threads


def test_weights_inside_give_the_same_and_the_folder_has_no_file_of_them(tmp_path):
    program = compiled(net())
    assert populus.build(program, tmp_path, embed=True).weights is None
    assert not list(tmp_path.glob("*.bin"))
    inputs = program.signature.random()
    same(populus.load_program(tmp_path).run(inputs), program.run(inputs))


def linked_parts(folder, cpu, make, embed=False):
    """Builds parts with PATH emptied, so that no compiler is found."""
    program = compiled(make())
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", "")
        patched.delenv("CC", raising=False)
        populus.build(program, folder, name="net", cpu=cpu, parts=True, embed=embed)
    return program


@pytest.mark.parametrize("embed", [False, True])
def test_parts_make_a_library_with_the_bits_of_the_native_engine(embed, tmp_path):
    program = linked_parts(tmp_path, "native", net, embed)
    subprocess.run(["make", "-s", "-C", tmp_path, "CC=cc"], check=True, capture_output=True)
    inputs = program.signature.random()
    same(populus.load_program(tmp_path).run(inputs), program.run(inputs))


# ELF's number of the machine; its flags: of RISC-V, compressed instructions and doubles in registers.
@pytest.mark.parametrize(("cpu", "elf", "flags"), [("aarch64", 183, 0), ("riscv64", 243, 5), ("x86-64-v2", 62, 0), ("x86-64-v4", 62, 0)])
@pytest.mark.parametrize("make", [net, loop])
def test_parts_for_other_cpus_are_objects_of_that_machine(cpu, elf, flags, make, tmp_path):
    linked_parts(tmp_path, cpu, make)
    objects = sorted(tmp_path.glob("k*.o"))
    table = (tmp_path / "table.c").read_text()
    assert len(objects) == len(set(re.findall(r"populus_[0-9a-f]{24}", table))) > 3
    for file in objects:
        content = file.read_bytes()
        assert content[:5] == b"\x7fELF\x02"
        assert int.from_bytes(content[18:20], "little") == elf
        assert int.from_bytes(content[48:52], "little") == flags
    head = np.fromfile(tmp_path / "net.bin", np.uint64, 8)
    assert head[4] == elf
    assert {p.name for p in tmp_path.iterdir()} >= {"Makefile", "runtime.c", "cpu.h", "populus.h", "exports", "net.bin"}
    command = {"aarch64": "aarch64-linux-gnu-gcc", "riscv64": "riscv64-linux-gnu-gcc"}.get(cpu)
    if command is not None and shutil.which(command) is not None:
        subprocess.run(["make", "-s", "-C", tmp_path], check=True, capture_output=True)


def test_two_builds_are_equal_byte_for_byte(tmp_path):
    for name in "ab":
        populus.build(compiled(net()), tmp_path / name, name="net", embed=False)
    files = [sorted(p.name for p in (tmp_path / name).iterdir()) for name in "ab"]
    assert files[0] == files[1] == ["Makefile", "example.c", "libnet.so", "net.bin", "populus.h"]
    for file in files[0]:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_states_stay_from_run_to_run_and_are_read_and_replaced(tmp_path):
    program = compiled(recurrent())
    populus.build(program, tmp_path, states={"h": "h_next"})
    loaded, kept = populus.load_program(tmp_path), program.stateful({"h": "h_next"})
    assert list(loaded.inputs) == ["x"]
    assert list(loaded.outputs) == ["y"]
    assert list(loaded.states) == ["h"]
    x = {"x": normal(1, 16)}
    for _ in range(3):
        same(loaded.run(x), kept.run(x))
    assert loaded.state("h").tobytes() == kept.get("h").tobytes()
    for one in (loaded.set_state, kept.set):
        one("h", np.ones((1, 16), np.float32))
    same(loaded.run(x), kept.run(x))
    with pytest.raises(ProgramError, match=r"there is no state 'g'; there are h"):
        loaded.state("g")
    with pytest.raises(ProgramError, match=r"state 'h' is float32 \[16\], expected float32 \[1, 16\]"):
        loaded.set_state("h", np.ones(16, np.float32))


def test_arrays_are_described_once_and_not_in_each_run(tmp_path, monkeypatch):
    program = compiled(net())
    populus.build(program, tmp_path)
    loaded, described = populus.load_program(tmp_path), []
    monkeypatch.setattr(built_library, "_descriptions", described.append)
    for seed in range(3):
        inputs = program.signature.random(seed)
        same(loaded.run(inputs), program.run(inputs))
    assert described == []


def test_a_bound_run_reads_its_inputs_anew_and_writes_into_the_callers_outputs(tmp_path):
    program = compiled(recurrent())
    populus.build(program, tmp_path)
    loaded = populus.load_program(tmp_path)
    x = {name: np.zeros(*type) for name, type in loaded.inputs.items()}
    y = {name: np.zeros(*type) for name, type in loaded.outputs.items()}
    run = loaded.bind(x, y)
    for seed in range(3):
        inputs = program.signature.random(seed)
        for name, array in inputs.items():
            x[name][...] = array
        run()
        same(y, program.run(inputs))
        other = program.signature.random(9)
        same(loaded.run(other), program.run(other))  # between, with arrays of its own
        same(y, program.run(inputs))


def test_arrays_that_cannot_be_bound_are_refused_in_one_line(tmp_path):
    populus.build(compiled(gather()), tmp_path)
    loaded = populus.load_program(tmp_path)
    inputs, outputs = ({name: np.zeros(*type) for name, type in side.items()} for side in (loaded.inputs, loaded.outputs))
    a, y = next(iter(inputs)), next(iter(outputs))
    fixed = outputs[y].copy()
    fixed.flags.writeable = False
    strided = np.zeros((*inputs[a].shape, 2), inputs[a].dtype)[..., 0]
    memory = np.zeros(inputs[a].nbytes + outputs[y].nbytes, np.uint8)
    beside = np.ndarray(inputs[a].shape, inputs[a].dtype, memory)
    over = np.ndarray(outputs[y].shape, outputs[y].dtype, memory, offset=inputs[a].nbytes - inputs[a].itemsize)
    for given, taken, message in (
        ({}, outputs, f"input '{a}' is missing or unknown"),
        (inputs, {**outputs, "zz": fixed}, "output 'zz' is missing or unknown"),
        ({**inputs, a: inputs[a][:1]}, outputs, "expected"),
        ({**inputs, a: strided}, outputs, f"input '{a}' is not a dense array"),
        ({**inputs, a: inputs[a].astype(np.float16)}, outputs, f"input '{a}' is float16"),
        (inputs, {**outputs, y: fixed}, f"output '{y}' is read-only"),
        ({**inputs, a: beside}, {**outputs, y: over}, f"output '{y}' shares memory"),
    ):
        with pytest.raises(ProgramError, match=message):
            loaded.bind(given, taken)


def test_load_program_imports_numpy_and_nothing_else(folder):
    code = (
        "import sys, populus\n"
        f"program = populus.load_program({str(folder)!r})\n"
        "import numpy as np\n"
        "program.run({n: np.zeros(*t) for n, t in program.inputs.items()})\n"
        "print([m for m in ('xdsl', 'onnx', 'llvmlite', 'ml_dtypes', 'safetensors', 'rich', 'platformdirs') if m in sys.modules])\n"
        "print(*sorted(m.rpartition('.')[2] for m in sys.modules if m.startswith('populus.')))"
    )
    others, ours = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert others == "[]"
    assert ours == "built dialects errors given guard library runtime support types"  # each takes a millisecond or more


def test_the_library_needs_only_the_c_library(folder):
    if shutil.which("ldd") is None:
        pytest.skip("needs ldd")
    listed = subprocess.run(["ldd", folder / "libnet.so"], capture_output=True, text=True, check=True).stdout
    names = {Path(line.split()[0]).name.partition(".so")[0] for line in listed.splitlines()}
    assert names <= {"linux-vdso", "libc", "libm", "libpthread", "libdl", "ld-linux-x86-64", "ld-linux-aarch64"}, listed
    if shutil.which("nm") is not None:
        defined = subprocess.run(["nm", "-D", "--defined-only", folder / "libnet.so"], capture_output=True, text=True, check=True).stdout
        assert {line.split()[-1] for line in defined.splitlines()} >= {"populus_load", "populus_run"}
        assert all(len(line.split()[-1]) < 30 for line in defined.splitlines()), "a kernel is visible"


def test_the_code_of_a_library_is_not_written_when_it_is_loaded(folder):
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf")
    listed = subprocess.run(["readelf", "-d", folder / "libnet.so"], capture_output=True, text=True, check=True).stdout
    assert "BIND_NOW" in listed
    assert "TEXTREL" not in listed, "kernels are not code that a linker places anywhere"


def example(folder):
    subprocess.run(["make", "-s", "-C", folder, "example"], check=True, capture_output=True)
    return folder / "example"


def test_make_builds_the_example_which_runs(folder):
    if shutil.which("make") is None:
        pytest.skip("needs make")
    out = subprocess.run([example(folder)], capture_output=True, text=True, check=True).stdout
    assert out.startswith("y: type 1, shape 2 10: ")


def test_the_examples_in_c_and_cpp_run(tmp_path):
    if shutil.which("make") is None or shutil.which("c++") is None:
        pytest.skip("needs make and a C++ compiler")
    for file in (Path(__file__).parents[3] / "examples" / "library").iterdir():
        shutil.copy(file, tmp_path)
    subprocess.run(["make", "-s", "-C", tmp_path, f"PYTHON={sys.executable}"], check=True, capture_output=True)
    found = [subprocess.run([tmp_path / name], capture_output=True, text=True, check=True).stdout for name in ("counter_c", "counter_cpp")]
    assert found[0].startswith("run 1: 0 0.258065\n")
    assert found[0].endswith("run 3: 2 2.25806\n1: input 'x' has size 8 in dimension 1; given is 4\n")
    assert found[1] == "1\n1.22581\n1.45161\n1.67742\n"


def test_valgrind_finds_no_error(folder):
    if shutil.which("valgrind") is None or shutil.which("make") is None:
        pytest.skip("needs valgrind and make")
    words = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", example(folder), folder / "net.bin", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_refuses_wrong_inputs_in_one_line(folder):
    loaded, x = populus.load_program(folder), np.zeros((2, 3, 8, 8), np.float32)
    for inputs, message in (
        ({}, r"input 'x' is missing \(float32 \[2, 3, 8, 8\]\)"),
        ({"x": x, "z": x}, "the program has no input 'z'; it has x"),
        ({"x": x[0]}, r"input 'x' is float32 \[3, 8, 8\], expected float32 \[2, 3, 8, 8\]"),
        ({"x": x.astype(np.float64)}, r"input 'x' is float64"),
    ):
        with pytest.raises(ProgramError, match=message):
            loaded.run(inputs)
    with pytest.raises(ProgramError, match="threads = 0; a program runs on 1 to 250 threads"):
        populus.load_program(folder, threads=0)


class Library:
    """The C interface of a folder's library, without `BuiltProgram`'s own checks."""

    def __init__(self, folder, threads=1):
        self.c = built_library._opened(next(folder.glob("lib*.so")).resolve())
        self.model, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.c.populus_load(None, ctypes.byref(self.model)) == 0
        assert self.c.populus_open(self.model, threads, ctypes.byref(self.session)) == 0

    def run(self, given, taken):
        status = self.c.populus_run(self.session, _arrays(given), len(given), _arrays(taken), len(taken))
        return status, self.c.populus_error(self.session).decode()

    def load(self, path):
        status = self.c.populus_load(os.fsencode(path), ctypes.byref(ctypes.c_void_p()))
        return status, self.c.populus_error(None).decode()

    def close(self):
        self.c.populus_close(self.session)
        self.c.populus_unload(self.model)


ARGUMENT, FILE, FORMAT, CPU, VALUE = 1, 2, 3, 5, 6


def test_the_c_interface_refuses_wrong_arrays_by_code_and_text(folder):
    library = Library(folder)
    x, y = np.zeros((2, 3, 8, 8), np.float32), np.zeros((2, 10), np.float32)
    assert library.run([x], [y, y.copy()])[0] == 0
    for given, taken, text in (
        ([x.astype(np.int32)], [y, y], "input 'x' has type 1; given is 6"),
        ([x[0]], [y, y], "input 'x' has 4 dimensions; given are 3"),
        ([x[:, :, :, :7].copy()], [y, y], "input 'x' has size 8 in dimension 3; given is 7"),
        ([x], [y, y[:1]], "output 'l' has size 2 in dimension 0; given is 1"),
        ([], [y, y], "the program has 1 inputs and 2 outputs; given are 0 and 2"),
    ):
        assert library.run(given, taken) == (ARGUMENT, text)
    opened = ctypes.c_void_p()
    assert library.c.populus_open(library.model, 251, ctypes.byref(opened)) == ARGUMENT
    assert "1 to 250" in library.c.populus_error(None).decode()
    assert library.c.populus_run(None, None, 0, None, 0) == ARGUMENT
    assert not library.c.populus_describe(library.model, 0, 1)
    assert library.c.populus_count(library.model, 7) == 0
    library.close()


def test_an_index_outside_of_its_table_is_an_error_that_names_the_node(tmp_path):
    populus.build(compiled(gather()), tmp_path)
    library, y = Library(tmp_path), np.zeros((3, 4), np.float32)
    status, text = library.run([np.array([0, 5, 1])], [y])
    assert (status, text) == (VALUE, "'rows': an index outside of its table, for 'multi_slice'")
    assert library.run([np.array([0, 4, -5])], [y])[0] == 0
    library.close()


def changed(data, tmp_path, change):
    path = tmp_path / "changed.bin"
    path.write_bytes(change(data))
    return path


def sealed(data):
    """A file of weights with the sums of what is in it."""
    return data[: 8 * SUMS] + checksum([np.frombuffer(data, np.uint64)]) + data[8 * SUMS + 16 :]


def test_files_that_are_not_its_data_are_refused(folder, tmp_path):
    library, data = Library(folder), (folder / "net.bin").read_bytes()
    other = tmp_path / "other"
    populus.build(compiled(gather()), other)

    def word(number, value):
        return lambda d: d[: 8 * number] + value.to_bytes(8, "little") + d[8 * number + 8 :]

    for change, code, text in (
        (lambda d: d[:-64], FORMAT, "it was cut or changed"),
        (lambda d: d[:100], FORMAT, "is not a program's data"),
        (lambda d: b"PK" + d[2:], FORMAT, "is not a program's data"),
        (lambda d: d[: HEAD + 9] + bytes([d[HEAD + 9] ^ 1]) + d[HEAD + 10 :], FORMAT, "is damaged"),
        (lambda d: (other / "model.bin").read_bytes(), FORMAT, "is the data of another library"),
        (word(4, 40), CPU, "another kind of CPU"),
        (lambda d: sealed(word(5, 1 << 60)(d)), CPU, "built for a CPU with a feature of a later version, which this one lacks"),
    ):
        status, said = library.load(changed(data, tmp_path, change))
        assert (status, text in said) == (code, True), said
    assert library.load(tmp_path / "nothing.bin") == (FILE, f"{tmp_path / 'nothing.bin'}: cannot be read")
    library.close()


def test_a_file_with_any_byte_changed_is_refused(folder, tmp_path):
    library, data = Library(folder), (folder / "net.bin").read_bytes()
    rng = np.random.default_rng(5)
    front = int(np.frombuffer(data, np.uint64)[21])  # where constants begin
    offsets = [*range(HEAD), *rng.integers(HEAD, front, 100).tolist(), *rng.integers(front, len(data), 100).tolist(), len(data) - 1]
    assert front < len(data) - 64
    for at in offsets:
        change = bytes([data[at] ^ int(rng.integers(1, 256))])
        status, said = library.load(changed(data, tmp_path, lambda d, at=at, change=change: d[:at] + change + d[at + 1 :]))
        assert status in (FORMAT, CPU), (at, said)
    swapped = data[:front] + data[front + 64 : front + 128] + data[front : front + 64] + data[front + 128 :]
    status, said = library.load(changed(data, tmp_path, lambda d: swapped))
    assert (status, "is damaged" in said) == (FORMAT, True), said
    library.close()


def test_the_sums_of_a_file_depend_on_every_word_and_its_place():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 63, 8 * (2 * PIECE + 5), np.uint64)

    def sums(words):
        return checksum(np.split(words, [8 * PIECE, 16 * PIECE]))

    expected = sums(words)
    for at in (0, 6, 9, 8 * PIECE - 1, 8 * PIECE, len(words) - 1):
        other = words.copy()
        other[at] += np.uint64(1)
        assert sums(other)[:8] != expected[:8]
        other[at] = words[at - 1]
        other[at - 1] = words[at]
        assert sums(other) != expected
    words[SUMS : SUMS + 2] = 1
    assert sums(words) == expected


def test_a_library_for_another_cpu_refuses_to_load(tmp_path):
    """The runtime's table of features agrees with LLVM's, one by one."""
    populus.build(compiled(gather()), tmp_path)
    path, host = tmp_path / "model.bin", cut_vectors.here()
    data = bytearray(path.read_bytes())
    judged = dict.fromkeys(f[1:] for f in host.features.split(",") if f[1:] in FEATURES[host.architecture])
    for name in judged:
        data[40:48] = (1 << FEATURES[host.architecture].index(name)).to_bytes(8, "little")
        path.write_bytes(sealed(bytes(data)))
        if name in host.enabled:
            populus.load_program(tmp_path)
        else:
            with pytest.raises(ProgramError, match=f"was built for a CPU with {name}, which this one lacks"):
                populus.load_program(tmp_path)
    assert judged


def test_folders_without_a_whole_program_are_refused(folder, tmp_path):
    with pytest.raises(ProgramError, match="no program that populus build made"):
        populus.load_program(tmp_path)
    (tmp_path / "libx.so").write_bytes(b"no library")
    with pytest.raises(ProgramError, match=r"libx.so: is no library that populus build made for this machine"):
        populus.load_program(tmp_path)
    (tmp_path / "libx.so").unlink()
    shutil.copy(folder / "libnet.so", tmp_path)
    with pytest.raises(ProgramError, match=r"net.bin: cannot be read"):
        populus.load_program(tmp_path)


def test_a_forked_child_runs_and_closes_what_its_parent_threads_serve(tmp_path):
    product = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    populus.build(compiled(model(product, [("x", [256, 256])], [("y", [256, 256])], {"w": normal(256, 256)})), tmp_path)
    code = (
        "import os, populus, numpy as np\n"
        f"program = populus.load_program({str(tmp_path)!r}, threads=3)\n"
        "x = {'x': np.ones((256, 256), np.float32)}\n"
        "y = program.run(x)['y']\n"
        "child = os.fork()\n"
        "equal = (program.run(x)['y'] == y).all()\n"
        "del program\n"
        "if child == 0: os._exit(0 if equal else 1)\n"
        "raise SystemExit(os.waitpid(child, 0)[1])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_library_that_was_built_again_is_not_taken_for_the_old_one(tmp_path):
    populus.build(compiled(gather()), tmp_path, embed=True)
    populus.load_program(tmp_path)
    populus.load_program(tmp_path)
    populus.build(compiled(net()), tmp_path, embed=True)
    with pytest.raises(ProgramError, match="was built again since this process loaded it"):
        populus.load_program(tmp_path)


def test_the_command_builds_and_refuses_in_one_line(tmp_path, capsys, monkeypatch):
    populus_command = command(main, capsys)
    path, out = tmp_path / "net.onnx", tmp_path / "out"
    onnx.save(net(), path)
    got = populus_command("build", path, "-o", out, "--cpu", "native")
    assert got.status == 0, got.err
    program = compiled(path)
    inputs = program.signature.random()
    same(populus.load_program(out).run(inputs), program.run(inputs))
    for words, text in (
        (["--cpu", "x86-64-v9"], "no CPU 'x86-64-v9'; did you mean 'x86-64-v"),
        (["--cc", "no-such-compiler"], "there is no C compiler 'no-such-compiler'"),
        (["--engine", "numpy"], "a library has native code"),
        (["--state", "x"], "--state x: expected INPUT=OUTPUT"),
        (["--name", "a/b"], "name 'a/b'"),
        (["--name", "m"], "name 'm'; libm.so is a library of the system"),
        (["--name", "Pthread"], "name 'Pthread'; libPthread.so is a library of the system"),
    ):
        got = populus_command("build", path, "-o", tmp_path / "no", *words)
        assert got.status == (2 if words[0] == "--state" else 1)  # a value of another form is a mistake of use
        assert text in got.err, got.err
        assert got.err.count("\n") == 1
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("populus.runtime.engine.native.frozen.link.find_spec", lambda name: None)
    got = populus_command("build", path, "-o", tmp_path / "no")
    assert "building needs a C compiler, and there is no cc, gcc, clang here; install one (Debian: apt install gcc" in got.err
    assert not (tmp_path / "no").exists()


def rounded_convolution() -> Any:
    """A convolution of 8-bit integers: its kernels use instructions that not every CPU has, and constants in layouts of their own."""
    numbers = {"sx": np.float32(0.02), "zx": np.uint8(128), "sw": np.full(8, 0.01, np.float32), "zw": np.zeros(8, np.int8)}
    weights = np.arange(8 * 4 * 9, dtype=np.int64).reshape(8, 4, 3, 3) % 251 - 125
    constants = {**{n: np.asarray(v) for n, v in numbers.items()}, "w": weights.astype(np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"], name="in"),
        helper.make_node("QLinearConv", ["q", "sx", "zx", "w", "sw", "zw", "sx", "zx"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("DequantizeLinear", ["c", "sx", "zx"], ["y"], name="out"),
    ]
    return compiled(model(nodes, [("x", [2, 4, 9, 9])], [("y", [2, 8, 9, 9])], constants))


def test_products_of_8_bit_integers_have_the_bits_of_the_native_engine(tmp_path):
    program = rounded_convolution()
    inputs = program.signature.random()
    for cpu in ("native", "x86-64-v3") if machine().architecture == "x86_64" and "avx2" in machine().enabled else ("native",):
        populus.build(program, tmp_path / cpu, cpu=cpu)
        same(populus.load_program(tmp_path / cpu, threads=2).run(inputs), program.run(inputs))


@pytest.mark.skipif(machine().architecture != "x86_64", reason="the CPUs are x86-64s")
@pytest.mark.parametrize(("first", "second"), [("alderlake", "x86-64-v3"), ("cascadelake", "x86-64-v4")])
def test_constants_are_packed_for_each_cpu_anew(first, second, tmp_path, monkeypatch):
    """Two CPUs with vectors of one width, of which the second has no dot products of bytes, and other panels."""
    if cut_vectors.machine(second).cpu != second:
        pytest.skip(f"a library for {second} does not load on this CPU")
    cut_vectors.use(first, monkeypatch)
    program = rounded_convolution()
    inputs = program.signature.random()
    expected = Session(program.module("poplar"), "native").run(inputs)  # packs the weights
    populus.build(program, tmp_path, cpu=second)
    same(populus.load_program(tmp_path).run(inputs), expected)


def test_what_needs_python_is_refused_with_its_node(tmp_path):
    strings = model([helper.make_node("Identity", ["x"], ["y"])], [("x", [2], TensorProto.STRING)], [("y", [2], TensorProto.STRING)])
    with pytest.raises(populus.ProgramError, match="'x' is strings, which need Python"):
        populus.build(populus.compile(strings), tmp_path / "s")
    sine = model([helper.make_node("Sin", ["x"], ["y"], name="wave")], [("x", [4], TensorProto.DOUBLE)], [("y", [4], TensorProto.DOUBLE)])
    with pytest.raises(populus.ProgramError, match="'wave': 'map' on float64 has no machine code yet"):
        populus.build(compiled(sine), tmp_path / "t")
    assert not list(tmp_path.glob("t/*"))
    assert set(TYPES) >= {"float32", "int64", "bool"}


@pytest.mark.parametrize(
    ("cpu", "emulated"), [("aarch64", "max"), ("riscv64", "rv64,v=true,vlen=128"), ("riscv64", "rv64,v=true,vlen=256")]
)
def test_another_architecture_has_the_bits_of_this_one(cpu, emulated, tmp_path):
    """Under emulation: the sums of NEON and of RISC-V's vectors of any length are those of a CPU here that fuses products."""
    emulator, compiler = shutil.which(f"qemu-{cpu}"), shutil.which(f"{cpu}-linux-gnu-gcc")
    if os.uname().machine != "x86_64" or emulator is None or compiler is None:
        pytest.skip(f"needs x86-64, qemu-user and gcc-{cpu}-linux-gnu")
    there, here = tmp_path / "there", tmp_path / "here"
    populus.build(compiled(net()), there, cpu=cpu)
    populus.build(compiled(net()), here)
    subprocess.run(["make", "-s", "-C", there, "example", f"CC={compiler}"], check=True, capture_output=True)
    runs = ([emulator, "-cpu", emulated, "-L", f"/usr/{cpu}-linux-gnu", there / "example"], [example(here)])
    found = [subprocess.run([*words], capture_output=True, text=True, check=True).stdout.splitlines() for words in runs]
    if machine().fused:
        assert found[0] == found[1]  # nine digits of a float are all of it
    for lines in zip(*found, strict=True):
        first, second = ([float(v) for v in line.rpartition(": ")[2].split(",")] for line in lines)
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)
    assert len(found[0]) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts a process's own peak")
def test_the_file_of_weights_is_written_without_taking_their_memory_again(tmp_path):
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", [1, 2048])], [("y", [1, 4096])], {"w": normal(2048, 4096)})
    frozen = building.frozen_program(populus.compile(made, target="host"), "native", {})
    bytes = sum(constant.nbytes for constant in frozen.form.constants)

    def peak(name):
        return next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))

    Path("/proc/self/clear_refs").write_text("5")  # the peak is what the process has now
    before = peak("VmRSS")
    write_weights(frozen, tmp_path, "net")
    assert bytes >= 32 << 20
    assert peak("VmHWM") - before < bytes / 4
