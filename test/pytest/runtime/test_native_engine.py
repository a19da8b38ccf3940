"""The native engine against the numpy engine: the wheel's small models, every codelet, the object cache, a CPU without vectors."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import platform
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from xdsl.dialects.builtin import bf16

import populus
from benchmarks import models
from helpers.command import Command
from helpers.formulas import PAIRS, SPECIAL, agrees, mapped, one_op
from helpers.op_cases import Case as OpCase
from helpers.op_cases import cases as op_cases
from helpers.wheel_models import LEFT_OUT, Case, cases
from populus.dialects.expr import Arg, call
from populus.dialects.support import disk_cache
from populus.dialects.support.diagnostics import verify
from populus.dialects.support.element_types import dtype_of, element_of
from populus.dialects.support.package_hash import FOLDERS, hash_of_sources
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.runtime.built.steps import SHARED
from populus.runtime.engine.native.codegen import jit, object_cache
from populus.runtime.engine.native.codegen.cpu import VARIABLE, machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library, library
from populus.runtime.engine.native.kernels import circular_formulas
from populus.runtime.engine.native.kernels.copies import copy
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import has_form
from populus.runtime.engine.native.run import image, step_table
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.engine.native.run.step_loop import WORKER
from populus.runtime.engine.program import LoadedProgram
from populus.runtime.session import Session
from populus.runtime.tape import tape_of
from populus.runtime.tasks import make_tasks

OPS = list(op_cases())
TOLERANCES = {1: 0.13, 2: 1e-2, 4: 1e-5, 8: 1e-12}  # by bytes of an element: sums have another order, exp another polynomial
RUN = [case for case in cases() if case.name not in LEFT_OUT]


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.name)
def test_a_model_gives_what_the_numpy_engine_gives(case: Case):
    module = populus.compile(case.path, target="host", tiles=16, dims=case.dims())
    expected = module.run(case.inputs())
    program = populus.compile(case.path, target="host", tiles=16, dims=case.dims(), engine="native")
    assert not program.session.fallbacks
    found = program.run(case.inputs())
    agrees(found, expected)
    again = program.run(case.inputs())
    for name, array in found.items():
        np.testing.assert_array_equal(again[name], array)


def test_a_session_says_what_it_leaves_to_numpy():
    program = populus.compile(one_op("Sin", [draw(40, dtype="f8")]), target="host", tiles=16, engine="native")
    assert program.session.fallbacks == {"map": 1}
    assert Session(program.module("poplar"), "numpy").fallbacks == {}


class Planned(NativeProgram):
    """A program that is bound, and not compiled: it knows what it leaves to NumPy."""

    def load(self):
        LoadedProgram.load(self)


NETS = {
    "lstm": partial(models.lstm, 4, 8, 8),
    "mlp": models.mlp,
    "conv_net": models.conv_net,
    "mixed": partial(models.mixed, 60),
    "transformer": partial(models.transformer, sequence=8, hidden=32, heads=2, feed_forward=64),
    "transformer in f16": lambda: models.half(models.transformer(sequence=8, hidden=32, heads=2, feed_forward=64)),
    "conv_net in f16": lambda: models.half(models.conv_net()),
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("target", ["host", "gc200"])
def test_no_net_of_the_benchmarks_leaves_anything_to_numpy(net, target):
    [graph] = populus.compile(NETS[net](), target=target, tiles=64, engine="numpy").module("poplar").body.block.ops
    assert not Planned(graph, threads=1).fallbacks


def test_populus_run_says_what_runs_on_numpy(populus: Command, tmp_path: Path):
    paths = {c.name: c.path for c in RUN}
    onnx.save(one_op("Sin", [draw(40, dtype="f8")]), tmp_path / "sin.onnx")
    outcome = populus("run", tmp_path / "sin.onnx", "--tiles", "16", "--engine", "native")
    assert outcome.status == 0, outcome.err
    assert "families without native code, run by NumPy: map 1" in outcome.out
    outcome = populus("run", paths["test_Linear"], "--tiles", "16", "--engine", "native")
    assert outcome.status == 0 and "NumPy" not in outcome.out


# -- formulas ----------------------------------------------------------------------------------------------------------


FORMULAS = {
    "f32": ["add(_1, _2)", "sub(_1, _2)", "mul(_1, _2)", "divide(_1, _2)", "max(_1, _2)", "min(_1, _2)", "max(_1, 0)", "min(0.5, _1)",
            "abs(_1)", "neg(_1)", "sqrt(_1)", "floor(_1)", "ceil(_1)", "trunc(_1)", "nearbyint(_1)", "signum(_1)", "inv(_1)", "rsqrt(_1)",
            "square(_1)", "select(_1, _2, gt(_1, _2))", "erf(_1)"],
    "i1": ["lt(_1, _2)", "lte(_1, _2)", "gt(_1, _2)", "gte(_1, _2)", "equal(_1, _2)", "isnan(_1)", "isinf(_1)", "isfinite(_1)",
           "and(lt(_1, _2), not(isnan(_1)))", "xor(lt(_1, 0), or(isinf(_2), isnan(_1)))"],
}  # fmt: skip


@pytest.mark.parametrize(("expression", "out"), [(e, out) for out, es in FORMULAS.items() for e in es])
@pytest.mark.parametrize("cpu", [None, "x86-64"])
def test_a_formula_gives_the_bits_that_numpy_gives(expression, out, cpu):
    if cpu is not None and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the CPU without vectors is an x86-64")
    arrays = PAIRS if "_2" in expression else [SPECIAL]
    found, expected = mapped(expression, *arrays, out=out, cpu=cpu), mapped(expression, *arrays, out=out, engine="numpy")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.float32, np.float64])
def test_a_copy_of_an_element_type_is_the_type(dtype):
    """Arrays of files and of other processes have copies of NumPy's types: equal, of the same hash, and `isbuiltin` is 0."""
    copied = np.dtype(dtype).newbyteorder("<")
    assert (copied.isbuiltin, copied == dtype, hash(copied) == hash(np.dtype(dtype))) == (0, True, True)
    tape_of.cache_clear()
    assert has_form(tape_of(call("add", Arg(1), Arg(2)), (copied, copied)))  # which is kept, and served to all that ask for the type
    a, name = np.arange(36, dtype=dtype), str(element_of(copied))
    assert mapped("add(_1, _2)", a, a, out=name).tolist() == (a + a).tolist()


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integers_wrap_around_and_compare_by_their_sign(dtype):
    info = np.iinfo(dtype)
    a, b = (x.ravel() for x in np.meshgrid(*[np.array([info.min, info.max, 0, 1, 2, 100], dtype)] * 2))
    name = str(element_of(np.dtype(dtype)))
    for expression in (
        "add(_1, _2)",
        "sub(_1, _2)",
        "mul(_1, _2)",
        "max(_1, _2)",
        "min(_1, _2)",
        "bitwise_xor(_1, _2)",
        "bitwise_not(_1)",
        "divide(_1, _2)",
        "rem(_1, _2)",
        "shift_left(_1, _2)",
        "shift_right(_1, _2)",
        "signum(_1)",
        "neg(_1)",
        "abs(_1)",
        "inv(_1)",
        "select(_1, _2, lt(_1, _2))",
    ):
        np.testing.assert_array_equal(mapped(expression, a, b, out=name), mapped(expression, a, b, out=name, engine="numpy"))


