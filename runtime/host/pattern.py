"""Regular expressions that match in time proportional to the text, by simulation of a nondeterministic automaton.

The syntax is the intersection of RE2 and Python: literals, classes, groups, `|`, `* + ?` and `{m,n}` (up to 1,000),
anchors, `\\b`, flags `i s`. Like RE2, it has no back references and no lookaround. Source: Thompson, "Regular
expression search algorithm" (1968).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from populus.dialects.support.diagnostics import PopulusError

MOST_REPEATS = 1000  # as in RE2
MOST_STATES = 100_000

# CPython's own parser of patterns, which has no public name; it returns (kind, value) pairs.
c: Any = import_module("re._constants")
parse: Any = import_module("re._parser").parse

Test = Callable[[str], bool]


@dataclass
class _State:
    """A state of the automaton: a test of one character, an assertion about a position, or a fork; and the next states."""

    test: Test | None = None
    at: Callable[[str, int], bool] | None = None
    next: tuple[int, ...] = ()


class RegularExpression:
    """A compiled pattern. Raises PopulusError for one outside the syntax, or too large."""

    def __init__(self, text: str):
        self.text = text
        self.states: list[_State] = []
        try:
            parsed = parse(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise PopulusError(f"the pattern '{text}' cannot be read: {error}") from error
        self.flags = int(parsed.state.flags)
        end = self._state(_State())
        self.start = self._sequence(list(parsed), end, self.flags)
        self.end = end

    def matches(self, text: str) -> bool:
        """Tells if the whole text matches."""
        present = self._closure([self.start], text, 0)
        for i, character in enumerate(text):
            present = self._step(present, text, i, character)
            if not present:
                return False
        return self.end in present

    def find_all(self, text: str) -> list[str]:
        """Lists the leftmost-longest matches, without overlap and without empty ones."""
        matches: list[str] = []
        i = 0
        while i < len(text):
            longest, present = i, self._closure([self.start], text, i)
            k = i
            while present and k < len(text):
                present = self._step(present, text, k, text[k])
                k += 1
                if self.end in present:
                    longest = k
            if longest > i:
                matches.append(text[i:longest])
            i = max(longest, i + 1)
        return matches

    def _step(self, present: set[int], text: str, i: int, character: str) -> set[int]:
        moved = [n for s in present if (test := self.states[s].test) is not None and test(character) for n in self.states[s].next]
        return self._closure(moved, text, i + 1)

    def _closure(self, waiting: list[int], text: str, i: int) -> set[int]:
        """Gives the states that are reached from `waiting` at a position without reading a character."""
        reached: set[int] = set()
        waiting = list(waiting)
        while waiting:
            s = waiting.pop()
            if s in reached:
                continue
            reached.add(s)
            state = self.states[s]
            if state.test is None and (state.at is None or state.at(text, i)):
                waiting.extend(state.next)
        return reached

    def _state(self, state: _State) -> int:
        if len(self.states) >= MOST_STATES:
            raise PopulusError(f"the pattern '{self.text[:40]}' is too large: it has more than {MOST_STATES} steps")
        self.states.append(state)
        return len(self.states) - 1

    def _sequence(self, nodes: list[Any], following: int, flags: int) -> int:
        for kind, value in reversed(nodes):
            following = self._node(kind, value, following, flags)
        return following

    def _node(self, kind: Any, value: Any, following: int, flags: int) -> int:
        """Builds the states of a node that continues with `following`; returns the first."""
        match kind:
            case c.LITERAL | c.NOT_LITERAL | c.ANY | c.IN:
                return self._state(_State(_test(kind, value, flags), None, (following,)))
            case c.BRANCH:
                return self._state(_State(next=tuple(self._sequence(list(b), following, flags) for b in value[1])))
            case c.SUBPATTERN:
                _, add, remove, body = value
                return self._sequence(list(body), following, (flags | add) & ~remove)
            case c.MAX_REPEAT | c.MIN_REPEAT:
                least, most, body = value
                return self._repeat(least, most, list(body), following, flags)
            case c.AT:
                return self._state(_State(at=_position(value, flags, self.text), next=(following,)))
            case _:
                said = f"{str(kind).lower()}, which takes more than linear time; RE2 has no such thing"
                raise PopulusError(f"the pattern '{self.text}' has {said}")

    def _repeat(self, least: int, most: Any, nodes: list[Any], following: int, flags: int) -> int:
        endless = bool(most == c.MAXREPEAT)
        if least > MOST_REPEATS or (not endless and int(most) > MOST_REPEATS):
            raise PopulusError(f"the pattern '{self.text}' repeats more than {MOST_REPEATS} times")
        if endless:
            loop = self._state(_State())
            self.states[loop].next = (self._sequence(nodes, loop, flags), following)
            following = loop
        else:
            last = following
            for _ in range(int(most) - least):
                following = self._state(_State(next=(self._sequence(nodes, following, flags), last)))
        for _ in range(least):
            following = self._sequence(nodes, following, flags)
        return following


def _test(kind: Any, value: Any, flags: int) -> Test:
    fold = bool(flags & re.IGNORECASE)

    def same(character: str, code: int) -> bool:
        return ord(character) == code or (fold and character.lower() == chr(code).lower())

    if kind == c.LITERAL:
        return lambda character: same(character, value)
    if kind == c.NOT_LITERAL:
        return lambda character: not same(character, value)
    if kind == c.ANY:
        return (lambda character: True) if flags & re.DOTALL else (lambda character: character != "\n")
    items: list[tuple[Any, Any]] = list(value)
    negate = bool(items[0][0] == c.NEGATE)
    del items[: int(negate)]

    def one(character: str) -> bool:
        cases = (character, character.lower(), character.upper()) if fold else (character,)
        return any(_in(item, other, same) for item in items for other in cases)

    return (lambda character: not one(character)) if negate else one


def _in(item: tuple[Any, Any], character: str, same: Callable[[str, int], bool]) -> bool:
    kind, value = item
    if kind == c.LITERAL:
        return same(character, value)
    if kind == c.RANGE:
        return len(character) == 1 and value[0] <= ord(character) <= value[1]
    return _CATEGORIES[value](character)


def _word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())


def _space(character: str) -> bool:
    return character in " \t\n\f\r"


def _digit(character: str) -> bool:
    return character.isascii() and unicodedata.category(character) == "Nd"


# As in RE2, classes contain only ASCII characters.
_CATEGORIES: dict[Any, Test] = {
    c.CATEGORY_DIGIT: _digit,
    c.CATEGORY_NOT_DIGIT: lambda x: not _digit(x),
    c.CATEGORY_SPACE: _space,
    c.CATEGORY_NOT_SPACE: lambda x: not _space(x),
    c.CATEGORY_WORD: _word,
    c.CATEGORY_NOT_WORD: lambda x: not _word(x),
}


def _boundary(text: str, i: int) -> bool:
    return (i > 0 and _word(text[i - 1])) != (i < len(text) and _word(text[i]))


def _position(kind: Any, flags: int, pattern: str) -> Callable[[str, int], bool]:
    lines = bool(flags & re.MULTILINE)
    match kind:
        case c.AT_BEGINNING:
            return lambda text, i: i == 0 or (lines and text[i - 1] == "\n")
        case c.AT_BEGINNING_STRING:
            return lambda text, i: i == 0
        case c.AT_END:
            return lambda text, i: i == len(text) or (lines and text[i] == "\n")
        case c.AT_END_STRING:
            return lambda text, i: i == len(text)
        case c.AT_BOUNDARY:
            return _boundary
        case c.AT_NON_BOUNDARY:
            return lambda text, i: not _boundary(text, i)
        case _:
            raise PopulusError(f"the pattern '{pattern}' has {kind}, which is not supported")
