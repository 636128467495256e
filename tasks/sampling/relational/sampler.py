"""Sampling around rows of a typed graph as of a moment each: every hop, every relation takes its own fan-out.

A row of a batch is a pair of a node and a cut: the seed's moment, which all that it reaches inherits. A row sees the
edges before its cut only, so that nothing later than a seed's moment has a part in what is sampled for it.
All randomness is by counter, over key, hop, node, relation and cut: a seed's sample is the same in every batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from configs.errors import RecipeError
from models.kernels.memory import recycled
from tasks.arrays import Array
from tasks.sampling.neighborhoods.draws import SMALL_FANOUT, gather_ids
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.relational.draws import draw_edges, find_visible, keys_of_cuts
from tasks.sampling.relational.edges import RelationalEdges
from tasks.sampling.relational.rows import Rows

Choice = Literal["uniform", "recent"]
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


class RelationalSampler:
    """Samples typed layers around seeds; several threads may share one.

    Memory for each thread that samples at the same time: 4 bytes a node of the graph once a batch has a single cut, and
    with several 50 bytes or so a row of the largest batch.
    """

    def __init__(
        self, edges: RelationalEdges, fanouts: Fanouts, choose: Choice = "uniform", *, positions: bool = True
    ) -> None:
        """Open a graph.

        Args:
            edges: what to sample.
            fanouts: edges a row takes of a relation, for each hop from the seeds outwards; -1: all. Either one list for
                all relations or a list for each relation's name, and for `default` that of all others.
            choose: where a row sees more, `uniform` takes any of them, each set equally likely; `recent` the newest
                (of edges of one time, those whose sources have the largest ids).
            positions: whether samples tell the CSC positions of their edges.

        Raises RecipeError: an option is wrong.
        """
        if choose not in get_args(Choice):
            raise RecipeError(f"train.loader.choose is {choose!r}; it is one of {', '.join(get_args(Choice))}")
        if choose == "recent" and edges.times is None:
            raise RecipeError(
                "train.loader.choose=recent takes the newest edges, but nothing in this graph has a time; name a time "
                "column (dataset.tables.TABLE.time) or set train.loader.choose=uniform"
            )
        self.edges, self.choose, self.positions = edges, choose, positions
        by_relation, self.num_hops = _by_relation(fanouts, [relation.name for relation in edges.relations])
        limits = np.array(by_relation, np.int64).reshape(len(by_relation), self.num_hops)
        limits[limits < 0] = _ALL
        self._limits = [np.ascontiguousarray(limits[list(columns)].T) for columns in edges.into]
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
            rows = Rows(edges.type_sizes.tolist(), edges.sources.dtype)
        distinct, numbers = np.array([_ALL]), np.zeros(len(nodes), np.int32)
        if cuts is not None and len(cuts):
            distinct, numbers = np.unique(np.asarray(cuts, np.int64), return_inverse=True)
        rows.start(len(distinct))
        seed_rows = _number_seeds(rows, edges, np.ascontiguousarray(nodes, edges.sources.dtype), numbers)
        times = None if cuts is None else edges.times
        layers = [self._hop(rows, hop, distinct, times, derive_key(key, hop)) for hop in range(self.num_hops)]
        kinds = range(rows.num_types)
        of_rows = None
        if cuts is not None:
            one = len(distinct) == 1
            of_rows = tuple(
                np.full(rows.counts[t], distinct[0]) if one else distinct[rows.cut_numbers(t)] for t in kinds
            )
        sample = TypedSample(tuple(rows.nodes(t).copy() for t in kinds), of_rows, layers[::-1], seed_rows)
        self._idle.append(rows)
        return sample

    def _hop(self, rows: Rows, hop: int, cuts: Array, times: Array | None, key: int) -> TypedLayer:
        """Sample one layer around all rows that there are."""
        cut_keys = np.empty(len(cuts), np.uint64)
        keys_of_cuts(key, cuts, cut_keys)
        num_dst = tuple(rows.counts)
        found: dict[int, RelationSample] = {}
        visible = [self._visible(rows, t, hop, cuts, times) for t in range(rows.num_types)]
        for t, (seen, totals) in enumerate(visible):
            dst_cuts = rows.cut_numbers(t)[: num_dst[t]]
            by_cut = cut_keys, (None if rows.num_cuts == 1 else dst_cuts)
            for column, relation in enumerate(self.edges.into[t]):
                limit, total = self._limits[t][hop, column], int(totals[column])
                counts, taken = self._draw(column, seen, int(limit), total, by_cut)
                found[relation] = self._number(rows, relation, counts, taken, dst_cuts)
        relations = tuple(found[i] for i in range(len(self.edges.relations)))
        return TypedLayer(relations, num_dst, tuple(rows.counts))

    def _visible(
        self, rows: Rows, kind: int, hop: int, cuts: Array, times: Array | None
    ) -> tuple[tuple[Array, ...], Array]:
        """Return what `find_visible` says of a type's rows (slots, low, size), and how many edges each relation takes."""
        nodes, limits = rows.nodes(kind), self._limits[kind][hop]
        slots = recycled(len(nodes), np.int64)
        low, size = recycled(len(nodes) * len(limits), np.int64), recycled(len(nodes) * len(limits), np.int64)
        totals = np.zeros(len(limits), np.int64)
        if rows.num_cuts == 1:
            cut_numbers = np.zeros(len(nodes), np.int32)
        else:
            cut_numbers = rows.cut_numbers(kind)
        if len(nodes) and len(limits):
            graph = self.edges.slot_start, self.edges.indptr, times
            find_visible(nodes, *graph, cut_numbers, cuts, limits, slots, low, size, totals)
        return (slots, low, size), totals

    def _draw(
        self, column: int, seen: tuple[Array, ...], limit: int, total: int, by_cut: tuple[Array, Array | None]
    ) -> tuple[Array, Array]:
        """Return indptr int64 (n + 1,) of one relation's edges, and the edges, int64 (m,)."""
        slots, low, size = seen
        counts = recycled(len(slots) + 1, np.int64)
        if total == 0:
            counts.fill(0)
            return counts, np.empty(0, np.int64)
        room = total + (limit if limit <= SMALL_FANOUT else 0)
        taken = recycled(room, np.int64)
        width = len(low) // len(slots)
        draw_edges(column, width, slots, low, size, limit, self.choose == "recent", *by_cut, counts, taken)
        return counts, taken[:total]

    def _number(self, rows: Rows, relation: int, counts: Array, taken: Array, dst_cuts: Array) -> RelationSample:
        """Look up the sources of edges and give them local numbers."""
        ids = recycled(len(taken), self.edges.sources.dtype)
        gather_ids(self.edges.sources, taken, ids)
        local = rows.number(self.edges.relations[relation].source, ids, counts, dst_cuts)
        positions = None
        if self.positions:
            positions = recycled(len(taken), np.int64)
            gather_ids(self.edges.positions, taken, positions)
        return RelationSample(counts, local, positions)


