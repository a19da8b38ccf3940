"""Gradients of calls: a function's gradient is a function; intermediate values are saved or recomputed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from xdsl.builder import Builder
from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.base.control_flow import read_by
from populus.dialects.data import ConstantOp, EqualContents, unify
from populus.dialects.popart import calls
from populus.dialects.support.call_places import PLACES
from populus.dialects.support.diagnostics import PopulusError, did_you_mean

STITCHES = ("add_fwd_outputs", "recompute_all_non_inputs", "recompute_minimal")

Differentiate: TypeAlias = "Callable[[Block, Sequence[tuple[SSAValue, SSAValue]], Sequence[SSAValue]], list[SSAValue]]"


@dataclass(frozen=True)
class Gradient:
    """Functions of a differentiated call.

    `forward` replaces the called function; it returns values of types `saved` after the function's own results.
    `backward` takes the gradients of the results, the arguments and results of these numbers, and the saved
    values. It returns the wanted gradients.
    """

    forward: str
    saved: Sequence[Attribute]
    backward: str
    arguments: Sequence[int]
    results: Sequence[int]


@dataclass(frozen=True)
class Stated:
    """A gradient function that a caller of `CallGradients` has for a function, in place of the one that would be built.

    `backward` takes gradients of results, arguments and results of a call: `taken` has the kind and number of each.
    Its first results are the gradients of the arguments `given`. Other arguments have no gradient.
    """

    backward: str
    taken: Sequence[tuple[Literal["gradient", "argument", "result"], int]]
    given: Sequence[int]


@dataclass
class CallGradients:
    """Gradients of a module's functions, built on demand.

    `stitch` says how the gradient function obtains intermediate values of the forward function.
    `add_fwd_outputs`: the forward function returns them too. `recompute_minimal`: the gradient function
    recomputes them. `recompute_all_non_inputs`: it recomputes the results too. Raises PopulusError for another
    name. `stated`: gradients of functions by their names, which are taken as they are.
    Source: PopART's AutodiffStitchStrategy.
    """

    module: ModuleOp
    stitch: str = STITCHES[0]
    made: dict[tuple[str, tuple[int, ...], tuple[int, ...]], Gradient] = field(
        default_factory=dict[tuple[str, tuple[int, ...], tuple[int, ...]], Gradient]
    )
    stated: Mapping[str, Stated] = field(default_factory=dict[str, Stated])
    contents: EqualContents = field(default_factory=EqualContents)  # of constants: equal functions have equal handles

    def __post_init__(self) -> None:
        if self.stitch not in STITCHES:
            raise PopulusError(f"no way '{self.stitch}' to stitch{did_you_mean(self.stitch, STITCHES)}")

    def through(
        self, op: CallOp, b: Builder, grads: Sequence[SSAValue | None], wanted: Container[SSAValue], differentiate: Differentiate
    ) -> list[SSAValue | None]:
        """Computes the gradients of a call's operands, those that are `wanted`, from the gradients of its results.

        Another call may replace `op`, which then returns saved values too.
        """
        if stated := self.stated.get(op.callee.root_reference.data):
            return self._as_stated(stated, op, b, grads)
        seeded = tuple(i for i, g in enumerate(grads) if g is not None)
        numbers = tuple(i for i, o in enumerate(op.operands) if o in wanted)
        key = op.callee.root_reference.data, seeded, numbers
        if key not in self.made:
            self.made[key] = self.gradient(self.function(key[0]), seeded, numbers, differentiate)
        made = self.made[key]
        results = list(op.results)
        if made.saved:
            forward = CallOp(made.forward, list(op.operands), [*(r.type for r in op.results), *made.saved])
            forward.location = op.location
            forward.attributes |= {PLACES: op.attributes[PLACES]} if PLACES in op.attributes else {}
            Rewriter.insert_op(forward, InsertPoint.before(op))
            for old, new in zip(op.results, forward.results):
                new.name_hint = old.name_hint
                old.replace_all_uses_with(new)
            results = list(forward.results)
        seeds = [g for g in grads if g is not None]
        forward_values = [*(op.operands[i] for i in made.arguments), *(results[i] for i in made.results), *results[len(op.results) :]]
        call = CallOp(made.backward, [*seeds, *forward_values], [op.operands[i].type for i in numbers])
        call.attributes |= {PLACES: op.attributes[PLACES]} if PLACES in op.attributes else {}
        b.insert(call)
        gradients: list[SSAValue | None] = [None] * len(op.operands)
        for i, gradient in zip(numbers, call.results):
            gradients[i] = gradient
        return gradients

    def _as_stated(self, stated: Stated, op: CallOp, b: Builder, grads: Sequence[SSAValue | None]) -> list[SSAValue | None]:
        """Computes the gradients of a call's operands by the function that is stated for it."""
        operands: list[SSAValue] = []
        for kind, i in stated.taken:
            if kind == "gradient":
                result = op.results[i]
                operands.append(grads[i] or calls.fill(b, 0, calls.element(result), calls.shape(result)))
            else:
                operands.append(op.operands[i] if kind == "argument" else op.results[i])
        call = CallOp(stated.backward, operands, list(self.function(stated.backward).function_type.outputs))
        call.attributes |= {PLACES: op.attributes[PLACES]} if PLACES in op.attributes else {}
        b.insert(call)
        gradients: list[SSAValue | None] = [None] * len(op.operands)
        for i, gradient in zip(stated.given, call.results):
            gradients[i] = gradient
        return gradients

    def function(self, name: str) -> FuncOp:
        """Looks up a function. Raises PopulusError if there is none."""
        for op in self.module.body.block.ops:
            if isinstance(op, FuncOp) and op.sym_name.data == name:
                return op
        raise PopulusError(f"@{name} is called and is not there")

    def gradient(self, function: FuncOp, seeded: Sequence[int], wanted: Sequence[int], differentiate: Differentiate) -> Gradient:
        """Builds the functions for a call. `seeded`: numbers of results with gradients; `wanted`: of arguments that
        need one.
        """
        name = function.sym_name.data
        whole = function.clone()
        block = whole.body.block
        last = block.last_op
        assert isinstance(last, ReturnOp), last
        arguments = list(block.args)
        seeds = [(last.operands[i], block.insert_arg(last.operands[i].type, len(block.args))) for i in seeded]
        # Marks the end of the forward ops in the scratch copy.
        mark = ConstantOp.create(properties={"value": StringAttr("")}, result_types=[])
        Rewriter.insert_op(mark, InsertPoint.before(last))
        gradients = differentiate(block, seeds, [arguments[i] for i in wanted])
        results = list(last.operands)  # listed now: a call or loop that saves values may have replaced another
        ops = list(block.ops)
        forward, backward = ops[: ops.index(mark)], ops[ops.index(mark) + 1 : -1]
        need = _Need(self.stitch, arguments, results, forward)
        live = need.of(backward, gradients)
        taken = [a for a in arguments if a in need.arguments]
        entering = [*(g for _, g in seeds), *taken, *need.results, *need.saved]
        forward_name = name
        if need.saved:
            forward_name = self._add(f"{name}_fwd", arguments, forward, [*results, *need.saved])
        backward_name = self._add(f"{name}_grad", entering, [*(op for op in forward if op in need.again), *live], gradients)
        whole.erase()
        numbers = {value: i for i, value in reversed(list(enumerate(results)))}
        return Gradient(
            forward_name,
            [v.type for v in need.saved],
            backward_name,
            [i for i, a in enumerate(arguments) if a in need.arguments],
            [numbers[v] for v in need.results],
        )

    def _add(self, name: str, arguments: Sequence[SSAValue], ops: Iterable[Operation], results: Sequence[SSAValue]) -> str:
        """Adds a function with copies of these ops, unless an equal one exists; returns its name."""
        block = Block(arg_types=[a.type for a in arguments])
        values: dict[SSAValue, SSAValue] = dict(zip(arguments, block.args))
        for old, new in zip(arguments, block.args):
            new.name_hint = old.name_hint
        for op in ops:
            block.add_op(copy := op.clone(values))
            for inner in copy.walk():
                unify(inner, self.contents)
        block.add_op(ReturnOp(*(values[r] for r in results)))
        type = FunctionType.from_lists([a.type for a in arguments], [r.type for r in results])
        region = Region(block)
        for other in self.module.body.block.ops:
            if isinstance(other, FuncOp) and other.sym_name.data.startswith(name) and other.body.is_structurally_equivalent(region):
                return other.sym_name.data
        function = FuncOp(self._named(name), type, region, visibility=StringAttr("private"))
        self.module.body.block.add_op(function)
        return function.sym_name.data

    def _named(self, name: str) -> str:
        """Makes a name unique by appending a number."""
        taken = {op.sym_name.data for op in self.module.body.block.ops if isinstance(op, FuncOp)}
        number = 0
        while (unique := f"{name}_{number}" if number else name) in taken:
            number += 1
        return unique


