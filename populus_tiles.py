"""Where the console scripts begin: beside `populus`, as a stranger's package of that name may be found in its place.

An Ethereum framework is called `populus` on the package index; this distribution is `populus-tiles`. Whichever comes first on the path is
imported. The scripts look first, and say in one line whose package they would run.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

OURS = "populus.compile("  # in the docstring of our `populus/__init__.py`


def foreign() -> str | None:
    """The folder of the `populus` that would be imported, if it is not ours; None if it is, or if there is none."""
    spec = find_spec("populus")
    if spec is None:
        return None
    folders = [Path(f) for f in spec.submodule_search_locations or ()]
    if not folders:  # a single file
        return spec.origin or "populus"
    first = folders[0] / "__init__.py"
    commands = any((folder / "tools" / "main.py").is_file() for folder in (folders[0], folders[0].parent))  # inside; in a clone beside it
    ours = first.is_file() and OURS in first.read_text(errors="replace") and commands
    return None if ours else str(folders[0])


def populus() -> int:
    """The command `populus`."""
    return _run("populus", "main")


def populus_opt() -> int:
    """The command `populus-opt`."""
    return _run("populus-opt", "populus_opt")


def populus_gui() -> int:
    """The command `populus-gui`."""
    return _run("populus-gui", "gui")


def populus_lsp_server() -> int:
    """The command `populus-lsp-server`."""
    return _run("populus-lsp-server", "language_server")


def _run(tool: str, module: str) -> int:
    if (found := foreign()) is not None:
        print(
            f"{tool}: the package 'populus' at {found} is another one, in the place of this project's; "
            "uninstall or rename it, then install populus-tiles again",
            file=sys.stderr,
        )
        return 1
    with import_module("populus.dialects.support.quick_classes").quick_classes():
        try:
            import_module("populus.dialects.support.garbage").import_for_good(f"populus.tools.{module}")
            main = import_module(f"populus.tools.{module}").main
        except KeyboardInterrupt:  # the command handles its own; Python still imports
            print(f"{tool}: interrupted", file=sys.stderr)
            return 130
        return main()


if __name__ == "__main__":
    sys.exit(populus())
