"""Sampling around rows of a typed graph as of a moment each: every hop, every relation takes its own fan-out.

A row of a batch is a pair of a node and a cut: the seed's moment, which all that it reaches inherits. A row sees the
edges before its cut only, so that nothing later than a seed's moment has a part in what is sampled for it.
All randomness is by counter, over key, hop, node, relation and cut: a seed's sample is the same in every batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from configs.errors import RecipeError
from models.kernels.memory import recycled
from tasks.arrays import Array, offsets
from tasks.sampling.neighborhoods.draws import SMALL_FANOUT, gather_ids
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.relational.draws import find_visible, keys_of_cuts, take_edges
from tasks.sampling.relational.edges import RelationalEdges
from tasks.sampling.relational.numbering import Rows, number_cuts

Fanouts = Sequence[int] | Mapping[str, Sequence[int]]

_ALL = 1 << 62


@dataclass
class RelationSample:
    """What one hop took of one relation."""

    indptr: Array
    """int64 (rows of the target's type among the layer's destinations + 1,)."""
    indices: Array
    """int32 (E,): sources, in numbers of the source's type."""
    positions: Array | None
    """int64 (E,): the edges' CSC positions; None where they were not asked for."""
    weights: Array | None = None
    """float32 (E,): how much each source counts; None: all alike."""


@dataclass
class TypedLayer:
    """One hop. The first num_dst[t] sources of type t are its destinations."""

    relations: tuple[RelationSample, ...]
    """In the order of `RelationalEdges.relations`."""
    num_dst: tuple[int, ...]
    """Destinations by node type."""
    num_src: tuple[int, ...]
    """Sources by node type: those of a layer are the destinations of the one before it."""


@dataclass
class TypedSample:
    """Rows by node type, and the layers between them. Seeds are the first rows of their type."""

    ids: tuple[Array, ...]
    """By type id (n_t,): nodes in the graph's numbering."""
    cuts: tuple[Array, ...] | None
    """By type int64 (n_t,): the moment as of which each row was sampled; None where there are no cuts."""
    layers: list[TypedLayer]
    """From the outermost to the seeds."""
    seed_rows: Array
    """int64 (n,): each seed's row of its type; equal seeds (node and cut) are one row."""


class TypedSampler:
    """What samplers share: seeds become rows, and each hop adds the rows that its layer reads."""

    def __init__(self, edges: RelationalEdges, num_hops: int) -> None:
        self.edges, self.num_hops = edges, num_hops
        self._idle: list[Rows] = []

    def sample(self, nodes: Array, cuts: Array | None, key: int) -> TypedSample:
        """Sample around seeds.

        Args:
            nodes: (n,) node ids, of any types.
            cuts: int64 (n,), above ALWAYS: a seed sees what is before its cut; None: everything.
            key: what to draw; the same key draws the same.
        """
        edges = self.edges
        try:
            rows = self._idle.pop()
        except IndexError:
            rows = Rows(edges.type_sizes.tolist(), edges.id_type)
        distinct, numbers = np.array([_ALL]), np.zeros(len(nodes), np.int32)
        if cuts is not None and len(cuts):
            distinct = number_cuts(np.ascontiguousarray(cuts, np.int64), numbers)
        rows.start(len(distinct))
        seed_rows = number_seeds(rows, edges, np.ascontiguousarray(nodes, edges.id_type), numbers)
        is_cut, keys = cuts is not None, [derive_key(key, hop) for hop in range(self.num_hops)]
        layers = [self._hop(rows, hop, distinct, is_cut, hop_key) for hop, hop_key in enumerate(keys)]
        kinds = range(rows.num_types)
        of_rows = None
        if cuts is not None:
            of_rows = tuple(cuts_of_rows(rows, t, distinct) for t in kinds)
        ids = tuple(copy_rows(rows.nodes(t)) for t in kinds)
        self._idle.append(rows)
        return TypedSample(ids, of_rows, layers[::-1], seed_rows)

    def _hop(self, rows: Rows, hop: int, cuts: Array, is_cut: bool, key: int) -> TypedLayer:
        """Sample one layer around all rows that there are; `cuts`: int64, the distinct ones."""
        raise AssertionError(f"{type(self).__name__} defines no _hop")


