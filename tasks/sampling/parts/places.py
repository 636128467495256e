"""Where rows of nodes are: here, kept from other ranks, or still with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.kernels.memory import recycled
from tasks.arrays import offsets
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.kernels import count_owners, deal_out, follow, locate


@dataclass(frozen=True)
class Request:
    """Rows that ranks ask each other for."""

    nodes: Array
    """Nodes whose rows this rank wants, (m,), in the order in which they come: rank by rank."""
    expected: list[int]
    """How many of them come from each rank."""
    asked: Array
    """Rows that others want of this rank, (n,), rank by rank: numbers from the first row here on."""
    counts: list[int]
    """How many of them each rank wants."""


class RowPlaces:
    """Finds out which rows have to travel; all ranks call it together, from one thread.

    A row that several batches want travels once, and one that is kept never again.
    """

    def __init__(self, graph: PartGraph, here: tuple[int, int]) -> None:
        """`here`: first node whose rows are here, and the one after the last."""
        self.graph, self.here = graph, here
        self.kept = np.empty(0, graph.numbering.nodes.dtype)
        """Nodes of others whose rows stay."""
        self.wanted_rows = self.remote_rows = self.fetched_rows = 0
        """Rows that batches read so far, as often as they did; those of others; those that travelled."""

    def missing(self, wanted: Sequence[Array]) -> Array:
        """Return the nodes whose rows would have to travel: (n,), distinct."""
        return self.locate(wanted)[1]

    def locate(self, wanted: Sequence[Array]) -> tuple[list[Array], Array]:
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
            found = recycled(len(ids), ids.dtype)
            table = numbering.table, numbering.base, numbering.nodes, numbering.count
            numbering.count = locate(ids, *self.here, *table, found)
            rows.append(found)
            self.wanted_rows += len(found)
            self.remote_rows += int(np.count_nonzero(found < 0))
        return rows, numbering.nodes[len(self.kept) : numbering.count]

    def ask(self, nodes: Array, rows: Sequence[Array]) -> Request:
        """Ask for the rows of nodes (m,), distinct, and let `rows`, see `locate`, lead to where they come."""
        graph, exchange = self.graph, self.graph.exchange
        where = *self.here, graph.bounds
        counts = np.zeros(exchange.world_size, np.int64)
        count_owners(nodes, *where, counts)
        order, place = np.empty(len(nodes), nodes.dtype), np.empty(len(nodes), np.int64)
        deal_out(nodes, *where, offsets(counts)[:-1], nodes[:0], order, place)
        if np.count_nonzero(counts) > 1:  # else they are in the order of their numbers
            place = ~place  # all went into the message
            for some in rows:
                follow(some, len(self.kept), place)
        asking = exchange.counts(counts[:, None])[:, 0].tolist()
        asked = exchange.send(order, counts.tolist(), asking)
        self.fetched_rows += len(order)
        return Request(order, counts.tolist(), asked - asked.dtype.type(self.here[0]), asking)
