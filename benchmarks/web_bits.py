"""ONNX's node tests as WebAssembly: for how many of them a module in Node, or in Chromium, has every bit of the native engine.

python -m benchmarks.web_bits [--step N] [--from N]     every N-th case; all without.
python -m benchmarks.web_bits --nets [MODEL ..]         the models of the table of speeds, by default all.
python -m benchmarks.web_bits --chromium [..]           the same in pages of Chromium, which playwright opens.

A case is built with relaxed SIMD and runs on the inputs that its program draws. It is refused where `populus build` refuses it, with the
reason, which is counted by its last words.
"""

# pyright: basic
from __future__ import annotations

import argparse
import base64
import functools
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import populus
from benchmarks.same_bits import Case, compared, nets, node_tests
from benchmarks.speed import HOST

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))
from helpers import web

CHUNK = 60
"""Programs that one process of Node runs."""


def judged(made: list[Case]) -> list[tuple[str, str]]:
    """Runs some modules. Returns for each whether its outputs are equal to the native engine's, and its name with what it says."""
    try:
        cames = web.ran([web.Run(case.folder, [case.given]) for case in made])
    except AssertionError as error:  # the whole process ended: each program has one of its own then
        if len(made) == 1:
            return [("Node ended", f"{made[0].name}: {str(error)[:100]}")]
        return [one for case in made for one in judged([case])]
    found = []
    for case, came in zip(made, cames, strict=True):
        run = came if "error" in came else came["runs"][0]
        found.append(case.judged(run.get("outputs"), run.get("error", "")))
    return found


SCRIPT = """async ({ folder, inputs }) => {
  const ARRAYS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array, uint64: BigUint64Array, int32: Int32Array,
    uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, float16: Uint16Array, bfloat16: Uint16Array, int8: Int8Array,
    int4: Int8Array, int2: Int8Array };
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const plain = ([name, type, text]) => [name, new (ARRAYS[type] ?? Uint8Array)(bytes(text).buffer)];
  const text = (y) => {
    const part = new Uint8Array(y.buffer, y.byteOffset, y.byteLength);
    return btoa(Array.from(part, (b) => String.fromCharCode(b)).join(""));
  };
  try {
    const { load } = await import(`/${folder}/populus.mjs`), program = await load();
    const outputs = program.run(Object.fromEntries(inputs.map(plain)));
    return { outputs: Object.fromEntries(Object.entries(outputs).map(([name, y]) => [name, text(y)])) };
  } catch (error) {
    return { error: error.message };
  }
}"""


class _Files(SimpleHTTPRequestHandler):
    """Serves files in silence, modules as scripts."""

    def guess_type(self, path: object) -> str:
        return "text/javascript" if str(path).endswith("mjs") else super().guess_type(str(path))

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def chromium() -> Iterator[Callable[[list[Case]], list[tuple[str, str]]]]:
    """Gives what judges modules as `judged` does, each in a page of its own."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        sys.exit("there is no Chromium here; Debian: apt install chromium")
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])

        def judged(made: list[Case]) -> list[tuple[str, str]]:
            if not made:
                return []
            handler = functools.partial(_Files, directory=str(made[0].folder.parent))
            with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                found = []
                for case in made:
                    page = browser.new_page()
                    page.goto(f"http://127.0.0.1:{server.server_port}/")
                    inputs = [(name, x.dtype.name, base64.b64encode(x.tobytes()).decode()) for name, x in case.given.items()]
                    came = page.evaluate(SCRIPT, {"folder": case.folder.name, "inputs": inputs})
                    page.close()
                    outputs = {name: base64.b64decode(text) for name, text in came["outputs"].items()} if "outputs" in came else None
                    found.append(case.judged(outputs, came.get("error", "")))
                server.shutdown()
            return found

        yield judged
        browser.close()


def main() -> int:
    """Prints counts as they grow, and what is not equal. Gives 0 if every program that was built has the native engine's bits."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_bits", description=__doc__)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--nets", nargs="*", metavar="MODEL")
    parser.add_argument("--chromium", action="store_true")
    options = parser.parse_args()
    build = lambda program, folder: populus.build(program, folder, cpu="wasm32", relaxed=True)  # noqa: E731
    with chromium() if options.chromium else nullcontext(judged) as judge:
        if options.nets is not None:
            return compared(nets(options.nets or HOST), build, judge, 1)
        return compared(node_tests(options.first, options.step), build, judge, CHUNK)


if __name__ == "__main__":
    sys.exit(main())
