"""Batches in which candidates are ranked: seeds and candidates of one moment, sampled together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from models.relational.batch import RankingBatch
from models.relational.ranking import past_features
from tasks.arrays import Array
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.sampling.relational.links import ranked_links
from tasks.storage.graph_store import ALWAYS, GraphStore

if TYPE_CHECKING:
    from models.relational.configs import ImportanceWalksConfig

_NOTHING: Mapping[int, Array | None] = {}


@dataclass
class Asked:
    """What a batch of a training asks."""

    tasks: Array
    """int64 (B,): all of one moment."""
    columns: Array
    """int64 (n,): the candidates, ascending, each once."""
    right: Array
    """int64 (2, m): places among the tasks, and among the candidates of what is right for them and learnt from."""
    log_inclusion: Array | None
    """float32 (n,): log of the chance that each candidate is there; None: all are. Infinite: for some seeds alone."""
    hard: Array | None = None
    """int64 (2, h): places among the tasks, and among the candidates of what these are compared with for sure."""


class RankedNeighborhoods:
    """Inputs of seeds and of candidates; several threads may share one."""

    def __init__(
        self,
        store: GraphStore,
        fanouts: Sequence[int] | Mapping[str, Sequence[int]],
        *,
        newest: bool,
        numbered: Mapping[int, Array | None] = _NOTHING,
        walks: tuple[ImportanceWalksConfig, int] | None = None,
    ) -> None:
        """Open a graph; arguments as of `TypedNeighborhoods`."""
        self.typed = TypedNeighborhoods(store, fanouts, newest=newest, numbered=numbered, walks=walks)
        self.facts = self.typed.facts
        self.links = ranked_links(store)

    def batch(self, tasks: Array, columns: Array, moment: int, key: int) -> RankingBatch:
        """Return what the towers of tasks, int64 (B,), and of candidates, int64 (n,), read as of a moment.

        Either may be none. What there is to score pairs by is not there yet: see `training_batch`.
        """
        entities = self.links.entities(tasks)
        nodes = np.concatenate([entities, self.links.candidates[columns]])
        inputs, blocks, rows = self.typed.around(nodes, np.full(len(nodes), moment, np.int64), key)
        return RankingBatch(
            blocks=blocks,
            inputs=inputs,
            target=torch.empty(0, dtype=torch.int64),
            num_seeds=len(tasks),
            seed_type=self.facts.seed_type,
            rows=torch.from_numpy(rows[: len(tasks)]),
            num_edges=sum(block.num_edges for block in blocks),
            candidate_rows=torch.from_numpy(rows[len(tasks) :]),
            popularity=self.popularity(columns, moment),
        )

    def training_batch(self, asked: Asked, moment: int, key: int) -> RankingBatch:
        """Return the batch, with what does not count for a seed left out."""
        batch = self.batch(asked.tasks, asked.columns, moment, key)
        batch.right = torch.from_numpy(asked.right)
        batch.target = torch.zeros(asked.right.shape[1], dtype=torch.int64)
        if asked.log_inclusion is not None:
            batch.log_inclusion = torch.from_numpy(asked.log_inclusion)
        if asked.hard is not None:
            batch.hard = torch.from_numpy(asked.hard)
        batch.pairs, batch.pair_feat = self.past(asked.tasks, moment, asked.columns)
        indptr, right = self.links.right(asked.tasks)
        left_out = [_among(np.repeat(np.arange(len(asked.tasks)), np.diff(indptr)), right, asked.columns)]
        if self.links.ranking.new_only:
            left_out.append(batch.pairs.numpy())
        own = self.links.own_columns(asked.tasks)
        if own is not None:
            left_out.append(_among(np.arange(len(own)), own, asked.columns))
        batch.left_out = torch.from_numpy(np.concatenate(left_out, axis=1))
        return batch

    def popularity(self, columns: Array, moment: int) -> Tensor:
        """Return what a head reads of candidates' popularity: float32 (n, 2)."""
        return torch.from_numpy(np.log1p(self.links.popularity(columns, moment)).astype(np.float32))

    def past(self, tasks: Array, moment: int, columns: Array | None = None) -> tuple[Tensor, Tensor]:
        """Return the pairs of tasks and candidates that were linked before: int64 (2, m), float32 (m, PAST).

        `columns`: candidates, ascending, whose places the second ends are; None: all, which are called by their column.
        """
        links = self.links
        indptr, column, counts, newest = links.past(links.entities(tasks), np.full(len(tasks), moment))
        row = np.repeat(np.arange(len(tasks)), np.diff(indptr))
        chosen = np.arange(len(row))
        if columns is not None:
            place = np.minimum(np.searchsorted(columns, column), max(0, len(columns) - 1))
            chosen = np.flatnonzero(columns[place] == column) if len(columns) else chosen[:0]
            column = place
        known = newest[chosen] != ALWAYS
        age = np.where(known, moment - np.where(known, newest[chosen], 0), 0) / self.facts.age_unit
        pairs = torch.from_numpy(np.stack([row[chosen], column[chosen]]).astype(np.int64))
        features = past_features(torch.from_numpy(counts[chosen]), torch.from_numpy(age.astype(np.float32)))
        return pairs, features


def _among(rows: Array, columns: Array, chosen: Array) -> Array:
    """Return the rows and places of those columns that are among the chosen ones, which are ascending: int64 (2, k)."""
    place = np.minimum(np.searchsorted(chosen, columns), len(chosen) - 1)
    there = np.flatnonzero(chosen[place] == columns)
    return np.stack([rows[there], place[there]])
