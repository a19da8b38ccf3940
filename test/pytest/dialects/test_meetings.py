"""The families of one step: their stages and their races against all pairs, and the count of pairs that are looked at."""

from __future__ import annotations

import random

import pytest
from xdsl.utils.exceptions import VerifyException

from populus.dialects.poplar import compute
from populus.dialects.poplar.compute import ExecuteOp, FamilyOp, Meetings
from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context

NAMES = "abcd"
VIEWS = ("{v}", "{v}_low", "{v}_high", "{v}_back")
HEAD = "\n".join(
    f'''%{v} = poplar.var "{v}" on [12 in 4] order [0] : !poplar.tensor<12xf32>
%{v}_low = poplar.slice %{v}[0:6] : !poplar.tensor<12xf32> -> !poplar.tensor<6xf32>
%{v}_high = poplar.slice %{v}[6:12] : !poplar.tensor<12xf32> -> !poplar.tensor<6xf32>
%{v}_back = poplar.slice %{v}[11:-1:-1] : !poplar.tensor<12xf32> -> !poplar.tensor<12xf32>'''
    for v in NAMES
)


def family(x: str, y: str, parts: int, n: int) -> str:
    """Writes a map from x to y, or one in place where both are one."""
    fields = f"in x1 = %{x}[d] : !poplar.tensor<{n}xf32>\n    out y = %{y}[d]" if x != y else f"inout x1 = %{x}[d]"
    return f"""  poplar.family @map {{expr = #expr.fn<mul(_1, 2.0)>}} for (d = {n} in {parts}) on (d)
    {fields} : !poplar.tensor<{n}xf32>
"""


def execute(families: list[str]) -> ExecuteOp:
    text = f'poplar.graph @main target <gc200, tiles = 4> {{\n{HEAD}\npoplar.execute "step" {{\n{"".join(families)}}}\n}}'
    [graph] = LocatingParser(context(), text, "program.mlir").parse_module().body.block.ops
    assert isinstance(graph, GraphOp)
    [step] = (op for op in graph.walk() if isinstance(op, ExecuteOp))
    return step


def pairs(families: list[FamilyOp]) -> list[dict[int, list[compute.Meeting]]]:
    """Lists what each family meets, each earlier one by itself."""
    return [{i: found[0] for i in range(j) if (found := Meetings([families[i]]).of(f))} for j, f in enumerate(families)]


def drawn(seed: int) -> ExecuteOp:
    rng = random.Random(seed)
    made: list[str] = []
    for _ in range(rng.randint(2, 7)):
        half = rng.random() < 0.2
        kinds = VIEWS[1:3] if half else (VIEWS[0],) * 15 + (VIEWS[3],)
        x, y = (rng.choice(kinds).format(v=v) for v in rng.sample(NAMES, 2))
        made.append(family(x, x if rng.random() < 0.7 else y, rng.choice((4,) * 9 + (2,)), 6 if half else 12))
    return execute(made)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_stages_and_races_are_those_of_all_pairs(first: int):
    races = 0
    for seed in range(first, first + 100):
        step = drawn(seed)
        met = pairs(step.families())
        if any(not m.on_one_tile for found in met for ms in found.values() for m in ms):
            races += 1
            with pytest.raises(VerifyException, match="they race"):
                step.verify_()
            continue
        step.verify_()
        depth: list[int] = []
        for found in met:
            depth.append(max((depth[i] + 1 for i in found), default=0))
        stages = [[f for f, d in zip(step.families(), depth) if d == level] for level in range(max(depth) + 1)]
        assert step.stages() == stages, seed
    assert 10 < races < 90, races


def test_a_writer_comes_after_all_readers_and_not_after_the_last_alone():
    step = execute([family(x, y, 4, 12) for x, y in ("ab", "ca", "cd", "cc")])  # the last meets a reader of stage 1, then one of stage 0
    step.verify_()
    first, second, third, last = step.families()
    assert step.stages() == [[first, third], [second], [last]]


def test_families_that_work_in_place_one_after_another_look_at_few_pairs(monkeypatch: pytest.MonkeyPatch):
    def pairs_each(n: int) -> float:
        step = execute([family("ab"[i % 2], "ab"[i % 2], 4, 12) for i in range(n)])
        seen: list[int] = []
        meeting = compute._meeting
        with monkeypatch.context() as patched:
            patched.setattr(compute, "_meeting", lambda *args: seen.append(1) or meeting(*args))
            step.stages()
        return len(seen) / n

    assert pairs_each(400) <= 3
    assert pairs_each(400) - pairs_each(100) < 0.1
