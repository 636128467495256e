"""What the completion of triples is worth without a model: by how often a relation has entities, and by likeness."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numba import njit

from configs.metric_names import hits_of
from models.kernels.threads import even_rows, run_each
from models.knowledge.base import Side
from tasks.arrays import Array, offsets, sample_rows
from tasks.controls.suite import Controls, Measure, Measured
from tasks.evaluators.prediction import Prediction
from tasks.inference.triples import TripleSplits
from tasks.ranking.known_triples import Known, KnownTriples
from tasks.ranking.ranks import TripleRanks
from tasks.ranking.triples import SIDES, RankedTriples, known_of

_COMMON, _NEIGHBORS = 1000, 1000
_UNIT = 65536
"""Likeness is counted in whole numbers of 1 / 65,536: sums that are equal are so in any order."""


class _FewScores(ABC):
    """Ranks entities few of which have a score above 0. Ranks are filtered as a model's are."""

    def __init__(self, splits: TripleSplits) -> None:
        self._splits, self._num_entities = splits, splits.store.manifest.num_nodes

    def ranks(self, triples: RankedTriples) -> TripleRanks:
        """Rank the triples' heads, then their tails."""
        return TripleRanks.joined([self._side(triples, side) for side in SIDES])

    def _side(self, triples: RankedTriples, side: Side) -> TripleRanks:
        end = SIDES.index(side)
        truth, given = (np.asarray(triples.edges[:, place], np.int64) for place in (end, 1 - end))
        known, candidates = Known.none(len(truth)), triples.candidates
        if candidates is None:
            known = known_of(self._splits.known, given, triples.relations, side)
        out, order = np.zeros((3, len(truth)), np.int64), np.argsort(triples.relations, kind="stable")
        bounds = even_rows(len(truth))

        def rank(number: int) -> None:
            rows = order[bounds[number] : bounds[number + 1]]
            some = None if candidates is None else np.asarray(candidates[rows, :, end], np.int64)
            room = np.zeros((2, self._num_entities), np.int64), np.empty((2, self._num_entities), np.int64)
            compared = (truth[rows], *known.part(rows), some, self._num_entities)
            ranks = np.zeros((3, len(rows)), np.int64)
            self._rank(side, given[rows], triples.relations[rows], compared, (*room, *ranks))
            out[:, rows] = ranks

        run_each(rank, len(bounds) - 1)
        return TripleRanks(*out)

    @abstractmethod
    def _rank(
        self, side: Side, given: Array, relations: Array, compared: tuple[Any, ...], out: tuple[Any, ...]
    ) -> None:
        """Rank some triples, by relation; `compared` and `out` are the last arguments of a loop."""


class AssociationControl(_FewScores):
    """Ranks entities by what those have that are like the given one.

    Two entities are alike by what they have in common: the same relation to, or from, the same third entity. Each of
    these counts 1 / log(1 + how many entities have it), as Adamic and Adar count common neighbours; what more than
    `_COMMON` entities have tells nothing and is passed over. A candidate of the query (h, r, ?) scores the likeness of
    those u, of the `_NEIGHBORS` most like h, for which training has (u, r, candidate); heads likewise.
    """

    def __init__(self, splits: TripleSplits) -> None:
        """Sort the training triples: 40 bytes of memory each, and 24 an entity."""
        super().__init__(splits)
        train, manifest = splits.triples("train"), splits.store.manifest
        edges = np.asarray(train.edges)
        self._train = KnownTriples.of([(edges, train.relations)], manifest.num_nodes, manifest.num_relations)
        self._has = [_lists(edges[:, end], edges[:, 1 - end], train.relations, manifest.num_nodes) for end in (0, 1)]

    def _rank(
        self, side: Side, given: Array, relations: Array, compared: tuple[Any, ...], out: tuple[Any, ...]
    ) -> None:
        asked = self._train.by_head if side == "tail" else self._train.by_tail
        lists = *self._has[0], *self._has[1], self._train.by_head, self._train.by_tail, asked
        _rank_by_likeness(given, relations, *lists, *compared, *out)


def _lists(ends: Array, others: Array, relations: Array, num_entities: int) -> tuple[Array, Array, Array]:
    """Return where the triples of each entity at one end begin (N + 1,), their other ends and relations."""
    order = np.argsort(ends, kind="stable")
    return offsets(np.bincount(ends, minlength=num_entities)), others[order], relations[order].astype(np.int32)


@njit(inline="always")
def _span(numbers, relation, entity, num_entities):  # type: ignore[no-untyped-def]
    """Return where the other ends of a relation's triples with an entity begin and end."""
    base = (np.uint64(relation) * np.uint64(num_entities) + np.uint64(entity)) * np.uint64(num_entities)
    return base, np.searchsorted(numbers, base), np.searchsorted(numbers, base + np.uint64(num_entities))


