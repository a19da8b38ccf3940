"""States what pyproject.toml cannot: the wheel has the folders beside `populus` as packages, kernels, and a page without links."""

import re
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
FOLDERS = {"populus": "populus", **{f"populus.{part}": part for part in ("dialects", "lowering", "runtime", "tools")}}  # by package


def page() -> str:
    """Gives the README as an index of packages shows it: without pictures, and without links into the repository, which it has not."""
    text = re.sub(r"^!\[.*\n", "", (HERE / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


class WithKernels(build_py):
    """Adds the kernels that `make wheel` compiled before, if it did."""

    def run(self) -> None:
        super().run()
        for file in () if self.editable_mode else (HERE / "build" / "kernels").glob("*.kernels"):
            self.copy_file(str(file), str(Path(self.build_lib, "populus/runtime/engine/native/codegen", file.name)))


setup(
    cmdclass={"build_py": WithKernels},
    package_dir=FOLDERS,
    packages=[*FOLDERS, *(f"{package}.{inner}" for package, folder in FOLDERS.items() for inner in find_namespace_packages(folder))],
    long_description=page(),
    long_description_content_type="text/markdown",
)