class _Need:
    """Values of a function that its gradient reads: arguments, results, saved values, and recomputed ops."""

    def __init__(self, stitch: str, arguments: Sequence[SSAValue], results: Sequence[SSAValue], forward: Sequence[Operation]):
        self.stitch, self.known, self.returned = stitch, set(arguments), set(results)
        self.forward = set(forward)
        self.arguments: dict[SSAValue, None] = {}
        self.results: dict[SSAValue, None] = {}
        self.saved: dict[SSAValue, None] = {}
        self.again: set[Operation] = set()

    def of(self, backward: Sequence[Operation], gradients: Sequence[SSAValue]) -> list[Operation]:
        """Records the values that the gradients need; returns the backward ops that they need."""
        wanted = set(gradients)
        live: list[Operation] = []
        for op in reversed(backward):
            if any(r in wanted for r in op.results):
                live.append(op)
                wanted.update(read_by(op))
        own = {r for op in backward for r in op.results}
        for value in dict.fromkeys([v for op in reversed(live) for v in read_by(op)] + list(gradients)):
            if value not in own:
                self.value(value)
        return live[::-1]

    def value(self, value: SSAValue) -> None:
        """Records one value and, if it is recomputed, its operands."""
        owner = value.owner
        if value in self.known:
            self.arguments[value] = None
        elif not isinstance(owner, Operation) or owner not in self.forward:
            return  # a result's gradient
        elif isinstance(owner, ConstantOp):
            self.again.add(owner)
        elif value in self.returned and self.stitch != "recompute_all_non_inputs":
            self.results[value] = None
        elif self.stitch == "add_fwd_outputs":
            self.saved[value] = None
        elif owner not in self.again:
            self.again.add(owner)
            for read in read_by(owner):
                self.value(read)


def erase_uncalled(module: ModuleOp) -> None:
    """Erases the private functions without calls, and transitively those that only they called."""
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    called: set[str] = set()
    waiting = [op for op in functions.values() if op.sym_visibility is None]
    while waiting:
        for op in waiting.pop().walk():
            if isinstance(op, CallOp) and (name := op.callee.root_reference.data) not in called:
                called.add(name)
                waiting += [functions[name]] if name in functions else []
    for name, function in functions.items():
        if function.sym_visibility is not None and name not in called:
            Rewriter.erase_op(function)
