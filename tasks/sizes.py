"""How large things get: estimates of disk and memory from counts, before any of it is asked for.

`plan` shows them; stages and commands refuse at once what cannot fit.
"""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import RecipeError, StageError
from configs.schema import Recipe
from tasks.processes.memory import available_bytes
from tasks.storage.manifests import DatasetManifest, FeatureColumn, GraphManifest, is_of_type

# An interpreter with torch, numba and pyarrow, before any data.
PROCESS_BYTES = 400_000_000
# Memory a row (node or edge) of a run, with the kernel's cache of its files: what two runs at once would fight over.
BYTES_A_ROW = 60
# Preprocessing: offsets and cursors; a worker process, and what it holds of the shard that it sorts, an edge and a
# direction. 0.5, 1.8 and 2.1 GB were seen with 10, 100 and 500 M edges on two workers (benchmarks/ladder.py, 2026-11).
_PREPROCESS_NODE_BYTES, _WORKER_BYTES, _SORTED_EDGE_BYTES = 24, 300_000_000, 40
_SHARD_EDGES = 1 << 22  # as ingest writes them
_SHARDS_IN_PROCESS = 4  # about so many are not worth a pool of processes
# Partition: the new order, offsets of the new rows; and chunks on their way to disk.
_REORDER_NODE_BYTES, _REORDER_BYTES = 28, 100_000_000
# Least memory: offsets, and the place of the next edge (measured with 40 M nodes: 17).
BYTES_A_NODE = 16
# A drawn negative: both ids, and its entry in the set of pairs that is compared with the edges.
BYTES_A_PAIR = 40
# Users' own ids are looked up in memory.
_BYTES_AN_ID = 40
# Of the arrays with a row for each edge; asking NumPy would import it for `plan`.
_TEXT_WIDTH = 384  # what most encoders make of a text, or less
_ITEM_BYTES = {"int16": 2, "float16": 2, "int32": 4, "float32": 4, "int64": 8}


@dataclass(frozen=True)
class Counts:
    """What is known of a graph's size."""

    num_nodes: int
    num_edges: int
    feature_dim: int = 0
    edge_bytes: int = 0
    """Of the data that an edge carries: features, weight, time, relation."""
    both_directions: bool = False
    """Whether num_edges counts the graph as it is stored, reverses included; else the data set's edges."""


def expected_counts(recipe: Recipe) -> Counts | None:
    """Return what a generated data set's options say of its size; None where only reading it will tell."""
    options: dict[str, Any] = recipe.dataset.model_dump(mode="json")
    nodes, edges, dim = (options.get(name) for name in ("num_nodes", "num_edges", "feature_dim"))
    nodes, edges = options.get("num_entities", nodes), options.get("num_triples", edges)
    if not isinstance(nodes, int) or not isinstance(edges, int):
        return None
    return Counts(nodes, edges, dim if isinstance(dim, int) else 0)


