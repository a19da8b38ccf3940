"""`populus explore`: its tables and files, and its page in a browser."""

import csv
import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import populus as populus_package
from populus.exploration.sensitivity import sensitivity
from populus.tools.report.exploration import html, ops_of

HOSTILE = "</script><img src=x onerror=alert(1)>"  # the name of a node: shown, never run
VARY = {"tiles": "4,8,16", "tile_bytes": "8K,32K,64K", "exchange_bytes": "2,4"}


def model():
    weights = {"w": np.ones((64, 96), np.float32), "v": np.ones((96, 32), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name=HOSTILE),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="second"),
    ]
    info = helper.make_tensor_value_info
    given, out = info("x", TensorProto.FLOAT, [8, 64]), info("y", TensorProto.FLOAT, [8, 32])
    initial = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", [given], [out], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(scope="module")
def found():
    return populus_package.explore(model(), machine="gc200, tiles=16", vary=VARY, minimise=("cycles", "sram"), processes=1)


def test_the_command_writes_the_files_that_the_function_does(found, tmp_path, populus):
    save(model(), tmp_path / "model 1")
    (tmp_path / "model 1").rename(path := tmp_path / "m.onnx")
    vary = [text for name, values in VARY.items() for text in ("--vary", f"{name}={values}")]
    files = {kind: tmp_path / f"out.{kind}" for kind in ("csv", "json", "html")}
    options = [text for kind, file in files.items() for text in (f"--{kind}", file)]
    done = populus("explore", path, "--machine", "gc200, tiles=16", *vary, "--minimise", "cycles,sram", "--processes", 1, *options)
    assert done.status == 0, done.err
    assert files["csv"].read_text() == found.csv()
    data = json.loads(files["json"].read_text())
    assert {**data, "models": []} == {**json.loads(found.json()), "models": []} and data["models"] == [{"name": "m.onnx", "weight": 1.0}]
    rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert len(rows) == 18 and [int(r["point"]) for r in rows if r["front"] == "1"] == sorted(found.front)
    listed = done.out.splitlines()[1 : 1 + len(found.front)]
    for number, line in zip(found.front, listed, strict=True):
        assert [n.replace(",", "") for n in line.split()][:5] == [rows[number][n] for n in ("point", *VARY, "cycles")]
    assert "18 of 18 weighed" in done.out and "levels above the tiles: 1 made, 17 kept" in done.out


def test_a_point_without_room_says_why_in_every_file(found):
    faults = [p for p in found.points if "why" in p]
    assert faults and all("needs" in p["why"] for p in faults)
    assert all(json.dumps(p["why"])[1:60] in found.json() for p in faults) and len(html(found)) > 10_000


def test_the_ops_of_a_point_have_all_of_its_cycles(found):
    number = found.front[0]
    (point,) = (p for p in found.points if p["point"] == number)
    ops = ops_of(found.bench.profile(found.bench.models[0], found.settings(number)))
    assert sum(op["cycles"] for op in ops) == point["measures"]["cycles"]
    for op in ops:
        assert op["compute"] + op["exchange"] + op["sync"] + op["outside"] == op["cycles"], op


def test_an_interruption_keeps_what_is_done(tmp_path):
    def stop(there, most, point):
        if there == 5:
            raise KeyboardInterrupt

    log = tmp_path / "log"
    cut = populus_package.explore(model(), machine="gc200, tiles=16", vary=VARY, processes=1, log=log, progress=stop)
    assert cut.interrupted and len(cut.points) == 5 and not cut.record()["complete"]
    seen: list[int] = []
    again = {"log": log, "resume": True, "progress": lambda there, most, point: seen.append(point["point"])}
    whole = populus_package.explore(model(), machine="gc200, tiles=16", vary=VARY, processes=1, **again)
    assert len(seen) == 13 and not set(seen) & {p["point"] for p in cut.points} and len(whole.points) == 18


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = find_spec("axe_playwright_python")


@pytest.mark.skipif(CHROMIUM is None or find_spec("playwright") is None, reason="the page runs in Chromium, by the package playwright")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 400)])
def test_the_page_works_by_keyboard_and_mouse_and_axe_finds_nothing(scheme, width, found, tmp_path):
    from playwright.sync_api import sync_playwright

    path = tmp_path / "p.html"
    asked = replace(found, sensitivities={found.front[0]: sensitivity(found, found.front[0])})
    asked.to_html(path)
    problems: list[str] = []
    with sync_playwright() as browsers:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True).new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
        page.on("dialog", lambda dialog: problems.append("a name was run"))
        page.goto(path.as_uri())
        page.locator("circle.dot").first.wait_for()
        weighed = [p for p in found.points if "measures" in p]
        plot = page.locator("svg").first
        assert plot.locator("circle").count() == len(weighed)
        assert page.locator("section[aria-label=points] tbody").first.locator("tr").count() == len(found.front)
        first = page.locator("section h2").nth(1).inner_text()
        assert first.startswith(f"Point {found.front[0]},")
        fields = page.get_by_role("region", name="sensitivity").locator("tbody tr")
        assert fields.count() == len(asked.sensitivities[found.front[0]])
        if AXE is not None:
            page.evaluate((Path(AXE.origin).parent / "axe.min.js").read_text())
            faults = page.evaluate("axe.run()")["violations"]
            assert not faults, [(f["id"], f["nodes"][0]["html"]) for f in faults]
        plot.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("section h2").nth(1).inner_text().startswith(f"Point {found.front[1 % len(found.front)]},")
        assert f"Chosen: point {found.front[1 % len(found.front)]}" in (plot.get_attribute("aria-label") or "")
        page.get_by_role("button", name="front or all points").click()
        assert page.locator("section[aria-label=points] tbody").first.locator("tr").count() == len(weighed)
        page.locator("select").nth(3).select_option(str(found.front[0]))
        assert "change" in page.locator("section[aria-label='the chosen point'] th").all_inner_texts()
        box = plot.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 60, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] - 30, steps=4)
        page.mouse.up()
        assert "selected" in page.locator("p[aria-live]").inner_text()
        for name in ("up", "across", "colour"):
            for option in page.locator(f"label:has-text('{name}') select").first.locator("option").all_inner_texts():
                page.locator(f"label:has-text('{name}') select").first.select_option(option)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if AXE is not None:
            faults = page.evaluate("axe.run()")["violations"]
            assert not faults, [(f["id"], f["nodes"][0]["html"]) for f in faults]
        browser.close()
    assert not problems
