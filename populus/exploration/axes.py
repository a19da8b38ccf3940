"""The axes of a space: fields of a machine, sizes, options of compiling and of passes, and whether a pass runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, cast

from populus.dialects.poplar.machine import INTEGER_FIELDS, PARTIALS
from populus.dialects.poplar.target import Spec, mesh_fields
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.poplar.plan.aims import AIMS
from populus.program.options import ACCURACIES

Value: TypeAlias = int | float | str | bool
Settings: TypeAlias = dict[str, Value]
"""Settings of a point, by the names of the axes."""

CHOICES: Mapping[str, Sequence[str]] = {"partials": PARTIALS, "optimise": tuple(AIMS), "accuracy": tuple(ACCURACIES)}
SPREAD = ("tensor", "stages")
"""The axes of a model on chips: the parts of each product, and the stages that a run goes through."""
UNITS = {"": 1, "K": 1 << 10, "KiB": 1 << 10, "M": 1 << 20, "MiB": 1 << 20, "G": 1 << 30, "GiB": 1 << 30}
MOST_VALUES = 10_000  # of one axis


@dataclass(frozen=True)
class Axis:
    """A name and the values that it takes, in the order given. `kind`: machine, spread, size, choice, option or pass."""

    name: str
    values: tuple[Value, ...]
    kind: str


def axis_of(name: str, given: str | Sequence[Value] | Value, spec: Spec, pipeline: Pipeline) -> Axis:
    """Builds an axis.

    `name`: a field of the machine, `tensor` or `stages`, `dim.NAME` for the size of a dimension, `partials`, `optimise`, `accuracy`,
    `PASS.OPTION`, or `PASS` with `on` and `off`. `given`: values, or a text of values and ranges: `368,736`, `256K:1M:x2`, `1:9:2`.

    Raises PopulusError for an unknown name, with the nearest, and for values that the name cannot have.
    """
    kind = _kind(name, spec, pipeline)
    texts = given.split(",") if isinstance(given, str) else given if isinstance(given, Sequence) else [given]
    values: list[Value] = []
    for text in texts:
        values += _values(name, kind, text.strip() if isinstance(text, str) else text, pipeline)
    if not values:
        raise PopulusError(f"vary {name}: no value; expected {name}=A,B,.. or {name}=LEAST:GREATEST:STEP")
    if len(values) > MOST_VALUES:
        raise PopulusError(f"vary {name}: {len(values)} values; at most {MOST_VALUES}")
    return Axis(name, tuple(dict.fromkeys(values)), kind)


def _kind(name: str, spec: Spec, pipeline: Pipeline) -> str:
    """Finds the kind of an axis. Raises PopulusError, with the nearest name, if nothing is called so."""
    machine = mesh_fields() if spec.target().mesh is not None else INTEGER_FIELDS
    if name in machine:
        return "machine"
    if name in SPREAD:
        return "spread"
    if name.startswith("dim.") and len(name) > 4:
        return "size"
    if name in CHOICES:
        return "choice"
    passes = {p.name: p for p in pipeline.passes}
    if name in passes:
        return "pass"
    of, dot, option = name.rpartition(".")
    if dot and of in passes:
        known = {f.name for f in fields(passes[of])} - {"target", "tiles"}
        if option not in known:
            raise PopulusError(f"vary {name}: {of} has no option '{option}'{did_you_mean(option, known)}")
        return "option"
    known = (*machine, *SPREAD, *CHOICES, *passes, "dim.NAME")
    begun = [k for k in known if name.startswith(f"{k}_")]  # a field with more words, such as its unit
    near = f"; did you mean '{max(begun, key=len)}'?" if begun else did_you_mean(name, known)
    raise PopulusError(f"vary {name}: {spec.name} has no such field, and there is no such option or pass{near}")


def _values(name: str, kind: str, given: Value, pipeline: Pipeline) -> list[Value]:
    """Reads one value or one range. Raises PopulusError for what the axis cannot have."""
    if kind == "choice":
        if given not in CHOICES[name]:
            raise PopulusError(f"vary {name}: no {name} '{given}'{did_you_mean(str(given), CHOICES[name])}; {', '.join(CHOICES[name])}")
        return [given]
    if kind == "pass":
        if given not in ("on", "off", True, False):
            raise PopulusError(f"vary {name}: '{given}'; a pass is on or off")
        return ["on" if given in ("on", True) else "off"]
    if kind == "option":
        return [_option(name, given)]
    text = str(given)
    parts = text.split(":")
    if len(parts) == 1:
        return [_whole(name, kind, text)]
    if len(parts) != 3:
        raise PopulusError(f"vary {name}: '{text}' is no range; expected LEAST:GREATEST:STEP, such as 64:512:64 or 256K:1M:x2")
    least, greatest = (_whole(name, kind, part) for part in parts[:2])
    if least > greatest:
        raise PopulusError(f"vary {name}: the range {text} is upside down; {parts[1]}:{parts[0]}:{parts[2]} begins with the lesser")
    return _range(name, kind, least, greatest, parts[2])


def _range(name: str, kind: str, least: int, greatest: int, step: str) -> list[Value]:
    """Lists the numbers of a range, by a sum or, with `x2`, by a factor. Raises PopulusError for a step that leads nowhere."""
    if step.startswith("x"):
        try:
            factor = float(step[1:])
        except ValueError:
            factor = 0.0
        if not 1 < factor < 1e9 or least < 1:
            raise PopulusError(f"vary {name}: the step {step} of a range from {least}; a factor is above 1, as in x2, and begins above 0")
        found, at = list[Value](), float(least)
        while round(at) <= greatest and len(found) <= MOST_VALUES:
            found.append(round(at))
            at *= factor
        return found
    by = _whole(name, kind, step)
    if by < 1:
        raise PopulusError(f"vary {name}: the step {step}; expected at least 1, or a factor such as x2")
    return list(range(least, min(greatest, least + by * MOST_VALUES) + 1, by))


def _whole(name: str, kind: str, text: str) -> int:
    """Reads a whole number, of bytes also with a unit. Raises PopulusError for another text, and for a unit that makes no sense."""
    found = re.fullmatch(r"([0-9]{1,13}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)", text)
    if found is None:
        raise PopulusError(f"vary {name}: '{text}' is not a whole number{', or a range' if ':' not in text else ''}")
    number, unit = found.groups()
    if unit and (kind != "machine" or not (name.endswith("bytes") or name == "dram_size")):
        raise PopulusError(f"vary {name}: '{text}' has the unit {unit}; {name} is a number, write {number}")
    if unit not in UNITS:
        near = did_you_mean(unit, [u for u in UNITS if u])
        raise PopulusError(f"vary {name}: '{text}' has the unit {unit}{near}; bytes are written 262144, 256K or 256KiB")
    value = float(number) * UNITS[unit]
    if value != int(value):
        raise PopulusError(f"vary {name}: '{text}' is no whole number{' of bytes' if unit else ''}")
    return int(value)


def _option(name: str, given: Value) -> Value:
    """Reads the value of a pass's option, as a pipeline's text has it. Raises PopulusError for one of another type."""
    of, _, option = name.rpartition(".")
    text = str(given).lower() if isinstance(given, bool) else str(given)
    (made,) = Pipeline.from_text(f"{of}{{{option}={text}}}", source=f"vary {name}").passes
    return cast("Value", getattr(made, option))


def axes_of(vary: Mapping[str, Any], spec: Spec, pipeline: Pipeline) -> tuple[Axis, ...]:
    """Builds the axes of a space. Raises PopulusError as `axis_of` does."""
    return tuple(axis_of(name, given, spec, pipeline) for name, given in vary.items())
