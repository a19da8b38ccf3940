"""`populus profile`: the data against its schema and the program, the page in a browser, the smallest machine."""

import csv
import hashlib
import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import populus as populus_package
from benchmarks.models import transformer
from populus.dialects.poplar.target import Spec
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.pipeline import Pipeline
from populus.tools.profile import _end_of
from populus.tools.report.page import html
from populus.tools.report.record import read, record, text_of
from populus.tools.report.record_types import FILE, schema_text
from populus.tools.report.what_if import smallest, what_if
from populus.write.builder import Builder

HOSTILE = "</script><img src=x onerror=alert(1)>"  # the name of a node: shown, never run
SCHEMA = json.loads(FILE.read_text())


def model():
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 4, 3, 3)).astype(np.float32),
        "f": rng.standard_normal((8 * 64, 10)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Flatten", ["r"], ["v"], name="flatten"),
        helper.make_node("MatMul", ["v", "f"], ["m"], name=HOSTILE),
        helper.make_node("Softmax", ["m"], ["y"], name="softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.fixture(scope="module")
def program():
    return populus_package.compile(model(), target="gc200", tiles=32)


@pytest.fixture(scope="module")
def data(program):
    return record(program, "net.onnx")


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.onnx"
    save(model(), path)
    return path


def test_the_schema_is_made_of_the_types_of_the_record():
    assert FILE.read_text(encoding="utf-8") == schema_text(), "python -m populus.tools.report.record_types writes it"


def test_each_call_of_a_function_has_its_costs_under_its_own_names():
    model = transformer(3, 16, 32, 4, 64)
    plain = Pipeline.named("inference").remove("popart-outline")
    data, other = (record(populus_package.compile(model, target="gc200", tiles=16, pipeline=p), "m") for p in ("inference", plain))
    jsonschema.validate(json.loads(text_of(data)), SCHEMA)
    assert sum(step["kind"] == "call" for step in data["steps"]) >= 3, "the layers are a function"
    assert {p for op in other["ops"] for p in op["places"]} <= {p for op in data["ops"] for p in op["places"]}
    products = [[op for op in data["ops"] if name in op["places"]] for name in ("matmul_22", "matmul_55", "matmul_88")]
    costs = [[sum(op[k] for op in ops) for k in ("compute", "exchange", "bytes", "flops")] for ops in products]
    assert costs[0] == costs[1] == costs[2] != [0] * 4, "equal layers cost the same"
    assert sum(op["cycles"] for op in data["ops"]) == data["summary"]["cycles"]
    inside = next(step for step in data["steps"] if "matmul_55" in step["place"] and step["kind"] == "execute")
    shared = data["shared"]["matmul_55"]
    assert shared == {"functions": [inside["call"]], "like": "matmul_22"}
    assert any("popart.gemm" in text or "popart.matmul" in text for text in data["ir"]["matmul_22"]["popart"])
    assert "onnx.MatMul" in data["ir"]["matmul_55"]["onnx"][0]
    assert any(f"@{inside['call']}, called 3 times" in node.get("label", "") for node in data["tree"])


def test_a_profile_names_what_made_it(data, net):
    again = record(populus_package.compile(net, target="gc200", tiles=8), "net.onnx")
    assert again["model_hash"] == hashlib.sha256(net.read_bytes()).hexdigest()
    assert data["made_by"].startswith("populus ")
    assert all(again[key] for key in ("pipeline", "target", "title"))


def test_the_data_are_as_the_schema_says(data):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(text_of(data)), SCHEMA)


def test_steps_of_calls_and_of_replicas_are_in_the_schema():
    with Builder("layer") as layer:
        layer.output("y", layer.op("matmul", layer.input("x", (8, 8)), layer.input("w", (8, 8)))[0])
    b = Builder()
    x, v, w = (b.input(name, (8, 8)) for name in ("x", "v", "w"))
    (y,) = b.call(layer, b.call(layer, x, v)[0], w)
    b.output("y", b.op("all_reduce", y, size=2)[0])
    data = record(populus_package.compile(b.module(), target="gc200", tiles=4), "layers")
    jsonschema.validate(json.loads(text_of(data)), SCHEMA)
    assert {"call", "collective", "execute"} <= {step["kind"] for step in data["steps"]}


LOOP = """
poplar.graph @main target <gc200, tiles = 4> {
  %x = poplar.var "x" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<16xf32>
  poplar.repeat 10 {
    poplar.execute "double" {
      poplar.family @map {expr = #expr.fn<mul(_1, 2.0)>} for (i = 16 in 4) on (i)
        inout x1 = %x[i] : !poplar.tensor<16xf32>
    }
  }
  poplar.stream_out %x to "y" : !poplar.tensor<16xf32>
}
"""


def test_a_loop_stands_in_the_tree_and_counts_as_often_as_it_runs(tmp_path):
    (tmp_path / "loop.mlir").write_text(LOOP)
    data = record(populus_package.compile(tmp_path / "loop.mlir"), "loop.mlir")
    jsonschema.validate(json.loads(text_of(data)), SCHEMA)
    (loop,) = [node for node in data["tree"] if node["op"] == "poplar.repeat"]
    (body,) = loop.get("blocks", [])
    step = data["steps"][body[0].get("step", -1)]
    assert (step["label"], step["count"]) == ("double", 10)
    assert data["summary"]["compute_cycles"] == 10 * step["compute"]
    assert html(data)


def test_totals_agree_with_their_parts(program, data):
    summary = data["summary"]
    assert summary == program.profile().summary
    totals = {"compute": "compute_cycles", "exchange": "exchange_cycles", "sync": "sync_cycles", "bytes": "exchange_bytes"}
    for phase, total in totals.items():
        assert sum(op[phase] for op in data["ops"]) == summary[total]
        assert sum(step[phase] * step["count"] for step in data["steps"]) == summary[total]
    assert sorted(i for op in data["ops"] for i in op["steps"]) == list(range(len(data["steps"])))


def test_the_balance_of_tiles_adds_up(data):
    values = {kind: [v for v, n in runs for _ in range(n)] for kind, runs in data["balance"].items()}
    assert all(len(v) == data["target"]["tiles"] for v in values.values())
    steps = [step for step in data["steps"] if step["kind"] == "execute"]
    assert sum(values["received"]) == sum(step["bytes"] * step["count"] for step in steps)
    assert 0 < max(values["compute"]) <= sum(step["compute"] * step["count"] for step in steps)


def test_memory_of_tiles_adds_up_to_the_peak(data):
    memory, tiles = data["memory"], data["target"]["tiles"]
    for runs in memory["tiles"].values():
        assert sum(n for _, n in runs) == tiles
    whole = {category: [value for value, n in runs for _ in range(n)] for category, runs in memory["tiles"].items()}
    at_peak = [sum(whole[category][tile] for category in ("constants", "variables", "exchanged")) for tile in range(tiles)]
    assert max(at_peak) == at_peak[memory["tile"]] == memory["peak"] == data["summary"]["liveness_bound"]
    assert all(highest >= now for highest, now in zip(whole["highest"], at_peak, strict=True))
    assert memory["curve"][memory["step"]]["fullest"] == max(point["fullest"] for point in memory["curve"]) == memory["peak"]
    alive = [v for v in data["variables"] if any(first <= memory["step"] <= last for first, last in v["spans"])]
    assert sum(v["bytes"] for v in alive) == sum(at_peak)


def test_each_node_has_its_ops_at_every_level(data):
    assert set(data["ir"]["conv"]) == {"onnx", "popart", "popops", "poplar"}
    assert data["ir"]["conv"]["onnx"][0].split(" = ")[1].startswith("onnx.Conv_")
    assert any("poplar.family @conv" in text for text in data["ir"]["conv"]["poplar"])


def test_a_profile_is_the_same_every_time(data):
    again = record(populus_package.compile(model(), target="gc200", tiles=32), "net.onnx")
    assert text_of(again) == text_of(data)


def test_the_command_writes_both_files_and_compares(populus, net, tmp_path):
    plain, both = tmp_path / "plain.json", tmp_path / "both.json"
    assert populus("profile", net, "--target", "gc200", "--tiles", 8, "--pipeline", "inference-plain", "--json", plain).status == 0
    page = tmp_path / "p.html"
    compared = populus("profile", net, "--target", "gc200", "--tiles", 8, "--json", both, "--before", plain, "--all", "--html", page)
    assert compared.status == 0
    assert "compute sets" in compared.out
    assert "%" in compared.out
    assert "popops-fuse" in read(both)["pipeline"]
    assert "popops-fuse" not in read(plain)["pipeline"]
    assert populus("profile", both, "--html", tmp_path / "again.html").status == 0
    assert (tmp_path / "again.html").read_text() == html(read(both))


def test_totals_are_words_with_units_and_long_names_keep_their_ends(populus, net):
    few = populus("profile", net, "--target", "gc200", "--tiles", 8).out
    every = populus("profile", net, "--target", "gc200", "--tiles", 8, "--all").out
    units = {
        "cycles": "cycles",
        "time": "[µm]s",
        "matrix units": "% of their peak",
        "waiting at barriers": "cycles",
        "fullest tile": "bytes",
        "tiles in use": "tiles",
    }
    for words, unit in units.items():
        assert re.search(rf"^{words} +[\d.,e-]+ +{unit} *$", few, re.MULTILINE), (words, few)
    assert "_" not in few.split("\nop ")[0], "no keys"
    assert "imbalance cycles" not in few
    assert "imbalance cycles" in every
    assert _end_of("/model/encoder/layer.11/attention/self/query/MatMul", 20) == "../self/query/MatMul"
    rows = few.split("\nop ")[1].splitlines()
    assert len(rows) <= 12 and max(map(len, rows)) <= 80, "no name is folded"


def test_what_if_names_machines_that_are_just_enough(populus, net):
    program = populus_package.compile(model(), target="gc200", tiles=16, level="popops")
    found = what_if(program, Spec.of("gc200", 16))
    assert found.itself is not None
    assert found.itself.cycles == populus_package.compile(model(), target="gc200", tiles=16).profile().summary["cycles"]
    assert found.tile_bytes is not None
    assert found.tiles is not None
    assert found.tiles.cycles == populus_package.compile(model(), target="gc200", tiles=found.tiles.size).profile().summary["cycles"]
    enough = found.tile_bytes.size
    assert populus_package.compile(model(), target=f"gc200, tile_bytes={enough}", tiles=16).profile().summary["fits"]
    with pytest.raises(PopulusError, match="needs"):
        populus_package.compile(model(), target=f"gc200, tile_bytes={enough - enough // 16 - 1024}", tiles=16)
    printed = populus("profile", net, "--target", "gc200", "--tiles", 16, "--what-if").out
    times = found.tiles.cycles / found.itself.cycles
    assert f"{found.tiles.cycles:,}  {times:.3g} x" in printed
    with populus_package.Builder() as b:
        x = b.input("x", (32, 32))
        for k in range(6):
            x = b.op("relu", b.op("matmul", x, b.constant(np.arange(k, k + 1024, dtype=np.float32).reshape(32, 32)))[0])[0]
        b.output("y", x)
    chain = what_if(populus_package.compile(b.module(), target="gc200", tiles=4, level="popops"), Spec.of("gc200", 4))
    assert chain.tile_bytes is not None
    assert chain.tile_bytes.streamed > 0, "variables wait outside the tiles on the smallest machine"


def test_what_does_not_fit_has_a_page_and_the_number_of_tiles_that_suffice(populus, net, tmp_path):
    page, data = tmp_path / "p.html", tmp_path / "p.json"
    small = ("profile", net, "--target", "gc200, tile_bytes=6000", "--tiles", 2)
    found = populus(*small, "--html", page, "--json", data)
    assert found.status == 1
    assert found.err.count("\n") == 1
    assert "the model needs 14 KiB on tile 0" in found.err
    assert "use more of its 1,472 tiles" in found.err
    summary = read(data)["summary"]
    assert summary["fits"] is False
    assert summary["peak_tile_bytes"] > 6000
    assert "memory" in page.read_text()
    said = re.search(r"(\d+) tiles suffice: --target '(.*)'", found.out)
    assert said is not None, found.out
    assert populus("profile", net, "--target", said[2]).status == 0
    assert populus("profile", net, "--target", f"gc200, tile_bytes=6000, tiles={int(said[1]) - 1}").status == 1
    whole = populus("profile", net, "--target", "gc200, tile_bytes=4097")
    assert "populus profile MODEL --what-if finds the machine that suffices" in whole.err, "it has no more tiles to use"


def test_what_if_says_what_it_would_take(populus, net):
    printed = populus("profile", net, "--target", "gc200, tile_bytes=6000", "--tiles", 2, "--what-if")
    assert printed.status == 0
    assert "fits" in printed.out
    assert "no" in printed.out.split("fits")[1].splitlines()[0]


@pytest.mark.parametrize(("start", "answer"), [(1, 37), (37, 37), (1000, 37), (5, None)])
def test_the_smallest_is_found_from_anywhere(start, answer):
    if answer is None:
        assert smallest(start, 30, lambda n: n >= 37) is None
    else:
        assert smallest(start, 10_000, lambda n: n >= 37) == answer


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a profile"),
        ("[]", "JSON, but not a profile"),
        ('{"schema": "other"}', "JSON, but not a profile"),
        ('{"schema": "populus-profile", "version": 99}', "schema version 99, this is version 1"),
        ('{"schema": "populus-profile", "version": 1, "title": ""}', "a profile without 'summary'"),
        ("\udcff", "not text"),
        ("[" * 100_000, "not a profile"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(populus, tmp_path, content, message):
    path = tmp_path / "p.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    outcome = populus("profile", path)
    assert outcome.status == 1
    assert outcome.err.count("\n") == 1
    assert message in outcome.err or message == "not text"


def test_a_mistake_writes_nothing(populus, net, tmp_path):
    page = tmp_path / "p.html"
    nowhere = tmp_path / "no" / "f"
    wrong = {1: (["--before", nowhere], ["--json", nowhere]), 2: (["--pipeline", "no"], ["--target", "gc200, tile_byte=1"])}
    for status, arguments in ((status, given) for status, rows in wrong.items() for given in rows):
        outcome = populus("profile", net, "--html", page, *arguments)
        assert outcome.status == status, arguments
        assert outcome.err.count("\n") == 1
    assert not page.exists()


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="the page is looked at in Chromium, which is not installed")
def test_the_page_in_a_browser(data, tmp_path):
    from playwright.sync_api import sync_playwright

    before = record(populus_package.compile(model(), target="gc200", tiles=32, pipeline="inference-plain"), "net.onnx")
    path = tmp_path / "p.html"
    path.write_text(html(data, before), encoding="utf-8")
    problems: list[str] = []
    with sync_playwright() as browsers:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
        page.on("dialog", lambda dialog: problems.append("a name was run"))
        page.goto(path.as_uri())
        views = [tab.get_attribute("id") for tab in page.query_selector_all("[role=tab]")]
        assert views == [f"tab-{n}" for n in ["summary", "ops", "memory", "timeline", "tiles", "program", "ir", "balance", "difference"]]
        for number, view in enumerate(views, 1):  # by keyboard alone
            page.keyboard.press(str(number))
            assert page.get_attribute(f"#{view}", "aria-selected") == "true"
            panel = page.locator("[role=tabpanel]:not([hidden])")
            assert panel.count() == 1
            assert len(panel.inner_text()) > 40, view
        page.keyboard.press("ArrowRight")  # round the end
        assert page.get_attribute("#tab-summary", "aria-selected") == "true"

        page.keyboard.press("2")
        rows = page.locator("#panel-ops tbody tr")
        assert rows.count() == len(data["ops"])
        assert HOSTILE in page.locator("#panel-ops").inner_text()
        cycles = [int(text.replace(",", "")) for text in page.locator("#panel-ops tbody td:nth-child(4)").all_inner_texts()]
        assert cycles == sorted((op["cycles"] for op in data["ops"]), reverse=True)
        page.keyboard.press("/")
        page.keyboard.type("conv")
        assert 0 < rows.count() < len(data["ops"])
        page.locator("#panel-ops tbody button").first.click()
        assert page.get_attribute("#tab-ir", "aria-selected") == "true"
        assert page.locator("#panel-ir h3").count() == 4

        page.click("#tab-memory")
        page.locator("#panel-memory canvas").nth(1).focus()
        page.keyboard.press("Home")
        assert "Alive at step 0" in page.locator("#panel-memory").inner_text()
        page.keyboard.press("ArrowRight")
        assert "Alive at step 1" in page.locator("#panel-memory").inner_text()

        page.click("#tab-tiles")
        page.select_option("#panel-tiles select", index=0)
        page.locator("#panel-tiles canvas").focus()
        page.keyboard.press("ArrowRight")
        assert "tile 1" in page.locator("#panel-tiles [aria-live]").inner_text()
        page.keyboard.press("4")
        with page.expect_download() as saved:
            page.click("text=steps as CSV")
        assert len(list(csv.DictReader(saved.value.path().open()))) == len(data["steps"])
        with page.expect_download() as saved:
            page.click("text=trace for Perfetto")
        events = json.loads(saved.value.path().read_text())["traceEvents"]
        total = sum(e["dur"] for e in events if e["ph"] == "X")
        assert total == pytest.approx(1e6 * data["summary"]["seconds"])
        page.click("#tab-ops")
        page.fill("#panel-ops input", "")
        page.locator("#panel-ops .dots").first.click()
        page.click("#tab-balance")
        assert f"most {max(v for v, _ in data['balance']['compute']):,}" in page.locator("#panel-balance").inner_text()
        assert page.locator("main").count() == page.locator("header").count() == page.locator("nav[aria-label=views]").count() == 1
        page.set_viewport_size({"width": 400, "height": 800})
        for number in range(1, len(views) + 1):
            page.keyboard.press(str(number))
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, views[number - 1]
        page.set_viewport_size({"width": 1400, "height": 900})
        drawn = page.evaluate(
            "[...document.querySelectorAll('canvas')].map(c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size)"
        )
        assert drawn
        assert all(colours > 8 for colours in drawn), "an empty chart"
        browser.close()
    assert problems == []


AXE = find_spec("axe_playwright_python")


@pytest.mark.skipif(CHROMIUM is None or AXE is None, reason="axe-core runs in Chromium, of the package axe-playwright-python")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_page(scheme, data, tmp_path):
    from playwright.sync_api import sync_playwright

    before = record(populus_package.compile(model(), target="gc200", tiles=32, pipeline="inference-plain"), "net.onnx")
    path = tmp_path / "p.html"
    path.write_text(html(data, before), encoding="utf-8")
    script = (Path(AXE.origin).parent / "axe.min.js").read_text()
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(color_scheme=scheme, bypass_csp=True).new_page()
        page.goto(path.as_uri())
        page.evaluate(script)
        for tab in page.query_selector_all("[role=tab]"):
            tab.click()
            found = page.evaluate("axe.run()")["violations"]
            assert not found, [(f["id"], f["nodes"][0]["html"]) for f in found]
        browser.close()
