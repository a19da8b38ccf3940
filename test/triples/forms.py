"""The forms in which cases stand in a program: plain, their gradients, with open sizes, in bodies of loops, with states, built."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import populus
from triples.cases import Built, Case, build, digest
from triples.chain import CONTRIB, OPSET, Array, Infeasible, info, model_of
from triples.gradients import judge_gradients
from triples.judging import Chains, NoOracle, Verdict, bisected, compare, judge, oracle


def verdict(built: Built, found: dict[str, Array], expected: dict[str, Array], where: str = "") -> Verdict | None:
    """Gives the verdict on wrong outputs; None if they agree."""
    said = compare(built, found, expected)
    return Verdict(built.case, "wrong", f"{where}{said}") if said else None


# -- open sizes

LEAST, PRIME, GREATEST = 1, 7, 12


def of_batches(case: Case, prefix: str, batches: Sequence[int]) -> dict[int, Built]:
    """Builds a case for several batches. Raises Infeasible where its nodes or constants depend on the batch."""
    made = {n: build(case, prefix, batch=n) for n in batches}
    first, *others = made.values()
    for other in others:
        nodes = [n.SerializeToString() for n in first.chain.nodes] == [n.SerializeToString() for n in other.chain.nodes]
        constants = {n: (a.shape, a.tobytes()) for n, a in first.chain.constants.items()}
        if not nodes or constants != {n: (a.shape, a.tobytes()) for n, a in other.chain.constants.items()}:
            raise Infeasible("depends on the batch")
    return made


def poisoned(built: Built) -> dict[str, Array]:
    """The inputs of a chain with NaN in the place of floats, and the largest numbers in that of integers."""
    return {n: np.full_like(a, np.nan if a.dtype.kind == "f" else np.iinfo(a.dtype).max) for n, a in built.chain.inputs.items()}


def judge_open(cases: Sequence[Case], bounded: bool) -> list[Verdict]:
    """Judges cases whose batch is open: in one program for a range of sizes, or in one for each bucket of sizes.

    The greatest size runs first, with NaN in every input; then the least, a prime, the greatest and no rows at all.
    """
    told: list[Verdict] = []
    made: dict[str, dict[int, Built]] = {}
    chains: list[tuple[Built, dict[str, Array]]] = []
    sizes = (GREATEST, LEAST, PRIME) if bounded else (GREATEST, GREATEST - 1, PRIME)
    for i, case in enumerate(cases):
        try:
            built = of_batches(case, f"k{i}_", sizes)
            made[built[GREATEST].chain.prefix] = built
            chains.append((built[GREATEST], oracle(built[GREATEST], built[GREATEST].chain.outputs)))
        except (Infeasible, NoOracle) as error:
            told.append(Verdict(case, "no oracle" if isinstance(error, NoOracle) else "fixed batch", str(error)))

    def attempt(chains: Chains) -> list[Verdict]:
        whole = model_of([built.chain for built, _ in chains], open_batch=True)
        options = {"dims": {"N": (0, GREATEST)}} if bounded else {}
        program = populus.compile(whole, engine="native", **options)
        program.run({n: a for built, _ in chains for n, a in poisoned(built).items()})
        wrong: dict[Case, Verdict] = {}
        for size in (*sizes[1:], sizes[0]):
            builts = [made[built.chain.prefix][size] for built, _ in chains]
            found = program.run({n: a for built in builts for n, a in built.chain.inputs.items()})
            for built in builts:
                if (said := verdict(built, found, oracle(built, built.chain.outputs), f"batch {size}: ")) is not None:
                    wrong.setdefault(built.case, said)
        empty = program.run({n: a[:0] if n in built.chain.batched else a for built, _ in chains for n, a in built.chain.inputs.items()})
        for built, expected in chains:
            for name, array in expected.items():
                if empty[name].dtype != array.dtype or empty[name].ndim != array.ndim:
                    wrong.setdefault(built.case, Verdict(built.case, "wrong", f"no rows give {empty[name].dtype}{list(empty[name].shape)}"))
        return [wrong.get(built.case, Verdict(built.case, "agrees")) for built, _ in chains]

    return told + bisected(chains, attempt)


# -- bodies


@dataclass
class Turns:
    """A chain for each turn of a loop: the same nodes, another first input."""

    built: Built
    first: str
    arrays: list[Array]
    expected: dict[str, Array] = field(default_factory=dict[str, Array])


def turns_of(built: Built, count: int) -> Turns:
    """Makes the inputs of the turns: x, -x, x; integers are turned round instead. Raises NoOracle."""
    c = built.chain
    name = next(iter(c.inputs))
    x = c.inputs[name]
    other = -x if x.dtype.kind == "f" else np.invert(x)
    made = Turns(built, name, [(x, other)[i % 2] for i in range(count)])
    found: list[dict[str, Array]] = []
    for a in made.arrays:
        c.inputs[name] = a
        found.append(oracle(built, c.outputs))
    c.inputs[name] = x
    made.expected = {n: np.stack([f[n] for f in found]) for n in c.outputs}
    return made


def body(turns: Turns, kind: str) -> tuple[list[object], list[object], list[object], list[object]]:
    """Gives nodes, inputs, outputs and constants of a Loop or Scan around a chain, whose other inputs it reads from outside."""
    c, first = turns.built.chain, turns.first
    p, typed, inner = c.prefix, helper.np_dtype_to_tensor_dtype(c.types[first]), f"{first}.turn"
    nodes = []
    for node in c.nodes:
        copy = type(node)()
        copy.CopyFrom(node)
        copy.input[:] = [inner if n == first else n for n in node.input]
        nodes.append(copy)
    shape = list(turns.arrays[0].shape)
    collected = [f"{n}.all" for n in c.outputs]
    ends = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(c.types[n]), None) for n in c.outputs]
    stacked = [helper.make_tensor_value_info(f"{n}.all", helper.np_dtype_to_tensor_dtype(c.types[n]), None) for n in c.outputs]
    carried = helper.make_tensor_value_info(inner, typed, shape)
    others = [info(n, a) for n, a in c.inputs.items() if n != first]
    constants: list[object] = [numpy_helper.from_array(a, n) for n, a in c.constants.items()]
    if kind == "Scan":
        graph = helper.make_graph(nodes, "body", [carried], ends)
        scan = helper.make_node("Scan", [first], collected, f"{p}scan", body=graph, num_scan_inputs=1)
        return [scan], [helper.make_tensor_value_info(first, typed, [len(turns.arrays), *shape]), *others], stacked, constants
    nodes.append(helper.make_node("Neg" if c.types[first].kind == "f" else "BitwiseNot", [inner], [f"{inner}.next"]))
    nodes.append(helper.make_node("Identity", [f"{p}go"], [f"{p}go.next"]))
    boolean = helper.make_tensor_value_info(f"{p}go.next", TensorProto.BOOL, [])
    graph = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info(f"{p}turn", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{p}go", TensorProto.BOOL, []),
            carried,
        ],
        [boolean, helper.make_tensor_value_info(f"{inner}.next", typed, shape), *ends],
    )
    constants += [
        numpy_helper.from_array(np.array(len(turns.arrays), np.int64), f"{p}count"),
        numpy_helper.from_array(np.array(True), f"{p}yes"),
    ]
    loop = helper.make_node("Loop", [f"{p}count", f"{p}yes", first], [f"{p}last", *collected], f"{p}loop", body=graph)
    return [loop], [info(first, turns.arrays[0]), *others], stacked, constants


def judge_bodies(cases: Sequence[Case], kind: str) -> list[Verdict]:
    """Judges cases as bodies of loops of three turns."""
    told: list[Verdict] = []
    made: dict[str, Turns] = {}
    chains: list[tuple[Built, dict[str, Array]]] = []
    for i, case in enumerate(cases):
        built = build(case, f"k{i}_")
        try:
            made[built.chain.prefix] = turns = turns_of(built, 3)
        except NoOracle as error:
            told.append(Verdict(case, "no oracle", str(error)))
            continue
        chains.append((built, turns.expected))

    def attempt(chains: Chains) -> list[Verdict]:
        parts = [body(made[built.chain.prefix], kind) for built, _ in chains]
        nodes, ins, outs, constants = ([x for part in parts for x in part[i]] for i in range(4))
        graph = helper.make_graph(nodes, "triples", ins, outs, constants)
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        inputs: dict[str, Array] = {}
        for built, _ in chains:
            turns = made[built.chain.prefix]
            inputs |= built.chain.inputs
            if kind == "Scan":
                inputs[turns.first] = np.stack(turns.arrays)
        found = populus.compile(model, engine="native").run(inputs)
        return [_of_turns(made[built.chain.prefix], found) for built, _ in chains]

    return told + bisected(chains, attempt)


def _of_turns(turns: Turns, found: dict[str, Array]) -> Verdict:
    built = turns.built
    x = built.chain.inputs[turns.first]
    try:
        for i, a in enumerate(turns.arrays):
            built.chain.inputs[turns.first] = a
            here = {n: found[f"{n}.all"][i] for n in built.chain.outputs}
            if (said := verdict(built, here, {n: e[i] for n, e in turns.expected.items()}, f"turn {i}: ")) is not None:
                return said
    finally:
        built.chain.inputs[turns.first] = x
    return Verdict(built.case, "agrees")


# -- states and built programs


def with_state(built: Built) -> tuple[str, str, str]:
    """Adds a state to a chain, which the value in the middle replaces, and an output that joins both. Gives the names of the three."""
    c = built.chain
    state, shown = f"{c.prefix}state", f"{c.prefix}shown"
    c.types |= {state: c.types[built.middle], shown: c.types[built.middle]}
    c.nodes.append(helper.make_node("Concat", [state, built.middle], [shown], axis=-1))
    return state, built.middle, shown


def judge_states(cases: Sequence[Case]) -> list[Verdict]:
    """Judges cases whose value in the middle is kept for the next run, in two runs on other inputs, and in a third after `reset`."""
    told: list[Verdict] = []
    chains: list[tuple[Built, dict[str, Array]]] = []
    for i, case in enumerate(cases):
        built = build(case, f"k{i}_")
        if built.middle in built.chain.outputs or built.case.layout == "none":
            told.append(Verdict(case, "no state", "the value in the middle is an output"))
            continue
        try:
            chains.append((built, oracle(built, [*built.chain.outputs, built.middle])))
        except NoOracle as error:
            told.append(Verdict(case, "no oracle", str(error)))

    def attempt(chains: Chains) -> list[Verdict]:
        builts = [build(built.case, built.chain.prefix) for built, _ in chains]
        names = [with_state(built) for built in builts]
        outputs = [n for built in builts for n in built.chain.outputs]
        model = model_of([b.chain for b in builts], [*outputs, *(n for _, m, s in names for n in (m, s))])
        values = {s: expected[m] for (s, m, _), (_, expected) in zip(names, chains)}
        model.graph.input.extend([info(s, a) for s, a in values.items()])
        program = populus.compile(model, engine="native").stateful({s: m for s, m, _ in names})
        inputs = {n: a for built in builts for n, a in built.chain.inputs.items()}
        first = program.run(inputs)
        second = program.run(inputs)
        program.reset()
        third = program.run(inputs)
        told: list[Verdict] = []
        for (built, expected), (_, middle, shown) in zip(chains, names):
            said = verdict(built, second, expected, "second run: ") or verdict(built, first, expected, "first run: ")
            kept = np.split(second[shown], 2, -1)
            begun = np.split(first[shown], 2, -1)
            if said is None and (
                kept[0].tobytes() != begun[1].tobytes() or begun[0].any() or third[shown].tobytes() != first[shown].tobytes()
            ):
                said = Verdict(built.case, "wrong", "a state has another value than the run before gave")
            if said is None:
                alone = Built(built.case, built.chain, built.middle, built.behind, built.result, built.shape)
                alone.chain.outputs = [middle]
                said = verdict(alone, {middle: begun[1]}, expected, "what is kept: ")
            told.append(said or Verdict(built.case, "agrees"))
        return told

    return told + bisected(chains, attempt)


def attempt_built(chains: Chains) -> list[Verdict]:
    """Runs chains as a library that `populus build` writes, with one thread and with two."""
    inputs = {n: a for built, _ in chains for n, a in built.chain.inputs.items()}
    program = populus.compile(model_of([built.chain for built, _ in chains]), engine="native")
    with tempfile.TemporaryDirectory() as folder:
        populus.build(program, folder)
        one, two = (populus.load_program(folder, threads=t).run(inputs) for t in (1, 2))
    told = []
    for built, expected in chains:
        said = verdict(built, one, expected)
        if said is None and any(one[n].tobytes() != two[n].tobytes() for n in built.chain.outputs):
            said = Verdict(built.case, "threads", "two threads give other bits than one")
        told.append(said or Verdict(built.case, "agrees"))
    return told


@dataclass(frozen=True)
class Form:
    """`part`: one case of so many of the list is judged in this form too."""

    name: str
    judge: Callable[[Sequence[Case]], list[Verdict]]
    part: int = 1

    def share(self, cases: Sequence[Case]) -> list[Case]:
        """Gives the cases of a list that are judged in this form."""
        return [case for case in cases if digest(self.name + str(case)) % self.part == 0]


FORMS = {
    form.name: form
    for form in (
        Form("plain", judge),
        Form("gradient", judge_gradients, 20),
        Form("leak", partial(judge_gradients, leaks=True), 60),
        Form("bounded", partial(judge_open, bounded=True), 60),
        Form("buckets", partial(judge_open, bounded=False), 120),
        Form("loop", partial(judge_bodies, kind="Loop"), 120),
        Form("scan", partial(judge_bodies, kind="Scan"), 120),
        Form("state", judge_states, 120),
        Form("built", partial(judge, attempt=attempt_built), 120),
    )
}
