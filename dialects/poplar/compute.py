"""Compute sets: `execute`, the families of vertices in it, and `copy`; with the static race and bounds rules."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from xdsl.dialects.builtin import I64, DictionaryAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from populus.dialects.poplar.codelets import CODELETS, Codelet
from populus.dialects.poplar.declared import declared
from populus.dialects.poplar.forms import Parts, params_problem
from populus.dialects.poplar.memory import StorageOp, ViewOp, root_of, unwritable, view_of
from populus.dialects.poplar.overlap import Ranges, disjoint, image
from populus.dialects.poplar.partition import MOST_POINTS, Domain, bounds_problem, race
from populus.dialects.poplar.types import KINDS, DomainAttr, Field, FieldsAttr, TensorType, parse_access, parse_domain
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import PlainErrors, did_you_mean
from populus.dialects.support.shapes import text


@irdl_op_definition
class FamilyOp(PlainErrors, IRDLOperation):
    """All vertices of one codelet in a compute set: an iteration space cut into parts, one vertex per part and tile.

        poplar.family @conv for (b = 1, oc = 64 in 8 by 8, ...) on (oc, oh)
          in x = %x[b, ic, oh + ky - 1, ow + kx - 1] : !poplar.tensor<1x64x56x56xf32>
          out y = %p[at ic, b, oc, oh, ow] : !poplar.tensor<8x1x64x56x56xf32>

    The verifier refuses what could race: an output two of whose vertices may write one element, a variable that one vertex
    writes and another reads, an access that leaves its view (inputs of codelets that pad may overhang).
    """

    name = "poplar.family"
    codelet = prop_def(StringAttr)
    params = prop_def(DictionaryAttr)
    domain = prop_def(DomainAttr)
    fields = prop_def(FieldsAttr)
    views = var_operand_def(TensorType)

    def __init__(
        self,
        codelet: str,
        domain: Domain,
        fields: Sequence[tuple[Field, SSAValue]],
        params: dict[str, Attribute] | None = None,
    ):
        properties = {
            "codelet": StringAttr(codelet),
            "params": DictionaryAttr(params or {}),
            "domain": DomainAttr(domain),
            "fields": FieldsAttr(tuple(field for field, _ in fields)),
        }
        self.begin([view for _, view in fields], (), properties)

    @property
    def space(self) -> Domain:
        """The iteration space."""
        return self.domain.data

    @property
    def declaration(self) -> Codelet:
        """The codelet's requirements."""
        if self.codelet.data not in CODELETS and (symbol := declared(self).get(self.codelet.data)) is not None:
            symbol.verify_()
        return CODELETS[self.codelet.data]

    @property
    def contracted(self) -> frozenset[str]:
        """The axes over which each vertex sums."""
        return frozenset(a for a, _ in self.space.axes if self.declaration.is_contracted(a))

    def connections(self) -> Iterable[tuple[Field, SSAValue]]:
        """Pairs each field with its view."""
        return zip(self.fields.data, self.views, strict=True)

    def written(self) -> Iterable[tuple[Field, SSAValue]]:
        """Pairs each written field with its view."""
        return ((f, v) for f, v in self.connections() if f.kind != "in")

    # -- verification

    def verify_(self) -> None:
        if self.codelet.data not in CODELETS and self.codelet.data not in declared(self):
            raise VerifyException(f"there is no codelet '{self.codelet.data}'{did_you_mean(self.codelet.data, CODELETS)}")
        if why := self.space.problem():
            raise VerifyException(why)
        if len(self.fields.data) != len(self.views):
            raise VerifyException(f"{len(self.fields.data)} fields for {len(self.views)} views")
        self._verify_fields()
        views = [view_of(v) for v in self.views]
        for (field, value), view in zip(self.connections(), views):
            self._verify_access(field, value, view)
        self._verify_written(views)
        self._verify_form(views)

    def _verify_form(self, views: Sequence[View]) -> None:
        """Holds the family to its codelet's form, on which kernels rely."""
        codelet, fields = self.declaration, self.fields.data
        if why := params_problem(self.params.data, codelet.params):
            raise VerifyException(f"@{codelet.name}: {why}")
        parts = Parts(
            self.space,
            {f.name: f.access for f in fields},
            {f.name: v.shape for f, v in zip(fields, views)},
            {f.name: v.type.element for f, v in zip(fields, self.views) if isinstance(v.type, TensorType)},
            self.params.data,
            next(f.name for f in fields if f.kind != "in"),
            lambda axis: codelet.is_contracted(axis) and not codelet.needs_whole(axis),
        )
        codelet.form(parts)
        named = {axis for f in fields for a in f.access for axis, _ in a.terms}
        if unused := [a for a, _ in self.space.axes if a not in named]:
            raise VerifyException(f"no field names axis {unused[0]}")

    def _verify_fields(self) -> None:
        codelet = self.declaration
        if (odd := next((f for f in self.fields.data if f.kind not in KINDS), None)) is not None:
            raise VerifyException(f"{odd.name} is {odd.kind}, which is not one of {', '.join(KINDS)}")
        names = [f.name for f in self.fields.data]
        inputs = [f for f in self.fields.data if f.kind != "out"]
        if codelet.inputs and codelet.inputs[-1].endswith("*"):
            expected = [f"{codelet.inputs[-1][:-1]}{i}" for i in range(1, len(inputs) + 1)]
        else:
            expected = list(codelet.inputs)
        outputs = [f for f in self.fields.data if f.kind != "in"]
        written = [f.name for f in outputs if f.kind == "out"] or list(codelet.outputs)
        if [f.name for f in inputs] != expected or len(outputs) != len(codelet.outputs) or written != list(codelet.outputs):
            raise VerifyException(f"@{codelet.name} has fields {', '.join((*codelet.inputs, *codelet.outputs))}, not {', '.join(names)}")
        if outputs[0].kind == "inout" and not codelet.inout:
            raise VerifyException(f"@{codelet.name} cannot write what it reads; {outputs[0].name} is inout")
        for axis, split in self.space.axes:
            if split.parts > 1 and codelet.needs_whole(axis):
                raise VerifyException(f"@{codelet.name} needs axis {axis} whole, but it has {split.parts} parts")

    def _verify_access(self, field: Field, value: SSAValue, view: View) -> None:
        if len(field.access) != len(view.shape):
            raise VerifyException(f"{field.name}: {len(field.access)} accesses to the {len(view.shape)} dimensions of {text(view.shape)}")
        axes = dict(self.space.axes)
        for access in field.access:
            for axis, coefficient in access.terms:
                if axis not in axes:
                    raise VerifyException(f"{field.name}: [{access}] names axis {axis}, which the domain does not have")
                if coefficient < 1:
                    raise VerifyException(f"{field.name}: [{access}] walks backwards; see the operand through a slice instead")
            if max((abs(access.offset), *(c for _, c in access.terms))) > MOST_POINTS:
                raise VerifyException(f"{field.name}: [{access}] has a number beyond 2^52, which no element has")
        if not (self.declaration.padded and field.kind == "in") and (why := bounds_problem(self.space, field.access, view.shape)):
            raise VerifyException(f"{field.name}: {why}")
        storage = root_of(value).owner
        if isinstance(storage, StorageOp) and storage.outside is not None:
            raise VerifyException(f"{field.name} is outside the tiles, where no vertex reaches; copy it to a variable first")
        if field.kind != "in":
            if why := unwritable(value):
                raise VerifyException(f"{field.name} {why} may not be written")
            if why := race(self.space, field.access):
                raise VerifyException(f"{field.name}: {why}")

    def _verify_written(self, views: Sequence[View]) -> None:
        connections = list(zip(self.fields.data, self.views, views))
        for i, (out, written, to) in enumerate(connections):
            if out.kind == "in":
                continue
            for j, (field, value, source) in enumerate(connections):
                if i != j and root_of(value) is root_of(written) and not disjoint(to, source):
                    if source == to and field.access == out.access and field.kind == "in" and out.kind == "inout":
                        continue  # the vertex reads just what it writes
                    raise VerifyException(f"{field.name} overlaps {out.name}, which the family writes")

    # -- text

    def print(self, printer: Printer) -> None:
        printer.print_string(f" @{self.codelet.data}")
        if self.params.data:
            printer.print_string(" ")
            printer.print_attr_dict(self.params.data)
        printer.print_string(f" for {self.space}")
        printer.print_op_attributes(self.attributes, print_keyword=True)
        with printer.indented():
            for field, view in self.connections():
                printer._print_new_line()  # pyright: ignore[reportPrivateUsage]
                printer.print_string(f"{field.kind} {field.name} = ")
                printer.print_ssa_value(view)
                printer.print_string(f"[{', '.join(map(str, field.access))}] : ")
                printer.print_attribute(view.type)

    @classmethod
    def parse(cls, parser: Parser) -> FamilyOp:
        codelet = parser.parse_symbol_name().data
        params = parser.parse_optional_attr_dict()
        parser.parse_keyword("for")
        domain = parse_domain(parser)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        fields: list[Field] = []
        views: list[SSAValue] = []
        while (kind := next((k for k in KINDS if parser.parse_optional_keyword(k) is not None), None)) is not None:
            name = parser.parse_identifier("a field")
            parser.parse_punctuation("=")
            operand = parser.parse_unresolved_operand()
            access = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_access(parser))
            parser.parse_punctuation(":")
            views.append(parser.resolve_operand(operand, parser.parse_type()))
            fields.append(Field(kind, name, tuple(access)))
        properties: dict[str, Attribute] = {
            "codelet": StringAttr(codelet),
            "params": DictionaryAttr(params),
            "domain": DomainAttr(domain),
            "fields": FieldsAttr(tuple(fields)),
        }
        return cls.create(operands=views, properties=properties, attributes={} if attributes is None else dict(attributes.data))


