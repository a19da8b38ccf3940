"""compare the signatures of ops with those stored in a file, and list the changes that can break models"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from populus.dialects.popart import POPART
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import Definition, definition_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import replacing
from populus.lowering.driver import extensions
from populus.lowering.driver.files import decode, read_bytes

Signature: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class Change:
    """A difference. `breaks`: an existing model or program may no longer work."""

    op: str
    text: str
    breaks: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus check-compat`."""
    add = parser.add_argument
    add("file", metavar="OLD.json", help="a file written by --write")
    add("--load", action="append", default=[], metavar="FILE.py", help="compare the ops of this file instead of the built-in ones")
    add("--write", action="store_true", help="write the present signatures")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.load:
        definitions = [d for path in args.load for d in extensions.read(path).definitions()]
    else:
        definitions = [definition_of(op) for op in POPART.operations if issubclass(op, PopartOp)]
    now = {d.op.name: signature(d) for d in definitions}
    if args.write:
        with replacing(args.file) as path:
            path.write_text(text_of(now))
        return 0
    found = list(changes(_read(args.file), now))
    for change in found:
        print(f"{'breaks' if change.breaks else 'adds  '}  {change.op}: {change.text}")
    if broken := [c for c in found if c.breaks]:
        first, more = f"{broken[0].op}: {broken[0].text}", ", ..." if len(broken) > 1 else ""
        raise PopulusError(f"{args.file}: {len(broken)} changes break what was there: {first}{more}; give the op another version")
    return 0


def signature(d: Definition) -> Signature:
    """Gives the public contract of an op: operands, results, attributes with allowed values and defaults, ONNX identity."""
    return {
        "operands": [[o.name, o.kind, sorted(map(str, o.elements))] for o in d.operands],
        "results": [[r.name, r.kind, sorted(map(str, r.elements))] for r in d.results],
        "attributes": {p.name: [p.allowed, p.optional, None if p.default is None else str(p.default)] for p in d.properties.values()},
        "onnx": None if d.identity is None else [d.identity[0], d.identity[1], list(d.identity[2])],
    }


def text_of(signatures: Mapping[str, Signature]) -> str:
    """Formats one line per op, so that a change is one line of a diff."""
    lines = [f" {json.dumps(name)}: {json.dumps(signatures[name])}" for name in sorted(signatures)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def changes(old: Mapping[str, Signature], new: Mapping[str, Signature]) -> Iterator[Change]:
    """Lists the differences, op by op."""
    for name in sorted({*old, *new}):
        if name not in new:
            yield Change(name, "is gone", True)
        elif name not in old:
            yield Change(name, "is new", False)
        else:
            for text, breaks in _op_changes(old[name], new[name]):
                yield Change(name, text, breaks)


def _op_changes(old: Signature, new: Signature) -> Iterator[tuple[str, bool]]:
    for what in ("operands", "results"):
        yield from _values(what.removesuffix("s"), old[what], new[what])
    before, after = old["attributes"], new["attributes"]
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"attribute '{name}' is gone", True
        elif name not in before:
            _, optional, default = after[name]
            dispensable = optional or default is not None
            yield f"attribute '{name}' is new" + ("" if dispensable else " and has no default"), not dispensable
        elif before[name] != after[name]:
            (allowed, _, default), (allowed_now, _, default_now) = before[name], after[name]
            if default != default_now:
                yield f"the default of '{name}' was {default}, and is {default_now}", True
            if allowed != allowed_now:
                yield f"'{name}' allowed {allowed}, and allows {allowed_now}", True
    was, now = cast("list[Any] | None", old["onnx"]), cast("list[Any] | None", new["onnx"])
    if was != now:
        kept = was is None or (now is not None and was[:2] == now[:2] and set(was[2]) <= set(now[2]))
        yield f"its ONNX identity was {was}, and is {now}", not kept


def _values(what: str, old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> Iterator[tuple[str, bool]]:
    for (name, kind, elements), (name_now, kind_now, elements_now) in zip(old, new):
        if name != name_now:
            yield f"{what} '{name}' is called '{name_now}'", True
        if kind != kind_now:
            yield f"{what} '{name_now}' was {kind}, and is {kind_now}", (kind, kind_now) != ("one", "optional") or what == "result"
        if elements != elements_now:
            fewer = bool(elements_now) and not (elements and set(elements) <= set(elements_now))
            yield f"{what} '{name_now}' was of {', '.join(elements) or 'any'}, and is of {', '.join(elements_now) or 'any'}", fewer
    for name, *_ in old[len(new) :]:
        yield f"{what} '{name}' is gone", True
    for name, kind, _ in new[len(old) :]:
        dispensable = what == "operand" and kind != "one"
        yield f"{what} '{name}' is new" + ("" if dispensable else " and not dispensable"), not dispensable


def _read(path: str) -> dict[str, Signature]:
    try:
        found = cast("dict[str, Signature]", json.loads(decode(read_bytes(path), path)))
        if not all({"operands", "results", "attributes", "onnx"} <= s.keys() for s in found.values()):
            raise ValueError("other keys than operands, results, attributes, onnx")
        return found
    except (ValueError, AttributeError, RecursionError) as error:
        raise PopulusError(f"{path}: no signatures of ops: {error}; --write makes such a file") from error
