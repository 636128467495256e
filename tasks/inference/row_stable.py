"""Layer-wise inference in which the bits of a node's row follow from what it reads, and from nothing beside it.

Libraries take other paths through a product for other numbers of rows, on some processors and not on others: the same
row, in another chunk, ends in other last bits. So all products are graphmill's own (`stable_rows`), also those that
layers of DGL and of users ask torch for. Functions of single numbers, as exp, compute the last few of an array by other
means than whole vectors: chunks, their sources and their edges are filled up to multiples of 64 with rows that nobody
reads, and torch computes on one thread. graphmill's kernels go through the edges of a destination one after the other.
In-edges are read in the order of the data set, not of the graph, which a partitioner may have given another one.

What else a model's own operations do nobody can promise. `KeptLayers` therefore computes some rows twice, in chunks of
other sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.base import GraphModel
from models.block import Block
from models.kernels.dense.row_products import stable_rows
from models.kernels.threads import kernels_alone
from tasks.arrays import blocks
from tasks.inference.layerwise import Layerwise
from tasks.sampling.rows.features import FeatureSource, take_rows
from tasks.storage.graph_store import Array, GraphStore

UNIT = 64
"""Rows of chunks, of their sources and their edges come in multiples of this."""
_MOST_ROWS = 1 << 16


class RowStable(Layerwise):
    """Runs models over one graph on the CPU; each row's bits are its own."""

    def __init__(self, store: GraphStore, scratch: Path | None = None, chunk_edges: int = 1 << 20) -> None:
        """Open the graph; `scratch` and `chunk_edges` as of `Layerwise`."""
        super().__init__(store, torch.device("cpu"), scratch, chunk_edges)
        self.indices = store["csc_indices"]
        ids = store.get("node_ids")
        self.order: Array | None = None
        """int64 (N,): place of each node in the data; None: they lie in that order."""
        if ids is not None and np.any(np.diff(ids) < 0):
            self.order = np.asarray(ids, np.int64)

    def in_edges(self, nodes: Array) -> tuple[Array, Array, Array]:
        """Return the in-edges of nodes, int64 (n,), by node and then by the sources' place in the data.

        They are offsets int64 (n + 1,), sources int64 (E,) and CSC positions int64 (E,).
        """
        first, counts = self.indptr[nodes], self.indptr[nodes + 1] - self.indptr[nodes]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        positions = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], counts)
        sources = np.asarray(self.indices[positions], np.int64)
        if self.order is not None:
            place = np.lexsort((self.order[sources], np.repeat(np.arange(len(nodes)), counts)))
            sources, positions = sources[place], positions[place]
        return offsets, sources, positions

    def encoded_rows(self, model: GraphModel, features: FeatureSource, nodes: Array) -> NDArray[np.float32]:
        """Encode nodes, int64 (n,): float32 (n, the encoder's out_dim)."""
        result = np.empty((len(nodes), model.encoder.out_dim), np.float32)
        types = np.zeros(len(nodes), np.int64) if features.node_type is None else features.node_type[nodes]
        for kind in np.unique(types):  # each type may have a map of its own
            own = np.flatnonzero(types == kind)
            for part in blocks(len(own), _MOST_ROWS):
                some = nodes[own[part]]
                filled = np.concatenate([some, np.repeat(some[-1:], -len(some) % UNIT)])
                with kernels_alone(), stable_rows():
                    result[own[part]] = model.encoder(features.inputs(filled)).numpy()[: len(some)]
        return result

    def layer_rows(
        self, layer: nn.Module, features: FeatureSource, before: Array | None, nodes: Array
    ) -> NDArray[np.float32]:
        """Compute a layer's output of distinct nodes, int64 (n,): float32 (n, its out_dim).

        `before`, (N, D): the layer's input, that is the output of the layer before, or numeric features as they are.
        """
        offsets, sources, positions = self.in_edges(nodes)
        local, distinct = self.sampler.number(np.concatenate([nodes, sources]).astype(self.indices.dtype))
        block, rows = self._filled_block(offsets, np.asarray(local[len(nodes) :], np.int64), distinct)
        filling = np.zeros(block.num_edges - len(positions), np.int64)  # of any edge: nobody reads it
        block = features.attach(block, np.concatenate([positions, filling]) if features.reads_edges else None)
        inputs = take_rows(before, distinct, np.float32)
        assert inputs is not None
        x = torch.zeros(block.num_src, inputs.shape[1])
        x[rows] = inputs
        with kernels_alone(), stable_rows():
            y: Tensor = layer(block, x)
        result: NDArray[np.float32] = y.numpy()[: len(nodes)]
        return result

    def _filled_block(self, offsets: Array, local: Array, distinct: Array) -> tuple[Block, Tensor]:
        """Return the block of some edges, filled up, and where in it the distinct nodes' rows stand."""
        count = len(offsets) - 1
        more = UNIT - count % UNIT  # one at least, which takes the edges that fill up
        num_src = count + more + (-(-(len(distinct) - count) // UNIT)) * UNIT
        more_edges = -len(local) % UNIT
        ends = np.full(more, offsets[-1] + more_edges)
        indices = np.concatenate([np.where(local < count, local, local + more), np.full(more_edges, count)])
        rows = np.arange(len(distinct))
        rows[count:] += more
        degree = np.ones(num_src, np.float32)
        degree[rows] = self.indptr[distinct.astype(np.int64) + 1] - self.indptr[distinct]
        block = Block(
            torch.from_numpy(np.concatenate([offsets, ends])),
            torch.from_numpy(indices.astype(np.int32)),
            num_src,
            degree=torch.from_numpy(degree),
        )
        return block, torch.from_numpy(rows)


def by_rows(function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """Return function(*rows), tensors (n, ...) that it maps row by row, so that each row's bits are its own."""
    count = len(rows[0])
    filled = [torch.cat([one, one[-1:].expand(-count % UNIT, *one.shape[1:])]) for one in rows]
    with kernels_alone(), stable_rows():
        return function(*filled)[:count]


def features_of(store: GraphStore, model: GraphModel) -> FeatureSource:
    """Return what a model reads, numbers of nodes as they are stored."""
    return replace(FeatureSource.of(store, model), may_copy=False)
