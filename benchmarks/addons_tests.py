"""Counts what runs of popxl_addons' own tests: `python benchmarks/addons_tests.py CHECKOUT [-k FILE] [-v]`.

CHECKOUT is a copy of Graphcore's public repository popxl-addons. `popxl` and `popart` are those of `populus`, and the package's ops in C++
are ours. A test function counts if all its parameter sets pass; those that compare numbers are counted apart (`comparing.py`). With -v,
each failure's last line. The tests want PyTorch, scipy, more_itertools, gitpython and tqdm; those that ask for torchvision or another
transformers count as failures.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("", "tests/integration")  # of modules that tests import


def inner(path: str) -> int:
    """Runs one file, in this process."""
    import pytest

    from populus.aliases import install

    install()
    options = ["-q", "-rA", "--tb=line", "-p", "no:cacheprovider", "-p", "no:randomly", "--continue-on-collection-errors"]
    options += ["-p", "comparing", "-W", "ignore", "-o", "addopts="]
    return pytest.main([*options, path])


def main() -> None:
    """Prints the count."""
    from benchmarks.popxl_tests import counted, ran

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-k", default="", help="only files whose name holds this")
    args = parser.parse_args()
    checkout = args.checkout.resolve()
    os.environ["PYTHONPATH"] = os.pathsep.join([*(str(checkout / place) for place in PLACES), str(ROOT), str(ROOT / "benchmarks")])
    total = Counter[str]()
    for path in sorted((checkout / "tests").rglob("test_*.py")):
        if args.k not in path.name:
            continue
        found, said = ran([sys.executable, __file__, "--inner", str(path)], path, str(checkout))
        total += found
        if args.verbose:
            print(f"{path.name}: {counted(found)}", *said, sep="\n    ", flush=True)
    print(f"popxl_addons: {counted(total)}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if sys.argv[1:2] == ["--inner"]:
        raise SystemExit(inner(sys.argv[2]))
    main()