HALVES = (np.dtype(np.float16), dtype_of(bf16))


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("cpu", [None, "x86-64"])
def test_floats_of_16_bits_are_computed_in_f32_and_rounded_to_the_nearest(half, cpu):
    if cpu is not None and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the CPU without vectors is an x86-64")
    name = str(element_of(half))
    every = np.arange(1 << 16, dtype=np.uint16).view(half)
    a, b = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16).view(half), every
    wide = every.astype(np.float32)
    between = np.concatenate([np.nextafter(wide, side) for side in (np.float32(np.inf), np.float32(-np.inf))])
    with np.errstate(all="ignore"):
        halfway = ((wide[:-1].astype("f8") + wide[1:]) / 2).astype("f4")
    programs = [
        ("cast(_1, f32)", [every], "f32"),
        (f"cast(_1, {name})", [np.concatenate([wide, between, halfway, SPECIAL])], name),
        ("add(mul(_1, _2), _1)", [a, b], name),
        ("max(_1, _2)", [a, b], name),
        ("select(_1, neg(_2), lt(_1, _2))", [a, b], name),
        ("sqrt(abs(_1))", [a], name),
        ("divide(_1, 3.0)", [a], name),
        ("cast(_1, f64)", [a], "f64"),
        (f"cast(_1, {name})", [np.arange(-128, 128).astype("i1")], name),
    ]
    for expression, arrays, out in programs:
        found, expected = mapped(expression, *arrays, out=out, cpu=cpu), mapped(expression, *arrays, out=out, engine="numpy")
        with np.errstate(all="ignore"):  # of signalling NaNs
            np.testing.assert_array_equal(found.astype("f8"), expected.astype("f8"), err_msg=expression)


