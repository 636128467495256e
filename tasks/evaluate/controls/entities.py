"""What is known of the entities of tasks as of their moments: their own rows, and what lies one key away.

For models that predict rows at moments. Nothing later than a row's moment has a part in it: what is seen is what the
batches of training could see (`tasks.sampling.relational`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import njit

from models.kernels.threads import even_rows, run_rows
from models.relational.encoders import columns_of
from tasks.arrays import Array
from tasks.sampling.neighborhoods.lookup import frozen
from tasks.sampling.relational.batches import SeedMoments, ages, sorted_edges
from tasks.sampling.relational.columns import gather_columns
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore, create_array, slices

_MOST_AVERAGED = 256
"""Edges of a relation, the newest, that means are taken of."""
_CHUNK_ROWS = 1 << 16


class EntityRows:
    """Features of tasks, in files; row i is that of `rows[i]`."""

    def __init__(self, store: GraphStore, rows: Array, scratch: Path) -> None:
        """Compute them for labelled nodes, int64 (n,) ascending; `scratch` takes the files."""
        self.rows = rows
        self._store, self._facts = store, graph_facts(store.manifest)
        self._moments, self._edges = SeedMoments(store, self._facts), sorted_edges(store)
        facts, kind = self._facts, self._facts.seed_type
        self._columns = columns_of(facts.node_columns, kind, facts.feature_dim)
        self._codes = columns_of(facts.node_codes, kind, len(facts.categories))
        self._feat, self._edge_feat = (_numbers(store.get(name)) for name in ("feat", "edge_feat"))
        relations = [self._edges.relations[i].source for i in self._edges.into[kind]]
        numbers = [self._edges.edge_types[i] for i in self._edges.into[kind]]
        self._of_source = [columns_of(facts.node_columns, source, facts.feature_dim) for source in relations]
        self._of_edge = [columns_of(facts.edge_columns, number, facts.edge_feature_dim) for number in numbers]
        width = sum(2 + len(a) + len(b) for a, b in zip(self._of_source, self._of_edge, strict=True))
        self.numbers = create_array(scratch / "entity-numbers.npy", (len(rows), 1 + len(self._columns)), np.float32)
        """float32 (n, D + 1): numbers of the entity's own row, and its age at the moment; NaN where it has none."""
        self.codes = create_array(scratch / "entity-codes.npy", (len(rows), len(self._codes)), np.int32)
        """int32 (n, C): categories of the entity's own row."""
        self.nearby = create_array(scratch / "entity-nearby.npy", (len(rows), width), np.float32)
        """float32 (n, F): for each relation into the entity how many edges there are before the moment, the age of the
        newest, and the means of the numbers of its newest neighbours and edges; NaN where there is none."""
        for part in slices(len(rows), _CHUNK_ROWS):
            self._fill(part)

    def places(self, rows: Array) -> Array:
        """Return the places of labelled nodes, int64 (n,)."""
        return np.searchsorted(self.rows, rows)

    def _fill(self, part: slice) -> None:
        seeds = self.rows[part]
        nodes, cuts = self._moments.entities(seeds), self._moments.cuts(seeds)
        time = self._store.get("node_time")
        unit = self._facts.age_unit
        if self._columns:
            assert self._feat is not None
            self.numbers[part, :-1] = gather_columns(self._feat, nodes, self._columns, np.float32).numpy()
        self.numbers[part, -1] = np.nan if time is None else ages(np.asarray(time[nodes]), cuts, unit).numpy()
        if self._codes:
            self.codes[part] = gather_columns(self._store["feat_cat"], nodes, self._codes, np.int64).numpy()
        place = 0
        for slot, (of_source, of_edge) in enumerate(zip(self._of_source, self._of_edge, strict=True)):
            found = self._summary(nodes, cuts, slot, of_source, of_edge)
            self.nearby[part, place : place + found.shape[1]] = found
            place += found.shape[1]

    def _summary(
        self, nodes: Array, cuts: Array | None, slot: int, of_source: tuple[int, ...], of_edge: tuple[int, ...]
    ) -> Array:
        """Return one relation's columns of `nearby`."""
        edges = self._edges
        first, last = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int64)
        times = None if cuts is None else edges.times
        bounds = even_rows(len(nodes))
        run_rows(_find_visible, bounds, frozen(nodes), cuts, edges.slot_start, slot, edges.indptr, times, first, last)
        count = (last - first).astype(np.float32)
        newest = np.full(len(nodes), np.nan, np.float32)
        some = last > first
        if times is not None:
            assert cuts is not None
            newest[some] = ages(times[last[some] - 1], cuts[some], self._facts.age_unit).numpy()
        columns = [count[:, None], newest[:, None]]
        for table, rows, wanted in (
            (self._feat, edges.sources, of_source),
            (self._edge_feat, edges.positions, of_edge),
        ):
            if wanted:
                assert table is not None
                means = np.empty((len(nodes), len(wanted)), np.float32)
                flat = frozen(table).reshape(-1)
                numbers = np.asarray(wanted, np.int64)
                run_rows(_average, bounds, first, last, rows, flat, table.shape[1], numbers, means)
                columns.append(means)
        return np.concatenate(columns, axis=1)


def _numbers(table: Array | None) -> Array | None:
    """Return features as numba reads them: float32."""
    return table if table is None or table.dtype == np.float32 else np.asarray(table, np.float32)


@njit(cache=True, nogil=True)
def _find_visible(low, high, nodes, cuts, slot_start, slot, indptr, times, first, last):  # type: ignore[no-untyped-def]
    """Fill first and last int64 (n,): the edges of a relation that each node has before its cut."""
    for i in range(low, high):
        start = slot_start[nodes[i]] + slot
        begin, end = indptr[start], indptr[start + 1]
        first[i] = begin
        if times is not None:
            while begin < end:
                middle = (begin + end) // 2
                if times[middle] < cuts[i]:
                    begin = middle + 1
                else:
                    end = middle
        last[i] = end


@njit(cache=True, nogil=True)
def _average(low, high, first, last, rows, table, width, columns, means):  # type: ignore[no-untyped-def]
    """Fill means float32 (n, C): of some columns of the table's rows that edges first to last name, the newest ones."""
    for i in range(low, high):
        start = max(first[i], last[i] - _MOST_AVERAGED)
        count = last[i] - start
        for j in range(len(columns)):
            total = 0.0
            for e in range(start, last[i]):
                total += table[np.int64(rows[e]) * width + columns[j]]
            means[i, j] = total / count if count > 0 else np.nan
