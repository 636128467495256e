"""What a loader is, what all of them share, and which one fits a task.

A loader makes one batch from the positions of its seeds in the split. A batch depends on (seed, epoch, step, rank) and
on nothing before it, so a run that resumes sees the batches that it would have seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import DataError
from models.base import GraphFacts
from models.block import Batch, Block, Inputs
from tasks.graph_store import GraphStore
from tasks.manifests import GraphManifest

Array = NDArray[Any]


class Loader:
    """Makes batches of one split.

    An epoch is either a walk over the split's seeds, and `batch` is asked for those at some positions; or, where
    `num_batches` is a number, so many batches that the loader itself lays out, and `epoch_batch` is asked for one of
    them. Ranks that share an epoch split its positions or its batch numbers; how is the strategy's business. Every
    method may be called from several threads at once, in any order.
    """

    num_seeds: int
    """Seeds (nodes, edges or graphs) of the split."""
    num_batches: int | None = None
    """Batches of an epoch, at least 1, the same in every epoch; None: the batches are cut from the seeds."""
    whole_split: ClassVar[bool] = False
    """Whether a step takes all seeds at once, whatever the batch size."""

    def batch(self, positions: Array, key: int) -> Batch:
        """Return the batch of the seeds at `positions`, int64 (n,); all that is drawn comes from `key`.

        Only where `num_batches` is None.
        """
        raise AssertionError(f"{type(self).__name__} defines no batch")

    def epoch_batch(self, epoch: int, number: int, key: int) -> Batch:
        """Return batch `number`, 0 to num_batches - 1, of an epoch. Only where `num_batches` is a number.

        What the whole epoch shares (which cluster a node belongs to) is drawn from the seed, the epoch and the rank
        that the loader was made with, what a batch draws by itself from `key`. The batch's `num_seeds` counts the
        labelled nodes in it, which may be none.
        """
        raise AssertionError(f"{type(self).__name__} defines no epoch_batch")

    def to(self, device: torch.device) -> None:
        """Move what is the same in every batch to the device, once."""


def graph_facts(manifest: GraphManifest) -> GraphFacts:
    """Return what a model needs to know. Raises DataError for a label that no head fits."""
    if manifest.task_type == "multiclass":
        if manifest.num_tasks != 1:
            raise DataError(f"{manifest.dataset} has {manifest.num_tasks} multiclass labels a node; one is supported")
        out_dim = manifest.num_classes
    else:
        out_dim = manifest.num_tasks
    return GraphFacts(
        task=manifest.task,
        out_dim=out_dim,
        num_nodes=manifest.num_nodes,
        feature_dim=manifest.feature_dim,
        categories=manifest.categories,
        edge_feature_dim=manifest.edge_feature_dim,
        edge_categories=manifest.edge_categories,
    )


def targets(manifest: GraphManifest, labels: Array) -> Tensor:
    """Return labels as the losses want them: int64 (n,) for multiclass, else float32 (n, T) with NaN for none."""
    if manifest.task_type == "multiclass":
        return torch.from_numpy(labels.reshape(len(labels)).astype(np.int64))
    values = labels.reshape(len(labels), -1).astype(np.float32)
    if np.issubdtype(labels.dtype, np.integer):
        values[labels.reshape(len(labels), -1) < 0] = np.nan
    return torch.from_numpy(values)


@dataclass(frozen=True)
class FeatureSource:
    """Features of nodes and edges, read from the memory maps row by row as batches ask for them."""

    feat: Array | None
    feat_cat: Array | None
    edge_feat: Array | None
    edge_feat_cat: Array | None

    @classmethod
    def open(cls, store: GraphStore, *, edges: bool) -> FeatureSource:
        """Open what the graph has; edge features only where the model reads them."""
        names = ("feat", "feat_cat", "edge_feat", "edge_feat_cat")
        return cls(*(store.get(name) if edges or not name.startswith("edge") else None for name in names))

    def inputs(self, nodes: Array) -> Inputs:
        """Return the inputs of nodes, int64 (n,)."""
        return Inputs(
            node_ids=torch.from_numpy(nodes),
            feat=take_rows(self.feat, nodes, np.float32),
            feat_cat=take_rows(self.feat_cat, nodes, np.int64),
        )

    def attach(self, block: Block, positions: Array) -> Block:
        """Give a block the features of its edges, by their CSC positions, int64 (E,)."""
        block.edge_feat = take_rows(self.edge_feat, positions, np.float32)
        block.edge_feat_cat = take_rows(self.edge_feat_cat, positions, np.int64)
        return block


def take_rows(table: Array | None, rows: Array, dtype: type) -> Tensor | None:
    """Return rows of a memory map as a tensor; None stays None."""
    if table is None:
        return None
    # mode="clip" spares NumPy a second copy; the rows come from the graph itself and are in range
    return torch.from_numpy(np.take(table, rows, axis=0, mode="clip").astype(dtype, copy=False))


def whole_graph(store: GraphStore, features: FeatureSource) -> tuple[Block, Inputs]:
    """Return the graph as one block in memory, with the inputs of all nodes."""
    block = Block(
        torch.from_numpy(np.array(store["csc_indptr"], np.int64)),
        torch.from_numpy(np.array(store["csc_indices"], np.int64)),
        store.manifest.num_nodes,
    )
    block.edge_feat = _whole(features.edge_feat, np.float32)
    block.edge_feat_cat = _whole(features.edge_feat_cat, np.int64)
    inputs = Inputs(
        torch.arange(store.manifest.num_nodes),
        _whole(features.feat, np.float32),
        _whole(features.feat_cat, np.int64),
    )
    return block, inputs


def _whole(table: Array | None, dtype: type) -> Tensor | None:
    return None if table is None else torch.from_numpy(np.array(table, dtype))
