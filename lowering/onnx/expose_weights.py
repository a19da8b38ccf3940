"""The pass `onnx-expose-weights`: selected initializers become inputs of the model."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from populus.dialects.signature import expose, main_of


@dataclass(frozen=True)
class OnnxExposeWeightsPass(ModulePass):
    """Makes the constants of `@main` with these names (ONNX initializers) its last arguments.

    A name that an argument has already is ignored. The pass runs before constant folding, while a weight is still one
    tensor; it also accepts the `popart` level. Raises PopulusError for a name that no input or constant has.
    """

    name = "onnx-expose-weights"

    names: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Exposes the named constants of `@main`."""
        expose(main_of(op), self.names)