@pytest.mark.parametrize(
    ("function", "low", "high"), [("exp", -104, 89), ("tanh", -10, 10), ("log", 0, 1e6), ("log", 0, 2), ("log", 0, 1e-38)]
)
@pytest.mark.parametrize("cpu", [None, "x86-64"])
def test_exp_tanh_and_log_are_within_4_units_in_the_last_place(function, low, high, cpu):
    if cpu is not None and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the CPU without vectors is an x86-64")
    x = np.concatenate([np.random.default_rng(0).uniform(low, high, 100_003).astype("f4"), SPECIAL])
    found = mapped(f"{function}(_1)", x, cpu=cpu)
    with np.errstate(all="ignore"):
        exact = getattr(np, function)(x.astype("f8"))
        rounded = exact.astype("f4")
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(found[special], rounded[special])
    unit = np.spacing(np.abs(rounded[~special]))
    assert (np.abs(found[~special] - exact[~special]) / unit).max() <= 4


@pytest.mark.parametrize(
    ("function", "low", "high"), [("exp", -745, 709), ("tanh", -25, 25), ("tanh", -0.7, 0.7), ("log", 0, 1e6), ("log", 0, 2)]
)
@pytest.mark.parametrize("cpu", [None, "x86-64"])
def test_functions_of_f64_are_within_2_units_in_the_last_place(function, low, high, cpu):
    if cpu is not None and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the CPU without vectors is an x86-64")
    x = np.concatenate([np.random.default_rng(0).uniform(low, high, 30_003), SPECIAL, [5e-324, 1e-310, 1e308, 709.79, -745.2]])
    found = mapped(f"{function}(_1)", x, out="f64", cpu=cpu)
    with np.errstate(all="ignore"):
        exact = getattr(np, function)(x.astype(np.longdouble))
        rounded = exact.astype("f8")
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(found[special], rounded[special])
    unit = np.spacing(np.abs(rounded[~special])).astype(np.longdouble)
    assert (np.abs(found[~special] - exact[~special]) / unit).max() <= 2


@pytest.mark.parametrize("cpu", [None, "x86-64"])
def test_a_power_is_the_nearest_number_with_c_s_special_cases(cpu):
    if cpu is not None and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the CPU without vectors is an x86-64")
    g = np.random.default_rng(0)
    a = np.concatenate([np.exp(g.uniform(-80, 80, 30_000)), PAIRS[0], -g.integers(1, 9, 500)]).astype("f4")
    b = np.concatenate([g.uniform(-3, 3, 30_000), PAIRS[1], g.integers(-9, 9, 500) / 2]).astype("f4")
    found = mapped("pow(_1, _2)", a, b, cpu=cpu)
    with np.errstate(all="ignore"):
        exact = np.power(a.astype("f8"), b.astype("f8"))
        rounded = exact.astype("f4")
    special = ~np.isfinite(rounded) | (rounded == 0)
    np.testing.assert_array_equal(found[special], rounded[special])
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(rounded)[~np.isnan(rounded)])
    assert (np.abs(found[~special] - exact[~special]) / np.spacing(np.abs(rounded[~special]))).max() <= 0.51


NEAREST = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "expm1", "log1p", "sin", "sinh", "tan"]
NUMPYS = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh"}


@pytest.mark.parametrize("function", NEAREST)
def test_a_function_of_f32_is_the_nearest_number(function):
    g = np.random.default_rng(0)
    sizes = np.exp(g.uniform(-60, 88, 20_000)) * g.choice([-1, 1], 20_000)
    turns = np.arange(1, 2000) * np.pi / 2
    x = np.concatenate([sizes, turns, g.uniform(-1.1, 1.1, 10_000), np.nextafter(np.float32(1), [0, 2]), SPECIAL]).astype("f4")
    found = mapped(f"{function}(_1)", x)
    with np.errstate(all="ignore"):
        exact = getattr(np, NUMPYS.get(function, function))(x.astype(np.longdouble))
        rounded = exact.astype("f4")
    special = ~np.isfinite(rounded) | (rounded == 0)
    np.testing.assert_array_equal(found[special], rounded[special])
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(rounded)[~np.isnan(rounded)])
    assert (np.abs(found[~special] - exact[~special]) / np.spacing(np.abs(rounded[~special]))).max() <= 0.501


