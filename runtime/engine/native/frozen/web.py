"""Frozen program for browsers and Node: a WebAssembly module of its kernels and of the engine's walk, and the page around it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from string import ascii_letters

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime import built
from populus.runtime.built.writer import digest
from populus.runtime.engine.native.codegen.cpu import ATOMICS, Machine
from populus.runtime.engine.native.codegen.jit import Kernel, file_object
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.frozen.freeze import Frozen, write_weights
from populus.runtime.engine.native.frozen.own_kernels import SUMS
from populus.runtime.engine.native.frozen.wasm_link import STACK, linked
from populus.runtime.engine.native.run.step_loop import WALK, WORKER

TEMPLATES = Path(built.__file__).parent
PAGE, TYPES, LOADER, SIZES, TEAM, HELPER = "index.html", "populus.d.mts", "populus.mjs", "sizes.mjs", "team.mjs", "worker.mjs"
MOST = 1 << 32  # bytes that a module addresses


def _fused(name: str, machine: Machine) -> str:
    """Emits `float fused(a, b, total)`: `total + a b`, as products of this module add it."""
    f = Function(name, "float %a, float %b, float %total", "float")
    a, b, total = (f.splat("float", 4, value) for value in ("%a", "%b", "%total"))
    sums = f.add_product(machine, "float", 4, total, a, b)
    return f.done(f"float {f.let(f'extractelement <4 x float> {sums}, i64 0')}")


IMPORT = 'import { load } from "./populus.mjs"; // the loader'
FILES = "const FILES = undefined; // of the program, in a page that holds them"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'wasm-unsafe-eval'; img-src blob:"

OWN = {"walk": WALK, "sums": SUMS, "fused": Kernel("fused", _fused)}


def module(frozen: Frozen, machine: Machine, identity: bytes, notes: Mapping[str, bytes], bytes: int) -> bytes:
    """Builds the module of a frozen program for a machine, which is its plan or that with relaxed vectors.

    `bytes`: those that the program takes beside the module's stack and data.
    """
    shared = machine.has(ATOMICS)
    own = OWN | ({"worker": WORKER} if shared else {})
    objects = [file_object(kernel, machine) for kernel in (*frozen.kernels, *own.values())]
    entries, exports = [kernel.name for kernel in frozen.kernels], {name: kernel.name for name, kernel in own.items()}
    return linked(objects, entries, exports, identity, notes, bytes if shared else 0)


def write_web(
    frozen: Frozen,
    folder: Path,
    name: str,
    relaxed: bool,
    single_file: bool,
    sizes: bytes | None,
    threads: int,
) -> None:
    """Writes `<name>.wasm`, with `relaxed` also `<name>.relaxed.wasm`, weights, the loader, its types and a page; or one page with all.

    `sizes`: what sizes.mjs reads, of a program with open dimensions. `threads`: those that a run may have, for
    which the program was frozen: with more than one there is `worker.mjs` too.
    Raises PopulusError for a program that 4 GiB of memory do not hold.
    """
    identity = write_weights(frozen, folder, name) + digest(folder / f"{name}.bin", frozen.form.at_raw)
    bytes = frozen.form.at_raw + frozen.form.memory + frozen.form.words.nbytes + threads * STACK
    needed = STACK + bytes
    if needed >= MOST:
        raise PopulusError(f"the program needs {needed / 1e9:.1f} GB of memory; wasm32 has 4.3 GB")
    notes = {} if sizes is None else {"populus.sizes": sizes}
    plans = {"": frozen.plan, **({"relaxed.": frozen.plan.relaxed()} if relaxed else {})}
    modules = {kind: module(frozen, plan, identity, notes, bytes) for kind, plan in plans.items()}
    for kind, content in modules.items():
        (folder / f"{name}.{kind}wasm").write_bytes(content)
    loader = (LOADER, *([] if sizes is None else [SIZES]), *([TEAM] if threads > 1 else []))
    values = {"@NAME@": name, "@RELAXED@": "relaxed." if relaxed else "", "@THREADS@": str(threads)}
    values["@DIGESTS@"] = json.dumps({kind: _digest(content) for kind, content in modules.items()})
    for file, parts in {LOADER: loader, TYPES: [TYPES], PAGE: [PAGE], **({HELPER: [HELPER]} if threads > 1 else {})}.items():
        text = "".join((TEMPLATES / part).read_text(encoding="utf-8") for part in parts)
        text = compact(text) if file in (LOADER, HELPER) else text
        for mark, value in values.items():
            text = text.replace(mark, value)
        (folder / file).write_text(text, encoding="utf-8")
    if single_file:
        page = single_page((folder / PAGE).read_text(encoding="utf-8"), folder, name)
        for file in folder.iterdir():
            file.unlink()
        (folder / f"{name}.html").write_text(page, encoding="utf-8")


def _digest(content: bytes) -> str:
    """Gives the digest of a module as the loader compares it: two numbers of 64 bits."""
    front = sha256(content).digest()
    return ",".join(str(int.from_bytes(front[at : at + 8], "little")) for at in (0, 8))


TEXTS = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)""")  # of a script, which stay as they are
SIGNS = re.compile(r" ?([=+*<>(){}\[\],;:?|&!%/]+|-(?!-)) ?")
OFTEN = {
    "throw new Error(": ("$e(", "const $e=(t)=>{throw new Error(t)};\n"),
    "Uint8Array": ("$b", "const $b=Uint8Array;\n"),
    "BigUint64Array": ("$q", "const $q=BigUint64Array;\n"),
}  # what names stand for


def compact(script: str) -> str:
    """Gives a script without what a page need not load: comments, indentation, blanks around signs, and the names of private members.

    Its frequent words get short names.
    """
    found: list[str] = []
    for line in script.splitlines():
        parts = TEXTS.split(re.sub(r"(^|\s)// .*", "", line).strip())
        if "replace(/" not in line:  # a regular expression
            assert "`" not in "".join(parts[::2]), line  # one text inside of another
            parts[::2] = [SIGNS.sub(r"\1", part) for part in parts[::2]]
            for often, (short, _) in OFTEN.items():
                parts[::2] = [re.sub(rf"(?<!\w){re.escape(often)}", short, part) for part in parts[::2]]
        found.append("".join(parts))
    text = "\n".join(line for line in found if line)
    private = dict(zip(dict.fromkeys(re.findall(r"#(\w+)", text)), ascii_letters, strict=False))
    first = "".join(line for short, line in OFTEN.values() if short in text)
    return "// Populus, Apache-2.0\n" + first + re.sub(r"#(\w+)", lambda name: "#" + private[name[1]], text) + "\n"


def single_page(page: str, folder: Path, name: str) -> str:
    """Gives a page that holds the loader, the modules and the weights of a folder that `write_web` filled; it opens from a file."""
    loader = (folder / LOADER).read_text(encoding="utf-8").replace("export async function", "async function")
    files = {"module": folder / f"{name}.wasm", "relaxed": folder / f"{name}.relaxed.wasm", "weights": folder / f"{name}.bin"}
    texts = [f'{role}: bytes("{base64.b64encode(file.read_bytes()).decode()}")' for role, file in files.items() if file.exists()]
    decode = "const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));\n"
    assert page.count(IMPORT) == page.count(FILES) == 1, name
    held = page.replace(IMPORT, loader).replace(FILES, f"{decode}const FILES = {{ {', '.join(texts)} }};")
    return re.sub(r'(http-equiv="Content-Security-Policy" content=)"[^"]*"', rf'\1"{POLICY}"', held, count=1)
