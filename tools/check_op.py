"""run the whole contract of the ops in a file, and print what holds; exit 1 if something does not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from xdsl.builder import Builder as OpBuilder
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from populus.api import Program, compile
from populus.builder import Builder
from populus.dialects.constraints import OneOf, WholeWithin, Within
from populus.dialects.diagnostics import LocatingParser, PopulusError
from populus.dialects.element_types import dtype_of, element_type_of, is_float, shape_of
from populus.dialects.ops import Plain
from populus.dialects.popart import NoGradient
from populus.dialects.popart.definition import Definition, Property
from populus.dialects.table import context
from populus.lowering.content_hash import content_hash
from populus.lowering.extensions import Extension, load
from populus.lowering.onnx_op_schema import schemas

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
Example: TypeAlias = "tuple[Sequence[tuple[int, ...]], dict[str, Plain]]"

TILES = (1, 4, 16, 1472)
STEP = 1e-6  # of central differences in double precision, for values about 1
SHAPE = (3, 7)
COLOURS = {"ok": "green", "failed": "red", "none": "yellow"}


@dataclass(frozen=True)
class Row:
    """One part of the contract: `ok`, `failed`, or `none` where the op does not have it; with a word about it."""

    part: str
    verdict: str
    word: str = ""


class Unmet(Exception):
    """A part of the contract does not hold: how."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `populus check-op`."""
    parser.add_argument("file", metavar="FILE.py", help="a Python file that defines ops")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    extension = load(args.file)
    definitions = extension.definitions()
    if not definitions:
        raise PopulusError(f"{args.file}: defines no popart op to check")
    console, failed = Console(highlight=False, soft_wrap=True), 0
    for definition in definitions:
        rows = list(check(extension, definition))
        console.print(table_of(definition, rows))
        for row in rows:
            if row.verdict == "failed":
                failed += 1
                print(f"populus: {args.file}: {definition.op.name}: {row.part}: {row.word}", file=sys.stderr)
    return 1 if failed else 0


