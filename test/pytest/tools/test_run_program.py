"""`populus run-program` and `import populus.compat`: programs of PopART and PopXL as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from helpers.profile_pages import profiles
from populus.aliases import NAMES
from populus.popart import DeviceManager
from populus.tools.run_program import split

POPART = """
    import sys
    import numpy as np
    import popart

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    y = builder.aiOnnx.neg([x])
    builder.addOutputTensor(y)
    device = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 4})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    for _ in range(3):
        session.run(popart.PyStepIO({x: np.array([1, 2], np.float32)}, anchors))
    print(sys.argv[1:], anchors[y].tolist())
"""

POPXL = """
    import numpy as np
    import popdist
    import popxl
    import popxl.ops as ops
    from popxl.ops import var_updates
    from popxl.transforms import autodiff

    assert popxl.ops is ops and popdist.getNumInstances() == 1
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((2,), popxl.float32, name="x")
        out = popxl.d2h_stream((2,), popxl.float32, name="y")
        ops.host_store(out, ops.relu(ops.host_load(stream, "x")))
    with popxl.Session(ir, "ipu_model") as session:
        print(session.run({stream: np.array([-1, 2], np.float32)})[out].tolist())
"""


@pytest.fixture
def program(tmp_path, populus):
    """Writes a program of these texts and runs it."""

    def ran(*texts: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()):
        path = tmp_path / "train.py"
        path.write_text("\n".join(dedent(t) for t in texts))
        return populus("run-program", *before, str(path), *after)

    return ran


def test_a_program_runs_with_its_own_arguments(program):
    got = program(POPART, after=("--epochs", "3", "--", "--target", "x"))
    assert (got.status, got.err) == (0, "")
    assert got.out == "['--epochs', '3', '--target', 'x'] [-1.0, -2.0]\n"


def test_popxl_and_its_modules_are_ours_and_gone_afterwards(program):
    got = program(POPXL)
    assert (got.status, got.out, got.err) == (0, "[0.0, 2.0]\n", "")
    assert not {n.partition(".")[0] for n in sys.modules} & set(NAMES)


MODULES = """
    from popxl.ops.call import CallSiteInfo
    from popxl.transforms.autodiff import GradGraphInfo
    import popxl
    from popxl import ops
    print(ops.call.__name__, popxl.transforms.autodiff.__name__, ops.call_with_info.__module__ == CallSiteInfo.__module__)
