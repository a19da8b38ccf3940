"""A program's profile as one page of HTML without scripts or links: totals, and where cycles and memory go, by op and by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from populus.runtime.profile import Profile, Step

PARTS = (("compute", "#2a7f62"), ("exchange", "#e0a030"), ("sync", "#8a8fa0"))

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .15em .8em .15em 0; text-align: left; vertical-align: baseline; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr:hover td { background: #f4f5f8; } small, .dim { color: #777; }
.bar { display: inline-flex; height: .8em; width: 18em; } .bar i { display: block; }
"""


def html(profile: Profile, title: str) -> str:
    """The page. Every text of the model is escaped."""
    summary, target = profile.summary, profile.target
    cycles = max(int(summary["cycles"]), 1)
    fits = "" if summary["fits"] else " <b>which does not fit</b>"
    peak = profile.memory.peak_bytes
    totals = [
        ("machine", f"{escape(target.name)}: {target.tiles:,} tiles of {target.tile_bytes // 1024:,} KiB, {target.clock_hz / 1e9:g} GHz"),
        ("tiles used", f"{summary['tiles_used']:,}"),
        ("fullest tile", f"{peak:,} bytes, {peak / target.tile_bytes:.0%} of its memory{fits}"),
        ("estimated", f"{cycles:,} cycles, {cycles / target.clock_hz * 1e3:.3f} ms"),
        *((part, f"{int(summary[f'{part}_cycles']):,} cycles, {int(summary[f'{part}_cycles']) / cycles:.1%}") for part, _ in PARTS),
        ("exchanged", f"{int(summary['exchange_bytes']):,} bytes in {summary['compute_sets']:,} compute sets"),
        ("operations", f"{int(summary['flops']):,}, {summary['utilisation']:.1%} of the matrix units' peak"),
        ("program", f"{summary['poplar_ops']:,} poplar ops"),
    ]
    legend = " ".join(f'<b style="color:{colour}">&#9632;</b> {part}' for part, colour in PARTS)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            _table(("", ""), ((name, value) for name, value in totals), numbers=()),
            f"<p>Cycles are estimates of the machine model; nothing was measured. {legend}</p>",
            "<h2>By op of the model</h2>",
            _table(
                ("op", "steps", "cycles", "share", ""),
                (
                    (escape(place), f"{len(steps):,}", f"{_cycles(steps):,}", f"{_cycles(steps) / cycles:.1%}", _bar(steps, _most(profile)))
                    for place, steps in _by_place(profile.steps)
                ),
                numbers=(1, 2, 3),
            ),
            "<h2>By step</h2>",
            _table(
                ("step", "kind", "op", "runs", "vertices", "bytes in", "cycles", "tile memory", ""),
                (
                    (
                        escape(step.label),
                        escape(", ".join(step.codelets) or step.kind),
                        f"<small>{escape(step.place)}</small>",
                        f"{step.count:,}",
                        f"{step.vertices:,}",
                        f"{step.bytes:,}",
                        f"{step.cycles:,}",
                        memory,
                        _bar([step], max((s.cycles * s.count for s in profile.steps), default=1)),
                    )
                    for step, memory in zip(profile.steps, _memory(profile), strict=True)
                ),
                numbers=(3, 4, 5, 6, 7),
            ),
            "<h2>On the fullest tile, when it is fullest</h2>",
            f"<p>Tile {profile.memory.tile:,} at {escape(profile.memory.label)}.</p>",
            _table(("what", "bytes"), ((escape(label), f"{size:,}") for label, size in profile.memory.largest), numbers=(1,)),
            "</body></html>\n",
        ]
    )


def _by_place(steps: Sequence[Step]) -> list[tuple[str, list[Step]]]:
    """Steps by the op of the model that they came from, the dearest first."""
    places: dict[str, list[Step]] = {}
    for step in steps:
        places.setdefault(step.place, []).append(step)
    return sorted(places.items(), key=lambda pair: -_cycles(pair[1]))


def _cycles(steps: Iterable[Step]) -> int:
    return sum(step.cycles * step.count for step in steps)


def _most(profile: Profile) -> int:
    return max((_cycles(steps) for _, steps in _by_place(profile.steps)), default=1)


def _memory(profile: Profile) -> list[str]:
    """Bytes of the fullest tile at each step; empty where a program's loops and calls make steps and memory differ in number."""
    if len(profile.memory.bytes_by_step) != len(profile.steps):
        return [""] * len(profile.steps)
    return [f"{size:,}" for size in profile.memory.bytes_by_step]


def _bar(steps: Sequence[Step], most: int) -> str:
    """Compute, exchange and sync of some steps, as long as their share of the dearest."""
    parts: list[str] = []
    for part, colour in PARTS:
        share = sum(getattr(step, part) * step.count for step in steps) / max(most, 1)
        parts.append(f'<i style="width:{share:.2%};background:{colour}"></i>')
    return f'<span class="bar">{"".join(parts)}</span>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int]) -> str:
    def row(tag: str, cells: Sequence[str]) -> str:
        opened = [f'<{tag} class="n">' if i in numbers else f"<{tag}>" for i in range(len(cells))]
        return "<tr>" + "".join(f"{o}{cell}</{tag}>" for o, cell in zip(opened, cells, strict=True)) + "</tr>"

    return "\n".join(["<table>", row("th", head), *(row("td", cells) for cells in rows), "</table>"])
