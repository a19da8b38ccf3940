"""The effect of each pass and each engine on an op: `populus-opt --audit-op leaky_relu`.

| verdict | meaning |
|---|---|
| handled | the pass (or engine) has code for the op, named after the verdict |
| passes through | the op, or its library calls, are unchanged |
| refused | one line says why |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.builder import Builder as OpBuilder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from populus.dialects.onnx.structure import CustomOp
from populus.dialects.popart import POPART, ControlOp
from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.popart.definition import Definition, definition_of
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.custom_ops import custom_ops
from populus.program.compile import compile
from populus.program.options import ENGINES
from populus.tools.op_examples import EXAMPLES, example
from populus.tools.op_model import OpModel, function_of
from populus.tools.op_rows import onnx_model

LIBRARIES = ("popops", "poplin", "popnn", "poprand", "gcl")


@dataclass(frozen=True)
class Finding:
    """The verdict of one pass or engine."""

    place: str
    verdict: str
    word: str = ""


def audit(ctx: Context, name: str, pipeline: Pipeline) -> list[Finding]:
    """Audits an op through the pipeline. Raises PopulusError for an unknown op, and for one that cannot be built alone."""
    definition = definition_of(_found(ctx, name))
    model = OpModel(definition)
    kind = definition.op.name.removeprefix("popart.")
    try:
        module = model.module(model.examples[0]) if model.stated or kind not in EXAMPLES else example(ctx, kind)
    except (PopulusError, VerifyException, AssertionError) as error:
        raise PopulusError(
            f"{definition.op.name} cannot be audited: {' '.join(str(error).split())}; state EXAMPLES, operand shapes and attributes"
        ) from error
    return [*_passes(ctx, definition, model, module, pipeline), _values(definition), _gradient(model, module), *_engines(module)]


def table(findings: Sequence[Finding]) -> str:
    """Formats the findings as lines in columns."""
    width = max(len(f.place) for f in findings)
    return "\n".join(f"{f.place:{width}}  {f.verdict:14}  {f.word}".rstrip() for f in findings)


def _found(ctx: Context, name: str) -> type[PopartOp]:
    ops = {op.name: op for op in (*POPART.operations, *ctx.loaded_ops) if issubclass(op, PopartOp)}
    # A user's op takes precedence over a built-in one.
    short = {n.partition(".")[2]: n for n in sorted(ops, key=lambda n: not n.startswith("popart."))}
    full = name if name in ops else short.get(name, name)
    if full not in ops:
        raise PopulusError(f"there is no op '{name}'{did_you_mean(name, [*ops, *short])}")
    return ops[full]


def _passes(ctx: Context, definition: Definition, model: OpModel, built: ModuleOp, pipeline: Pipeline) -> Iterator[Finding]:
    module = built.clone()
    above = pipeline.down_to("onnx")
    if definition.identity is None:
        yield from (Finding(p.name, "passes through", "no ONNX identity: no model contains it") for p in above.passes)
        below = pipeline.from_level("popart")
    else:
        from populus.lowering.onnx.importer import import_onnx

        module, below = import_onnx(onnx_model(definition, built), customs=custom_ops(ctx)), pipeline
    kinds = (definition.op, CustomOp)
    for p in below.passes:
        before, names = _count(module, kinds), {op.name for op in module.walk()}
        try:
            p.apply(ctx, module)
        except (PopulusError, VerifyException) as error:
            yield Finding(p.name, "refused", " ".join(str(error).split()))
            return
        if before and _count(module, kinds[:1]) != _count_was(before):
            became = sorted({op.name for op in module.walk()} - names)
            yield Finding(p.name, "handled", f"becomes {', '.join(became)}" if became else "is replaced by its operand")
        elif gone := sorted(n for n in names - {op.name for op in module.walk()} if n.partition(".")[0] in LIBRARIES):
            yield Finding(p.name, "passes through", f"{', '.join(gone)} of it becomes a part of the tile program")
        else:
            yield Finding(p.name, "passes through")


def _count(module: ModuleOp, kinds: tuple[type, ...]) -> tuple[int, ...]:
    found = tuple(sum(isinstance(op, kind) for op in module.walk()) for kind in kinds)
    return found if any(found) else ()


def _count_was(before: tuple[int, ...]) -> tuple[int, ...]:
    return before[:1] if before[0] else ()


def _values(definition: Definition) -> Finding:
    from populus.runtime.interpreter import functions

    if definition.op in functions():
        return Finding("popart evaluator", "handled", "by NumPy")
    if issubclass(definition.op, ElementwiseOp):
        return Finding("popart evaluator", "handled", "by its formula")
    if definition.has_evaluate:
        return Finding("popart evaluator", "handled", "by its evaluate")
    return Finding("popart evaluator", "passes through", "by its lowering")


def _gradient(model: OpModel, built: ModuleOp) -> Finding:
    module = built.clone()
    op = model.op(module)
    if isinstance(op, ControlOp):
        return Finding("popart-autodiff", "handled", "by the pass, which differentiates its regions")
    last = function_of(module).body.block.last_op
    assert last is not None
    try:
        found = op.gradient(OpBuilder(InsertPoint.before(last)), list(op.results))
    except (PopulusError, VerifyException) as error:
        return Finding("popart-autodiff", "refused", " ".join(str(error).split()))
    flows = [o.name for o, g in zip(model.definition.operands, found) if g is not None]
    return Finding("popart-autodiff", "handled", f"to {', '.join(flows)}" if flows else "nothing flows")


def _engines(module: ModuleOp) -> Iterator[Finding]:
    for engine in ENGINES:
        try:
            program = compile(module, engine=engine, tiles=4)
            program.run(program.signature.random(0))
        except PopulusError as error:
            yield Finding(f"engine {engine}", "refused", " ".join(str(error).split()))
            continue
        left = ", ".join(program.session.fallbacks)
        yield Finding(f"engine {engine}", "passes through" if left else "handled", f"left to NumPy: {left}" if left else "")
