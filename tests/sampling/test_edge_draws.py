"""Draws in proportion to weights, passes over edges, and degrees."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

from tasks.arrays import Array
from tasks.sampling.degrees import degrees, warn_of_isolated
from tasks.sampling.walks.alias import EdgePasses, alias_table, draw_many
from tasks.sampling.walks.steps import WeightedSteps, weighted_edge
from tests.ranked_shop import store_of
from tests.support import ArrayWriter, finish


def expect_counts(counts: Any, shares: Any) -> None:
    """Compare counts of independent draws with the shares that they should have, to five standard deviations."""
    total = counts.sum()
    spread = np.sqrt(total * shares * (1 - shares))
    assert (np.abs(counts - total * shares) <= 5 * spread + 1e-6).all()


@pytest.mark.parametrize(
    "weights",
    [
        [1.0],
        [0.0, 2.0, 0.0],
        [1.0, 1.0, 1.0, 1.0],
        list(range(1, 38)),
        [1e-30, 1.0, 1e6, 3.0],
        list(1 / np.arange(1, 1001) ** 1.5),
    ],
)
def test_draws_are_in_proportion_to_weights(weights: list[float]) -> None:
    table = alias_table(np.array(weights))
    drawn = np.empty(400_000, np.int32)
    draw_many(table, np.uint64(12345), drawn)
    expect_counts(np.bincount(drawn, minlength=len(weights)), np.array(weights) / sum(weights))


@pytest.mark.parametrize("weights", [np.arange(50.0) ** 4, [0.0, 3.0, 0.0], [1.0], [1e-12, 1e12]])
def test_places_hold_the_chances_that_weights_ask_for(weights: Any) -> None:
    table = alias_table(np.array(weights))
    own = (table >> np.uint64(32)) / 2**32
    chance = own.copy()
    np.add.at(chance, (table & np.uint64(2**32 - 1)).astype(np.int64), 1 - own)
    np.testing.assert_allclose(chance / len(table), np.array(weights) / np.sum(weights), atol=2**-31)


def test_draws_depend_on_the_state_alone() -> None:
    table, together, apart = alias_table(np.arange(1, 9.0)), np.empty(100, np.int64), np.empty(100, np.int64)
    draw_many(table, np.uint64(7), together)
    state = draw_many(table, np.uint64(7), apart[:33])
    draw_many(table, np.uint64(state), apart[33:])
    assert (together == apart).all()


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_unfit_weights(weights: list[float]) -> None:
    with pytest.raises(ValueError, match=r"alias table has|must be finite"):
        alias_table(np.array(weights))


@njit
def _steps(v, low, degree, weight, largest, first, tables, count):  # type: ignore[no-untyped-def]
    counts, state = np.zeros(degree, np.int64), np.uint64(99)
    for _ in range(count):
        at, state = weighted_edge(v, low, degree, weight, largest, first, tables, state)
        counts[at - low] += 1
    return counts


def test_steps_by_weight() -> None:
    """Weights of one order take rejection, skewed ones a table; both draw in proportion."""
    even, skewed = np.linspace(1, 2, 20), np.array([1e-3] * 30 + [5.0, 0.0])
    weight = np.concatenate([even, skewed, [0.0, 0.0]]).astype(np.float32)
    indptr = np.array([0, 20, 52, 54, 54])
    steps = WeightedSteps.make(indptr, weight)
    assert steps.first.tolist() == [-1, 0, -1, -1]
    assert len(steps.tables) == 32
    assert steps.largest.tolist() == [2, 5, 0, 0]
    for v in (0, 1):
        low, high = indptr[v], indptr[v + 1]
        counts = _steps(v, low, high - low, steps.weight, steps.largest, steps.first, steps.tables, 200_000)
        expect_counts(counts, weight[low:high].astype(np.float64) / weight[low:high].astype(np.float64).sum())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_unfit_edge_weights(bad: float) -> None:
    with pytest.raises(ValueError, match="edge weights must be finite"):
        WeightedSteps.make(np.array([0, 2]), np.array([1.0, bad], np.float32))


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


@pytest.mark.parametrize(("symmetric", "expected"), [(True, [0, 1, 2, 0]), (False, [1, 2, 3, 0])])
def test_nodes_without_an_edge_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], symmetric: bool, expected: list[int]
) -> None:
    """Edges 0-2, 1-2, 2-1: nothing goes to node 0, and only node 3 has no edge in a directed graph."""
    writer = ArrayWriter(tmp_path)
    writer.write("csc_indptr", np.array([0, 0, 1, 3, 3]))
    writer.write("csc_indices", np.array([2, 0, 1], np.int32))
    writer.write("csr_indptr", np.array([0, 1, 2, 3, 3]))
    store = store_of(finish(tmp_path, writer, num_nodes=4, num_edges=3, symmetric=symmetric))
    assert degrees(store).tolist() == expected
    warn_of_isolated(store, "their vectors say nothing")
    assert f"warning: {expected.count(0)} of 4 nodes have no edge" in capsys.readouterr().out