def test_the_angle_of_a_point_is_the_nearest_number():
    g = np.random.default_rng(0)
    y, x = (np.concatenate([g.normal(size=20_000) * 10.0 ** g.integers(-30, 30, 20_000), p]).astype("f4") for p in PAIRS)
    found = mapped("atan2(_1, _2)", y, x)
    exact = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    rounded = exact.astype("f4")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    known = ~np.isnan(rounded)
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(rounded)[known])
    assert (np.abs(found[known] - exact[known]) / np.spacing(np.abs(rounded[known]))).max() <= 0.501


def test_two_over_pi_has_the_bits_that_the_reduction_needs():
    one = 1 << 400

    def inverse_tangent(n):
        total, term, k, sign = one // n, one // n, 1, 1
        while term:
            term, k, sign = term // (n * n), k + 2, -sign
            total += sign * (term // k)
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    assert (2 << 640) // pi == circular_formulas.TWO_OVER_PI


@pytest.mark.parametrize("source", ["f4", "f8"])
@pytest.mark.parametrize("to", ["i4", "i8"])
def test_a_conversion_to_integers_rounds_towards_zero_and_has_one_value_beyond_the_range(source, to):
    g, limits = np.random.default_rng(0), np.iinfo(to)
    edges = [2147483647.5, -2147483648.5, -2147483649.0, 2147483648.0, 9.3e18, -9.3e18, -9223372036854775808.0, -0.9, 0.9]
    x = np.concatenate([g.normal(size=1000) * 10.0 ** g.integers(-3, 22, 1000), edges, SPECIAL]).astype(source)
    with np.errstate(all="ignore"):
        whole = np.trunc(x.astype("f8"))
    inside = (whole >= float(limits.min)) & (whole < -float(limits.min))
    found = mapped(f"cast(_1, {element_of(np.dtype(to))})", x, out=str(element_of(np.dtype(to))))
    np.testing.assert_array_equal(found[inside], x[inside].astype(to))
    assert (found[~inside] == limits.min).all()


# -- other CPUs, the cache ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the CPU without vectors is an x86-64")
@pytest.mark.parametrize(
    "name", ["test_Conv2d", "test_Conv2d_depthwise_strided", "test_Linear", "test_MaxPool2d", "test_Softmax", "test_operator_addmm"]
)
def test_a_cpu_without_fma_or_avx_gives_the_same_within_the_tolerance(name):
    case = next(c for c in RUN if c.name == name)
    program = populus.compile(case.path, target="host", tiles=16)
    [graph] = program.module("poplar").body.block.ops
    baseline = NativeProgram(graph, cpu="x86-64")
    assert not baseline.library.host.fused and baseline.library.host.vector_bytes == 16
    agrees(baseline.run(program.signature.checked(case.inputs())), program.run(case.inputs()))


def compiled(tmp_path, monkeypatch):
    """A new process's library on this cache, having compiled one kernel."""
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    made = Library(machine())
    made.load([WORKER])
    assert made.address(WORKER)
    return made.compiled


def kept(tmp_path):
    """The files of kernels in this cache; that of the CPU is there too if this process had not asked for it before."""
    return [path for path in (tmp_path / "populus-native").iterdir() if not path.name.startswith("cpu-")]


def test_a_second_process_finds_the_objects_of_the_first(tmp_path, monkeypatch):
    assert compiled(tmp_path, monkeypatch) == 1
    assert compiled(tmp_path, monkeypatch) == 0
    assert len(kept(tmp_path)) == 2  # the object, and the name of its text


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b"", lambda b: b[:60] + b"X" + b[61:], lambda b: b"something else"])
def test_a_torn_or_foreign_file_of_the_cache_is_not_taken(tmp_path, monkeypatch, damage):
    compiled(tmp_path, monkeypatch)
    name, file = sorted(kept(tmp_path), key=lambda path: path.stat().st_size)
    file.write_bytes(damage(file.read_bytes()))
    assert compiled(tmp_path, monkeypatch) == 1
    assert compiled(tmp_path, monkeypatch) == 0
    name.write_bytes(damage(name.read_bytes()))
    assert compiled(tmp_path, monkeypatch) == 0  # the text is emitted again, and its object is there


def test_a_cache_that_cannot_be_written_is_none(tmp_path, monkeypatch):
    (tmp_path / "populus-native").write_text("a file where the folder should be")
    assert compiled(tmp_path, monkeypatch) == 1
    assert compiled(tmp_path, monkeypatch) == 1