@dataclass(frozen=True)
class Meeting:
    """A field of one family and one of a later family that share elements which at least one of them writes.

    `on_one_tile`: whether each vertex of the second touches there just what the vertex of the first on the same tile does,
    and not only to write once more what the first wrote.
    """

    first: Field
    second: Field
    on_one_tile: bool


class Meetings:
    """The families so far, and the fields in which another one meets them. Fields are kept by variable and access, and found by range.

    Of families that touch the same elements on every tile, the last that writes them stands for those before it: it meets what they
    meet, in the same way. So a chain in place takes as many steps as it has families.
    """

    def __init__(self, families: Iterable[FamilyOp] = ()):
        self.families: list[FamilyOp] = []
        self._fields: dict[tuple[SSAValue, bool], Ranges[list[tuple[int, int]]]] = {}  # family and field, by (root, is it written)
        self._alike: dict[tuple[SSAValue, bool, View, Hashable], list[tuple[int, int]]] = {}  # those of one view and image
        for family in families:
            self.add(family)

    def add(self, family: FamilyOp) -> None:
        """Adds a family, whose number is that of its predecessors."""
        number = len(self.families)
        for k, (field, value) in enumerate(family.connections()):
            root, view, written = root_of(value), view_of(value), field.kind != "in"
            touched = image(family.space, field.access, view)
            alike = None if touched is None else self._alike.get((root, written, view, touched))
            if written and touched is not None:
                for earlier in (alike, self._alike.get((root, False, view, touched))):
                    if earlier is not None:
                        earlier.clear()
            if alike is None:
                alike = list[tuple[int, int]]()
                self._fields.setdefault((root, written), Ranges()).add(view, alike)
                if touched is not None:
                    self._alike[root, written, view, touched] = alike
            alike.append((number, k))
        self.families.append(family)

    def of(self, family: FamilyOp) -> dict[int, list[Meeting]]:
        """Finds the fields of earlier families, by number, that may touch the same elements as fields of this one."""
        found: list[tuple[int, int, int, Meeting]] = []
        for k, (field, value) in enumerate(family.connections()):
            root, view = root_of(value), view_of(value)
            for written in (True,) if field.kind == "in" else (True, False):
                kept = self._fields.get((root, written))
                for i, j in chain.from_iterable(kept.near(view)) if kept is not None else ():
                    if (meeting := _meeting(self.families[i], j, family, field, view)) is not None:
                        found.append((i, j, k, meeting))
        met: dict[int, list[Meeting]] = {}
        for i, _, _, meeting in sorted(found, key=lambda entry: entry[:3]):
            met.setdefault(i, []).append(meeting)
        return met


