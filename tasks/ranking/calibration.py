"""From scores of completions to probabilities that they hold."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from models.knowledge.base import Side
from models.vectors.logistic import fit_logistic
from tasks.arrays import Array
from tasks.ranking.entities import EntityBlocks
from tasks.ranking.known_triples import KnownTriples
from tasks.ranking.rank import NOBODY, top_entities
from tasks.ranking.triples import SIDES, RankedTriples, TripleRanker, known_of
from tasks.ranking.types import EntityTypes

_MOST = 10
"""Completions of a query that probabilities are fitted to: the best ones, which are what people look at. With 100 those
were off by 0.11 on average (TransE on fb15k-237), with 10 by 0.03."""
_STRENGTH = 1e6
"""C of a logistic model without a penalty to speak of."""
_MOST_STEPS = 50
_CLOSE = 1e-6
_LONGEST_STEP = 1.0
"""Newton's method oversteps where probabilities are near 0 or 1."""


def fit_calibration(
    ranker: TripleRanker,
    triples: RankedTriples,
    validation: KnownTriples,
    entities: EntityBlocks,
    relations: Tensor,
    types: EntityTypes | None = None,
) -> Tensor:
    """Return float32 (R, 2, 2), for heads and for tails of each relation a and b of the probability that a completion
    with score s holds: 1 / (1 + e^-(a s + b)).

    Fitted (Platt, 1999) to the best completions of validation queries, without those that other splits know: what is
    a validation triple holds. So it is a probability among what is recorded: what holds in the world and is in no
    split counts as false, and the probability is rather too low. Where better scores do not hold more often, a is 0:
    all have the same probability.

    a is one for all. b is a relation's and an end's own, normal around one for all with the spread 1 (in the unit of
    log odds): where there are few validation queries it stays near that.

    Args:
        ranker: makes queries; its `known` are those of the other splits.
        triples: validation triples whose queries are asked.
        validation: all validation triples.
        entities: rows of all entities.
        relations: rows of relations, float32 (R, width), or (2 R, width) with those of ways back.
        types: those of the entities: others than a relation has had do not complete it; None: all entities do.
    """
    num_relations = validation.num_relations
    scores, holds, groups = [], [], []
    most = min(_MOST, entities.num_entities)
    for number, side in enumerate(SIDES):
        ends = triples.edges[:, 1 if side == "head" else 0]
        queries = ranker.queries(ends, triples.relations, entities, relations, side)
        others = known_of(ranker.known, ends, triples.relations, side)
        if types is None:
            top, score = top_entities(queries, entities, most, others, ranker.counted, ranker.memory)
        else:
            top, score = types.top(queries, triples.relations, side, entities, most, others, memory=ranker.memory)
        is_there = top != NOBODY
        scores.append(score[is_there])
        holds.append(_are_among(validation, top, ends, triples.relations, side)[is_there])
        groups.append(np.broadcast_to(len(SIDES) * triples.relations[:, None] + number, top.shape)[is_there])
    x = torch.from_numpy(np.concatenate(scores)).double()[:, None]
    y = torch.from_numpy(np.concatenate(holds))[:, None]
    calibration = torch.tensor([1.0, 0.0]).repeat(num_relations, len(SIDES), 1)
    if not y.any() or y.all():
        return calibration
    centre, spread = float(x.mean()), max(float(x.std()), 1e-12)
    fitted = fit_logistic(((x - centre) / spread).float(), y, _STRENGTH)
    slope = float(fitted.weight[0, 0]) / spread
    if slope <= 0:  # of a model that has hardly learnt: its scores say nothing, and no better one gets a lower chance
        share = float(y.double().mean())
        slope, shift = 0.0, math.log(share / (1 - share))
    else:
        shift = float(fitted.bias[0]) - slope * centre
    group = torch.from_numpy(np.concatenate(groups))
    own = _own_shifts(slope * x[:, 0] + shift, y[:, 0].double(), group, num_relations * len(SIDES))
    calibration[..., 0] = slope
    calibration[..., 1] = (shift + own).view(num_relations, len(SIDES))
    return calibration


def _own_shifts(odds: Tensor, holds: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """Return what is added to the log odds (n,) of each group, (num_groups,), by Newton's method for each at once."""
    shifts = torch.zeros(num_groups, dtype=torch.float64)
    for _ in range(_MOST_STEPS):
        chance = torch.sigmoid(odds + shifts[groups])
        slope = torch.bincount(groups, holds - chance, num_groups) - shifts
        curve = torch.bincount(groups, chance * (1 - chance), num_groups) + 1
        steps = (slope / curve).clamp(-_LONGEST_STEP, _LONGEST_STEP)
        shifts += steps
        if steps.abs().max() < _CLOSE:
            break
    return shifts


def _are_among(known: KnownTriples, top: Array, ends: Array, relations: Array, side: Side) -> Array:
    """Return which entities (n, k) complete their row's query in one of the triples: bool (n, k); NOBODY does not."""
    entities = np.where(top == NOBODY, 0, top).reshape(-1)
    given, relation = (np.repeat(np.asarray(column, np.int64), top.shape[1]) for column in (ends, relations))
    triples = (given, relation, entities) if side == "tail" else (entities, relation, given)
    return known.contain(*triples).reshape(top.shape) & (top != NOBODY)
