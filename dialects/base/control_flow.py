"""Branches and loops whose programs are regions: what `popart` and `popops` share, each under its own names.

    %y = popart.if %c then { popart.yield %a : tensor<2xf32> } else { popart.yield %b : tensor<2xf32> } : tensor<i1> -> tensor<2xf32>
    %h, %ys = popart.loop(%h0, %xs) {trips = 5 : i64, scanned = 1 : i64}
        : (tensor<4xf32>, tensor<5x3xf32>) -> (tensor<4xf32>, tensor<5x2xf32>) do {
    ^bb0(%i: tensor<i32>, %h: tensor<4xf32>, %x: tensor<3xf32>):
      ..
      popart.yield %h1, %y : tensor<4xf32>, tensor<2xf32>
    }

Regions read values from around them as their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import IntegerAttr, TensorType, i1, i32, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue, SSAValues
from xdsl.irdl import (
    IRDLOperation,
    operand_def,
    opt_prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import TensorOp, attribute
from populus.dialects.support.constraints import flag, whole
from populus.dialects.support.element_types import element_type_of, shape_of, tensor

INDEX = tensor((), i32)  # the type of a loop's first argument
FLAG = tensor((), i1)  # of conditions


class Yield(IRDLOperation):
    """The terminator of a region: passes its results to the enclosing op."""

    values = var_operand_def(TensorType)
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def __init__(self, *values: SSAValue):
        super().__init__(operands=[values])

    def verify_(self) -> None:
        if (parent := self.parent_op()) is not None and parent.name in ("func.func", "builtin.module"):
            raise VerifyException(f"stands in {parent.name}; it ends a region of a branch, loop or kernel")


class Control(TensorOp):
    """The base of branches and loops. Their constructors take regions, each of one block that ends in a Yield."""

    def yielded(self, region: Region) -> tuple[SSAValue, ...]:
        """Returns the results of a region. Raises VerifyException for one that does not end in a Yield."""
        last = region.blocks[0].last_op if region.blocks else None
        if not isinstance(last, Yield):
            raise VerifyException("a region has to end in a yield")
        return tuple(last.operands)

    def types(self, region: Region) -> list[TensorType[Attribute]]:
        """Returns the types of a region's results."""
        return [tensor(shape_of(v.type), element_type_of(v.type)) for v in self.yielded(region)]

    def finish(self, operands: Sequence[SSAValue], properties: dict[str, Attribute], regions: Sequence[Region]) -> None:
        """Makes the op, its results by its shape rule."""
        Operation.__init__(self, operands=operands, properties=properties, regions=regions)
        self.results = SSAValues(OpResult(t, self, i) for i, t in enumerate(self.infer()))


class Branch(Control):
    """One of two regions, by a condition that the running program decides; only the one that is taken is computed.

    Both give values of the same types, the results. Source: ONNX If-25, poplar::program::If.
    """

    condition = operand_def(FLAG)
    then = region_def("single_block")
    otherwise = region_def("single_block")
    outputs = var_result_def(TensorType)
    assembly_format = "$condition `then` $then `else` $otherwise attr-dict `:` type($condition) (`->` type($outputs)^)?"

    def __init__(self, condition: SSAValue, then: Region, otherwise: Region):
        self.finish([condition], {}, [then, otherwise])

    def infer(self) -> Sequence[TensorType[Attribute]]:
        then, otherwise = self.types(self.then), self.types(self.otherwise)
        if self.then.block.args or self.otherwise.block.args:
            raise VerifyException("a branch takes no arguments; it reads the values around it")
        if then != otherwise:
            raise VerifyException(f"the branches give {', '.join(map(str, then))} and {', '.join(map(str, otherwise))}; they have to agree")
        return then


