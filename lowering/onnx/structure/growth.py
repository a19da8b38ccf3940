"""Loops whose carried values change their size by the same amount in each iteration, such as a prefix that grows by a word.

    first of [1]  ->  Loop: [1 + #0 of 9] -> [1 + #0 + 1 of 9]  ->  [1 + #1 of 9]

`#0` is the number of the iteration, `#1` that of all iterations. A buffer holds the most that there can be, so the most iterations
have to be known: from the trip count, or stated by the user for a Loop by name (`--bound NAME=N`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, Region, SSAValue

from populus.dialects.base.tensor_op import attribute
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.sizes import Size, as_size
from populus.dialects.onnx.types import as_tensor
from populus.dialects.signature.bounded_dimensions import set_bounds, set_sizes, sizes
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, option, place
from populus.dialects.support.element_types import element_type_of, tensor
from populus.lowering.onnx.valid_sizes import Axes, Axis, ValidSizes, bound_of, described, is_prefix, prefix, size_of

BOUND = "bound"  # the attribute of a Loop with the most iterations that the user allows
NUMBER, COUNT, CARRIED = "number_name", "count_name", "carried_sizes"  # attributes of a typed Loop, as `Grown` has them


@dataclass(frozen=True)
class Growth:
    """A carried value grows along `axis` by `step` elements in each iteration; by fewer than none, it shrinks."""

    axis: int
    step: Size


@dataclass(frozen=True)
class Grown:
    """The sizes inside a typed loop: the name of the iteration's number, and the sizes of what it carries, as texts for each axis.

    `count`: the name of the number of iterations that ran; None if that is known otherwise.
    """

    number: str
    count: str | None
    carried: tuple[tuple[str, ...], ...]

    def record(self, op: Operation, valid: ValidSizes) -> None:
        """Records the sizes on the op, and the bounds of the names."""
        op.attributes[NUMBER] = StringAttr(self.number)
        if self.count is not None:
            op.attributes[COUNT] = StringAttr(self.count)
        set_sizes(op, CARRIED, self.carried)
        set_bounds(op, {name: valid.bounds[name] for name in (self.number, self.count) if name is not None})

    @staticmethod
    def of(op: Operation) -> Grown | None:
        """Reads what `record` wrote; None for another loop."""
        number, count = op.attributes.get(NUMBER), op.attributes.get(COUNT)
        if not isinstance(number, StringAttr):
            return None
        return Grown(number.data, count.data if isinstance(count, StringAttr) else None, sizes(op, CARRIED))


def state_bounds(module: ModuleOp, bounds: Mapping[str, int]) -> None:
    """Records on each Loop that `bounds` names the most iterations that it may run. Raises PopulusError for a name that no Loop has."""
    loops = {(place(op.location) or "").strip("'"): op for op in module.walk() if isinstance(op, OnnxOp) and op.OP_TYPE == "Loop"}
    for name, most in bounds.items():
        if name not in loops:
            raise PopulusError(f"there is no Loop '{name}' to bound{did_you_mean(name, loops)}")
        loops[name].attributes[BOUND] = attribute(most)


def stated_bound(op: Operation) -> int | None:
    """Gives the most iterations of a Loop that the user allows; None if that is not stated."""
    most = op.attributes.get(BOUND)
    return most.value.data if isinstance(most, IntegerAttr) else None


def asked_bound(op: Operation) -> str:
    """Asks for the most iterations of a Loop."""
    name = (place(op.location) or "NAME").strip("'")
    stated = option(f"--bound {name}=N", f"bounds={{'{name}': N}}")
    return f"; {stated} states the most iterations, and a run of more is refused"


def growths(valid: ValidSizes, carried: Sequence[SSAValue], following: Sequence[SSAValue]) -> dict[int, Growth]:
    """Finds the carried values that change their size along one axis, by position.

    A value that changes otherwise is left out, and is an error later on.
    """
    found: dict[int, Growth] = {}
    for i, (before, after) in enumerate(zip(carried, following)):
        a, b = as_tensor(before.type), as_tensor(after.type)
        if a is None or b is None or a.element_type != b.element_type or a.get_num_dims() != b.get_num_dims():
            continue
        changes = [(d, size_of(n) - size_of(m)) for d, (m, n) in enumerate(zip(valid.of(before), valid.of(after)))]
        changed = [Growth(d, by) for d, by in changes if by.terms]
        if len(changed) == 1:
            found[i] = changed[0]
    return found


@dataclass(frozen=True)
class CarriedSizes:
    """The sizes of a loop's carried values at the start of iteration `number`, with buffers for `most` iterations."""

    valid: ValidSizes
    first: Sequence[SSAValue]
    growths: Mapping[int, Growth]
    most: int

    def at(self, i: int, number: Size) -> Axes:
        """Gives the axes of carried value `i` when `number` iterations have run."""
        axes = self.valid.of(self.first[i])
        if (growth := self.growths.get(i)) is None:
            return axes
        begins = size_of(axes[growth.axis])
        bound = max(self.valid.upper(begins), self.valid.upper(begins + growth.step * self.most))
        return tuple(prefix(bound, begins + growth.step * number) if d == growth.axis else a for d, a in enumerate(axes))

    def type(self, i: int) -> Attribute:
        """Gives the type of the buffer of carried value `i`."""
        return tensor([bound_of(a) for a in self.buffer(i)], element_type_of(self.first[i].type))

    def buffer(self, i: int) -> tuple[Axis, ...]:
        """Gives the axes of the buffer of carried value `i`."""
        return self.at(i, as_size(self.most))

    def check(self, following: Sequence[SSAValue], number: Size) -> None:
        """Raises PopulusError for a value that the body does not change by the same amount in each iteration."""
        for i, after in enumerate(following):
            before, wanted, found = self.at(i, number), self.at(i, number + 1), self.valid.of(after)
            fits = len(wanted) == len(found) and all(size_of(a) == size_of(b) for a, b in zip(wanted, found))
            if not fits or element_type_of(after.type) != element_type_of(self.first[i].type) or not all(map(is_prefix, (*before, *found))):
                raise PopulusError(f"it carries {described(before)}, and gives {described(found)} to the next iteration")


def yields_rows(body: Region) -> Sequence[SSAValue]:
    """Lists the values that a Loop's body yields, without the condition."""
    end = body.block.last_op
    assert end is not None, body
    return end.operands[1:]
