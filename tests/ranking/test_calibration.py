"""Probabilities of completions: fitted to what held in validation, and never the lower the better the score."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from tasks.ranking.calibration import fit_calibration
from tasks.ranking.entities import TableBlocks
from tasks.ranking.known_triples import KnownTriples
from tasks.ranking.triples import RankedTriples, TripleRanker
from tasks.ranking.types import EntityTypes

NUM_ENTITIES = 10
_HELD = np.array([4 * 1, 4 * 4])
"""Completions that are validation triples: of four queries for heads, and of four for tails, all with the same four."""


def fitted(values: np.ndarray, types: EntityTypes | None = None) -> np.ndarray:
    """Fit to triples of entity 0 with entities 1 to 4, by DistMult of one number: a pair's score is their product.

    Returns (2, 2, 2); of the second relation there is no validation triple.
    """
    options = MODELS.config({"name": "distmult", "dim": 1})
    edges = np.array([[0, tail] for tail in range(1, 5)])
    relations = np.zeros(4, np.int64)
    nothing = KnownTriples.of([(edges[:0], relations[:0])], NUM_ENTITIES, 2)
    validation = KnownTriples.of([(edges, relations)], NUM_ENTITIES, 2)
    ranker = TripleRanker(MODELS.get("distmult"), options, nothing)
    table = TableBlocks(torch.from_numpy(values.astype(np.float32))[:, None])
    found = fit_calibration(ranker, RankedTriples(edges, relations), validation, table, torch.ones(2, 1), types)
    return found.double().numpy()


def test_better_scores_are_likelier_where_they_held_more_often() -> None:
    values = np.concatenate([[3.0, 2.9, 2.5, 1.9, 2.8], np.linspace(1, 2.6, 5)])
    found = fitted(values)
    a, b = found[0].T
    assert a[0] == a[1] > 0
    scores = np.stack([(values[1:5, None] * values).ravel(), np.tile(values[0] * values, 4)])  # of heads, of tails

    def expected(shift: np.ndarray) -> np.ndarray:
        return (1 / (1 + np.exp(-(a[0] * scores + shift[:, None])))).sum(axis=1)

    # Of a logistic model without a penalty: as many are expected to hold as held, in all.
    common = found[1, :, 1]
    assert common[0] == common[1]
    assert expected(common).sum() == pytest.approx(_HELD.sum(), rel=1e-3)
    # Of one with a normal prior of spread 1 around that: the end's shift is what is missing.
    assert expected(b) - _HELD == pytest.approx(common - b, abs=1e-3)
    assert b[0] < common[0] < b[1]


def test_scores_that_say_nothing_give_all_the_same_probability() -> None:
    values = np.concatenate([[1.0, 1.1, 1.5, 1.2, 1.3], np.linspace(1.6, 3, 5)])
    found = fitted(values)
    assert (found[..., 0] == 0).all()
    assert 1 / (1 + np.exp(-found[1, :, 1])) == pytest.approx([_HELD.sum() / (8 * NUM_ENTITIES)] * 2, rel=1e-5)
    assert found[0, 0, 1] < found[1, 0, 1] < found[0, 1, 1]


def test_entities_of_other_types_are_no_completions() -> None:
    values = np.concatenate([[3.0, 2.9, 2.5, 1.9, 2.8], np.linspace(1, 2.6, 5)])
    kinds = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    train = RankedTriples(np.array([[0, 1]]), np.zeros(1, np.int64))
    a, b = fitted(values, EntityTypes(kinds, 2, train, 2))[1, 0]
    of_kind = values[kinds == 0]
    scores = np.concatenate([(values[1:5, None] * of_kind).ravel(), np.tile(values[0] * of_kind, 4)])
    assert (1 / (1 + np.exp(-(a * scores + b)))).sum() == pytest.approx(_HELD.sum(), rel=1e-3)
