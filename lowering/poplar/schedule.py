"""The place up to which loads of a mesh may move, and the cycles of them that the steps there do not hide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects.poplar import CopyOp, ExecuteOp
from populus.dialects.poplar.memory import storage_of
from populus.dialects.poplar.target import Target
from populus.runtime.memory import Tenant
from populus.runtime.profile import ProfileWalk


@dataclass(frozen=True)
class Arrival:
    """A copy from outside, and the variable that it fills with its live range."""

    copy: CopyOp
    tenant: Tenant


@dataclass(frozen=True)
class Ahead:
    """A load that moves up: the first and the last step that it then moves under."""

    copy: CopyOp
    first: Operation
    last: Operation


class Schedule:
    """The steps of a program on a mesh. `steps`: in order, calls expanded and loops once."""

    def __init__(self, steps: Sequence[Operation], target: Target):
        self.steps = steps
        self.ahead = target.mesh is not None and target.mesh.buffers > 1
        self._walk = ProfileWalk(target)
        self._computing = [self._hides(op) for op in steps]

    def _hides(self, op: Operation) -> int:
        """Gives the cycles of a step under which a load may move."""
        if not isinstance(op, ExecuteOp):
            return 0
        if op not in self._walk.executes:
            self._walk.executes[op] = self._walk.execute(op, 1)
        step = self._walk.executes[op]
        return step.compute - step.hidden

    def moved(self, loads: Iterable[Arrival], bytes: NDArray[np.int64], limit: int) -> tuple[int, list[Ahead], list[Tenant]]:
        """Moves loads up, each until the steps hide it, at most to where the load before begins.

        `bytes`: of each step, with all that stays on the tiles; with the loads they stay within `limit`. Returns the cycles that nothing
        hides, the loads that move, and the variables of all with their live ranges then.
        """
        there, bytes, left = {load.tenant.first: load for load in loads}, bytes.copy(), list(self._computing)
        found: list[Ahead] = []
        variables: list[Tenant] = []
        total = last = 0  # `last`: the first step that a load may move under
        for i, op in enumerate(self.steps):
            if i in there:
                tenant, begin = there[i].tenant, i
                exposed, free = self._walk.copy(there[i].copy, 1).exchange * len(tenant.spans), 0
                if self.ahead and len(tenant.spans) == 1:
                    while begin > last and free < exposed and self._may(begin - 1, op) and bytes[begin - 1] + tenant.largest <= limit:
                        begin -= 1
                        free += left[begin]
                under = [k for k in range(begin, i) if left[k]]
                last, total = i + 1, total + exposed
                if under:
                    last = under[0]
                    bytes[last:i] += tenant.largest
                    tenant = replace(tenant, spans=((last, tenant.last),))
                    found.append(Ahead(there[i].copy, self.steps[last], self.steps[under[-1]]))
                    for k in under:
                        hidden = min(exposed, left[k])
                        exposed, left[k], total = exposed - hidden, left[k] - hidden, total - hidden
                variables.append(tenant)
            elif not isinstance(op, ExecuteOp | CopyOp) or (isinstance(op, CopyOp) and storage_of(op.dst).outside is not None):
                last = i + 1
        return total, found, variables

    def _may(self, i: int, load: Operation) -> bool:
        """Tells whether a load may move under a step: one of its block."""
        return self.steps[i].parent is load.parent