def _meeting(first: FamilyOp, number: int, second: FamilyOp, g: Field, b: View) -> Meeting | None:
    """Returns the meeting of a field of a family, by number, with one of a later family; None if they share no element."""
    f, a = first.fields.data[number], view_of(first.views[number])
    if disjoint(a, b):
        return None
    mine = None if f.kind != "in" and g.kind == "out" else image(first.space, f.access, a)
    return Meeting(f, g, mine is not None and mine == image(second.space, g.access, b))


@irdl_op_definition
class ExecuteOp(PlainErrors, IRDLOperation):
    """One superstep: exchange in, then the vertices of all its families, then exchange out.

    Every vertex reads the values from before the step. A later family may read or write the output of an earlier one only if
    each of its vertices touches exactly the elements of the vertex on its own tile: the two then run as one, in order.
    """

    name = "poplar.execute"
    label = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$label $body attr-dict"

    def __init__(self, label: str, families: Sequence[FamilyOp]):
        self.begin((), (), {"label": StringAttr(label)}, [Region(Block(families))])

    def families(self) -> list[FamilyOp]:
        """Lists the families, in order."""
        return [op for op in self.body.block.ops if isinstance(op, FamilyOp)]

    def stages(self) -> list[list[FamilyOp]]:
        """Groups the families in order: each group works on the output of an earlier one, on its own tile."""
        families = self.families()
        if len(families) == 1:
            return [families]
        grouped: list[list[FamilyOp]] = [[]]
        before, depth = Meetings(), list[int]()
        for family in families:
            met = before.of(family)
            depth.append(max((depth[i] + 1 for i, found in met.items() if all(m.on_one_tile for m in found)), default=0))
            if depth[-1] == len(grouped):
                grouped.append([])
            grouped[depth[-1]].append(family)
            before.add(family)
        return grouped

    def verify_(self) -> None:
        families = self.families()
        if len(families) != len(self.body.block.ops) or not families:
            raise VerifyException("an execute holds families, and at least one")
        before = Meetings()
        for j, family in enumerate(families):
            for i, found in before.of(family).items():
                if met := next((m for m in found if not m.on_one_tile), None):
                    (writer, out), (other, field) = sorted([(i, met.first), (j, met.second)], key=lambda f: f[1].kind == "in")
                    raise VerifyException(
                        f"family {writer} writes {out.name} of '{self.label.data}' while family {other} has it as {field.name}; they race"
                    )
            before.add(family)


