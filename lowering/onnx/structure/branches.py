"""Branches: one with a known condition takes the place of its If; others are typed and kept."""

from __future__ import annotations

from xdsl.ir import Attribute, Block, Region, SSAValue

from populus.dialects.onnx.structure import YieldOp
from populus.dialects.onnx.types import as_tensor
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.lowering.onnx.refused_branches import either, refusal
from populus.lowering.onnx.shape_inputs import asked_for
from populus.lowering.onnx.structure.resolution import Resolution, Rules


def _if(p: Resolution) -> bool:
    """Replaces an If by its branch if the condition is known; else types both branches."""
    condition = p.known(0)
    if condition is None:
        return _kept_if(p)
    taken = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    for result, value in zip(list(p.op.results), p.inline(p.op.region(taken), [])):
        p.replace(result, value)
    return True


def _kept_if(p: Resolution) -> bool:
    """Types both branches of an If. One that cannot be typed is kept as one that refuses the run when it is taken.

    Their results have equal types, or sizes that differ along one axis; then the result has the larger size and a valid
    length. Raises PopulusError otherwise, and if neither branch can be typed.
    """
    branches = _typed_branches(p)
    then, other = (list(_yielded(region)) for region in branches.values())
    if len(then) != len(other):
        raise PopulusError(f"its branches give {len(then)} and {len(other)} results")
    types: list[Attribute] = []
    bounded: dict[int, int] = {}
    for i, (a, b) in enumerate(zip(then, other)):
        valid = p.walk.valid
        axes = _differing(a.type, b.type)
        parts = [v for v in (a, b) if v in valid.axes]
        if parts and (axes or valid.of(a) != valid.of(b)):
            axes |= {d for v in parts for d in valid.sized(v)}
        if len(axes) > 1 or -1 in axes:
            raise PopulusError(
                f"its branches give {a.type} and {b.type}; which one is taken is decided when the model runs, "
                f"so they have to agree but for the size of one dimension{asked_for([v for v in p.inputs if v is not None])}"
            )
        shape = [max(sizes) for sizes in zip(shape_of(a.type), shape_of(b.type))] if axes else []
        types.append(tensor(shape, element_type_of(a.type)) if axes else a.type)
        if axes:
            bounded[i] = next(iter(axes))
    p.keep(branches, types, bounded)
    return False


def _typed_branches(p: Resolution) -> dict[str, Region]:
    """Types the branches of an If, by name. Raises PopulusError if neither can be typed."""
    branches, failed = either(lambda name: p.typed(p.op.region(name), [], {}), p.walk.valid.has_ranges)
    if failed:
        (other,) = branches.values()
        call = refusal(p.op, failed, [v.type for v in _yielded(other)])
        branches[next(iter(failed))] = Region(Block([call, YieldOp(*call.results)]))
    return branches


def _differing(a: Attribute, b: Attribute) -> set[int]:
    """Lists the dimensions in which two types differ; -1 stands for a rank or element type."""
    if a == b:
        return set()
    first, second = as_tensor(a), as_tensor(b)
    if first is None or second is None or first.element_type != second.element_type or first.get_num_dims() != second.get_num_dims():
        return {-1}
    return {d for d, (m, n) in enumerate(zip(first.get_shape(), second.get_shape())) if m != n}


def _yielded(region: Region) -> list[SSAValue]:
    """Lists the values that a branch yields."""
    end = region.block.last_op
    assert isinstance(end, YieldOp), end
    return list(end.operands)


RULES: Rules = {"If": _if}
