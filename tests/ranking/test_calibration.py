"""Probabilities of completions: fitted to what held in validation, and never the lower the better the score."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from tasks.ranking.calibration import fit_calibration
from tasks.ranking.entities import TableBlocks
from tasks.ranking.known_triples import KnownTriples
from tasks.ranking.triples import TripleRanker, Triples

NUM_ENTITIES = 20
_HELD = 4 * 4 + 4 * 1
"""Completions that are validation triples: of the four queries for tails, each with the same four, and of heads."""


def fitted(values: np.ndarray) -> list[float]:
    """Fit to triples of entity 0 with entities 1 to 4, by DistMult of one number: a pair's score is their product."""
    options = MODELS.config({"name": "distmult", "dim": 1})
    edges = np.array([[0, tail] for tail in range(1, 5)])
    relations = np.zeros(4, np.int64)
    nothing = KnownTriples.of([(edges[:0], relations[:0])], NUM_ENTITIES, 1)
    validation = KnownTriples.of([(edges, relations)], NUM_ENTITIES, 1)
    ranker = TripleRanker(MODELS.get("distmult"), options, nothing)
    table = TableBlocks(torch.from_numpy(values.astype(np.float32))[:, None])
    found: list[float] = fit_calibration(
        ranker, Triples(edges, relations), validation, table, torch.ones(1, 1)
    ).tolist()
    return found


def test_better_scores_are_likelier_where_they_held_more_often() -> None:
    values = np.concatenate([[3.0, 2.9, 2.5, 1.9, 2.8], np.linspace(1, 2.6, 15)])
    a, b = fitted(values)
    assert a > 0
    # Of a logistic model without a penalty: as many are expected to hold as held.
    tails, heads = np.tile(values[0] * values, 4), (values[1:5, None] * values).ravel()
    chances = 1 / (1 + np.exp(-(a * np.concatenate([tails, heads]) + b)))
    assert chances.sum() == pytest.approx(_HELD, rel=1e-3)


def test_scores_that_say_nothing_give_all_the_same_probability() -> None:
    values = np.concatenate([[1.0, 1.1, 1.5, 1.2, 1.3], np.linspace(1.6, 3, 15)])
    a, b = fitted(values)
    assert a == 0
    assert 1 / (1 + math.exp(-b)) == pytest.approx(_HELD / (8 * NUM_ENTITIES), rel=1e-5)
