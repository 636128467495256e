"""How the outermost hop of a batch reaches the model: as nodes with features, or as a mean taken by the loader."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch

from configs.errors import RecipeError
from models.kernels.sparse.adjacency import split_rows
from models.kernels.threads import num_threads, run_rows
from tasks.sampling.rows.features import FeatureSource
from tasks.sampling.rows.gather import mean_rows, table_tiles
from tasks.storage.graph_store import Array, GraphStore
from tasks.train.loaders.shared_table import shared_table

FirstHop = Literal["sampled", "fused", "precomputed"]


def choose_first_hop(option: str, fanouts: tuple[int, ...], features: FeatureSource, *, reads_mean: bool) -> FirstHop:
    """Resolve `train.loader.first_hop`, the `option`: `auto` is fused where the model allows it.

    `reads_mean`: whether the first layer reads only a mean of the neighbours (`GraphModel.reads_mean`). Raises
    RecipeError: the model reads the neighbours in another way, or a fan-out would do nothing.
    """
    possible = reads_mean and features.feat is not None and features.feat_cat is None and not features.reads_edges
    if option == "auto":
        return "fused" if possible else "sampled"
    if option != "sampled" and not possible:
        if features.edge_feat is not None or features.edge_feat_cat is not None:
            raise RecipeError(
                f"train.loader.first_hop={option} hands the first layer a mean of its neighbours' features, and this "
                "model reads what edges carry besides; take train.loader.first_hop=auto, or model.edge_features=false"
            )
        raise RecipeError(
            f"train.loader.first_hop={option} hands the first layer a mean of its neighbours' numeric features, and "
            "this model reads them in another way; take train.loader.first_hop=auto, or a model that takes a mean or "
            "sum of plain features, such as graphsage"
        )
    if option == "precomputed" and fanouts[-1] >= 0:
        numbers = ",".join(map(str, (*fanouts[:-1], -1)))
        raise RecipeError(
            f"train.loader.first_hop=precomputed takes all neighbours of the outermost hop, so that its fan-out "
            f"{fanouts[-1]} would do nothing; set train.loader.fanout={numbers}"
        )
    return cast(FirstHop, option)


def precomputed_mean(store: GraphStore, features: FeatureSource, scratch: Path | None) -> Array:
    """Return the mean of each node's in-neighbours' numeric features, 0 without any, in one pass over the edges.

    Returns:
        (N, D) float32, or bfloat16 as uint16, memory-mapped read-only (see `shared_table`).

    Raises StageError: the disk has no room.
    """
    assert features.table is not None, "a mean is taken of numeric features"
    table, shape = features.table, (store.manifest.num_nodes, features.table.shape[1])
    kind = np.dtype(np.uint16 if features.dtype == torch.bfloat16 else np.float32)
    # Ranks may have graphs of their own (partition_parallel): the edges are part of the name.
    edges = zlib.crc32(np.ascontiguousarray(store["csc_indptr"]).data)
    name = f"first-hop-{edges:08x}-{kind.itemsize}.npy"
    return shared_table(scratch, name, shape, kind, lambda mean, _: _fill(np.asarray(mean), store, table))


def _fill(mean: Array, store: GraphStore, table: Array) -> None:
    """Fill mean (N, D) on all of torch's threads."""
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    bounds = split_rows(indptr, num_threads())
    for tile in table_tiles(table, mean):
        run_rows(mean_rows, bounds, *tile, None, indptr, indices, None, mean.reshape(-1), mean.shape[1])
