"""`populus.explore`: points of a space, compiled and weighed; searches; logs; energy and area."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from xdsl.dialects.builtin import f16, f32

import populus
from benchmarks import explored_peers
from helpers.recorded_fields import recording
from populus.dialects.poplar.target import PRESETS, Spec
from populus.dialects.support.diagnostics import PopulusError
from populus.exploration.axes import axis_of
from populus.exploration.checking import checked
from populus.exploration.explore import Request, space_of
from populus.exploration.front import dominates, front_of, hypervolume
from populus.exploration.log import Log
from populus.exploration.plans import searched
from populus.exploration.running import weighed
from populus.exploration.scheduler import _group
from populus.exploration.search import propose
from populus.exploration.sensitivity import sensitivity
from populus.exploration.space import spread_over
from populus.exploration.technology import FILE, technology
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.poplar.plan import contraction
from populus.lowering.poplar.plan.contraction import PLANS, UNREAD, Contraction, as_planned, options
from populus.lowering.poplar.plan.stated import as_option
from populus.program.options import CompileOptions
from populus.program.program import Program

GC200 = Spec.of("gc200")
PASSES = Pipeline.named("inference")
VARY = {"tiles": "8,16,32", "tile_bytes": "32K:128K:x2", "exchange_bytes": "2,4"}


def two_products(batch=16):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((96, 160)).astype(np.float32), "v": rng.standard_normal((160, 24)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="second"),
    ]
    info = helper.make_tensor_value_info
    given, out = info("x", TensorProto.FLOAT, [batch, 96]), info("y", TensorProto.FLOAT, [batch, 24])
    initial = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", [given], [out], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(scope="module")
def explored():
    return populus.explore(two_products(), machine="gc200, tiles=32", vary=VARY, minimise=("cycles", "memory", "energy"), processes=2)


def test_each_point_has_the_costs_of_a_fresh_compile(explored):
    assert len(explored.points) == 18
    for point in explored.points:
        machine = explored.machine(point["point"])
        fresh = populus.compile(two_products(), target=machine).profile().summary
        names = {"cycles": "cycles", "memory": "peak_tile_bytes", "exchange": "exchange_bytes", "sync_cycles": "sync_cycles"}
        assert {n: point["measures"][n] for n in names} == {n: fresh[of] for n, of in names.items()}, machine


def test_levels_above_the_tiles_are_made_once_a_process_and_plans_are_kept(explored):
    made = [p["reuse"]["levels_made"] for p in explored.points]
    assert sum(made) == 1, "the first point makes them, and the processes are forked after it"
    alone = populus.explore(two_products(), machine="gc200, tiles=32", vary={"outside_bytes": "4,5,6"}, processes=1)
    assert [p["reuse"]["plans_made"] for p in alone.points][1:] == [0, 0], "no plan depends on memory outside of the tiles"


def test_the_front_has_the_points_that_no_other_beats(explored):
    costs = {p["point"]: explored.costs(p) for p in explored.points}
    for number, own in costs.items():
        beaten = any(dominates(other, own) for other in costs.values())
        first = min(n for n, c in costs.items() if c == own)
        assert (number in explored.front) == (not beaten and number == first)


def test_results_do_not_depend_on_the_number_of_processes(explored):
    alone = populus.explore(two_products(), machine="gc200, tiles=32", vary=VARY, minimise=("cycles", "memory", "energy"), processes=1)
    assert alone.json() == explored.json() and alone.csv() == explored.csv()


def test_a_mix_adds_costs_by_weight_and_takes_the_most_memory():
    models = [(two_products(), 2.0), (two_products(64), 0.5)]
    both = populus.explore(models, machine="gc200, tiles=16", processes=1).points[0]["measures"]
    first, second = (populus.explore(m, machine="gc200, tiles=16", processes=1).points[0]["measures"] for m, _ in models)
    assert both["cycles"] == 2 * first["cycles"] + 0.5 * second["cycles"]
    assert both["memory"] == max(first["memory"], second["memory"]) and both["area"] == first["area"]


def test_options_passes_and_choices_are_axes_too():
    vary = {"popops-fuse": ["on", "off"], "poplin-to-poplar.resident": [0.0, 0.95], "optimise": ["balanced", "memory"]}
    found = populus.explore(two_products(), machine="gc200, tiles=16", vary=vary, processes=1)
    assert len(found.points) == 8 and all("measures" in p for p in found.points)
    for point in found.points:
        settings = found.settings(point["point"])
        passes = PASSES if settings["popops-fuse"] == "on" else PASSES.remove("popops-fuse")
        passes = passes.with_options("poplin-to-poplar", resident=settings["poplin-to-poplar.resident"])
        fresh = populus.compile(two_products(), target="gc200, tiles=16", pipeline=passes, optimise=settings["optimise"])
        assert fresh.profile().summary["cycles"] == point["measures"]["cycles"], settings


def test_equal_memory_and_equal_area_stay_equal():
    for equal, of in (("sram", lambda t: t.tiles * t.tile_bytes), ("area", technology().area)):
        space = space_of("gc200", {"tiles": "736,1472,1840"}, CompileOptions(target="gc200"), equal)
        base = of(GC200.target())
        for number in range(space.size):
            made = space.machine(space.settings(number)).target()
            assert made.tile_bytes % 8 == 0 and 0.999 * base <= of(made) <= 1.0001 * base, (equal, made)


def test_points_that_cannot_be_say_why_and_do_not_stop_the_others():
    found = populus.explore(two_products(), machine="gc200, tiles=16", vary={"tile_bytes": "5000,65536"}, processes=1)
    assert "needs" in found.points[0]["why"] and found.front == [1]


def test_conditions_leave_points_out_of_the_front(explored):
    cycles = sorted(p["measures"]["seconds"] for p in explored.points)
    asked = Request(minimise=("memory",), latency=cycles[3])
    limited = replace(explored, request=asked, points=list(explored.points))
    assert all(p["measures"]["seconds"] <= cycles[3] for p in limited.points if p["point"] in limited.front)
    assert sum(limited.fault(p) is None for p in limited.points) == sum(c <= cycles[3] for c in cycles)
    assert asked.fault({"outside": 0, "seconds": 1e9, "power": 1}).startswith("latency of 1e+09 s, above")
    assert (Request(fit=True).fault({"outside": 5, "seconds": 0, "power": 0}) or "").startswith("5 bytes go to and from memory outside")


# ---- several chips


def test_a_model_on_several_chips_has_a_program_for_each_stage():
    """Latency goes through the stages, the slowest decides the interval; bytes and areas are those of all chips."""
    vary = {"chips": "4", "tensor": "1,2", "stages": "1,2"}
    found = populus.explore(two_products(), machine="gc200, tiles=16", vary=vary, minimise=("seconds", "interval"), processes=1)
    for point in found.points:
        settings, measures = found.settings(point["point"]), point["measures"]
        tensor, stages = found.bench.space.spread(settings)
        fresh = []
        for stage in range(stages):
            passes = spread_over(PASSES, tensor, stages, tensor * stage)
            fresh.append(populus.compile(two_products(), target="gc200, tiles=16, chips=4", pipeline=passes).profile().summary)
        clock = GC200.target().clock_hz
        assert measures["cycles"] == sum(f["cycles"] for f in fresh) and measures["seconds"] == measures["cycles"] / clock
        assert measures["interval"] == pytest.approx(max(f["cycles"] for f in fresh) / clock / (4 // (tensor * stages)))
        assert measures["memory"] == max(f["peak_tile_bytes"] for f in fresh)
        assert measures["exchange"] == tensor * sum(f["exchange_bytes"] for f in fresh)
        assert measures["area"] == 4 * technology().area(replace(GC200.target(), tiles=16))
        assert (measures["collective_cycles"] > 0) == (tensor * stages > 1)
    assert not [c for c in checked(found, 4) if c.fault]


def test_chips_that_cannot_be_say_why():
    vary = {"chips": "1,6", "tensor": "1,2,5", "stages": "1,3"}
    found = populus.explore(two_products(), machine="gc200, tiles=16", vary=vary, processes=1)
    why = {tuple(found.settings(p["point"]).values()): p["why"] for p in found.points if "why" in p}
    assert why[1, 2, 1] == "chips = 1; a multiple of tensor x stages = 2 is expected"
    assert why[6, 1, 3] == "3 stages are more than the model's 2 products and convolutions by weights (in popart-stage)"
    assert set(why) == {(1, 2, 1), (1, 5, 1), (1, 1, 3), (1, 2, 3), (1, 5, 3), (6, 5, 1), (6, 1, 3), (6, 2, 3), (6, 5, 3)}


# ---- plans that are searched together


def test_plans_that_are_searched_together_cost_no_more_and_are_those_of_a_fresh_compile(tmp_path):
    given = {"machine": "gc200", "vary": {"tiles": "8,16"}, "minimise": ("cycles",), "processes": 1}
    plain, found = (populus.explore(populus.net("digits"), **given, plans=n) for n in (1, 3))
    assert [p["reuse"]["trials"] > 0 for p in found.points] == [True, True] and found.front == [1]
    for before, point in zip(plain.points, found.points):
        assert point["measures"]["cycles"] <= before["measures"]["cycles"]
        texts = [entry["plans"] for entry in point.get("plans", ())]
        path = tmp_path / f"{point['point']}.plan"
        path.write_text("\n".join(texts))
        fresh = populus.compile(populus.net("digits"), target=found.machine(point["point"]), plan=path).profile().summary
        assert (fresh["cycles"], fresh["peak_tile_bytes"]) == (point["measures"]["cycles"], point["measures"]["memory"])
    assert any(p.get("plans") for p in found.points) and json.loads(found.json())["points"][1]["plans"]
    assert not [c for c in checked(found, 1) if c.fault]


def test_a_search_of_plans_begins_with_the_fewest_bytes_where_the_planners_do_not_fit():
    """A limit of memory below that of the planner's program, above that of the plans of the fewest bytes."""
    limit, peaks = 4000, list[int]()

    def compiled_with(stated):
        passes = PASSES.with_options("poplin-to-poplar", plans=as_option(stated)) if stated else PASSES
        peaks.append(
            int(populus.compile(populus.net("digits"), target="gc200, tiles=16", pipeline=passes).profile().summary["peak_tile_bytes"])
        )
        if peaks[-1] > limit:
            raise PopulusError(f"{peaks[-1]} bytes of {limit}")
        return peaks[-1]

    best, found = searched(compiled_with, lambda peak: (peak,), 3)
    assert peaks[0] > limit and best == min(p for p in peaks if p <= limit) and found.plans and found.trials == len(peaks) - 1
    limit = 1
    with pytest.raises(PopulusError, match=f"^{peaks[0]} bytes of 1$"):
        searched(compiled_with, lambda peak: (peak,), 3)


