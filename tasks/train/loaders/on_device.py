"""Neighbourhoods that are sampled and gathered on a GPU: the blocks and inputs of `neighbor.Neighborhoods`, bit by bit.

Graph and features lie in the GPU's memory, features that have no room there in page-locked CPU memory, those that
batches read least. Not yet run on a GPU.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.errors import RecipeError
from models.block import Block, Inputs
from tasks.processes.memory import available_bytes
from tasks.sampling.device.feature_table import FeatureTable, expected_reads
from tasks.sampling.device.neighbors import DeviceSampler, PaddedSample
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.parts.neighborhoods import PartNeighborhoods
from tasks.sampling.rows.features import FeatureSource
from tasks.train.loaders.base import Array, Loader
from tasks.train.loaders.neighbor import Neighborhoods, NeighborLoader

_SHARE = 0.6
"""Of what memory is free beside the graph, for features: the rest is for the training's own."""


def move_sampling(loader: Loader, device: torch.device, memory: int | None = None) -> str:
    """Have a loader sample and gather on a device (`train.sampling=device`); say in a line what lies where.

    `memory`: bytes for features there; None: as much as is free, less what the training needs.

    Raises RecipeError: the loader, its options, the graph or the device are not fit for that.
    """
    _refuse_device(device)
    if not isinstance(loader, NeighborLoader):
        raise RecipeError("train.sampling=device is for train.loader=neighbor; take that, or set train.sampling=cpu")
    near = _refuse_others(loader.neighborhoods)
    found = DeviceNeighborhoods(near, loader.seeds, loader.batch_size, device, memory)
    loader.neighborhoods = found
    return found.describe()


def _refuse_device(device: torch.device) -> None:
    from models.kernels.backends import has_triton

    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":  # which tests have set
        raise RecipeError(
            "train.sampling=device needs a GPU, and this rank computes on the CPU; set train.sampling=cpu"
        )
    if not has_triton():
        raise RecipeError("train.sampling=device needs Triton, which is not installed; set train.sampling=cpu")


