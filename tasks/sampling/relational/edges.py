"""A typed graph's in-edges in the order in which batches as of a moment read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from configs.errors import DataError
from models.kernels.threads import CHUNKS_A_THREAD, num_threads, run_each
from tasks.arrays import Array, offsets, row_ranges
from tasks.sampling.neighborhoods.lookup import frozen
from tasks.sampling.relational.cuts import Clock
from tasks.sampling.relational.edge_order import count_edges, fill_slots
from tasks.storage.graph_store import GraphStore, id_dtype


@dataclass(frozen=True)
class Relation:
    """Edges of one kind between two node types."""

    name: str
    """`SOURCE__RELATION__TARGET`, as in the manifest's `edge_types`."""
    source: int
    """Number of the source's type in the manifest's `node_types`."""
    target: int
    """Number of the target's type."""
    is_own_key: bool = False
    """Whether the source is what a foreign key of the target names."""


class RelationalEdges:
    """In-edges of every node by relation, and within a relation by time, then by source.

    An edge has a slot at its target: one for each relation that the target's type can be the target of. So the edges
    of a relation that a node has before some moment are the first ones of a slot, and those that it takes do not depend
    on any later edge. An edge's time is the later one of its own and its source's: with a row that is not there yet,
    nothing leads to it. What has no time has always been there (`ALWAYS`).

    A row and its own foreign keys are known together: an edge to a row from what a key of its own names is there as
    soon as the row is, where what is named is no younger. So a row that is asked about as of its own time sees what it
    names, and no other row of that time.

    Memory: 8 bytes a node, 8 a slot, and 8 an edge (16 beyond 2^31 nodes or edges), 4 more where there are
    times (8 where they span more than 2^31).
    """

    def __init__(self, store: GraphStore, relations: Sequence[Relation], left_out: int | None = None) -> None:
        """Sort a graph's edges, in O(E log E) at most, on all threads.

        Args:
            store: `csc_indptr`, `csc_indices`, and where it has them `edge_type`, `edge_time`, `node_type`,
                `node_time`.
            relations: what the numbers of `edge_type` mean.
            left_out: number of a node type whose relations are left out.

        Raises DataError: an edge is of a relation that does not lead to its target's type.
        """
        arrays = {name: store.get(name) for name in ("edge_type", "edge_time", "node_type", "node_time")}
        edge_type, edge_time, node_type, node_time = (None if a is None else frozen(a) for a in arrays.values())
        csc = frozen(store["csc_indptr"]), frozen(store["csc_indices"])
        num_types = len(store.manifest.node_types)
        num_nodes = len(csc[0]) - 1
        kept = [r for r in range(len(relations)) if left_out not in (relations[r].source, relations[r].target)]
        self.node_types = store.manifest.node_types
        self.relations = tuple(relations[r] for r in kept)
        """The relations that are sampled."""
        self.edge_types = tuple(kept)
        """Their numbers in `edge_type`."""
        self.into: tuple[tuple[int, ...], ...] = tuple(
            tuple(i for i, relation in enumerate(self.relations) if relation.target == t) for t in range(num_types)
        )
        """By node type: places in `relations` of those into it, in the order of a node's slots."""
        self.node_type = np.zeros(num_nodes, np.int16) if node_type is None else node_type
        """int16 (N,)."""
        self.type_sizes = np.bincount(self.node_type, minlength=num_types)
        """int64 (T,): nodes of each type."""
        column_of = np.full(len(relations), -1, np.int64)
        for columns in self.into:
            column_of[[kept[i] for i in columns]] = np.arange(len(columns))
        self.slot_start = offsets(np.array([len(columns) for columns in self.into], np.int64)[self.node_type])
        """int64 (N + 1,): each node's first slot."""
        by_type = edge_type, column_of, self.slot_start
        self.indptr = self._count(csc[0], by_type, relations)
        """int64 (S + 1,): each slot's first edge."""
        has_times = edge_time is not None or node_time is not None
        self.clock = Clock.spanning(edge_time, node_time) if has_times else None
        """How times are kept; None where nothing has a time."""
        own_keys = np.array([relation.is_own_key for relation in relations], np.bool_)
        size = int(self.indptr[-1])
        self.id_type = csc[1].dtype
        """Dtype of node ids."""
        self.entries = np.empty((size, 2), id_dtype(max(num_nodes, len(csc[1]))))
        """(E, 2): source and CSC position of each edge; side by side, for they are read together from random places."""
        clock = self.clock or Clock(0, 0, np.int64)
        self.times = np.empty(size, clock.dtype) if has_times else None
        """(E,), as the clock keeps them, ascending within a slot; None where nothing has a time."""
        ranges = _node_ranges(csc[0])
        given = *csc, edge_type, edge_time, node_time, own_keys, column_of, self.slot_start, self.indptr
        filled = self.entries, self.times, clock.origin, clock.least
        run_each(lambda i: fill_slots(*ranges[i], *given, *filled), len(ranges))

    def _count(
        self, csc_indptr: Array, by_type: tuple[Array | None, Array, Array], relations: Sequence[Relation]
    ) -> Array:
        """Return the slots' indptr. Raises DataError."""
        counts = np.zeros(int(self.slot_start[-1]), np.int64)
        strays = np.full(1, -1, np.int64)
        ranges = _node_ranges(csc_indptr)
        run_each(lambda i: count_edges(*ranges[i], csc_indptr, *by_type, counts, strays), len(ranges))
        if strays[0] >= 0:
            edge_type = by_type[0]
            name = relations[0 if edge_type is None else int(edge_type[strays[0]])].name
            node = int(np.searchsorted(csc_indptr, strays[0], side="right")) - 1
            kind = self.node_types[int(self.node_type[node])]
            raise DataError(
                f"an edge of relation {name} leads to node {node}, which is of type {kind}; relational sampling needs "
                "relations between two node types each (with preprocess.self_loops=add, take remove)"
            )
        return offsets(counts)


def _node_ranges(csc_indptr: Array) -> list[tuple[int, int]]:
    return row_ranges(csc_indptr, CHUNKS_A_THREAD * num_threads())