# ---- axes


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("tiles", "368,736", (368, 736)),
        ("tiles", "1:9:4", (1, 5, 9)),
        ("tile_bytes", "256K:1M:x2", (262144, 524288, 1048576)),
        ("tile_bytes", "0.5KiB,1M", (512, 1048576)),
        ("tiles", "4:64:x4,64,5", (4, 16, 64, 5)),
        ("dim.batch", "1,2", (1, 2)),
    ],
)
def test_values_are_lists_and_ranges(name, text, values):
    assert axis_of(name, text, GC200, PASSES).values == values


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("tile", "3", "did you mean 'tiles'?"),
        ("exchange_bytes_per_cycle", "3", "did you mean 'exchange_bytes'?"),
        ("tiles", "9:3:1", "upside down; 3:9:1"),
        ("tiles", "3:9", "expected LEAST:GREATEST:STEP"),
        ("tiles", "3:9:0", "the step 0"),
        ("tiles", "3:9:x1", "a factor is above 1"),
        ("tiles", "0:9:x2", "begins above 0"),
        ("tiles", "3K", "tiles is a number, write 3"),
        ("tile_bytes", "3Q", "the unit Q"),
        ("tile_bytes", "0.3K", "no whole number of bytes"),
        ("tiles", "a", "'a' is not a whole number"),
        ("tiles", [], "no value"),
        ("partials", "f64", "no partials 'f64'"),
        ("popops-fuse", "maybe", "on or off"),
        ("popops-fus", "on", "did you mean 'popops-fuse'?"),
        ("poplin-to-poplar.residen", "1", "did you mean 'resident'?"),
        ("poplin-to-poplar.resident", "abc", "does not fit"),
        ("poplin-to-poplar.target", "gc2", "has no option 'target'"),
    ],
)
def test_a_mistake_in_an_axis_is_one_line(name, given, said):
    with pytest.raises(PopulusError) as error:
        axis_of(name, given, GC200, PASSES)
    assert said in str(error.value) and "\n" not in str(error.value) and name in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"minimise": ("cycle",)}, "did you mean 'cycles'?"),
        ({"minimise": ()}, "expected one measure or several"),
        ({"points": 0}, "points = 0"),
        ({"latency": -1.0}, "latency = -1.0"),
        ({"resume": True}, "resume without a log"),
        ({"search": "al"}, "no search 'al'"),
        ({"search": "all", "points": 3, "vary": {"tiles": "1:9:1"}}, "the space has 9 points"),
        ({"equal": "sram", "vary": {"tile_bytes": "1M"}}, "it follows"),
        ({"technology": "5nm"}, "no technology '5nm'"),
        ({"sead": 1}, "did you mean 'seed'?"),
        ({"machine": "gc20"}, "did you mean 'gc200'?"),
        ({"vary": {"tile_bytes": "5000"}}, "none of 1 points can be taken; tile_bytes=5000: the model needs"),
        ({"vary": {"tiles": "0"}}, "tiles = 0 is out of range"),
    ],
)
def test_a_mistake_is_one_line(options, said):
    with pytest.raises(PopulusError) as error:
        populus.explore(two_products(), **{"machine": "gc200, tiles=16", "processes": 1, **options})
    assert said in str(error.value) and "\n" not in str(error.value)


