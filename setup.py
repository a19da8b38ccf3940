"""States what pyproject.toml cannot: in the wheel the folders beside `populus` are packages of it, and the page has no links to files."""

import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

HERE = Path(__file__).parent
FOLDERS = {"populus": "populus", **{f"populus.{part}": part for part in ("dialects", "lowering", "runtime", "tools")}}  # by package


def page() -> str:
    """Gives the README as an index of packages shows it: without pictures, and without links into the repository, which it has not."""
    text = re.sub(r"^!\[.*\n", "", (HERE / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


setup(
    package_dir=FOLDERS,
    packages=[*FOLDERS, *(f"{package}.{inner}" for package, folder in FOLDERS.items() for inner in find_namespace_packages(folder))],
    long_description=page(),
    long_description_content_type="text/markdown",
)
