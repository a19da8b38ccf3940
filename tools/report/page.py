"""A profile as one self-contained HTML page: style, script and data are inside, and it makes no network requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from populus.tools.report.record import text_of
from populus.tools.report.record_types import Record

FOLDER = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
COMPARED = ("title", "target", "summary", "ops")  # parts of the other profile that the page shows


def html(data: Record, before: Record | None = None, others: Sequence[Record] = ()) -> str:
    """Renders the page of a profile, with the difference from `before` if given. Texts of the model are escaped, never markup.

    `others`: profiles of further programs, to which the page has links.
    """
    style, script, more = ((FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js", "insights.js"))
    title, summary = escape(data["title"]), data["summary"]
    totals = f"{summary['cycles']:,} cycles estimated; the fullest tile has {summary['peak_tile_bytes']:,} bytes."
    other = "null" if before is None else embedded({key: before[key] for key in COMPARED})
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{title} - populus profile</title><style>\n{style}</style></head><body>",
            f"<noscript><h1>{title}</h1><p>{totals} The other views of this page are drawn by its script.</p></noscript>",
            f'<script type="application/json" id="profile">{embedded([data, *others] if others else data)}</script>',
            f'<script type="application/json" id="before">{other}</script>',
            f"<script>\n{script}{more}</script></body></html>\n",
        ]
    )


def embedded(data: Mapping[str, object] | Sequence[Mapping[str, object]]) -> str:
    """Serialises JSON so that it cannot end its script element."""
    return text_of(data).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").strip()
