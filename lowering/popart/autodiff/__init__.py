"""Differentiation (`popart-autodiff`): adds gradients as results of `@main`, by a reverse walk over each op's own
gradient.
"""

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
from populus.dialects.signature.bounded_dimensions import Sizes
from populus.dialects.support import user_op_errors
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError, between, did_you_mean, locate, where
from populus.dialects.support.element_types import element_type_of, is_float, tensor
from populus.lowering.popart.autodiff.call_gradients import STITCHES, CallGradients, erase_uncalled
from populus.lowering.popart.autodiff.library_gradients import library_gradient
from populus.lowering.popart.autodiff.sparse_rows import lookups, rows_of
from populus.lowering.popart.training_names import LOSS_SCALE, gradient_name, rows_name, scalar_name

LONGEST_PATH = 8  # ops named in a message; the middle of a longer path is left out


@dataclass(frozen=True)
class PopartAutodiffPass(ModulePass):
    """Adds the gradients of the inputs and weights `wrt` as results `Gradient___<name>`, after the existing results.

    `loss`: an output of one element. Its gradient is 1, or with `loss_scale` the scalar input
    `Hyper___loss_scale`. Without a loss, each float output (or those of `outputs`) gets an input
    `Gradient___<output>`, its cotangent. A weight becomes an input.

    Contributions are summed in the order of the reverse walk. A gradient has its tensor's type. It is zero where
    no gradient flows: through an integer, a condition, or a step function. A second run gives second derivatives,
    `Gradient___Gradient___<name>`.

    `sparse`: weights that are only looked up by rows (gathered along dimension 0). Their gradients have one row
    for each lookup, and the result `Rows___<name>` has the row numbers.

    `recompute`: the number of parts of the forward pass. All but the last are recomputed before their gradients,
    so that only values between parts are kept. 1 keeps all; 0 takes half the square root of the number of ops.

    `stitch`: how the gradient of a called function obtains intermediate values (`CallGradients`).

    Raises PopulusError for an unknown name, a tensor that is not of floats, and a loss of several elements. Also
    raises it for an op on the way without a gradient, with the path to it. Source: PopART's `Autodiff`, whose
    registries of expected gradients a walk in reverse order makes unnecessary. Bit for bit.
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
        sizes = Sizes(function)
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
        named: dict[SSAValue, str] = dict(zip(function.body.block.args, input_names(function)))
        sizes.extend({named[s.gradient]: s.name for s in seeds if s.gradient in named}, dict(zip(results, wrt)))
        erase_dead(function.body.block, lambda _: True, after=last)
        erase_uncalled(op)

    def _seeds(self, function: FuncOp) -> list[Seed]:
        """Pairs each differentiated output with its gradient."""
        names, values = output_names(function), return_of(function).operands
        outputs = dict(zip(names, values))
        floats = tuple(n for n, v in outputs.items() if is_float(calls.element(v)))
        chosen = (self.loss,) if self.loss is not None else self.outputs or floats
        if not chosen:
            raise PopulusError(f"no output is of floats, so nothing has a gradient; there are {', '.join(names)}")
        seeds: list[Seed] = []
        for name in dict.fromkeys(chosen):
            if name not in outputs:
                raise PopulusError(f"there is no output '{name}'{did_you_mean(name, names)}")
            value = outputs[name]
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
    """Locates a user's gradient in its source file, for a message."""
    return user_op_errors.at(op, "gradient") if isinstance(op, PopartOp) else ""


def _free(name: str, taken: Container[str]) -> str:
    """Returns the name, or repeats the gradient prefix while it is taken: a gradient of a gradient."""
    while name in taken:
        name = gradient_name(name)
    return name


