"""Gathers the pages of the site: documents as they are, a page for each source file that they link to, notebooks, reference.

    python docs/site/stage.py build/pages

Links of documents are paths of the repository. A link to a source file leads to its page, and one to a folder to the README in it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from notebooks import executed, markdown
from reference import pages

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "dialects", "lowering", "runtime", "tools", "populus", "test", "examples", "benchmarks")
LANGUAGES = {".py": "python", ".mlir": "mlir", ".toml": "toml", ".json": "json", ".c": "c", ".h": "c", ".css": "css", ".js": "javascript"}
SEARCH = "---\nsearch:\n  {}\n---\n\n"
# What a page's words count in a search, of a page of use more than of one that lists or measures. Others of `docs` have 1, READMEs 0.5.
WEIGHTS = {
    **dict.fromkeys(("README.md", "docs/tutorial.md", "docs/add-an-op.md", "docs/new-target.md", "docs/add-a-pass.md"), 3),
    **dict.fromkeys(("docs/command-line.md", "docs/debugging.md", "docs/profile.md", "docs/build.md", "docs/pytorch.md"), 2),
    **dict.fromkeys(("docs/run-program.md", "docs/explore.md", "docs/glossary.md"), 2),
    **dict.fromkeys(("docs/machine-of-your-own.md", "docs/training.md"), 4),
    **dict.fromkeys(("docs/seeds.md", "docs/README.md", "docs/expectations.md", "CHANGELOG.md", "test/README.md"), 0.1),
}
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    """Lists the Markdown pages of the repository."""
    found = [*ROOT.glob("*.md"), *(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.md"))]
    return sorted(p for p in found if not any(part.startswith(".") for part in p.relative_to(ROOT).parts))


def unescaped(text: str) -> str:
    """Gives a text whose code has plain bars: in a table GitHub wants a backslash before each, which the site would show."""
    return re.sub(r"`[^`\n]*`", lambda m: m[0].replace("\\|", "|"), text)


class Stage:
    """The folder of pages, and the source files that pages link to."""

    def __init__(self, out: Path):
        self.out = out
        self.linked: set[Path] = set()

    def write(self, path: str | Path, text: str) -> None:
        """Writes a page."""
        file = self.out / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def document(self, page: Path) -> None:
        """Writes a document, its links led to pages of the site."""
        parts = CODE.split(page.read_text())
        rewritten = (part if i % 2 else LINK.sub(lambda m: self.link(page, m[0]), unescaped(part)) for i, part in enumerate(parts))
        weight = WEIGHTS.get(page.relative_to(ROOT).as_posix(), 1 if page.parent == ROOT / "docs" else 0.5)
        self.write(page.relative_to(ROOT), SEARCH.format(f"boost: {weight}") + "".join(rewritten))

    def link(self, page: Path, target: str) -> str:
        """Gives the link on the site for one of a document."""
        path, hash, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path or path.endswith(".md"):
            return target
        file = (page.parent / path).resolve()
        if file.is_dir():
            return f"{path.rstrip('/')}/README.md{hash}{anchor}" if (file / "README.md").exists() else self.listed(page, path, file)
        if not file.exists():
            return target  # mkdocs says so
        if file.suffix in (".png", ".svg"):
            self.out.joinpath(file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, self.out / file.relative_to(ROOT))
            return target
        self.linked.add(file)
        return f"{path}.md"

    def listed(self, page: Path, path: str, folder: Path) -> str:
        """Writes a page with the files of a folder that has no README, and gives the link to it."""
        files = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
        self.linked.update(files)
        text = f"# {folder.relative_to(ROOT)}\n\n" + "".join(f"- [`{f.name}`]({f.name}.md)\n" for f in files)
        self.write(folder.relative_to(ROOT) / "files.md", SEARCH.format("exclude: true") + text)
        return f"{path.rstrip('/')}/files.md"

    def sources(self) -> None:
        """Writes a page for each source file that is linked to."""
        for file in sorted(self.linked):
            name = file.relative_to(ROOT)
            fence = "`" * 5
            text = file.read_text(errors="replace").rstrip()
            head = SEARCH.format("exclude: true")
            self.write(f"{name}.md", f"{head}# {name}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}\n{fence}\n")

    def notebooks(self, files: Iterable[Path]) -> None:
        """Writes notebooks with what their cells print."""
        for file in files:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # cells write files
                text = markdown(executed(file))
            self.write(f"{file.relative_to(ROOT)}.md", text)
            self.linked.discard(file)


def main() -> None:
    """Writes all pages into the folder of the command line, anew."""
    out = Path(sys.argv[1]).absolute()
    shutil.rmtree(out, ignore_errors=True)
    stage = Stage(out)
    for page in documents():
        stage.document(page)
    stage.notebooks(sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")))
    stage.sources()
    for path, text in pages().items():
        stage.write(path, SEARCH.format("boost: 1") + text)
    shutil.copy(ROOT / "docs" / "site" / "site.css", out)
    print(f"{sum(1 for _ in out.rglob('*.md'))} pages in {out}")


if __name__ == "__main__":
    main()
