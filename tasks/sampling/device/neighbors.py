"""Neighbour sampling on GPUs: the blocks of `neighbors.NeighborSampler`, bit by bit. Not yet run on a GPU.

The graph lies in the device's memory. Arrays of a batch have room for the largest one that a number of seeds and
fan-outs can come to, and how much of it is used is known on the device only: nothing waits for the CPU in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import RecipeError
from tasks.sampling.neighborhoods.draws import SMALL_FANOUT
from tasks.sampling.neighborhoods.neighbors import derive_key

Array = NDArray[Any]
_BLOCK = 256
"""Nodes or edges of a program that takes them one by one. Not tuned."""
_TILE = 512
"""Entries of a program that draws: destinations times fan-out. Not tuned."""
_MOST_PLACES = (1 << 31) - 1
_BATCHES = (1 << 31) - 1
"""Batches that a table serves, numbered downwards."""
_NO_ITEM = (1 << 63) - 1


@dataclass(frozen=True)
class Room:
    """The most that a batch can come to."""

    nodes: tuple[int, ...]
    """The seeds, and all nodes after each hop."""
    edges: tuple[int, ...]
    """Of each hop."""
    first_places: tuple[int, ...]
    """Seeds and the edges of the hops before."""

    @classmethod
    def of(cls, batch_size: int, fanouts: tuple[int, ...], num_nodes: int, num_edges: int) -> Room:
        """Count it. Raises RecipeError: a fan-out is -1, or a batch may reach 2^31 edges."""
        if any(fanout < 0 for fanout in fanouts):
            raise RecipeError(
                "train.sampling=device needs to know how large a batch can become, and a fan-out of -1 takes all "
                "neighbours; give train.loader.fanout numbers, or set train.sampling=cpu"
            )
        nodes, edges, first_places = [min(batch_size, num_nodes)], [], [batch_size]
        for fanout in fanouts:
            edges.append(max(1, min(nodes[-1] * fanout, num_edges)))
            nodes.append(min(num_nodes, nodes[-1] + edges[-1]))
            first_places.append(first_places[-1] + edges[-1])
        if first_places[-1] > _MOST_PLACES:
            raise RecipeError(
                f"train.sampling=device: a batch may reach {first_places[-1]:,} edges, more than 2^31; lower "
                "train.loader.batch_size or train.loader.fanout"
            )
        return cls(tuple(nodes), tuple(edges), tuple(first_places[:-1]))


class DeviceSample(NamedTuple):
    """One layer as `in_edges.Sample` has it, in tensors on the device."""

    indptr: Tensor
    indices: Tensor
    degree: Tensor


class _Batch(NamedTuple):
    """What kernels of a batch share, with room for the largest one."""

    order: Tensor
    """int64 (1 + hops + batch_size,): how many seeds, each hop's key, the seeds."""
    sizes: Tensor
    """int64 (hops + 1,): the seeds, and all nodes after each hop, as many as there are. After an open hop as before."""
    nodes: Tensor
    """int32 or int64 (room of nodes,): ids, seeds first; behind the last node anything."""
    degree: Tensor
    """float32 (room of nodes,): in-degrees; 0 behind the last node."""


