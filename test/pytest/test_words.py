"""The words of docstrings and documents: a function's docstring begins with a verb, and no sentence begins with What or How."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERBS = frozenset((ROOT / "test/verbs.txt").read_text().split())  # in the form that docstrings have: Computes, Gives, Raises
QUESTIONS = ("What", "Which", "How", "Who", "Whether")
LONGEST = 35  # words of a sentence; aim at 25

# Rooms: a folder stands for its own files and for those of its folders that have no row.
ROOMS = (
    "benchmarks",
    "dialects",
    "dialects/onnx",
    "dialects/popart",
    "dialects/poplar",
    "docs",
    "examples",
    "lowering",
    "lowering/driver",
    "lowering/onnx",
    "lowering/onnx/to_popart",
    "lowering/popart",
    "lowering/popops",
    "lowering/poplar",
    "populus",
    "populus/popart",
    "populus/popxl",
    "runtime",
    "runtime/codelets",
    "runtime/cycles",
    "runtime/engine",
    "runtime/engine/native",
    "tools",
)


def files(room: str, suffix: str) -> list[Path]:
    """Gives the files of a room: those below it that belong to no narrower room."""
    inner = [other for other in ROOMS if other.startswith(f"{room}/")]
    return sorted(p for p in (ROOT / room).rglob(f"*{suffix}") if not any((ROOT / i) in p.parents for i in inner))


def docstrings(path: Path) -> Iterator[tuple[int, ast.AST, str]]:
    """Gives each docstring of a file with its line and its node."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), node, text


def sentences(text: str) -> list[str]:
    """Splits prose into sentences. Indented blocks, tables, lists of code and fenced blocks are no prose."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    lines = ["" if re.match(r"(    |\t|\||#|<)", line) else line for line in text.splitlines()]
    paragraphs = re.split(r"\n\s*\n|\n(?=[-*] |\d+\. )", "\n".join(lines))
    plain = (re.sub(r"`[^`]*`", "x", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(p.split()))) for p in paragraphs)
    return [s for p in plain for s in re.split(r"(?<=[.!?;:])\s+", p) if s]


def faults(text: str) -> list[str]:
    """Lists what is wrong with the sentences of a text."""
    found: list[str] = []
    for sentence in sentences(text):
        first = sentence.lstrip("-*>0123456789. ").partition(" ")[0]
        if first in QUESTIONS:
            found.append(f"a sentence begins with {first}: {sentence[:60]}")
        if re.search(r"\bbehind\b", sentence):
            found.append(f"'behind' for 'after': {sentence[:60]}")
        if len(sentence.split()) > LONGEST:
            found.append(f"{len(sentence.split())} words: {sentence[:60]}")
    return found


def is_property(node: ast.AST) -> bool:
    """Tells a property, whose docstring is a noun phrase, from a function."""
    return any("property" in ast.unparse(d) for d in getattr(node, "decorator_list", ()))


def faults_of_code(path: Path) -> list[str]:
    """Lists the faults of a file's docstrings."""
    found: list[str] = []
    for line, node, text in docstrings(path):
        first = text.split()[0].strip(".,:;")
        if isinstance(node, ast.FunctionDef) and not is_property(node) and first not in VERBS:
            found.append(f"{path.relative_to(ROOT)}:{line}: a function's docstring begins with '{first}', which is not in test/verbs.txt")
        found.extend(f"{path.relative_to(ROOT)}:{line}: {fault}" for fault in faults(text))
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_and_documents_are_plain_english(room):
    found = [fault for path in files(room, ".py") for fault in faults_of_code(path)]
    found += [f"{p.relative_to(ROOT)}: {fault}" for p in files(room, ".md") for fault in faults(p.read_text())]
    assert not found, f"{len(found)} faults:\n" + "\n".join(found[:80])


def test_faults_are_found():
    assert faults("What it is. Whether it is.\n\nThe rest behind it.") and not faults("Gives the rest after it.")
    assert faults("word " * 40) and not faults("    what is code\n")
