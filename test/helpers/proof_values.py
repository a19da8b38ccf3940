"""Numbers of terms whose inputs are arrays, for tests that hold meanings against runs."""

from __future__ import annotations

import numpy as np

from populus.dialects.poplar.affine import read_set
from populus.proof.equivalence import Values
from populus.proof.terms import Terms


class Given(Values):
    """Numbers for terms whose inputs are arrays."""

    def __init__(self, terms: Terms, arrays: dict[str, np.ndarray]):
        super().__init__(terms)
        self.arrays = arrays

    def input(self, node, key) -> np.generic:
        value = self.arrays[node.params[0]][key[1]]
        return np.float64(value) if node.params[-1] is True else np.bool_(value) if value.dtype == bool else np.int64(value)


def unlike(terms: Terms, results, expected: dict[str, np.ndarray], inputs: dict[str, np.ndarray], most: int) -> list[str]:
    """Compares some elements of outputs, by their terms and as they are expected."""
    wrong: list[str] = []
    for output, want in expected.items():
        pieces, shape = results[output]
        assert shape == want.shape, (output, shape, want.shape)
        for flat in np.random.default_rng(0).permutation(want.size)[:most]:
            point = tuple(int(i) for i in np.unravel_index(flat, shape))
            at = read_set(f"{{ [{', '.join(map(str, point))}] }}")
            [piece] = [p for p in pieces if not p.elements.is_disjoint(at)]
            have = float(Given(terms, inputs).tree(piece.tree, point))
            if not np.isclose(have, float(want[point]), rtol=2e-3, atol=1e-6):
                wrong.append(f"{output}{list(point)}: {have} is meant, {want[point]} is expected")
    return wrong
