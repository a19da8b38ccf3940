"""make mutants: plants mistakes in `poplar-fuse`, one at a time, and tells what refuses its tasks: the verifier, a proof, or `strict`.

    python -m benchmarks.fusion_mistakes               # the table of docs/reliability.md
    python -m benchmarks.fusion_mistakes --only 7      # one of them, with each program and what is said of it

A mistake is another text in the source of the pass, `runtime/tasks.py`. The pass that it makes runs on small programs, each with a reason
for which families may not be joined, or not at each place. A column counts the programs that a net refuses; what the verifier refuses goes
no further. Exit status 1 if a mistake changes a program's results and nothing refuses it, if nothing is refused at all, or if the right
pass is. Needs `islpy`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.proof.equivalence import compare
from populus.proof.programs import execute
from populus.proof.report import REFUTED, Undecided
from populus.proof.terms import Terms
from populus.runtime import tasks
from populus.runtime.session import Session, graph_of

NETS = ("verifier", "proof", "strict")


@dataclass(frozen=True)
class Mistake:
    """A mistake: `old`, which stands once in the source of the pass, becomes `new`."""

    title: str
    old: str
    new: str


MISTAKES = (
    Mistake(
        "the map takes the product's place though a step between writes its operand",
        "if not any(touches(op, v) for op in between for v in others):",
        "if True:",
    ),
    Mistake(
        "the product takes the map's place though a step between writes what it reads",
        "return None if stays else",
        "return None if False else",
    ),
    Mistake(
        "any step between only reads",
        "return isinstance(op, FamilyOp) and all(storage_of(v) is not",
        "return True or all(storage_of(v) is not",
    ),
    Mistake(
        "the sum of slices overtakes steps that touch its result",
        "or any(touches(op, pair.sums) for op in between) else total",
        "else total",
    ),
    Mistake("steps with bodies touch nothing", "        bool(op.regions)\n        or not views", "        not views"),
    Mistake(
        "calls touch nothing but their arguments",
        "    return isinstance(op, CallOp) and storage.result in op.target().captured()",
        "    return False",
    ),
    Mistake(
        "views of one variable are taken for disjoint",
        "storage_of(v) is storage and not disjoint(view_of(v), view)",
        "storage_of(v) is storage and disjoint(view_of(v), view)",
    ),
    Mistake(
        "the product's first field alone is looked at",
        "read = [v for f, v in chain.product.connections() if",
        "read = [v for f, v in islice(chain.product.connections(), 1) if",
    ),
    Mistake("the map's first other operand alone is looked at", "for v in others):", "for v in others[:1]):"),
    Mistake(
        "what the map writes is not among its operands",
        "others = [v for v in ending.operands if",
        'others = [v for f, v in ending.connections() if f.kind == "in" and',
    ),
    Mistake("a map need not be of the sums", "chain.ending_problem() or chain.touched_elsewhere()", "chain.touched_elsewhere()"),
    Mistake("other readers of sums that are not stored", "chain.ending_problem() or chain.touched_elsewhere()", "chain.ending_problem()"),
    Mistake("a reduction need not add the slices", "if pair.sums_problem() or pair.touched_elsewhere()", "if pair.touched_elsewhere()"),
    Mistake("slices that nothing adds are sums", "if pair.total is None and pair.sums_problem():", "if False:"),
    Mistake(
        "the first map in the program, not the first reader",
        "if op.regions or _shown(op, storage) or captures(op, storage)",
        'if isinstance(op, FamilyOp) and op.codelet.data == "map"',
    ),
    Mistake(
        "readers in bodies and calls do not come first",
        "if op.regions or _shown(op, storage) or captures(op, storage)",
        "if _shown(op, storage)",
    ),
    Mistake("families after the place stay before it", "if before and after:", "if False:"),
    Mistake("families after the place run first", "self.insert(rest, task, at, True)", "self.insert(rest, task, at, False)"),
    Mistake("families before the place run after it", "self.insert(task, step, at, before)", "self.insert(task, step, at, False)"),
    Mistake("a step of which a family was taken is erased", "            if not left.families():\n", "            if True:\n"),
    Mistake("views stay behind", "and self.position.get(owner, -1) > at:", "and False:"),
    Mistake("only the first family is moved", "own = [family for _, family in group]", "own = [family for _, family in group][:1]"),
)


# -- programs

T = "!poplar.tensor<1x8x8xf32>"
P = "!poplar.tensor<2x1x8x8xf32>"


def product(a: str, c: str, b: str = "%w") -> str:
    """Writes a product."""
    return f"""poplar.family @matmul for (k = 8, g = 1, m = 8 in 4, n = 8) on (m)
      in a = {a}[g, m, k] : {T}
      in b = {b}[g, k, n] : {T}
      out c = {c}[g, m, n] : {T}\n"""


def mapped(function: str, inputs: str, y: str, index: str = "i, j, l") -> str:
    """Writes a map of variables of one letter. `index`: of its last input."""
    names = inputs.split()
    fields = "\n".join(f"      in x{i} = %{x}[{index if x is names[-1] else 'i, j, l'}] : {T}" for i, x in enumerate(names, 1))
    on = "on (j)" if index == "i, j, l" else ""
    return f"""poplar.family @map {{expr = #expr.fn<{function}>}} for (i = 1, j = 8{" in 4" if on else ""}, l = 8) {on}
{fields}
      out y = %{y}[i, j, l] : {T}\n"""


def step(name: str, *families: str) -> str:
    """Writes an execute."""
    return f'poplar.execute "{name}" {{\n{"".join(families)}}}\n'


SLICED = step(
    "p",
    f"""poplar.family @matmul for (k = 8 in 2, g = 1, m = 8 in 2, n = 8) on (k, m)
      in a = %a[g, m, k] : {T}
      in b = %w[g, k, n] : {T}
      out c = %p[at k, g, m, n] : {P}\n""",
)


def folded(op: str = "add") -> str:
    """Writes the sum of slices."""
    return f"""poplar.family @reduce {{op = "{op}"}} for (r = 2, i = 1, j = 8 in 4, l = 8) on (j)
      in x = %p[r, i, j, l] : {P}
      out y = %c[i, j, l] : {T}\n"""


MADE = step("c", product("%a", "%c"))
OTHER, ADDED, LESS = mapped("mul(_1, _1)", "u", "z"), mapped("add(_1, _2)", "c z", "y"), mapped("max(_1, 0.0)", "c", "y")
BELOW = f"""poplar.family @map {{expr = #expr.fn<max(_1, 0.0)>}} for (i = 1, j = 8 in 4, l = 8) on (j)
      inout x1 = %c[i, j, l] : {T}\n"""
EACH = f"""poplar.family @map {{expr = #expr.fn<max(_1, 0.0)>}} for (r = 2 in 2, i = 1, j = 8, l = 8) on (r)
      in x1 = %p[r, i, j, l] : {P}
      out y = %r[r, i, j, l] : {P}\n"""
REUSED = mapped("mul(_1, _1)", "u", "a")

PROGRAMS: dict[str, str] = {
    "alone": MADE + step("y", LESS),
    "operand written between": MADE + step("z", OTHER) + step("y", ADDED),
    "two operands, the second written between": MADE + step("z", OTHER) + step("y", mapped("add(add(_1, _2), _3)", "c w z", "y")),
    "both ends written between": MADE + step("z", OTHER) + step("a", REUSED) + step("y", ADDED),
    "weights written between": MADE + step("z", OTHER) + step("w", REUSED.replace("%a", "%w")) + step("y", ADDED),
    "an input copied over between": MADE + step("z", OTHER) + f"poplar.copy %u to %a : {T}\n" + step("y", ADDED),
    "its result read between": MADE + step("v", mapped("mul(_1, _1)", "y", "v")) + step("y", LESS),
    "a reader of sums": MADE + step("y", LESS) + step("v", mapped("mul(_1, _1)", "c", "v")),
    "an earlier reader": MADE + step("v", mapped("add(_1, _2)", "c z", "v")) + step("y", LESS),
    "another map first": MADE + step("v", mapped("mul(_1, _1)", "u", "v")) + step("y", LESS),
    "turned": MADE + step("y", mapped("max(_1, 0.0)", "t", "y")),
    "one row": MADE + step("y", mapped("add(_1, _2)", "c z", "y", "i, 3, l")),
    "over its input": MADE + step("a", mapped("max(_1, 0.0)", "c", "a")) + step("y", mapped("neg(_1)", "a", "y")),
    "a body between": MADE + "poplar.if %q : !poplar.tensor<i1> {\n" + step("z", OTHER) + "} else {}\n" + step("y", ADDED),
    "a call between": "poplar.func @f {\n" + step("z", OTHER) + "}\n" + MADE + "poplar.call @f\n" + step("y", ADDED),
    "a call of an argument between": 'poplar.func @f {\n%o = poplar.param out "o" : '
    + T
    + "\n"
    + step("z", OTHER)
    + step("o", mapped("neg(_1)", "u", "o"))
    + "}\n"
    + MADE
    + f"poplar.call @f(%v) : {T}\n"
    + step("y", ADDED),
    "a view between": MADE + f"%h = poplar.dim_shuffle %z [0, 2, 1] : {T} -> {T}\n" + step("y", mapped("add(_1, _2)", "c h", "y")),
    "a product of sums that are overwritten": MADE
    + step("d", product("%c", "%d"))
    + step("b", BELOW)
    + step("v", mapped("add(_1, _2)", "c d", "v")),
    "a body of sums that are overwritten": MADE
    + "poplar.if %q : !poplar.tensor<i1> {\n"
    + step("v", mapped("mul(_1, _1)", "c", "v"))
    + "} else {}\n"
    + step("b", BELOW)
    + step("y", mapped("neg(_1)", "c", "y")),
    "a call of sums that are overwritten": "poplar.func @f {\n"
    + step("v", mapped("mul(_1, _1)", "c", "v"))
    + "}\n"
    + MADE
    + "poplar.call @f\n"
    + step("b", BELOW)
    + step("y", mapped("neg(_1)", "c", "y")),
    "slices, a body that reads their sum's place": step("c0", mapped("neg(_1)", "u", "c"))
    + SLICED
    + "poplar.if %q : !poplar.tensor<i1> {\n"
    + step("v", mapped("neg(_1)", "c", "v"))
    + "} else {}\n"
    + step("c", folded()),
    "slices, mapped": SLICED + step("r", EACH),
    "a call reads": "poplar.func @f {\n" + step("v", mapped("mul(_1, _1)", "c", "v")) + "}\n" + MADE + "poplar.call @f\n" + step("y", LESS),
    "a body reads": MADE
    + "poplar.if %q : !poplar.tensor<i1> {\n"
    + step("v", mapped("mul(_1, _1)", "c", "v"))
    + "} else {}\n"
    + step("y", LESS),
    "one execute": step("all", OTHER, product("%z", "%c"), LESS, mapped("neg(_1)", "y", "v")),
    "one execute, crossed": step("all", product("%a", "%c"), OTHER, ADDED, mapped("neg(_1)", "y", "v")),
    "slices": SLICED + step("c", folded()) + step("y", ADDED),
    "slices, alone": SLICED + step("c", folded()) + step("y", mapped("tan(_1)", "c", "y")),
    "slices, the greatest": SLICED + step("c", folded("max")) + step("y", ADDED),
    "slices, their sum's place read before": step("c0", mapped("neg(_1)", "u", "c"))
    + SLICED
    + step("v", mapped("neg(_1)", "c", "v"))
    + step("c", folded()),
    "slices, read twice": SLICED + step("c", folded()) + step("y", LESS) + step("v", mapped("neg(_1)", "s", "v")),
    "slices, not added": SLICED + step("y", mapped("max(_1, 0.0)", "s", "y")),
    "two products": step("c", product("%a", "%c"), product("%u", "%d"))
    + step("z", OTHER)
    + step("y", ADDED)
    + step("a", mapped("max(_1, 0.0)", "d", "a")),
    "a chain": MADE + step("y", LESS) + step("d", product("%y", "%d")) + step("v", mapped("neg(_1)", "d", "v")),
    "a product of two maps": step("c", product("%a", "%c"), product("%u", "%d")) + step("y", mapped("add(_1, _2)", "c d", "y")),
}


def program(body: str) -> ModuleOp:
    """Makes a program: all variables are inputs but the product's sums and slices, and all that it writes are results."""
    lines = [f'%{n} = poplar.var "{n}" on [1, 8 in 4, 8] order [1] : {T}' for n in "awuvzycd"]
    lines += [f'%{n} = poplar.var "{n}" on [2 in 2, 1, 8, 8] order [0] : {P}' for n in "pr"]
    if "%s[" in body:
        lines.append(f"%first = poplar.slice %p[0:1, 0:1, 0:8, 0:8] : {P} -> !poplar.tensor<1x1x8x8xf32>")
        lines.append(f"%s = poplar.reshape %first : !poplar.tensor<1x1x8x8xf32> -> {T}")
    if "%t[" in body:
        lines.append(f"%t = poplar.dim_shuffle %c [0, 2, 1] : {T} -> {T}")
    if "%q" in body:
        lines += ['%q = poplar.var "q" : !poplar.tensor<i1>', 'poplar.stream_in "q" to %q : !poplar.tensor<i1>']
    lines += [f'poplar.stream_in "{n}" to %{n} : {T}' for n in "awuvzy"]
    ends = [f'poplar.stream_out %{n} to "{n}out" : {T}' for n in "avzyw"]
    ends += [f'poplar.stream_out %r to "rout" : {P}'] if "%r[" in body else []
    text = "poplar.graph @main target <host, tiles = 4> {\n" + "\n".join([*lines, body, *ends]) + "\n}"
    made = LocatingParser(context(), text, "fused.mlir").parse_module()
    verify(made)
    return made


# -- outcomes


def planted(mistake: Mistake | None) -> Callable[[GraphOp], None]:
    """Makes the pass with a mistake; the right one without."""
    source = Path(str(tasks.__file__)).read_text()
    if mistake is not None:
        assert source.count(mistake.old) == 1, (mistake.title, source.count(mistake.old))
        source = source.replace(mistake.old, mistake.new)
    made = ModuleType("planted_tasks")
    sys.modules[made.__name__] = made  # dataclasses look their module up
    exec(compile(source, f"{tasks.__file__}", "exec"), made.__dict__)
    return made.make_tasks


def refusals(before: ModuleOp, after: ModuleOp) -> Iterator[tuple[str, str]]:
    """Yields each net that refuses a program that a pass has made of another, with what it says. A refused text goes no further."""
    try:
        verify(after)
    except PopulusError as error:
        yield "verifier", str(error)
        return
    terms = Terms()
    try:
        report = compare(terms, execute(terms, before), execute(terms, after))
        if report.verdict == REFUTED:
            yield "proof", report.refuted[0]
    except Undecided:
        pass
    try:
        strict = Session(after, "strict")
        strict.run(drawn(strict, 0))
    except PopulusError as error:
        yield "strict", str(error)


def drawn(session: Session, seed: int) -> dict[str, NDArray[Any]]:
    """Draws inputs."""
    rng = np.random.default_rng(seed)
    return {
        n: np.array(True) if dtype == np.bool_ else rng.standard_normal(shape).astype(dtype) for n, (shape, dtype) in session.inputs.items()
    }


def differs(before: ModuleOp, after: ModuleOp) -> bool:
    """Tells whether a program's results are others, or whether it does not run."""
    sessions = [Session(module, "numpy") for module in (before, after)]
    results = [session.run(drawn(session, 1)) for session in sessions]
    return any(not np.array_equal(results[0][name], results[1][name]) for name in results[0])


def outcome(mistake: Mistake | None, name: str) -> tuple[dict[str, str], bool]:
    """Gives what refuses a program that the pass has changed, and whether its results are others."""
    before = program(PROGRAMS[name])
    after = before.clone()
    planted(mistake)(graph_of(after))
    refused = dict(refusals(before, after))
    return refused, "verifier" not in refused and differs(before, after)


def line(text: str) -> str:
    """Gives the first line of what a net says, without its place and without drawn numbers."""
    return text.splitlines()[0].split(": ", 1)[-1].split(" (with drawn")[0].replace("|", "\\|")


def main(argv: list[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these mistakes, with each program")
    args = parser.parse_args(argv)
    bad = [f"the right pass: {name}: {found}" for name in PROGRAMS if any(found := outcome(None, name))]
    print("| | mistake | verifier | proof | `strict` | the first, and what refuses it |\n|---|---|---|---|---|---|")
    for i, mistake in enumerate(MISTAKES, 1):
        if args.only and i not in args.only:
            continue
        found = {name: outcome(mistake, name) for name in PROGRAMS}
        counts = [sum(net in refused for refused, _ in found.values()) for net in NETS]
        first = next(((name, net, text) for name, (refused, _) in found.items() for net, text in refused.items()), None)
        bad += [f"{i}: {name}: other results, and nothing refuses it" for name, (refused, other) in found.items() if other and not refused]
        if first is None:
            bad.append(f"{i}: nothing refuses it")
        said = "" if first is None else f"{first[0]}: {line(first[2])}"
        print(f"| {i} | {mistake.title} | {' | '.join(str(n or '') for n in counts)} | {said} |", flush=True)
        if args.only:
            print(*(f"    {name}: {other}: {refused}" for name, (refused, other) in found.items() if refused or other), sep="\n")
    for problem in bad:
        print(problem)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
