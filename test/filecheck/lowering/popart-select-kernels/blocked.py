"""A kernel of relu in blocks of 8 channels, and one of abs that vetoes."""

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.ir import SSAValue

from populus.dialects.popart import AbsOp, Config, Kernel, PopartOp, ReluOp, calls
from populus.dialects.popart.layout import NCHW8C


class Blocked(Kernel):
    """`max(x, 0)`, which padding of zeros stays."""

    op, name, rank = ReluOp, "blocked", 4

    def configs(self, op: PopartOp) -> Sequence[Config]:
        return [Config((NCHW8C,), (NCHW8C,), cost=0.125)]

    def lower(self, b: Builder, op: PopartOp, operands: Sequence[SSAValue], config: Config) -> Sequence[SSAValue]:
        assert isinstance(op, ReluOp), op
        return [calls.map(b, op.formula(), *operands)]


class Never(Kernel):
    """Eligible, and vetoed when it is chosen."""

    op, name = AbsOp, "never"

    def configs(self, op: PopartOp) -> Sequence[Config]:
        return [Config((NCHW8C,), (NCHW8C,), cost=-9)]

    def init(self, op: PopartOp, config: Config) -> str | None:
        return "no scratch memory is left"

    def lower(self, b: Builder, op: PopartOp, operands: Sequence[SSAValue], config: Config) -> Sequence[SSAValue]:
        raise AssertionError("vetoed")