class DeviceSampler:
    """Samples uniformly around seeds, on one device and one stream. One thread at a time may use it.

    Memory: the graph, 8 bytes a node, and the room of a batch.
    """

    def __init__(
        self, indptr: Array, indices: Array, fanouts: tuple[int, ...], batch_size: int, device: torch.device
    ) -> None:
        """Copy a graph to the device; arguments as of `NeighborSampler`, and the seeds of a batch at most.

        Raises RecipeError: see `Room.of`.
        """
        from tasks.sampling.device import neighbors_triton  # only here: Triton may be absent

        self._kernels: Any = neighbors_triton
        self.room = Room.of(batch_size, fanouts, len(indptr) - 1, len(indices))
        self.fanouts, self.batch_size, self.device = fanouts, batch_size, device
        # Copied, as arrays are read-only, which torch warns of.
        self.indptr = torch.tensor(np.asarray(indptr, np.int64), device=device)
        self.indices = torch.tensor(np.asarray(indices), device=device)
        self._table = torch.full((len(indptr) - 1,), _NO_ITEM, dtype=torch.int64, device=device)
        self._number = torch.full((1,), _BATCHES, dtype=torch.int64, device=device)
        self._numbers = self._new(self.room.first_places[-1] + self.room.edges[-1] if fanouts else batch_size)
        self._taken = self._new(self.room.nodes[-1], torch.int64)
        self._flags, self._ranks = (self._new(max(self.room.edges, default=1)) for _ in range(2))

    def _new(self, count: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(count, dtype=dtype, device=self.device)

    def sample(self, seeds: Array, key: int, *, open_last: bool = False) -> tuple[Tensor, list[DeviceSample]]:
        """Do `NeighborSampler.sample`; waits for the device once, for the sizes."""
        hops = len(self.fanouts)
        order = self._order(seeds, key).to(self.device, non_blocking=True)
        sizes = torch.zeros(hops + 1, dtype=torch.int64, device=self.device)
        room = self.room.nodes[-2 if open_last and hops else -1]
        batch = _Batch(order, sizes, self._new(room, self.indices.dtype), self._new(room, torch.float32))
        layers: list[tuple[Tensor, Tensor]] = []
        self._number -= 1
        self._kernels.begin[self._grid(self.batch_size)](
            order, self._number, batch.nodes, self._table, self._numbers, sizes, HEAD=1 + hops, BLOCK=_BLOCK
        )
        for hop in range(hops):
            is_open = open_last and hop == hops - 1
            indptr, ids = self._draw(hop, batch, marks=not is_open)
            layers.append((indptr, ids if is_open else self._relabel(hop, indptr, ids, batch)))
        if open_last and hops:
            sizes[hops:] = sizes[hops - 1 : hops]
        else:
            self._count(hops, 0, batch, counts=False)
        used = torch.cat([sizes, *(indptr[-1:] for indptr, _ in layers)]).tolist()
        samples = [
            DeviceSample(indptr[: size + 1], indices[:count], batch.degree[:num_src])
            for (indptr, indices), size, count, num_src in zip(
                layers, used[:hops], used[hops + 1 :], used[1 : hops + 1], strict=True
            )
        ]
        return batch.nodes[: used[hops]], samples[::-1]

    def _order(self, seeds: Array, key: int) -> Tensor:
        """Return a batch's `order` on the CPU, page-locked where the device is a GPU."""
        assert len(seeds) <= self.batch_size, "more seeds than there is room for"
        order = torch.zeros(1 + len(self.fanouts) + self.batch_size, dtype=torch.int64)
        keys = [derive_key(key, hop) for hop in range(len(self.fanouts))]
        head = np.array([len(seeds), *keys], np.int64)
        order.numpy()[: len(head) + len(seeds)] = np.concatenate([head, seeds])
        return order.pin_memory() if self.device.type == "cuda" else order

    def _count(self, hop: int, fanout: int, batch: _Batch, *, counts: bool) -> None:
        room = self.room.nodes[hop]
        self._kernels.count[self._grid(room)](
            self.indptr, batch.nodes, batch.sizes, batch.degree, self._taken, hop, fanout, room,
            COUNTS=counts, BLOCK=_BLOCK,
        )  # fmt: skip

    def _draw(self, hop: int, batch: _Batch, *, marks: bool) -> tuple[Tensor, Tensor]:
        """Take a hop's edges; return indptr int64 (room of destinations + 1,), and ids of sources (room of edges,)."""
        fanout, room = self.fanouts[hop], self.room.nodes[hop]
        indptr = torch.zeros(room + 1, dtype=torch.int64, device=self.device)
        ids = self._new(self.room.edges[hop], self.indices.dtype)
        self._count(hop, fanout, batch, counts=True)
        torch.cumsum(self._taken[:room], 0, out=indptr[1:])
        width = 1 << (fanout - 1).bit_length()
        rows = max(1, _TILE // width)
        self._kernels.draw[(-(-room // rows),)](
            self.indptr, self.indices, batch.nodes, batch.order, self._number, batch.sizes, indptr, ids, self._table,
            hop, fanout, self.room.first_places[hop],
            SCANS=fanout > SMALL_FANOUT, MARKS=marks, ROWS=rows, WIDTH=width,
        )  # fmt: skip
        return indptr, ids

    def _relabel(self, hop: int, indptr: Tensor, ids: Tensor, batch: _Batch) -> Tensor:
        """Return the local numbers of a hop's sources, int32 (room of edges,), and append those that are new."""
        edges, rows, first = self.room.edges[hop], self.room.nodes[hop], self.room.first_places[hop]
        grid, local = self._grid(edges), self._new(edges)
        self._kernels.flag[grid](ids, indptr, self._table, self._flags, first, edges, rows, BLOCK=_BLOCK)
        torch.cumsum(self._flags[:edges], 0, dtype=torch.int32, out=self._ranks[:edges])
        self._kernels.number[grid](
            ids, indptr, self._table, self._ranks, self._numbers, batch.nodes, batch.sizes, local,
            hop, first, edges, rows, self.room.nodes[hop + 1], BLOCK=_BLOCK,
        )  # fmt: skip
        return local

    def _grid(self, count: int) -> tuple[int]:
        return (-(-max(1, count) // _BLOCK),)
