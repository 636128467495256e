"""Neighbour sampling on GPUs: the blocks of `neighbors.NeighborSampler`, bit by bit. Not yet run on a GPU.

The graph lies in the device's memory. Arrays of a batch have room for the largest one that a number of seeds and
fan-outs can come to, and how much of it is used is known on the device only: nothing waits for the CPU in between.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

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
    def of(cls, batch_size: int, fanouts: tuple[int, ...], num_nodes: int, num_edges: int, *, replaces: bool) -> Room:
        """Count it. Raises RecipeError: a fan-out is -1, or a batch may reach 2^31 edges."""
        if any(fanout < 0 for fanout in fanouts):
            raise RecipeError(
                "train.sampling=device needs to know how large a batch can become, and a fan-out of -1 takes all "
                "neighbours; give train.loader.fanout numbers, or set train.sampling=cpu"
            )
        nodes, edges, first_places = [min(batch_size, num_nodes)], [], [batch_size]
        for fanout in fanouts:
            taken = nodes[-1] * fanout
            edges.append(max(1, taken if replaces else min(taken, num_edges)))
            nodes.append(min(num_nodes, nodes[-1] + edges[-1]))
            first_places.append(first_places[-1] + edges[-1])
        if first_places[-1] > _MOST_PLACES:
            raise RecipeError(
                f"train.sampling=device: a batch may reach {first_places[-1]:,} edges, more than 2^31; lower "
                "train.loader.batch_size or train.loader.fanout"
            )
        return cls(tuple(nodes), tuple(edges), tuple(first_places[:-1]))


@dataclass(frozen=True)
class PaddedLayer:
    """Edges of one hop, with room for more."""

    indptr: Tensor
    """int64 (room of destinations + 1,); behind the last destination it does not rise."""
    ids: Tensor
    """int32 or int64 (room of edges,): sources, by their ids in the graph; beyond the last edge anything."""
    indices: Tensor | None
    """int32 (room of edges,): their local numbers, beyond the last edge the room of sources; None: an open hop."""
    positions: Tensor | None
    """int64 (room of edges,): their CSC positions; None where nobody asked."""


@dataclass(frozen=True)
class PaddedSample:
    """A batch's layers, with room for more; from the seeds outwards."""

    sizes: Tensor
    """int64 (hops + 1,): the seeds, and all nodes after each hop, as many as there are. After an open hop as before."""
    nodes: Tensor
    """int32 or int64 (room of nodes,): ids, seeds first; behind the last node anything."""
    degree: Tensor
    """float32 (room of nodes,): in-degrees; 0 behind the last node."""
    layers: list[PaddedLayer]


@dataclass(frozen=True)
class DeviceSample:
    """One layer as `neighbors.Sample` has it, in tensors on the device."""

    indptr: Tensor
    indices: Tensor
    positions: Tensor | None
    degree: Tensor


