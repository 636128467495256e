"""Neighbourhoods that are sampled and gathered on a GPU: the blocks and inputs of `neighbor.Neighborhoods`, bit by bit.

Graph and features lie in the GPU's memory. Not yet run on a GPU.
"""

from __future__ import annotations

import os
import threading

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.block import Block, Inputs
from tasks.arrays import Array
from tasks.processes.memory import available_bytes
from tasks.sampling.device.neighbors import DeviceSampler
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.parts.neighborhoods import PartNeighborhoods
from tasks.train.loaders.base import Loader
from tasks.train.loaders.neighbor import Neighborhoods, NeighborLoader

_SHARE = 0.6
"""Of what memory is free, for graph and features: the rest is for the training's own."""
_COPIED_ROWS = 1 << 16


def move_sampling(loader: Loader, device: torch.device) -> str:
    """Have a loader sample and gather on a device (`train.sampling=device`); say in a line what lies there.

    Raises RecipeError: the loader, its options, the graph or the device are not fit for that.
    """
    from models.kernels.backends import has_triton

    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":  # which tests have set
        raise RecipeError(
            "train.sampling=device needs a GPU, and this rank computes on the CPU; set train.sampling=cpu"
        )
    if not has_triton():
        raise RecipeError("train.sampling=device needs Triton, which is not installed; set train.sampling=cpu")
    if not isinstance(loader, NeighborLoader):
        raise RecipeError("train.sampling=device is for train.loader=neighbor; take that, or set train.sampling=cpu")
    near = _refuse_others(loader.neighborhoods)
    loader.neighborhoods = DeviceNeighborhoods(near, loader.batch_size, device)
    feat, num_edges = near.features.table, len(near.sampler.edges.indices)
    features = "" if feat is None else f", features of {len(feat):,} nodes"
    return f"sampling on {device}: {num_edges:,} edges there{features}"


def _refuse_others(near: Neighborhoods | PartNeighborhoods) -> Neighborhoods:
    """Return neighbourhoods that a device can make. Raises RecipeError."""
    if isinstance(near, PartNeighborhoods):
        raise RecipeError("train.sampling=device wants the whole graph on each rank; set train.strategy=data_parallel")
    features = near.features
    reasons = {
        "train.loader.first_hop=precomputed": near.mean is not None,
        "weights, features or types of edges": features.reads_edges,
        "categories of nodes": features.feat_cat is not None,
        "types of nodes": features.node_type is not None,
        "model.label_reuse": features.label is not None,
        "train.strategy=partition_parallel": near.missing is not None,
    }
    unfit = [reason for reason, holds in reasons.items() if holds]
    if unfit:
        raise RecipeError(
            f"train.sampling=device knows nothing of {', '.join(unfit)}; leave that out, or set train.sampling=cpu"
        )
    return near


class DeviceNeighborhoods(Neighborhoods):
    """Samples and gathers on one device; threads take turns."""

    def __init__(self, near: Neighborhoods, batch_size: int, device: torch.device) -> None:
        """Copy what `near` reads to the device. Raises RecipeError: it has no room there."""
        self.features, self.first_hop, self.device = near.features, near.first_hop, device
        self.missing = self.mean = None
        self.sampler: NeighborSampler = near.sampler  # numbers pairs, on the CPU
        indptr, indices, feat = near.sampler.edges.indptr, near.sampler.edges.indices, near.features.table
        taken = indices.nbytes + 8 * (2 * len(indptr) + 1) + (0 if feat is None else feat.nbytes)
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
        if taken > _SHARE * free:
            raise RecipeError(
                f"train.sampling=device: graph and features take {taken / 1e9:,.1f} GB, and of {device}'s free "
                f"{free / 1e9:,.1f} GB {_SHARE:.0%} are for them; set train.sampling=cpu"
            )
        self.on_device = DeviceSampler(indptr, indices, near.sampler.fanouts, batch_size, device)
        self.table = None if feat is None else _copy(feat, device)
        self._lock = threading.Lock()

    def around(self, seeds: Array, key: int, excluded: Array | None = None) -> tuple[list[Block], Inputs]:
        """Sample around distinct seeds, as `Neighborhoods.around` does; waits for the device once, for the sizes."""
        assert excluded is None, "seeds that are nodes leave no edges out"
        with self._lock:
            return self._around(seeds, key)

    def _around(self, seeds: Array, key: int) -> tuple[list[Block], Inputs]:
        from tasks.sampling.device.rows_triton import gather_means

        fused = self.first_hop == "fused"
        nodes, layers = self.on_device.sample(seeds, key, open_last=fused)
        blocks = [Block(layer.indptr, layer.indices, len(layer.degree), degree=layer.degree) for layer in layers]
        feat = None if self.table is None else self.table.index_select(0, nodes).to(self.features.dtype)
        if not fused:
            return blocks, Inputs(nodes.long(), feat)
        assert self.table is not None
        assert feat is not None
        outer = layers[0]
        both = feat.new_empty((len(feat), 2 * feat.shape[1]))
        both[:, : feat.shape[1]] = feat
        own, mean = both.chunk(2, dim=1)
        gather_means(self.table, outer.indptr, outer.indices, mean)
        blocks[0] = Block(
            outer.indptr,
            outer.indices.new_empty(0, dtype=torch.int32),
            len(outer.degree),
            degree=outer.degree,
            mean=mean,
            num_drawn=len(outer.indices),
        )
        return blocks, Inputs(nodes.long(), own)


def _copy(table: Array, device: torch.device) -> Tensor:
    """Copy a table (N, D) of float32, float16, or bfloat16 as uint16, piece by piece."""

    def tensor(rows: Array) -> Tensor:
        copied = torch.from_numpy(np.array(rows))
        return copied.view(torch.bfloat16) if rows.dtype == np.uint16 else copied

    out = torch.empty(table.shape, dtype=tensor(table[:0]).dtype, device=device)
    for low in range(0, len(table), _COPIED_ROWS):
        out[low : low + _COPIED_ROWS] = tensor(table[low : low + _COPIED_ROWS])
    return out
