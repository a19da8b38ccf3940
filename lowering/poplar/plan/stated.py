"""Plans of contractions as text: written, read back by name or pattern, and refused with the reason where they cannot be.

conv1: out=16 windows=7x4 resident=yes      # one line a contraction; what is not stated is 1, or no
block*: windows=14x1 steps=rows:2           # the first line that matches a name holds
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from urllib.parse import quote, unquote

import numpy as np
from xdsl.ir import Attribute, Operation

from populus.dialects.poplar.target import Target
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, names_of
from populus.dialects.support.errors import printable
from populus.lowering.poplar.plan.alternatives import Problem
from populus.lowering.poplar.plan.contraction import Candidates, Contraction, Option, Plan, grains_of

PARTS = ("groups", "batch", "out", "in", "windows", "kernel")
FLAGS = ("swapped", "resident", "tiled")
STEPS = ("rows", "channels")
FIELDS = (*PARTS, *FLAGS, "steps")
LONGEST = 1 << 20  # characters of all plans


@dataclass(frozen=True)
class Stated:
    """The plan of one contraction, or of those whose names match a pattern.

    `parts`: of groups, batch, channels out and in, each spatial axis, and the first kernel axis. `windows`: () stands for whole axes.
    `steps`: the cut, rows or channels, and the number of steps; None for one.
    """

    name: str
    parts: Mapping[str, int]
    windows: tuple[int, ...] = ()
    swapped: bool = False
    resident: bool = False
    tiled: bool = False
    steps: tuple[str, int] | None = None

    def __str__(self) -> str:
        found = [f"{name}={n}" for name in PARTS if (n := self.parts.get(name, 1)) > 1]
        if any(n > 1 for n in self.windows):
            found.append(f"windows={'x'.join(map(str, self.windows))}")
        found += [f"{name}=yes" for name in FLAGS if getattr(self, name)]
        if self.steps is not None:
            found.append(f"steps={self.steps[0]}:{self.steps[1]}")
        return " ".join((f"{self.name}:", *found))

    @property
    def choices(self) -> str:
        """The text without the name."""
        return str(replace(self, name=""))

    def of(self, problem: str) -> PopulusError:
        """Makes the error of a plan that cannot be."""
        return PopulusError(f"plan of '{printable(unquote(self.name))}': {problem}")


def parse(text: str, source: str = "plan") -> tuple[Stated, ...]:
    """Reads plans, one on a line. Raises PopulusError, with the line, for one that is none, and for a name that is there twice."""
    if len(text) > LONGEST:
        raise PopulusError(f"{source}: {len(text):,} characters; plans have at most {LONGEST:,}")
    found: dict[str, Stated] = {}
    for i, line in enumerate(text.splitlines()):
        words = line.partition("#")[0].split()
        if words:
            made = _line(words, f"{source}:{i + 1}")
            if made.name in found:
                raise PopulusError(f"{source}:{i + 1}: '{printable(made.name)}' has a plan already; the first line that matches holds")
            found[made.name] = made
    return tuple(found.values())


def _line(words: Sequence[str], at: str) -> Stated:
    first, *fields = words
    if not first.endswith(":") or len(first) == 1:
        raise PopulusError(f"{at}: '{printable(first)}'; expected NAME: and fields, such as conv1: out=4 windows=7x7")
    given: dict[str, str] = {}
    for text in fields:
        name, equals, value = text.partition("=")
        if not equals or name not in FIELDS:
            raise PopulusError(f"{at}: no field '{printable(text)}'{did_you_mean(name, FIELDS)}")
        if name in given:
            raise PopulusError(f"{at}: {name} is there twice")
        given[name] = value
    flags = {name: _flag(given.get(name, "no"), name, at) for name in FLAGS}
    windows = tuple(_number(n, "windows", at) for n in given["windows"].split("x")) if "windows" in given else ()
    parts = {name: _number(given[name], name, at) for name in PARTS if name in given and name != "windows"}
    return Stated(first[:-1], parts, windows, **flags, steps=_steps(given.get("steps"), at))


def _number(text: str, name: str, at: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        example = "of each axis, such as windows=7x4" if name == "windows" else f"such as {name}=4"
        raise PopulusError(f"{at}: {name}={printable(text)}; expected a number of parts from 1 on, {example}")
    return int(text)


def _flag(text: str, name: str, at: str) -> bool:
    if text not in ("yes", "no"):
        raise PopulusError(f"{at}: {name}={printable(text)}; expected yes or no")
    return text == "yes"


def _steps(text: str | None, at: str) -> tuple[str, int] | None:
    if text is None:
        return None
    cut, _, number = text.partition(":")
    if cut not in STEPS or not re.fullmatch("[0-9]{1,9}", number) or int(number) < 2:
        raise PopulusError(f"{at}: steps={printable(text)}; expected rows:N or channels:N with N from 2 on")
    return cut, int(number)


def as_option(plans: Iterable[Stated]) -> str:
    """Formats plans as the option `plans` of `poplin-to-poplar`: in one line, with `;` between two."""
    return "; ".join(map(str, plans))


def of_option(text: str | None) -> tuple[Stated, ...]:
    """Reads the option `plans`. Raises PopulusError as `parse` does."""
    return parse(text.replace(";", "\n"), "plans") if text else ()


@dataclass
class Names:
    """The names of a graph's contractions, and the plans that are stated for them.

    A contraction has the name of its node. The second of a node has `@2` after it, and the third step of the second `@2.3`.
    """

    plans: Sequence[Stated]
    names: dict[Operation, tuple[str, ...]] = field(default_factory=dict[Operation, "tuple[str, ...]"])
    steps: dict[str, tuple[str, int]] = field(default_factory=dict[str, "tuple[str, int]"])

    @staticmethod
    def of(contractions: Iterable[Operation], plans: Sequence[Stated]) -> Names:
        """Names contractions, in order."""
        made, count = Names(plans), dict[str, int]()
        for op in contractions:
            own = quote((names_of(op.location) or [""])[0] or op.name.removeprefix("poplin."), safe="/.:-_~()+,=$!&'|<>")
            count[own] = number = count.get(own, 0) + 1
            made.names[op] = (own if number == 1 else f"{own}@{number}",)
        return made

    def check(self) -> None:
        """Raises PopulusError for a plan that is for none of the contractions, nor for a step of one."""
        every = dict.fromkeys(name for names in self.names.values() for name in names)
        for plan in self.plans:
            if not any(_matches(plan, name) for name in every):
                raise plan.of(f"no product or convolution has this name{did_you_mean(plan.name, every)}")

    def in_steps(self, op: Operation, cut: str, number: int, steps: Sequence[Operation]) -> None:
        """Names the steps that replace a contraction: `number` of them over a cut, of which the last may have nothing left."""
        (name,) = self.names.pop(op)
        self.steps[name] = cut, number
        for i, step in enumerate(steps):
            self.names[step] = (name, f"{name if '@' in name else f'{name}@1'}.{i + 1}")

    def stated(self, op: Operation) -> Stated | None:
        """Returns the plan that is stated for a contraction or a step of one, with its name; None if there is none."""
        names = self.names.get(op, ())
        return next((replace(plan, name=names[-1]) for plan in self.plans if any(_matches(plan, name) for name in names)), None)


def _matches(plan: Stated, name: str) -> bool:
    return plan.name == name or fnmatchcase(name, plan.name)


def option_of(stated: Stated, shape: Contraction, element: Attribute, target: Target, traffic: float) -> Option:
    """Computes what a stated plan costs. Raises PopulusError with the reason if it cannot be: parts, tiles, memory, or the units."""
    windows = stated.windows or tuple(1 for _ in shape.windows)
    if len(windows) != len(shape.windows):
        raise stated.of(f"windows={'x'.join(map(str, windows))} for {len(shape.windows)} axes; state the parts of each")
    outs, ins = grains_of(shape, element, target)
    loaded = math.prod(shape.kernel) == 1 and target.has_calls
    if stated.swapped and not loaded:
        raise stated.of("swapped is for products on machines whose units are loaded")
    outs = min(target.grain(element), outs) if stated.swapped and stated.resident else outs
    given = [stated.parts.get(name, 1) for name in ("groups", "batch", "out", "in")]
    parts = [*given, *windows, stated.parts.get("kernel", 1)]
    names = ("groups", "batch", "out", "in", *("windows" for _ in windows), "kernel")
    sizes = (shape.groups, shape.batch, shape.out_channels, shape.in_channels, *shape.windows, shape.kernel[0])
    for name, n, size in zip(names, parts, sizes, strict=True):
        grain = {"out": outs, "in": ins}.get(name, 1)
        if n > (most := max(-(-size // grain), 1)):
            by = f" in grains of {grain}" if grain > 1 else ""
            raise stated.of(f"{name}={n}; {size}{by} are at most {most} part{'s' if most > 1 else ''}")
    if (used := math.prod(parts)) > target.tiles:
        raise stated.of(f"{used:,} parts in all, and {target.name} has {target.tiles:,} tiles")
    one = Candidates(shape, element, target, None, traffic, [np.array([n]) for n in parts])
    if (needed := int(one.temporary_bytes()[0])) > target.room:
        raise stated.of(f"a tile needs {needed:,} bytes for operands and partial results, and has {int(target.room):,}; cut more")
    groups, batch, out, within, *_ = parts
    plan = Plan(groups, batch, out, within, windows, parts[-1], outs, ins, stated.swapped)
    resident = int(one.bytes()[1][0]) if stated.resident else 0
    cycles, working = float(one.cycles(stated.resident)[0]), int(one.working_bytes(stated.resident)[0])
    return Option(cycles, resident, plan, working)


def stated_of(name: str, plan: Plan, resident: bool, tiled: bool, steps: tuple[str, int] | None) -> Stated:
    """States a plan that was chosen."""
    parts = {"groups": plan.groups, "batch": plan.batch, "out": plan.out_channels, "in": plan.in_channels, "kernel": plan.kernel}
    return Stated(name, parts, plan.windows, plan.swapped, resident, tiled, steps)


@dataclass
class Record:
    """The plans that a run of `poplin-to-poplar` chose, in order: of each contraction its steps, with a remark.

    `problems`: the contractions that are direct and run in one step, by name.
    """

    chosen: list[tuple[tuple[str, ...], Stated, str]] = field(default_factory=list["tuple[tuple[str, ...], Stated, str]"])
    problems: dict[str, Problem] = field(default_factory=dict[str, "Problem"])

    def text(self) -> str:
        """Formats the plans; steps of a contraction have lines of their own only where they differ from the first."""
        lines, first = list[str](), dict[str, str]()
        for names, stated, remark in self.chosen:
            base = names[0]
            if base not in first:
                first[base] = stated.choices
                lines += [f"# {remark}", str(replace(stated, name=base))]
            elif stated.choices != first[base]:
                own = replace(stated, name=names[-1], steps=None)
                lines.insert(0, str(own))  # before the line of all steps, which matches too
        return "".join(f"{line}\n" for line in lines)


RECORD: ContextVar[Record | None] = ContextVar("plans that are recorded", default=None)


@contextmanager
def recording() -> Generator[Record, None, None]:
    """Records the plans that are chosen inside."""
    token = RECORD.set(made := Record())
    try:
        yield made
    finally:
        RECORD.reset(token)