@pytest.mark.parametrize("where", [(Path, "write_bytes"), (disk_cache.os, "replace")], ids=["write", "rename"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupted"])
def test_a_full_disk_or_an_interruption_leaves_nothing_and_the_next_run_goes_on(tmp_path, monkeypatch, where, error):
    def fails(*_, **__):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(*where, fails)
        if isinstance(error, OSError):
            assert compiled(tmp_path, monkeypatch) == 1
        else:
            with pytest.raises(KeyboardInterrupt):
                compiled(tmp_path, monkeypatch)
    assert not kept(tmp_path)
    assert compiled(tmp_path, monkeypatch) == 1
    assert compiled(tmp_path, monkeypatch) == 0


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the CPU without vectors is an x86-64")
def test_code_for_another_cpu_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    compiled(tmp_path, monkeypatch)
    other = Library(machine("x86-64"))
    other.load([WORKER])
    assert other.compiled == 1
    assert len(kept(tmp_path)) == 4
    assert compiled(tmp_path, monkeypatch) == 0


def test_changed_sources_make_another_object_only_if_the_text_differs(tmp_path, monkeypatch):
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))

    def compiled_with(package, number):
        monkeypatch.setattr(jit, "engine_hash", lambda: package)
        made = Library(machine())
        kernel = Kernel("a key that says nothing", lambda name, _: f"define i64 @{name}() {{\n  ret i64 {number}\n}}\n")
        kept = made.load([kernel])
        return made.compiled, ctypes.CFUNCTYPE(ctypes.c_int64)(made.address(kernel))(), kept

    assert compiled_with("first", 1)[:2] == (1, 1)
    assert compiled_with("first", 1)[:2] == (0, 1)
    assert compiled_with("second", 1)[:2] == (0, 1)  # a change elsewhere
    assert compiled_with("third", 2)[:2] == (1, 2)  # a change of what this kernel is made from
    monkeypatch.setattr(jit, "compiler", lambda: "with other options of LLVM")
    assert compiled_with("fourth", 2)[:2] == (1, 2)


_COMPILED = shutil.ignore_patterns("__pycache__")  # which other processes of the tests write


def test_the_hash_of_the_package_has_each_source_that_kernels_are_made_from(tmp_path):
    root = tmp_path / "populus"
    for name in ("runtime/codelets", "runtime/engine/native", "dialects/poplar", "dialects/poprand"):
        shutil.copytree(next(p for folder in FOLDERS if (p := Path(folder).parent / name).is_dir()), root / name, ignore=_COMPILED)
    whole = hash_of_sources(str(root))
    for file in ("runtime/codelets/winograd.py", "runtime/engine/native/kernels/products.py", "dialects/poplar/view.py"):
        text = (root / file).read_text()
        (root / file).write_text(text.replace("1", "2", 1))
        assert hash_of_sources(str(root)) != whole
        (root / file).write_text(text)
        assert hash_of_sources(str(root)) == whole


def test_processes_that_compile_at_one_time_all_succeed(tmp_path):
    code = """
from populus.runtime.engine.native.codegen.jit import library
from populus.runtime.engine.native.run.step_loop import WALK, WORKER
made = library()
made.load([WALK, WORKER])
print(made.address(WALK) != made.address(WORKER))
"""
    env = {**os.environ, "POPULUS_CACHE": str(tmp_path)}
    running = [subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in running] == ["True\n"] * 4
    names = [p.name for p in (tmp_path / "populus-native").iterdir()]
    assert len(names) == 5  # an object and the name of its text, for two kernels; the CPU as LLVM describes it
    assert all(object_cache.MAGIC in p.read_bytes()[:64] for p in (tmp_path / "populus-native").iterdir())


def test_the_cache_keeps_what_was_used_last(tmp_path, monkeypatch):
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path))
    for i in range(4):
        object_cache.put(f"k{i}", bytes(1000))
        os.utime(tmp_path / "populus-native" / f"k{i}", (i, i))
    assert object_cache.get("k0") == bytes(1000)
    object_cache.trim(2200)
    assert sorted(p.name for p in (tmp_path / "populus-native").iterdir()) == ["k0", "k3"]


def test_importing_the_engine_loads_no_compiler():
    code = "import sys, populus.runtime.engine.native.run.program; print(sorted(m for m in sys.modules if m.startswith('llvmlite')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# -- partial sums ------------------------------------------------------------------------------------------------------

