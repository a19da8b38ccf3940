"""check the whole contract of the ops in a file, and print the result of each part; exit 1 if one fails."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rich.table import Table
from xdsl.utils.exceptions import VerifyException

from populus.dialects.popart import NoGradient
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import Definition
from populus.dialects.support import user_op_errors
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of, value_bytes
from populus.dialects.support.errors import printable
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.driver.extensions import Extension, read
from populus.lowering.onnx.op_schema import schemas
from populus.lowering.popart.inplace import check_priorities
from populus.tools.command import amount
from populus.tools.op_gradients import Unmet, differences, is_float, one_sided
from populus.tools.op_limits import TooLong, limit
from populus.tools.op_model import Array, Example, OpModel, close, difference, off_by, others
from populus.tools.op_rows import attributes, export, integers, plain_python, second_derivatives, sizes, training
from populus.tools.output import Terminal, shown
from populus.write.op_page import formulas, page

TILES = (1, 4, 16, 1472)
SECONDS = 120.0  # for each row
LATER = 10.0  # for a row after one that took too long
HALVES = {"float16": 2e-2, "bfloat16": 1e-1}  # relative to values above 1
ONE_BIT = 2.0**-23  # of an f32
COLOURS = {"ok": "green", "failed": "red", "none": "yellow"}


@dataclass(frozen=True)
class Row:
    """One part of the contract: `ok`, `failed`, or `none` if the op does not have it, with a remark."""

    part: str
    verdict: str
    word: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus check-op`."""
    parser.add_argument("file", metavar="FILE.py", help="a Python file that defines ops")
    parser.add_argument("--seconds", type=amount, default=SECONDS, metavar="S", help=f"time for each row, 0 for any ({SECONDS:g})")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    try:
        with limit(args.seconds, os.path.abspath(args.file), lambda: "running the file"):
            extension = read(args.file)
            definitions = extension.definitions()
    except TooLong as error:
        raise PopulusError(f"{args.file}: {error}") from None
    if not definitions:
        raise PopulusError(f"{args.file}: defines no popart op to check")
    console, failed = Terminal(highlight=False, soft_wrap=True), 0
    for definition in definitions:
        op = Checked(definition, extension, seconds=args.seconds)
        rows = list(op.rows())
        console.print(table_of(definition, rows))
        for line in lines(rows):
            failed += 1
            print(printable(f"populus: {args.file}: {definition.op.name}: {line}"), file=sys.stderr)
    return 1 if failed else 0


def lines(rows: Sequence[Row]) -> list[str]:
    """Lists a line for each cause that rows failed for, although several may have met it: `gradient: the gradient of x0 ..`."""
    found: dict[str, str] = {}
    for row in rows:
        if row.verdict == "failed":
            member = re.search(r"its `\w+` .*?\(\S+:\d+\)", row.word)
            found.setdefault(member[0] if member else row.word, f"{row.part}: {row.word}")
    return list(found.values())


