"""`check-op` on the built-in ops, with the rows of `op_cases.py` as their examples, and on the files of `examples/ops`.

make check-ops               # every op
make check-ops OPS="softmax conv"
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.op_cases import cases, is_float
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import definition_of
from populus.dialects.popart.examples import Input
from populus.lowering.driver.extensions import read
from populus.tools.check_op import Checked, lines
from populus.tools.op_model import Example

ALONE = "replicas; there is one"  # a collective over other groups needs several replicas, which the tests of `gcl` and of ranks run
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "ops"


def examples() -> dict[type[PopartOp], dict[bool, list[Example]]]:
    """Collects the examples of each op, those at which it has a gradient apart."""
    found: dict[type[PopartOp], dict[bool, list[Example]]] = {}
    for case in cases():
        operands = [None if a is None else Input(dtype=None if is_float(a) else a.dtype.name, values=a) for a in case.arrays]
        while operands and operands[-1] is None:
            operands.pop()
        found.setdefault(case.op, {}).setdefault(case.gradient, []).append((operands, case.properties))
    return found


def failures(op: type[PopartOp], by_gradient: dict[bool, list[Example]], most: int | None = None) -> Iterator[str]:
    """Checks an op on its examples, `most` of them, and yields a line for each part that does not hold."""
    for differentiable, found in by_gradient.items():
        checked = Checked(definition_of(op), None, found[:most], differentiable=differentiable)
        yield from (line for line in lines(list(checked.rows())) if not line.endswith(ALONE))


def failures_of_file(path: Path) -> Iterator[str]:
    """Checks the ops of a file, and yields a line for each part that does not hold."""
    extension = read(path)
    for definition in extension.definitions():
        yield from lines(list(Checked(definition, extension).rows()))


def main() -> int:
    """Checks the ops that the command line names, or all, and then the files of `examples/ops`."""
    bad = 0
    found = {op: e for op, e in examples().items() if len(sys.argv) == 1 or op.name.removeprefix("popart.") in sys.argv[1:]}
    for op, by_gradient in found.items():
        said = list(failures(op, by_gradient))
        bad += bool(said)
        print(f"{op.name}: {'ok' if not said else ''}", *said, sep="\n    " if said else "", flush=True)
    files = sorted(EXAMPLES.glob("*.py")) if len(sys.argv) == 1 else [p for n in sys.argv[1:] if (p := EXAMPLES / f"{n}.py").exists()]
    for path in files:
        said = list(failures_of_file(path))
        bad += bool(said)
        print(f"{path.name}: {'ok' if not said else ''}", *said, sep="\n    " if said else "", flush=True)
    print(f"{len(found)} ops and {len(files)} files, {bad} do not hold")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
