"""StableHLO's programs of open sizes, made static by given sizes and run by tile programs: how many are as XLA's.

    python -m benchmarks.stablehlo_dynamic /path/to/a/checkout/of/openxla/stablehlo [--match REGEX] [--log FILE]

It wants jax. These programs state neither inputs nor outputs, so inputs are drawn, and XLA on the CPU computes what is right. Leading
scalar integers of @main are the sizes: each has a number of its own, and open dimensions one of these such that the program's shapes
agree. Outputs are right if they are equal or at most 3 floats apart, and rounded if no more than 64 roundings of the largest element.
"""

# pyright: basic
from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import populus
from benchmarks.stablehlo_tests import as_complex, failure, is_rounding, report
from populus.compare import xla
from populus.dialects.signature import input_names, main_of
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.dialects.table import context
from populus.lowering.stablehlo.importer import read_text
from populus.lowering.stablehlo.jaxlib_reader import generic_text
from populus.lowering.stablehlo.refinement import Given, open_sizes
from populus.lowering.stablehlo.to_popart.conversion import is_complex, part_type

SIZES = (4, 3, 6, 5, 8, 12)  # that a dimension may have


def arguments(text: str) -> list[str]:
    """Gives the types of @main's arguments."""
    head = re.search(r"@main\((.*)", text)
    assert head is not None, text[:200]
    return re.findall(r"%\w+: (tensor<(?:[^<>]|<[^<>]*>)*>)", head[1].partition(") -> ")[0])


def choices(types: list[str]) -> Iterator[Given]:
    """Lists sizes for the open dimensions, with values for the inputs that state them."""
    count = len(list(itertools.takewhile(lambda t: t in ("tensor<i64>", "tensor<i32>"), types)))
    free = [f"arg{i}.{d}" for i, t in enumerate(types) for d, n in enumerate((open_sizes(t) or [[]])[0]) if n < 0]
    for values in itertools.chain(itertools.permutations(SIZES, count), ((n,) * count for n in SIZES) if count > 1 else ()):
        stated = {f"arg{i}": value for i, value in enumerate(values)}
        for sizes in itertools.product(dict.fromkeys(values or SIZES), repeat=len(free)):
            yield Given(dict(zip(free, sizes)), stated)


def refined(name: str, text: str) -> str:
    """Gives the program with the first sizes that its shapes agree with. Raises PopulusError if there are none."""
    first: populus.PopulusError | None = None
    for given in choices(arguments(text)):
        try:
            return generic_text(text.encode(), name, given)
        except populus.PopulusError as error:
            first = first or error
    raise first or populus.PopulusError("there is no open dimension")


def drawn(type: Any, seed: int) -> Any:
    """Draws an input of a type of @main."""
    random, shape = np.random.default_rng(seed), shape_of(type)
    if is_complex(type):
        return as_complex(random.normal(size=(*shape, 2)).astype(dtype_of(part_type(type))))
    dtype = dtype_of(element_type_of(type))
    if dtype == np.bool_:
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return random.integers(0 if dtype.kind == "u" else -3, 6, shape).astype(dtype)
    return random.normal(size=shape).astype(dtype)


def run(name: str, text: str, engine: Any) -> tuple[str, str]:
    """Runs a program; gives `right`, `rounded`, `wrong` or `refused`, and the reason."""
    static = refined(name, text)
    module = read_text(context(), static, name)
    inputs = {n: drawn(a.type, i) for i, (n, a) in enumerate(zip(input_names(main_of(module)), main_of(module).body.block.args))}
    program = populus.compile(module, engine=engine, cache=False)
    found = list(program.run(inputs).values())
    wanted = xla.run(static, list(inputs.values()))
    for a, b in zip(found, wanted, strict=True):
        if why := failure("expect_close", a, b):
            return ("rounded" if is_rounding(a, b) else "wrong"), why
    return "right", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--match", default="")
    parser.add_argument("--part", default="0/1", help="run part i of n, `i/n`")
    parser.add_argument("--engine", default="strict")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    first, every = map(int, given.part.split("/"))
    folder = given.checkout / "stablehlo/testdata/dynamic"
    files = sorted(f for f in folder.glob("*.mlir") if re.search(given.match, f.name))[first::every]
    report(((f.name, f.read_text()) for f in files), lambda name, text: run(name, text, given.engine), given.log)


if __name__ == "__main__":
    main()
