"""`compile(apart=True)`: a child compiles, this process runs the built form, and all else is as if it had compiled itself."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import populus
from helpers.kept_net import X, net, written
from populus.dialects.support import child as children
from populus.dialects.support.child import ChildEndedError, in_child
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning, ProgramError
from populus.program import apart, handed, ready
from populus.program.ready import ReadyProgram
from populus.program.watch import Watch, watching

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a child compiles on Linux")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """A process as users have it: nothing is checked, and the threads of pytest's workers hold no lock of ours."""
    for name in ("POPULUS_CHECK", "POPULUS_GUARD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(apart, "why_not", lambda: None)


@pytest.fixture
def path(tmp_path, monkeypatch):
    return written(tmp_path, monkeypatch)


def kept(path):
    ready.finish()
    return sorted((path.parent / "cache" / "populus-programs").glob("*.*"))


def said(code, *arguments, **variables):
    """What a process of its own prints: one without the compiler, and without pytest's threads."""
    plain = {name: value for name, value in os.environ.items() if name not in ("POPULUS_CHECK", "POPULUS_GUARD")} | variables
    words = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=plain)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


ALONE = """
import os, sys
import numpy as np
import populus
folders = [os.environ["POPULUS_CACHE"], os.environ["TMPDIR"]]
listed = lambda: [sorted(os.listdir(folder)) if os.path.exists(folder) else [] for folder in folders]
before, files = listed(), len(os.listdir("/proc/self/fd"))
program = populus.compile(sys.argv[1], target="host", cache=False, apart=True)
y = program.run({"x": np.arange(16, dtype=np.float32).reshape(4, 4)})["y"]
print([m for m in ("xdsl", "onnx", "llvmlite", "ml_dtypes", "tempfile") if m in sys.modules])
print([new for old, new in zip(before, listed()) if set(new) - set(old) - {"populus-native", "cache"}])
print(len(os.listdir("/proc/self/fd")) - files)  # a map has its file open
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child")
print(y.tobytes().hex())
"""


def test_a_process_runs_what_its_child_compiled_imports_no_compiler_and_leaves_nothing(path):
    expected = populus.compile(path, target="host", cache=False).run(X)["y"]
    assert said(ALONE, path, TMPDIR=str(path.parent)).splitlines() == ["[]", "[]", "1", "no child", expected.tobytes().hex()]


BITS = """
import sys, warnings
import numpy as np
from onnx.backend.test.loader import load_model_tests
import populus
from populus.program.ready import is_ready
warnings.simplefilter("ignore")  # of cases that are compiled here
cases = [case.model for case in sorted(load_model_tests(kind="node"), key=lambda case: case.name) if case.model is not None]
handed = compared = 0
for model in cases[:: int(sys.argv[1])]:
    try:
        plain = populus.compile(model, target="host", threads=1)
        inputs = plain.signature.random(1)
        expected = plain.run(inputs)
    except populus.ProgramError:
        continue
    program = populus.compile(model, target="host", threads=1, apart=True)
    found = program.run(inputs)
    handed, compared = handed + is_ready(program), compared + 1
    for name, array in expected.items():
        ours = np.asarray(found[name])
        assert ours.dtype == array.dtype and (array.dtype.hasobject or ours.tobytes() == array.tobytes()), (model.graph.name, name)
print(handed, compared)
"""


def test_node_tests_have_equal_bits_both_ways():
    handed, compared = map(int, said(BITS, 37).split())
    assert compared >= 40
    assert handed >= 0.8 * compared, (handed, compared)


