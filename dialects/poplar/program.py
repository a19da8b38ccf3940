"""The control tree around compute sets: graph, sequence, loops, branches, calls, streams, host calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, SymbolNameConstraint, i1, i32, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_region_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator, SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import VerifyException

from populus.dialects.poplar.compute import CopyOp, FamilyOp
from populus.dialects.poplar.memory import ParamOp, StorageOp, root_of, storage_of, type_of, unwritable, view_of
from populus.dialects.poplar.outside import OutsideOp
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.target import Target, TargetAttr
from populus.dialects.poplar.types import TensorType
from populus.dialects.support.diagnostics import PlainErrors
from populus.dialects.support.element_types import ui32


class _Control(PlainErrors, IRDLOperation):
    """An op with programs inside: regions of one block each, which `{}` leaves empty."""

    traits = traits_def(NoTerminator())

    def __post_init__(self) -> None:
        super().__post_init__()
        for region in self.regions:
            if not region.blocks:
                region.add_block(Block())

    def clone_without_regions(
        self,
        value_mapper: dict[SSAValue, SSAValue] | None = None,
        block_mapper: dict[Block, Block] | None = None,
        *,
        clone_name_hints: bool = True,
        clone_operands: bool = True,
    ) -> Self:
        copy = super().clone_without_regions(value_mapper, block_mapper, clone_name_hints=clone_name_hints, clone_operands=clone_operands)
        for region in copy.regions:  # what clones brings the blocks
            region.erase_block(region.block)
        return copy


@irdl_op_definition
class GraphOp(_Control):
    """A program for one machine: variables, constants, views and the steps that use them, run from the top.

    poplar.graph @main target <gc200, tiles = 16> { ... }
    """

    name = "poplar.graph"
    sym_name = prop_def(SymbolNameConstraint())
    target = prop_def(TargetAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), SymbolTable())
    assembly_format = "$sym_name `target` $target $body attr-dict"

    def __init__(self, name: str, target: TargetAttr, body: Region):
        super().__init__(properties={"sym_name": StringAttr(name), "target": target}, regions=[body])

    @property
    def machine(self) -> Target:
        """The machine that the graph is for."""
        return self.target.data.target()

    def verify_(self) -> None:
        machine = self.machine
        for op in self.walk():
            if any(isinstance(v.owner, Operation) and not self.is_ancestor(v.owner) for v in op.operands):
                raise VerifyException(f"{op.name} reads a value that is defined outside of the graph")
            if isinstance(op, StorageOp):
                if not machine.holds(op.type.element):
                    raise VerifyException(f"'{op.label.data}' is {op.type.element}, which target {machine.name} cannot hold")
                if op.grid is not None and (why := op.grid.data.problem(op.type.shape, machine.tiles)):
                    raise VerifyException(f"'{op.label.data}': {why}")
            elif op.name == "poplar.family":
                vertices = getattr(op, "space").vertices  # noqa: B009, FamilyOp stands above this file
                if vertices > machine.tiles:
                    raise VerifyException(f"a family of {vertices} vertices on {machine.tiles} tiles; each tile runs one")


class _Block(_Control):
    """Steps that run in order."""

    body = region_def("single_block")


@irdl_op_definition
class SequenceOp(_Block):
    """The steps inside, in order: only a grouping, with a label for reports."""

    name = "poplar.sequence"
    label = prop_def(StringAttr)
    assembly_format = "$label $body attr-dict"

    def __init__(self, label: str, body: Region):
        super().__init__(properties={"label": StringAttr(label)}, regions=[body])


@irdl_op_definition
class RepeatOp(_Block):
    """The steps inside, `count` times."""

    name = "poplar.repeat"
    count = prop_def(IntegerAttr.constr(i64))
    assembly_format = "$count $body attr-dict"

    def __init__(self, count: int, body: Region):
        super().__init__(properties={"count": IntegerAttr(count, i64)}, regions=[body])


GUESSED_TURNS = 16
"""Iterations that estimates count of a `poplar.while` without a bound; nothing says better."""


@irdl_op_definition
class WhileOp(_Control):
    """Runs `before`; while the predicate then holds, runs `body` and `before` again. Source: poplar RepeatWhileTrue.

    `most`: how often the body can run at most, where that is known; estimates count on it, nothing else does.
    """

    name = "poplar.while"
    predicate = operand_def(TensorType)
    most = opt_prop_def(IntegerAttr.constr(i64))
    before = region_def("single_block")
    body = region_def("single_block")
    assembly_format = "$predicate `:` type($predicate) (`most` $most^)? `before` $before `do` $body attr-dict"

    def __init__(self, predicate: SSAValue, before: Region, body: Region, most: int | None = None):
        properties = {} if most is None else {"most": IntegerAttr(most, i64)}
        super().__init__(operands=[predicate], regions=[before, body], properties=properties)

    @property
    def turns(self) -> int | None:
        """The most iterations, if there is a bound."""
        return None if self.most is None else self.most.value.data

    @property
    def counted(self) -> int:
        """The iterations that estimates count: the most, or a guess where there is no bound."""
        return GUESSED_TURNS if self.turns is None else self.turns

    def verify_(self) -> None:
        _verify_scalar(self.predicate, (i1,), "the predicate")


@irdl_op_definition
class IfOp(_Control):
    """One of two programs, by a predicate of one element."""

    name = "poplar.if"
    predicate = operand_def(TensorType)
    then = region_def("single_block")
    otherwise = region_def("single_block")
    assembly_format = "$predicate `:` type($predicate) $then `else` $otherwise attr-dict"

    def __init__(self, predicate: SSAValue, then: Region, otherwise: Region):
        super().__init__(operands=[predicate], regions=[then, otherwise])

    def verify_(self) -> None:
        _verify_scalar(self.predicate, (i1,), "the predicate")


@irdl_op_definition
class SwitchOp(_Control):
    """The program whose value the control has, or the last, which is the default."""

    name = "poplar.switch"
    control = operand_def(TensorType)
    cases = prop_def(DenseArrayBase.constr(i64))
    programs = var_region_def("single_block")

    def __init__(self, control: SSAValue, cases: Sequence[int], programs: Sequence[Region]):
        super().__init__(operands=[control], properties={"cases": DenseArrayBase.from_list(i64, list(cases))}, regions=[list(programs)])

    def verify_(self) -> None:
        _verify_scalar(self.control, (i32, ui32), "the control")
        if len(self.programs) != len(self.cases) + 1:
            raise VerifyException(f"{len(self.cases)} cases and a default need {len(self.cases) + 1} programs, not {len(self.programs)}")
        if len(set(self.cases.get_values())) < len(self.cases):
            raise VerifyException("a case is named twice")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.control)
        printer.print_string(" : ")
        printer.print_attribute(self.control.type)
        for case, program in zip([*(f"case {c}" for c in self.cases.get_values()), "default"], self.programs):
            printer.print_string(f" {case} ")
            printer.print_region(program)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> SwitchOp:
        operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        control = parser.resolve_operand(operand, parser.parse_type())
        cases: list[int] = []
        programs: list[Region] = []
        while parser.parse_optional_keyword("case") is not None:
            cases.append(parser.parse_integer(allow_boolean=False))
            programs.append(parser.parse_region())
        parser.parse_keyword("default")
        programs.append(parser.parse_region())
        attributes = parser.parse_optional_attr_dict()
        properties = {"cases": DenseArrayBase.from_list(i64, cases)}
        return cls.create(operands=[control], properties=properties, regions=programs, attributes=attributes)


@irdl_op_definition
class FuncOp(_Block):
    """A program that `call` runs by name. Its parameters are the `poplar.param`s that it begins with.

        poplar.func @layer {
          %x = poplar.param in "x" on [64 in 8] order [0] : !poplar.tensor<64xf32>
          %y = poplar.param out "y" on [64 in 8] order [0] : !poplar.tensor<64xf32>
          ...
        }

    It may use the variables of the graph around it too. Variables inside are the function's own, whichever call runs it: what is
    in them at the beginning of a call is what the call before left.
    """

    name = "poplar.func"
    sym_name = prop_def(SymbolNameConstraint())
    traits = traits_def(SymbolOpInterface())
    assembly_format = "$sym_name $body attr-dict"

    def __init__(self, name: str, body: Region):
        super().__init__(properties={"sym_name": StringAttr(name)}, regions=[body])

    def parameters(self) -> list[ParamOp]:
        """Lists the parameters, in the order of a call's arguments."""
        return [op for op in self.body.block.ops if isinstance(op, ParamOp)]

    def captured(self) -> dict[SSAValue, bool]:
        """Collects the enclosing graph's variables and constants that it uses, also through calls, and whether it writes them."""
        found: dict[SSAValue, bool] = {}

        def use(value: SSAValue, written: bool) -> None:
            root = root_of(value)
            if not self.is_ancestor(root.owner):
                found[root] = found.get(root, False) or written

        for op in self.walk():
            if isinstance(op, CallOp):
                for root, written in op.target().captured().items():
                    use(root, written)
                for parameter, value in zip(op.target().parameters(), op.arguments):
                    use(value, parameter.written)
            elif isinstance(op, FamilyOp):
                for field, value in op.connections():
                    use(value, field.kind != "in")
            elif isinstance(op, CopyOp | StreamInOp | StreamOutOp | OutsideOp | IfOp | WhileOp | SwitchOp):
                for i, value in enumerate(op.operands):
                    use(value, i in _written(op))
        return found


