"""Programs for wasm32 with threads: the same bits on one, two and four, in Node and in Chromium; workers that wait sleep."""

from __future__ import annotations

import base64
import functools
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import populus
from benchmarks.models import LIGHT, randomised
from helpers import web
from helpers.built_nets import compiled, net
from helpers.web import Run, needs_node
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.engine.native.codegen.cpu import machine

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory):
    """A built folder of a program for 1 to 4 threads, inputs, and the native engine's outputs."""
    folder, program = tmp_path_factory.mktemp("threads"), compiled(randomised(LIGHT / "light_squeezenet.onnx", logits=True), threads=4)
    populus.build(program, folder, cpu="wasm32", relaxed=True)
    inputs = program.signature.random()
    return folder, inputs, program.run(inputs)


@pytest.fixture(scope="module")
def one_thread(squeezenet):
    """The bits of outputs on one thread, which are the native engine's where it fuses products."""
    folder, inputs, expected = squeezenet
    (came,) = web.ran([Run(folder, [inputs], {"threads": 1})])
    found = came["runs"][0]["outputs"]
    if came["bits"] == "native" and machine().fused:
        assert found == {name: y.tobytes() for name, y in expected.items()}
    return found


@needs_node
@pytest.mark.parametrize("threads", [2, 4])
def test_threads_give_the_same_bits_and_sleep_while_they_wait(squeezenet, one_thread, threads):
    folder, inputs, _ = squeezenet
    arrays = {name: base64.b64encode(x.tobytes()).decode() for name, x in inputs.items()}
    text = web.script(Path(web.__file__).parent / "web_threads.mjs", json.dumps({"folder": str(folder), "threads": threads, "x": arrays}))
    found = json.loads(text)
    assert found["outputs"] == [",".join(base64.b64encode(y).decode() for y in one_thread.values())]
    assert found["threads"] == [threads, 1], "close leaves one"
    assert found["asleep"] == found["again"] == found["ended"] == threads - 1
    assert found["taken"] > 0, "no worker took a chunk"
    assert found["failed"] == 1, "a worker whose kernel traps says so"


@needs_node
def test_a_number_of_threads_that_a_build_does_not_have_is_refused(squeezenet, tmp_path):
    populus.build(compiled(net()), tmp_path, cpu="wasm32")
    said = [came.get("error") for came in web.ran([Run(squeezenet[0], [], {"threads": n}) for n in (0, 5)])]
    assert said == [f"Error: threads is {n}; the program was built for 1 to 4" for n in (0, 5)]
    (came,) = web.ran([Run(tmp_path, [], {"threads": 2})])
    assert came["error"] == "Error: threads is 2; the program was built for 1"


@needs_node
def test_a_loader_without_threads_refuses_a_module_that_has_them(squeezenet, tmp_path):
    folder, inputs, _ = squeezenet
    populus.build(compiled(net()), tmp_path, name="other", cpu="wasm32", relaxed=True)
    for file in folder.glob("model.*"):
        shutil.copy(file, tmp_path / file.name.replace("model", "other"))
    (came,) = web.ran([Run(tmp_path, [inputs])])
    assert came["error"] == "Error: the program has threads; load it by the populus.mjs of its own build"


def test_threads_are_asked_for_and_are_not_those_of_a_single_file(tmp_path):
    populus.build(compiled(net()), tmp_path / "one", cpu="wasm32")
    populus.build(compiled(net(), threads=2), tmp_path / "two", cpu="wasm32")
    one, two = ({path.name for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert two - one == {"worker.mjs"}
    with pytest.raises(PopulusError, match="single_file opens from a file, where a browser shares no memory; leave it, or threads = 2"):
        populus.build(compiled(net(), threads=2), tmp_path, cpu="wasm32", single_file=True)


class _Isolated(SimpleHTTPRequestHandler):
    """Serves files, with the headers that let pages share memory unless the query says `alone`."""

    def end_headers(self) -> None:
        if "alone" not in self.path:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def guess_type(self, path: object) -> str:
        return "text/javascript" if str(path).endswith("mjs") else super().guess_type(str(path))

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def address(squeezenet) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Isolated, directory=str(squeezenet[0])))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


SCRIPT = """async (x) => {
  const { load } = await import("./populus.mjs"), program = await load(), found = [];
  const [{ name }] = program.inputs, data = new Float32Array(Uint8Array.from(atob(x), (c) => c.charCodeAt(0)).buffer);
  for (let i = 0; i < 5; i++) {
    const y = Object.values(program.run({ [name]: data })).map((a) => Array.from(new Uint8Array(a.buffer)));
    if (!found.some((other) => JSON.stringify(other) === JSON.stringify(y))) found.push(y);
    await new Promise((then) => setTimeout(then, 100));
  }
  return { found, threads: program.threads, isolated: crossOriginIsolated, cores: navigator.hardwareConcurrency };
}"""


def _opened(browser, address):
    """A page that has loaded the program, and what goes wrong in it."""
    page, problems = browser.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(address)
    page.wait_for_selector("#run:not([disabled])", state="attached")
    return page, problems


@pytest.mark.skipif(CHROMIUM is None, reason="runs in Chromium, which is not installed")
@needs_node
def test_an_isolated_page_has_threads_and_another_one_thread_with_the_same_bits(squeezenet, one_thread, address):
    from playwright.sync_api import sync_playwright

    (x,) = squeezenet[1].values()
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for query, isolated in (("", True), ("?alone", False)):
            page, problems = _opened(browser, f"{address}/index.html{query}")
            came = page.evaluate(SCRIPT, base64.b64encode(x.tobytes()).decode())
            assert [[bytes(y) for y in found] for found in came["found"]] == [list(one_thread.values())]
            assert came["isolated"] == isolated
            assert came["threads"] == (min(came["cores"], 4) if isolated else 1)
            assert not problems
        browser.close()
