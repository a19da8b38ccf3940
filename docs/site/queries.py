"""Ten searches that readers do, on the index of the built site: each finds first the page that they want.

    python docs/site/queries.py build/site

The site's own search is lunr in the browser, with the same fields and weights; this is lunr in Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lunr import lunr

QUERIES = {
    "install": ("README.html", "index.html"),
    "add an op": ("docs/add-an-op.html",),
    "pytorch": ("docs/pytorch.html",),
    "machine of your own": ("docs/machine-of-your-own.html", "docs/new-target.html"),
    "programs of PopART": ("docs/run-program.html", "docs/popart-compatibility.html"),
    "pass of your own": ("docs/add-a-pass.html",),
    "profile": ("docs/profile.html",),
    "train": ("docs/training.html",),
    "library for C": ("docs/build.html",),
    "glossary": ("docs/glossary.html",),
}
"""Words that are typed, and the pages of which one is wanted first."""


def search(index: Any, words: str) -> list[str]:
    """Lists the addresses of the pages that a search finds, the best first."""
    return list(dict.fromkeys(found["ref"].partition("#")[0] for found in index.search(words)))


def main() -> int:
    """Prints what each search finds first. Exit status 1 if that is another page than is wanted, or a page of a source file."""
    content = json.loads((Path(sys.argv[1]) / "search" / "search_index.json").read_text())
    documents = [({key: d[key] for key in ("location", "title", "text")}, {"boost": d.get("boost", 1)}) for d in content["docs"]]
    fields = ({"field_name": "title", "boost": 1000}, {"field_name": "text", "boost": 1})
    index = lunr(ref="location", fields=fields, documents=documents)
    pages = {d["location"].partition("#")[0] for d in content["docs"]}
    failed = [page for page in pages if page.endswith((".py.html", ".mlir.html", ".json.html", ".c.html"))]
    for words, wanted in QUERIES.items():
        found = search(index, words)
        if not found or found[0] not in wanted:
            failed.append(f"{words}: found {', '.join(found[:3])}; expected {wanted[0]} first")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