# ---- plans


SHAPES = (
    Contraction(1, 1, 160, 96, (16,), (1,), (1,)),
    Contraction(4, 1, 64, 64, (128,), (1,), (1,)),
    Contraction(1, 2, 32, 16, (14, 14), (3, 3), (1, 1)),
)


@pytest.mark.parametrize("element", [f32, f16])
def test_plans_that_are_kept_are_those_made_anew(element):
    """Whatever limits of memory came before, plans equal those that are made with nothing kept."""
    sizes = [8 * n for n in (600, 1000, 2000, 4000, 8000, 20000, 80000)]
    order = random.Random(5).sample(sizes, len(sizes)) + random.Random(6).sample(sizes, len(sizes))
    before = PLANS.made, PLANS.kept
    for shape in SHAPES:
        for size in order:
            machine = replace(GC200.target(), tiles=64, tile_bytes=size, reserved_bytes=0)
            fresh = contraction._options(shape, element, as_planned(machine), None, 0.5, 0.6 * machine.room)[0]
            assert options(shape, element, machine, None, 0.5, 0.6) == fresh, (shape, size)
    made, kept = (after - b for after, b in zip((PLANS.made, PLANS.kept), before))
    assert made + kept == len(SHAPES) * len(order) and kept >= len(SHAPES) * len(sizes)