def _written(op: Operation) -> range:
    """Lists the operands that a step other than an execute writes."""
    match op:
        case CopyOp():
            return range(1, 2)
        case StreamInOp():
            return range(1)
        case OutsideOp():
            return range(op.inputs.value.data, len(op.views))
        case _:
            return range(0)


@irdl_op_definition
class CallOp(PlainErrors, IRDLOperation):
    """Runs a function of the graph; its code is shared by all calls: `poplar.call @layer(%x, %w, %y) : ...`.

    An argument is a stretch of its variable's elements, in order, for each parameter. The arguments that it writes must not
    overlap other arguments or captured variables. Then tiles, which copy arguments into the function's memory and back, and
    engines, which use arguments in place, give the same values.
    """

    name = "poplar.call"
    callee = prop_def(SymbolNameConstraint())
    arguments = var_operand_def(TensorType)
    assembly_format = "$callee (`(` $arguments^ `)` `:` type($arguments))? attr-dict"

    def __init__(self, callee: str, arguments: Sequence[SSAValue] = ()):
        super().__init__(operands=[list(arguments)], properties={"callee": StringAttr(callee)})

    def target(self) -> FuncOp:
        """Returns the called function. Raises VerifyException if the graph has none of that name, or it encloses the call."""
        parent = self.parent_op()
        while parent is not None:
            if isinstance(parent, FuncOp) and parent.sym_name.data == self.callee.data:
                raise VerifyException(f"@{self.callee.data} calls itself")
            if isinstance(parent, GraphOp):
                found = SymbolTable.lookup_symbol(parent, self.callee.data)
                if isinstance(found, FuncOp):
                    return found
            parent = parent.parent_op()
        raise VerifyException(f"the graph has no function @{self.callee.data}")

    def bindings(self) -> Iterator[tuple[ParamOp, SSAValue]]:
        """Lists each parameter with its argument."""
        return zip(self.target().parameters(), self.arguments, strict=True)

    def verify_(self) -> None:
        self._verify_returns()
        parameters = self.target().parameters()
        name = self.callee.data
        if len(parameters) != len(self.arguments):
            raise VerifyException(f"{len(self.arguments)} arguments for the {len(parameters)} parameters of @{name}")
        for parameter, value in self.bindings():
            what = f"the argument for '{parameter.label.data}' of @{name}"
            if value.type != parameter.result.type:
                raise VerifyException(f"{what} is {value.type}, expected {parameter.result.type}")
            if not view_of(value).is_contiguous:
                raise VerifyException(f"{what} is no stretch of its variable's elements in order; it takes a copy")
            if parameter.written:
                _verify_writable(value, what)
        self._verify_apart(parameters)

    def _verify_returns(self) -> None:
        """Checks that no function is called while it runs."""
        seen: set[str] = set()
        waiting = [self.target()]
        while waiting:
            for op in waiting.pop().walk():
                if isinstance(op, CallOp) and op.callee.data not in seen:
                    if op.callee.data == self.callee.data:
                        raise VerifyException(f"@{self.callee.data} calls itself")
                    seen.add(op.callee.data)
                    waiting.append(op.target())

    def _verify_apart(self, parameters: Sequence[ParamOp]) -> None:
        used = [(p.label.data, p.written, v, view_of(v)) for p, v in zip(parameters, self.arguments)]
        for i, (label, written, value, view) in enumerate(used):
            for other, _, another, seen in used[:i] + used[i + 1 :] if written else ():
                if root_of(another) is root_of(value) and not disjoint(view, seen):
                    raise VerifyException(f"the argument for '{label}', which @{self.callee.data} writes, overlaps that for '{other}'")
        captured = self.target().captured() if used else {}
        for label, written, value, _ in used:
            root = root_of(value)
            if root in captured and (written or captured[root]):
                raise VerifyException(f"@{self.callee.data} uses '{storage_of(value).label.data}' itself, and gets it for '{label}'")


