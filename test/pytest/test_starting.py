"""The start of a process: the modules that it imports, and what it does not do twice."""

import gc
import mmap
import os
import shutil
import subprocess
import sys
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from onnx import TensorProto, helper

import populus
from populus.dialects.onnx import protos
from populus.dialects.support.garbage import import_for_good
from populus.lowering.poplar.plan import contraction
from populus.lowering.poplar.plan.kept import KeptPlans
from populus.runtime.engine.native.frozen.layout import Layout

FIRST = """
import gc, sys
import numpy as np
import populus
begun = []
gc.callbacks.append(lambda phase, info: begun.append(info["generation"]) if phase == "start" else None)
program = populus.compile(sys.argv[1], target="host", engine="native")
program.session
print(begun.count(0), begun.count(1), begun.count(2))
print([m for m in ("xdsl.dialects.test", "xdsl.backend", "safetensors", "torch") if m in sys.modules])
"""


def convolution():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 12, 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    w = helper.make_tensor("w", TensorProto.FLOAT, [8, 8, 3, 3], np.linspace(-1, 1, 576).astype(np.float32))
    return helper.make_model(helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", [x], [y], [w]))


def test_a_first_compile_collects_little_garbage_and_imports_no_tests_of_xdsl(tmp_path):
    (tmp_path / "m.onnx").write_bytes(convolution().SerializeToString())
    said = subprocess.run([sys.executable, "-c", FIRST, tmp_path / "m.onnx"], capture_output=True, text=True, check=True).stdout
    counts, imported = said.splitlines()
    young, middle, all_objects = map(int, counts.split())
    assert (young <= 60, middle <= 4, all_objects) == (True, True, 0), counts  # 123, 11 and 1 if imports collect too
    assert imported == "[]"


def test_an_import_for_good_collects_no_garbage_and_leaves_its_objects_old(tmp_path, monkeypatch):
    (tmp_path / "defines_a_class.py").write_text("import gc\nclass Defined: pass\ncollects = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_for_good("defines_a_class")
    module = sys.modules.pop("defines_a_class")
    assert gc.isenabled()
    assert not module.collects
    assert any(found is module.Defined for found in gc.get_objects(generation=2))


def test_an_import_for_good_leaves_objects_set_aside_that_others_froze(tmp_path, monkeypatch):
    (tmp_path / "defines_nothing.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    gc.freeze()
    try:
        import_for_good("defines_nothing")
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        sys.modules.pop("defines_nothing", None)


def test_whether_a_product_fits_is_read_off_the_plans_of_the_bids(monkeypatch):
    monkeypatch.setattr(contraction, "PLANS", plans := KeptPlans(9))
    populus.compile(convolution(), target="host")
    assert (plans.made, plans.kept) == (1, 2)


def test_plans_that_are_kept_are_bounded_in_number(monkeypatch):
    plans = KeptPlans(3)
    for key, limit in [("a", 1), ("b", 1), ("b", 5), ("c", 1)]:
        plans.add(key, limit, limit + 1, f"{key}{limit}")
    assert [plans.find(key, limit) for key, limit in [("a", 1), ("b", 2), ("b", 5), ("b", 7), ("c", 1)]] == [None, "b1", "b5", None, "c1"]
    for limit in range(100):  # plans of one key alone are bounded too
        plans.add("d", limit, limit, "d")
    assert plans.number <= 3 and plans.made == 104
    monkeypatch.setattr(contraction, "PLANS", few := KeptPlans(1))
    populus.compile(convolution(), target="host")
    assert few.number == 1


def test_onnx_is_asked_once_for_the_types_of_nodes_that_are_alike(monkeypatch):
    from onnx import shape_inference

    asked = []
    infer = shape_inference.infer_node_outputs

    def noted(schema, node, *rest, **options):
        asked.append(node.op_type)
        return infer(schema, node, *rest, **options)

    monkeypatch.setattr(shape_inference, "infer_node_outputs", noted)
    monkeypatch.setattr(protos, "_ANSWERS", {})  # other tests of this process may have asked the same, or filled it
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 7, 5, 11]) for n in "xy")
    nodes = [helper.make_node("Elu", [a], [b], alpha=alpha) for a, b, alpha in (("x", "a", 0.25), ("a", "b", 0.25), ("b", "y", 0.75))]
    program = populus.compile(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), target="host")
    assert asked == ["Elu", "Elu"]  # the third has another alpha
    assert str(program.signature) == "(x: f32[3, 7, 5, 11]) -> (y: f32[3, 7, 5, 11])"


