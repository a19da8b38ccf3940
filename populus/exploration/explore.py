"""`explore`: weighs the points of a space of machines, and finds those that none of the others beats."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import file_digest, sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.poplar.target import Spec
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import replacing
from populus.dialects.support.package_hash import package_hash
from populus.exploration.axes import Settings, axes_of
from populus.exploration.front import Costs, front_of
from populus.exploration.log import Log
from populus.exploration.measure import LESS, MEASURES, Bench, Measures, Model
from populus.exploration.running import Point, Runner
from populus.exploration.search import chosen, drawn, propose
from populus.exploration.space import Space, text_of
from populus.exploration.technology import technology
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.poplar.plan.stated import as_option
from populus.program.models import as_model
from populus.program.options import CompileOptions, stated_in

SCHEMA = "populus exploration"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Request:
    """The wishes of an exploration, besides the space.

    `minimise`: measures that make the front. `fit`: only programs that keep all their data on the tiles. `latency`: most seconds of the
    mix. `power`: most watts. `points`: most points. `search`: `all`, `random` or `optuna`; by default all of a space that is small enough,
    else Optuna. `seed`: of the search. `processes`: default, one for each CPU. `log`: a file that keeps each point as soon as it is there.
    `resume`: goes on with that file. `plans`: of each product and convolution, the best plans that are tried together. `scheduler`: the
    address of a Dask scheduler, whose workers weigh the points. `progress`: called with the points that are there, those asked for, and
    the last one.
    """

    minimise: Sequence[str] = ("cycles", "memory")
    fit: bool = False
    latency: float | None = None
    power: float | None = None
    points: int = 500
    search: str | None = None
    seed: int = 0
    processes: int | None = None
    log: str | os.PathLike[str] | None = None
    resume: bool = False
    plans: int = 1
    scheduler: str | None = None
    progress: Callable[[int, int, Point], None] | None = None

    def check(self) -> None:
        """Raises PopulusError for a measure that there is not, and for numbers that make no sense."""
        for name in self.minimise:
            if name not in LESS:
                raise PopulusError(f"minimise: no measure '{name}'{did_you_mean(name, LESS)}")
        if not self.minimise or len(set(self.minimise)) != len(self.minimise):
            raise PopulusError(f"minimise: {', '.join(self.minimise) or 'nothing'}; expected one measure or several, each once")
        for name in ("points", "processes", "plans"):
            if (n := getattr(self, name)) is not None and n < 1:
                raise PopulusError(f"{name} = {n}; expected at least 1")
        for name in ("latency", "power"):
            if (limit := getattr(self, name)) is not None and not 0 < limit < math.inf:
                raise PopulusError(f"{name} = {limit}; expected more than 0")
        if self.resume and self.log is None:
            raise PopulusError("resume without a log; give the log of the run that ended")

    def fault(self, measures: Measures) -> str | None:
        """Tells which condition a point does not meet; None if it meets all."""
        if self.fit and measures["outside"]:
            return f"{measures['outside']:,.0f} bytes go to and from memory outside of the tiles"
        for name, of, unit in (("latency", "seconds", "s"), ("power", "power", "W")):
            limit = getattr(self, name)
            if limit is not None and measures[of] > limit:
                return f"{name} of {measures[of]:.4g} {unit}, above {limit:g} {unit}"
        return None


@dataclass(repr=False)
class Exploration:
    """The points of an exploration, by their number, and its front: numbers of points, by the first measure.

    `interrupted`: Ctrl-C ended it before all points were there.
    """

    bench: Bench
    request: Request
    points: list[Point]
    search: str
    interrupted: bool = False
    front: list[int] = field(init=False)
    sensitivities: dict[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict[int, "Sequence[Mapping[str, Any]]"])
    """The change of the time by each field, of the points for which `sensitivity` was asked."""

    def __post_init__(self) -> None:
        self.points.sort(key=lambda p: p["point"])
        good = [p for p in self.points if self.fault(p) is None]
        self.front = [good[i]["point"] for i in front_of([self.costs(p) for p in good])]

    def __repr__(self) -> str:
        return f"<Exploration of {len(self.points)} points, {len(self.front)} on the front>"

    def fault(self, point: Point) -> str | None:
        """Tells why a point is not among those compared: it cannot be, or a condition is not met."""
        return point["why"] if "why" in point else self.request.fault(point["measures"])

    def costs(self, point: Point) -> Costs:
        """Gives what is minimised; infinite for a point that is not compared."""
        if self.fault(point) is not None:
            return (math.inf,) * len(self.request.minimise)
        return tuple(float(point["measures"][name]) for name in self.request.minimise)

    def settings(self, number: int) -> Settings:
        """Gives what a point sets."""
        return self.bench.space.settings(number)

    def machine(self, number: int) -> str:
        """Gives the machine of a point as `compile(target=..)` takes it. Raises PopulusError for numbers that no machine has."""
        return text_of(self.bench.space.machine(self.settings(number)))

    def record(self) -> dict[str, Any]:
        """Gives everything as data. The same points and options give the same text."""
        space, front = self.bench.space, set(self.front)
        rows: list[dict[str, Any]] = []
        for point in self.points:
            settings = self.settings(point["point"])
            row: dict[str, Any] = {"point": point["point"], "settings": settings, "front": point["point"] in front}
            if "measures" in point:
                row |= {"target": self.machine(point["point"]), "measures": {name: point["measures"][name] for name in MEASURES}}
            if "plans" in point:
                row["plans"] = point["plans"]
            if (why := self.fault(point)) is not None:
                row["why"] = why
            rows.append(row)
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "models": [{"name": printable(m.name), "weight": m.weight} for m in self.bench.models],
            "machine": text_of(space.spec),
            "equal": space.equal,
            "axes": [{"name": a.name, "kind": a.kind, "values": list(a.values)} for a in space.axes],
            "size": space.size,
            "search": self.search,
            "seed": self.request.seed,
            "minimise": list(self.request.minimise),
            "conditions": {name: getattr(self.request, name) for name in ("fit", "latency", "power")},
            "technology": space.technology.record(),
            "points": rows,
            **({"sensitivity": {str(n): list(rows) for n, rows in self.sensitivities.items()}} if self.sensitivities else {}),
            "complete": not self.interrupted,
        }

    def json(self) -> str:
        """Formats everything as JSON."""
        return json.dumps(self.record(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Writes everything as JSON. Raises PopulusError if the file cannot be written."""
        _write(path, self.json())

    def rows(self) -> tuple[list[str], list[list[Any]]]:
        """Gives a table: names of columns; of each point its settings, measures (or None), whether it is on the front, and its fault."""
        names = [axis.name for axis in self.bench.space.axes]
        found: list[list[Any]] = []
        for row in self.record()["points"]:
            measures = row.get("measures", {})
            given = [row["settings"][n] for n in names]
            found.append([row["point"], *given, *(measures.get(n) for n in MEASURES), row["front"], row.get("why")])
        return ["point", *names, *MEASURES, "front", "why"], found

    def csv(self) -> str:
        """Formats a line for each point: what it sets, its measures, whether it is on the front, and why it is not compared."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        names, rows = self.rows()
        writer.writerow(names)
        writer.writerows([*row[:-2], int(row[-2]), row[-1]] for row in rows)
        return stream.getvalue()

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes the table as Parquet, with all else of the record as JSON under the key `populus`.

        Raises PopulusError if pyarrow (the extra `parquet`) is not installed, or if the file cannot be written.
        """
        check_parquet(path)
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        names, rows = self.rows()
        columns = [_of_one_type([row[i] for row in rows]) for i in range(len(names))]
        table = arrow.table([arrow.array(column) for column in columns], names=names)
        about = json.dumps({key: value for key, value in self.record().items() if key != "points"}, ensure_ascii=False, allow_nan=False)
        with replacing(path) as partial:
            parquet.write_table(table.replace_schema_metadata({"populus": about}), partial)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes a line for each point. Raises PopulusError if the file cannot be written."""
        _write(path, self.csv())

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the page of the exploration. Raises PopulusError if the file cannot be written."""
        page = import_module("populus.tools.report.exploration")  # of a higher layer, for this call only
        _write(path, str(page.html(self)))


