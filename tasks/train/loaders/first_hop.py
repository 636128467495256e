"""How the outermost hop of a batch reaches the model: as nodes with features, or as a mean taken by the loader."""

from __future__ import annotations

import zlib
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch

from configs.errors import RecipeError
from models.kernels.adjacency import split_rows
from models.kernels.threads import num_threads, run_rows
from tasks.sampling.features import FeatureSource
from tasks.sampling.gather import mean_rows, table_tiles
from tasks.storage.artifacts import disk_errors, file_lock
from tasks.storage.graph_store import Array, GraphStore, create_array

FirstHop = Literal["sampled", "fused", "precomputed"]


def choose_first_hop(option: str, fanouts: tuple[int, ...], features: FeatureSource, *, reads_mean: bool) -> FirstHop:
    """Resolve `auto`: fused where the model allows it.

    Args:
        asked: `train.loader.first_hop`.
        fanouts: from the seeds outwards.
        features: of the nodes; their mean is all that the first layer may want of its neighbours.
        reads_mean: whether that is so (`GraphModel.reads_mean`).

    Raises:
        RecipeError: the model reads the neighbours in another way, or a fan-out would do nothing.
    """
    possible = reads_mean and features.feat is not None and features.feat_cat is None and not features.reads_edges
    if option == "auto":
        return "fused" if possible else "sampled"
    if option == "sampled":
        return "sampled"
    if not possible:
        raise RecipeError(
            f"train.loader.first_hop={option} hands the first layer a mean of its neighbours' numeric features, and "
            "this model reads them in another way; take train.loader.first_hop=auto, or a model that takes a mean or "
            "sum of plain features, such as graphsage"
        )
    if option == "fused":
        return "fused"
    if fanouts[-1] >= 0:
        numbers = ",".join(map(str, (*fanouts[:-1], -1)))
        raise RecipeError(
            f"train.loader.first_hop=precomputed takes all neighbours of the outermost hop, so that its fan-out "
            f"{fanouts[-1]} would do nothing; set train.loader.fanout={numbers}"
        )
    return "precomputed"


def precomputed_mean(store: GraphStore, features: FeatureSource, scratch: Path | None) -> Array:
    """Return the mean of each node's in-neighbours' features, 0 without any.

    Works row by row, in one pass over the edges; the table lies on disk, mapped.

    Args:
        store: the graph.
        features: its numeric features (N, D) and what they become in batches.
        scratch: folder where the table stays, so that ranks and a run that is resumed share it; None: nothing stays.

    Returns:
        (N, D) float32, or bfloat16 as uint16, memory-mapped read-only.

    Raises:
        StageError: the disk has no room.
    """
    assert features.table is not None, "a mean is taken of numeric features"
    kind = np.dtype(np.uint16 if features.dtype == torch.bfloat16 else np.float32)
    shape = (store.manifest.num_nodes, features.table.shape[1])
    with nullcontext(scratch) if scratch else TemporaryDirectory() as name:
        folder = Path(name)
        # Ranks may have graphs of their own (partition_parallel): the edges are part of the name.
        edges = zlib.crc32(np.ascontiguousarray(store["csc_indptr"]).data)
        path = folder / f"first-hop-{edges:08x}-{kind.itemsize}.npy"
        with file_lock(folder / "first-hop.lock"), disk_errors(folder):
            if not path.exists():
                draft = path.with_suffix(".part")
                _fill(np.asarray(create_array(draft, shape, kind)), store, features.table)
                draft.rename(path)
        table: Array = np.load(path, mmap_mode="r", allow_pickle=False)  # once mapped, it needs no name
    assert table.shape == shape
    return table


def _fill(mean: Array, store: GraphStore, table: Array) -> None:
    """Fill mean (N, D) on all of torch's threads."""
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    bounds = split_rows(indptr, num_threads())
    for tile in table_tiles(table, mean):
        run_rows(mean_rows, bounds, *tile, None, indptr, indices, None, mean.reshape(-1), mean.shape[1])