@irdl_op_definition
class StreamInOp(PlainErrors, IRDLOperation):
    """Data from the host: `poplar.stream_in "x" to %x`. The name is that of the model's input.

    `as f64`: the host's data has another element type than the tiles hold; a value that does not fit is an error.
    """

    name = "poplar.stream_in"
    stream = prop_def(StringAttr)
    host = opt_prop_def(Attribute)
    dst = operand_def(TensorType)
    assembly_format = "$stream (`as` $host^)? `to` $dst attr-dict `:` type($dst)"

    def __init__(self, stream: str, dst: SSAValue, host: Attribute | None = None):
        properties: dict[str, Attribute] = {"stream": StringAttr(stream)}
        if host is not None and host != element_of(dst):
            properties["host"] = host
        super().__init__(operands=[dst], properties=properties)

    @property
    def host_element(self) -> Attribute:
        """The element type of the host's data."""
        return element_of(self.dst) if self.host is None else self.host

    def verify_(self) -> None:
        _verify_writable(self.dst, "the destination")


@irdl_op_definition
class StreamOutOp(PlainErrors, IRDLOperation):
    """Data to the host: `poplar.stream_out %y to "y"`. The name is that of the model's output.

    `as f64`: the host gets another element type than the tiles hold.
    """

    name = "poplar.stream_out"
    src = operand_def(TensorType)
    stream = prop_def(StringAttr)
    host = opt_prop_def(Attribute)
    assembly_format = "$src `to` $stream (`as` $host^)? attr-dict `:` type($src)"

    def __init__(self, src: SSAValue, stream: str, host: Attribute | None = None):
        properties: dict[str, Attribute] = {"stream": StringAttr(stream)}
        if host is not None and host != element_of(src):
            properties["host"] = host
        super().__init__(operands=[src], properties=properties)

    @property
    def host_element(self) -> Attribute:
        """The element type of the host's data."""
        return element_of(self.src) if self.host is None else self.host


def element_of(value: SSAValue) -> Attribute:
    """Returns the element type of a view."""
    return type_of(value).element


def _verify_scalar(value: SSAValue, elements: tuple[Attribute, ...], what: str) -> None:
    type = type_of(value)
    if any(n != 1 for n in type.shape) or type.element not in elements:
        raise VerifyException(f"{what} is {type}, not one element of {' or '.join(map(str, elements))}")


def _verify_writable(value: SSAValue, what: str) -> None:
    if why := unwritable(value):
        raise VerifyException(f"{what} {why} may not be written")