def counts_of(manifest: DatasetManifest | GraphManifest) -> Counts:
    """Return the size of a data set, or of a graph as it is stored."""
    if isinstance(manifest, GraphManifest):
        entries = [entry for name, entry in manifest.arrays.items() if name.startswith("edge_")]
        carried = sum(_ITEM_BYTES.get(entry.dtype, 8) * math.prod(entry.shape[1:]) for entry in entries)
        cells = [math.prod(entry.shape) for name, entry in manifest.arrays.items() if is_of_type(name)]
        dim = -(-sum(cells) // max(1, manifest.num_nodes)) if cells else manifest.feature_dim
        return Counts(manifest.num_nodes, manifest.num_edges, dim, carried, both_directions=True)
    widths = [(kind.num_nodes, sum(map(_width, kind.features))) for kind in manifest.node_types]
    if manifest.fit_before is None:
        dim = sum(width for _, width in widths)
    else:  # each type has its own columns
        dim = -(-sum(count * width for count, width in widths) // max(1, manifest.num_nodes))
    widest = max((sum(map(_width, kind.features)) for kind in manifest.edge_types), default=0)
    columns = {column for kind in manifest.edge_types for column in manifest.tables[f"edges/{kind.name}"].columns}
    others = 4 * ("weight" in columns) + 8 * ("time" in columns) + 2 * (len(manifest.edge_types) > 1)
    return Counts(manifest.num_nodes, manifest.num_edges, dim, 4 * widest + others)


def _width(feature: FeatureColumn) -> int:
    return _TEXT_WIDTH if feature.kind == "text" else feature.dim


def disk_bytes(stage: str, recipe: Recipe, counts: Counts) -> int | None:
    """Estimate the size of a stage's artifact; None where counts say little.

    Parquet takes about 0.8 of the raw ids; a graph has 4 bytes an edge (8 above 2^31 nodes), 8 bytes a node for the
    offsets and one for ids and labels each, the features in the recipe's precision, and what edges carry, once. Both
    directions count where the graph is symmetrised.
    """
    nodes, edges, dim = counts.num_nodes, counts.num_edges, counts.feature_dim
    id_bytes = 4 if nodes < 2**31 else 8
    if stage == "ingest":
        return int(edges * (2 * id_bytes * 0.8 + counts.edge_bytes) + nodes * (4 * dim + 2))
    if stage not in ("preprocess", "components", "partition"):
        return None
    if not counts.both_directions:
        edges *= 2 if recipe.preprocess.symmetrize else 1
    width = 2 if recipe.preprocess.feature_dtype == "float16" else 4
    arrays = 1 if recipe.preprocess.symmetrize else 2
    # With the place of each out-edge among the in-edges.
    carried = counts.edge_bytes + 8 if counts.edge_bytes else 0
    return int(arrays * (edges * id_bytes + 8 * nodes) + edges * carried + nodes * (width * dim + 16))


def memory_bytes(stage: str, recipe: Recipe, counts: Counts) -> int | None:
    """Estimate the peak memory of a stage on the graph; None where it does not follow from counts alone.

    Each reads its data in chunks, so the first term is most of it on small graphs.
    """
    if stage == "ingest":
        return PROCESS_BYTES + (_BYTES_AN_ID * counts.num_nodes if recipe.dataset.name in ("tables", "database") else 0)
    if stage == "components":
        return PROCESS_BYTES + 16 * counts.num_nodes
    if stage == "preprocess":
        edges = min(counts.num_edges, _SHARD_EDGES)
        shard = edges * ((1 + recipe.preprocess.symmetrize) * _SORTED_EDGE_BYTES + 2 * counts.edge_bytes)
        workers = recipe.preprocess.workers or os.cpu_count() or 1
        if workers > 1 and counts.num_edges > _SHARDS_IN_PROCESS * _SHARD_EDGES:
            shard = workers * (shard + _WORKER_BYTES)
        return PROCESS_BYTES + _PREPROCESS_NODE_BYTES * counts.num_nodes + shard
    if stage != "partition":
        return None
    options: Any = recipe.partition
    if options.num_parts == 1:
        return PROCESS_BYTES
    entries = counts.num_edges if counts.both_directions and recipe.preprocess.symmetrize else 2 * counts.num_edges
    needed: int | None = options.memory_bytes(counts.num_nodes, entries)
    if needed is None:  # the partitioner does not say
        return None
    return PROCESS_BYTES + max(needed, _REORDER_NODE_BYTES * counts.num_nodes + _REORDER_BYTES)


def need_disk(folder: Path, num_bytes: int | None, what: str) -> None:
    """Raise StageError where `what` cannot fit on the disk of `folder`: half of an estimate is more than is free."""
    free = shutil.disk_usage(folder).free
    if num_bytes is not None and num_bytes / 2 > free:
        raise StageError(
            f"{what} takes about {num_bytes / 1e9:,.1f} GB, and the disk that holds {folder} has {free / 1e9:,.1f} GB "
            "free; free some (graphmill clean), put the home elsewhere (--home DIR), or take less data"
        )


def need_memory(num_bytes: int, what: str, way_out: str) -> None:
    """Raise RecipeError where `what` takes more memory than this machine has free."""
    free = available_bytes()
    if num_bytes > free:
        raise RecipeError(
            f"{what} takes at least {num_bytes / 1e9:,.1f} GB of memory, and this machine has {free / 1e9:,.1f} GB "
            f"free; {way_out}"
        )


def refuse_excess_data(recipe: Recipe) -> None:
    """Refuse options of the data that alone ask for more memory than is free, before anything is read.

    Raises RecipeError: naming the option.
    """
    options: dict[str, Any] = recipe.dataset.model_dump(mode="json")
    pairs = options.get("num_negatives")
    if options.get("task") == "link" and isinstance(pairs, int):
        need_memory(BYTES_A_PAIR * pairs, f"dataset.num_negatives={pairs}", "set it lower")
    tables = options.get("nodes")
    for table in tables if isinstance(tables, list) else ():
        count = table.get("count")
        if isinstance(count, int):
            need_memory(BYTES_A_NODE * count, f"a graph of dataset.nodes.count={count}", "set it lower")