def test_a_program_that_is_handed_over_is_kept_as_one_that_was_compiled_here(path):
    program = populus.compile(path, target="host", apart=True)
    assert type(program) is ReadyProgram
    assert not kept(path)
    first = program.run(X)["y"]
    names = kept(path)
    assert [name.suffix for name in names] == [".bin", ".code", ".ready"]
    found = ready.Place.of(path, {"target": "host"}).find(lambda: pytest.fail("it compiles"))
    assert found.run(X)["y"].tobytes() == first.tobytes()
    asked = populus.compile(path, target="host", apart=True, cache=path.parent / "other")
    assert len(list((path.parent / "other").glob("*.ready"))) == 1
    assert asked.run(X)["y"].tobytes() == first.tobytes()


def test_a_program_that_is_kept_needs_no_child(path, monkeypatch):
    populus.compile(path, target="host", cache=True)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a child"))
    assert populus.compile(path, target="host", apart=True).run(X)["y"][0, 1] == 2.0


@pytest.mark.parametrize("given", [net(), net().SerializeToString()], ids=["a model in memory", "bytes"])
def test_a_model_without_a_file_is_compiled_apart(given):
    program = populus.compile(given, apart=True)
    assert type(program) is ReadyProgram
    assert program.run(X)["y"][0, 1] == 2.0


def test_what_only_compiling_gives_is_compiled_here_from_the_same_file(path):
    program = populus.compile(path, target="host", cache=False, apart=True)
    assert str(program.signature) == "(x: f32[4, 4]) -> (y: f32[4, 4])"
    assert program._full is None
    assert program.module("popops") is not None
    other = populus.compile(path, target="host", cache=False, apart=True)
    onnx.save(net(3.0), path)
    with pytest.raises(PopulusError, match=f"{path}: the file has changed since it was read; compile it again"):
        other.module("popops")
    with pytest.raises(PopulusError, match="the file has changed"):
        other.run({"x": X["x"][:3]})  # whose mistake the model would word
    assert [p.run(X)["y"][0, 1] for p in (program, other)] == [2.0, 2.0]


def test_a_kept_program_whose_file_changes_later_is_no_program_of_the_new_file(path):
    populus.compile(path, target="host", cache=True)
    program = populus.compile(path, target="host", cache=True)
    onnx.save(net(3.0), path)
    with pytest.raises(PopulusError, match="the file has changed"):
        program.module("popops")
    assert program.run(X)["y"][0, 1] == 2.0


@pytest.mark.parametrize("how", ["the option", "loaded before"])
def test_ops_that_were_loaded_here_are_compiled_there(tmp_path, how):
    made = tmp_path / "twice.py"
    made.write_text(OP)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 4]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="com.example")], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)], ir_version=8)
    if how == "loaded before":
        populus.load(made)
    program = populus.compile(model, apart=True, load=[made] if how == "the option" else [])
    assert type(program) is ReadyProgram
    assert program.run(X)["y"].tolist() == (2 * X["x"]).tolist()
    assert program._full is None


OP = """
from typing import ClassVar
from xdsl.dialects.builtin import f32
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from populus.dialects.support.constraints import tensors
from populus.dialects.popart.base import UnaryOp

@irdl_op_definition
class TwiceOp(UnaryOp):
    "`y = 2 x`."
    name = "example.twice"
    ONNX: ClassVar = ("com.example", "Twice", 1)
    T: ClassVar = tensors("T", f32)
    x = operand_def(T)
    y = result_def(T)
    def forward(self, x): return x + x
"""

