"""Edges in passes: the same order always, each as often as its weight says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tasks.arrays import Array
from tasks.sampling.walks.edge_passes import EdgePasses


def graph(num_nodes: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """indptr, indices and weights of random out-edges, some nodes without."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], rng.integers(0, 9, num_nodes).cumsum()])
    indices = rng.integers(num_nodes, size=indptr[-1], dtype=np.int32)
    return indptr, indices, (rng.random(len(indices)) ** 3).astype(np.float32)


def taken(passes: EdgePasses, first: int, count: int) -> Array:
    ends = np.empty((2, count), np.int32)
    return ends[:, : passes.fill(first, count, *ends)]


def counts(pairs: Array, indptr: Array, indices: Array) -> Array:
    """How often each of the graph's pairs is there, several edges of one pair together; (pairs of nodes,)."""
    num_nodes = len(indptr) - 1
    return np.bincount(pairs[0].astype(np.int64) * num_nodes + pairs[1], minlength=num_nodes**2)


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_come_as_often_as_their_weights_say(weighted: bool) -> None:
    indptr, indices, weight = graph(60)
    weight[::7] = 0
    weight[3] *= 20  # more than once in every pass
    passes = EdgePasses(indptr, indices, key=3, weight=weight if weighted else None)
    number = 50
    found = counts(taken(passes, 0, number * len(passes)), indptr, indices)
    sources = np.repeat(np.arange(60), np.diff(indptr))
    weight = weight.astype(np.float64) if weighted else np.ones(len(indices))
    wanted = np.bincount(sources * 60 + indices, weights=weight, minlength=3600)
    wanted *= number * passes.mean_share * len(passes) / wanted.sum()
    entries = np.bincount(sources * 60 + indices, np.ceil(weight * wanted.sum() / number / weight.sum()), 3600)
    assert (np.abs(found - wanted) <= entries + 1e-6).all()  # give or take one for each entry
    assert passes.mean_share == pytest.approx(1.0 if not weighted else passes.shares.mean(), rel=1e-6)


def test_parts_of_passes_come_together_as_the_whole() -> None:
    indptr, indices, weight = graph(40)
    passes = EdgePasses(indptr, indices, key=5, weight=weight)
    whole = taken(passes, 0, 4 * len(passes) + 3)
    cuts = [0, 7, 8, 300, 4 * len(passes) + 3]
    parts = [taken(passes, low, high - low) for low, high in itertools.pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts, 1), whole)
    again = taken(EdgePasses(indptr, indices, key=5, weight=weight), 0, 4 * len(passes) + 3)
    np.testing.assert_array_equal(again, whole)


def test_the_order_is_random_and_of_the_key() -> None:
    indptr = np.arange(0, 30_001, 10)
    indices = np.tile(np.arange(10, dtype=np.int32), 3000)
    first, other = (taken(EdgePasses(indptr, indices, key=key), 0, 30_000)[0] for key in (1, 2))
    assert (np.sort(first) == np.sort(other)).all()
    places = np.arange(30_000)
    for heads in (first, other):
        assert abs(np.corrcoef(heads, places)[0, 1]) < 0.03
        assert abs(np.corrcoef(heads[1:], heads[:-1])[0, 1]) < 0.03
    assert (first == other).mean() < 0.01


def test_large_numbers_of_passes_count_exactly() -> None:
    indptr, indices, weight = graph(20)
    passes = EdgePasses(indptr, indices, key=1, weight=weight)
    late = sum(taken(passes, number * len(passes), len(passes)).shape[1] for number in range(10**7, 10**7 + 200))
    assert late == pytest.approx(200 * passes.mean_share * len(passes), abs=len(passes))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_weights_that_are_not_fit_are_refused(bad: float) -> None:
    indptr, indices, weight = graph(20)
    weight[4] = bad
    with pytest.raises(ValueError, match="finite, none below 0"):
        EdgePasses(indptr, indices, key=1, weight=weight)
    with pytest.raises(ValueError, match="one at least above 0"):
        EdgePasses(indptr, indices, key=1, weight=np.zeros_like(weight))
    with pytest.raises(ValueError, match="no edges"):
        EdgePasses(np.zeros(4, np.int64), indices[:0], key=1)