@pytest.mark.parametrize("name", ["gc2", "gc200", "bow", "host", "n150"])
def test_plans_read_no_field_that_is_left_out_of_their_key(name):
    """A machine that records what is read of it: the fields that plans ignore are never looked at."""
    machine, read = recording(PRESETS[name])
    for shape, element in product(SHAPES, [e for e in (f32, f16) if machine.holds(e)]):
        found = contraction.Candidates(shape, element, machine, None, 0.5, contraction._all(shape, element, machine, None, 0.5).parts)
        for resident in (True, False):
            assert len(found.cycles(resident)) == len(found.bound(resident)) == len(found.working_bytes(resident))
        assert found.temporary_bytes().min() > 0
    assert read, "something is read"
    assert not read & set(UNREAD) - {"tile_bytes", "name"}  # tile_bytes as a bound of interleaved memory, the name for an assertion


# ---- fronts and searches


def test_a_front_and_its_volume_are_those_of_all_pairs_and_of_counted_cells():
    draw = random.Random(3)
    for dimensions in (1, 2, 3, 4):
        costs = [tuple(float(draw.randrange(6)) for _ in range(dimensions)) for _ in range(30)]
        found = front_of(costs)
        plain = [i for i, c in enumerate(costs) if not any(dominates(o, c) for o in costs) and costs.index(c) == i]
        assert sorted(found) == plain
        cells = sum(any(all(x <= y for x, y in zip(c, cell)) for c in costs) for cell in product(range(6), repeat=dimensions))
        assert hypervolume(costs, (6.0,) * dimensions) == cells


