"""Draws in proportion to weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from tasks.sampling.walks.alias import alias_table, draw_many
from tasks.sampling.walks.steps import WeightedSteps, weighted_edge


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