SLICED = """
%a = poplar.var "a" : !poplar.tensor<1x9x50xf32>
%b = poplar.var "b" : !poplar.tensor<1x50x70xf32>
%p = poplar.var "p" : !poplar.tensor<4x1x9x70xf32>
%y = poplar.var "y" : !poplar.tensor<1x9x70xf32>
poplar.stream_in "a" to %a : !poplar.tensor<1x9x50xf32>
poplar.stream_in "b" to %b : !poplar.tensor<1x50x70xf32>
poplar.execute "partials" {
  poplar.family @matmul for (k = 50 in 4, g = 1, m = 9, n = 70) on (k)
    in a = %a[g, m, k] : !poplar.tensor<1x9x50xf32>
    in b = %b[g, k, n] : !poplar.tensor<1x50x70xf32>
    out c = %p[at k, g, m, n] : !poplar.tensor<4x1x9x70xf32>
}
poplar.execute "sum" {
  poplar.family @reduce {op = "add"} for (r0 = 4, d0 = 1, d1 = 9, d2 = 70) on ()
    in x = %p[r0, d0, d1, d2] : !poplar.tensor<4x1x9x70xf32>
    out y = %y[d0, d1, d2] : !poplar.tensor<1x9x70xf32>
}
poplar.stream_out %y to "y" : !poplar.tensor<1x9x70xf32>
"""
ALSO = 'poplar.stream_out %p to "p" : !poplar.tensor<4x1x9x70xf32>\n'


@pytest.mark.parametrize("also", ["", ALSO])
def test_a_product_in_slices_and_its_sum_are_one_launch_with_the_same_bits(also):
    text = f"poplar.graph @main target <host, tiles = 4> {{\n{SLICED}{also}}}"
    parsed = LocatingParser(context(), text.replace(" on ()", ""), "sliced.mlir").parse_module()
    verify(parsed)
    rng = np.random.default_rng(0)
    inputs = {"a": rng.standard_normal((1, 9, 50)).astype("f4"), "b": rng.standard_normal((1, 50, 70)).astype("f4")}
    make_tasks(parsed.body.block.first_op)
    verify(parsed)
    program = NativeProgram(parsed.body.block.first_op)
    launches = [run for run, _ in program.body.calls() if isinstance(run, Launch)]
    # Packing b, and the product; or that for each slice, and the sum, where the slices are wanted too.
    assert len(launches) == (2 if not also else 4 * 2 + 1)
    found, seen = program.run(inputs), []
    stepwise = program.run(inputs, lambda step, written: seen.append(step))
    assert len(seen) == 5 + bool(also)  # streams out are steps too
    np.testing.assert_array_equal(found["y"], stepwise["y"])
    agrees(found, Session(parsed, "numpy").run(inputs), 1e-6)


def test_a_product_in_slices_is_not_summed_before_a_step_that_reads_what_the_sum_overwrites():
    y = ": !poplar.tensor<1x9x70xf32>\n"
    between = f'poplar.stream_out %y to "old" {y}poplar.execute "sum"'
    body = SLICED.replace('poplar.execute "partials"', f'poplar.stream_in "y" to %y {y}poplar.execute "partials"')
    body = body.replace('poplar.execute "sum"', between)
    text = f"poplar.graph @main target <host, tiles = 4> {{\n{body}}}"
    parsed = LocatingParser(context(), text.replace(" on ()", ""), "sliced.mlir").parse_module()
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(s).astype("f4") for n, s in (("a", (1, 9, 50)), ("b", (1, 50, 70)), ("y", (1, 9, 70)))}
    make_tasks(parsed.body.block.first_op)
    verify(parsed)
    found = Session(parsed, "native").run(inputs)
    np.testing.assert_array_equal(found["old"], inputs["y"])
    agrees(found, Session(parsed, "numpy").run(inputs), 1e-6)


