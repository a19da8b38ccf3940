"""Pictures of every view of the page of `populus profile`, light and dark, wide and narrow, and its start with 3,000 nodes.

Needs Chromium (Debian's package `chromium`) and, for axe-core's findings, the package axe-playwright-python.

    python -m benchmarks.screens [FOLDER]
"""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.models import mixed, transformer
from populus.program.compile import compile
from populus.tools.report.page import html
from populus.tools.report.record import record
from populus.write.nets import net

WIDTHS = (1400, 400)
NODES = 3_000


def chromium() -> str | None:
    """Finds Chromium among the commands."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pages(folder: Path) -> dict[str, Path]:
    """Writes the pages of resnet50, of four layers as BERT has them, and of a net of many nodes."""
    plain = record(compile(net("resnet50"), target="gc200", pipeline="inference-plain"), "resnet50")
    records: dict[str, tuple[Any, ...]] = {
        "resnet50": (record(compile(net("resnet50"), target="gc200"), "resnet50"), plain),
        "bert": (record(compile(transformer(layers=4), target="gc200"), "bert"),),
        "many": (record(compile(mixed(NODES, channels=16, size=4), target="gc200", pipeline="inference-plain"), "many"),),
    }
    paths: dict[str, Path] = {}
    for name, given in records.items():
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(html(*given), encoding="utf-8")
    return paths


def main(arguments: list[str]) -> int:
    """Writes the pictures, prints axe-core's findings and the time until the page answers."""
    command = chromium()
    if command is None or find_spec("playwright") is None:
        print("screens: needs Chromium (apt-get install chromium) and the package playwright")
        return 1
    from playwright.sync_api import sync_playwright

    folder = Path(arguments[0] if arguments else "build/screens")
    folder.mkdir(parents=True, exist_ok=True)
    paths = pages(folder)
    axe = find_spec("axe_playwright_python")
    script = None if axe is None or axe.origin is None else (Path(axe.origin).parent / "axe.min.js").read_text()
    findings = 0
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=command, args=["--no-sandbox", "--disable-gpu"])
        for name, scheme, width in product(("resnet50", "bert"), ("light", "dark"), WIDTHS):
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
            page = context.new_page()
            page.goto(paths[name].as_uri())
            if script is not None:
                page.evaluate(script)
            for tab in page.query_selector_all("[role=tab]"):
                tab.click()
                view = (tab.get_attribute("id") or "").removeprefix("tab-")
                page.screenshot(path=folder / f"{name}-{scheme}-{width}-{view}.png")
                wide = page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    print(f"{name} {scheme} {width} {view}: {wide} pixels wide")
                for found in page.evaluate("axe.run()")["violations"] if script is not None else ():
                    findings += 1
                    print(f"{name} {scheme} {width} {view}: {found['id']}: {found['nodes'][0]['html'][:100]}")
            context.close()
        print(f"axe-core: {findings} findings" if script is not None else "axe-core: not there (pip install axe-playwright-python)")
        page = browser.new_page()
        begun = perf_counter()
        page.goto(paths["many"].as_uri())
        page.keyboard.press("2")
        page.locator("#panel-ops tbody tr").first.wait_for()
        print(f"{NODES} nodes: {perf_counter() - begun:.2f} s until the table of ops is there, on this machine as it is busy now")
        browser.close()
    print(f"wrote {len(list(folder.glob('*.png')))} pictures to {folder}")
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
