"""Pairs and their marks, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.pair_set import PairSet

LARGE = 2**31  # nodes: numbers of pairs are near the end of int64


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_pairs_and_marks(directed: bool, kind: type) -> None:
    rng = np.random.default_rng(0)
    far = 0 if kind is np.int32 else LARGE - 40
    added, marked, asked = (rng.integers(far, far + 40, (2, 300)).astype(kind) for _ in range(3))
    expected: dict[tuple[int, int], int] = {}

    def name(u: int, v: int) -> tuple[int, int]:
        return (u, v) if directed else (min(u, v), max(u, v))

    for u, v in added.T.tolist():
        expected[name(u, v)] = 1
    for pair in {name(u, v) for u, v in marked.T.tolist()} & expected.keys():
        expected[pair] |= 4
    found = PairSet(300, LARGE, directed=directed)
    found.add(*added, 1)
    found.mark(*marked, 4)
    assert found.marks(*asked).tolist() == [expected.get(name(u, v), 0) for u, v in asked.T.tolist()]
    assert (found.count(1), found.count(4)) == (len(expected), sum(marks == 5 for marks in expected.values()))
    assert set(zip(*(ends.tolist() for ends in found.pairs()), strict=True)) == set(expected)
    rest = zip(*(ends.tolist() for ends in found.pairs(without=4)), strict=True)
    assert set(rest) == {pair for pair, marks in expected.items() if marks == 1}


def test_an_empty_set() -> None:
    nothing = np.empty(0, np.int32)
    found = PairSet(0, 5, directed=True)
    found.add(nothing, nothing, 1)
    assert found.marks(np.array([1]), np.array([2])).tolist() == [0]
    assert [len(ends) for ends in found.pairs()] == [0, 0]