def check_parquet(path: str | os.PathLike[str]) -> None:
    """Raises PopulusError if Parquet cannot be written: pyarrow is not installed."""
    if find_spec("pyarrow") is None:
        raise PopulusError(f"{path}: Parquet is written by pyarrow, which is not installed; pip install pyarrow, or write CSV")


def _of_one_type(column: list[Any]) -> list[Any]:
    """Makes texts of a column that has texts and other values."""
    mixed = {isinstance(cell, str) for cell in column if cell is not None} == {True, False}
    return [None if cell is None else str(cell) for cell in column] if mixed else column


def _write(path: str | os.PathLike[str], text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def explore(models: object, *, machine: str = "gc200", vary: Mapping[str, Any] | None = None, **options: Any) -> Exploration:
    """Weighs the points of a space, and finds those that none of the others beats.

    `models`: what `compile` takes; a list of several, or of pairs of a model and how often it runs, is a mix.
    `machine`: the machine to begin with. `vary`: names and values: `{"tiles": [368, 736], "tile_bytes": "256K:1M:x2"}`, as docs/explore.md
    says. `equal`: `sram` or `area`, from which the memory of a tile follows. `technology`: a name or a file, for energy and area.
    The other keywords are those of `Request`, and of `compile`, such as `dims`, `partials` and `pipeline`.

    Raises PopulusError for what is no field, value, measure or model, and if not one point can be.
    """
    own = {f.name for f in fields(Request)}
    compiling = {f.name for f in fields(CompileOptions)} - {"target", "tiles", "progress", "cache", "level"}
    for name in options:
        if name not in own | compiling | {"equal", "technology"}:
            raise PopulusError(f"explore has no option '{name}'{did_you_mean(name, own | compiling | {'equal', 'technology'})}")
    request = Request(**{k: v for k, v in options.items() if k in own})
    request.check()
    mix = _mix(models)
    compile_options = CompileOptions(target=machine, **{k: v for k, v in options.items() if k in compiling})
    compile_options.extensions()  # a loaded file may define the machine
    space = space_of(machine, vary or {}, compile_options, options.get("equal"), options.get("technology"))
    spared = "peak_tile_bytes" if request.minimise[0] == "memory" else "cycles"
    return explored(Bench(mix, space, plans=request.plans, spared=spared), request)


def space_of(
    machine: str, vary: Mapping[str, Any], options: CompileOptions, equal: str | None = None, of: str | os.PathLike[str] | None = None
) -> Space:
    """Builds the space of a machine. Raises PopulusError as `explore` does."""
    spec = Spec.of(machine)
    empty = Space(spec, options, (), technology(of), equal)
    space = Space(spec, options, axes_of(vary, spec, empty.options_pipeline()), empty.technology, equal)
    space.check()
    options.check()
    return space


def _mix(models: object) -> list[Model]:
    """Lists the models with their names and weights. Raises PopulusError for none, and for a weight that is not above 0."""
    pair = isinstance(models, tuple) and len(cast("tuple[object, ...]", models)) == 2 and isinstance(models[1], int | float)
    given = cast("Sequence[object]", models) if isinstance(models, list | tuple) and not pair else [cast("object", models)]
    found: list[Model] = []
    for entry in given:
        model, weight = cast("tuple[object, float]", entry) if isinstance(entry, tuple) else (entry, 1.0)
        if not 0 < weight < math.inf:
            raise PopulusError(f"the weight {weight} of a model; expected more than 0")
        made = as_model(model)
        name = f"model {len(found) + 1}" if isinstance(made, ModuleOp) or not isinstance(made, str | os.PathLike) else Path(made).name
        found.append(Model(made, name, weight))
    if not found:
        raise PopulusError("no model; expected one, or a list of several")
    return found


def explored(bench: Bench, request: Request) -> Exploration:
    """Weighs the points that a request asks for. Raises PopulusError as `explore` does."""
    space = bench.space
    search = chosen(request.search, space, request.points)
    most = min(request.points, space.size)
    log = None if request.log is None else Log(request.log, key_of(bench), request.resume)
    there = 0

    def said(point: Point) -> None:
        nonlocal there
        there += 1
        if request.progress is not None:
            request.progress(there, most, point)

    interrupted = False
    with Runner(bench, log, request.processes, said, request.scheduler) as runner:
        asked: list[int] = list(range(space.size)) if search == "all" else drawn(space, most, request.seed)
        try:
            if search == "optuna":
                blank = Exploration(bench, request, [], search)

                def weigh(numbers: Sequence[int]) -> Sequence[Costs]:
                    return [blank.costs(p) for p in runner.points(numbers)]

                asked = propose(space, most, request.seed, len(request.minimise), weigh)
            else:
                runner.points(asked)
        except KeyboardInterrupt:
            interrupted, asked = True, list(runner.known)
        finally:
            if log is not None:
                log.close()
        found = Exploration(bench, request, [runner.known[n] for n in asked], search, interrupted)
    if found.points and not found.front:
        raise PopulusError(_nothing(found))
    return found


def _nothing(found: Exploration) -> str:
    """Says why no point is left: the reason of most of them, and of which point."""
    faults = [(found.fault(p) or "", p["point"]) for p in found.points]
    reason, number = faults[0]
    at = ", ".join(f"{name}={value}" for name, value in found.settings(number).items())
    return f"none of {len(faults)} points can be taken; {at or 'the machine'}: {reason}"


def key_of(bench: Bench) -> str:
    """Computes what a log is about: models, machine, options, axes, technology, and this package's sources."""
    space = bench.space
    given: list[str] = [package_hash(), repr(space.spec.target()), space.equal or "", str(space.options_pipeline())]
    given += [f"{a.name} {a.values}" for a in space.axes]
    options = ("dims", "partials", "optimise", "accuracy", "narrow", "values", "bounds")
    given += [f"{name}={getattr(space.options, name)}" for name in options]
    given += [f"plans={bench.plans} {bench.spared}"] if bench.plans > 1 else []
    given += [json.dumps(space.technology.record(), sort_keys=True)]
    if (plan := space.options.plan) is not None:
        given.append(as_option(stated_in(plan)))
    for model in bench.models:
        given += [str(model.weight), _hash_of(model)]
    return sha256("\0".join(given).encode()).hexdigest()


def _hash_of(model: Model) -> str:
    given = as_model(model.model)
    if isinstance(given, ModuleOp):
        return content_hash(given)
    if not isinstance(given, str | os.PathLike):
        return sha256(given.SerializeToString(deterministic=True)).hexdigest()
    try:
        with Path(given).open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise PopulusError(f"{os.fspath(given)}: {(error.strerror or str(error)).lower()}") from error
