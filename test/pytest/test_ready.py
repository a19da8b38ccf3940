"""Programs that are ready: another process loads them without the compiler, and never one of another model, option or CPU."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from helpers.kept_net import X, net, written
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning
from populus.dialects.support.parser import LocatingParser
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.importer.opened import OpenedModel
from populus.program import building, ready
from populus.program.program import Program
from populus.program.ready import Place, ReadyProgram
from populus.program.watch import Watch, watching
from populus.runtime.built.library import BuiltProgram
from populus.runtime.engine.native.codegen import jit
from populus.runtime.engine.native.codegen.cpu import Machine, machine
from populus.runtime.engine.native.frozen import freeze
from populus.runtime.engine.native.frozen import keep as frozen_keep
from populus.runtime.engine.native.run.program import NativeProgram

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are kept on Linux")
KIND = "code" if machine().architecture == "x86_64" else "so"


@pytest.fixture
def path(tmp_path, monkeypatch):
    return written(tmp_path, monkeypatch)


def compiled(path, **options):
    return populus.compile(path, target="host", engine="native", cache=True, **options)


def kept(path, kind="ready"):
    ready.finish()
    return sorted((path.parent / "cache" / "populus-programs").glob(f"*.{kind}"))


def found(path, **options):
    """What `compile` finds before it compiles."""
    place = Place.of(path, {"target": "host", "engine": "native", "cache": True, **options})
    assert place is not None
    return place.find(lambda: pytest.fail("it compiles"))


def test_another_process_finds_it_and_imports_no_compiler(path):
    expected = populus.compile(path, target="host", engine="native").run(X)["y"]
    first = compiled(path).run(X)["y"]
    code = (
        "import sys, populus, numpy as np\n"
        f"program = populus.compile({str(path)!r}, target='host', engine='native', cache=True)\n"
        "y = program.run({'x': np.arange(16, dtype=np.float32).reshape(4, 4)})['y']\n"
        "print([m for m in ('xdsl', 'onnx', 'llvmlite', 'ml_dtypes') if m in sys.modules], y.tobytes().hex())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == f"[] {expected.tobytes().hex()}\n"
    assert first.tobytes() == expected.tobytes()


def test_finding_it_imports_no_module_of_files_dataclasses_and_hashes(path):
    compiled(path)
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"  # without `site`, whose packages import what they like
        "import numpy, populus\n"
        "before = set(sys.modules)\n"
        f"print(type(populus.compile({str(path)!r}, target='host', engine='native', cache=True)).__name__)\n"
        "print(*sorted(m for m in set(sys.modules) - before if not m.startswith(('_', 'populus.'))))"
    )
    said = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    found, imported = said.splitlines()
    assert found == "ReadyProgram"
    files = {"pathlib", "tempfile", "shutil", "platformdirs", "urllib.parse", "zipfile"}
    assert (files | {"inspect", "dataclasses", "hashlib", "copy"}).isdisjoint(imported.split())
    assert len(imported.split()) <= 4, imported


def test_it_is_a_program_which_compiles_for_what_only_compiling_gives(path):
    compiled(path)
    program = compiled(path)
    assert type(program) is ReadyProgram
    assert isinstance(program, Program)
    assert program._full is None
    assert program._full is None
    assert str(program.signature) == str(populus.compile(path).signature) == "(x: f32[4, 4]) -> (y: f32[4, 4])"
    assert program._full is None
    assert program.module("popops") is not None
    assert program._full is not None
    assert program.run(X)["y"].tobytes() == populus.compile(path, target="host", engine="native").run(X)["y"].tobytes()
    for inputs, message in (({}, "input 'x' is missing"), ({"x": X["x"][:3]}, "has shape")):
        with pytest.raises(PopulusError, match=message):
            compiled(path).run(inputs)


def test_a_pipeline_in_a_file_is_no_ready_program_as_the_file_may_change(path):
    passes = path.with_name("passes.txt")
    passes.write_text(str(Pipeline.named("inference")))
    compiled(path, pipeline=str(passes))
    assert kept(path) == []


def test_a_run_of_the_command_uses_what_is_kept(path, populus, monkeypatch):
    run = ("run", path, "--engine", "native", "--cache", "--outputs", path.with_name("y.npz"))
    first = populus(*run)
    assert first.status == 0, first.err
    (made,) = np.load(path.with_name("y.npz")).values()
    effort = []
    monkeypatch.setattr(Pipeline, "run", lambda *a, **k: effort.append("a pass"))
    monkeypatch.setattr(LocatingParser, "parse_module", lambda *a, **k: effort.append("a text"))
    monkeypatch.setattr(OpenedModel, "__init__", lambda *a, **k: effort.append("a model"))
    second = populus(*run, "--seed", "0")
    assert second.status == 0, second.err
    assert effort == []
    assert np.load(path.with_name("y.npz"))["y"].tobytes() == made.tobytes()
    assert second.out.splitlines()[:2] == first.out.splitlines()[:2]
    np.savez(path.with_name("short.npz"), x=X["x"][:3])
    short = populus(*run, "--inputs", path.with_name("short.npz"))
    assert (short.status, effort) == (1, [])
    assert "input 'x' has shape [3, 4], expected [4, 4]" in short.err


def test_a_changed_model_is_compiled_again(path):
    compiled(path)
    assert found(path) is not None
    stamp = path.stat()
    onnx.save(net(3.0), path)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # its time as before: the time of change tells
    assert found(path) is None
    assert compiled(path).run(X)["y"][0, 1] == 3.0


def test_changed_external_data_are_compiled_again(path):
    model = net()
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    compiled(path)
    assert found(path) is not None
    (path.parent / "w.bin").write_bytes((3 * np.eye(4, dtype=np.float32)).tobytes())
    assert found(path) is None
    assert compiled(path).run(X)["y"][0, 1] == 3.0


def test_other_options_have_other_programs(path, monkeypatch):
    compiled(path)
    for options in ({"tiles": 4}, {"dims": {"n": 2}}, {"pipeline": "inference-plain"}):
        assert found(path, **options) is None
    monkeypatch.setenv("POPULUS_NATIVE_CPU", "x86-64-v2")
    assert found(path) is None
    monkeypatch.delenv("POPULUS_NATIVE_CPU")
    monkeypatch.setattr(ready, "processor", lambda: "another CPU")
    assert found(path) is None


def test_a_file_that_may_have_changed_since_it_was_read_is_not_kept(path, monkeypatch):
    monkeypatch.setattr(ready, "SETTLED", 3600)
    assert compiled(path).run(X)["y"][0, 1] == 2.0
    assert not kept(path)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (KIND, lambda d: d[:-1] + bytes([d[-1] ^ 1])),
        ("bin", lambda d: d[:-64]),
        ("bin", lambda d: d[:300] + bytes([d[300] ^ 1]) + d[301:]),
        ("ready", lambda d: d[:-1]),
    ],
)
def test_damaged_files_are_a_miss(path, kind, damage):
    compiled(path)
    (file,) = kept(path, kind)
    content = damage(file.read_bytes())
    file.unlink()  # as a new file: the old one is mapped
    file.write_bytes(content)
    assert found(path) is None
    assert compiled(path).run(X)["y"][0, 1] == 2.0


@pytest.mark.parametrize("kind", [KIND, "bin", "ready"])
def test_a_kept_program_with_any_byte_changed_is_compiled_again(path, kind):
    compiled(path)
    assert found(path) is not None
    (file,) = kept(path, kind)
    content, stamp, rng = file.read_bytes(), file.stat(), np.random.default_rng(len(kind))
    for at in (*range(0, 256, 16), *rng.integers(0, len(content), 60).tolist(), len(content) - 1):
        file.unlink()  # as a new file: the old one is mapped
        file.write_bytes(content[:at] + bytes([content[at] ^ int(rng.integers(1, 256))]) + content[at + 1 :])
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        assert found(path) is None, at


@pytest.mark.filterwarnings("ignore:cache folder")
@pytest.mark.parametrize("kind", [KIND, "bin", "ready"])
@pytest.mark.parametrize("how", ["another user's", "for anybody to write", "a link", "another name of another user's", "a pipe"])
def test_a_program_of_which_others_put_a_part_there_is_compiled_again(path, kind, how):
    compiled(path)
    assert found(path) is not None
    (file,) = kept(path, kind)
    far = path.with_name(file.name)
    if "another user's" in how:
        if os.geteuid() != 0:
            pytest.skip("only root may give files away")
        os.chown(file, 65534, 65534)
    if how == "for anybody to write":
        file.chmod(0o666)
    elif how != "another user's":
        file.rename(far)
        {"a link": os.symlink, "a pipe": lambda far, file: os.mkfifo(file)}.get(how, os.link)(far, file)
    assert found(path) is None
    assert compiled(path).run(X)["y"][0, 1] == 2.0


@pytest.mark.parametrize("umask", [0o002, 0o077])
def test_a_kept_program_is_the_users_alone_whatever_the_umask(path, umask):
    before = os.umask(umask)
    try:
        compiled(path)
    finally:
        os.umask(before)
    assert found(path) is not None
    assert all(file.stat().st_mode & 0o077 == 0 for kind in (KIND, "bin", "ready") for file in kept(path, kind))


def test_a_folder_that_others_may_write_is_not_used(path):
    compiled(path)
    kept(path)[0].parent.chmod(0o777)
    with pytest.warns(PopulusWarning, match="may be written by others"):
        assert found(path) is None


@pytest.fixture
def unchecked(monkeypatch):
    """A process as users have it: tests check launches, for which nothing is kept by default."""
    for name in ("POPULUS_CHECK", "POPULUS_GUARD"):
        monkeypatch.delenv(name, raising=False)


def test_a_small_program_is_kept_by_default_and_all_its_runs_have_the_same_bits(path, unchecked):
    plain = populus.compile(path, target="host", cache=False)
    assert not kept(path)
    expected = plain.run(X)["y"].tobytes()
    for _ in range(2):
        program = populus.compile(path, target="host")
        assert type(program) is ReadyProgram
        assert [program.run(X)["y"].tobytes() for _ in range(3)] == [expected] * 3
    populus.build(plain, path.parent / "built")
    assert populus.load_program(path.parent / "built").run(X)["y"].tobytes() == expected
    assert len(kept(path)) == 1


def test_the_first_process_compiles_no_kernel_twice_and_starts_no_other_process(path, unchecked, monkeypatch):
    made, code = [], jit.object_code
    monkeypatch.setattr(jit, "object_code", lambda text, *rest: made.append(text) or code(text, *rest))
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("a compiler"))
    populus.compile(path, target="host").run(X)
    assert len(kept(path)) == 1
    assert len(set(made)) == len(made)
    kernels = len(made)
    onnx.save(net(3.0), path.with_name("other.onnx"))
    populus.compile(path.with_name("other.onnx"), target="host").run(X)
    assert len(kept(path)) == 2
    assert len(made) == kernels


def test_the_first_process_binds_a_program_once_and_keeps_it_after_its_first_result(path, unchecked, monkeypatch):
    events, load, keep = [], freeze.FreezingProgram.load, Place.keep
    monkeypatch.setattr(NativeProgram, "load", lambda self: pytest.fail("the program is bound again"))
    monkeypatch.setattr(freeze.FreezingProgram, "load", lambda self: events.append("bound") or load(self))
    monkeypatch.setattr(Place, "keep", lambda *given: events.append(threading.current_thread().name) or keep(*given))
    program = populus.compile(path, target="host")
    assert (events, kept(path)) == (["bound"], [])
    for _ in range(3):
        program.run(X)
    assert len(kept(path)) == 1
    assert events == ["bound", "populus-keep"]


def test_a_run_of_a_kept_program_calls_few_functions(path):
    compiled(path)
    program, calls = compiled(path), []
    program.run(X)
    sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        program.run(X)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 12, calls


def test_a_program_that_is_asked_for_is_kept_at_once(path):
    compiled(path)
    assert found(path) is not None


@pytest.mark.parametrize("at", range(3))
def test_a_process_that_ends_while_it_keeps_a_program_leaves_no_part_of_it(path, unchecked, monkeypatch, at):
    left, replace = [at], pathlib.Path.replace

    def stopped(self, target):
        if not left[0]:
            raise OSError("the process ends")
        left[0] -= 1
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "replace", stopped)
        populus.compile(path, target="host").run(X)
        names = [name.name for name in kept(path)]
    assert len(names) == (at == 2)
    assert (Place.of(path, {"target": "host"}).find(pytest.fail) is None) == (at < 2)
    assert populus.compile(path, target="host").run(X)["y"][0, 1] == 2.0
    assert len(kept(path)) == 1


def test_code_that_needs_a_linker_is_kept_as_a_library_of_the_c_compiler(path, unchecked, monkeypatch):
    if shutil.which("cc") is None:
        pytest.skip("without a C compiler it is not kept")
    monkeypatch.setattr(frozen_keep, "flat", lambda *given: None)
    first = populus.compile(path, target="host").run(X)["y"]
    assert len(kept(path, "so")) == 1
    second = populus.compile(path, target="host")
    assert type(second._built) is BuiltProgram
    assert second.run(X)["y"].tobytes() == first.tobytes()


def test_a_double_that_a_kept_program_does_not_hold_is_refused(path, unchecked):
    x, y = (helper.make_tensor_value_info(n, TensorProto.DOUBLE, [4]) for n in "xy")
    onnx.save(helper.make_model(helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])), path)
    for _ in range(2):
        program = populus.compile(path, target="gc200", narrow=True)
        assert program._built.inputs["x"][1] == np.float64
        assert program.run({"x": np.array([-3.5, 0, np.inf, -(2.0**100)])})["y"].tolist() == [3.5, 0, np.inf, 2.0**100]
        with pytest.raises(PopulusError, match="x"):
            program.run({"x": np.array([-3, 0, 5, 1e300])})
        assert len(kept(path)) == 1


def test_by_default_nothing_is_kept_that_takes_long_to_write(path, unchecked, monkeypatch):
    monkeypatch.setattr(building, "MOST", 63)
    populus.compile(path, target="host").run(X)
    assert not kept(path)


def test_by_default_products_of_halves_are_not_kept_where_tile_registers_compute_them(path, unchecked, monkeypatch):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, [4, 4]) for n in "xy")
    w = numpy_helper.from_array(np.eye(4, dtype=np.float16), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with monkeypatch.context() as patched:
        patched.setattr(Machine, "tiles", True)
        populus.compile(path, target="host").run({"x": X["x"].astype(np.float16)})
        assert not kept(path)
    populus.compile(path, target="host").run({"x": X["x"].astype(np.float16)})
    assert kept(path)


def test_a_process_that_checks_its_launches_keeps_nothing_by_default(path, monkeypatch):
    monkeypatch.setenv("POPULUS_CHECK", "1")
    assert Place.of(path, {"target": "host"}) is None
    assert Place.of(path, {"target": "host", "cache": True}) is not None
    monkeypatch.setenv("POPULUS_CHECK", "0")
    assert Place.of(path, {"target": "host"}) is not None
    assert Place.of(path, {"target": "host", "cache": False}) is None


def test_a_process_whose_programs_are_watched_takes_no_kept_program(path):
    compiled(path)
    assert found(path) is not None
    with watching(Watch()) as watch:
        program = compiled(path)
        program.run(X)
        assert watch.runs == {program: 1}


def test_the_command_shows_and_clears_what_is_kept(path, populus):
    compiled(path)
    shown = populus("cache")
    assert (shown.status, shown.err) == (0, "")
    assert "programs " in shown.out
    assert "populus-programs: 4 files, " in shown.out  # the library, its weights, their entry, and the text
    far = path.with_name("far")
    far.write_text("kept")
    (path.parent / "cache" / "populus-programs" / "link").symlink_to(far)
    cleared = populus("cache", "clear")
    assert cleared.out.count(": 0 files, 0.0 of at most ") == 2, cleared.out
    assert found(path) is None
    assert far.read_text() == "kept"


def test_for_another_engine_or_without_the_compiler_that_its_code_needs_nothing_is_kept(path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "")
        patched.setattr("populus.runtime.engine.native.frozen.link.find_spec", lambda name: None)
        patched.setattr(frozen_keep, "flat", lambda *given: None)
        assert compiled(path).run(X)["y"][0, 1] == 2.0
    assert not kept(path)
    for engine in ("numpy", "strict"):
        populus.compile(path, target="host", engine=engine, cache=True).run(X)
    assert not kept(path)