@pytest.mark.skipif(find_spec("optuna") is None, reason="the search of large spaces is Optuna's, the extra `explore`")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_200_points_cover_95_hundredths_of_the_front_of_2000(seed):
    """A stored space: 2,000 machines for squeezenet, with cycles and joules (benchmarks/explored_space.py wrote it)."""
    stored = json.loads((Path(__file__).parents[1] / "helpers/explored_space.json").read_text())
    space = space_of("gc200", stored["vary"], CompileOptions(target="gc200"))
    costs = [tuple(c) if c else (math.inf,) * 2 for c in stored["costs"]]
    assert space.size == len(costs) == 2000
    asked: list[int] = []

    def weigh(numbers):
        asked.extend(n for n in numbers if n not in asked)
        return [costs[n] for n in numbers]

    found = propose(space, 200, seed, 2, weigh)
    assert len(found) == len(set(found)) == len(asked) == 200
    logs = [(math.log(a), math.log(b)) for a, b in (costs[n] for n in range(2000)) if a < math.inf]
    worst = tuple(max(c[i] for c in logs) + 1e-9 for i in (0, 1))
    own = [(math.log(a), math.log(b)) for a, b in (costs[n] for n in found) if a < math.inf]
    assert hypervolume(own, worst) >= 0.95 * hypervolume(logs, worst)
    assert propose(space, 200, seed, 2, weigh) == found, "the same seed gives the same points"


# ---- workers of a scheduler


@pytest.mark.skipif(find_spec("distributed") is None, reason="workers of a scheduler are Dask's, the extra `dask`")
def test_workers_of_a_scheduler_give_the_same_bytes(explored, tmp_path):
    distributed = importlib.import_module("distributed")
    given = {"machine": "gc200, tiles=32", "vary": VARY, "minimise": ("cycles", "memory", "energy")}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None, local_directory=tmp_path) as cluster:
        found = populus.explore(two_products(), scheduler=cluster.scheduler_address, **given)
        module = populus.compile(two_products(), level="popart").module("popart")
        with pytest.raises(PopulusError, match="a module in memory, which is not sent"):
            populus.explore(module, scheduler=cluster.scheduler_address, **given)
    assert found.json() == explored.json()
    assert 1 <= sum(p["reuse"]["levels_made"] for p in found.points) <= 2, "once in each worker"


@pytest.mark.skipif(find_spec("distributed") is None, reason="workers of a scheduler are Dask's, the extra `dask`")
def test_a_scheduler_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr("populus.exploration.scheduler.WAIT", 1)
    for address in ("tcp://127.0.0.1:1", "no address"):
        with pytest.raises(PopulusError, match=f"^scheduler {address}: ") as error:
            populus.explore(two_products(), machine="gc200, tiles=16", scheduler=address)
        assert "\n" not in str(error.value)


def test_a_worker_with_other_sources_is_refused():
    with pytest.raises(PopulusError, match="a worker has other sources"):
        _group("other", weighed, None, [0])


def test_a_scheduler_without_dask_is_one_line(monkeypatch):
    monkeypatch.setattr("populus.exploration.scheduler.find_spec", lambda name: None)
    with pytest.raises(PopulusError, match="Dask is not installed; pip install distributed"):
        populus.explore(two_products(), machine="gc200, tiles=16", scheduler="tcp://127.0.0.1:1")


