"""`poplar.task`: families that one launch may compute without storing what is between them, and the rules for that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, region_def, traits_def
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import VarOp, ViewOp, storage_of, type_of, view_of
from populus.dialects.poplar.overlap import covers, disjoint, same_elements
from populus.dialects.poplar.partition import Access
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import PlainErrors

WHOLE_SUMS = ("winograd", "winograd_output")  # codelets that leave sums, never in slices, beside the products


@dataclass(frozen=True)
class Chain:
    """A product, perhaps the sum of its slices, and perhaps a map that reads the sums.

    `total`: adds the partial results of a product that is cut in slices of what it sums over. `ending`: the map.
    """

    product: FamilyOp
    total: FamilyOp | None = None
    ending: FamilyOp | None = None

    @staticmethod
    def of(families: Sequence[FamilyOp]) -> Chain:
        """Reads a chain from its families, in order. Raises VerifyException for families that are none."""
        rest = list(families[1:])
        total = rest.pop(0) if rest and rest[0].codelet.data == "reduce" else None
        ending = rest.pop(0) if rest and rest[0].codelet.data == "map" else None
        if rest or len(families) < 2:
            found = ", ".join(f"@{f.codelet.data}" for f in families) or "none"
            raise VerifyException(f"a task is a product, the sum of its slices, and a map of the sums; at least two of them, not {found}")
        return Chain(families[0], total, ending)

    @property
    def families(self) -> list[FamilyOp]:
        """The families, in order."""
        return [f for f in (self.product, self.total, self.ending) if f is not None]

    @cached_property
    def sums(self) -> SSAValue:
        """The view that the sums are written to."""
        return self.made if self.total is None else result_of(self.total)

    @cached_property
    def made(self) -> SSAValue:
        """The view that the product writes."""
        return result_of(self.product)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The axes whose parts are the slices, in the order of the dimensions that number them."""
        return tuple(a.terms[0][0] for a in self._out if a.part)

    @cached_property
    def _out(self) -> tuple[Access, ...]:
        return next(f.access for f, _ in self.product.written())

    def lost(self) -> list[SSAValue]:
        """Lists the views of results that need not be stored: those that the next family reads, and does not overwrite."""
        found = [] if self.total is None else [self.made]
        if self.ending is not None and not shows(result_of(self.ending), self.sums):
            found.append(self.sums)
        return found

    # -- the sums and the map in the dimensions of the product

    def sums_seen(self) -> View | None:
        """Gives the sums in the dimensions of the product's result, without those of slices; None if strides do not allow it."""
        made = view_of(self.made)
        if self.total is None:
            return made
        shape, strides = made.shape[len(self.parts) :], made.strides[len(self.parts) :]
        order = memory_order(strides)
        seen = view_of(self.sums).reshape([shape[d] for d in order])
        return None if seen is None else seen.dim_shuffle([order.index(d) for d in range(len(order))])

    def ending_seen(self) -> list[View] | None:
        """Gives the views of the map's operands in the dimensions of `sums_seen`; None if strides do not allow it.

        All sums have to be contiguous memory.
        """
        assert self.ending is not None, self
        own = [view_of(v) for v in self.ending.views]
        read = next(view for view, v in zip(own, self.ending.views) if shows(v, self.sums))
        if (sums := self.sums_seen()) is None or sums.offset != read.offset or math.prod(sums.shape) != math.prod(read.shape):
            return None
        order, reading = memory_order(sums.strides), memory_order(read.strides)
        there = sums.dim_shuffle(order)
        if not (there.is_contiguous and read.dim_shuffle(reading).is_contiguous):
            return None
        seen = [view.broadcast(read.shape).dim_shuffle(reading).reshape(there.shape) for view in own]
        back = [order.index(d) for d in range(len(order))]
        found = [view.dim_shuffle(back) for view in seen if view is not None]
        return found if len(found) == len(own) else None

    # -- the rules

    def problem(self) -> str | None:
        """Returns the reason why one launch may not compute the families; None if it may.

        It computes each element in one go: the sums of its products, the map of them. So a later family reads just the elements that
        the one before it wrote, each where that was written, and none writes what the product reads.
        """
        return self.sums_problem() or self.ending_problem()

    def sums_problem(self) -> str | None:
        """Returns the reason of `problem` that is in the product and the sum of its slices."""
        product = self.product
        if not (product.declaration.is_product or product.codelet.data in WHOLE_SUMS) or "partials" in product.params.data:
            return f"@{product.codelet.data} leaves no sums that a launch could go on with"
        if not covers(product.space, self._out, view_of(self.made).shape):
            return "the product leaves elements of its view out"
        if self.total is not None and (why := self._not_total(self.total)):
            return why
        if self.total is None and (self.parts or product.space.cut & product.contracted):
            return "the sums of the product are in slices, which nothing adds"
        return None if self.total is None else self._overwrites(self.total)

    def ending_problem(self) -> str | None:
        """Returns the reason of `problem` that is in the map."""
        return None if self.ending is None else self._not_ending(self.ending) or self._overwrites(self.ending)

    def _overwrites(self, family: FamilyOp) -> str | None:
        """Returns the reason why a later family may not write its result while the product reads; None if it may."""
        written = result_of(family)
        if any(_meet(v, written) for f, v in self.product.connections() if f.kind == "in"):
            return f"@{family.codelet.data} writes what the product reads"
        return None

    def _not_total(self, total: FamilyOp) -> str | None:
        """Returns the reason why a family is not the sum of the product's slices; None if it is."""
        product, parts = self.product, self.parts
        if not parts or not product.space.cut & product.contracted <= set(parts):
            return "the product has no slices, or not all in dimensions of its result"
        if total.params.data.get("op") != StringAttr("add") or total.space.cut & total.contracted:
            return "the slices are not added, whole"
        made, ((x, source),), ((out, sums),) = self.made, [(f, v) for f, v in total.connections() if f.kind == "in"], total.written()
        if type_of(sums).element != type_of(made).element:
            return "the sum has another type than the slices"
        lead, at = len(parts), view_of(made)
        ordered = at.dim_shuffle([*range(lead), *(lead + d for d in memory_order(at.strides[lead:]))])
        read = view_of(source)
        if storage_of(source) is not storage_of(made) or not ordered.is_whole or not read.is_whole or any(a.part for a in self._out[lead:]):
            return "the sum reads other elements than the product writes"
        axes, kept = [axis_of(a) for a in x.access], [axis_of(a) for a in out.access]
        summed = next((d for d, a in enumerate(axes) if a not in total.contracted), len(axes))
        if None in axes or axes[summed:] != kept or math.prod(read.shape[:summed]) != math.prod(at.shape[:lead]):
            return "the sum does not add the slices, each element by itself, in order"
        if not covers(total.space, x.access, read.shape) or not covers(total.space, out.access, view_of(sums).shape):
            return "the sum leaves elements out"
        return None

    def _not_ending(self, ending: FamilyOp) -> str | None:
        """Returns the reason why a map is not of each sum, where that is written; None if it is."""
        ((out, y),) = ending.written()
        shape, sums = view_of(y).shape, view_of(self.sums)
        if not covers(ending.space, out.access, shape):
            return "the map leaves elements of its view out"
        places = 0
        for field, value in ending.connections():
            if field.kind == "out":
                continue
            view = view_of(value)
            aligned = list(zip(out.access[len(shape) - len(view.shape) :], shape[len(shape) - len(view.shape) :]))
            if shows(value, self.sums):
                places += 1
                if field.access != out.access or view.shape != shape or math.prod(shape) != math.prod(sums.shape):
                    return f"{field.name} has sums in other places than the map's result"
            elif storage_of(value) is storage_of(self.sums) and not disjoint(view, sums):
                return f"{field.name} has some of the sums in another place"
            elif any(m != 1 and (a, m) != (b, n) for a, m, (b, n) in zip(field.access, view.shape, aligned)):
                return f"{field.name} is neither seen whole nor one element along each dimension"
        if places != 1:
            return f"{places} fields of the map read the sums, not one"
        if _meet(y, self.sums) and not shows(y, self.sums):
            return "the map writes over some sums, and not each over its own"
        return None

    def touched_elsewhere(self) -> str | None:
        """Returns which op, other than its writer and reader, touches a result that is not stored; None if there is none."""
        for value, pair in zip(self.lost(), [self.families[i : i + 2] for i in range(2)] if self.total else [self.families]):
            storage = storage_of(value)
            if not isinstance(storage, VarOp):
                return f"'{storage.label.data}' is not stored, but no variable"
            if (other := next((op for op in users_of(storage.result) if op not in pair), None)) is not None:
                return f"'{storage.label.data}' is not stored, but {other.name} touches it too"
        return None


