"""What recommendations are compared with: what is popular, what an entity had before, what is had together.

Nothing later than a task's moment has a part in any of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from tasks.arrays import Array
from tasks.controls.suite import Controls
from tasks.evaluators.prediction import Prediction
from tasks.inference.ranked import ScoreTasks, ranked_by
from tasks.sampling.relational.links import ranked_links
from tasks.storage.controls import OWN_PAST_CONTROL, POPULAR_CONTROL, RECENT_CONTROL, TOGETHER_CONTROL
from tasks.storage.graph_store import GraphStore

_NEWEST = 100
"""Links of an entity that count as had together: the newest ones."""
_MOST_PAIRS = 200_000_000
"""Pairs that are had together, beyond which they are not counted: some gigabytes."""


class RecommendationControls(Controls):
    """Lists by simple rules."""

    def __init__(self, store: GraphStore) -> None:
        super().__init__()
        self.links = ranked_links(store)
        self._store = store
        self._together: tuple[int, sparse.csr_matrix, sparse.csr_matrix] | None = None

    def predictions(self, split: str, prediction: Prediction) -> Iterator[tuple[str, Prediction]]:
        """Yield the name of each rule, and where what is right for a split's tasks stands by it."""
        tasks, rules = self.tasks(split), dict(self.rules)
        sizes = np.unique(self._newest(int(self.links.moments(tasks).max(initial=0)))[0], return_counts=True)[1]
        if (sizes.astype(np.float64) ** 2).sum() > _MOST_PAIRS:
            rules.popitem()
            self.notes.append(f"{split}: too many pairs of candidates were had together to count them")
        for name, rule in rules.items():
            yield name, Prediction(ranked=ranked_by(self.links, tasks, rule))

    def tasks(self, split: str) -> Array:
        """Return the tasks of a split, int64 (n,)."""
        return np.asarray(self._store[f"{split}_idx"], np.int64)

    @property
    def rules(self) -> dict[str, ScoreTasks]:
        """What scores candidates, by the names of controls; what counts all pairs comes last."""
        return {
            POPULAR_CONTROL: self._popular,
            RECENT_CONTROL: self._recent,
            OWN_PAST_CONTROL: self._own_past,
            TOGETHER_CONTROL: self._had_together,
        }

    def _counts(self, moment: int) -> Array:
        return self.links.popularity(np.arange(self.links.num_candidates), moment)

    def _popular(self, tasks: Array, moment: int) -> Array:
        """Score by all links before the moment."""
        return np.broadcast_to(self._counts(moment)[:, 0].astype(np.float32), (len(tasks), self.links.num_candidates))

    def _recent(self, tasks: Array, moment: int) -> Array:
        """Score by the links of the last horizon, those of one number by all."""
        return np.broadcast_to(self._recent_scores(moment), (len(tasks), self.links.num_candidates))

    def _recent_scores(self, moment: int) -> Array:
        """Return numbers from 0 to below 1."""
        everything, recent = self._counts(moment).T
        order = np.lexsort((everything, recent))
        level = np.concatenate([[0], np.any(np.diff(np.stack([recent, everything])[:, order], axis=1) != 0, axis=0)])
        scores = np.empty(len(order), np.float32)
        scores[order] = np.cumsum(level) / max(1, len(order))
        return scores

    def _own_past(self, tasks: Array, moment: int) -> Array:
        """Score by how often the entity was linked to each before; others by popularity.

        How recent the last link is, and how popular a candidate is, from 0 to 1 each, are added. On the generated shop
        that is better by a seventh (MAP@10) than where they decide of equal numbers only.
        """
        scores = np.array(self._recent(tasks, moment), np.float32)
        indptr, column, counts, newest = self.links.past(self.links.entities(tasks), np.full(len(tasks), moment))
        row = np.repeat(np.arange(len(tasks)), np.diff(indptr))
        age = (moment - newest).astype(np.float64)
        scores[row, column] += 1 + counts + 1 / (1 + np.maximum(age, 0) / max(1, self.links.ranking.horizon))
        return scores

    def _had_together(self, tasks: Array, moment: int) -> Array:
        """Score by the sum of cosines (over who had both) with what the entity had before; others by popularity."""
        if self._together is None or self._together[0] != moment:
            self._together = moment, *self._similar(moment)
        _, had, similar = self._together
        columns = self.links.own_columns(tasks)
        if columns is not None:  # the cosines of a candidate itself
            return similar[columns].toarray().astype(np.float32) + 1e-4 * self._recent_scores(moment)
        scores = (had[self.links.entities(tasks)] @ similar).toarray().astype(np.float32)
        return scores + 1e-4 * self._recent_scores(moment)

    def _similar(self, moment: int) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        """Return who had what, (N, C), and the cosines of candidates, (C, C), their own left out."""
        who, columns = self._newest(moment)
        shape = (self._store.manifest.num_nodes, self.links.num_candidates)
        had = sparse.csr_matrix((np.ones(len(who), np.float32), (who, columns)), shape=shape)
        had.data[:] = 1  # of pairs that were linked several times too
        size = np.maximum(np.asarray(had.sum(0)).ravel(), 1)
        scaled = had @ sparse.diags(1 / np.sqrt(size))
        similar = sparse.csr_matrix(scaled.T @ scaled)
        similar.setdiag(0)
        return had, similar

    def _newest(self, moment: int) -> tuple[Array, Array]:
        """Return entity and column of each entity's newest links before a moment, oldest first."""
        who, columns = self.links.interactions(moment)
        starts = np.flatnonzero(np.concatenate([[True], np.diff(who) != 0])) if len(who) else np.empty(0, np.int64)
        sizes = np.diff(np.append(starts, len(who)))
        from_end = np.repeat(starts + sizes, sizes) - np.arange(len(who))
        kept = from_end <= _NEWEST
        return who[kept], columns[kept].astype(np.int64)
