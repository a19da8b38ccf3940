"""Pages that are made from code: ops, passes, options of commands, the Python interface."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields

import populus
from populus.dialects.popart import POPART
from populus.dialects.popart.base import PopartOp
from populus.lowering.driver.passes import PASSES
from populus.tools.main import COMMANDS
from populus.write.op_page import page_of


def pages() -> Mapping[str, str]:
    """Gives each page by its path."""
    return {
        "reference/ops.md": ops(),
        "reference/passes.md": passes(),
        "reference/python.md": python(),
        "reference/commands.md": commands(),
    }


def _doc(subject: object) -> str:
    """Gives a docstring as Markdown: its indented parts are code already."""
    return inspect.getdoc(subject) or ""


def ops() -> str:
    """Lists the ops of `popart`, each with its page."""
    kinds = sorted((op for op in POPART.operations if issubclass(op, PopartOp)), key=lambda op: op.name)
    return "# Ops of popart\n\n`populus docs-op NAME` prints the page of one op.\n\n" + "\n".join(_deeper(page_of(op)) for op in kinds)


def _deeper(text: str) -> str:
    """Moves headings one level down; lines in code blocks stay."""
    lines, inside = list[str](), False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not inside else line)
    return "\n".join(lines) + "\n"


def passes() -> str:
    """Lists the passes in the order of lowering, each with its options."""
    parts = ["# Passes\n\nIn the order of lowering; [pipelines](../docs/pipelines.md) says how to combine them.\n"]
    for name, load in PASSES.items():
        kind = load()
        parts.append(f"## {name}\n\n{_doc(kind)}\n")
        options = [f for f in fields(kind) if f.name != "name"]
        if options:
            rows = (f"| `{f.name.replace('_', '-')}` | `{'' if f.default is MISSING else f.default!r}` |" for f in options)
            parts.append("| option | default |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def python() -> str:
    """Lists the public names of `populus`, with their signatures and documentation."""
    parts = ["# Python\n\nThe names of `import populus`.\n"]
    for name in populus.__all__:
        subject = getattr(populus, name)
        try:
            form = f"{name}{inspect.signature(subject)}"
        except (TypeError, ValueError):
            form = name
        parts.append(f"## {name}\n\n```python\n{form}\n```\n\n{_doc(subject)}\n")
        members = [(n, m) for n, m in vars(subject).items() if not n.startswith("_")] if inspect.isclass(subject) else []
        for key, member in members:
            if doc := _doc(member.fget if isinstance(member, property) else member):
                form = f"{key}{inspect.signature(member)}" if inspect.isfunction(member) else key
                parts.append(f"### {name}.{key}\n\n```python\n{form}\n```\n\n{doc}\n")
    return "\n".join(parts)


def commands() -> str:
    """Lists the options of every command, as `--help` prints them."""
    parts = ["# Options of the commands\n"]
    for name in ("", *COMMANDS):
        command = [sys.executable, "-c", "import sys, populus_tiles; sys.exit(populus_tiles.populus())", *filter(None, [name]), "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "100"})
        parts.append(f"## populus {name}".rstrip() + f"\n\n```text\n{done.stdout.rstrip()}\n```\n")
    return "\n".join(parts)
