"""Lists of candidates for tasks: all that are there at a task's moment are scored, as of that moment.

Vectors of candidates are computed once for each moment, by sampling around them; memory is theirs, and some rows of
scores (`_SCORES`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from models.relational.base import RelationalModel
from models.relational.ranking import RankingHead
from tasks.arrays import blocks
from tasks.evaluators.ranked_places import places_of
from tasks.evaluators.ranked_rows import Lists, RankedRows
from tasks.inference.layerwise import scratch_array
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.sampling.relational.links import RankedLinks, RankedNeighborhoods
from tasks.storage.graph_store import Array, GraphStore

_KEY = 20_261_128
"""What is drawn: the same neighbours in every evaluation."""
_MOST_SEEDS = 1024
"""Rows that are sampled around at a time."""
_SCORES = 1 << 25
"""Scores that are held at a time, unless a single row has more."""
_NO_ROWS = np.empty(0, np.int64)


ScoreTasks = Callable[[Array, int], Array]
"""Scores of tasks, int64 (b,), of one moment: float32 (b, C), of all candidates."""


def ranked_by(links: RankedLinks, tasks: Array, score: ScoreTasks, k: int | None = None) -> RankedRows:
    """Rank all candidates for tasks, int64 (n,), by what scores those of one moment at a time.

    What is not there at the moment is no candidate, and with `new_only` what an entity was linked to before.

    Returns: where what is right stands, of those tasks that have something right, with the first `k` (None: no lists).
    """
    size = links.num_candidates
    moments = links.moments(tasks)
    width = min(k or 0, size)
    lists = Lists(
        np.full((len(tasks), width), -1, np.int64),
        np.full((len(tasks), width), -np.inf, np.float32),
        np.full((len(tasks), width), np.nan, np.float32),
    )
    counts = np.diff(links.right(tasks)[0])
    places = np.full((len(tasks), int(min(1000, counts.max(initial=1)))), np.inf)
    for moment in np.unique(moments).tolist():
        rows, there = np.flatnonzero(moments == moment), links.there(moment)
        for part in blocks(len(rows), max(1, _SCORES // max(1, size))):
            chosen = rows[part]
            scores = np.array(score(tasks[chosen], moment), np.float32)
            scores[:, ~there] = -np.inf
            own = links.own_columns(tasks[chosen])
            if own is not None:
                scores[np.arange(len(chosen)), own] = -np.inf
            if links.ranking.new_only:
                indptr, column, _, _ = links.past(links.entities(tasks[chosen]), moments[chosen])
                scores[np.repeat(np.arange(len(chosen)), np.diff(indptr)), column] = -np.inf
            indptr, right = links.right(tasks[chosen])
            right_places = places_of(scores, indptr, right).places
            places[chosen, : right_places.shape[1]] = right_places
            if width:
                _fill(lists, chosen, links.candidates, scores, (indptr, right))
    known = np.flatnonzero(counts > 0)
    return RankedRows(places[known], counts[known].astype(np.int64), lists if width else None)


def _fill(lists: Lists, rows: Array, candidates: Array, scores: Array, right: tuple[Array, Array]) -> None:
    """Put the first candidates of some rows into their lists; of equal scores those of the lowest nodes."""
    width = lists.candidates.shape[1]
    first = np.argpartition(-scores, width - 1, axis=1)[:, :width]
    last = np.take_along_axis(scores, first, 1).min(1, keepdims=True)
    for row in np.flatnonzero((scores >= last).sum(1) > width):  # the partition took any of those that equal the last
        above, level = np.flatnonzero(scores[row] > last[row]), np.flatnonzero(scores[row] == last[row])
        first[row] = np.append(above, level)[:width]
    first.sort(axis=1)
    order = np.argsort(-np.take_along_axis(scores, first, 1), axis=1, kind="stable")
    first = np.take_along_axis(first, order, 1)
    best = np.take_along_axis(scores, first, 1)
    is_right = np.zeros(scores.shape, np.bool_)
    is_right[np.repeat(np.arange(len(rows)), np.diff(right[0])), right[1]] = True
    hit = np.take_along_axis(is_right, first, 1).astype(np.float32)
    hit[np.diff(right[0]) == 0] = np.nan
    lists.candidates[rows] = np.where(np.isfinite(best), candidates[first], -1)
    lists.scores[rows], lists.right[rows] = best, hit


class RankedScores:
    """Scores candidates of one graph by models that sample alike."""

    def __init__(self, store: GraphStore, typed: TypedNeighborhoods, scratch: Path | None) -> None:
        """`typed`: what is sampled around rows, as the models do."""
        self.near = RankedNeighborhoods(store, typed)
        self.links, self._scratch = self.near.links, scratch

    def ranked(self, model: RelationalModel, tasks: Array, device: torch.device, k: int | None = None) -> RankedRows:
        """Rank all candidates for tasks, see `ranked_by`. Inside of `evaluating`."""
        vectors: tuple[int, Array] | None = None

        def score(some: Array, moment: int) -> Array:
            nonlocal vectors
            if vectors is None or vectors[0] != moment:
                vectors = moment, self.candidate_vectors(model, moment, device)
            return self._scores(model, some, moment, vectors[1], device)

        return ranked_by(self.links, tasks, score, k)

    def seed_vectors(self, model: RelationalModel, tasks: Array, device: torch.device) -> Array:
        """Return the vectors of tasks' entities as of their moments, float32 (n, width). Inside of `evaluating`."""
        vectors = scratch_array(self._scratch, len(tasks), model.head_dim)
        moments = self.links.moments(tasks)
        for moment in np.unique(moments).tolist():
            rows = np.flatnonzero(moments == moment)
            for part in blocks(len(rows), _MOST_SEEDS):
                batch = self.near.batch(tasks[rows[part]], _NO_ROWS, moment, _KEY).to(device)
                vectors[rows[part]] = model.towers(batch)[0].float().cpu().numpy()
        return vectors

    def candidate_vectors(self, model: RelationalModel, moment: int, device: torch.device) -> Array:
        """Return the vectors of all candidates as of a moment, float32 (C, width); 0 of what is not there."""
        columns = np.flatnonzero(self.links.there(moment))
        vectors: Array | None = None
        for part in blocks(max(1, len(columns)), _MOST_SEEDS):
            batch = self.near.batch(_NO_ROWS, columns[part], moment, _KEY).to(device)
            some = model.towers(batch)[1].float().cpu().numpy()
            if vectors is None:
                vectors = scratch_array(self._scratch, self.links.num_candidates, some.shape[1])
            vectors[columns[part]] = some
        assert vectors is not None
        return vectors

    def _scores(
        self, model: RelationalModel, tasks: Array, moment: int, candidates: Array, device: torch.device
    ) -> Array:
        head = model.head
        assert isinstance(head, RankingHead)
        everything = torch.from_numpy(np.asarray(candidates)).to(device)
        popularity = self.near.popularity(np.arange(len(candidates)), moment).to(device)
        parts = []
        for some in blocks(len(tasks), _MOST_SEEDS):
            batch = self.near.batch(tasks[some], _NO_ROWS, moment, _KEY).to(device)
            pairs, features = (one.to(device) for one in self.near.past(tasks[some], moment))
            scores = head.scores(model.towers(batch)[0].float(), everything, popularity)
            parts.append(head.add_past(scores, pairs, features).cpu().numpy())
        return np.concatenate(parts)
