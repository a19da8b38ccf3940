"""`popart-autodiff`: gradients as further results of `@main`, by a reverse walk that asks each op for its own."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from populus.dialects import popart
from populus.dialects.base.control_flow import read_by
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import ConstantOp
from populus.dialects.expr import Arg, cast
from populus.dialects.popart import ControlOp, NoGradient, PopartOp, calls
from populus.dialects.popart.optimizer import wide
from populus.dialects.signature import add_argument, add_results, expose, input_names, main_of, output_names, return_of
from populus.dialects.support import user_op_errors
from populus.dialects.support.diagnostics import PopulusError, between, did_you_mean, locate, where
from populus.dialects.support.element_types import element_type_of, is_float, tensor
from populus.lowering.popart.autodiff.call_gradients import STITCHES, CallGradients, erase_uncalled
from populus.lowering.popart.autodiff.library_gradients import library_gradient
from populus.lowering.popart.autodiff.sparse_rows import lookups, rows_of
from populus.lowering.popart.training_names import LOSS_SCALE, gradient_name, rows_name, scalar_name

LONGEST_PATH = 8  # ops named in a message; the middle of a longer path is left out


@dataclass(frozen=True)
class PopartAutodiffPass(ModulePass):
    """The gradients of the inputs and weights `wrt` become results `Gradient___<name>`, behind those that there are.

    `loss`: an output of one element; its gradient is 1, or with `loss_scale` the scalar input `Hyper___loss_scale`. Without a
    loss, each output of floats (or those of `outputs`) has a further input `Gradient___<output>`, its cotangent. A weight becomes an
    input. Contributions are summed in the order in which the reverse walk meets them. A gradient has its tensor's type, and is zero
    where nothing flows: behind an integer, a condition, or a step function. Run twice, the pass gives second derivatives,
    `Gradient___Gradient___<name>`. `sparse`: weights that are only looked up by rows (gathered along dimension 0); their gradients
    are of the rows that were, whose numbers are a result `Rows___<name>`, one for each time that it was.
    `recompute`: into how many parts the ops are split, each of which but the last is computed again before its gradients, so that
    only what goes from part to part is kept; 1 keeps all, 0 takes half as many as the square root of the number of ops.
    A function that is called gets one that computes its gradient; `stitch` says how that comes by values in between
    (`CallGradients`). Raises PopulusError for a name that there is not, a tensor that is not of floats, a loss of several elements, and
    for an op on the way that has no gradient, with the path that leads to it.
    Source: PopART's `Autodiff`, whose registries of expected gradients a walk in reverse order makes unnecessary.
    """

    name = "popart-autodiff"

    wrt: tuple[str, ...] = ()
    loss: str | None = None
    outputs: tuple[str, ...] = ()
    loss_scale: bool = False
    sparse: tuple[str, ...] = ()
    recompute: int = 1
    stitch: str = STITCHES[0]

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_of(op)
        if not self.wrt and not self.sparse:
            raise PopulusError("wrt names what to differentiate with respect to, and is empty")
        expose(function, (*self.wrt, *self.sparse))
        inputs = dict(zip(input_names(function), function.body.block.args))
        wrt = {name: inputs[name] for name in dict.fromkeys(self.wrt) if name not in self.sparse}
        for name, value in wrt.items():
            if not is_float(element_type_of(value.type)):
                raise PopulusError(f"'{name}' is {value.type}; only floats have gradients, so leave it out of wrt")
        seeds = self._seeds(function)
        last = return_of(function).prev_op
        looked_up = {name: lookups(name, inputs[name]) for name in self.sparse}
        rows = [op.y for ops in looked_up.values() for op in ops]
        functions = CallGradients(op, self.stitch)
        gradients = differentiate(function.body.block, seeds, [*wrt.values(), *rows], functions, self.recompute)
        if self.loss is not None and all(isinstance(g.owner, ConstantOp) for g in gradients.values()):
            names = " or ".join(f"'{name}'" for name in (*wrt, *looked_up)[:3])
            raise NoGradient(f"nothing reaches {names} from the loss '{self.loss}' but through integers, conditions or step functions")
        taken = set(output_names(function))
        results = {_free(gradient_name(name), taken): gradients[value] for name, value in wrt.items()}
        b = Builder(InsertPoint.before(return_of(function)))
        for name, ops in looked_up.items():
            results[rows_name(name)], results[gradient_name(name)] = rows_of(b, ops, [gradients[op.y] for op in ops])
        add_results(function, results)
        _erase_unread(function.body.block, last)
        erase_uncalled(op)

    def _seeds(self, function: FuncOp) -> list[Seed]:
        """The outputs that are differentiated with their gradients."""
        names, values = output_names(function), return_of(function).operands
        given = dict(zip(names, values))
        chosen = (self.loss,) if self.loss is not None else self.outputs or tuple(n for n, v in given.items() if is_float(calls.element(v)))
        if not chosen:
            raise PopulusError(f"no output is of floats, so nothing has a gradient; there are {', '.join(names)}")
        seeds: list[Seed] = []
        for name in dict.fromkeys(chosen):
            if name not in given:
                raise PopulusError(f"there is no output '{name}'{did_you_mean(name, names)}")
            value = given[name]
            if not is_float(calls.element(value)):
                raise PopulusError(f"the output '{name}' is {value.type}; only floats have gradients")
            if self.loss is None:
                taken = set(input_names(function))
                gradient = add_argument(function, _free(gradient_name(name), taken), value.type, "g")
            else:
                if (elements := math.prod(calls.shape(value))) != 1:
                    raise PopulusError(f"the loss '{name}' is {value.type}, of {elements} elements; one is expected")
                gradient = self._of_loss(function, value)
            seeds.append(Seed(name, value, gradient))
        return seeds

    def _of_loss(self, function: FuncOp, loss: SSAValue) -> SSAValue:
        b, element = Builder(InsertPoint.before(return_of(function))), calls.element(loss)
        if not self.loss_scale:
            return calls.fill(b, 1, element, calls.shape(loss))
        scale = add_argument(function, scalar_name(LOSS_SCALE), tensor((), wide(element)), LOSS_SCALE)
        if wide(element) != element:
            scale = calls.map(b, cast(Arg(1), element), scale)
        return calls.reshape(b, scale, calls.shape(loss))


def _stated(op: Operation) -> str:
    """Where a user's class states its gradient."""
    return user_op_errors.at(op, "gradient") if isinstance(op, PopartOp) else ""


