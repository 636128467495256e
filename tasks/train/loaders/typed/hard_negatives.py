"""Candidates that are hard to tell from what is right: those that random walks from a seed reach.

As in PinSAGE (Ying et al., KDD 2018, section 3.2) there are none in the first epoch, and one more in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.relational.configs import ImportanceWalksConfig
from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.relational.batches import sorted_edges
from tasks.sampling.relational.links import RankedLinks
from tasks.sampling.relational.ranked import Asked
from tasks.sampling.relational.visits.importance import ImportanceSampler
from tasks.storage.graph_store import GraphStore

if TYPE_CHECKING:
    from tasks.train.loaders.configs import RankingLoaderConfig

_WALK = 14
"""Purpose that keys are drawn for."""


class HardNegatives:
    """Adds to what a batch asks what is reached most from each seed, and not right for it."""

    def __init__(
        self,
        store: GraphStore,
        config: RankingLoaderConfig,
        walks: tuple[ImportanceWalksConfig, int] | None,
        links: RankedLinks,
    ) -> None:
        """`walks`: those of the model, where it makes some. Raises RecipeError: walks have nowhere to go."""
        options = ImportanceWalksConfig() if walks is None else walks[0]
        self.sampler = ImportanceSampler.of_store(store, sorted_edges(store), options, 1)
        self.links, self.skip = links, config.hard_skip

    def added(self, asked: Asked, moment: int, most: int, key: int) -> Asked:
        """Return what is asked with `most` hard ones for each seed at most."""
        row, column = self.of_tasks(asked.tasks, moment, most, key)
        columns = np.union1d(asked.columns, column)
        assert asked.log_inclusion is not None
        log_inclusion = np.full(len(columns), np.inf, np.float32)
        place = np.searchsorted(columns, asked.columns)
        log_inclusion[place] = asked.log_inclusion
        right = np.stack([asked.right[0], place[asked.right[1]]])
        return Asked(asked.tasks, columns, right, log_inclusion, np.stack([row, np.searchsorted(columns, column)]))

    def of_tasks(self, tasks: Array, moment: int, most: int, key: int) -> tuple[Array, Array]:
        """Return rows of tasks and columns of their hard ones, int64 (h,) each, those that are reached most."""
        links, size = self.links, self.links.num_candidates
        indptr, right = links.right(tasks)
        counts = np.diff(indptr)
        entities, moments = links.entities(tasks), np.full(len(tasks), moment, np.int64)
        out = [np.repeat(np.arange(len(tasks)), counts) * size + right]
        if links.ranking.new_only:
            past, had, _, _ = links.past(entities, moments)
            out.append(np.repeat(np.arange(len(tasks)), np.diff(past)) * size + had)
            counts = counts + np.diff(past)
        wanted = min(size, self.skip + most + int(counts.max(initial=0)))
        starts, nodes, _ = self.sampler.visits(entities, moments, derive_key(key, _WALK), wanted)
        row, column = np.repeat(np.arange(len(tasks)), np.diff(starts)), np.searchsorted(links.candidates, nodes)
        kept = ~np.isin(row * size + column, np.concatenate(out))
        row, column = row[kept], column[kept]
        first = np.searchsorted(row, np.arange(len(tasks)))
        rank = np.arange(len(row)) - first[row]
        chosen = (rank >= self.skip) & (rank < self.skip + most)
        return row[chosen], column[chosen]