REFUSED = [
    ({"engine": "numpy"}, "built programs run on the native engine"),
    ({"engine": "strict", "sample": 2}, "built programs run on the native engine"),
    ({"level": "popops"}, "built programs run on the level poplar, not on popops"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_what_a_child_cannot_hand_over_is_compiled_here_with_one_line_that_says_why(path, options, why):
    with pytest.warns(PopulusWarning) as given:
        program = populus.compile(path, apart=True, **options)
    assert [str(w.message) for w in given] == [f"{path}: compiled in this process, not apart: {why}"]
    assert given[0].filename == __file__
    assert program.run(X)["y"][0, 1] == 2.0


def test_a_program_of_python_and_one_that_is_checked_or_watched_are_compiled_here(path, monkeypatch):
    text = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    node, y = helper.make_node("Identity", ["x"], ["y"]), helper.make_tensor_value_info("y", TensorProto.STRING, [2])
    with pytest.warns(PopulusWarning, match="not apart: 'x' is strings, which need Python"):
        strings = populus.compile(helper.make_model(helper.make_graph([node], "g", [text], [y])), apart=True)
    assert strings.run({"x": np.array(["a", "b"])})["y"].tolist() == ["a", "b"]
    with pytest.warns(PopulusWarning, match="a watch counts"), watching(Watch()):
        populus.compile(path, apart=True)
    monkeypatch.setenv("POPULUS_CHECK", "1")
    with pytest.warns(PopulusWarning, match="POPULUS_CHECK and POPULUS_GUARD"):
        populus.compile(path, apart=True)


def test_other_threads_and_other_systems_are_reasons_to_compile_here(path, monkeypatch):
    monkeypatch.undo()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert "other threads" in (children.why_not() or "")
    finally:
        stop.set()
        thread.join()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert children.why_not() == "this system is not Linux"


def test_a_program_that_is_being_kept_is_kept_before_there_is_a_child(path, monkeypatch):
    first = path.with_name("first.onnx")
    onnx.save(net(3.0), first)
    populus.compile(first, target="host").run(X)
    fork, alive = os.fork, []
    monkeypatch.setattr(os, "fork", lambda: alive.extend(t.name for t in threading.enumerate() if t.name == "populus-keep") or fork())
    assert populus.compile(path, target="host", apart=True).run(X)["y"][0, 1] == 2.0
    assert alive == []


def test_without_a_process_or_a_map_for_it_the_program_is_compiled_here(path, monkeypatch):
    def refused(*_):
        raise OSError(11, "Resource temporarily unavailable")

    for name, why in (("os.fork", "the system starts no other"), ("populus.runtime.built.kept.load_kept", "cannot be loaded")):
        with monkeypatch.context() as patched:
            patched.setattr(name, refused)
            with pytest.warns(PopulusWarning, match=f"{why}: Resource temporarily unavailable"):
                program = populus.compile(path, cache=False, apart=True)
        assert program.run(X)["y"][0, 1] == 2.0


def test_gradients_are_compiled_here_and_say_so(path):
    with pytest.warns(PopulusWarning, match="not apart: only programs of `populus.compile`"):
        populus.vjp(path, wrt=["x"], apart=True)
    with pytest.raises(ProgramError, match="`apart` is a str; expected True or False"):
        populus.compile(path, apart="yes")


@pytest.mark.parametrize("wrong", ["a node", "no file", "a target", "the machine"])
def test_an_error_of_the_child_is_that_of_this_process(path, wrong):
    options = {"a target": {"target": "gc100"}, "the machine": {"target": "gc2, tile_bytes=64", "tiles": 2}}.get(wrong, {})
    if wrong == "a node":
        model = net()
        model.graph.node[1].op_type = "Relux"
        onnx.save(model, path)
    at = path.with_name("nett.onnx") if wrong == "no file" else path
    errors = []
    for there in (False, True):
        with pytest.raises(PopulusError) as raised:
            populus.compile(at, apart=there, cache=False, **options)
        errors.append(raised.value)
    assert (type(errors[0]), str(errors[0])) == (type(errors[1]), str(errors[1]))
    assert "\n" not in str(errors[1]) and not hasattr(errors[1], "__notes__")


def test_a_program_that_never_runs_leaves_no_file_open(path):
    def opened():
        return len(os.listdir("/proc/self/fd"))

    def compiled():
        populus.compile(path, target="host", apart=True)
        gc.collect()
        return opened()

    assert compiled() == compiled()


def test_what_says_that_threads_and_forks_do_not_mix_is_not_said(monkeypatch):
    """A child calls no code that has threads. Python 3.12 warns, and so does JAX."""

    def fork():
        warnings.warn("os.fork() was called. os.fork() is incompatible with multithreaded code", RuntimeWarning, stacklevel=1)
        return real()

    real = os.fork
    monkeypatch.setattr(os, "fork", fork)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_child(lambda tell: 5, print) == 5


def test_a_warning_of_the_child_is_given_here_as_the_filters_say():
    def work(tell):
        for _ in range(2):
            warnings.warn("of the child", PopulusWarning, stacklevel=1)
        return 5

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("default")
        assert in_child(work, print) == 5
    assert [(str(w.message), w.filename) for w in given] == [("of the child", __file__)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PopulusWarning, match="of the child"):
            in_child(work, print)


def test_a_fault_of_ours_in_a_child_has_its_traceback():
    def work(tell):
        assert not tell, "a fault"

    with pytest.raises(AssertionError, match="a fault") as raised:
        in_child(work, print)
    assert "in work" in raised.value.__notes__[0]

    class OwnError(Exception):  # which cannot be pickled
        pass

    def other(tell):
        raise OwnError("another")

    with pytest.raises(RuntimeError, match="OwnError: another"):
        in_child(other, print)


def test_what_a_child_prints_is_printed_once_and_before_what_follows():
    code = """
from populus.dialects.support.child import in_child
print("before")
in_child(lambda tell: print("child"), print)
print("after")
"""
    assert said(code) == "before\nchild\nafter\n"


def test_passes_of_the_child_are_told_here(path):
    told = []
    populus.compile(path, cache=False, apart=True, progress=lambda number, name: told.append((number, name, os.getpid())))
    here = []
    populus.compile(path, cache=False, progress=lambda number, name: here.append((number, name, os.getpid())))
    assert told == here


def test_a_child_that_is_killed_is_one_line_and_leaves_nothing_to_wait_for(path):
    def kill(*_):
        (child,) = children_of(os.getpid())
        os.kill(child, signal.SIGKILL)

    with pytest.raises(PopulusError) as raised:
        populus.compile(path, apart=True, progress=kill)
    assert str(raised.value) == f"{path}: the process that compiled it ended by SIGKILL, as for lack of memory"
    assert children_of(os.getpid()) == []
    assert not kept(path)
    with pytest.raises(ChildEndedError, match="with status 3"):
        in_child(lambda tell: os._exit(3), print)
    assert populus.compile(path, apart=True).run(X)["y"][0, 1] == 2.0


def children_of(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(number) for number in file.read().split()]


@pytest.fixture
def interruptible():
    """Ctrl-C interrupts: a shell starts what it runs in the background without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_ends_the_child(path):
    began = []

    def interrupt(*_):
        began.extend(children_of(os.getpid()))
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        populus.compile(path, cache=False, apart=True, progress=interrupt)
    assert began
    assert children_of(os.getpid()) == []
    assert not os.path.exists(f"/proc/{began[0]}")


def test_a_child_ends_with_the_process_that_it_compiles_for():
    code = """
import os, sys, time
from populus.dialects.support.child import in_child
def work(tell):
    tell(os.getpid())
    time.sleep(600)
in_child(work, lambda child: print(child, flush=True))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        process.kill()
    for _ in range(200):
        with suppress(OSError):
            if "State:\tZ" not in Path(f"/proc/{child}/status").read_text():
                time.sleep(0.05)
                continue
        return
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child went on")


def test_pages_that_two_constants_share_stay_until_both_are_written():
    memory = np.arange(1 << 16)
    lone, whole, part = np.ones(1 << 16, np.int64), memory, memory[4096:8192]
    give_back = handed._giving_back([lone, whole, part])
    for array in (lone, whole, part):
        give_back(array)
    assert whole[-1] == (1 << 16) - 1 and part[0] == 4096
    assert not lone[4096:-4096].any()  # the system has its pages