VOLUME = """
%x = poplar.var "x" : !poplar.tensor<1x8x3x4x5xf32>
%w = poplar.var "w" : !poplar.tensor<6x8x2x3x2xf32>
%p = poplar.var "p" : !poplar.tensor<4x1x6x2x2x4xf32>
%y = poplar.var "y" : !poplar.tensor<1x6x2x2x4xf32>
poplar.stream_in "x" to %x : !poplar.tensor<1x8x3x4x5xf32>
poplar.stream_in "w" to %w : !poplar.tensor<6x8x2x3x2xf32>
poplar.execute "partials" {
  poplar.family @conv
    for (b = 1, oc = 6, ic = 8 in 4, o0 = 2, o1 = 2, o2 = 4, k0 = 2, k1 = 3, k2 = 2) on (ic)
    in x = %x[b, ic, o0 + k0, o1 + k1, o2 + k2] : !poplar.tensor<1x8x3x4x5xf32>
    in w = %w[oc, ic, k0, k1, k2] : !poplar.tensor<6x8x2x3x2xf32>
    out y = %p[at ic, b, oc, o0, o1, o2] : !poplar.tensor<4x1x6x2x2x4xf32>
}
poplar.execute "sum" {
  poplar.family @reduce {op = "add"} for (r0 = 4, d0 = 1, d1 = 6, d2 = 2, d3 = 2, d4 = 4)
    in x = %p[r0, d0, d1, d2, d3, d4] : !poplar.tensor<4x1x6x2x2x4xf32>
    out y = %y[d0, d1, d2, d3, d4] : !poplar.tensor<1x6x2x2x4xf32>
}
poplar.stream_out %y to "y" : !poplar.tensor<1x6x2x2x4xf32>
"""


def test_a_convolution_of_volumes_in_slices_sums_over_every_tap():
    parsed = LocatingParser(context(), f"poplar.graph @main target <host, tiles = 4> {{\n{VOLUME}}}", "volume.mlir").parse_module()
    verify(parsed)
    inputs = {"x": draw(1, 8, 3, 4, 5), "w": draw(6, 8, 2, 3, 2)}
    make_tasks(parsed.body.block.first_op)
    program = NativeProgram(parsed.body.block.first_op)
    assert len([run for run, _ in program.body.calls() if isinstance(run, Launch)]) == 2  # one product: its packing and itself
    agrees(program.run(inputs), Session(parsed, "numpy").run(inputs), 1e-6)


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_outputs_are_views_on_request_and_nothing_overwrites_them_in_a_run(engine):
    case = next(c for c in RUN if c.name == "test_operator_addmm")
    program = populus.compile(case.path, target="host", tiles=16)
    inputs = program.signature.checked(case.inputs())
    expected = Session(program.module("poplar"), engine).run(inputs)
    session = Session(program.module("poplar"), engine, views=True)
    found = session.run(inputs)
    for name, e in expected.items():
        np.testing.assert_array_equal(found[name], e)
        assert not found[name].flags.writeable
    assert all(np.shares_memory(array, found[name]) for name, array in session.run(inputs).items())


# -- element types and volumes -------------------------------------------------------------------------------------------


def draw(*shape, dtype="f4"):
    rng = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype)
    return rng.standard_normal(shape).astype(dtype)