def table_of(definition: Definition, rows: Sequence[Row]) -> Table:
    """Makes a table with a line for each part."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (definition.op.name, "", ""):
        table.add_column(shown(column))
    for row in rows:
        table.add_row(row.part, f"[{COLOURS[row.verdict]}]{row.verdict}[/]", shown(row.word if row.verdict != "failed" else "see below"))
    return table


class Checked(OpModel):
    """The checks of an op's contract. `seconds`: the time that each row may take, 0 for any."""

    def __init__(
        self,
        definition: Definition,
        extension: Extension | None = None,
        examples: Sequence[Example] = (),
        seconds: float = SECONDS,
        differentiable: bool = True,
    ):
        super().__init__(definition, examples, differentiable)
        self.extension, self.seconds = extension, seconds

    def rows(self) -> Iterator[Row]:
        """Checks part by part; those that need an example are left out without one."""
        yield self.row("definition", self.definition_)
        found = self.row("example", self.example)
        yield found
        if found.verdict == "failed":
            return
        for part, of in (
            ("inference", self.inference),
            ("aliases", self.aliases),
            ("text", self.text),
            ("evaluate", self.evaluate),
            ("levels", self.levels),
            ("half", self.half),
            ("integers", lambda: integers(self)),
            ("gradient", self.gradient),
            ("attributes", lambda: attributes(self)),
            ("ties and zeros", self.ties),
            ("second derivatives", lambda: second_derivatives(self)),
            ("training", lambda: training(self)),
            ("plain Python", lambda: plain_python(self)),
            ("inputs kept", self.inputs_kept),
            ("hash", self.hash),
            ("strict", self.strict),
            ("tiles", self.tiles),
            ("sizes", lambda: sizes(self, self.extension)),
            ("ONNX schema", self.schema),
            ("ONNX model", lambda: export(self, self.extension)),
            ("docs", self.docs),
        ):
            yield self.row(part, of)

    def row(self, part: str, of: Callable[[], tuple[str, str]]) -> Row:
        """Checks one part. Whatever the author's code does becomes the row's verdict."""
        file = user_op_errors.file_of(self.definition.op)
        self.doing = f"checking {part}"
        try:
            with limit(self.seconds, file, lambda: self.doing):
                return Row(part, *of())
        except TooLong as error:
            self.seconds = min(self.seconds, LATER)
            return Row(part, "failed", str(error))
        except (Unmet, PopulusError, VerifyException) as error:
            return Row(part, "failed", " ".join(str(error).split()))
        except (Exception, SystemExit) as error:  # the author's code may raise anything
            return Row(part, "failed", user_op_errors.blamed(error, file))

    def name(self) -> str:
        """Gives the op's name."""
        return self.definition.op.name

    # -- parts of the contract

    def definition_(self) -> tuple[str, str]:
        d = self.definition
        if not d.formula:
            raise Unmet("its docstring has no formula; write it in backquotes, such as `y = max(x, 0)`")
        if not d.source:
            raise Unmet("its docstring has no source; end it with `Source: ...`, a paper, a library, or the domain and op")
        return "ok", d.formula

    def example(self) -> tuple[str, str]:
        modules = [self.module(example) for example in self.examples]
        operands = self.op(modules[0]).operands
        return "ok", f"{len(modules)} of {', '.join(str(o.type) for o in operands)}" + ("" if self.stated else ", by default")

    def inference(self) -> tuple[str, str]:
        for example in self.examples:
            module = self.module(example)
            before, op = str(module), self.op(module)
            one, two = op.infer(), op.infer()
            if list(one) != list(two) or str(module) != before:
                raise Unmet("infer gives something else the second time, or changes the op")
            if list(one) != [r.type for r in op.results]:
                raise Unmet("infer does not give the types of the results")
        return "ok", "idempotent"

    def aliases(self) -> tuple[str, str]:
        pairs = 0
        for example in self.examples:
            op = self.op(self.module(example))
            for i, j in _pairs(op, "aliases", op.aliases(), "operand and result"):
                if i not in range(len(op.operands)) or j not in range(len(op.results)):
                    has = f"the op has {len(op.operands)} operands and {len(op.results)} results{user_op_errors.at(op, 'aliases')}"
                    raise Unmet(f"its `aliases` gives ({i}, {j}); {has}")
                if (one := value_bytes(op.operands[i])) != (two := value_bytes(op.results[j])) and not op.is_view:
                    said = f"operand {i} has {one} bytes, result {j} has {two}, so they share no memory"
                    raise Unmet(f"its `aliases` gives ({i}, {j}); {said}{user_op_errors.at(op, 'aliases')}")
                pairs += 1
            _pairs(op, "inplace_priority", op.inplace_priority(), "operand and priority")
            check_priorities(op)
        return ("ok", f"{pairs} pairs") if pairs else ("none", "no result shares an operand's memory")

    def evaluate(self) -> tuple[str, str]:
        """Checks `evaluate`, also where a formula takes its place: types as `infer` says, inputs kept, values as those of `lower`."""
        if self.definition.op.evaluate is PopartOp.evaluate:
            return "none", "not stated"
        for example in self.examples:
            module, inputs = self.module(example), self.inputs(example)
            op, copies = self.op(module), {name: a.copy() for name, a in inputs.items()}
            with user_op_errors.asked(op, "evaluate", self.name):
                found = op.evaluate(*copies.values())
            types = [(shape_of(r.type), dtype_of(element_type_of(r.type))) for r in op.results]
            found = user_op_errors.arrays(op, found, types, self.name)
            if changed := [name for name, a in inputs.items() if a.tobytes() != copies[name].tobytes()]:
                raise Unmet(f"its `evaluate` changes its operand {changed[0]}{user_op_errors.at(op, 'evaluate')}")
            for (name, lowered), a in zip(self.run(module, inputs, level="popops").items(), found):
                if not close(a, lowered):
                    place = user_op_errors.at(op, "evaluate")
                    raise Unmet(f"its `evaluate` gives other values than its lowering for {name}: {off_by(a, lowered)}{place}")
        return "ok", "of the types that `infer` says, and of the lowering's values"

    def text(self) -> tuple[str, str]:
        ctx = context()
        if self.extension is not None:
            self.extension.register(ctx)
        for example in self.examples:
            module = self.module(example)
            again = LocatingParser(ctx, str(module)).parse_module()
            again.verify()
            if str(again) != str(module) or content_hash(again) != content_hash(module):
                raise Unmet("the op is not the same after printing and parsing")
        return "ok", "printed and parsed"

    def levels(self) -> tuple[str, str]:
        worst = 0.0
        for example in self.examples:
            module, inputs = self.module(example), self.inputs(example)
            reference = self.run(module, inputs, level="popart")
            for level in ("popops", "poplar"):
                got = self.run(module, inputs, level=level)
                for name, expected in reference.items():
                    if not close(got[name], expected):
                        raise Unmet(f"{level} gives other values than popart for {name}: {off_by(got[name], expected)}")
                    worst = max(worst, difference(got[name], expected))
        return "ok", f"popart, popops and poplar agree within {worst:.1g}"

    def half(self) -> tuple[str, str]:
        """Checks the levels in the narrow floats that the definition names."""
        stated = {dtype_of(e).name for o in self.definition.operands for e in o.elements}
        tried = [name for name in HALVES if name in stated]
        for dtype in tried:
            for example in self.examples:
                module, inputs = self.module(example, dtype), self.inputs(example, dtype)
                expected = self.run(module, inputs, level="popart")
                for name, got in self.run(module, inputs, level="popops").items():
                    if difference(got, expected[name]) > HALVES[dtype]:
                        raise Unmet(f"in {dtype} popops gives other values than popart for {name}: {off_by(got, expected[name])}")
        return ("ok", " and ".join(tried)) if tried else ("none", "its types have neither float16 nor bfloat16")

    def gradient(self) -> tuple[str, str]:
        if not self.has_gradient:
            return "none", "not stated"
        worst = 0.0
        for example in self.examples:
            try:
                worst = max(worst, differences(self, example, self.inputs(example, "float64")))
            except NoGradient as error:
                return "none", " ".join(str(error).split())
        return "ok", f"central differences agree within {worst:.1g}, in f64"

    def ties(self) -> tuple[str, str]:
        """Checks ties: at 0 and -0.0 and at equal operands the gradient is finite if the op is, and between the slopes of both sides."""
        import numpy as np

        if not self.has_gradient:
            return "none", "no gradient"
        said: set[str] = set()
        for example in self.examples:
            inputs = self.inputs(example, "float64")
            for value in (0.0, -0.0):
                tied = {name: np.full_like(a, value) if is_float(a) else a for name, a in inputs.items()}
                try:
                    said.add(one_sided(self, example, tied))
                except NoGradient:
                    return "none", "no gradient"
        return "ok", "; ".join(sorted(said))

    def inputs_kept(self) -> tuple[str, str]:
        for example in self.examples:
            inputs = self.inputs(example)
            copies = {name: a.copy() for name, a in inputs.items()}
            for level in ("popart", "popops", "poplar"):
                self.run(self.module(example), inputs, level=level)
                if changed := [name for name, a in inputs.items() if a.tobytes() != copies[name].tobytes()]:
                    raise Unmet(f"running it at {level} changes its input {changed[0]}")
        return "ok", "no level writes to its inputs"

    def hash(self) -> tuple[str, str]:
        skipped = frozenset[str](getattr(self.definition.op, "NOT_HASHED", ()))
        shapes, properties = self.examples[0]
        base, tried = content_hash(self.module((shapes, properties))), 0
        self._unhashed_change_nothing(skipped)
        for p in self.definition.properties.values():
            for other in others(p, properties.get(p.name)):
                try:
                    module = self.module((shapes, {**properties, p.name: other}))
                except (PopulusError, VerifyException):
                    continue
                tried += 1
                if (content_hash(module) == base) != (p.name in skipped):
                    raise Unmet(f"'{p.name}' = {other!r} has the hash of {properties.get(p.name, p.plain_default)!r}")
                break
        return "ok", f"another with each of {tried} attributes" if tried else "no attribute to change"

    def _unhashed_change_nothing(self, names: frozenset[str]) -> None:
        for shapes, properties in self.examples:
            module, inputs = self.module((shapes, properties)), self.inputs((shapes, properties))
            expected = self.run(module, inputs, level="popart")
            for name, p in self.definition.properties.items():
                for other in others(p, properties.get(name)) if name in names else ():
                    try:
                        got = self.run(self.module((shapes, {**properties, name: other})), inputs, level="popart")
                    except (PopulusError, VerifyException):
                        continue
                    if changed := [y for y, a in got.items() if a.shape != expected[y].shape or difference(a, expected[y]) > 0]:
                        raise Unmet(f"'{name}' is in NOT_HASHED, but {other!r} gives another {changed[0]}; take it out of there")

    def strict(self) -> tuple[str, str]:
        for example in self.examples:
            module, inputs = self.module(example), self.inputs(example)
            expected = self.run(module, inputs, tiles=4)
            for name, got in self.run(module, inputs, tiles=4, engine="strict").items():
                if difference(got, expected[name]) > 1e-6 and not _differ_by_one_bit(got, expected[name]):
                    raise Unmet(f"strict gives other values for {name}: {off_by(got, expected[name])}")
        return "ok", "every vertex keeps the rules"

    def tiles(self) -> tuple[str, str]:
        for example in self.examples:
            module, inputs = self.module(example), self.inputs(example)
            reference = self.run(module, inputs, tiles=TILES[0])
            for tiles in TILES[1:]:
                for name, got in self.run(module, inputs, tiles=tiles).items():
                    if difference(got, reference[name]) > 1e-5:
                        raise Unmet(f"on {tiles} tiles {name} differs: {off_by(got, reference[name])}")
        return "ok", ", ".join(map(str, TILES))

    def schema(self) -> tuple[str, str]:
        if self.definition.identity is None:
            return "none", "no ONNX identity"
        made = schemas(self.definition)
        domain, kind, _ = self.definition.identity
        return "ok", f"{domain or 'ai.onnx'} {kind}-{', '.join(str(s.since_version) for s in made)}"

    def docs(self) -> tuple[str, str]:
        text, found = page(self.definition), formulas(self.definition)
        if missing := [p for p in self.definition.properties if f"| {p} |" not in text]:
            raise Unmet(f"its page has no line for '{missing[0]}'")
        return "ok", f"a page with {len(found)} formulas" if found else "a page"


def _differ_by_one_bit(a: Array, b: Array) -> bool:
    """Tells whether values differ by at most the last bit of the largest, as sums of another order do where terms cancel."""
    import numpy as np

    largest = np.max(np.abs(b), initial=1, where=np.isfinite(b))
    return difference(a / largest, b / largest) <= ONE_BIT


def _is_pair(p: Any) -> bool:
    return isinstance(p, tuple) and len(cast("tuple[Any, ...]", p)) in (2, 3) and isinstance(p[0], int)


def _pairs(op: PopartOp, member: str, found: object, of: str) -> list[tuple[int, int]]:
    pairs: list[Any] = list(cast("Sequence[Any]", found)) if isinstance(found, Sequence) else [found]
    if wrong := [p for p in pairs if not _is_pair(p)]:
        raise Unmet(f"its `{member}` gives {wrong[0]!r}; pairs of {of} are expected{user_op_errors.at(op, member)}")
    return pairs


def is_float_array(a: Array) -> bool:
    return a.dtype.kind == "f"
