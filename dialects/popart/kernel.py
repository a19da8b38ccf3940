"""Kernels: alternative implementations of one op, their requirements, and the op that a kernel computes.

    class Blocked(Kernel):
        op, name = LeakyReluOp, "blocked"
        rank, dtypes = 4, (f32,)

        def configs(self, op):
            return [Config((NCHW8C,), (NCHW8C,), cost=0.5)]

        def lower(self, b, op, operands, config):
            return [calls.map(b, op.formula(), *operands)]

Operands come, and results go, in the configuration's layouts. An op's own `lower` is the kernel `own`: planar, and for every
target. `popart-select-kernels` chooses the kernels of the whole program. Source: OpenVINO's MKLDNN extensions
(`getSupportedConfigurations`, `init`, `execute`), Paddle's OpKernelType.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, region_def, var_operand_def, var_result_def

from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.control_flow import YieldOp
from populus.dialects.popart.layout import PLANAR, Layout, LayoutAttr
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, where
from populus.dialects.support.element_types import element_type_of, is_float, shape_of, tensor
from populus.dialects.support.registries import registry

OWN = "own"


@dataclass(frozen=True)
class Config:
    """Layouts of the operands and results with which a kernel works, and what an element costs it, in cycles."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    cost: float = 1.0

    def __str__(self) -> str:
        ins, outs = (", ".join(map(str, layouts)) for layouts in (self.inputs, self.outputs))
        return f"({ins}) -> ({outs})"


@dataclass(frozen=True)
class Key:
    """The target, library, element type and layout of a kernel, as in Paddle's kernel keys; `any` where it does not matter."""

    target: str
    library: str
    dtype: str
    layout: str

    def __str__(self) -> str:
        return f"{self.target}/{self.library}/{self.dtype}/{self.layout}"


class Kernel(ABC):
    """One implementation of `op`. Its members besides `lower` are requirements; an op that does not meet them goes to other kernels.

    `targets`: names of machines; all without any. `arity`: (operands, results). `rank`: of all operands. `dtypes`: of all operands of
    floats. `dynamic_dims`: dimensions along which elements are independent, so that inputs may have fewer (see `populus.compile`).
    """

    op: ClassVar[type[PopartOp]]
    name: ClassVar[str]
    library: ClassVar[str] = "tile"
    targets: ClassVar[tuple[str, ...]] = ()
    arity: ClassVar[tuple[int, int] | None] = None
    rank: ClassVar[int | None] = None
    dtypes: ClassVar[tuple[Attribute, ...]] = ()
    dynamic_dims: ClassVar[frozenset[int]] = frozenset()

    def configs(self, op: PopartOp) -> Sequence[Config]:
        """Lists the configurations that it supports, in order of preference. The default is planar."""
        return [Config((PLANAR,) * len(op.operands), (PLANAR,) * len(op.results))]

    def init(self, op: PopartOp, config: Config) -> str | None:
        """Accepts or vetoes the chosen configuration, once. A reason is a veto; then the next best is chosen."""
        return None

    @abstractmethod
    def lower(self, b: Builder, op: PopartOp, operands: Sequence[SSAValue], config: Config) -> Sequence[SSAValue]:
        """Builds the results from the operands, both in the configuration's layouts; inserts library calls or other ops at `b`.

        Read attributes and types from `op`, but not its operands, which are planar.
        """

    def refusal(self, op: PopartOp, target: str | None) -> str | None:
        """Returns the reason why this kernel cannot compute an op on a target; None if it can."""
        assert isinstance(op, self.op), f"kernel {self.name} is for {self.op.name}, and is asked about {op.name}"
        if self.targets and target is not None and target not in self.targets:
            return f"it is for {', '.join(self.targets)}"
        if self.arity is not None and (found := (len(op.operands), len(op.results))) != self.arity:
            return f"it takes {self.arity[0]} operands and gives {self.arity[1]}, the op has {found[0]} and {found[1]}"
        for i, operand in enumerate(op.operands):
            type = cast("TensorType[Attribute]", operand.type)
            shape, element = type.get_shape(), type.element_type
            if min(shape, default=0) < 0:
                return f"operand {i} is {type}; a static shape is expected"
            if self.rank is not None and len(shape) != self.rank:
                return f"operand {i} has {len(shape)} dimensions; {self.rank} are expected"
            if self.dtypes and is_float(element) and element not in self.dtypes:
                return f"operand {i} is of {element}; {', '.join(map(str, self.dtypes))} is expected"
        return None

    def key(self, op: PopartOp, config: Config, target: str | None) -> Key:
        """Returns the kernel's key for these operands."""
        element = str(element_type_of(op.operands[0].type)) if op.operands else "any"
        layout = "planar" if all(not layout.block for layout in (*config.inputs, *config.outputs)) else "blocked"
        return Key(target or "any" if self.targets else "any", self.library, element, layout)