class Loop(Control):
    """A region that runs repeatedly. Its arguments: the iteration's number, the carried values, a row of each scanned operand.

    Operands: if `conditional`, the condition of the first iteration; the initial carried values; then `scanned` tensors `[trips, ..]`,
    of which iteration i gets row i. The region's results: if `conditional`, the condition of the next iteration; the next carried
    values; and any number of rows. The op's results: the final carried values; then the rows of all iterations, `[trips, ..]`,
    zeros for iterations that did not run.
    `trips`: the number of iterations; if `conditional`, their maximum. Only a conditional loop without rows may omit it.
    """

    inputs = var_operand_def(TensorType)
    trips = opt_prop_def(IntegerAttr.constr(i64))
    scanned = whole(0)
    conditional = flag()
    body = region_def("single_block")
    outputs = var_result_def(TensorType)
    assembly_format = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs) `do` $body"

    def __init__(
        self, carried: Sequence[SSAValue], body: Region, *, trips: int | None, scanned: Sequence[SSAValue] = (), go: SSAValue | None = None
    ):
        properties = {"scanned": attribute(len(scanned)), "conditional": attribute(go is not None)}
        if trips is not None:
            properties["trips"] = attribute(trips)
        self.finish([*([] if go is None else [go]), *carried, *scanned], properties, [body])

    @property
    def most(self) -> int | None:
        """The number of iterations, or the most of them; None for any number."""
        return None if self.trips is None else self.trips.value.data

    @property
    def go(self) -> SSAValue | None:
        """The condition of a conditional loop's first iteration; else None."""
        return self.operands[0] if self.conditional else None

    @property
    def carried(self) -> tuple[SSAValue, ...]:
        """The carried values before the first iteration."""
        return tuple(self.operands[self.conditional and 1 : len(self.operands) - self.scanned])

    @property
    def tables(self) -> tuple[SSAValue, ...]:
        """The scanned operands."""
        return tuple(self.operands[len(self.operands) - self.scanned :])

    @property
    def index(self) -> BlockArgument:
        """The number of the iteration, in the region."""
        return self.body.block.args[0]

    @property
    def states(self) -> tuple[BlockArgument, ...]:
        """The carried values, in the region."""
        return tuple(self.body.block.args[1 : 1 + len(self.carried)])

    @property
    def rows(self) -> tuple[BlockArgument, ...]:
        """The rows of the scanned operands, in the region."""
        return tuple(self.body.block.args[1 + len(self.carried) :])

    @property
    def goes_on(self) -> SSAValue | None:
        """The condition of the next iteration, in a conditional loop's region; else None."""
        return self.yielded(self.body)[0] if self.conditional else None

    @property
    def next_states(self) -> tuple[SSAValue, ...]:
        """The carried values of the next iteration."""
        first = int(self.conditional != 0)
        return self.yielded(self.body)[first : first + len(self.carried)]

    @property
    def collected(self) -> tuple[SSAValue, ...]:
        """The rows that an iteration gives."""
        return self.yielded(self.body)[int(self.conditional != 0) + len(self.carried) :]

    def infer(self) -> Sequence[TensorType[Attribute]]:
        conditional, scanned, most = self.conditional, self.scanned, self.most
        if not 0 <= scanned <= len(self.operands) - conditional:
            raise VerifyException(f"{scanned} scanned operands among {len(self.operands)}")
        carried = [tensor(shape_of(v.type), element_type_of(v.type)) for v in self.carried]
        given = self.types(self.body)
        found = [a.type for a in self.body.block.args]
        if most is None and (not conditional or scanned or len(given) > 1 + len(carried)):
            raise VerifyException("`trips` may be left open only by a conditional loop that scans and collects nothing")
        if most is not None and most < 0:
            raise VerifyException(f"{most} iterations")
        for table in self.tables:
            if shape_of(table.type)[:1] != (most,):
                raise VerifyException(f"a scanned operand is {table.type}, of which {most} iterations take a row each")
        expected = [INDEX, *carried, *(tensor(shape_of(t.type)[1:], element_type_of(t.type)) for t in self.tables)]
        if found != expected:
            raise VerifyException(f"the region takes {_texts(found)}; the operands give {_texts(expected)}")
        first = [FLAG] if conditional else []
        if conditional and self.operands[0].type != FLAG:
            raise VerifyException(f"whether to begin is {self.operands[0].type}, not {FLAG}")
        if given[: len(first) + len(carried)] != [*first, *carried]:
            raise VerifyException(f"the region gives {_texts(given)}; {_texts([*first, *carried])} has to come first")
        rows = given[len(first) + len(carried) :]
        return [*carried, *(tensor((most or 0, *shape_of(t)), element_type_of(t)) for t in rows)]


def _texts(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types)) or "nothing"


def captures(op: Operation) -> list[SSAValue]:
    """Lists the values from outside that the regions of an op read, each once, in order of first use."""
    if not op.regions:
        return []
    inside: set[Block] = {block for inner in op.walk() for region in inner.regions for block in region.blocks}
    found: dict[SSAValue, None] = {}
    for inner in op.walk():
        if inner is not op:
            for value in inner.operands:
                block = value.owner if isinstance(value.owner, Block) else value.owner.parent
                if block not in inside:
                    found[value] = None
    return list(found)


def read_by(op: Operation) -> list[SSAValue]:
    """Lists the operands of an op, then the other values that its regions read."""
    return [*op.operands, *captures(op)]


def blocks_of(block: Block) -> Iterator[Block]:
    """Lists a block and all blocks inside its ops, outer ones first."""
    yield block
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                yield from blocks_of(inner)
