"""What a rank's own range of nodes needs of others, where all of it is computed: its halo, in ascending order."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numba import njit
from numpy.typing import NDArray

from tasks.processes.doors import closing_doors


@dataclass(frozen=True)
class Ranges:
    """Which rank computes which nodes: rank r those from bounds[r] to bounds[r + 1] - 1."""

    bounds: Array
    """int64 (world_size + 1,)."""
    exchange: Exchange
    """Used by the thread that computes."""

    @property
    def own(self) -> tuple[int, int]:
        """First node of this rank, and the one after its last."""
        rank = self.exchange.rank
        return int(self.bounds[rank]), int(self.bounds[rank + 1])

    def fetch(self, table: Array, nodes: Array) -> Array:
        """Return rows of nodes, integer (n,) ascending and distinct, of any rank; all ranks together.

        `table`: this rank's rows (own nodes, ...).
        """
        counts = np.diff(np.searchsorted(nodes, self.bounds))
        back = self.exchange.counts(counts[:, None])[:, 0].tolist()
        asked = self.exchange.send(np.ascontiguousarray(nodes), counts.tolist(), back)
        rows = np.ascontiguousarray(table[asked - self.own[0]])
        return self.exchange.send(rows, back, counts.tolist())

    def fetch_any(self, table: Array, nodes: Array) -> Array:
        """Return rows of nodes in any order, (n,), some of which may be the same."""
        distinct, places = np.unique(nodes, return_inverse=True)
        return self.fetch(table, distinct)[places.reshape(-1)]

    def to_main(self, rows: Array) -> Array:
        """Return all ranks' rows (n, ...), end to end, on rank 0, and no row on the others; all ranks together."""
        exchange = self.exchange
        counts = [len(rows), *[0] * (exchange.world_size - 1)]
        back = exchange.counts(np.asarray(counts)[:, None])[:, 0].tolist()
        return exchange.send(np.ascontiguousarray(rows), counts, back)


def find_sources(indices: Array, own: tuple[int, int], num_nodes: int, local: Array) -> Array:
    """Return the sources outside of `own`, ascending; fill `local` int32 (E,) with places in [own nodes, those].

    Memory: 4 bytes a node of the whole graph, while this runs.
    """
    first, end = own
    place = np.zeros(num_nodes, np.int32)
    _mark(indices, first, end, place)
    others = np.flatnonzero(place).astype(indices.dtype)
    place[others] = end - first + np.arange(len(others))
    _renumber(indices, first, end, place, local)
    return others


@njit(cache=True, nogil=True)
def _mark(indices, first, end, place):  # type: ignore[no-untyped-def]
    for e in range(len(indices)):
        if indices[e] < first or indices[e] >= end:
            place[indices[e]] = 1


@njit(cache=True, nogil=True)
def _renumber(indices, first, end, place, local):  # type: ignore[no-untyped-def]
    for e in range(len(indices)):
        v = np.int64(indices[e])
        local[e] = v - first if first <= v < end else place[v]


Array = NDArray[Any]
# Ranks wait for each other's slowest step here. A rank or a machine that is lost is noticed by who started the ranks.
_TIMEOUT = datetime.timedelta(hours=6)


class Exchange:
    """All-to-all in a process group of its own, over CPU memory: one thread may use it beside the main thread's groups.

    Every rank makes the same calls in the same order. A rank that is alone gets back what it gave.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        """Join; all ranks together, after torch.distributed was joined."""
        self.rank, self.world_size = rank, world_size
        self._group = None
        if world_size > 1:
            with closing_doors():
                self._group = dist.new_group(backend="gloo", timeout=_TIMEOUT)
        self.calls = 0
        """Messages to all ranks so far."""
        self.sent_bytes = 0
        """Bytes sent to other ranks so far."""

    def counts(self, counts: Array) -> Array:
        """Send row r of int64 (world_size, ...) to rank r; return what came, row r from rank r."""
        sent = np.ascontiguousarray(counts)
        out = np.empty_like(sent)
        row = sent[0].size
        self.start(sent.reshape(-1), [row] * self.world_size, out.reshape(-1), [row] * self.world_size)()
        return out

    def send(self, items: Array, counts: list[int], received: list[int]) -> Array:
        """Send counts[r] rows of `items` (n, ...) to rank r; return received[r] rows from each, end to end."""
        out = np.empty((sum(received), *items.shape[1:]), items.dtype)
        self.start(items, counts, out, received)()
        return out

    def start(self, items: Array, counts: list[int], out: Array, received: list[int]) -> Callable[[], None]:
        """Begin to send, as `send` does, into the first rows of `out`; return what waits for the end.

        Neither array may change until then.
        """
        row = items.dtype.itemsize * int(np.prod(items.shape[1:], dtype=np.int64))
        self.calls += 1
        self.sent_bytes += row * (sum(counts) - counts[self.rank])
        if self._group is None:
            out[: len(items)] = items
            return lambda: None
        work = dist.all_to_all_single(
            _bytes(out[: sum(received)]),
            _bytes(items[: sum(counts)]),
            [row * count for count in received],
            [row * count for count in counts],
            group=self._group,
            async_op=True,
        )
        return work.wait

    def gather(self, items: Array) -> Array:
        """Return all ranks' rows (n, ...), end to end, on every rank."""
        size = self.world_size
        received = self.counts(np.full((size, 1), len(items)))[:, 0].tolist()
        return self.send(np.concatenate([items] * size), [len(items)] * size, received)

    def largest(self, value: int) -> int:
        """Return the largest value of all ranks."""
        if self._group is None:
            return value
        number = torch.tensor([value])
        dist.all_reduce(number, dist.ReduceOp.MAX, group=self._group)
        return int(number)


def _bytes(array: Array) -> torch.Tensor:
    assert array.flags.c_contiguous, "messages are contiguous"
    return torch.from_numpy(array.reshape(-1).view(np.uint8))