def _refuse_others(near: Neighborhoods | PartNeighborhoods) -> Neighborhoods:
    """Return neighbourhoods that a device can make. Raises RecipeError."""
    if isinstance(near, PartNeighborhoods):
        raise RecipeError("train.sampling=device wants the whole graph on each rank; set train.strategy=data_parallel")
    features, method = near.features, near.sampler.edges.method
    reasons = {
        "train.loader.first_hop=precomputed": near.mean is not None,
        f"train.loader.sampler={method}": method not in ("uniform", "replace"),
        "weights, features or types of edges": features.reads_edges,
        "categories of nodes": features.feat_cat is not None,
        "types of nodes": features.node_type is not None,
        "model.label_reuse": features.label is not None,
        "train.strategy=partition_parallel": near.missing is not None,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise RecipeError(
            f"train.sampling=device knows nothing of {', '.join(found)}; leave that out, or set train.sampling=cpu"
        )
    return near


@dataclass(frozen=True)
class PaddedBatch:
    """Where a batch of any size has room: what a sample and its gathered rows are written into."""

    sample: PaddedSample
    rows: Tensor
    """(room of nodes, D), or (room, 2 D) with the means beside them; without features (room, 0)."""


class DeviceNeighborhoods(Neighborhoods):
    """Samples and gathers on one device; threads take turns."""

    def __init__(
        self, near: Neighborhoods, seeds: Array, batch_size: int, device: torch.device, memory: int | None = None
    ) -> None:
        """Copy what `near` reads to the device. Raises RecipeError: the graph has no room there."""
        self.features, self.first_hop, self.device = near.features, near.first_hop, device
        self.missing = self.mean = None
        self.sampler: NeighborSampler = near.sampler  # numbers pairs, on the CPU
        indptr, indices = near.sampler.edges.indptr, near.sampler.edges.indices
        graph_bytes = indices.nbytes + 8 * (2 * len(indptr) + 1)
        if memory is None:
            free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
            if graph_bytes > _SHARE * free:
                raise RecipeError(
                    f"train.sampling=device: the graph's edges take {graph_bytes / 1e9:,.1f} GB, and {device} has "
                    f"{free / 1e9:,.1f} GB free; set train.sampling=cpu"
                )
            memory = int(_SHARE * (free - graph_bytes))
        replaces = near.sampler.edges.method == "replace"
        self.on_device = DeviceSampler(indptr, indices, near.sampler.fanouts, batch_size, device, replaces=replaces)
        self.table: FeatureTable | None = None
        if self.features.table is not None:
            self.table = self._put(self.features, indptr, indices, seeds, memory)

    def _put(self, features: FeatureSource, indptr: Array, indices: Array, seeds: Array, memory: int) -> FeatureTable:
        assert features.table is not None
        fits = features.table.nbytes <= memory
        reads = seeds if fits else expected_reads(indptr, indices, seeds, self.on_device.fanouts)
        return FeatureTable.put(features.table, reads, self.device, memory)

    def describe(self) -> str:
        """Say what lies where."""
        text = f"sampling on {self.device}: {len(self.on_device.indices):,} edges there"
        if self.table is None:
            return text
        hot, cold = len(self.table.hot), 0 if self.table.cold is None else len(self.table.cold)
        return f"{text}, features of {hot:,} nodes" + (f", of {cold:,} more in CPU memory" if cold else "")

    @property
    def is_fused(self) -> bool:
        """Whether the outermost hop comes as a mean."""
        return self.first_hop == "fused"

    def new_batch(self) -> PaddedBatch:
        """Return room for a batch."""
        sample = self.on_device.new_sample(open_last=self.is_fused)
        width = 0 if self.table is None else self.table.hot.shape[1] * (2 if self.is_fused else 1)
        return PaddedBatch(sample, sample.degree.new_empty((len(sample.nodes), width), dtype=self.features.dtype))

    def fill(self, order: Tensor, batch: PaddedBatch) -> None:
        """Sample and gather what `order` says; the caller holds the sampler's lock."""
        from tasks.sampling.device import rows_triton

        sample = batch.sample
        self.on_device.fill(order, sample)
        if self.table is None:
            return
        width, count = self.table.hot.shape[1], sample.sizes[-1:]
        rows_triton.gather_rows(self.table, sample.nodes, count, batch.rows[:, :width])
        if self.is_fused:
            outer = sample.layers[-1]
            rows_triton.gather_means(self.table, outer.indptr, outer.ids, count, batch.rows[:, width:])

    def around(self, seeds: Array, key: int, excluded: Array | None = None) -> tuple[list[Block], Inputs]:
        """Sample around distinct seeds, as `Neighborhoods.around` does; waits for the device once, for the sizes."""
        assert excluded is None, "seeds that are nodes leave no edges out"
        batch = self.new_batch()
        order = self.on_device.order(seeds, key).to(self.device, non_blocking=True)
        with self.on_device.lock:
            self.fill(order, batch)
            used = self.on_device.used(batch.sample)
        nodes, layers = self.on_device.cut(batch.sample, used.tolist())
        rows = batch.rows[: len(nodes)]
        blocks = [Block(layer.indptr, layer.indices, len(layer.degree), degree=layer.degree) for layer in layers]
        if not self.is_fused:
            return blocks, Inputs(nodes.long(), None if self.table is None else rows)
        width = rows.shape[1] // 2
        outer = layers[0]
        blocks[0] = Block(
            outer.indptr,
            outer.indices.new_empty(0, dtype=torch.int32),
            len(outer.degree),
            degree=outer.degree,
            mean=rows[:, width:],
            num_drawn=len(outer.indices),
        )
        return blocks, Inputs(nodes.long(), rows[:, :width])
