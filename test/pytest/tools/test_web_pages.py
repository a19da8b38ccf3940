"""Pages of programs for wasm32 in Chromium: they open from a file, compute what the native engine computes, and are accessible."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from helpers.built_nets import cache, compiled
from populus.tools.main import main
from populus.write.nets import net

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="the pages are looked at in Chromium, which is not installed")
SIZES = {"desktop": (1200, 800, "light"), "phone": (390, 844, "dark")}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("web") / "digit.html"
    assert main(["demo", "--web", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        opened = browsers.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


def opened(browser: Any, path: Path, size: str = "desktop") -> tuple[Any, list[str]]:
    """The page of a file, and what goes wrong in it: errors, and requests of anything but the file."""
    wide, high, scheme = SIZES[size]
    page, problems = browser.new_page(viewport={"width": wide, "height": high}, color_scheme=scheme), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(path.as_uri())
    return page, problems


@needs_chromium
@pytest.mark.parametrize("size", SIZES)
def test_the_page_of_digits_recognises_images_and_drawings(digits: Path, browser: Any, size: str):
    page, problems = opened(browser, digits, size)
    page.wait_for_function("document.getElementById('said').textContent === 'Draw, or choose an image'")
    with np.load(Path(net("digits")).with_name("images.npz")) as found:
        images = {i: found["images"][list(found["labels"]).index(i)] for i in range(10)}
    program = populus.compile(net("digits"), target="gc200", tiles=16)
    for digit, image in images.items():
        button = page.get_by_role("button", name=f"image of a {digit}")
        button.focus()
        page.keyboard.press("Enter")
        shares = program.run({"image": image[None, None].astype(np.float32) / 16})["shares"][0]
        assert page.inner_text("#said") == f"{shares.argmax()} ({round(100 * float(shares.max()))}%)"
        told = [float(text.rstrip("%")) for text in page.locator("#shares td:last-child").all_inner_texts()]
        np.testing.assert_allclose(told, 100 * shares, atol=0.06)
    page.click("#clear")
    box = page.locator("#pad").bounding_box()
    for number, (u, v) in enumerate(((0.3, 0.2), (0.7, 0.2), (0.45, 0.85))):  # a seven
        page.mouse.move(box["x"] + u * box["width"], box["y"] + v * box["height"], steps=8)
        if number == 0:
            page.mouse.down()
    page.mouse.up()
    assert page.inner_text("#said").startswith("7 ")
    assert re.fullmatch(r"[\d.]+ ms; loaded in \d+ ms; \d+ kB of code and weights; .*", page.inner_text("#cost"))
    page.click("summary")
    assert page.locator("#levels pre").count() >= 4
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], "the page scrolls sideways"
    assert not problems


@needs_chromium
@pytest.mark.skipif(find_spec("axe_playwright_python") is None, reason="axe-core is of the package axe-playwright-python")
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing_on_the_page_of_digits(digits: Path, browser: Any, size: str):
    from axe_playwright_python.sync_playwright import Axe

    page, _ = opened(browser, digits, size)
    page.click("summary")
    found = Axe().run(page).response["violations"]
    assert not [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in found]


def drawn(count: int) -> np.ndarray:
    """The numbers that index.html draws for an input."""
    seed, found = 1, []
    for _ in range(count):
        seed = (seed * 1664525 + 1013904223) % (1 << 32)
        found.append(np.float32(seed / 2**31 - 1))
    return np.array(found)


@needs_chromium
def test_a_page_in_one_file_runs_the_program(browser: Any, tmp_path: Path):
    matrix = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 1, 8, 8]), ("y", [1, 5])))
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(matrix, "w")]), opset_imports=[helper.make_opsetid("", 17)]
    )
    built = populus.build(populus.compile(proto, engine="native"), tmp_path, name="net", cpu="wasm32", relaxed=True, single_file=True)
    assert [path.name for path in tmp_path.iterdir()] == [built.library.name] == ["net.html"]
    page, problems = opened(browser, built.library)
    page.wait_for_function("document.getElementById('state').textContent.startsWith('ready')")
    assert page.inner_text("#signature") == "x: float32 [1,1,8,8]\n→\ny: float32 [1,5]"
    page.click("#run")
    expected = drawn(64) @ matrix
    told = [float(line.split()[-1]) for line in page.inner_text("#out").splitlines()[2:]]
    np.testing.assert_allclose(told, np.sort(expected)[::-1], rtol=1e-4, atol=1e-5)
    assert not problems


@needs_chromium
def test_a_page_with_buckets_of_sizes_runs_the_greatest_on_drawn_inputs(browser: Any, tmp_path: Path):
    matrix = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", 16]), ("y", ["n", 3])))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [numpy_helper.from_array(matrix, "w")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    program = populus.compile(proto, engine="native", buckets=[2, 4])
    built = populus.build(program, tmp_path, cpu="wasm32", relaxed=True, single_file=True)
    page, problems = opened(browser, built.library)
    page.wait_for_selector("#run:not([disabled])")
    assert page.inner_text("#signature") == "x: float32 [n,16], at most [4,16]\n→\ny: float32 [n,3], at most [4,3]"
    page.click("#run")
    expected = np.sort((drawn(64).reshape(4, 16) @ matrix).ravel())[::-1]
    told = [float(line.split()[-1]) for line in page.inner_text("#out").splitlines()[2:]]
    np.testing.assert_allclose(told, expected[:5], rtol=1e-4, atol=1e-5)
    assert not problems


@needs_chromium
@pytest.mark.skipif(find_spec("axe_playwright_python") is None, reason="axe-core is of the package axe-playwright-python")
@pytest.mark.parametrize("size", SIZES)
def test_the_page_of_a_cache_tells_its_sizes_and_empties_it(size: str, browser: Any, tmp_path: Path):
    from axe_playwright_python.sync_playwright import Axe

    program = compiled(cache(), dims={"batch": 1, "cur": (1, 8), "past": (0, 12), "past + cur": (1, 12)})
    built = populus.build(program, tmp_path, cpu="wasm32", states={"past": "present"}, single_file=True)
    page, problems = opened(browser, built.library, size)
    page.wait_for_selector("#run:not([disabled])")
    sizes = "[1,cur,16], at most [1,8,16]"
    assert (
        page.inner_text("#signature") == f"x: float32 {sizes}\n→\ny: float32 {sizes}\nstates\npast: float32 [1,past,16], at most [1,12,16]"
    )
    said = []
    for button in ("#run", "#run", "#reset", "#run"):
        page.click(button)
        said.append(page.inner_text("#out").split("\n")[0])
    assert re.fullmatch(r"[\d.]+ ms", said[0])
    assert said[1:3] == ["'cur + past' is 16, above its bound 12", ""]
    assert re.fullmatch(r"[\d.]+ ms", said[3])
    assert not page.is_visible("#drop"), "the program takes no image"
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], "the page scrolls sideways"
    assert not [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in Axe().run(page).response["violations"]]
    assert not problems


def test_the_page_of_digits_is_not_of_another_model(capsys: pytest.CaptureFixture[str]):
    assert main(["demo", "--web", "x.html", "--model", "light_resnet50"]) == 2
    assert "the page is of the net of digits" in capsys.readouterr().err