# ---- logs


def run(tmp_path, *more):
    """Explores a saved model in a process of its own, with a log."""
    command = [sys.executable, "-m", "populus", "explore", str(tmp_path / "net.onnx"), "--machine", "gc200, tiles=16"]
    command += ["--vary", "tiles=4:36:1", "--processes", "1", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_run_that_is_killed_is_resumed_to_the_same_bytes(tmp_path):
    """Killed whenever its log has some more points; what is there is not weighed again."""
    save(two_products(), tmp_path / "net.onnx")
    whole = run(tmp_path, "--json", str(tmp_path / "whole.json"))
    assert whole.wait() == 0, whole.communicate()
    log, seen = tmp_path / "log.jsonl", 0
    for more in (2, 9, 14):
        resumed = ["--resume"] if log.exists() else []
        process = run(tmp_path, "--log", str(log), *resumed, "--json", str(tmp_path / "part.json"))
        while process.poll() is None and (log.read_bytes().count(b"\n") if log.exists() else 0) < seen + more:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        seen = log.read_bytes().count(b"\n") - 1
        assert not (tmp_path / "part.json").exists(), "it was killed before it ended"
    last = run(tmp_path, "--log", str(log), "--resume", "--json", str(tmp_path / "part.json"))
    assert last.wait() == 0, last.communicate()
    assert (tmp_path / "part.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert len({json.loads(line)["point"] for line in log.read_text().splitlines()[1:]}) == log.read_bytes().count(b"\n") - 1 == 33


def test_a_log_that_ends_at_any_byte_is_read_up_to_its_last_whole_line(tmp_path):
    path = tmp_path / "log"
    log = Log(path, "k", False)
    for number in range(3):
        log.add({"point": number, "why": "none"})
    log.close()
    content = path.read_bytes()
    for end in range(len(content) + 1):
        path.write_bytes(content[:end])
        again = Log(path, "k", True)
        again.close()
        assert len(again.found) == max(content[:end].count(b"\n") - 1, 0)
        assert path.read_bytes().endswith(b"\n") and content.startswith(path.read_bytes())


def test_a_log_of_something_else_is_refused(tmp_path):
    path = tmp_path / "log"
    Log(path, "k", False).close()
    for key, resume, said in (("k", False, "resume it"), ("other", True, "of another space")):
        with pytest.raises(PopulusError, match=said):
            Log(path, key, resume)
    with pytest.raises(PopulusError, match="no such log"):
        Log(tmp_path / "none", "k", True)
    path.write_text("some text\n")
    with pytest.raises(PopulusError, match="not a log"):
        Log(path, "k", True)
    path.write_text('{"explore": 1, "key": "k"}\n{"point": "x"}\n')
    with pytest.raises(PopulusError, match="line 2: no point"):
        Log(path, "k", True)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="Parquet is written by pyarrow, the extra `parquet`")
def test_parquet_has_the_rows_of_the_csv_and_the_rest_as_text(explored, tmp_path):
    parquet = importlib.import_module("pyarrow.parquet")
    explored.to_parquet(tmp_path / "points.parquet")
    found = parquet.read_table(tmp_path / "points.parquet")
    rows = list(csv.DictReader(io.StringIO(explored.csv())))
    assert found.column_names == list(rows[0]) and found.num_rows == len(rows) == len(explored.points)
    for ours, theirs in zip(found.to_pylist(), rows, strict=True):
        assert {n: "" if v is None else str(int(v) if n == "front" else v) for n, v in ours.items()} == theirs
    about = json.loads(found.schema.metadata[b"populus"])
    assert about == {key: value for key, value in explored.record().items() if key != "points"}
    assert [f.name for f in tmp_path.iterdir()] == ["points.parquet"]


def test_a_space_of_which_no_point_can_be_taken_is_one_line_and_no_result(tmp_path, populus):
    files = [f"--{kind}={tmp_path}/a.{kind}" for kind in ("json", "csv", "html")] + [f"--log={tmp_path}/log"]
    got = populus("explore", "digits", "--vary", "tiles=2,4", "--latency", "1ns", "--processes", "1", *files)
    assert got.status == 1 and len(got.err.splitlines()) == 1
    assert got.err.startswith("populus: none of 2 points can be taken; tiles=2: latency of ") and got.err.endswith(" s, above 1e-09 s\n")
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


def test_parquet_without_pyarrow_is_one_line_before_a_point_is_weighed(monkeypatch, tmp_path, populus):
    monkeypatch.setattr("populus.exploration.explore.find_spec", lambda name: None)
    got = populus("explore", "digits", "--vary", "tiles=4", "--parquet", str(tmp_path / "a.parquet"))
    assert got.status == 1 and "pip install pyarrow, or write CSV" in got.err and len(got.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


# ---- energy and area


def test_each_number_of_a_technology_has_a_source_and_estimates_say_so():
    for name in json.loads(FILE.read_text()):
        rows = technology(name).record()["rows"]
        assert len(rows) >= 15 and all(row["source"] and row["unit"] in ("pJ", "mm2") for row in rows)
        assert sum(row["estimate"] for row in rows) == 8
        for row in rows:
            assert (row["least"] < row["greatest"]) == row["estimate"] == bool(row["bounds"])
            assert row["least"] <= row["value"] <= row["greatest"]
    assert technology("7nm").area(PRESETS["gc200"]) == pytest.approx(823, rel=0.01), "the area of a tile is the rest of a GC200's"


def test_memory_between_two_rows_costs_between_them():
    table = technology("45nm")
    assert table.sram_byte(8192) == pytest.approx(10 / 8) and table.sram_byte(1 << 20) == pytest.approx(100 / 8)
    assert 10 / 8 < table.sram_byte(16384) < 20 / 8 < table.sram_byte(65536) < table.sram_byte(4 << 20)


def test_a_byte_of_memory_outside_costs_what_its_kind_does():
    table = technology()
    ours = table.dram_byte(PRESETS["n150"])
    assert table.dram_byte(PRESETS["p150"]) == ours == table.value("energy", "gddr6_byte") == pytest.approx(415 / 8, rel=1e-3)
    assert table.dram_byte(PRESETS["gc200"]) == 1300 / 8, "DDR4 of the host"
    assert (table.bounded(False).dram_byte(PRESETS["n150"]), table.bounded(True).dram_byte(PRESETS["n150"])) == (350 / 8, 480 / 8)


def test_a_technology_without_the_memory_of_a_machine_is_one_line(tmp_path):
    table = json.loads(FILE.read_text())["7nm"]
    del table["energy"]["gddr6_byte"]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"mine": table}))
    assert technology(path).dram_byte(PRESETS["gc200"]) == 1300 / 8
    with pytest.raises(PopulusError, match="technology 'mine' has no energy of gddr6_byte, the memory of 'n150'"):
        technology(path).dram_byte(PRESETS["n150"])


