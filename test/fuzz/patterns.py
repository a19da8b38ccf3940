"""Programs at the edges of rewrite patterns' conditions, with results before and after the rewrites: `make fuzz FUZZERS=patterns`.

The programs of the patterns' FileCheck tests are grouped by the patterns that fire in them. A seed takes a pattern of the table and
one of its programs, and changes it a little: an attribute, a number of a constant, a size, a rank, an element type, an operand, or who
else reads a value. Patterns then fire or decline; either way results stay what the interpreter gives without them.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import cast

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, TypeAttribute
from xdsl.rewriter import Rewriter

from fuzz.children import Outcome
from fuzz.mutations import ELEMENTS, attribute, changed, pick, size
from populus.compare.validation import ADVERSARIAL, validating
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.patterns import PATTERNS
from populus.lowering.popart.rewriting import rewrite

FOLDER = Path(__file__).parents[1] / "filecheck" / "lowering" / "popart-fuse"
FUSE = Pipeline.from_text("popart-fuse")


def element_type(lines: list[str], rng: random.Random) -> None:
    """Replaces an element type wherever it stands."""
    found = sorted(set(re.findall(r"(?<=[<x])(?:" + "|".join(ELEMENTS) + r")(?=>)", "\n".join(lines))))
    old, new = rng.choice(found), rng.choice(ELEMENTS)
    lines[:] = [re.sub(rf"(?<=[<x]){old}(?=>)", new, line) for line in lines]


def value(lines: list[str], rng: random.Random) -> None:
    """Changes a number of an attribute, of an expression or of a constant."""
    at, match = pick(lines, rng, r"array<i\d+: [^>]+>|= -?[\d.e+-]+ : \w+|dense<[^>]+>|= \w+::\w+")
    part, number = pick([match[0]], rng, r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]?\d+)?)?(?![\w.])")
    old = number[0]
    if "." in old:
        new = str(rng.choice([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -float(old), 2 * float(old), float(old) * (1 + 2**-20), 1e-30]))
    else:
        n = int(old)
        new = str(rng.choice([n + 1, n - 1, 0, 1, -1, -n, 2 * n, 2]))
    assert part == 0
    start = match.start() + number.start()
    lines[at] = lines[at][:start] + new + lines[at][start + len(old) :]


MUTATIONS = (value, value, value, value, value, size, size, attribute, element_type)


def applied(module: ModuleOp) -> Counter[str]:
    """Counts how often each pattern fires in the functions of a module."""
    made = [pattern()() for pattern in PATTERNS.values()]
    functions = [f for f in module.clone().body.block.ops if isinstance(f, FuncOp)]
    return sum((rewrite(function.body.block, made) for function in functions), Counter[str]())


@cache
def programs() -> dict[str, list[tuple[str, int]]]:
    """Gives the texts in which each pattern fires, and how often."""
    found: dict[str, list[tuple[str, int]]] = {name: [] for name in PATTERNS}
    for path in sorted(FOLDER.glob("*.mlir")):
        for part in path.read_text().split("// -----") if "invalid" not in path.name and "loaded" not in path.name else []:
            for function in parse_text(context(), part, path.name).body.block.ops:
                if isinstance(function, FuncOp):
                    alone = function.clone()
                    alone.properties["sym_name"] = type(function.sym_name)("main")
                    module = ModuleOp([alone])
                    for name, times in applied(module).items():
                        found[name].append((text_of(module, locations=False), times))
    return found


def case(seed: int) -> tuple[str, int, str]:
    """Gives the pattern of a seed, how often it fires in the program as it was, and the text of the changed one."""
    rng = random.Random(seed)
    name = rng.choice([name for name, texts in programs().items() if texts])
    text, times = rng.choice(programs()[name])
    return name, times, text if rng.random() < 0.3 else changed(text.splitlines(), rng, MUTATIONS)


def mutated(seed: int) -> str:
    """Gives the changed program of a seed."""
    return case(seed)[2]


def judge(seed: int) -> Outcome:
    """Judges a seed: `fires` (as often as before the change), `declines`, or `alarm`. Raises PopulusError for what is no program."""
    name, times, text = case(seed)
    module, rng = LocatingParser(context(), text, "mutated.mlir").parse_module(), random.Random(seed)
    for change in (another_shape, another_operand, also_returned):
        if rng.random() < 0.3:
            change(module, rng)
    with_inferred_types(module)
    verify(module)
    fired = applied(module)[name] >= times
    try:
        with validating(ADVERSARIAL):
            FUSE.run(context(), module)
    except PopulusError as error:
        return "alarm", f"{name}: {error}"  # the program is valid: a refusal here is the rewrite's
    return "fires" if fired else "declines", ""


def another_shape(module: ModuleOp, rng: random.Random) -> None:
    """Changes the rank or a size of an argument."""
    arguments = [a for f in module.body.block.ops if isinstance(f, FuncOp) for a in f.body.block.args if isinstance(a.type, TensorType)]
    if not arguments:
        return
    argument = rng.choice(arguments)
    type = cast("TensorType[Attribute]", argument.type)
    sizes, at = list(type.get_shape()), rng.randrange(type.get_num_dims() + 1)
    if at < len(sizes) and rng.random() < 0.6:
        sizes[at : at + 1] = rng.choice([[0], [1], [sizes[at] + 1], []])
    else:
        sizes.insert(at, rng.choice([1, 1, 2]))
    Rewriter.replace_value_with_new_type(argument, TensorType(type.element_type, sizes))


def another_operand(module: ModuleOp, rng: random.Random) -> None:
    """Makes an op read another value that is there before it, perhaps one that it reads already, or its operands in another order."""
    block = next(f.body.block for f in module.body.block.ops if isinstance(f, FuncOp))
    made = rng.choice([op for op in block.ops if op.operands])
    before = [*block.args, *(r for op in block.ops if op.is_before_in_block(made) for r in op.results)]
    operands = list(made.operands)
    if len(operands) > 1 and rng.random() < 0.4:
        rng.shuffle(operands)
    else:
        at = rng.randrange(len(operands))
        same = [v for v in before if v.type == operands[at].type]
        operands[at] = rng.choice(same if same and rng.random() < 0.7 else before)
    made.operands = operands


def with_inferred_types(module: ModuleOp) -> None:
    """Gives results the types that follow from operands and attributes, so that a change upstream makes a valid program."""
    for made in module.walk():
        if isinstance(made, TensorOp):
            try:
                types = made.inferred()
            except (KeyError, AttributeError):  # the op is not verified yet
                made.verify(verify_nested_ops=False)
                raise
            for result, type in zip(made.results, types, strict=True):
                if not isinstance(type.element_type, TypeAttribute):
                    raise PopulusError(f"{made.name}: {type.element_type} is no element type")
                if result.type != type:
                    Rewriter.replace_value_with_new_type(result, type)
    for function in module.body.block.ops:
        if isinstance(function, FuncOp):
            function.update_function_type()


def also_returned(module: ModuleOp, rng: random.Random) -> None:
    """Returns one more value: then its producer has another reader."""
    for function in module.body.block.ops:
        if not isinstance(function, FuncOp):
            continue
        block = function.body.block
        values = [result for made in block.ops for result in made.results]
        if values and isinstance(block.last_op, ReturnOp):
            block.last_op.operands = [*block.last_op.operands, rng.choice(values)]
            function.update_function_type()
