"""Compute sets: `execute`, the families of vertices in it, and `copy`; with the static race and bounds rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import IRDLOperation, VarConstraint, base, irdl_op_definition, operand_def, prop_def, region_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from populus.dialects.diagnostics import did_you_mean
from populus.dialects.poplar.codelets import CODELETS, Codelet
from populus.dialects.poplar.memory import ConstOp, root_of, view_of
from populus.dialects.poplar.partition import Domain, along, bounds_problem, race
from populus.dialects.poplar.types import KINDS, DomainAttr, Field, FieldsAttr, TensorType, parse_access, parse_domain
from populus.dialects.poplar.view import View
from populus.dialects.shapes import text


@irdl_op_definition
class FamilyOp(IRDLOperation):
    """All vertices of one codelet in a compute set: an iteration space cut into parts, one vertex per part and tile.

        poplar.family @conv {strides = array<i64: 1, 1>} for (b = 1, oc = 64 in 8 by 8, ...) on (oc, oh)
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
        super().__init__(
            operands=[[view for _, view in fields]],
            properties={
                "codelet": StringAttr(codelet),
                "params": DictionaryAttr(params or {}),
                "domain": DomainAttr(domain),
                "fields": FieldsAttr(tuple(field for field, _ in fields)),
            },
        )

    @property
    def space(self) -> Domain:
        return self.domain.data

    @property
    def declaration(self) -> Codelet:
        return CODELETS[self.codelet.data]

    @property
    def contracted(self) -> frozenset[str]:
        """The axes over which each vertex sums."""
        return frozenset(a for a, _ in self.space.axes if self.declaration.is_contracted(a))

    def connections(self) -> Iterable[tuple[Field, SSAValue]]:
        return zip(self.fields.data, self.views, strict=True)

    def written(self) -> Iterable[tuple[Field, SSAValue]]:
        return ((f, v) for f, v in self.connections() if f.kind != "in")

    # -- verification

    def verify_(self) -> None:
        if self.codelet.data not in CODELETS:
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
        if [f.name for f in inputs] != expected or len(outputs) != 1 or (outputs[0].kind == "out" and outputs[0].name != codelet.output):
            raise VerifyException(f"@{codelet.name} has fields {', '.join((*codelet.inputs, codelet.output))}, not {', '.join(names)}")
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
        if not (self.declaration.padded and field.kind == "in") and (why := bounds_problem(self.space, field.access, view.shape)):
            raise VerifyException(f"{field.name}: {why}")
        if field.kind != "in":
            if isinstance(root_of(value).owner, ConstOp):
                raise VerifyException(f"{field.name} is a constant, which may not be written")
            if view.repeats:
                raise VerifyException(f"{field.name} shows an element more than once, so it may not be written")
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


@irdl_op_definition
class ExecuteOp(IRDLOperation):
    """One superstep: exchange in, then the vertices of all its families at once, then exchange out.

    Every vertex reads what was there before. Nothing that one family writes may another read or write.
    """

    name = "poplar.execute"
    label = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$label $body attr-dict"

    def __init__(self, label: str, families: Sequence[FamilyOp]):
        super().__init__(properties={"label": StringAttr(label)}, regions=[Region(Block(families))])

    def families(self) -> list[FamilyOp]:
        return [op for op in self.body.block.ops if isinstance(op, FamilyOp)]

    def verify_(self) -> None:
        families = self.families()
        if len(families) != len(self.body.block.ops) or not families:
            raise VerifyException("an execute holds families, and at least one")
        if len(families) < 2:
            return
        touched = [(i, f, v, view_of(v)) for i, family in enumerate(families) for f, v in family.connections()]
        for i, out, written, to in touched:
            if out.kind == "in":
                continue
            for j, field, value, source in touched:
                if i != j and root_of(value) is root_of(written) and not disjoint(to, source):
                    raise VerifyException(
                        f"family {i} writes {out.name} of '{self.label.data}' while family {j} has it as {field.name}; they race"
                    )


@irdl_op_definition
class CopyOp(IRDLOperation):
    """Any static movement of data: element i of `src` becomes element i of `dst`. They may not overlap."""

    name = "poplar.copy"
    T: ClassVar = VarConstraint("T", base(TensorType))
    src = operand_def(T)
    dst = operand_def(T)
    assembly_format = "$src `to` $dst attr-dict `:` type($src)"

    def __init__(self, src: SSAValue, dst: SSAValue):
        super().__init__(operands=[src, dst])

    def verify_(self) -> None:
        to = view_of(self.dst)
        if isinstance(root_of(self.dst).owner, ConstOp):
            raise VerifyException("the destination is a constant, which may not be written")
        if to.repeats:
            raise VerifyException("the destination shows an element more than once, so it may not be written")
        if root_of(self.src) is root_of(self.dst) and not disjoint(view_of(self.src), to):
            raise VerifyException("source and destination overlap")


def disjoint(a: View, b: View) -> bool:
    """Whether two views of one variable share no element. Sufficient: compares bounding boxes, then residues of strides."""
    if 0 in a.shape or 0 in b.shape:
        return True
    first_a, end_a = _range(a)
    first_b, end_b = _range(b)
    if end_a <= first_b or end_b <= first_a:
        return True
    box_a, box_b = _box(a), _box(b)
    if box_a is None or box_b is None:
        return False
    return any(
        high_a < low_b or high_b < low_a or (step_a == step_b and step_a > 1 and low_a % step_a != low_b % step_b)
        for (low_a, high_a, step_a), (low_b, high_b, step_b) in zip(box_a, box_b)
    )


def _range(view: View) -> tuple[int, int]:
    reach = [s * (n - 1) for n, s in zip(view.shape, view.strides)]
    return view.offset + sum(min(r, 0) for r in reach), view.offset + sum(max(r, 0) for r in reach) + 1


def _box(view: View) -> list[tuple[int, int, int]] | None:
    """(lowest, highest index, step) in each dimension of the variable; None where a dimension of the view spans two of them."""
    access = view.through(tuple(along(f"i{d}") for d in range(len(view.shape))))
    if access is None:
        return None
    sizes = {f"i{d}": n for d, n in enumerate(view.shape)}
    box: list[tuple[int, int, int]] = []
    for a in access:
        high = a.offset + sum(c * (sizes[axis] - 1) for axis, c in a.terms)
        box.append((a.offset, high, a.terms[0][1] if len(a.terms) == 1 else 1))
    return box

