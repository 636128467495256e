"""Importance neighbourhoods (Ying et al., KDD 2018, section 3.1): what short random walks from a row visit most.

A walk makes traversals of a path of relations to a row of the type that counts, and after each starts over with some
probability. The rows that the walks of a row visit most are its neighbours, weighted by their shares of the visits.
As everywhere a row is a pair of a node and a cut, and walks go along edges before the cut only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.relational.batch import visits_number
from models.relational.configs import ImportanceWalksConfig
from tasks.arrays import Array
from tasks.sampling.relational.draws import keys_of_cuts
from tasks.sampling.relational.edges import Relation, RelationalEdges
from tasks.sampling.relational.numbering import Rows, number_cuts
from tasks.sampling.relational.sampler import RelationSample, TypedLayer, TypedSampler, copy_rows
from tasks.sampling.relational.walks import Path, as_columns, history_paths, most_visited, paths_back
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore

_ALL = 1 << 62


class ImportanceSampler(TypedSampler):
    """Samples layers in which rows have the rows that walks visit most; several threads may share one.

    Rows of the type that counts have neighbours, and those of further types whose walks lead to it. Takes and returns
    what `RelationalSampler` does, with one relation for each type that has neighbours; edges have weights.
    """

    def __init__(
        self,
        edges: RelationalEdges,
        options: ImportanceWalksConfig,
        num_hops: int,
        kind: int,
        back: list[Path],
        others: Mapping[int, Path],
    ) -> None:
        """Open a graph.

        Args:
            edges: what is walked along.
            options: of walks.
            num_hops: layers.
            kind: number of the type that counts.
            back: paths from its rows to others of it.
            others: paths from rows of further types to those of it.
        """
        super().__init__(edges, num_hops)
        self._kind, self._most = kind, options.neighbors
        restart = min(int(options.restart * 2.0**64), 2**64 - 1)
        self._options = options.count, options.length, np.uint64(restart), options.neighbors
        self._again = as_columns(edges, back)
        self._first = {kind: self._again} | {t: as_columns(edges, [path]) for t, path in sorted(others.items())}
        self.numbers = tuple(visits_number(t) for t in self._first)
        """Of the relations: below 0, for they are none of the graph's."""
        names = edges.node_types
        self.relations = tuple(Relation(f"{names[kind]} that {names[t]} visit", kind, t) for t in self._first)
        self._graph = edges.slot_start, edges.indptr, edges.times, edges.entries.reshape(-1)

    @classmethod
    def of_store(
        cls, store: GraphStore, edges: RelationalEdges, options: ImportanceWalksConfig, num_hops: int
    ) -> ImportanceSampler:
        """Return the sampler of what a graph predicts: candidates and entities, or the rows that are predicted.

        Raises RecipeError: walks have nowhere to go.
        """
        facts = graph_facts(store.manifest)
        if facts.rank_type is None:
            return cls(edges, options, num_hops, facts.seed_type, paths_back(edges, facts.seed_type, options.paths), {})
        first, back = history_paths(store, edges)
        paths = paths_back(edges, facts.rank_type, options.paths) if options.paths else [back]
        others = {} if facts.seed_type == facts.rank_type else {facts.seed_type: first}
        return cls(edges, options, num_hops, facts.rank_type, paths, others)

    def visits(self, nodes: Array, cuts: Array | None, key: int, most: int) -> tuple[Array, Array, Array]:
        """Return what walks from nodes of one type, (n,), visit most, at most so many each.

        Returns: indptr int64 (n + 1,), ids (m,), weights float32 (m,).
        """
        distinct, numbers = np.array([_ALL]), np.zeros(len(nodes), np.int32)
        if cuts is not None and len(cuts):
            distinct = number_cuts(np.ascontiguousarray(cuts, np.int64), numbers)
        given = np.ascontiguousarray(nodes, self.edges.id_type), numbers if len(distinct) > 1 else None
        kind = int(self.edges.node_type[nodes[0]]) if len(nodes) else self._kind
        return self._walk(kind, *given, distinct, (cuts is not None, key), most)

    def _hop(self, rows: Rows, hop: int, cuts: Array, is_cut: bool, key: int) -> TypedLayer:
        num_dst = tuple(rows.counts)
        given = {t: (copy_rows(rows.nodes(t)), rows.cut_numbers(t)) for t in self._first}
        parts = []
        for t, (nodes, numbers) in given.items():
            own = None if numbers is None else numbers.copy()
            indptr, ids, weights = self._walk(t, nodes, own, cuts, (is_cut, key), self._most)
            local = np.empty(len(ids), np.int32)
            rows.number(self._kind, ids, indptr, own, local)
            parts.append(RelationSample(indptr, local, None, weights))
        return TypedLayer(tuple(parts), num_dst, tuple(rows.counts))

    def _walk(
        self, kind: int, nodes: Array, numbers: Array | None, cuts: Array, drawn: tuple[bool, int], most: int
    ) -> tuple[Array, Array, Array]:
        is_cut, key = drawn
        cut_keys = np.empty(len(cuts), np.uint64)
        keys_of_cuts(key, cuts, cut_keys)
        slot_start, indptr, times, entries = self._graph
        clock = self.edges.clock
        kept = clock.cuts(cuts) if is_cut and clock is not None else cuts
        along = slot_start, indptr, times if is_cut else None, entries, self._first[kind], self._again
        visits, room = np.zeros(len(nodes) + 1, np.int64), len(nodes) * most
        ids, weights = np.empty(room, self.edges.id_type), np.empty(room, np.float32)
        options = *self._options[:3], most
        most_visited(nodes, numbers, kept, cut_keys, *along, options, visits, ids, weights)
        size = int(visits[-1])
        return visits, ids[:size].copy(), weights[:size].copy()
