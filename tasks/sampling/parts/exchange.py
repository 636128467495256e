"""Messages that all ranks of a job send each other at once, in the order of the ranks."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from tasks.processes.doors import closing_doors

Array = NDArray[Any]
# Ranks wait for each other's slowest step here. What a rank no longer does is found out by the heartbeat, not by this.
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
