"""Completion of triples without a model: guilt by association, what the entities have that are like the given one.

Two entities are alike by what they have in common: the same relation to, or from, the same third entity. Each of these
counts 1 / log(1 + how many entities have it), as Adamic and Adar count common neighbours; what more than `_COMMON`
entities have tells nothing and is passed over. A candidate of the query (h, r, ?) scores the likeness of those entities
u, of the `_NEIGHBORS` that are most like h, for which training has (u, r, candidate); heads likewise. Candidates that
score nothing come last, all alike.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.threads import run_each
from models.knowledge.base import Side
from tasks.arrays import Array, blocks, offsets
from tasks.inference.triples import TripleSplits
from tasks.ranking.known_triples import Known, KnownTriples
from tasks.ranking.ranks import TripleRanks
from tasks.ranking.triples import SIDES, RankedTriples, known_of

_COMMON, _NEIGHBORS = 1000, 1000
_UNIT = 65536
"""Likeness is counted in whole numbers of 1 / 65,536: sums that are equal are so in any order."""
_ROWS_AT_A_TIME = 256


class AssociationControl:
    """Ranks entities by what those have that are like the given one. Ranks are filtered as a model's are."""

    def __init__(self, splits: TripleSplits) -> None:
        """Sort the training triples: 40 bytes of memory each, and 24 an entity."""
        self._splits = splits
        train, manifest = splits.triples("train"), splits.store.manifest
        edges = np.asarray(train.edges)
        self._num_entities = manifest.num_nodes
        self._train = KnownTriples.of([(edges, train.relations)], manifest.num_nodes, manifest.num_relations)
        self._has = [_lists(edges[:, end], edges[:, 1 - end], train.relations, manifest.num_nodes) for end in (0, 1)]

    def ranks(self, triples: RankedTriples) -> TripleRanks:
        """Rank the triples' heads, then their tails."""
        return TripleRanks.joined([self._side(triples, side) for side in SIDES])

    def _side(self, triples: RankedTriples, side: Side) -> TripleRanks:
        end = 0 if side == "head" else 1
        truth, given = (np.asarray(triples.edges[:, place], np.int64) for place in (end, 1 - end))
        out = np.zeros((3, len(truth)), np.int64)
        asked = self._train.by_head if side == "tail" else self._train.by_tail
        lists = *self._has[0], *self._has[1], self._train.by_head, self._train.by_tail, asked
        parts = list(blocks(len(truth), _ROWS_AT_A_TIME))
        known, candidates = Known.none(len(truth)), None
        if triples.candidates is not None:
            candidates = np.asarray(triples.candidates[:, :, end], np.int64)
        else:
            known = known_of(self._splits.known, given, triples.relations, side)

        def rank(number: int) -> None:
            part = parts[number]
            room = np.zeros((2, self._num_entities), np.int64), np.empty((2, self._num_entities), np.int64)
            some = None if candidates is None else candidates[part]
            rows = given[part], triples.relations[part], truth[part], *known.part(part)
            _rank(*rows, some, self._num_entities, *lists, *room, *out[:, part])

        run_each(rank, len(parts))
        return TripleRanks(*out)


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


@njit(cache=True, nogil=True)
def _rank(  # type: ignore[no-untyped-def]
    given, relations, truth, lows, highs, bases, known, candidates, num_entities,
    head_starts, head_others, head_relations, tail_starts, tail_others, tail_relations, by_head, by_tail, asked,
    room, numbers, better, equal, compared
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
        own = scores[truth[i]]
        if candidates is not None:
            for candidate in candidates[i]:
                if candidate != truth[i]:
                    better[i] += scores[candidate] > own
                    equal[i] += scores[candidate] == own
                    compared[i] += 1
        else:
            above, same, others = 0, 0, num_entities
            for k in range(found):
                above += scores[scored[k]] > own
                same += scores[scored[k]] == own
            if own == 0:
                same = num_entities - found
            for place in range(lows[i], highs[i]):
                entity = np.int64(known[place] - bases[i])
                if entity != truth[i]:
                    above -= scores[entity] > own
                    same -= scores[entity] == own
                    others -= 1
            better[i], equal[i], compared[i] = above, same - 1, others - 1
        for k in range(count):
            likeness[met[k]] = 0
        for k in range(found):
            scores[scored[k]] = 0