@irdl_op_definition
class TaskOp(PlainErrors, IRDLOperation):
    """Executes that run in order, and whose families one launch may compute: a product, perhaps the sum of its slices, a map.

        poplar.task "conv1" {
          poplar.execute "conv1" {
            poplar.family @conv ... out y = %c[b, oc, o0, o1] : ...
            poplar.family @map ... in x1 = %c[d0, d1, d2, d3] : ... out y = %y[d0, d1, d2, d3] : ...
          }
        }

    All variables of a task are live from its first step to its last. A result that a later family of it reads, and does not overwrite, is
    undefined after the task. The verifier refuses a task in which a family reads another element than the one that was just
    computed, writes what the product reads, or whose undefined results another step touches.
    """

    name = "poplar.task"
    label = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$label $body attr-dict"

    def __init__(self, label: str, body: Region):
        self.begin((), (), {"label": StringAttr(label)}, [body])

    def families(self) -> list[FamilyOp]:
        """Lists the families, in order."""
        return [family for step in self.body.block.ops if isinstance(step, ExecuteOp) for family in step.families()]

    @property
    def chain(self) -> Chain:
        """The families as a chain."""
        return Chain.of(self.families())

    def verify_(self) -> None:
        if odd := next((op for op in self.body.block.ops if not isinstance(op, ExecuteOp)), None):
            raise VerifyException(f"a task holds executes, not {odd.name}")
        chain = self.chain
        if why := chain.problem() or chain.touched_elsewhere():
            raise VerifyException(why)


def result_of(family: FamilyOp) -> SSAValue:
    """Gives the view that a family writes."""
    ((_, value),) = family.written()
    return value


def shows(value: SSAValue, written: SSAValue) -> bool:
    """Tells whether a view shows just the elements of another one, in any order."""
    return storage_of(value) is storage_of(written) and same_elements(view_of(value), view_of(written))


def users_of(value: SSAValue) -> Iterator[Operation]:
    """Lists the ops that touch a variable, through any view."""
    for use in value.uses:
        if isinstance(use.operation, ViewOp):
            yield from users_of(use.operation.y)
        else:
            yield use.operation


def memory_order(strides: Sequence[int]) -> list[int]:
    """Lists dimensions as memory has them."""
    return sorted(range(len(strides)), key=lambda d: -strides[d])


def axis_of(access: Access) -> str | None:
    """Returns the axis that an access names alone; None if it is another kind of access."""
    alone = len(access.terms) == 1 and not access.part and not access.whole and access.offset == 0
    return access.terms[0][0] if alone and access.terms[0][1] == 1 else None


def _meet(a: SSAValue, b: SSAValue) -> bool:
    """Tells whether two views may have an element in common."""
    return storage_of(a) is storage_of(b) and not disjoint(view_of(a), view_of(b))
