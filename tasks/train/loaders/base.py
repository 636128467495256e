"""What a loader is, what all of them share, and which one fits a task.

A loader makes one batch from the positions of its seeds in the split. A batch depends on (seed, epoch, step, rank) and
on nothing before it, so a run that resumes sees the batches that it would have seen.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import DataError
from models.base import GraphFacts, GraphModel
from models.block import Batch, Block, Inputs
from models.kernels.memory import recycled
from tasks.graph_store import MISSING_IN_EDGES, GraphStore
from tasks.manifests import GraphManifest
from tasks.memory import available_bytes
from tasks.train.loaders.gather import gather_mean, gather_rows, gather_side_by_side
from tasks.train.loaders.sampling import derive_key

Array = NDArray[Any]
_CHUNK_ROWS = 1 << 16
_HIDE = 0x1ABE1  # purpose of a key: whose labels are hidden


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
    batch_size: int = 1
    """Seeds a step and rank."""
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

    def batches_alike(self) -> bool:
        """Whether all ranks' batches of a step count alike: they have equally many labels, or these bring weights."""
        return True


class LabelLoader(Loader):
    """A loader whose seeds are nodes or graphs with labels."""

    def __init__(self, manifest: GraphManifest, seeds: Array, labels: Array) -> None:
        """`seeds`: integer (n,), rows of `labels`, (N,) or (N, T)."""
        self.manifest, self.seeds, self.labels = manifest, seeds, labels
        self.num_seeds = len(seeds)

    def batches_alike(self) -> bool:
        """Whether no seed's label is missing: NaN, or below 0 where labels are integers. Reads them all."""
        for start in range(0, self.num_seeds, _CHUNK_ROWS):
            some = np.asarray(self.labels[self.seeds[start : start + _CHUNK_ROWS]])
            if bool((some < 0).any() if some.dtype.kind == "i" else np.isnan(some).any()):
                return False
        return True


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
        num_node_types=len(manifest.node_types),
        num_edge_types=len(manifest.edge_types),
        has_edge_weights="edge_weight" in manifest.arrays,
    )


@dataclass(frozen=True)
class TrainingData:
    """What a loader is made for, beside its options: `Loader(config, data)`."""

    store: GraphStore
    """The graph, or what the strategy gives this rank of it."""
    features: FeatureSource
    """Of its nodes and edges: what the model reads."""
    num_layers: int | None = None
    """Of the model; None: as many as the options say."""
    reads_mean: bool = False
    """Whether the model reads the outermost hop only through a mean or sum (`GraphModel.reads_mean`)."""
    num_propagations: int = 0
    """How often the model propagates features without learning (`GraphModel.num_propagations`)."""
    seed: int = 0
    """What loaders draw that lay out their own epochs, or estimate something once."""
    rank: int = 0
    """Ranks that go through the same epochs give the same number, else each its own."""
    scratch: Path | None = None
    """Folder for tables as large as the features, shared by the machine's ranks; None: the system's own."""

    @classmethod
    def of(cls, model: GraphModel, store: GraphStore, features: FeatureSource, **others: Any) -> TrainingData:
        """Take down what loaders ask of a model; `others` are further fields."""
        return cls(store, features, model.config.num_layers, model.reads_mean, model.num_propagations, **others)


def targets(manifest: GraphManifest, labels: Array) -> Tensor:
    """Return labels as the losses want them: int64 (n,) for multiclass, else float32 (n, T) with NaN for none."""
    if manifest.task_type == "multiclass":
        return torch.from_numpy(labels.reshape(len(labels)).astype(np.int64))
    labels = labels.reshape(len(labels), math.prod(labels.shape[1:]))  # there may be no row, so -1 would not do
    values = labels.astype(np.float32)
    if np.issubdtype(labels.dtype, np.integer):
        values[labels < 0] = np.nan
    return torch.from_numpy(values)