def _free(name: str, taken: Container[str]) -> str:
    """The name, or that of its gradient if it is taken: a gradient of a gradient."""
    while name in taken:
        name = gradient_name(name)
    return name


def _erase_unread(block: Block, last: Operation | None) -> None:
    """Erases what stands behind `last` and is not read: an op gives the gradients of all its operands, not only of those asked for."""
    op = block.last_op
    while op is not None and op is not last:
        before = op.prev_op
        if op.results and not any(r.uses for r in op.results):
            op.detach()
            op.erase()
        op = before


@dataclass(frozen=True)
class Seed:
    """A value where differentiation starts, with its gradient and its name for messages."""

    name: str
    value: SSAValue
    gradient: SSAValue


def differentiate(
    block: Block,
    seeds: Sequence[Seed],
    wrt: Iterable[SSAValue],
    functions: CallGradients,
    parts: int = 1,
    before: Operation | None = None,
) -> dict[SSAValue, SSAValue]:
    """The gradient of each value of `wrt` (values that `block` defines or takes), from ops at the end of `block`, or `before` an op.

    Only ops between `wrt` and the seeds are asked for gradients. `parts`: as `recompute` of the pass. Raises NoGradient naming the path
    to one that has none, and PopulusError where an op's gradients are not of its operands' types.
    """
    wrt = list(wrt)
    last = block.last_op if before is None else before
    assert last is not None
    present = list(takewhile(lambda op: op is not before, block.ops))
    dependent = _dependent(present, wrt)
    ops = [op for op in present if op.results and any(v in dependent for v in read_by(op))]
    walk = GradientWalk(Builder(InsertPoint.before(last)), last, functions)
    for seed in seeds:
        walk.add(seed.value, seed.gradient, seed.name, None)
    parts = parts or max(2, math.isqrt(len(ops)) // 2)
    size = max(1, -(-len(ops) // parts))
    for begin in reversed(range(0, len(ops), size)):
        part = ops[begin : begin + size]
        again = _again(part, last) if begin + size < len(ops) else {}
        for op in reversed(part):
            if any(r in walk.gradients for r in op.results):
                walk.through(op, dependent, again.get(op, op))
    return {value: walk.gradients.get(value) or calls.fill(walk.builder, 0, calls.element(value), calls.shape(value)) for value in wrt}


def _again(ops: Sequence[Operation], end: Operation) -> dict[Operation, Operation]:
    """Copies before `end` of what computes with tensors, each reading the copies of the others."""
    values: dict[SSAValue, SSAValue] = {}
    copies: dict[Operation, Operation] = {}
    for op in ops:
        if op.operands and not op.regions and isinstance(op, TensorOp):
            copy = op.clone(values)
            copy.location = op.location
            Rewriter.insert_op(copy, InsertPoint.before(end))
            copies[op] = copy
    return copies


def _dependent(ops: Iterable[Operation], wrt: Sequence[SSAValue]) -> set[SSAValue]:
    """The values of floats through which `wrt` can be felt."""
    found = set(wrt)
    for op in ops:
        if any(v in found for v in read_by(op)):
            found.update(r for r in op.results if is_float(calls.element(r)))
    return found


def _inside(
    name: str, functions: CallGradients, block: Block, seeds: Sequence[tuple[SSAValue, SSAValue]], wrt: Sequence[SSAValue]
) -> list[SSAValue]:
    """The gradients inside a region, or a function, of an op called `name`."""
    found = differentiate(block, [Seed(name, value, gradient) for value, gradient in seeds], wrt, functions)
    return [found[value] for value in wrt]


@dataclass
class GradientWalk:
    """Gradients so far, and by which op each value was first reached."""

    builder: Builder
    end: Operation
    functions: CallGradients
    gradients: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    reached: dict[SSAValue, Operation | str] = field(default_factory=dict[SSAValue, "Operation | str"])

    def add(self, value: SSAValue, gradient: SSAValue, name: str | None, by: Operation | None) -> None:
        """One more contribution to a value's gradient."""
        before = self.gradients.get(value)
        if before is None:
            self.gradients[value] = gradient
            self.reached[value] = by if by is not None else f"'{name}'"
        else:
            self.gradients[value] = calls.insert(self.builder, popart.AddOp(before, gradient))

    def through(self, op: Operation, dependent: set[SSAValue], copy: Operation) -> None:
        """The gradients of what an op reads from those of its results. `copy`: what is asked for them, the op or the same again."""
        before, reads = self.end.prev_op, read_by(op)
        for value, gradient in zip(reads, self._asked(op, copy, reads, dependent)):
            if gradient is not None and value in dependent:
                if gradient.type != value.type:
                    name = user_op_errors.operand_name(op, list(op.operands).index(value)) if value in op.operands else "what it reads"
                    said = f"its gradient gives {gradient.type} for an operand that is {value.type}, {name}"
                    raise PopulusError(f"{where(op)}: {op.name}: {said}{_stated(op)}")
                self.add(value, gradient, None, op)
        block = self.end.parent
        assert block is not None
        locate(between(block, before, self.end), op.location)
        if isinstance(op, ControlOp | CallOp) and not any(r.uses for r in op.results):
            op.detach()  # another one, which keeps what the gradient needs, has taken its place
            op.erase()

    def _asked(self, op: Operation, copy: Operation, reads: Sequence[SSAValue], dependent: set[SSAValue]) -> Sequence[SSAValue | None]:
        try:
            if isinstance(op, CallOp):
                inside = partial(_inside, op.callee.string_value(), self.functions)
                return self.functions.through(op, self.builder, [self.gradients.get(r) for r in op.results], dependent, inside)
            grads = [self.gradients.get(r) or calls.fill(self.builder, 0, calls.element(r), calls.shape(r)) for r in op.results]
            match copy:
                case ControlOp():
                    found = copy.gradient_through(self.builder, grads, dependent, partial(_inside, op.name, self.functions))
                case PopartOp():
                    title = partial("{}: {}".format, where(op), op.name)
                    with user_op_errors.asked(op, "gradient", title):
                        found = copy.gradient(self.builder, grads)
                    found = user_op_errors.values(op, "gradient", found, title, none=True)
                case _:
                    found = library_gradient(copy, self.builder, grads)
        except NoGradient as error:
            raise NoGradient(f"{error}{self._path(op)}") from error
        except VerifyException as error:
            raise NoGradient(f"{where(op)}: {op.name}: its gradient does not fit together: {error}{_stated(op)}{self._path(op)}") from error
        if found is None:
            raise NoGradient(f"{where(op)}: {op.name} has no gradient{self._path(op)}")
        if len(found) != len(reads):
            raise PopulusError(f"{where(op)}: {op.name}: its gradient gives {len(found)} values for {len(reads)} operands{_stated(op)}")
        return found

    def _path(self, op: Operation) -> str:
        """How the walk came to an op, from the output on."""
        places = [where(op)]
        step: Operation | str = op
        while isinstance(step, Operation):
            step = next(self.reached[r] for r in step.results if r in self.reached)
            places.append(step if isinstance(step, str) else where(step))
        places.reverse()
        if len(places) > LONGEST_PATH:
            places = [*places[: LONGEST_PATH // 2], "...", *places[-LONGEST_PATH // 2 :]]
        return f"; the path to it is {' <- '.join(places)}"
