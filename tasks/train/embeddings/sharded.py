"""Learnable embeddings of nodes in a graph in parts: each rank holds the rows of its own nodes, and nothing else.

A batch's rows come from the ranks that hold them, as they are after the step before, and their gradients go back the
same way. What is learnt is what `SparseEmbedding` learns: gradients of a row are added up in the order of the ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from tasks.arrays import offsets
from tasks.inference.layerwise import scratch_array
from tasks.sampling.parts.kernels import count_owners, deal_out
from tasks.sampling.parts.ranges import Ranges
from tasks.train.embeddings.configs import SparseConfig
from tasks.train.embeddings.host_tables import SPREAD_ROWS, TABLE, SparseEmbedding, coalesce, draw_rows
from tasks.train.strategies.base import Ranks

_GATHERED_ROWS = 1 << 16


class ShardedEmbedding(SparseEmbedding):
    """A table whose rows lie with their nodes: int64 ids (n,) -> float32 (n, dim) on the ids' device.

    Where gradients are computed all ranks call it together; else only a rank's own rows can be looked up.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, config: SparseConfig, ranks: Ranks, seed: int, ranges: Ranges
    ) -> None:
        """Make this rank's rows; `ranges` says which those are."""
        self.ranges = ranges
        super().__init__(num_embeddings, embedding_dim, config, ranks, seed)
        self.copies = 1

    def begin_rows(self, num_rows: int, dim: int) -> Tensor:
        """Return this rank's own rows, as they begin."""
        first, end = self.ranges.own
        weight = torch.zeros(end - first, dim)
        draw_rows(weight.numpy(), first, self.bound, self.seed)
        return weight

    def make_zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Return memory of this rank's own."""
        return torch.zeros(shape)

    def look_up(self, node_ids: Tensor) -> Tensor:
        """Return rows, float32 (n, dim), of nodes on the CPU."""
        if not torch.is_grad_enabled():
            return self.weight.index_select(0, node_ids - self.ranges.own[0])
        return torch.from_numpy(self.ranges.fetch_any(self.weight.numpy(), node_ids.numpy()))

    def share_gradients(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Send gradients to the ranks that hold their rows; return those of this rank's, by place in its table."""
        bounds, exchange, nodes = self.ranges.bounds, self.ranges.exchange, ids.numpy()
        counts = np.zeros(exchange.world_size, np.int64)
        count_owners(nodes, 0, 0, bounds, counts)
        order, place = np.empty_like(nodes), np.empty(len(nodes), np.int64)
        deal_out(nodes, 0, 0, bounds, offsets(counts)[:-1], nodes[:0], order, place)
        sent = np.empty_like(rows.numpy())
        sent[~place] = rows.numpy()
        back = exchange.counts(counts[:, None])[:, 0].tolist()
        own = exchange.send(order, counts.tolist(), back) - self.ranges.own[0]
        grads = exchange.send(sent, counts.tolist(), back)
        grads /= np.float32(self.ranks.world_size)
        count = coalesce(own, grads, self._slots, 0, 1)
        return torch.from_numpy(own[:count]), torch.from_numpy(grads[:count])

    def restore(self, tables: dict[str, Tensor] | None) -> None:
        """Take over this rank's rows of the whole tables that rank 0 gives (other ranks give None); all together."""
        for name, own in {TABLE: self.weight, **self.tensors()}.items():
            self._take(own, None if tables is None else tables[name])

    def gathered(self, tables: dict[str, Tensor], scratch: Path, *, writes: bool) -> dict[str, Tensor]:
        """Bring all ranks' rows of tables (own rows, ...) together on the ranks that write; all ranks together.

        They lie in mapped files in `scratch`, which go with the last look at them. Others get no table.
        """
        exchange, bounds, whole = self.ranges.exchange, self.ranges.bounds, {}
        for name, rows in tables.items():
            flat = rows.reshape(len(rows), rows.shape[1:].numel()).numpy()
            out = scratch_array(scratch, int(bounds[-1]), flat.shape[1]) if writes else None
            for first in range(0, exchange.largest(len(flat)), _GATHERED_ROWS):
                pieces, start = exchange.gather(np.ascontiguousarray(flat[first : first + _GATHERED_ROWS])), 0
                if out is None:
                    continue
                for low, end in zip(bounds[:-1] + first, bounds[1:], strict=True):
                    count = max(0, min(_GATHERED_ROWS, int(end - low)))
                    out[low : low + count] = pieces[start : start + count]
                    start += count
            if out is not None:
                whole[name] = torch.from_numpy(out).reshape(len(out), *rows.shape[1:])
        return whole

    def begin_with(self, table: Tensor | None) -> None:
        """Take over this rank's rows of the table that rank 0 gives; all ranks together."""
        self._take(self.weight, table)

    def beginning(self) -> Tensor:
        """Return the rows of all ranks as they begin, float32 (num_embeddings, dim), mapped from a file."""
        rows = np.asarray(scratch_array(None, self.num_embeddings, self.embedding_dim))
        draw_rows(rows, 0, self.bound, self.seed)
        return torch.from_numpy(rows)

    def _take(self, own: Tensor, table: Tensor | None) -> None:
        """Fill this rank's rows, (own, ...), from rank 0's `table` (N, ...), a piece at a time."""
        first, end = self.ranges.own
        for start in range(0, self.num_embeddings, SPREAD_ROWS):
            stop = min(start + SPREAD_ROWS, self.num_embeddings)
            piece = torch.empty(stop - start, *own.shape[1:]) if table is None else table[start:stop].clone()
            if self.ranks.world_size > 1:
                dist.broadcast(piece, 0)
            low, high = max(first, start), min(end, stop)
            if low < high:
                own[low - first : high - first] = piece[low - start : high - start]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Nothing: `gathered` brings the rows of all ranks together."""
