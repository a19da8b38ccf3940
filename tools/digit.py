"""`populus demo`: an image of a handwritten digit, what a net says it is, and the net's product at each level."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

import populus
from populus.dialects.support.output_files import replacing
from populus.tools.progress import stages
from populus.tools.report.ir import ir_by_place
from populus.write.nets import TRAINED, net

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAGE = Path(__file__).parent / "report" / "digit.html"
INK = " ░▒▓█"  # of pixels from 0 to 16
PRODUCT = "product"  # the name of the node that is shown
MOVES = ("popops.reshape", "poplar.reshape", "poplar.var")  # which compute nothing, and are not shown
LEAST = 0.005  # the smallest share that has a line
MOST = 16  # the value of a black pixel


def digit(console: Console, wanted: int, target: str, tiles: int) -> int:
    """Draws the image of a digit, prints what the net says of it and its product at each level; gives 1 if the net is wrong."""
    import numpy as np

    with np.load(Path(net(TRAINED)).with_name("images.npz")) as found:
        image = found["images"][list(found["labels"]).index(wanted)]
    with stages("compiling") as progress:
        program = populus.compile(net(TRAINED), target=target, tiles=tiles, progress=progress)
    shares = program.run({"image": image[None, None].astype(np.float32) / MOST})["shares"][0]
    say = partial(console.print, markup=False, soft_wrap=True)
    say("An image of 64 pixels, and what a net says of it that has never seen it:\n")
    said = [f"{shares.argmax()} ({shares.max():.0%})", "", *(f"{i}  {_bar(share)}" for i, share in enumerate(shares) if share >= LEAST)]
    for i, row in enumerate(_drawn(image)):
        say(f"    {row}    {said[i] if i < len(said) else ''}".rstrip())
    say(f"\nThe net ran as a program for {tiles} tiles of a {target}. Its last product at each level, without types:\n")
    for level, texts in ir_by_place(program)[0][PRODUCT].items():
        lines = [line for text in texts if not any(f"= {name}" in text for name in MOVES) for line in text.splitlines()]
        for i, line in enumerate(lines):
            say(f"  {'' if i else level:8}{line.partition(' : ')[0]}")
    costs = program.profile().summary
    cycles, fullest = int(costs["cycles"]), int(costs["peak_tile_bytes"])
    say(f"\n{cycles:,} cycles, {costs['seconds'] * 1e6:.1f} µs; {fullest:,} bytes on the fullest tile. Next:")
    say(f"  populus profile {TRAINED} --target {target} --tiles {tiles} --html page.html")
    say("  populus demo --model light_resnet50")
    return int(shares.argmax() != wanted)


def _drawn(image: NDArray[Any]) -> list[str]:
    """Draws an image, two characters for each pixel."""
    return ["".join(2 * INK[-(-int(pixel) * (len(INK) - 1) // MOST)] for pixel in row) for row in image]


def _bar(share: float) -> str:
    return f"{'█' * round(30 * share):30} {share:.0%}"


def write_page(path: str, target: str, tiles: int) -> int:
    """Writes a page that recognises a digit which is drawn on it, by a WebAssembly program inside; gives the bytes of the page.

    Raises PopulusError for a file that cannot be written.
    """
    import numpy as np

    from populus.runtime.engine.native.frozen.web import single_page

    program = populus.compile(net(TRAINED), target=target, tiles=tiles, engine="native")
    with np.load(Path(net(TRAINED)).with_name("images.npz")) as found:
        images = {str(i): found["images"][list(found["labels"]).index(i)].ravel().tolist() for i in range(10)}
    levels = {level: "\n".join(texts) for level, texts in ir_by_place(program)[0][PRODUCT].items()}
    costs = program.profile().summary
    facts = {"target": target, "tiles": tiles, "cycles": int(costs["cycles"]), "bytes": int(costs["peak_tile_bytes"]), "levels": levels}
    with tempfile.TemporaryDirectory(prefix="populus-digit-") as folder:
        populus.build(program, folder, name=TRAINED, cpu="wasm32", relaxed=True)
        page = single_page(PAGE.read_text(encoding="utf-8"), Path(folder), TRAINED)
    data = json.dumps({"images": images, **facts}).replace("<", "\\u003c")
    page = page.replace("const DATA = {};", f"const DATA = {data};")
    with replacing(path) as made:
        made.write_text(page, encoding="utf-8")
    return len(page.encode())
