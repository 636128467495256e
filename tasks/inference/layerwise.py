"""Layer-wise inference: node vectors by all in-edges, in bounded memory.

A layer is computed for all nodes, a chunk of destinations at a time, before the next one starts. No node is computed
twice, as it would be with neighbourhoods of several hops; memory holds one chunk and 8 bytes a node, and the layers'
outputs lie in scratch files, at most three at a time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.base import GraphModel
from tasks.arrays import blocks
from tasks.processes.memory import available_bytes
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.rows.features import FeatureSource, make_blocks, take_rows
from tasks.storage.graph_store import Array, GraphStore

CHUNK_EDGES = 1 << 20
_CHUNK_VALUES = 1 << 26  # rows of a chunk times its widest layer: 256 MiB as float32
_CHUNK_PARTS = 64  # where memory is short: a sixteenth of what is free, since there are several such matrices


class Layerwise:
    """Runs models over one graph, layer by layer."""

    first_node = 0
    """Id of the first node that is computed."""
    encodes_always: ClassVar[bool] = False
    """Whether rows that an encoder looks up are looked up once, for all nodes."""

    def __init__(
        self, store: GraphStore, device: torch.device, scratch: Path | None = None, chunk_edges: int = CHUNK_EDGES
    ) -> None:
        """Open the graph.

        `scratch`: folder on a disk with room for the layers' outputs; None: the system's own. `chunk_edges`: edges of a
        chunk; a node with more in-edges is a chunk of its own.
        """
        self.num_nodes = self.num_held = store.manifest.num_nodes
        self.indptr = store["csc_indptr"]
        self.sampler = NeighborSampler(self.indptr, store["csc_indices"], (-1,))
        self.device = device
        self.scratch = scratch
        self.chunk_edges = chunk_edges

    # ---- what a graph in parts does in its own way

    def complete(self, rows: Array) -> None:
        """Fill in rows of the nodes num_nodes to num_held - 1, which are computed elsewhere."""

    def rows_of(self, before: Array, sources: Array) -> Array:
        """Return the rows of sources, (n, D), of a layer's output."""
        read = take_rows(before, sources, np.float32)
        assert read is not None
        return read.numpy()

    def most_chunks(self, count: int) -> int:
        """Return the most chunks that any rank cuts a layer into; `count`: this one's."""
        return count

    def answer_others(self, before: Array | None) -> None:
        """Answer what other ranks ask for a chunk, where this one has none left."""

    def degrees(self, sources: Array, counted: Array) -> Array:
        """Return the in-degrees of sources in the whole graph, float32 (n,), from those `counted` here."""
        return counted

    # ----

    def vectors(self, model: GraphModel, features: FeatureSource, nodes: Array | None) -> NDArray[np.float32]:
        """Return vectors of nodes, int64 (n,) distinct (None: all), by a model in evaluation mode, without gradients.

        They are float32 (n, model.vector_dim), a memory map of a file that has no name and goes with it. Raises
        OSError: the disk has no room.
        """
        rows = chunk_rows(model, self.chunk_edges)
        before = self._encode(model, features, rows)
        for number, layer in enumerate(model.layers):
            asked_nodes = nodes if number == len(model.layers) - 1 else None
            last = number == len(model.layers) - 1
            count = len(asked_nodes) if asked_nodes is not None else self.num_nodes if last else self.num_held
            after = scratch_array(self.scratch, count, out_dims(model)[number])
            parts = self._parts(asked_nodes, rows)
            rounds = self.most_chunks(len(parts))
            for part in parts:
                chunk = np.arange(part.start, part.stop) if asked_nodes is None else asked_nodes[part]
                after[part] = self._apply(model, layer, features, before, chunk)
            for _ in range(rounds - len(parts)):
                self.answer_others(before)
            if not last:
                self.complete(after)
            before = after  # the file of the layer before goes here
        assert before is not None
        return before

    def _encode(self, model: GraphModel, features: FeatureSource, rows: int) -> Array | None:
        """Encode all nodes once; None where the encoder only looks rows up, which each chunk can do itself."""
        if model.encoder.linear is None and model.encoder.categories is None and not self.encodes_always:
            return None
        encoded = scratch_array(self.scratch, self.num_held, model.encoder.out_dim)
        for part in blocks(self.num_nodes, rows):
            inputs = features.inputs(np.arange(part.start, part.stop))
            inputs = replace(inputs, node_ids=inputs.node_ids + self.first_node).to(self.device)
            encoded[part] = model.encoder(inputs).cpu().numpy()
        self.complete(encoded)
        return encoded

    def _parts(self, wanted: Array | None, rows: int) -> list[slice]:
        """Cut `wanted` (None: all nodes) into runs of at most `rows` nodes and in-edges."""
        if wanted is None:
            ends = self.indptr[1 : self.num_nodes + 1]
        else:
            ends = np.cumsum(self.indptr[wanted + 1] - self.indptr[wanted])
        return list(bounded_slices(ends, rows, rows))

    def _apply(
        self, model: GraphModel, layer: nn.Module, features: FeatureSource, before: Array | None, chunk: Array
    ) -> Array:
        """Compute one layer for the destinations in `chunk`: float32 (len(chunk), its out_dim)."""
        sources, layers = self.sampler.sample(chunk, 0)
        layers[0].degree = self.degrees(sources, layers[0].degree)
        [block] = make_blocks(layers, features)
        if before is None:
            x: Tensor = model.encoder(features.inputs(sources).to(self.device))
        else:
            x = torch.from_numpy(self.rows_of(before, sources)).to(self.device)
        y: Tensor = layer(block.to(self.device), x)
        return y.cpu().numpy()


def scratch_array(folder: Path | None, rows: int, columns: int, dtype: Any = np.float32) -> Array:
    """Map a new file that has no name: the kernel frees it with its last reader, even after a kill.

    The room is taken beforehand: writing to a map of a full disk would end the process.
    """
    if not rows * columns:
        return np.empty((rows, columns), dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, np.dtype(dtype).itemsize * rows * columns)
        return np.memmap(file, dtype, "r+", shape=(rows, columns))


def out_dims(model: GraphModel) -> list[int]:
    """Return the columns of each layer's output."""
    return [int(layer.out_dim) for layer in model.layers]  # type: ignore[arg-type]


def widest(model: GraphModel) -> int:
    """Return the columns of the model's widest vectors of nodes."""
    return max(model.encoder.out_dim, model.vector_dim, *out_dims(model))


def chunk_rows(model: GraphModel, chunk_edges: int = CHUNK_EDGES) -> int:
    """Return how many nodes and how many edges a chunk may have: `chunk_edges`, or fewer for wide layers."""
    return max(1, min(chunk_edges, min(_CHUNK_VALUES, available_bytes() // _CHUNK_PARTS) // widest(model)))


def bounded_slices(ends: Array, work: int, rows: int) -> Iterator[slice]:
    """Cut 0..len(ends) into slices of at most `rows` rows and `work` work, but at least one row.

    `ends` int64 (n,): work of all rows up to and including each.
    """
    start, done = 0, 0
    while start < len(ends):
        stop = min(int(np.searchsorted(ends, done + work, side="right")), start + rows)
        stop = max(stop, start + 1)
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])
