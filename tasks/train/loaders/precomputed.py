"""Propagated features, computed once: for models that propagate without learning (SGC, SIGN)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import LOADERS
from models.block import Batch
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import weighted_sum
from tasks.arrays import Array
from tasks.inference.layerwise import bounded_slices, scratch_array
from tasks.sampling.rows.features import FeatureSource
from tasks.sampling.rows.labels import targets
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import LabelLoader, TrainingData, shared_table
from tasks.train.loaders.configs import PrecomputedConfig

_CHUNK_EDGES = 1 << 21
_CHUNK_ROWS = 1 << 17


@LOADERS.register("precomputed")
class PrecomputedLoader(LabelLoader):
    """Seeds are labelled nodes; a batch has no blocks, but rows [x | P x | ... | P^K x] of the seeds alone.

    P is the propagation matrix of `models.gnn.gcn.propagate`. So train SGC (https://arxiv.org/abs/1902.07153) and SIGN
    (https://arxiv.org/abs/2004.11198).
    """

    def __init__(self, config: PrecomputedConfig, data: TrainingData) -> None:
        """Propagate, or take what another rank left in `scratch`; see `propagated`.

        Raises RecipeError: the model learns while it propagates.
        """
        if not data.num_propagations:
            raise RecipeError(
                "train.loader=precomputed is for models that propagate numeric features as they are (sgc, sign; no "
                "label_reuse, no input_dropout), and this recipe's model does more with its options; take "
                "train.loader=neighbor or full"
            )
        store = data.store
        super().__init__(store.manifest, store["train_idx"], store["label"])
        self.batch_size = config.batch_size
        table = propagated(store, data.features, data.num_propagations, data.scratch)
        self.features = replace(data.features, feat=table)

    def batch(self, positions: Array, key: int) -> Batch:
        """Return the rows of the seeds at `positions`; nothing is drawn."""
        seeds = np.sort(np.asarray(self.seeds[positions], np.int64))  # ascending: rows in memory are read in order
        return Batch(
            blocks=[],
            inputs=self.features.inputs(seeds),
            target=targets(self.manifest, self.labels[seeds]),
            num_seeds=len(seeds),
        )


def propagated(store: GraphStore, features: FeatureSource, num_propagations: int, scratch: Path | None) -> Array:
    """Return the table [x | P x | ... | P^K x], P = D^-1/2 (A + I) D^-1/2 with D the in-degrees and the node itself.

    Where the model reads the edges' weights they stand in A, and not in D (as in `models.gnn.gcn.propagate`). Works by
    chunks of nodes; memory holds one chunk; the table, and twice x, lie on disk.

    Returns:
        float32 (N, (K + 1) * D), memory-mapped read-only; x are the numeric features, (N, D), K is `num_propagations`.

    Raises StageError: the disk has no room.
    """
    assert features.feat is not None, "there are numeric features to propagate"
    shape = (store.manifest.num_nodes, (num_propagations + 1) * features.feat.shape[1])
    name = f"propagated-{num_propagations}{'' if features.edge_weight is None else '-weighted'}.npy"
    return shared_table(scratch, name, shape, np.float32, lambda table, folder: _fill(table, store, features, folder))


def _fill(table: Array, store: GraphStore, features: FeatureSource, folder: Path) -> None:
    """Fill table (N, (K + 1) * D) with the features, propagated 0 to K times."""
    feat = features.feat
    assert feat is not None
    num_nodes, dim = feat.shape
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    norm = torch.from_numpy((np.diff(indptr) + 1.0) ** -0.5).float()  # one over the root of the degrees
    before, after = (np.asarray(scratch_array(folder, num_nodes, dim)) for _ in range(2))
    parts = list(bounded_slices(indptr[1:], _CHUNK_EDGES, _CHUNK_ROWS))
    for part in parts:
        before[part] = table[part, :dim] = feat[part]
    for column in range(dim, table.shape[1], dim):
        x = torch.from_numpy(before)
        for part in parts:
            first, last = indptr[part.start], indptr[part.stop]
            weight = None if features.edge_weight is None else _tensor(features.edge_weight[first:last]).float()
            starts = torch.from_numpy(indptr[part.start : part.stop + 1] - first)
            edges = Adjacency(starts, _tensor(indices[first:last]), num_nodes)
            y = weighted_sum(edges, x, weight, source_scale=norm, target_scale=norm[part])
            after[part] = (y + x[part] * norm[part].square().unsqueeze(1)).numpy()
            table[part, column : column + dim] = after[part]
        before, after = after, before


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array))
