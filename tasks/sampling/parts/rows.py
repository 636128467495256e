"""Rows of nodes that other machines hold: features, categories, types, degrees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from models.kernels.memory import recycled
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.kernels import as_rows, take_either, take_numbers
from tasks.sampling.parts.places import RowPlaces
from tasks.sampling.rows.gather import gather_rows

_SPARE = 8  # an eighth more room than asked for, since no two groups of batches are of one size


@dataclass(frozen=True)
class Located:
    """Where the rows of some lists of nodes are."""

    rows: list[Array]
    """For each list, like its ids (n,): row r >= 0 of this machine's tables, or row ~r of `extra`."""
    extra: Mapping[str, Array]
    """By table: rows of other machines, good until the next fetch."""


class PartRows(RowPlaces):
    """Fetches rows of node tables from the ranks that hold them; all ranks call it together, from one thread."""

    def __init__(self, graph: PartGraph, tables: Mapping[str, Array]) -> None:
        """`tables`: this machine's rows, by name, (end - first, ...)."""
        super().__init__(graph, (graph.first, graph.end))
        self.tables = dict(tables)
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
        rows, missing = self.locate(wanted)
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

    def _bring(self, nodes: Array, rows: Sequence[Array]) -> Array:
        """Bring the rows of nodes behind those that are kept, and let `rows` lead there; return the nodes' order."""
        exchange, kept = self.graph.exchange, len(self.kept)
        request = self.ask(nodes, rows)
        for name, table in self.tables.items():
            extra = self._room(name, kept + len(request.nodes))
            exchange.start(_take(table, request.asked), request.counts, extra[kept:], request.expected)()
        return request.nodes

    def _room(self, name: str, count: int) -> Array:
        """Return a table for so many rows, of which those that are kept are filled."""
        extra = self._extra[name]
        if len(extra) < max(1, count):
            larger = recycled((1 + count + count // _SPARE, *extra.shape[1:]), extra.dtype)
            larger[: len(self.kept)] = extra[: len(self.kept)]
            self._extra[name] = extra = larger
        return extra


def _take(table: Array, rows: Array) -> Array:
    """Return rows of a table."""
    row_bytes = table.itemsize * int(np.prod(table.shape[1:], dtype=np.int64))
    if table.ndim == 2 and row_bytes % 4 == 0 and table.flags.c_contiguous:
        bits = table.view(np.float32)  # copied as they are, whatever they mean
        return gather_rows(bits, rows, torch.float32).numpy().view(table.dtype)
    return np.take(table, rows, axis=0, mode="clip")
