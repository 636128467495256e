"""What the completion of triples is worth without a model: entities by how often a relation joins them."""

from __future__ import annotations

import numpy as np
from numba import njit

from configs.metric_names import hits_of
from models.knowledge.base import Side
from tasks.arrays import offsets, sample_rows
from tasks.controls.ranked.association import AssociationControl
from tasks.controls.suite import Controls, Measure, Measured
from tasks.evaluators.prediction import Prediction
from tasks.inference.triples import TripleSplits
from tasks.ranking.ranks import TripleRanks
from tasks.ranking.triples import SIDES, RankedTriples, known_of

_MOST_ASSOCIATED = 2000
"""Triples of a split whose ends are ranked by association."""


class TripleControls(Controls):
    """Those of triples: a random order, one by frequency, and what the entities have that are like the given one."""

    def __init__(self, splits: TripleSplits) -> None:
        super().__init__()
        self._splits, self._frequency = splits, FrequencyControl(splits)
        self._association = AssociationControl(splits)

    def measured(self, split: str, prediction: Prediction, measure: Measure) -> Measured:
        """Yield them; what a random order gives is of as many candidates as the model's ranks have."""
        ranks = prediction.true_ranks()
        values = measure(Prediction(ranks=TripleRanks(np.zeros_like(ranks.better), ranks.candidates, ranks.candidates)))
        harmonic = np.cumsum(1 / np.arange(1, ranks.candidates.max(initial=0) + 2))
        chance = {"mrr": float((harmonic[ranks.candidates] / (ranks.candidates + 1)).mean())}
        for metric in values:
            most = hits_of(metric)
            if most is not None:
                chance[metric] = float(np.minimum(1, most / (ranks.candidates + 1)).mean())
        yield "chance", values | {metric: value for metric, value in chance.items() if metric in values}
        triples = self._splits.triples(split)
        yield "frequency", measure(Prediction(ranks=self._frequency.ranks(triples)))
        if len(triples) > _MOST_ASSOCIATED:
            triples = triples.taken(sample_rows(np.arange(len(triples)), _MOST_ASSOCIATED))
            self.notes.append(f"association was measured on {_MOST_ASSOCIATED:,} triples of {split}")
        yield "association", measure(Prediction(ranks=self._association.ranks(triples)))


class FrequencyControl:
    """Ranks entities by the number of training triples in which the relation has them at that end.

    What a relation never had there comes last, all alike. Ranks are filtered as a model's are.
    """

    def __init__(self, splits: TripleSplits) -> None:
        """Count the training triples."""
        self._splits = splits
        train, manifest = splits.triples("train"), splits.store.manifest
        self._counts, self._starts = {}, {}
        for end, side in enumerate(SIDES):
            # relation * N + entity for those that training has at this end, ascending, and how often.
            keys = train.relations * manifest.num_nodes + np.asarray(train.edges[:, end], np.int64)
            self._counts[side] = np.unique(keys, return_counts=True)
            sizes = np.bincount(self._counts[side][0] // manifest.num_nodes, minlength=manifest.num_relations)
            self._starts[side] = offsets(sizes)

    def ranks(self, triples: RankedTriples) -> TripleRanks:
        """Rank the triples' heads, then their tails."""
        return TripleRanks.joined([self._side(triples, side) for side in SIDES])

    def _side(self, triples: RankedTriples, side: Side) -> TripleRanks:
        end, num_entities = 0 if side == "head" else 1, self._splits.store.manifest.num_nodes
        truth = np.asarray(triples.edges[:, end], np.int64)
        keys, counts = self._counts[side]
        out = np.zeros((3, len(truth)), np.int64)
        if triples.candidates is not None:
            given = np.asarray(triples.candidates[:, :, end], np.int64)
            _rank_given(truth, triples.relations, given, keys, counts, num_entities, *out)
            return TripleRanks(*out)
        known = known_of(self._splits.known, np.asarray(triples.edges[:, 1 - end]), triples.relations, side)
        starts = self._starts[side]
        relation = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        ascending = counts[np.lexsort((counts, relation))]  # within each relation
        _rank_all(truth, triples.relations, *known, keys, counts, starts, ascending, num_entities, *out)
        return TripleRanks(*out)


@njit(inline="always")
def _count_of(keys, counts, key):  # type: ignore[no-untyped-def]
    place = np.searchsorted(keys, key)
    return counts[place] if place < len(keys) and keys[place] == key else 0


@njit(cache=True, nogil=True)
def _rank_all(  # type: ignore[no-untyped-def]
    truth, relations, lows, highs, bases, known, keys, counts, starts, ascending, num_entities,
    better, equal, candidates
):  # fmt: skip
    for i in range(len(truth)):
        base = relations[i] * num_entities
        own = _count_of(keys, counts, base + truth[i])
        part = ascending[starts[relations[i]] : starts[relations[i] + 1]]
        above = len(part) - np.searchsorted(part, own, side="right")
        not_below = len(part) - np.searchsorted(part, own, side="left")
        # Of those that are not counted at all, all have 0.
        same = num_entities - above if own == 0 else not_below - above
        others = num_entities
        for place in range(lows[i], highs[i]):
            entity = np.int64(known[place] - bases[i])
            if entity != truth[i]:
                count = _count_of(keys, counts, base + entity)
                above -= count > own
                same -= count == own
                others -= 1
        better[i], equal[i], candidates[i] = above, same - 1, others - 1


@njit(cache=True, nogil=True)
def _rank_given(truth, relations, given, keys, counts, num_entities, better, equal, candidates):  # type: ignore[no-untyped-def]
    for i in range(len(truth)):
        base = relations[i] * num_entities
        own = _count_of(keys, counts, base + truth[i])
        for entity in given[i]:
            if entity != truth[i]:
                count = _count_of(keys, counts, base + entity)
                better[i] += count > own
                equal[i] += count == own
                candidates[i] += 1