class DeviceSampler:
    """Samples uniformly around seeds, on one device and one stream. Threads may share one: they take turns.

    What a batch is told stands in one tensor, `order` int64 (1 + hops + batch_size,): how many seeds, each hop's key,
    the seeds. Memory: the graph, 8 bytes a node, and the room of a batch.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        fanouts: tuple[int, ...],
        batch_size: int,
        device: torch.device,
        *,
        replaces: bool = False,
        positions: bool = False,
    ) -> None:
        """Copy a graph to the device; arguments as of `NeighborSampler`, and the seeds of a batch at most.

        Raises RecipeError: see `Room.of`.
        """
        from tasks.sampling.device import neighbors_triton  # only here: Triton may be absent

        self._kernels: Any = neighbors_triton
        num_nodes, num_edges = len(indptr) - 1, len(indices)
        self.room = Room.of(batch_size, fanouts, num_nodes, num_edges, replaces=replaces)
        self.fanouts, self.replaces, self.positions = fanouts, replaces, positions
        self.batch_size, self.device = batch_size, device
        # Copied, as arrays are read-only, which torch warns of.
        self.indptr = torch.tensor(np.asarray(indptr, np.int64), device=device)
        self.indices = torch.tensor(np.asarray(indices), device=device)
        self.table = torch.full((num_nodes,), _NO_ITEM, dtype=torch.int64, device=device)
        self.number = torch.full((1,), _BATCHES, dtype=torch.int64, device=device)
        self._numbers = self._new(self.room.first_places[-1] + self.room.edges[-1] if fanouts else batch_size)
        self._taken = self._new(self.room.nodes[-1], torch.int64)
        self._flags, self._ranks = (self._new(max(self.room.edges, default=1)) for _ in range(2))
        self.lock = threading.Lock()
        """Held from the first launch of a batch to its last one: the table is one batch's at a time."""

    def _new(self, count: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(count, dtype=dtype, device=self.device)

    def order(self, seeds: Array, key: int) -> Tensor:
        """Return what `fill` is told of a batch, on the CPU, page-locked where the device is a GPU."""
        assert len(seeds) <= self.batch_size, "more seeds than there is room for"
        order = torch.zeros(1 + len(self.fanouts) + self.batch_size, dtype=torch.int64)
        numbers = order.numpy()
        numbers[0] = len(seeds)
        numbers[1 : 1 + len(self.fanouts)] = [derive_key(key, hop) for hop in range(len(self.fanouts))]
        numbers[1 + len(self.fanouts) :][: len(seeds)] = seeds
        return order.pin_memory() if self.device.type == "cuda" else order

    def new_sample(self, *, open_last: bool = False) -> PaddedSample:
        """Return room for a batch, which `fill` fills."""
        kind, hops = self.indices.dtype, len(self.fanouts)
        layers = []
        for hop, room in enumerate(self.room.edges):
            is_open = open_last and hop == hops - 1
            layers.append(
                PaddedLayer(
                    torch.zeros(self.room.nodes[hop] + 1, dtype=torch.int64, device=self.device),
                    self._new(room, kind),
                    None if is_open else self._new(room),
                    self._new(room, torch.int64) if self.positions else None,
                )
            )
        nodes = self.room.nodes[-2 if open_last and hops else -1]
        sizes = torch.zeros(hops + 1, dtype=torch.int64, device=self.device)
        return PaddedSample(sizes, self._new(nodes, kind), self._new(nodes, torch.float32), layers)

    def fill(self, order: Tensor, sample: PaddedSample) -> None:
        """Sample what `order`, on the device, says; the caller holds the lock."""
        self.number -= 1
        self._kernels.begin[self._grid(self.batch_size)](
            order, self.number, sample.nodes, self.table, self._numbers, sample.sizes,
            HEAD=1 + len(self.fanouts), BLOCK=_BLOCK,
        )  # fmt: skip
        for hop, layer in enumerate(sample.layers):
            self._draw(hop, order, layer, sample)
            if layer.indices is not None:
                self._relabel(hop, layer, sample)
            else:
                sample.sizes[hop + 1 :] = sample.sizes[hop : hop + 1]
        if not sample.layers or sample.layers[-1].indices is not None:
            self._count(len(sample.layers), 0, sample, counts=False)

    def _count(self, hop: int, fanout: int, sample: PaddedSample, *, counts: bool) -> None:
        room = self.room.nodes[hop]
        self._kernels.count[self._grid(room)](
            self.indptr, sample.nodes, sample.sizes, sample.degree, self._taken, hop, fanout, room,
            REPLACES=self.replaces, COUNTS=counts, BLOCK=_BLOCK,
        )  # fmt: skip

    def _draw(self, hop: int, order: Tensor, layer: PaddedLayer, sample: PaddedSample) -> None:
        """Take a hop's edges."""
        fanout, room = self.fanouts[hop], self.room.nodes[hop]
        self._count(hop, fanout, sample, counts=True)
        torch.cumsum(self._taken[:room], 0, out=layer.indptr[1:])
        width = 1 << (fanout - 1).bit_length()
        rows = max(1, _TILE // width)
        self._kernels.draw[(-(-room // rows),)](
            self.indptr, self.indices, sample.nodes, order, self.number, sample.sizes, layer.indptr, layer.ids,
            layer.ids if layer.positions is None else layer.positions, self.table,
            hop, fanout, self.room.first_places[hop],
            REPLACES=self.replaces, SCANS=fanout > SMALL_FANOUT, KEEPS=layer.positions is not None,
            MARKS=layer.indices is not None, ROWS=rows, WIDTH=width,
        )  # fmt: skip

    def _relabel(self, hop: int, layer: PaddedLayer, sample: PaddedSample) -> None:
        """Number a hop's sources."""
        edges, rows, first = self.room.edges[hop], self.room.nodes[hop], self.room.first_places[hop]
        grid = self._grid(edges)
        self._kernels.flag[grid](layer.ids, layer.indptr, self.table, self._flags, first, edges, rows, BLOCK=_BLOCK)
        torch.cumsum(self._flags[:edges], 0, dtype=torch.int32, out=self._ranks[:edges])
        self._kernels.number[grid](
            layer.ids, layer.indptr, self.table, self._ranks, self._numbers, sample.nodes, sample.sizes, layer.indices,
            hop, first, edges, rows, self.room.nodes[hop + 1], BLOCK=_BLOCK,
        )  # fmt: skip

    def _grid(self, count: int) -> tuple[int]:
        return (-(-max(1, count) // _BLOCK),)

    def sample(self, seeds: Array, key: int, *, open_last: bool = False) -> tuple[Tensor, list[DeviceSample]]:
        """Do `NeighborSampler.sample`; waits for the device once, for the sizes."""
        sample = self.new_sample(open_last=open_last)
        order = self.order(seeds, key).to(self.device, non_blocking=True)
        with self.lock:
            self.fill(order, sample)
            used = self.used(sample)
        return self.cut(sample, used.tolist())

    def used(self, sample: PaddedSample) -> Tensor:
        """Return how many nodes and edges there are, on the device: what `cut` wants."""
        return torch.cat([sample.sizes, *(layer.indptr[-1:] for layer in sample.layers)])

    def cut(self, sample: PaddedSample, used: list[int]) -> tuple[Tensor, list[DeviceSample]]:
        """Return what is used of a sample; `used`: see there."""
        hops = len(sample.layers)
        sizes, edges = used[: hops + 1], used[hops + 1 :]
        layers = [
            DeviceSample(
                layer.indptr[: size + 1],
                (layer.ids if layer.indices is None else layer.indices)[:count],
                None if layer.positions is None else layer.positions[:count],
                sample.degree[:num_src],
            )
            for layer, size, count, num_src in zip(sample.layers, sizes, edges, sizes[1:], strict=False)
        ]
        return sample.nodes[: sizes[-1]], layers[::-1]