@dataclass(frozen=True)
class FeatureSource:
    """Features of nodes and edges, read from the memory maps row by row as batches ask for them."""

    feat: Array | None
    feat_cat: Array | None
    edge_feat: Array | None = None
    edge_feat_cat: Array | None = None
    edge_weight: Array | None = None
    edge_type: Array | None = None
    node_type: Array | None = None
    """Where there are several types, and the model tells them apart."""
    label: Array | None = None
    """Labels of the training nodes, none for the others, where the model reads labels (`label_reuse`)."""
    guess: Array | None = None
    """float32 (N, C): chances of classes that a model itself predicted (`label_iterations`)."""
    dtype: torch.dtype = torch.float32
    """What numeric features of nodes become: float32 or bfloat16."""
    table: Array | None = field(init=False, repr=False)
    """`feat` as it is gathered from: where bfloat16 is asked for and memory is plenty, a bfloat16 copy (as uint16)."""

    def __post_init__(self) -> None:
        table = self.feat
        if table is not None and self.dtype == torch.bfloat16:
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
    def of(cls, store: GraphStore, model: GraphModel, dtype: torch.dtype = torch.float32) -> FeatureSource:
        """Open what a model reads of a graph, numeric features of nodes as `dtype`."""
        types = store.get("edge_type")
        if types is None:  # one relation
            types = np.broadcast_to(np.int16(0), store["csc_indices"].shape)
        return replace(
            cls.open(store, edges=model.uses_edge_features),
            edge_weight=store["edge_weight"] if model.config.edge_weights else None,
            edge_type=types if model.uses_edge_types else None,
            node_type=store.get("node_type") if model.uses_node_types else None,
            label=training_labels(store) if model.config.label_reuse else None,
            dtype=dtype,
        )

    @property
    def reads_edges(self) -> bool:
        """Whether edges bring anything: then `attach` needs their positions."""
        tables = (self.edge_feat, self.edge_feat_cat, self.edge_weight, self.edge_type)
        return any(table is not None for table in tables)

    def inputs(self, nodes: Array) -> Inputs:
        """Return the inputs of nodes, int32 or int64 (n,)."""
        feat = None if self.table is None else gather_rows(self.table, nodes, self.dtype)
        label = None if self.label is None else torch.from_numpy(self.label[nodes])
        codes, node_type = (take_rows(table, nodes, np.int64) for table in (self.feat_cat, self.node_type))
        guess = take_rows(self.guess, nodes, np.float32)
        return Inputs(_node_ids(nodes), feat, codes, label, node_type, guess)

    def inputs_and_mean(self, nodes: Array, indptr: Array, ids: Array) -> tuple[Inputs, Tensor]:
        """Return the inputs of destinations and the mean (n, D) of their in-neighbours' numeric features.

        Args:
            nodes: int32 or int64 (n,).
            indptr: int64 (n + 1,), the edges of each destination.
            ids: like nodes (E,), their sources.
        """
        assert self.table is not None, "a mean is taken of numeric features"
        feat, mean = gather_mean(self.table, nodes, indptr, ids, self.dtype)
        return Inputs(_node_ids(nodes), feat), mean

    def inputs_and_known_mean(self, nodes: Array, means: Array) -> tuple[Inputs, Tensor]:
        """Return the same from a table of all nodes' means (N, D), which is gathered from like `table`."""
        assert self.table is not None, "a mean is taken of numeric features"
        feat, mean = gather_side_by_side(self.table, means, nodes, self.dtype)
        return Inputs(_node_ids(nodes), feat), mean

    def attach(self, block: Block, positions: Array | None) -> Block:
        """Give a block what its edges carry, by their CSC positions, int64 (E,), which may lack where that is nothing.

        A block that comes with weights, which make a sum over sampled edges unbiased, has them multiplied.
        """
        if not self.reads_edges:
            return block
        assert positions is not None, "edges bring features, and these are found by position"
        block.edge_feat = take_rows(self.edge_feat, positions, np.float32)
        block.edge_feat_cat = take_rows(self.edge_feat_cat, positions, np.int64)
        block.edge_type = take_rows(self.edge_type, positions, np.int64)
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


def _node_ids(nodes: Array) -> Tensor:
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
    for start in range(0, len(feat), _CHUNK_ROWS):
        part = torch.from_numpy(np.array(feat[start : start + _CHUNK_ROWS], np.float32))
        copy[start : start + _CHUNK_ROWS] = part.bfloat16().view(torch.uint16).numpy()
    return copy


def whole_graph(store: GraphStore, features: FeatureSource) -> tuple[Block, Inputs]:
    """Return the graph as one block in memory, with the inputs of all nodes."""
    indptr = torch.from_numpy(np.array(store["csc_indptr"], np.int64))
    missing = store.get(MISSING_IN_EDGES)
    block = Block(
        indptr,
        torch.from_numpy(np.array(store["csc_indices"])),
        store.manifest.num_nodes,
        degree=None if missing is None else torch.diff(indptr) + torch.from_numpy(missing),
        weight=_whole(features.edge_weight, np.float32),
        edge_feat=_whole(features.edge_feat, np.float32),
        edge_feat_cat=_whole(features.edge_feat_cat, np.int64),
        edge_type=_whole(features.edge_type, np.int64),
        symmetric=store.manifest.symmetric,
    )
    feat = _whole(features.feat, np.float32)
    inputs = Inputs(
        torch.arange(store.manifest.num_nodes),
        None if feat is None else feat.to(features.dtype),
        _whole(features.feat_cat, np.int64),
        None if features.label is None else torch.from_numpy(features.label),
        _whole(features.node_type, np.int64),
    )
    return block, inputs


def training_labels(store: GraphStore) -> Array:
    """Return the training nodes' labels, int64 (N,) or float32 (N, T); for all others no label, -1 or NaN."""
    nodes, label = np.asarray(store["train_idx"]), store["label"]
    known: Array = np.full(label.shape, -1 if label.dtype.kind == "i" else np.nan, label.dtype)
    known[nodes] = label[nodes]
    return known


def hide_labels(inputs: Inputs, rows: Array, key: int) -> tuple[Array, Inputs]:
    """Split training nodes into those whose labels the model reads and those that it is asked about.

    Nodes are asked about with their own labels hidden, else they would tell the answer; a random half keeps them
    (https://arxiv.org/abs/2103.13355, section 3.1).

    Args:
        inputs: of nodes; without labels nothing is hidden and all are asked about.
        rows: int64 (n,): training nodes among them.
        key: what to draw.

    Returns:
        The rows to ask about, and the inputs without their labels.
    """
    if inputs.label is None or not len(rows):
        return rows, inputs
    order = np.random.Generator(np.random.Philox(key=derive_key(key, _HIDE))).permutation(len(rows))
    asked = np.sort(rows[order[: (len(rows) + 1) // 2]])
    return asked, without_labels(inputs, torch.from_numpy(asked))


def without_labels(inputs: Inputs, rows: Tensor | slice) -> Inputs:
    """Return the inputs with the labels of some nodes hidden; themselves where there are no labels."""
    if inputs.label is None:
        return inputs
    label = inputs.label.clone()
    label[rows] = torch.nan if label.is_floating_point() else -1
    return replace(inputs, label=label)


def _whole(table: Array | None, dtype: type) -> Tensor | None:
    return None if table is None else torch.from_numpy(np.array(table, dtype))
