"""What a model reads of nodes and edges, row by row, and of the whole graph."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from configs.errors import DataError
from models.base import GraphModel
from models.block import Block, Inputs
from models.kernels.memory import recycled
from models.kernels.tables.byte_rows import SCALE_BYTES, pack_rows
from models.relational.base import RelationalModel
from tasks.arrays import Array, blocks
from tasks.processes.memory import available_bytes
from tasks.sampling.neighborhoods.in_edges import Sample
from tasks.sampling.rows.gather import gather_mean, gather_rows, gather_side_by_side
from tasks.sampling.rows.labels import training_labels
from tasks.storage.graph_store import MISSING_IN_EDGES, GraphStore

_CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class FeatureSource:
    """What a model reads of nodes and edges, taken from the memory maps row by row, as batches need it."""

    feat: Array | None
    feat_cat: Array | None
    edge_feat: Array | None = None
    edge_feat_cat: Array | None = None
    edge_weight: Array | None = None
    edge_type: Array | None = None
    node_type: Array | None = None
    """Where there are several types, and the model tells them apart."""
    label: Array | None = None
    """Labels of the training nodes, where the model reads labels (`label_reuse`)."""
    dtype: torch.dtype = torch.float32
    """What numeric features of nodes become: float32 or bfloat16."""
    rows: Rows = "stored"
    """What numeric features of nodes are held as."""
    may_copy: bool = True
    """Whether those that become bfloat16 may be copied as such, where memory is plenty."""
    table: Array | None = field(init=False, repr=False)
    """`feat` as it is gathered from: as `rows` says, or a bfloat16 copy (as uint16) where that is asked for and memory
    is plenty."""

    def __post_init__(self) -> None:
        table = self.feat
        if table is not None and self.rows != "stored":
            table = stored_rows(table, self.rows)
        elif table is not None and self.dtype == torch.bfloat16 and self.may_copy:
            table = bfloat16_copy(table)
        object.__setattr__(self, "table", table)

    @classmethod
    def open(cls, store: GraphStore, *, edges: bool) -> FeatureSource:
        """Open what the graph has; edge features only where the model reads them."""
        return cls(
            store.get("feat"),
            store.get("feat_cat"),
            store.get("edge_feat") if edges else None,
            store.get("edge_feat_cat") if edges else None,
        )

    @classmethod
    def of(
        cls, store: GraphStore, model: GraphModel, dtype: torch.dtype = torch.float32, rows: Rows = "stored"
    ) -> FeatureSource:
        """Open what a model reads of a graph, numeric features of nodes as `dtype`, held as `rows`.

        Nothing for a model of a typed graph: batches read each type's own columns (`sampling.relational`).
        """
        if isinstance(model, RelationalModel):
            return cls(None, None)
        types = store.get("edge_type")
        if types is None:  # one relation
            types = np.broadcast_to(np.int16(0), store["csc_indices"].shape)
        return replace(
            cls.open(store, edges=model.edge_facts is not None),
            edge_weight=store["edge_weight"] if model.config.edge_weights else None,
            edge_type=types if model.uses_edge_types else None,
            node_type=store.get("node_type") if model.uses_node_types else None,
            label=training_labels(store) if model.config.label_reuse else None,
            dtype=dtype,
            rows=rows,
        )

    @property
    def reads_edges(self) -> bool:
        """Whether edges carry anything; then `attach` needs their positions."""
        tables = (self.edge_feat, self.edge_feat_cat, self.edge_weight, self.edge_type)
        return any(table is not None for table in tables)

    def inputs(self, nodes: Array) -> Inputs:
        """Return the inputs of nodes, int32 or int64 (n,)."""
        feat = None if self.table is None else gather_rows(self.table, nodes, self.dtype)
        label = None if self.label is None else torch.from_numpy(self.label[nodes])
        codes, node_type = (take_rows(table, nodes, np.int64) for table in (self.feat_cat, self.node_type))
        return Inputs(node_id_tensor(nodes), feat, codes, label, node_type, count_types(node_type))

    def inputs_and_mean(self, nodes: Array, indptr: Array, ids: Array) -> tuple[Inputs, Tensor]:
        """Return the inputs of destinations, integer (n,), and the mean (n, D) of their sources' numeric features.

        The edges of each destination are indptr int64 (n + 1,), and `ids`, like nodes (E,), their sources.
        """
        assert self.table is not None, "a mean is taken of numeric features"
        feat, mean = gather_mean(self.table, nodes, indptr, ids, self.dtype)
        return Inputs(node_id_tensor(nodes), feat), mean

    def inputs_and_known_mean(self, nodes: Array, means: Array) -> tuple[Inputs, Tensor]:
        """Do the same where the means of all nodes, (N, D), are known."""
        assert self.table is not None, "a mean is taken of numeric features"
        feat, mean = gather_side_by_side(self.table, means, nodes, self.dtype)
        return Inputs(node_id_tensor(nodes), feat), mean

    def attach(self, block: Block, positions: Array | None) -> Block:
        """Give a block what its edges carry, by their CSC positions, int64 (E,); None where `reads_edges` is False.

        Weights that the block has already, which make a sum over sampled edges unbiased, are multiplied with.
        """
        if not self.reads_edges:
            return block
        assert positions is not None, "features of edges are found by position"
        block.edge_feat = take_rows(self.edge_feat, positions, np.float32)
        block.edge_feat_cat = take_rows(self.edge_feat_cat, positions, np.int64)
        block.edge_type = take_rows(self.edge_type, positions, np.int64)
        block.edge_type_counts = count_types(block.edge_type)
        weight = take_rows(self.edge_weight, positions, np.float32)
        if weight is not None:
            block.weight = weight if block.weight is None else weight * block.weight
        return block


def take_rows(table: Array | None, rows: Array, dtype: type) -> Tensor | None:
    """Return rows of a memory map as a tensor; None stays None."""
    if table is None:
        return None
    if table.ndim == 2 and dtype is np.float32:
        return gather_rows(table, rows, torch.float32)
    # mode="clip" spares NumPy a second copy; the rows come from the graph itself and are in range
    return torch.from_numpy(np.take(table, rows, axis=0, mode="clip").astype(dtype, copy=False))


def count_types(types: Tensor | None) -> tuple[int, ...] | None:
    """Return how many of some types, int64 (n,) on the CPU, are 0, 1, ...; None stays None."""
    return None if types is None else tuple(np.bincount(types.numpy()).tolist())


def node_id_tensor(nodes: Array) -> Tensor:
    """Return ids of nodes as models read them: int64 (n,)."""
    ids = recycled(len(nodes), np.int64)
    ids[:] = nodes
    return torch.from_numpy(ids)


def bfloat16_copy(feat: Array) -> Array:
    """Return features (N, D) in memory as bfloat16 (uint16), or as they are where that takes too much memory.

    Half the bytes are half the time of gathering. A quarter of what memory is available, shared by the machine's ranks,
    may go to it.
    """
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if 2 * feat.size > available_bytes() // (4 * ranks):
        return feat
    copy = np.empty(feat.shape, np.uint16)
    for part in blocks(len(feat), _CHUNK_ROWS):
        copy[part] = torch.from_numpy(np.array(feat[part], np.float32)).bfloat16().view(torch.uint16).numpy()
    return copy


def make_blocks(layers: list[Sample], features: FeatureSource) -> list[Block]:
    """Turn sampled layers into blocks with what their edges carry."""
    blocks = []
    for layer in layers:
        indptr, indices, degree = map(torch.from_numpy, (layer.indptr, layer.indices, layer.degree))
        weight = None if layer.weight is None else torch.from_numpy(layer.weight)
        block = Block(indptr, indices, len(degree), degree=degree, weight=weight)
        blocks.append(features.attach(block, layer.positions))
    return blocks


def mean_block(layer: Sample, mean: Tensor) -> Block:
    """Return the block of a layer whose mean is known, (num_dst, D): its sources are its destinations."""
    indptr, degree = torch.from_numpy(layer.indptr), torch.from_numpy(layer.degree)
    return Block(indptr, torch.empty(0, dtype=torch.int32), len(degree), degree=degree, mean=mean)


def whole_graph(store: GraphStore, features: FeatureSource) -> tuple[Block, Inputs]:
    """Return the graph as one block in memory, with the inputs of all nodes."""
    indptr = torch.from_numpy(np.array(store["csc_indptr"], np.int64))
    missing = store.get(MISSING_IN_EDGES)
    edge_type, node_type = _whole(features.edge_type, np.int64), _whole(features.node_type, np.int64)
    block = Block(
        indptr,
        torch.from_numpy(np.array(store["csc_indices"])),
        store.manifest.num_nodes,
        degree=None if missing is None else torch.diff(indptr) + torch.from_numpy(missing),
        weight=_whole(features.edge_weight, np.float32),
        edge_feat=_whole(features.edge_feat, np.float32),
        edge_feat_cat=_whole(features.edge_feat_cat, np.int64),
        edge_type=edge_type,
        edge_type_counts=count_types(edge_type),
        symmetric=store.manifest.symmetric,
    )
    feat = _whole(features.feat, np.float32)
    inputs = Inputs(
        torch.arange(store.manifest.num_nodes),
        None if feat is None else feat.to(features.dtype),
        _whole(features.feat_cat, np.int64),
        None if features.label is None else torch.from_numpy(features.label),
        node_type,
        node_type_counts=count_types(node_type),
    )
    return block, inputs


def _whole(table: Array | None, dtype: type) -> Tensor | None:
    return None if table is None else torch.from_numpy(np.array(table, dtype))


Rows = Literal["stored", "float16", "bfloat16", "int8"]


def stored_rows(feat: Array, kind: Rows) -> Array:
    """Return features (N, D) in memory as float16, bfloat16 (uint16), or int8 (N, D + 4), see `byte_rows`; or as is.

    Raises DataError: a number is NaN or infinite, and int8 has no such.
    """
    if kind == "stored":
        return feat
    width = feat.shape[1] + (SCALE_BYTES if kind == "int8" else 0)
    out = np.empty((len(feat), width), {"float16": np.float16, "bfloat16": np.uint16, "int8": np.int8}[kind])
    for some in blocks(len(feat), _CHUNK_ROWS):
        rows = np.array(feat[some], np.float32)
        if kind == "float16":
            out[some] = rows
        elif kind == "bfloat16":
            out[some] = torch.from_numpy(rows).bfloat16().view(torch.uint16).numpy()
        else:
            try:
                out[some] = pack_rows(rows)
            except ValueError as error:
                raise DataError(f"features: {error}; take rows=bfloat16, or fill them in preprocess") from error
    return out