@dataclass(frozen=True)
class Seed:
    """A value where differentiation starts, its gradient, and its name for messages."""

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
    """Computes the gradient of each value of `wrt`, from ops inserted at the end of `block`, or before the op
    `before`.

    `wrt`: results or arguments of `block`. Only ops between them and the seeds are differentiated. `parts`: as
    `recompute` of the pass. Raises NoGradient with the path to an op without a gradient. Raises PopulusError if
    the gradients of an op differ in type from its operands.
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
    """Clones the ops that compute tensors before `end`; each clone reads the clones of its producers."""
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
    """Collects the float values that depend on `wrt`."""
    dependent = set(wrt)
    for op in ops:
        if any(v in dependent for v in read_by(op)):
            dependent.update(r for r in op.results if is_float(calls.element(r)))
    return dependent


def _inside(
    name: str, functions: CallGradients, block: Block, seeds: Sequence[tuple[SSAValue, SSAValue]], wrt: Sequence[SSAValue]
) -> list[SSAValue]:
    """Computes the gradients inside a region or function of an op called `name`."""
    gradients = differentiate(block, [Seed(name, value, gradient) for value, gradient in seeds], wrt, functions)
    return [gradients[value] for value in wrt]


@dataclass
class GradientWalk:
    """Gradients of the reverse walk so far, and the op through which the walk first reached each value."""

    builder: Builder
    end: Operation
    functions: CallGradients
    gradients: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    reached: dict[SSAValue, Operation | str] = field(default_factory=dict[SSAValue, "Operation | str"])

    def add(self, value: SSAValue, gradient: SSAValue, name: str | None, by: Operation | None) -> None:
        """Adds a contribution to a value's gradient."""
        before = self.gradients.get(value)
        if before is None:
            self.gradients[value] = gradient
            self.reached[value] = by if by is not None else f"'{name}'"
        else:
            self.gradients[value] = calls.insert(self.builder, popart.AddOp(before, gradient))

    def through(self, op: Operation, dependent: set[SSAValue], copy: Operation) -> None:
        """Adds the gradients of an op's operands. `copy`: the op that is differentiated, `op` itself or its
        recomputed clone.

        Raises NoGradient with the path if the op has no gradient, and PopulusError if its gradient does not fit.
        """
        before, reads = self.end.prev_op, read_by(op)
        for value, gradient in zip(reads, self._asked(op, copy, reads, dependent)):
            if gradient is not None and value in dependent:
                if gradient.type != value.type:
                    name = "a value that it reads"
                    if value in op.operands:
                        name = user_op_errors.operand_name(op, list(op.operands).index(value))
                    said = f"its gradient gives {gradient.type} for an operand that is {value.type}, {name}"
                    raise PopulusError(f"{where(op)}: {op.name}: {said}{_stated(op)}")
                self.add(value, gradient, None, op)
        block = self.end.parent
        assert block is not None
        locate(between(block, before, self.end), op.location)
        if isinstance(op, ControlOp | CallOp) and not any(r.uses for r in op.results):
            op.detach()  # a replacement, which saves the values that the gradient needs, is in its place
            op.erase()

    def _asked(self, op: Operation, copy: Operation, reads: Sequence[SSAValue], dependent: set[SSAValue]) -> Sequence[SSAValue | None]:
        try:
            if isinstance(op, CallOp):
                inside = partial(_inside, op.callee.string_value(), self.functions)
                return self.functions.through(op, self.builder, [self.gradients.get(r) for r in op.results], dependent, inside)
            grads = [self.gradients.get(r) or calls.fill(self.builder, 0, calls.element(r), calls.shape(r)) for r in op.results]
            match copy:
                case ControlOp():
                    gradients = copy.gradient_through(self.builder, grads, dependent, partial(_inside, op.name, self.functions))
                case PopartOp():
                    title = partial("{}: {}".format, where(op), op.name)
                    with user_op_errors.asked(op, "gradient", title):
                        gradients = copy.gradient(self.builder, grads)
                    gradients = user_op_errors.values(op, "gradient", gradients, title, none=True)
                case _:
                    gradients = library_gradient(copy, self.builder, grads)
        except NoGradient as error:
            raise NoGradient(f"{error}{self._path(op)}") from error
        except VerifyException as error:
            raise NoGradient(f"{where(op)}: {op.name}: its gradient does not fit together: {error}{_stated(op)}{self._path(op)}") from error
        if gradients is None:
            raise NoGradient(f"{where(op)}: {op.name} has no gradient{self._path(op)}")
        if len(gradients) != len(reads):
            raise PopulusError(f"{where(op)}: {op.name}: its gradient gives {len(gradients)} values for {len(reads)} operands{_stated(op)}")
        return gradients

    def _path(self, op: Operation) -> str:
        """Formats the path from the output to an op."""
        places = [where(op)]
        step: Operation | str = op
        while isinstance(step, Operation):
            step = next(self.reached[r] for r in step.results if r in self.reached)
            places.append(step if isinstance(step, str) else where(step))
        places.reverse()
        if len(places) > LONGEST_PATH:
            places = [*places[: LONGEST_PATH // 2], "...", *places[-LONGEST_PATH // 2 :]]
        return f"; the path to it is {' <- '.join(places)}"
