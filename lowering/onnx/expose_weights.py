"""`onnx-expose-weights`: chosen initializers become inputs of the model."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from populus.dialects.signature import expose, main_of


@dataclass(frozen=True)
class OnnxExposeWeightsPass(ModulePass):
    """The constants of `@main` with these names (those of the ONNX initializers) become arguments, behind those that are there.

    A name that an argument has already is left alone. Before constants are folded, since then a folded weight is still one tensor;
    valid at the `popart` level too. Raises PopulusError for a name that is neither an input's nor a constant's.
    """

    name = "onnx-expose-weights"

    names: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        expose(main_of(op), self.names)
