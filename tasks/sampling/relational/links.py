"""What entities were linked to and when, and what tasks are to rank: as arrays, by entity and by candidate.

Memory: 4 bytes a node of the graph, 24 for each link, 16 for each right one of a task.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.relational.batch import RankingBatch
from models.relational.ranking import past_features
from tasks.arrays import Array, offsets
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.storage.file_names import joined_name
from tasks.storage.graph_facts import LINKS_RELATION, task_relation
from tasks.storage.graph_store import ALWAYS, GraphStore

_NEWEST = 256
"""Of what a candidate was had in, the newest so many tell what it was had together with."""
_opened: WeakKeyDictionary[GraphStore, RankedLinks] = WeakKeyDictionary()
_lock = threading.Lock()


def ranked_links(store: GraphStore) -> RankedLinks:
    """Return a graph's links, read once: training, validation and controls share them."""
    with _lock:
        if store not in _opened:
            _opened[store] = RankedLinks(store)
        return _opened[store]


class RankedLinks:
    """Candidates are called by their column: their place among the nodes of their type, ascending."""

    def __init__(self, store: GraphStore) -> None:
        manifest, ranking = store.manifest, store.manifest.ranking
        relation = task_relation(manifest)
        assert ranking is not None
        assert relation is not None
        self.ranking = ranking
        node_type, self._node_time = store["node_type"], store["node_time"]
        self.candidates = np.flatnonzero(node_type == manifest.node_types.index(ranking.candidates))
        """int64 (C,): nodes that are ranked, ascending."""
        self.num_candidates = len(self.candidates)
        self.candidate_time = np.asarray(self._node_time[self.candidates], np.int64)
        """int64 (C,): since when they are there."""
        self._column = np.full(manifest.num_nodes, -1, np.int32)
        self._column[self.candidates] = np.arange(len(self.candidates), dtype=np.int32)
        links = manifest.edge_types.index(joined_name((manifest.target_type, LINKS_RELATION, ranking.candidates)))
        history = manifest.edge_types.index(ranking.history)
        task, entity, _ = _edges_of(store, relation[0])
        order = np.argsort(task)
        self._tasks, self._entity = task[order], entity[order]
        task, target, _ = _edges_of(store, links)
        order = np.lexsort((target, task))
        self._right_task, self._right = task[order], self._column[target[order]].astype(np.int64)
        source, target, time = _edges_of(store, history)
        if ranking.history_is_reversed:
            source, target = target, source
        columns = self._column[target]
        order = np.lexsort((columns, time, source))
        self._by_entity = source[order], columns[order], time[order]
        order = np.lexsort((time, columns))
        self._times, self._owners = time[order], source[order]
        self._starts = offsets(np.bincount(columns, minlength=len(self.candidates)))

    def entities(self, tasks: Array) -> Array:
        """Return the entity of each task, id (n,)."""
        return self._entity[np.searchsorted(self._tasks, tasks)]

    def moments(self, tasks: Array) -> Array:
        """Return the moment of each task, int64 (n,)."""
        return np.asarray(self._node_time[tasks], np.int64)

    def right(self, tasks: Array) -> tuple[Array, Array]:
        """Return the columns of what is right for tasks: indptr int64 (n + 1,), columns int64 (m,)."""
        first = np.searchsorted(self._right_task, tasks)
        last = np.searchsorted(self._right_task, tasks, side="right")
        indptr = offsets(last - first)
        return indptr, self._right[_ranges(first, indptr)]

    def there(self, moment: int) -> Array:
        """Return which candidates are there at a moment, bool (C,)."""
        return self.candidate_time < moment

    def popularity(self, columns: Array, moment: int) -> Array:
        """Return how often candidates were linked before a moment, and within a horizon before it: int64 (n, 2)."""
        counts = np.empty((len(columns), 2), np.int64)
        since = moment - self.ranking.horizon
        _count(self._starts, self._times, np.asarray(columns, np.int64), since, moment, counts)
        return counts

    def past(self, entities: Array, moments: Array) -> tuple[Array, Array, Array, Array]:
        """Return what entities were linked to before moments, int64 (n,) each.

        Returns: indptr int64 (n + 1,); columns int64 (m,), ascending within a row, each once; how often int64 (m,); and
        the last time int64 (m,).
        """
        moments = np.asarray(moments, np.int64)
        counted = self._had_together if self.ranking.together else self._links_of
        row, columns, times = counted(entities, moments)
        key = row * max(1, self.num_candidates) + columns
        order = np.lexsort((times, key))
        distinct, start, counts = np.unique(key[order], return_index=True, return_counts=True)
        newest = times[order][start + counts - 1]
        row, column = np.divmod(distinct, max(1, self.num_candidates))
        return offsets(np.bincount(row, minlength=len(entities))), column, counts.astype(np.int64), newest

    def _links_of(self, owners: Array, moments: Array) -> tuple[Array, Array, Array]:
        """Return the links of owners before moments: place among these, column and time, (m,) each."""
        who, columns, times = self._by_entity
        first, last = np.searchsorted(who, owners), np.searchsorted(who, owners, side="right")
        before = np.empty(len(first), np.int64)
        _before(times, first, last, moments, before)
        indptr = offsets(before - first)
        places = _ranges(first, indptr)
        return np.repeat(np.arange(len(first)), np.diff(indptr)), columns[places], times[places]

    def _had_together(self, entities: Array, moments: Array) -> tuple[Array, Array, Array]:
        """Return the same of what candidates were had together with, since both were: of each the newest `_NEWEST`."""
        own = self._column[entities].astype(np.int64)
        last = np.empty(len(own), np.int64)
        _before(self._times, self._starts[own], self._starts[own + 1], moments, last)
        first = np.maximum(self._starts[own], last - _NEWEST)
        indptr = offsets(last - first)
        places = _ranges(first, indptr)
        of = np.repeat(np.arange(len(own)), np.diff(indptr))
        at, columns, times = self._links_of(self._owners[places], moments[of])
        row = of[at]
        others = columns != own[row]
        return row[others], columns[others], np.maximum(times, self._times[places][at])[others]

    def own_columns(self, tasks: Array) -> Array | None:
        """Return the column of each task's entity, which is no candidate for itself; None where entities are others."""
        return self._column[self.entities(tasks)].astype(np.int64) if self.ranking.together else None

    def interactions(self, moment: int) -> tuple[Array, Array]:
        """Return entity and column of all links before a moment, those of one entity together, oldest first."""
        who, columns, times = self._by_entity
        seen = times < moment
        return who[seen], columns[seen]