def table_of(definition: Definition, rows: Sequence[Row]) -> Table:
    """A line for each part."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (definition.op.name, "", ""):
        table.add_column(escape(column))
    for row in rows:
        table.add_row(row.part, f"[{COLOURS[row.verdict]}]{row.verdict}[/]", escape(row.word if row.verdict != "failed" else "see below"))
    return table


def check(extension: Extension, definition: Definition) -> Iterator[Row]:
    """The contract of one op, part by part. A part that cannot be tried because an earlier one failed is left out."""
    op = _Op(extension, definition)
    yield op.row("definition", op.definition_)
    found = op.row("example", op.example)
    yield found
    if found.verdict == "failed":
        return
    for part, of in (
        ("inference", op.inference),
        ("text", op.text),
        ("levels", op.levels),
        ("gradient", op.gradient),
        ("ties and zeros", op.ties),
        ("inputs kept", op.inputs_kept),
        ("hash", op.hash),
        ("strict", op.strict),
        ("tiles", op.tiles),
        ("ONNX schema", op.schema),
    ):
        yield op.row(part, of)


class _Op:
    """An op with a model of it alone."""

    def __init__(self, extension: Extension, definition: Definition):
        self.extension, self.definition = extension, definition

    def row(self, part: str, of: Callable[[], tuple[str, str]]) -> Row:
        try:
            return Row(part, *of())
        except (Unmet, PopulusError, VerifyException) as error:
            return Row(part, "failed", " ".join(str(error).split()))

    # -- the parts

    def definition_(self) -> tuple[str, str]:
        d = self.definition
        if not d.formula:
            raise Unmet("its docstring has no formula; write it in backquotes, such as `y = max(x, 0)`")
        if not d.source:
            raise Unmet("its docstring has no source; end it with `Source: ...`, a paper, a library, or the domain and op")
        return "ok", d.formula

    def example(self) -> tuple[str, str]:
        d = self.definition
        stated: list[Example] = [(list(shapes), dict(properties)) for shapes, properties in d.op.EXAMPLES]
        self.examples: Sequence[Example] = stated or [([SHAPE] * len(d.operands), self._required())]
        modules = [self.module(example) for example in self.examples]
        operands = self._op(modules[0]).operands
        return "ok", f"{len(modules)} of {', '.join(str(o.type) for o in operands)}" + ("" if stated else ", by default")

    def inference(self) -> tuple[str, str]:
        for example in self.examples:
            module = self.module(example)
            before, op = str(module), self._op(module)
            one, two = op.infer(), op.infer()
            if list(one) != list(two) or str(module) != before:
                raise Unmet("infer gives something else the second time, or changes the op")
            if list(one) != [r.type for r in op.results]:
                raise Unmet("infer does not give the types of the results")
        return "ok", "idempotent"

    def text(self) -> tuple[str, str]:
        ctx = context()
        self.extension.register(ctx)
        for example in self.examples:
            module = self.module(example)
            again = LocatingParser(ctx, str(module)).parse_module()
            again.verify()
            if str(again) != str(module) or content_hash(again) != content_hash(module):
                raise Unmet("the op is not the same after printing and parsing")
        return "ok", "printed and parsed"

    def levels(self) -> tuple[str, str]:
        import numpy as np

        worst = 0.0
        for example in self.examples:
            module, inputs = self.module(example), self.inputs(example)
            reference = self.run(module, inputs, level="popart")
            for level in ("popops", "poplar"):
                got = self.run(module, inputs, level=level)
                for name, expected in reference.items():
                    if not np.allclose(got[name].astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=1e-6, equal_nan=True):
                        raise Unmet(f"{level} gives other values than popart for {name}: {_worst(got[name], expected)}")
                    worst = max(worst, _difference(got[name], expected))
        return "ok", f"popart, popops and poplar agree within {worst:.1g}"

    def gradient(self) -> tuple[str, str]:
        if not self.definition.has_gradient:
            return "none", "not stated"
        worst = 0.0
        for example in self.examples:
            try:
                worst = max(worst, self._differences(example, self.inputs(example, "float64")))
            except NoGradient as error:
                return "none", " ".join(str(error).split())
        return "ok", f"central differences agree within {worst:.1g}, in double precision"

    def ties(self) -> tuple[str, str]:
        """At 0 and -0.0, and where operands are equal, the gradient is finite if the op is, and lies between the slopes of either side."""
        import numpy as np

        if not self.definition.has_gradient:
            return "none", "no gradient"
        said: set[str] = set()
        for example in self.examples:
            inputs = self.inputs(example, "float64")
            for value in (0.0, -0.0):
                tied = {name: np.full_like(a, value) if is_float_array(a) else a for name, a in inputs.items()}
                try:
                    said.add(self._one_sided(example, tied))
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
        return "ok", "no level writes what it is given"

    def hash(self) -> tuple[str, str]:
        skipped = frozenset[str](getattr(self.definition.op, "NOT_HASHED", ()))
        shapes, properties = self.examples[0]
        base, tried = content_hash(self.module((shapes, properties))), 0
        for p in self.definition.properties.values():
            for other in _others(p, properties.get(p.name)):
                try:
                    module = self.module((shapes, {**properties, p.name: other}))
                except (PopulusError, VerifyException):
                    continue
                tried += 1
                if (content_hash(module) == base) != (p.name in skipped):
                    raise Unmet(f"'{p.name}' = {other!r} has the hash of {properties.get(p.name, p.plain_default)!r}")
                break
        return "ok", f"another with each of {tried} attributes" if tried else "no attribute to change"

    def strict(self) -> tuple[str, str]:
        for example in self.examples:
            module, inputs = self.module(example), self.inputs(example)
            self._same_bits(self.run(module, inputs, tiles=4), self.run(module, inputs, tiles=4, engine="strict"), "strict gives")
        return "ok", "every vertex keeps the rules"

    def tiles(self) -> tuple[str, str]:
        for example in self.examples:
            module, inputs = self.module(example), self.inputs(example)
            reference = self.run(module, inputs, tiles=TILES[0])
            for tiles in TILES[1:]:
                for name, got in self.run(module, inputs, tiles=tiles).items():
                    if _difference(got, reference[name]) > 1e-5:
                        raise Unmet(f"on {tiles} tiles {name} differs: {_worst(got, reference[name])}")
        return "ok", ", ".join(map(str, TILES))

    def schema(self) -> tuple[str, str]:
        if self.definition.identity is None:
            return "none", "no ONNX identity"
        made = schemas(self.definition)
        domain, kind, _ = self.definition.identity
        return "ok", f"{domain or 'ai.onnx'} {kind}-{', '.join(str(s.since_version) for s in made)}"

    # -- models of the op

    def module(self, example: Example, dtype: str = "float32") -> ModuleOp:
        shapes, properties = example
        element = self._element(dtype)
        b = Builder(self.definition.name)
        operands = [b.input(f"x{i}", shape, self._dtype(i, element)) for i, shape in enumerate(shapes)]
        for i, result in enumerate(b.op(self.definition.op, *operands, name=self.definition.name, **properties)):
            b.output(f"y{i}" if i else "y", result)
        return b.module()

    def _element(self, dtype: str) -> str:
        allowed = {dtype_of(e).name for o in self.definition.operands for e in o.elements if is_float(e)}
        return dtype if not allowed or dtype in allowed else max(allowed)

    def _dtype(self, i: int, element: str) -> Any:
        operands = self.definition.operands
        of = operands[min(i, len(operands) - 1)].elements
        return element if not of or any(is_float(e) for e in of) else dtype_of(of[0])

    def _required(self) -> dict[str, Plain]:
        return {p.name: next(_others(p, None), 0.5) for p in self.definition.properties.values() if p.required}

    def _op(self, module: ModuleOp) -> Any:
        return next(op for op in module.walk() if isinstance(op, self.definition.op))

    def inputs(self, example: Example, dtype: str = "float32") -> dict[str, Array]:
        import numpy as np

        g, found = np.random.default_rng(3), dict[str, Array]()
        for argument, i in zip(_function(self.module(example, dtype)).body.block.args, range(1 << 30)):
            shape, of = shape_of(argument.type), dtype_of(element_type_of(argument.type))
            values = (g.permutation(int(np.prod(shape))).reshape(shape) - int(np.prod(shape)) // 2) * 0.11 + 0.06  # apart, and not near 0
            found[f"x{i}"] = values.astype(of) if is_float(element_type_of(argument.type)) else np.abs(values).astype(of)
        return found

    def run(
        self, module: ModuleOp, inputs: dict[str, Array], *, level: str = "poplar", tiles: int = 1, engine: str = "numpy"
    ) -> dict[str, Array]:
        program: Program = compile(module, level=level, tiles=tiles, engine=engine)
        return program.run(inputs)

    # -- gradients

    def _gradients(self, example: Example, inputs: dict[str, Array]) -> tuple[list[Array | None], dict[str, Array]]:
        """The gradients of the operands for the cotangents that come with them."""
        import numpy as np

        module = self.module(example, "float64")
        function, op = _function(module), self._op(module)
        block, last = function.body.block, function.body.block.last_op
        assert isinstance(last, ReturnOp)
        given = dict(inputs)
        grads: list[Any] = []
        generator = np.random.default_rng(5)
        for i, result in enumerate(op.results):
            grads.append(block.insert_arg(result.type, len(block.args)))
            given[f"g{i}"] = generator.uniform(0.5, 1.5, shape_of(result.type)).astype(dtype_of(element_type_of(result.type)))
        found = list(op.gradient(OpBuilder(InsertPoint.before(last)), grads))
        if len(found) != len(op.operands):
            raise Unmet(f"gradient gives {len(found)} values for {len(op.operands)} operands")
        for operand, value in zip(op.operands, found):
            if value is not None and value.type != operand.type:
                raise Unmet(f"the gradient of an operand of {operand.type} is {value.type}")
        outputs = [v for v in found if v is not None]
        names = [f"d{i}" for i, v in enumerate(found) if v is not None]
        block.insert_op_before(ReturnOp(*outputs), last)
        last.detach()
        last.erase()
        function.update_function_type()
        for key, values in (("input_names", list(given)), ("output_names", names)):
            function.attributes[key] = _names(values)
        module.verify()
        arrays = self.run(module, given, level="popops")
        return [arrays.get(f"d{i}") for i in range(len(found))], {n: a for n, a in given.items() if n not in inputs}

    def _weighted(self, module: ModuleOp, inputs: dict[str, Array], cotangents: dict[str, Array]) -> float:
        results = self.run(module, inputs, level="popart").values()
        return float(sum((r * g).sum() for r, g in zip(results, cotangents.values())))

    def _slope(
        self, module: ModuleOp, inputs: dict[str, Array], name: str, at: int, cotangents: dict[str, Array], ends: tuple[float, float]
    ) -> float:
        values: list[float] = []
        for end in ends:
            moved = {n: a.copy() for n, a in inputs.items()}
            moved[name].reshape(-1)[at] += end
            values.append(self._weighted(module, moved, cotangents))
        return (values[1] - values[0]) / (ends[1] - ends[0])

    def _points(self, example: Example, inputs: dict[str, Array]) -> Iterator[tuple[str, int, float, ModuleOp, dict[str, Array]]]:
        """Elements of the operands with their gradients."""
        import numpy as np

        module = self.module(example, "float64")
        gradients, cotangents = self._gradients(example, inputs)
        for (name, array), gradient in zip(inputs.items(), gradients):
            if gradient is None or array.size == 0:
                continue
            for at in np.random.default_rng(9).choice(array.size, min(array.size, 6), replace=False):
                yield name, int(at), float(gradient.reshape(-1)[at]), module, cotangents

    def _differences(self, example: Example, inputs: dict[str, Array]) -> float:
        worst = 0.0
        for name, at, gradient, module, cotangents in self._points(example, inputs):
            slope = self._slope(module, inputs, name, at, cotangents, (-STEP, STEP))
            off = abs(slope - gradient) / max(1.0, abs(slope))
            if not off < 1e-5:
                raise Unmet(
                    f"the gradient of {name}, element {at} at {inputs[name].reshape(-1)[at]:g}, is {gradient:.6g}; "
                    f"differences give {slope:.6g}"
                )
            worst = max(worst, off)
        return worst

    def _one_sided(self, example: Example, inputs: dict[str, Array]) -> str:
        import math

        kept = "smooth"
        for name, at, gradient, module, cotangents in self._points(example, inputs):
            left, right = (self._slope(module, inputs, name, at, cotangents, ends) for ends in ((-STEP, 0.0), (0.0, STEP)))
            if not (math.isfinite(left) and math.isfinite(right)) or max(abs(left), abs(right)) > 1e3:
                kept = "not differentiable there"
                continue
            slack = 1e-4 * max(1.0, abs(left), abs(right))
            if math.isnan(gradient):
                kept = "NaN there"
            elif not min(left, right) - slack <= gradient <= max(left, right) + slack:
                raise Unmet(
                    f"at {inputs[name].reshape(-1)[at]:g} the gradient of {name} is {gradient:.6g}; "
                    f"its sides have {left:.6g} and {right:.6g}"
                )
            elif abs(left - right) > 2 * slack:
                kept = (
                    "the side of the right"
                    if abs(gradient - right) <= slack
                    else "the side of the left"
                    if abs(gradient - left) <= slack
                    else "between the sides"
                )
        return kept

    def _same_bits(self, one: dict[str, Array], two: dict[str, Array], what: str) -> None:
        for name, a in one.items():
            if a.tobytes() != two[name].tobytes() and _difference(a, two[name]) > 1e-6:
                raise Unmet(f"{what} other values for {name}: {_worst(two[name], a)}")


def is_float_array(a: Array) -> bool:
    return a.dtype.kind == "f"


def _function(module: ModuleOp) -> FuncOp:
    return next(op for op in module.ops if isinstance(op, FuncOp))


def _names(names: Sequence[str]) -> Attribute:
    from xdsl.dialects.builtin import ArrayAttr

    return ArrayAttr([StringAttr(name) for name in names])


def _others(p: Property, value: Plain | None) -> Iterator[Plain]:
    """Values of an attribute that are not the one it has."""
    now = p.plain_default if value is None else value
    candidates: dict[str, list[Plain]] = {
        "float": [0.5, 0.25, 2.0],
        "int": [1, 2, 0],
        "bool": [True, False],
        "string": ["a", "b"],
        "ints": [(1,), (2,)],
        "floats": [(0.5,), (2.0,)],
    }
    found = candidates.get(p.kind, [])
    match p.constraint:
        case Within(low, high) if abs(low) < 1e300 and abs(high) < 1e300:
            found = [(low + high) / 2, low + (high - low) / 4, high]
        case WholeWithin(low, high) if high - low < 1 << 62:
            found = [low, high]
        case OneOf(choices):
            found = list(choices)
        case _:
            pass
    yield from (v for v in found if v != now)


def _difference(a: Array, b: Array) -> float:
    """The largest, relative to values above 1; NaNs and infinities at the same places are no difference."""
    import numpy as np

    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0, np.abs(x - y) / np.maximum(1, np.abs(y)))
    return float(np.max(np.nan_to_num(off, nan=np.inf, posinf=np.inf), initial=0))


def _worst(a: Array, b: Array) -> str:
    return f"by up to {_difference(a, b):.3g}"
