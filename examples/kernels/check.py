"""Compares each kernel of a file, in each configuration, with the op that it computes: `python check.py kernels.py`.

Each example of the op's class (or one of the kernel's rank) runs in f32, f64 and f16, also with other attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from populus.dialects.popart.definition import definition_of
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.extensions import read
from populus.tools.op_model import SHAPES, Example, OpModel, difference, function_of

TOLERANCES = {"float32": 1e-4, "float64": 1e-4, "float16": 2e-2}  # relative to values above 1, because orders of sums differ
SELECTION = read(Path(__file__).with_name("kernels.py")).module


def check(kernel: Any) -> int:
    """Compares a kernel with its op; gives the number of comparisons.

    Raises PopulusError, naming the kernel, if it gives other values than its op, fails, or supports none of the examples.
    """
    model, tried, refused = OpModel(definition_of(kernel.op)), 0, dict[str, None]()
    for dtype, tolerance in TOLERANCES.items():
        for title, example in _examples(model, kernel.rank):
            inputs = model.inputs(example, dtype)
            expected = model.run(model.module(example, dtype), inputs, level="popart")
            for choice in _choices(model.op(model.module(example, dtype)), kernel, refused):
                module = _put(model, example, dtype, choice)
                for level in ("popops", "poplar"):
                    for name, value in model.run(module, inputs, level=level).items():
                        if value.shape != expected[name].shape or (off := difference(value, expected[name])) > tolerance:
                            by = f"by {off:.3g}" if value.shape == expected[name].shape else f"of shape {list(value.shape)}"
                            raise PopulusError(
                                f"{title}kernel '{kernel.name}' gives other values than {kernel.op.name} for {name} at {level}: {by}"
                            )
                tried += 1
    if not tried:
        raise PopulusError(f"kernel '{kernel.name}' supports none of the op's EXAMPLES, so it is untested: {'; '.join(refused)}")
    return tried


def _examples(model: OpModel, rank: int | None) -> Iterator[tuple[str, Example]]:
    for example in model.examples:
        if not model.stated and rank is not None:
            example = [SHAPES[:rank]] * len(example[0]), example[1]
        yield "", example
        for name, value, _, again in model.changed(example):
            yield f"with '{name}' = {value!r} ", again


def _choices(op: Any, kernel: Any, refused: dict[str, None]) -> list[Any]:
    try:
        found = SELECTION.Candidates.of(op, [kernel], None, kernel.name).choices
    except PopulusError as error:
        refused[" ".join(str(error).split())] = None
        return []
    vetoes = [kernel.init(op, c.config) for c in found]
    refused.update((f"vetoed: {why}", None) for why in vetoes if why is not None)
    return [c for c, why in zip(found, vetoes) if why is None]


def _put(model: OpModel, example: Example, dtype: str, choice: Any) -> Any:
    """Builds the model of an example, with its op in a kernel."""
    module = model.module(example, dtype)
    try:
        SELECTION.Rewrite().apply(function_of(module).body.block, {model.op(module): choice})
    except PopulusError:
        raise
    except Exception as error:  # the author's code may raise anything
        raise PopulusError(f"kernel '{choice.kernel.name}' fails: {type(error).__name__}: {error}") from error
    return module


def main(path: str) -> int:
    """Checks the kernels of a file's passes; gives the number that fail."""
    failed = 0
    for make in read(path).passes.values():
        for kernel in getattr(make(), "KERNELS", ()):
            try:
                print(f"{kernel.op.name}: {kernel.name}: as the op itself, {check(kernel())} times")
            except PopulusError as error:
                failed += 1
                print(f"{kernel.op.name}: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
