"""The rows of a batch by node type: which nodes it has reached, under which cuts, and their local numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.sampling.neighborhoods.relabel import relabel
from tasks.sampling.relational.numbering import move_entries, number_pairs

_LAST_BASE = 1 << 30  # tables start over above it; a batch has room for as many rows
_FIRST_ROOM = 1 << 12


class Scratch:
    """Arrays by name that calls leave to the next: fresh memory costs a page fault every 4 KiB."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def array(self, name: str, count: int, dtype: Any) -> Array:
        """Return an array (count,) of arbitrary content, until its name is asked for again."""
        kept = self._arrays.get(name)
        if kept is None or len(kept) < count:
            kept = self._arrays[name] = np.empty(max(_FIRST_ROOM, count + count // 2), dtype)
        return kept[:count]


class Rows:
    """Numbers one batch's rows at a time. One cut: by an array of 4 bytes a node; several: by a hash table."""

    def __init__(self, type_sizes: Sequence[int], id_type: Any) -> None:
        self.num_types = len(type_sizes)
        self._num_nodes = sum(type_sizes)
        self._table = np.empty(0, np.int32)
        self._pairs = np.zeros(2 * _FIRST_ROOM, np.int64)
        self._nodes = [np.empty(_FIRST_ROOM, id_type) for _ in type_sizes]
        self._cut_numbers = [np.empty(_FIRST_ROOM, np.int32) for _ in type_sizes]
        self._base = 1
        self.num_cuts = 1
        self.counts = [0] * self.num_types
        """Rows of each type so far."""
        self.scratch = Scratch()

    def start(self, num_cuts: int) -> None:
        """Begin a batch without rows, with so many distinct cuts."""
        self._base += max(self.counts)
        self.counts = [0] * self.num_types
        self.num_cuts = num_cuts
        if self._base > _LAST_BASE:
            self._table.fill(0)
            self._pairs.fill(0)
            self._base = 1
        if num_cuts == 1 and not len(self._table):
            self._table = np.zeros(self._num_nodes + 1, np.int32)  # the last entry is of no node

    def nodes(self, kind: int) -> Array:
        """Return the node ids of a type's rows: a view that the next batch overwrites."""
        return self._nodes[kind][: self.counts[kind]]

    def cut_numbers(self, kind: int) -> Array | None:
        """Return the numbers of their cuts, int32 (n,); None where there is but one."""
        return self._cut_numbers[kind][: self.counts[kind]] if self.num_cuts > 1 else None

    def number(self, kind: int, ids: Array, indptr: Array, dst_cuts: Array | None, local: Array) -> None:
        """Fill local int32 (m,) with numbers of nodes of one type under their destinations' cuts; new rows at the end.

        Destination i has the nodes ids[indptr[i] : indptr[i + 1]] and cut number dst_cuts[i].
        """
        self._reserve(kind, len(ids))
        nodes, count = self._nodes[kind], self.counts[kind]
        if self.num_cuts == 1:
            self.counts[kind] = relabel(ids, local, nodes, count, self._table, self._base)
        else:
            keys = self.scratch.array("keys", len(ids), np.int64)
            pairs = nodes, self._cut_numbers[kind], count, self._pairs, self._base
            self.counts[kind] = number_pairs(ids, indptr, dst_cuts, keys, local, *pairs)

    def _reserve(self, kind: int, more: int) -> None:
        """Make room for more rows. Raises DataError where a batch has too many."""
        rows = self.counts[kind] + more
        if rows >= _LAST_BASE:
            raise DataError(f"a batch reaches {rows:,} edges; lower train.loader.batch_size or train.loader.fanout")
        for arrays in (self._nodes, self._cut_numbers):
            if len(arrays[kind]) <= rows:
                grown = np.empty(2 * rows, arrays[kind].dtype)
                grown[: self.counts[kind]] = arrays[kind][: self.counts[kind]]
                arrays[kind] = grown
        wanted = 2 * (sum(self.counts) + more)
        if self.num_cuts > 1 and len(self._pairs) // 2 < wanted:
            grown = np.zeros(2 << wanted.bit_length(), np.int64)
            move_entries(self._pairs, grown, self._base)
            self._pairs = grown
