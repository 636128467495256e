"""Rows of nodes that other machines hold: features, categories, types, degrees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from models.block import Block, Inputs
from models.kernels.memory import recycled
from tasks.arrays import Array, offsets
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.kernels import as_rows, count_owners, deal_out, follow, locate, take_either, take_numbers
from tasks.sampling.parts.sampler import PartSample
from tasks.sampling.rows.features import FeatureSource, count_types, node_id_tensor
from tasks.sampling.rows.gather import gather_mean, gather_rows

_SPARE = 8  # an eighth more room than asked for, since no two groups of batches are of one size


@dataclass(frozen=True)
class Located:
    """Where the rows of some lists of nodes are."""

    rows: list[Array]
    """For each list, like its ids (n,): row r >= 0 of this machine's tables, or row ~r of `extra`."""
    extra: Mapping[str, Array]
    """By table: rows of other machines, good until the next fetch."""


class PartRows:
    """Fetches rows of node tables from the ranks that hold them; all ranks call it together, from one thread.

    A row that several batches want travels once, and one that is kept never again.
    """

    def __init__(self, graph: PartGraph, tables: Mapping[str, Array]) -> None:
        """`tables`: this machine's rows, by name, (end - first, ...)."""
        self.graph, self.here = graph, (graph.first, graph.end)
        self.tables = dict(tables)
        self.kept = np.empty(0, graph.numbering.nodes.dtype)
        """Nodes of others whose rows stay."""
        self.wanted_rows = self.remote_rows = self.fetched_rows = 0
        """Rows that batches read so far, as often as they did; those of others; those that travelled."""
        self._extra = {name: np.empty((0, *table.shape[1:]), table.dtype) for name, table in self.tables.items()}

    @property
    def row_bytes(self) -> int:
        """Bytes of a node's rows in all tables."""
        return sum(table.itemsize * math.prod(table.shape[1:]) for table in self.tables.values())

    def keep(self, nodes: Array) -> None:
        """Fetch rows of other machines' nodes (n,), distinct, that stay; all ranks together."""
        self.kept = nodes[:0]
        self.kept = self._bring(nodes, [])

    def fetch(self, wanted: Sequence[Array]) -> Located:
        """Fetch the rows of lists of nodes, (n,) each, like the graph's ids; all ranks together."""
        rows, missing = self._locate(wanted)
        self._bring(missing, rows)
        return Located(rows, self._extra)

    def missing(self, wanted: Sequence[Array]) -> Array:
        """Return the nodes whose rows would have to travel: (n,), distinct."""
        return self._locate(wanted)[1]

    def _locate(self, wanted: Sequence[Array]) -> tuple[list[Array], Array]:
        """Find the rows of lists of nodes, (n,) each, like the graph's ids.

        Returns:
            For each list row r >= 0 of those here, or ~r, r a number among the kept nodes and, behind them, the second
            result: the distinct nodes whose rows are not here, (m,), good until the next call.
        """
        numbering = self.graph.numbering
        numbering.start()
        numbering.number(self.kept)
        rows = []
        for ids in wanted:
            numbering.check_room(len(ids))
            places = recycled(len(ids), ids.dtype)
            table = numbering.table, numbering.base, numbering.nodes, numbering.count
            numbering.count = locate(ids, *self.here, *table, places)
            rows.append(places)
            self.wanted_rows += len(places)
            self.remote_rows += int(np.count_nonzero(places < 0))
        return rows, numbering.nodes[len(self.kept) : numbering.count]

    def take(self, name: str, located: Located, number: int) -> Array:
        """Return the rows of list `number` of a table, (n, ...)."""
        table, rows = self.tables[name], located.rows[number]
        out = recycled((len(rows), *table.shape[1:]), table.dtype)
        if table.ndim == 1:
            extra = located.extra[name]
            take_numbers(table if len(table) else extra, extra, rows, out)
            return out
        take_either(as_rows(table), as_rows(located.extra[name]), rows, as_rows(out))
        return out

    def _bring(self, nodes: Array, rows: Sequence[Array]) -> Array:
        """Bring the rows of nodes (m,), distinct, behind those that are kept, and let `rows` lead there.

        Returns the nodes in the order in which they came: rank by rank.
        """
        graph, exchange, kept = self.graph, self.graph.exchange, len(self.kept)
        where = *self.here, graph.bounds
        expected = np.zeros(exchange.world_size, np.int64)  # rows that come from each rank
        count_owners(nodes, *where, expected)
        order, place = np.empty(len(nodes), nodes.dtype), np.empty(len(nodes), np.int64)
        deal_out(nodes, *where, offsets(expected)[:-1], nodes[:0], order, place)
        if np.count_nonzero(expected) > 1:  # else they are in the order of their numbers
            place = ~place  # all went into the message
            for some in rows:
                follow(some, kept, place)
        counts = exchange.counts(expected[:, None])[:, 0].tolist()  # rows that each rank wants of this one
        asked = exchange.send(order, expected.tolist(), counts)
        asked = asked - asked.dtype.type(self.here[0])
        self.fetched_rows += len(order)
        for name, table in self.tables.items():
            extra = self._room(name, kept + len(order))
            exchange.start(_take(table, asked), counts, extra[kept:], expected.tolist())()
        return order

    def _room(self, name: str, count: int) -> Array:
        """Return a table for so many rows, of which those that are kept are filled."""
        extra = self._extra[name]
        if len(extra) < max(1, count):
            larger = recycled((1 + count + count // _SPARE, *extra.shape[1:]), extra.dtype)
            larger[: len(self.kept)] = extra[: len(self.kept)]
            self._extra[name] = extra = larger
        return extra


def _take(table: Array, rows: Array) -> Array:
    row_bytes = table.itemsize * int(np.prod(table.shape[1:], dtype=np.int64))
    if table.ndim == 2 and row_bytes % 4 == 0 and table.flags.c_contiguous:
        bits = table.view(np.float32)  # copied as they are, whatever they mean
        return gather_rows(bits, rows, torch.float32).numpy().view(table.dtype)
    return np.take(table, rows, axis=0, mode="clip")


_NODE_TABLES = ("feat_cat", "node_type", "label")
_EDGE_TABLES = ("edge_feat", "edge_feat_cat", "edge_type", "edge_weight")
_DEGREE = "in_degree"


class PartFeatures:
    """`FeatureSource` over a graph in parts: for some batches at once; all ranks call it together, from one thread."""

    def __init__(self, graph: PartGraph, own: FeatureSource) -> None:
        """`own`: of this machine's rows; all ranks together."""
        self.own = own = _alike(graph, own)
        tables: dict[str, Array] = {_DEGREE: np.diff(graph["csc_indptr"]).astype(np.float32)}
        if own.table is not None:
            tables["feat"] = own.table
        tables |= {name: table for name in _NODE_TABLES if (table := getattr(own, name)) is not None}
        self.graph, self.rows = graph, PartRows(graph, tables)

    def edge_columns(self) -> dict[str, Array]:
        """Return what edges carry, by name: rows of this machine's in-edges."""
        columns = {name: getattr(self.own, name) for name in _EDGE_TABLES}
        return {name: table for name, table in columns.items() if table is not None}

    def inputs(self, nodes: Sequence[Array]) -> Iterator[tuple[Inputs, Array]]:
        """Yield the inputs of lists of nodes, and their in-degrees in the whole graph, float32 (n,)."""
        located = self.rows.fetch(nodes)
        for number, ids in enumerate(nodes):
            inputs = self._inputs(ids, located, number)
            if self.own.table is not None:
                rows = located.rows[number]
                inputs = replace(inputs, feat=gather_rows(self.own.table, rows, self.own.dtype, located.extra["feat"]))
            yield inputs, self.rows.take(_DEGREE, located, number)

    def inputs_and_mean(self, nodes: Sequence[Array], outer: Sequence[PartSample]) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield the inputs of destinations and the means of their sources' numeric features, (n, D).

        `outer` are the layers whose destinations are lists of `nodes`, and whose sources are node ids.
        """
        assert self.own.table is not None, "a mean is taken of numeric features"
        located = self.rows.fetch([*nodes, *(layer.indices for layer in outer)])
        for number, (ids, layer) in enumerate(zip(nodes, outer, strict=True)):
            rows, sources = located.rows[number], located.rows[len(nodes) + number]
            extra = located.extra["feat"]
            feat, mean = gather_mean(self.own.table, rows, layer.indptr, sources, self.own.dtype, extra)
            yield replace(self._inputs(ids, located, number), feat=feat), mean

    def _inputs(self, ids: Array, located: Located, number: int) -> Inputs:
        """Return all but the numeric features."""
        known = {name: self.rows.take(name, located, number) for name in _NODE_TABLES if name in self.rows.tables}
        codes, types, label = (known.get(name) for name in _NODE_TABLES)
        node_type = None if types is None else torch.from_numpy(types.astype(np.int64))
        return Inputs(
            node_id_tensor(ids),
            feat_cat=None if codes is None else torch.from_numpy(codes.astype(np.int64)),
            label=None if label is None else torch.from_numpy(label),
            node_type=node_type,
            node_type_counts=count_types(node_type),
        )


def _alike(graph: PartGraph, own: FeatureSource) -> FeatureSource:
    """Return the features with rows of one kind on all ranks: where one has no room for a copy, nobody has one."""
    if own.dtype != torch.bfloat16 or own.rows != "stored" or own.table is None:
        return own
    return replace(own, may_copy=False) if graph.exchange.largest(int(own.table is own.feat)) else own


def make_block(layer: PartSample) -> Block:
    """Turn a sampled layer, whose sources' degrees are known, into a block with what its edges carry."""
    indptr, indices, degree = map(torch.from_numpy, (layer.indptr, layer.indices, layer.degree))
    block = Block(indptr, indices, len(degree), degree=degree)
    block.weight = None if layer.weight is None else torch.from_numpy(layer.weight)
    columns = layer.columns
    for name, dtype in (("edge_feat", np.float32), ("edge_feat_cat", np.int64), ("edge_type", np.int64)):
        if name in columns:
            setattr(block, name, torch.from_numpy(columns[name].astype(dtype, copy=False)))
    block.edge_type_counts = count_types(block.edge_type)
    if "edge_weight" in columns:
        weight = torch.from_numpy(columns["edge_weight"].astype(np.float32, copy=False))
        block.weight = weight if block.weight is None else weight * block.weight
    return block
