"""`Pattern`: the part of a `map` that its machine code depends on. It loads no builder of code."""

from __future__ import annotations

from dataclasses import dataclass

from populus.runtime.tape import Tape

STRIDE = {0: "zero", 1: "one"}  # innermost strides known while compiling; others are `any`


@dataclass(frozen=True)
class Pattern:
    """A `tape` over `rank` loops. `strides`: the innermost of each operand and of the output; `same`: operands that
    are the output.

    The stride of an operand that is one number, not NaN, is `number`.
    """

    tape: Tape
    rank: int
    strides: tuple[str, ...]
    same: tuple[int, ...]

    @property
    def key(self) -> str:
        """Text that determines the machine code."""
        literals = [(x.dtype.name, x.tobytes().hex()) for x in self.tape.literals]
        steps = [(s.name, s.args, s.dtype.name) for s in self.tape.steps]
        operands = [d.name for d in self.tape.operands]
        return f"map {operands} {literals} {steps} {self.tape.result} {self.tape.dtype} {self.rank} {self.strides} {self.same}"

    @property
    def pointers(self) -> list[int]:
        """Operands that have a memref of their own."""
        return [i for i in range(len(self.tape.operands)) if i not in self.same]

    @property
    def numbers(self) -> int:
        """Number of sizes and strides that the function takes."""
        unknown = sum(s == "any" for i, s in enumerate(self.strides) if i not in self.same)
        return (self.rank - 1) * (2 + len(self.pointers) - self.strides.count("number")) + unknown