H = np.float16
CUBE = {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0], "dilations": [1, 2, 1]}
FORMS = {
    "matmul of f16": ("MatMul", [draw(5, 37, dtype=H), draw(37, 50, dtype=H)], (), {}),
    "matmul by a constant of f16": ("MatMul", [draw(5, 37, dtype=H)], (draw(37, 50, dtype=H),), {}),
    "matmul of f64": ("MatMul", [draw(2, 9, 37, dtype="f8"), draw(2, 37, 50, dtype="f8")], (), {}),
    "matmul of i32": ("MatMul", [draw(9, 37, dtype="i4"), draw(37, 50, dtype="i4")], (), {}),
    "matmul of u64": ("MatMul", [draw(9, 37, dtype="u8")], (draw(37, 50, dtype="u8"),), {}),
    "matmul of bytes": ("MatMulInteger", [draw(9, 37, dtype="u1"), draw(37, 50, dtype="i1")], (), {}),
    "conv of f16": ("Conv", [draw(2, 4, 9, 11, dtype=H)], (draw(6, 2, 3, 3, dtype=H),), {"group": 2, "pads": [1, 1, 1, 1]}),
    "conv of bytes": ("ConvInteger", [draw(1, 3, 9, 11, dtype="u1"), draw(6, 3, 3, 3, dtype="u1")], (), {"pads": [1, 1, 1, 1]}),
    "conv of volumes": ("Conv", [draw(2, 4, 7, 9, 11), draw(6, 2, 3, 2, 3)], (), {"group": 2, **CUBE}),
    "conv of volumes, depthwise": ("Conv", [draw(1, 4, 7, 9, 11)], (draw(4, 1, 3, 2, 3),), {"group": 4, **CUBE}),
    "max pool of f16": ("MaxPool", [draw(1, 3, 9, 11, dtype=H)], (), {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "max pool of volumes": ("MaxPool", [draw(2, 3, 7, 9, 11)], (), CUBE),
    "mean of volumes": ("AveragePool", [draw(2, 3, 7, 9, 11)], (), CUBE),
    "mean of volumes with padding": ("AveragePool", [draw(2, 3, 7, 9, 11)], (), {"count_include_pad": 1, **CUBE}),
    "sum of f16": ("ReduceSum", [draw(40, 50, dtype=H)], (np.array([0]),), {}),
    "sum of rows of f16": ("ReduceSum", [draw(40, 50, dtype=H)], (np.array([1]),), {}),
    "sum of columns, more than a block": ("ReduceSum", [draw(3, 10000)], (np.array([0]),), {}),
    "normalised f16": ("LayerNormalization", [draw(40, 50, dtype=H)], (draw(50, dtype=H),), {}),
    "rows added": ("ScatterND", [draw(9, 50), np.array([[3], [8], [3]]), draw(3, 50)], (), {"reduction": "add"}),
    "rows set": ("ScatterND", [draw(9, 50, dtype="i8"), np.array([[3], [8]]), draw(2, 50, dtype="i8")], (), {}),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_native_and_gives_what_numpy_gives(name, monkeypatch):
    kind, arrays, constants, attributes = FORMS[name]
    program = populus.compile(one_op(kind, arrays, constants, **attributes), tiles=4, engine="numpy")
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    expected = program.run(inputs)
    session = Session(program.module("poplar"), "native")
    assert not session.fallbacks
    agrees(session.run(inputs), expected, 2e-3 if H in {a.dtype for a in arrays} else 1e-5)
    monkeypatch.setattr(image, "LEAST", SHARED)
    monkeypatch.setattr(step_table, "WOKEN", 0)
    for found, e in zip(Session(program.module("poplar"), "native", threads=3).run(inputs).values(), session.run(inputs).values()):
        assert found.tobytes() == e.tobytes()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_each_step_of_a_softmax_of_16_bits_is_rounded(dtype, kind):
    x = draw(40, 50).astype(dtype)
    program = populus.compile(one_op(kind, [x]), tiles=4, engine="numpy")
    session = Session(program.module("poplar"), "native")
    assert not session.fallbacks
    found, expected = (s.run({"x0": x})["y"].astype("f4") for s in (session, program))
    unit = float(ml_dtypes.finfo(dtype).eps)  # `exp` differs in the last bits, and so in the nearest number of 16 bits
    assert np.abs(found - expected).max() <= unit * np.abs(expected).max()
    assert (found == expected).mean() > 0.9


@pytest.mark.parametrize("types", [("f4", "f4"), ("u1", "i2"), ("i1", "i2")])
@pytest.mark.parametrize("shape", [(32, 48), (3, 32, 20), (2, 3, 16, 5), (48, 7)])
def test_a_transposed_copy_moves_every_element(shape, types):
    """Also of bytes, which become 16 bits."""
    for permutation in itertools.permutations(range(len(shape))):
        source = (100 * draw(*shape)).astype("i4").astype(types[0]).transpose(permutation)
        target = np.zeros(source.shape, types[1])
        for launch in copy(library(), source, target) or []:
            launch()
        np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))))
def test_a_formula_that_reads_across_its_output_gives_the_same_bits(permutation):
    x, y = draw(16, 48, 32), draw(*(np.array([16, 48, 32])[list(permutation)]))
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=permutation), helper.make_node("Mul", ["t", "c"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", 1, x.shape)]
    graph = helper.make_graph(nodes, "across", inputs, [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(y, "c")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    np.testing.assert_array_equal(populus.compile(model, tiles=4, engine="native").run({"x": x})["y"], x.transpose(permutation) * y)


@pytest.mark.parametrize("case", OPS, ids=lambda case: case.id)
def test_an_op_gives_what_numpy_gives(case: OpCase):
    program = populus.compile(case.module(), tiles=4, engine="numpy")
    inputs = program.signature.checked(case.inputs)
    expected = program.session.run(inputs)
    native = Session(program.module("poplar"), "native")
    assert not native.fallbacks
    found = native.run(inputs)
    for name, e in expected.items():
        if e.dtype.kind in "biuO":
            np.testing.assert_array_equal(found[name], e)
            continue
        tolerance = TOLERANCES[e.dtype.itemsize]
        # What is summed may cancel, so inputs say what is large too.
        arrays = [a.astype("f8") for a in (e, *inputs.values()) if a.dtype.kind not in "biuO"]
        scale = max(float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in arrays)
        np.testing.assert_allclose(found[name].astype("f8"), e.astype("f8"), rtol=tolerance, atol=tolerance * scale)