def populates(path):
    """Tells whether the system maps pages of a file when it is asked to: Linux from 5.14 on."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, suppress(OSError):
        mapped.madvise(22)
        return True
    return False


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler, as users of build do")
def test_a_built_program_maps_its_constants_before_its_first_run(tmp_path):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1024]) for n in "xy")
    w = helper.make_tensor("w", TensorProto.FLOAT, [1024, 1024], np.linspace(-1, 1, 1 << 20).astype(np.float32))
    made = helper.make_model(helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w]))
    populus.build(populus.compile(made, target="host", engine="native"), tmp_path / "built", name="net")
    if not populates(tmp_path / "built" / "net.bin"):
        pytest.skip("this system maps no pages ahead")
    program = populus.load_program(tmp_path / "built")
    with open("/proc/self/smaps") as file:
        mapping = file.read().partition(str(tmp_path / "built" / "net.bin"))[2]
    resident = next(int(line.split()[1]) for line in mapping.splitlines() if line.startswith("Rss:"))
    assert resident >= 4096, resident  # KiB
    assert not program.run({"x": np.zeros((1, 1024), np.float32)})["y"].any()


ENDING = """
import atexit, gc, os, sys
atexit.register(lambda: print(gc.get_freeze_count() > 50000, flush=True))
import populus
program = populus.compile(sys.argv[1], target="host", engine="native")
{}
{}
"""
HELD = {
    "nothing": "",
    "an object of the program's own": "class A: pass",
    "a generator of random numbers": "import numpy.random\nclass A: drawn = numpy.random.default_rng(1)",
    "a file": "class A: file = open(1, 'w')\nA.file.write('written')",
    "a finaliser": "class A:\n    def __del__(self, write=os.write): write(1, b'written')",
    "a generator": """
class A: pass
def ending(write=os.write):
    try: yield
    finally: write(1, b'written')
A.generator = ending()
next(A.generator)
""",
}


@pytest.mark.parametrize("held", HELD)
def test_a_process_that_compiled_frees_objects_one_by_one_only_if_the_end_of_one_may_do_something(held, tmp_path):
    (tmp_path / "m.onnx").write_bytes(convolution().SerializeToString())
    cycle = "a = A()\na.itself = a" if HELD[held] else ""
    words = [sys.executable, "-c", ENDING.format(HELD[held], cycle), tmp_path / "m.onnx"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said == ("False\nwritten" if "write" in HELD[held] else "True\n")


def test_a_process_that_finds_a_kept_program_frees_no_objects_one_by_one(tmp_path):
    (tmp_path / "m.onnx").write_bytes(convolution().SerializeToString())
    code = """
import atexit, gc, sys
atexit.register(lambda: print(gc.get_freeze_count() > 0, "xdsl.ir" in sys.modules))
import numpy, populus
from populus.program import ready
ready.SETTLED = 0  # a file that was just written is not kept
program = populus.compile(sys.argv[1], cache=True)
program.run({"x": numpy.zeros((1, 8, 12, 12), numpy.float32)})
"""
    words, place = [sys.executable, "-c", code, tmp_path / "m.onnx"], os.environ | {"POPULUS_CACHE": str(tmp_path / "cache")}
    said = [subprocess.run(words, capture_output=True, text=True, check=True, env=place).stdout for _ in range(2)]
    assert said == ["True True\n", "True False\n"]


@pytest.mark.parametrize(
    "words", ["populus run squeezenet", "populus check squeezenet", "populus-opt squeezenet -p onnx-infer-shapes -o m.mlir"]
)
def test_a_command_frees_no_objects_one_by_one(words, tmp_path):
    begin = "import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count() > 50000)); import populus_tiles; "
    command = words.partition(" ")[0].replace("-", "_")
    run = [sys.executable, "-c", f"{begin}populus_tiles.{command}()", *words.split()[1:]]
    said = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert said.splitlines()[-1] == "True"


def test_constants_of_a_kept_program_are_compared_without_copies():
    layout = object.__new__(Layout)
    layout.programs, layout.constants, layout._known = [None], [], {}
    arrays = [np.arange(1 << 17, dtype=np.float32) for _ in range(8)]  # of half a MiB
    arrays[5][70_001] = -1.0  # an element that no sample has
    arrays.append(np.zeros(0, np.int64))
    tracemalloc.start()
    assert [layout._constant(array) for array in (*arrays, arrays[5].copy())] == [0, 0, 0, 0, 0, 1, 0, 0, 2, 1]
    assert tracemalloc.get_traced_memory()[1] < 2.5 * arrays[0].nbytes  # the copy above, and a comparison
    tracemalloc.stop()