"""


def alone(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs `train.py` of a folder in a process of its own."""
    command = [sys.executable, "-m", "populus", "run-program", "train.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_module_that_is_imported_leaves_the_function_of_its_name(tmp_path):
    (tmp_path / "train.py").write_text(dedent(MODULES))
    got = alone(tmp_path)
    assert (got.stdout, got.stderr) == ("call autodiff True\n", "")


@pytest.mark.parametrize("first", [True, False], ids=["its own folder", "put last"])
def test_a_program_s_own_folders_come_before_packages_that_xdsl_installs(tmp_path, first):
    folder = tmp_path if first else tmp_path / "utils"
    (folder / "benchmarks" / "inner").mkdir(parents=True)
    (folder / "benchmarks" / "inner" / "ours.py").write_text("TEXT = 'ours'")
    (tmp_path / "train.py").write_text(
        "import sys\nsys.path.append('utils')\nfrom benchmarks.inner.ours import TEXT\nimport benchmarks.inner\nprint(TEXT)"
    )
    got = alone(tmp_path)
    assert (got.stdout, got.stderr) == ("ours\n", "")


DATACLASSES = """
    from dataclasses import dataclass, field

    @dataclass
    class Inner:
        size: int = 3

    @dataclass
    class Outer:
        inner: Inner = Inner(4)
        named: Inner = field(default=Inner(5))

    print(Outer().inner.size, Outer().named.size, Inner.__hash__)

    try:
        @dataclass
        class Wrong:
            sizes: list = []
    except ValueError as error:
        print(error)
"""


def test_a_dataclass_is_a_default_as_before_python_3_11(tmp_path):
    (tmp_path / "train.py").write_text(dedent(DATACLASSES))
    got = alone(tmp_path)
    assert got.stdout == "4 5 None\nmutable default <class 'list'> for field sizes is not allowed: use default_factory\n", got.stderr
    assert subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_a_program_may_replace_a_member_of_the_device_manager_by_a_call_of_another(program):
    replaced = """
        import popart
        popart.DeviceManager.acquireAvailableDevice = lambda self, *args: self.tryAcquireAvailableDevice(*args)
        print(popart.DeviceManager().acquireAvailableDevice(1).numIpus)
        popart.DeviceManager.tryAcquireAvailableDevice = lambda self, *args: self.enumerateDevices(numIpus=1)[0]
        print(popart.DeviceManager().acquireAvailableDevice(1).numIpus)
    """
    before = {n: getattr(DeviceManager, n) for n in ("acquireAvailableDevice", "tryAcquireAvailableDevice")}
    try:
        got = program(replaced)
    finally:
        for name, member in before.items():
            setattr(DeviceManager, name, member)
    assert (got.status, got.out, got.err) == (0, "1\n1\n", "")


def test_the_page_has_each_program_that_ran(program, tmp_path):
    page = tmp_path / "page.html"
    got = program(POPART, POPXL, after=("--profile", str(page), "--target", "gc200", "--tiles=2"))
    assert got.status == 0
    assert got.err == f"populus: wrote {page}: 2 programs\n"
    records = profiles(page)
    assert [r["target"]["tiles"] for r in records] == [2, 2]
    assert sorted(r["title"].partition(", ")[2] for r in records) == ["program 1 of 2, 3 runs", "program 2 of 2, 1 run"]


def test_a_program_that_compiles_nothing_has_no_page(program, tmp_path):
    got = program("print('nothing')", before=("--profile", str(tmp_path / "page.html")))
    assert got.status == 0
    assert "ran no program" in got.err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(("end", "status", "said"), [("sys.exit(7)", 7, ""), ("sys.exit()", 0, ""), ("sys.exit('no')", 1, "no\n")])
def test_the_exit_status_is_the_programs(program, end, status, said):
    got = program("import sys", end)
    assert (got.status, got.err) == (status, said)


def test_an_error_of_the_program_keeps_its_traceback(program, tmp_path):
    got = program("def f():\n    raise ValueError('mine')\n", "f()")
    assert got.status == 1
    assert got.err.startswith(f'Traceback (most recent call last):\n  File "{tmp_path}/train.py", line 4, in <module>')
    assert got.err.endswith("ValueError: mine\n")


PAGE = "; docs/{}-compatibility.md says what is there"
NO_OPTION = "import popart\n\ndef f():\n    popart.DeviceManager().createIpuModelDevice({'numIPU': 1})\nf()"
REFUSED = [
    (NO_OPTION, 4, "no option 'numIPU'; did you mean 'numIPUs'?"),
    ("import popart\npopart.Bilder", 2, "popart has no 'Bilder' here; did you mean 'Builder'?" + PAGE.format("popart")),
    ("from popxl.ops import reluu", 1, "popxl.ops has no 'reluu' here; did you mean 'relu'?" + PAGE.format("popxl")),
    ("import popxl.qqq", 1, "popxl has no 'qqq' here" + PAGE.format("popxl")),
]


@pytest.mark.parametrize(("text", "line", "message"), REFUSED)
def test_a_refusal_is_one_line_at_the_programs_line(program, tmp_path, text, line, message):
    got = program(text)
    assert (got.status, got.err) == (1, f"populus: {tmp_path}/train.py:{line}: {message}\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nosuch.py"], "nosuch.py: no such file"),
        (["."], ".: a folder, not a file of Python"),
        (["x.py", "--engine", "fast"], "no engine 'fast'; there are auto, native, numpy, strict"),
        (["x.py", "--tiles", "0"], "--tiles 0: expected a whole number from 1 on"),
        (["x.py", "--profile"], "argument --profile: expected one argument (--help lists the options)"),
    ],
)
def test_a_mistake_of_the_command_is_one_line(args, message, populus):
    got = populus("run-program", *args)
    assert got.status == (2 if message.startswith(("argument", "--tiles")) else 1)
    assert got.err.startswith(f"populus: {message}")


def test_options_after_the_file_are_ours_up_to_two_dashes():
    given: dict[str, str | None] = {"engine": None}
    assert split(["a", "--engine=numpy", "--lr", "1", "--", "--engine", "x"], given) == ["a", "--lr", "1", "--engine", "x"]
    assert given["engine"] == "numpy"


def test_importing_compat_is_enough(tmp_path):
    path = Path(tmp_path) / "train.py"
    path.write_text("import populus.compat\n" + dedent(POPXL) + "\npopxl.Session(ir, 'ipu')\n")
    got = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert (got.returncode, got.stdout) == (1, "[0.0, 2.0]\n")
    assert got.stderr.startswith(f"populus: {path}:19: no device 'ipu'; did you mean")