class OwnKernel(Kernel):
    """An op's own `lower`: what remains when no other kernel is taken."""

    name = OWN

    def __init__(self, op: type[PopartOp]):
        self.op = op  # pyright: ignore[reportAttributeAccessIssue]

    def refusal(self, op: PopartOp, target: str | None) -> str | None:
        return f"{op.name} has no `lower`" if type(op).lower is PopartOp.lower else None

    def lower(self, b: Builder, op: PopartOp, operands: Sequence[SSAValue], config: Config) -> Sequence[SSAValue]:
        raise AssertionError("an op that is computed in its own way is lowered as itself")


@dataclass(frozen=True)
class Known:
    """A kernel that a context knows. `only`: the target that it was added for, if for one."""

    kernel: Kernel
    only: str | None = None

    def refusal(self, op: PopartOp, target: str | None) -> str | None:
        """Returns the reason why the kernel cannot compute an op on a target; None if it can."""
        if self.only is not None and target is not None and target != self.only:
            return f"it was added for {self.only} only"
        return self.kernel.refusal(op, target)


_BY_NAME = registry(dict[tuple[str, str], Kernel]())  # the last that was defined


def know(ctx: Context, kernels: Sequence[Kernel], only: str | None = None) -> None:
    """Makes a context know kernels. Raises PopulusError for two of one op and name."""
    known = _known(ctx)
    for kernel in kernels:
        for other in known:
            if (other.kernel.op.name, other.kernel.name) == (kernel.op.name, kernel.name) and other.kernel is not kernel:
                raise PopulusError(f"{kernel.op.name} has a kernel '{kernel.name}' already; give this one another name")
        if all(other.kernel is not kernel for other in known):
            known.append(Known(kernel, only))
        _BY_NAME[kernel.op.name, kernel.name] = kernel


def kernels_of(ctx: Context, op: type[PopartOp]) -> list[Known]:
    """Lists the kernels of an op, its own lowering last."""
    found = [k for k in _known(ctx) if k.kernel.op is op or k.kernel.op.name == op.name]
    return [*found, Known(OwnKernel(op))]


def any_kernels(ctx: Context) -> bool:
    """Tells whether the context has any kernel."""
    return bool(_known(ctx))


def _known(ctx: Context) -> list[Known]:
    # A context compares by value and cannot be a key; what it knows beside dialects and ops is kept on it.
    found: list[Known] = vars(ctx).setdefault("populus_kernels", [])
    return found


def problem(kernel: type[Kernel]) -> str | None:
    """Returns the part that a class lacks to be a kernel; None if it is complete."""
    op, name = getattr(kernel, "op", None), getattr(kernel, "name", None)
    if not (isinstance(op, type) and issubclass(op, PopartOp)):
        return "lacks `op`; give it the class of the op that it computes"
    if not isinstance(name, str) or not name.isidentifier():
        return f'`name` is {name!r}; a word is expected, such as "blocked"'
    if name == OWN:
        return f'`name` is "{OWN}", which is the op\'s own lowering; give it another'
    return None