@irdl_op_definition
class CopyOp(PlainErrors, IRDLOperation):
    """Any static movement of data: element i of `src` becomes element i of `dst`. They may not overlap.

    `under`: it moves while so many steps after it run: executes and copies, of which none touches what it writes, nor writes what it
    reads. An engine may then move the data at any time from its own place to the end of these steps.
    """

    name = "poplar.copy"
    T: ClassVar = VarConstraint("T", base(TensorType))
    src = operand_def(T)
    dst = operand_def(T)
    under = opt_prop_def(IntegerAttr[I64])
    assembly_format = "$src `to` $dst (`under` $under^)? attr-dict `:` type($src)"

    def __init__(self, src: SSAValue, dst: SSAValue):
        super().__init__(operands=[src, dst])

    def verify_(self) -> None:
        if why := unwritable(self.dst, copied=True):
            raise VerifyException(f"the destination {why} may not be written")
        if root_of(self.src) is root_of(self.dst) and not disjoint(view_of(self.src), view_of(self.dst)):
            raise VerifyException("source and destination overlap")
        if self.under is not None:
            self._check_under(self.under.value.data)

    def steps_under(self) -> list[Operation]:
        """Lists the steps that run while the data moves; fewer than `under` if the block ends."""
        steps: list[Operation] = []
        following = self.next_op
        while following is not None and self.under is not None and len(steps) < self.under.value.data:
            if not isinstance(following, StorageOp | ViewOp):
                steps.append(following)
            following = following.next_op
        return steps

    def _check_under(self, count: int) -> None:
        steps = self.steps_under()
        if count < 1 or len(steps) != count or not all(isinstance(step, ExecuteOp | CopyOp) for step in steps):
            raise VerifyException(f"under = {count}; so many executes or copies follow it, at least 1")
        source, destination = root_of(self.src), root_of(self.dst)
        for step in steps:
            families = step.families() if isinstance(step, ExecuteOp) else []
            written = [v for family in families for _, v in family.written()] if families else list(step.operands[1:])
            touched = [v for family in families for v in family.views] if families else list(step.operands)
            if any(root_of(v) is destination for v in touched) or any(root_of(v) is source for v in written):
                raise VerifyException(f"under = {count}; a step among these touches what the copy writes, or writes what it reads")
