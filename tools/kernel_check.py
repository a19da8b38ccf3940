"""The check that each kernel of an op, in each configuration, computes what the op computes: a part of `populus check-op`."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.popart.kernel import Kernel
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.extensions import Extension
from populus.lowering.popart.select_kernels import candidates, put
from populus.tools.op_gradients import Unmet
from populus.tools.op_model import SHAPES, Array, Example, OpModel, difference, off_by

TOLERANCES = {"float32": 1e-4, "float64": 1e-4, "float16": 2e-2}  # relative to values above 1, because orders of sums differ


def kernel_agrees(model: OpModel, extension: Extension | None, kernel: Kernel) -> tuple[str, str]:
    """Compares a kernel with its op; gives `ok` with a summary.

    Raises Unmet, naming the kernel, if it gives other values than its op, fails, or supports none of the op's examples.
    """
    assert extension is not None
    return "ok", f"{kernel.name} as the op itself, {_Compared(model, extension, kernel).all()} times"


class _Compared:
    """One kernel and its op."""

    def __init__(self, model: OpModel, extension: Extension, kernel: Kernel):
        self.model, self.extension, self.kernel = model, extension, kernel
        self.reasons: dict[str, None] = {}  # the reason why it refused an example

    def all(self) -> int:
        """Compares every configuration on every example in every type that the kernel supports; gives their number."""
        tried = 0
        for dtype, tolerance in TOLERANCES.items():
            for title, example in self._examples():
                expected: dict[str, Array] | None = None
                number = 0
                while (module := self._in_kernel(example, dtype, number)) is not None:
                    inputs = self.model.inputs(example, dtype)
                    if expected is None:
                        expected = self.model.run(self.model.module(example, dtype), inputs, level="popart")
                    try:
                        tried += self._compare(module, inputs, expected, tolerance)
                    except Unmet as error:
                        raise Unmet(f"{title}{error}") from error
                    number += 1
        if not tried:
            why = f": {'; '.join(self.reasons)}" if self.reasons else ""
            raise Unmet(f"kernel '{self.kernel.name}' supports none of the op's EXAMPLES, so it is untested{why}")
        return tried

    def _examples(self) -> Iterator[tuple[str, Example]]:
        """Yields the examples of the op's class, or one of the kernel's rank, then with other attributes; each with its title."""
        rank = self.kernel.rank
        for example in self.model.examples:
            if not self.model.stated and rank is not None:
                example = [SHAPES[:rank]] * len(example[0]), example[1]
            yield "", example
            for name, value, _, again in self.model.changed(example):
                yield f"with '{name}' = {value!r} ", again

    def _in_kernel(self, example: Example, dtype: str, number: int) -> ModuleOp | None:
        """Builds the model with its op in configuration `number` of the kernel; None if there is none, or the kernel vetoes it."""
        module, ctx = self.model.module(example, dtype), context()
        self.extension.register(ctx)
        op = self.model.op(module)
        try:
            found = candidates(ctx, op, None)
        except PopulusError as error:
            self.reasons[" ".join(str(error).split())] = None
            return None
        mine = [c for c in found.choices if c.name == self.kernel.name]
        if (reason := found.refusals.get(self.kernel.name)) is not None:
            self.reasons[reason] = None
        if number >= len(mine):
            return None
        if (veto := mine[number].known.kernel.init(op, mine[number].config)) is not None:
            self.reasons[f"vetoed: {veto}"] = None
            return module
        put(op, mine[number])
        return module

    def _compare(self, module: ModuleOp, inputs: dict[str, Array], expected: dict[str, Array], tolerance: float) -> bool:
        """Compares one model; False if it has no kernel. Raises Unmet if the values differ."""
        op = next((op for op in module.walk() if op.name == "popart.kernel"), None)
        if op is None:
            return False
        for level in ("popops", "poplar"):
            try:
                got = self.model.run(module, inputs, level=level)
            except Exception as error:  # the author's code may raise anything
                raise Unmet(f"kernel '{self.kernel.name}' fails at {level}: {type(error).__name__}: {error}") from error
            for name, value in expected.items():
                if got[name].shape != value.shape or difference(got[name], value) > tolerance:
                    by = off_by(got[name], value) if got[name].shape == value.shape else f"of shape {list(got[name].shape)}"
                    raise Unmet(
                        f"kernel '{self.kernel.name}' gives other values than {self.model.definition.op.name} for {name} at {level}: {by}"
                    )
        return True