def impl_types(op: type[PopartOp], ctx: Context | None = None) -> list[str]:
    """Lists the implementations of an op: `tile` by library calls, `numpy` by its own values; empty if it has neither."""
    from populus.dialects.popart.definition import definition_of

    definition = definition_of(op)
    tile = definition.has_lowering or (ctx is not None and len(kernels_of(ctx, op)) > 1)
    return [kind for kind, there in (("tile", tile), ("numpy", definition.has_evaluate)) if there]


def implementation(op: type[PopartOp], kind: str, ctx: Context | None = None) -> object | None:
    """Returns the implementation of a kind: the kernels, or the function that computes its values; None if there is none."""
    if kind not in impl_types(op, ctx):
        return None
    if kind == "numpy":
        return op.evaluate
    return kernels_of(ctx, op) if ctx is not None else [Known(OwnKernel(op))]


@irdl_op_definition
class KernelOp(PopartOp):
    """`results = op(operands)`, computed by one kernel, in its layouts. Its region holds the op on planar tensors. Source: OpenVINO's node.

    `reason`: why this kernel was chosen.
    """

    name = "popart.kernel"
    kernel = prop_def(StringAttr)
    inputs = prop_def(ArrayAttr[LayoutAttr])
    outputs = prop_def(ArrayAttr[LayoutAttr])
    reason = prop_def(StringAttr, default_value=StringAttr(""))
    values = var_operand_def(TensorType)
    made = var_result_def(TensorType)
    body = region_def("single_block")
    assembly_format = "$kernel `(` $values `)` attr-dict `:` functional-type(operands, results) $body"

    @staticmethod
    def of(op: PopartOp, kernel: str, config: Config, operands: Sequence[SSAValue], reason: str = "") -> KernelOp:
        """Makes the kernel op that computes a copy of `op`, on operands in the kernel's layouts. `op` does not change."""
        block = Block(arg_types=[o.type for o in op.operands])
        inner = op.clone(dict(zip(op.operands, block.args)))
        inner.location = op.location
        block.add_ops([inner, YieldOp(*inner.results)])
        results = [tensor(la.physical(shape_of(r.type)), element_type_of(r.type)) for la, r in zip(config.outputs, op.results)]
        made = KernelOp.create(
            operands=list(operands),
            result_types=results,
            properties={
                "kernel": StringAttr(kernel),
                "inputs": ArrayAttr([LayoutAttr(layout) for layout in config.inputs]),
                "outputs": ArrayAttr([LayoutAttr(layout) for layout in config.outputs]),
                "reason": StringAttr(reason),
            },
            regions=[Region(block)],
        )
        made.location = op.location
        return made

    @property
    def inner(self) -> PopartOp:
        """The op that is computed."""
        op = self.body.block.first_op
        assert isinstance(op, PopartOp), op
        return op

    @property
    def config(self) -> Config:
        """The layouts of operands and results."""
        return Config(tuple(a.data for a in self.inputs.data), tuple(a.data for a in self.outputs.data))

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [
            tensor(layout.data.physical(shape_of(r.type)), element_type_of(r.type))
            for layout, r in zip(self.outputs.data, self.inner.results)
        ]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        inner, name = self.inner, self.kernel.data
        kernel = _BY_NAME.get((inner.name, name))
        if kernel is None:
            names = [n for op, n in _BY_NAME if op == inner.name]
            raise PopulusError(f"{where(self)}: {inner.name} has no kernel '{name}'{did_you_mean(name, names)}")
        assert isinstance(inner, kernel.op), f"kernel {name} is for {kernel.op.name}, and was given {inner.name}"
        return kernel.lower(b, inner, list(self.values), self.config)


def evaluated(op: KernelOp, arrays: Sequence[Any], compute: Any) -> list[Any]:
    """Computes the expected results of any kernel: the inner op's results on planar arrays, packed in the kernel's layouts."""
    config = op.config
    planar = [layout.unpack(a, shape_of(v.type)) for layout, a, v in zip(config.inputs, arrays, op.inner.operands)]
    return [layout.pack(r) for layout, r in zip(config.outputs, compute(op.inner, planar))]
