"""Results that are made once: what a pass leaves alone is not proved again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, TypeVarTuple, cast

from populus.dialects.poplar.affine import Composed, Map, Set

T = TypeVar("T")
Operands = TypeVarTuple("Operands")


class Once:
    """Results by a key and by objects, which are told apart by identity. It keeps the objects, so no id is ever another's."""

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[tuple[object, ...], Any]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def of(self, key: Hashable, objects: tuple[object, ...], make: Callable[[], T]) -> T:
        """Returns the result for a key and objects, which `make` computes once. An exception of `make` is not kept."""
        full = (key, *map(id, objects))
        found = self._found.get(full)
        if found is None:
            found = self._found[full] = (objects, make())
        return cast("T", found[1])


class Algebra:
    """Operations of sets and maps, each done once for equal operands: layers of one shape ask for the same ones.

    Operands are looked up by identity first, as isl takes longer to tell that two are equal.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, Any] = {}
        self._one: dict[Any, Any] = {}
        self._same: dict[Hashable, tuple[tuple[object, ...], Any]] = {}  # with the operands, so no id is ever another's

    def __len__(self) -> int:
        return len(self._found)

    def __call__(self, operation: Callable[[*Operands], T], *operands: *Operands) -> T:
        same = (operation, *map(id, operands))
        if (known := self._same.get(same)) is None:
            key = (operation, *operands)
            found = self._found.get(key, self)
            if found is self:
                found = operation(*operands)
                if isinstance(found, (Map, Set)):
                    found = self._one.setdefault((type(found), str(found.get_space()), found), found)  # equal ones are one object
                self._found[key] = found
            known = self._same[same] = (operands, found)
        return cast("T", known[1])


class Sets:
    """Facts of sets and maps, whatever program has them: `do`, `once` of claims about memory, and the maps of views."""

    def __init__(self) -> None:
        self.do, self.once, self.composed = Algebra(), Once(), Composed()


_SHARED = [Sets()]
MOST = 1 << 16  # operations that are kept after a proof


def shared() -> Sets:
    """Returns what this process knows of sets: of proofs before, unless they were many. Layers of one shape ask for the same."""
    if len(_SHARED[0].do) + len(_SHARED[0].once) > MOST:
        _SHARED[0] = Sets()
    return _SHARED[0]


class Memo(Generic[T]):
    """Results by a key and maps, which are compared as sets."""

    def __init__(self) -> None:
        self._found: dict[object, list[tuple[tuple[Map, ...], T]]] = {}

    def of(self, key: object, maps: tuple[Map, ...], make: Callable[[], T]) -> T:
        """Returns the result for a key and maps, which `make` computes once."""
        found = self._found.setdefault(key, [])
        for others, result in found:
            if all(a is b or a.is_equal(b) for a, b in zip(maps, others)):
                return result
        result = make()
        found.append((maps, result))
        return result