def test_energy_is_the_sum_of_what_was_counted(explored):
    machine = replace(PRESETS["gc200"], tiles=32)
    point = next(p for p in explored.points if explored.settings(p["point"]) == {"tiles": 32, "tile_bytes": 65536, "exchange_bytes": 4})
    table = technology()
    macs = 16 * 96 * 160 + 16 * 160 * 24
    products = 2 * macs * (1.31 + 0.38) / 2
    wires = point["measures"]["exchange"] * table.wire_byte(replace(machine, tile_bytes=65536))
    least = products + wires + point["measures"]["exchange"] * 2 * table.sram_byte(65536)
    assert least * 1e-12 < point["measures"]["energy"] < 4 * least * 1e-12


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t["energy"].pop("f16_add"), "no energy of f16_add"),
        (lambda t: t["energy"]["f16_add"].pop("source"), "no source"),
        (lambda t: t["area"]["tile"].update(value=0), "has the value 0"),
        (lambda t: t["area"]["tile"].update(value=10**400), "has the value 1000"),
        (lambda t: t["energy"]["sram_byte"][0].update(bytes=10**400), "states bytes = 1000"),
        (
            lambda t: t["energy"].update(sram_byte=[{**t["energy"]["f32_add"], "bytes": n, "value": 10.0 ** (99 * n)} for n in (1, 2)]),
            "too fast",
        ),
        (lambda t: t["area"]["tile"].pop("least"), "an estimate from None to"),
        (lambda t: t["area"]["tile"].update(greatest=0.1), "to 0.1; expected least and greatest around 0.347"),
        (lambda t: t["area"]["tile"].update(bounds=""), "a text that says where least and greatest come from"),
        (lambda t: t["energy"]["f16_add"].update(least=0.1), "has bounds and is no estimate"),
        (lambda t: t["area"].update(tyle={}), "did you mean 'tile'?"),
        (lambda t: t["energy"].update(sram_byte=[]), "no list energy.sram_byte"),
        (lambda t: t["energy"]["sram_byte"][0].pop("bytes"), "states bytes = None"),
        (lambda t: t.pop("area"), "no object 'area'"),
    ],
)
def test_a_users_technology_is_a_file_and_a_mistake_in_it_one_line(change, said, tmp_path):
    path = tmp_path / "mine.json"
    table = json.loads(FILE.read_text())["7nm"]
    path.write_text(json.dumps({"mine": table}))
    assert technology(path).name == "mine"
    change(table)
    path.write_text(json.dumps({"mine": table}))
    with pytest.raises(PopulusError) as error:
        technology(path)
    assert said in str(error.value) and os.fspath(path) in str(error.value)