class RelationalSampler(TypedSampler):
    """Samples typed layers around seeds; several threads may share one.

    Memory for each thread that samples at the same time: 4 bytes a node of the graph once a batch has a single cut, and
    with several 50 bytes or so a row of the largest batch.
    """

    def __init__(
        self, edges: RelationalEdges, fanouts: Fanouts, *, newest: bool = False, positions: bool = True
    ) -> None:
        """Open a graph.

        Args:
            edges: what to sample.
            fanouts: edges a row takes of a relation, for each hop from the seeds outwards; -1: all. Either one list for
                all relations or a list for each relation's name, and for `default` that of all others.
            newest: whether a row that sees more takes the newest (of edges of one time, those whose sources have the
                largest ids), else any of them, each set equally likely.
            positions: whether samples tell the CSC positions of their edges.

        Raises RecipeError: the newest are wanted, and nothing has a time.
        """
        if newest and edges.times is None:
            raise RecipeError(
                "train.loader.choose=recent takes the newest edges, but nothing in this graph has a time; name a time "
                "column (dataset.tables.TABLE.time) or set train.loader.choose=uniform"
            )
        lists = fanouts if isinstance(fanouts, Mapping) else {"default": fanouts}
        by_relation = [lists[name if name in lists else "default"] for name in (one.name for one in edges.relations)]
        super().__init__(edges, len(next(iter(lists.values()))))
        self.newest, self.positions = newest, positions
        self.relations, self.numbers = edges.relations, edges.edge_types
        limits = np.array(by_relation, np.int64).reshape(len(by_relation), self.num_hops)
        limits[limits < 0] = _ALL
        self._limits = [np.ascontiguousarray(limits[list(columns)].T) for columns in edges.into]
        self._columns = [edges.into[relation.target].index(i) for i, relation in enumerate(edges.relations)]
        self._entries = edges.entries.reshape(-1)

    def _hop(self, rows: Rows, hop: int, cuts: Array, is_cut: bool, key: int) -> TypedLayer:
        """Sample one layer around all rows that there are."""
        edges, kinds, scratch = self.edges, range(rows.num_types), rows.scratch
        cut_keys = np.empty(len(cuts), np.uint64)
        keys_of_cuts(key, cuts, cut_keys)
        num_dst = tuple(rows.counts)
        kept = edges.clock.cuts(cuts) if is_cut and edges.clock is not None else None
        visible = [self._visible(rows, t, hop, kept) for t in kinds]
        dst_cuts = [rows.cut_numbers(t) for t in kinds]
        totals = [
            int(visible[r.target].totals[column]) for r, column in zip(edges.relations, self._columns, strict=True)
        ]
        parts = self._make_parts([num_dst[relation.target] + 1 for relation in edges.relations], totals)
        for t in kinds:
            for column, number in enumerate(edges.into[t]):
                part, source = parts[number], edges.relations[number].source
                if totals[number] == 0:
                    part.indptr.fill(0)
                    continue
                limit, seen = int(self._limits[t][hop, column]), visible[t]
                taken = scratch.array("taken", totals[number] + (limit if limit <= SMALL_FANOUT else 0), np.int64)
                ids = scratch.array("ids", totals[number], edges.id_type)
                of_rows = len(seen.totals), seen.slots, seen.low, seen.size, limit, self.newest, cut_keys, dst_cuts[t]
                take_edges(column, *of_rows, self._entries, part.indptr, taken, ids, part.positions)
                rows.number(source, ids, part.indptr, dst_cuts[t], part.indices)
        return TypedLayer(parts, num_dst, tuple(rows.counts))

    def _visible(self, rows: Rows, kind: int, hop: int, cuts: Array | None) -> _Visible:
        """Find the edges that a type's rows see before their cuts, as the clock has these; None: all."""
        nodes, limits, scratch = rows.nodes(kind), self._limits[kind][hop], rows.scratch
        visible = _Visible(
            scratch.array(f"slots {kind}", len(nodes), np.int64),
            scratch.array(f"low {kind}", len(nodes) * len(limits), np.int64),
            scratch.array(f"size {kind}", len(nodes) * len(limits), np.int64),
            np.zeros(len(limits), np.int64),
        )
        if len(nodes) and len(limits):
            graph = self.edges.slot_start, self.edges.indptr, None if cuts is None else self.edges.times
            into = visible.slots, visible.low, visible.size, visible.totals
            find_visible(nodes, *graph, rows.cut_numbers(kind), cuts, limits, *into)
        return visible

    def _make_parts(self, lengths: list[int], totals: list[int]) -> tuple[RelationSample, ...]:
        """Return a layer's relations with arrays to be filled, which lie end to end."""
        rows, edges = offsets(lengths).tolist(), offsets(totals).tolist()
        indptr, indices = recycled(rows[-1], np.int64), recycled(edges[-1], np.int32)
        positions = recycled(edges[-1], np.int64) if self.positions else None
        return tuple(
            RelationSample(indptr[a:b], indices[c:d], None if positions is None else positions[c:d])
            for (a, b), (c, d) in zip(itertools.pairwise(rows), itertools.pairwise(edges), strict=True)
        )


@dataclass
class _Visible:
    """What a type's n rows see of each of their slots; see `find_visible`."""

    slots: Array
    low: Array
    size: Array
    totals: Array


def cuts_of_rows(rows: Rows, kind: int, cuts: Array) -> Array:
    """Return the cuts of a type's rows, int64 (n,), of the distinct ones."""
    numbers, moments = rows.cut_numbers(kind), recycled(rows.counts[kind], np.int64)
    if numbers is None:
        moments.fill(cuts[0])
    else:
        gather_ids(cuts, numbers, moments)
    return moments


def copy_rows(array: Array) -> Array:
    """Return a copy of what the next batch overwrites."""
    copied = recycled(len(array), array.dtype)
    copied[:] = array
    return copied


def number_seeds(rows: Rows, edges: RelationalEdges, nodes: Array, numbers: Array) -> Array:
    """Make the seeds the first rows of their types; return their rows, int64 (n,)."""
    kinds = edges.node_type[nodes]
    seed_rows = np.empty(len(nodes), np.int64)
    present = np.flatnonzero(np.bincount(kinds, minlength=rows.num_types)).tolist()
    for kind in present:
        of_kind = slice(None) if len(present) == 1 else np.flatnonzero(kinds == kind)
        ids = nodes[of_kind]
        local = np.empty(len(ids), np.int32)
        rows.number(kind, ids, np.arange(len(ids) + 1), numbers[of_kind], local)
        seed_rows[of_kind] = local
    return seed_rows