def _edges_of(store: GraphStore, relation: int) -> tuple[Array, Array, Array]:
    """Return source, target and time of a relation's edges, int64 (m,) each."""
    places = np.flatnonzero(store["edge_type"] == relation)
    target = np.searchsorted(store["csc_indptr"], places, side="right") - 1
    source = np.asarray(store["csc_indices"][places], np.int64)
    time = np.asarray(store["edge_time"][places], np.int64) if "edge_time" in store else np.full(len(places), ALWAYS)
    return source, target, time


def _ranges(first: Array, indptr: Array) -> Array:
    """Return first[i], first[i] + 1, ... of each row, as many as it has."""
    return np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], np.diff(indptr))


@njit(cache=True, nogil=True)
def _first_from(times, low, high, moment):  # type: ignore[no-untyped-def]
    """Return the first place in low..high whose time is not before a moment."""
    while low < high:
        middle = (low + high) // 2
        if times[middle] < moment:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _count(starts, times, columns, since, moment, counts):  # type: ignore[no-untyped-def]
    for i in range(len(columns)):
        low, high = starts[columns[i]], starts[columns[i] + 1]
        before = _first_from(times, low, high, moment)
        counts[i, 0] = before - low
        counts[i, 1] = before - _first_from(times, low, high, since)


@njit(cache=True, nogil=True)
def _before(times, first, last, moments, before):  # type: ignore[no-untyped-def]
    for i in range(len(first)):
        before[i] = _first_from(times, first[i], last[i], moments[i])


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

    def __init__(self, store: GraphStore, typed: TypedNeighborhoods) -> None:
        """`typed`: those of the same graph."""
        self.typed = typed
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
