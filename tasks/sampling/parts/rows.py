"""Rows of nodes that other machines hold: features, categories, types, degrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from models.kernels.memory import recycled
from tasks.arrays import offsets
from tasks.sampling.gather import gather_rows
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.kernels import as_rows, count_owners, deal_out, follow, locate, take_either, take_numbers

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

    A row that several batches want travels once. Rows that are `keep`-ed never travel again.
    """

    def __init__(self, graph: PartGraph, tables: Mapping[str, Array]) -> None:
        """`tables`: this machine's rows, by name, (end - first, ...)."""
        self.graph, self.tables = graph, dict(tables)
        self.kept = np.empty(0, graph.numbering.nodes.dtype)
        """Nodes whose rows stay."""
        self._extra = {name: np.empty((0, *table.shape[1:]), table.dtype) for name, table in self.tables.items()}
        self.wanted_rows = self.remote_rows = self.fetched_rows = 0
        """Rows that batches read so far, as often as they did; those of other machines; those that travelled."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a node's rows in all tables."""
        return sum(table[:1].nbytes for table in self.tables.values())

    def keep(self, nodes: Array) -> None:
        """Fetch rows of other machines' nodes (n,), distinct, that stay; all ranks together."""
        self.kept = nodes[:0]
        self.kept = self._bring(nodes, [])

    def missing(self, wanted: Sequence[Array]) -> Array:
        """Return the nodes whose rows `fetch` would have to bring: (n,), distinct."""
        return self._locate(wanted)[1]

    def fetch(self, wanted: Sequence[Array]) -> Located:
        """Fetch the rows of lists of nodes, (n,) each, like the graph's ids; all ranks together."""
        rows, missing = self._locate(wanted)
        self._bring(missing, rows)
        return Located(rows, self._extra)

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

    def _locate(self, wanted: Sequence[Array]) -> tuple[list[Array], Array]:
        """Return rows as of `Located`, those that are not here yet numbered in the order of the second result."""
        graph, numbering = self.graph, self.graph.numbering
        numbering.start()
        numbering.number(self.kept)
        rows = []
        for ids in wanted:
            numbering.check_room(len(ids))
            found = recycled(len(ids), ids.dtype)
            table = numbering.table, numbering.base, numbering.nodes, numbering.count
            numbering.count = locate(ids, graph.first, graph.end, *table, found)
            rows.append(found)
            self.wanted_rows += len(found)
            self.remote_rows += int(np.count_nonzero(found < 0))
        return rows, numbering.nodes[len(self.kept) : numbering.count]

    def _bring(self, nodes: Array, rows: Sequence[Array]) -> Array:
        """Bring the rows of nodes behind those that are kept, and let `rows` lead there; return the nodes' order."""
        graph, exchange, kept = self.graph, self.graph.exchange, len(self.kept)
        where = graph.first, graph.end, graph.bounds
        counts = np.zeros(exchange.world_size, np.int64)
        count_owners(nodes, *where, counts)
        order, place = np.empty(len(nodes), nodes.dtype), np.empty(len(nodes), np.int64)
        deal_out(nodes, *where, offsets(counts)[:-1], nodes[:0], order, place)
        if np.count_nonzero(counts) > 1:  # else they are in the order of their numbers
            for some in rows:
                follow(some, kept, ~place)
        back = exchange.counts(counts[:, None])[:, 0].tolist()
        questions = exchange.send(order, counts.tolist(), back)
        for name, table in self.tables.items():
            extra = self._room(name, kept + len(order))
            exchange.start(self._answer(table, questions), back, extra[kept:], counts.tolist())()
        self.fetched_rows += len(order)
        return order

    def _answer(self, table: Array, questions: Array) -> Array:
        """Return this machine's rows of nodes."""
        rows = questions - questions.dtype.type(self.graph.first)
        row_bytes = table.itemsize * int(np.prod(table.shape[1:], dtype=np.int64))
        if table.ndim == 2 and row_bytes % 4 == 0 and table.flags.c_contiguous:
            bits = table.view(np.float32)  # copied as they are, whatever they mean
            return gather_rows(bits, rows, torch.float32).numpy().view(table.dtype)
        return np.take(table, rows, axis=0, mode="clip")

    def _room(self, name: str, count: int) -> Array:
        """Return a table for so many rows, of which those that are kept are filled."""
        extra = self._extra[name]
        if len(extra) < max(1, count):
            larger = recycled((1 + count + count // _SPARE, *extra.shape[1:]), extra.dtype)
            larger[: len(self.kept)] = extra[: len(self.kept)]
            self._extra[name] = extra = larger
        return extra
