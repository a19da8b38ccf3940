"""Mutations of IR text: each takes the text's lines and a generator, and changes the lines in one place.

An IndexError, ValueError or AttributeError says that the text has nothing of that kind.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

Mutation: TypeAlias = Callable[[list[str], random.Random], None]
VALUE, OP = r"%[\w.]+", r"\b[a-z]\w*\.[a-z]\w*\b"
ELEMENTS = ("f32", "f16", "i32", "i64", "ui8", "i8", "i1", "f64", "bf16")
ODD = ("true", "unit", "[]", "{}", "-1", "1.0e+39", "0x7FC00000", '""', "dense<>", "none", "!", "%", "@main", "()", "tensor<*xf32>")


def changed(lines: list[str], rng: random.Random, mutations: Sequence[Mutation]) -> str:
    """Applies one to three mutations, and gives the text."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        try:
            rng.choice(mutations)(lines, rng)
        except (IndexError, ValueError, AttributeError):
            continue  # the text has nothing of that kind
    return "\n".join(lines)


def number(lines: list[str], rng: random.Random) -> None:
    """Changes one number."""
    at, match = pick(lines, rng, r"(?<![\w%#.])\d+(?![\w.]*\w*\")")
    n = int(match[0])
    other = rng.choice([n + 1, n - 1, 0, 1, 2 * n, n // 2, rng.randint(0, 70), -n, 2**31, 2**63])
    lines[at] = lines[at][: match.start()] + str(other) + lines[at][match.end() :]


def size(lines: list[str], rng: random.Random) -> None:
    """Changes a number wherever it stands, so that types stay consistent."""
    _, match = pick(lines, rng, r"(?<=[<x(\[ ])\d+(?=[x, \])])")
    n = int(match[0])
    other = str(rng.choice([n + 1, max(n - 1, 0), 2 * n, rng.randint(1, 9)]))
    for i, line in enumerate(lines):
        lines[i] = re.sub(rf"(?<=[<x(\[ =]){n}(?=[x, \])]|$)", other, line)


def swapped(pattern: str) -> Callable[[list[str], random.Random], None]:
    """Makes the mutation that exchanges two matches of a pattern in one line."""

    def change(lines: list[str], rng: random.Random) -> None:
        rows = [i for i, line in enumerate(lines) if len(set(re.findall(pattern, line))) > 1]
        i = rng.choice(rows)
        first, second = sorted(rng.sample(list(re.finditer(pattern, lines[i])), 2), key=lambda m: m.start())
        line = lines[i]
        lines[i] = line[: first.start()] + second[0] + line[first.end() : second.start()] + first[0] + line[second.end() :]

    return change


def access(lines: list[str], rng: random.Random) -> None:
    """Replaces the access to one dimension."""
    rows = [i for i, line in enumerate(lines) if re.match(r"\s+(in|out|inout) ", line)]
    i = rng.choice(rows)
    head, inside, tail = re.fullmatch(r"(.*?= %[\w.]+\[)(.*?)(\].*)", lines[i]).groups()  # type: ignore[union-attr]
    accesses = inside.split(", ")
    axes = re.findall(r"[a-z]\w*", " ".join(lines[j] for j in rows)) or ["d0"]
    axis = rng.choice(["d0", "d1", "r", "k", "k0", "o0", "g", "m", "n", rng.choice(axes)])
    new = [axis, "*", f"at {axis}", str(rng.randint(0, 3)), f"{axis} * 2", f"{axis} + 1", f"{axis} + {rng.choice(['d0', 'k0', 'o0'])}"]
    accesses[rng.randrange(len(accesses))] = rng.choice(new)
    lines[i] = head + ", ".join(accesses) + tail


def replaced(pattern: str, others: tuple[str, ...]) -> Callable[[list[str], random.Random], None]:
    """Makes the mutation that replaces a match of a pattern by one of `others`."""

    def change(lines: list[str], rng: random.Random) -> None:
        at, match = pick(lines, rng, pattern)
        lines[at] = lines[at][: match.start()] + rng.choice(others) + lines[at][match.end() :]

    return change


def line(lines: list[str], rng: random.Random) -> None:
    """Drops, repeats or moves a line."""
    i = rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            del lines[i]
        case 1:
            lines.insert(i, lines[i])
        case _:
            lines.insert(rng.randrange(len(lines)), lines.pop(i))


def pick(lines: list[str], rng: random.Random, pattern: str) -> tuple[int, re.Match[str]]:
    found = [(i, m) for i, line in enumerate(lines) for m in re.finditer(pattern, line)]
    return rng.choice(found)


def operand(lines: list[str], rng: random.Random) -> None:
    """Replaces an operand by another value of the program."""
    values = sorted({v for line in lines for v in re.findall(VALUE, line)})
    replaced(VALUE, tuple(values))(lines, rng)


def op(lines: list[str], rng: random.Random) -> None:
    """Replaces the name of an op by that of another."""
    names = sorted({v for line in lines for v in re.findall(OP, line)})
    replaced(OP, tuple(names))(lines, rng)


def attribute(lines: list[str], rng: random.Random) -> None:
    """Drops an attribute, or gives it the value of another."""
    pattern = r"\b\w+ = (?!%)[^,{}=]+(?:, )?"
    at, match = pick(lines, rng, pattern)
    _, other = pick(lines, rng, pattern)
    name, value = match[0].partition(" = ")[0], other[0].partition(" = ")[2]
    new = rng.choice(["", f"{name} = {value}", f"{name} = {rng.choice(ODD)}"])
    lines[at] = lines[at][: match.start()] + new + lines[at][match.end() :]


def token(lines: list[str], rng: random.Random) -> None:
    """Drops, repeats or replaces one token."""
    at, match = pick(lines, rng, r"[\w.%@!#]+|[^\w\s]")
    _, other = pick(lines, rng, r"[\w.%@!#]+|[^\w\s]")
    new = rng.choice(["", match[0] * 2, other[0], rng.choice(ODD)])
    lines[at] = lines[at][: match.start()] + new + lines[at][match.end() :]


def shape(lines: list[str], rng: random.Random) -> None:
    """Replaces the shape of one tensor type."""
    sizes = [str(rng.choice([0, 1, 1, 2, 3, 4, 7, 2**33, 2**63])) for _ in range(rng.choice([0, 1, 2, 3, 4, 5]))]
    at, match = pick(lines, rng, r"(?<=tensor<)(?:\d+x)*(?=\w+>)")
    lines[at] = lines[at][: match.start()] + "".join(f"{n}x" for n in sizes) + lines[at][match.end() :]