@njit(cache=True, nogil=True)
def _add_likeness(entity, starts, others, relations, numbers, num_entities, likeness, met, count):  # type: ignore[no-untyped-def]
    """Add to the likeness of all that share the same relation and end with an entity; return how many were met."""
    first, last = starts[entity], starts[entity + 1]
    step = max(1, (last - first) // _COMMON)
    for place in range(first, last, step):
        base, low, high = _span(numbers, relations[place], others[place], num_entities)
        if high - low > _COMMON or high - low < 2:
            continue
        weight = np.int64(np.rint(_UNIT / np.log(1 + high - low)))
        for i in range(low, high):
            like = np.int64(numbers[i] - base)
            if like != entity:
                if likeness[like] == 0:
                    met[count] = like
                    count += 1
                likeness[like] += weight
    return count


@njit(cache=True, nogil=True)
def _score(likeness, nearest, relation, numbers, num_entities, scores, scored):  # type: ignore[no-untyped-def]
    """Add the likeness of entities to what they have by a relation; return how many candidates have a score."""
    count = 0
    for like in nearest:
        base, low, high = _span(numbers, relation, like, num_entities)
        if high - low > _COMMON:
            continue
        for i in range(low, high):
            candidate = np.int64(numbers[i] - base)
            if scores[candidate] == 0:
                scored[count] = candidate
                count += 1
            scores[candidate] += likeness[like]
    return count


@njit(inline="always")
def _compare(i, scores, scored, count, truth, lows, highs, bases, known, candidates, num_entities):  # type: ignore[no-untyped-def]
    """Return how many entities have a higher score than the i-th true one, how many others its own, and of how many.

    The first `count` of `scored` have a score; others have 0.
    """
    own, above, same, others = scores[truth[i]], 0, 0, 0
    if candidates is not None:
        for candidate in candidates[i]:
            if candidate != truth[i]:
                above += scores[candidate] > own
                same += scores[candidate] == own
                others += 1
        return above, same, others
    for k in range(count):
        above += scores[scored[k]] > own
        same += scores[scored[k]] == own
    if own == 0:
        same = num_entities - count
    others = num_entities
    for place in range(lows[i], highs[i]):
        entity = np.int64(known[place] - bases[i])
        if entity != truth[i]:
            above -= scores[entity] > own
            same -= scores[entity] == own
            others -= 1
    return above, same - 1, others - 1


@njit(cache=True, nogil=True)
def _rank_by_likeness(  # type: ignore[no-untyped-def]
    given, relations, head_starts, head_others, head_relations, tail_starts, tail_others, tail_relations, by_head,
    by_tail, asked, truth, lows, highs, bases, known, candidates, num_entities, room, numbers, better, equal, compared
):  # fmt: skip
    """Rank each truth; `room` (2, N) of zeros and `numbers` (2, N) are to work in."""
    likeness, scores = room
    met, scored = numbers
    for i in range(len(given)):
        count = _add_likeness(
            given[i], head_starts, head_others, head_relations, by_tail, num_entities, likeness, met, 0
        )
        count = _add_likeness(
            given[i], tail_starts, tail_others, tail_relations, by_head, num_entities, likeness, met, count
        )
        nearest = met[:count]
        if count > _NEIGHBORS:
            # In the order of their numbers where they are alike: the same from run to run.
            nearest = np.sort(nearest)
            nearest = nearest[np.argsort(-likeness[nearest], kind="mergesort")[:_NEIGHBORS]]
        found = _score(likeness, nearest, relations[i], asked, num_entities, scores, scored)
        better[i], equal[i], compared[i] = _compare(
            i, scores, scored, found, truth, lows, highs, bases, known, candidates, num_entities
        )
        for k in range(count):
            likeness[met[k]] = 0
        for k in range(found):
            scores[scored[k]] = 0


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


class FrequencyControl(_FewScores):
    """Ranks entities by the number of training triples in which the relation has them at that end.

    What a relation never had there comes last, all alike.
    """

    def __init__(self, splits: TripleSplits) -> None:
        """Count the training triples."""
        super().__init__(splits)
        train, manifest = splits.triples("train"), splits.store.manifest
        self._counts = {}
        for end, side in enumerate(SIDES):
            # relation * N + entity for those that training has at this end, ascending, and how often.
            keys = train.relations * manifest.num_nodes + np.asarray(train.edges[:, end], np.int64)
            keys, counts = np.unique(keys, return_counts=True)
            relation, entities = np.divmod(keys, manifest.num_nodes)
            starts = offsets(np.bincount(relation, minlength=manifest.num_relations))
            self._counts[side] = starts, entities, counts

    def _rank(
        self, side: Side, given: Array, relations: Array, compared: tuple[Any, ...], out: tuple[Any, ...]
    ) -> None:
        _rank_by_count(relations, *self._counts[side], *compared, *out)


@njit(cache=True, nogil=True)
def _rank_by_count(  # type: ignore[no-untyped-def]
    relations, starts, entities, counts, truth, lows, highs, bases, known, candidates, num_entities,
    room, numbers, better, equal, compared
):  # fmt: skip
    """Rank each truth, by relation; as `_rank_by_likeness`."""
    scores, low, high = room[0], 0, 0
    for i in range(len(truth)):
        if low != starts[relations[i]] or high != starts[relations[i] + 1]:
            for entity in entities[low:high]:
                scores[entity] = 0
            low, high = starts[relations[i]], starts[relations[i] + 1]
            for place in range(low, high):
                scores[entities[place]] = counts[place]
        better[i], equal[i], compared[i] = _compare(
            i, scores, entities[low:high], high - low, truth, lows, highs, bases, known, candidates, num_entities
        )