def _number_seeds(rows: Rows, edges: RelationalEdges, nodes: Array, numbers: Array) -> Array:
    """Make the seeds the first rows of their types; return their rows, int64 (n,)."""
    numbers = numbers.astype(np.int32)
    kinds = edges.node_type[nodes]
    seed_rows = np.empty(len(nodes), np.int64)
    for kind in np.unique(kinds):
        of_kind = np.flatnonzero(kinds == kind)
        indptr = np.arange(len(of_kind) + 1)
        seed_rows[of_kind] = rows.number(int(kind), nodes[of_kind], indptr, numbers[of_kind])
    return seed_rows


def _by_relation(fanouts: Fanouts, names: Sequence[str]) -> tuple[list[list[int]], int]:
    """Return each relation's fan-outs, and for how many hops they are. Raises RecipeError."""
    lists = fanouts if isinstance(fanouts, Mapping) else {"default": fanouts}
    known = f"the relations are {', '.join(names)}"
    for name, hops in lists.items():
        if name != "default" and name not in names:
            raise RecipeError(f"train.loader.fanout names {name!r}, which is no relation of this graph; {known}")
        if not len(hops) or any(hop < -1 for hop in hops):
            raise RecipeError(
                f"train.loader.fanout of {name!r} is {list(hops)}; it needs a number for each hop from the seeds "
                "outwards: edges to take, 0 for none, -1 for all"
            )
    missing = [name for name in names if name not in lists]
    if missing and "default" not in lists:
        raise RecipeError(f"train.loader.fanout has no list for {', '.join(missing)}; add them, or one for `default`")
    lengths = {name: len(hops) for name, hops in lists.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise RecipeError(
            f"train.loader.fanout has lists of different lengths ({said}); a model's layers are one number"
        )
    by_relation = [[int(hop) for hop in lists.get(name, lists.get("default", ()))] for name in names]
    return by_relation, next(iter(lengths.values()))