# ---- sensitivities and runs


def test_a_sensitivity_is_the_change_between_two_compiles(explored):
    number = explored.front[0]
    changes = {c["field"]: c for c in sensitivity(explored, number)}
    assert {"tiles", "exchange_bytes", "conv_macs", "sync_cycles", "workers"} <= set(changes)
    base = populus.compile(two_products(), target=explored.machine(number)).profile().summary["seconds"]
    for field in ("sync_cycles", "exchange_bytes"):
        change = changes[field]
        fresh = populus.compile(two_products(), target=f"{explored.machine(number)}, {field}={change['to']}").profile().summary["seconds"]
        assert (change["before"], change["seconds"]) == (base, fresh), field
        assert change["elasticity"] == pytest.approx(math.log(fresh / base) / math.log(change["to"] / change["was"]), abs=1e-6)
    assert changes["sync_cycles"]["elasticity"] > 0 and changes["outside_bytes"]["elasticity"] == 0


def test_points_of_the_front_run_with_the_numbers_of_the_model(explored):
    checks = checked(explored, 2)
    assert [(c.engine, c.tiles) for c in checks[:2]][1] == ("strict", 8) and {c.engine for c in checks} == {"native", "strict"}
    assert len(checks) == 2 * min(2, len(explored.front)) and not [c for c in checks if c.fault]


def test_a_run_that_differs_from_the_model_is_a_fault(explored, monkeypatch):
    monkeypatch.setattr(Program, "run", lambda self, inputs: {n: 2 * v for n, v in self.run_at("popart", inputs).items()})
    assert all(c.fault and c.fault.startswith("differs by") for c in checked(explored, 1))
    small = replace(explored, points=[{**p, "measures": {**p["measures"], "memory": 1}} if "measures" in p else p for p in explored.points])
    monkeypatch.undo()
    assert [c.engine for c in checked(small, 1) if c.fault] == ["native"], "it needs more bytes than were measured"


def test_the_table_of_peers_counts_fronts_and_says_what_was_not_ended():
    sizes = len(explored_peers.ELEMENTS)
    theirs = {"net": explored_peers.Found([], math.inf)}
    ours = {"net": explored_peers.Found([None, 30.0, 30.0, 10.0][:sizes], 0.25)}
    lines = explored_peers.table(theirs, ours).splitlines()
    assert lines[2] == "| net | ZigZag | over the limit | 0 of 0 |  |"
    assert lines[3] == "| net | Populus | 0.2 | 2 of 4 | -, 30, 30, 10 |"
