"""Graphs with all that nodes and edges can carry, in parts of unequal sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tasks.edge_ends import find_ends, write_ends
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import PartitionManifest
from tests.support import finish

NUM_CLASSES = 3


def rich_graph(
    folder: Path, task: str = "node", num_nodes: int = 301, num_edges: int = 4000, num_parts: int = 12, seed: int = 0
) -> Any:
    """A directed graph with hubs, nodes without in-edges, and every kind of data; features float16 of odd width."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    source = (num_nodes * rng.random(num_edges) ** 2).astype(np.int64)
    target = (num_nodes * rng.random(num_edges) ** 3).astype(np.int64)
    matrix = sp.csr_matrix((np.ones(num_edges), (target, source)), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    matrix.sort_indices()
    count = len(matrix.indices)
    writer = ArrayWriter(folder)
    writer.write("csc_indptr", matrix.indptr.astype(np.int64))
    writer.write("csc_indices", matrix.indices.astype(np.int32))
    transposed = matrix.T.tocsr()
    writer.write("csr_indptr", transposed.indptr.astype(np.int64))
    writer.write("csr_indices", transposed.indices.astype(np.int32))
    writer.write("edge_weight", rng.random(count).astype(np.float32) * (rng.random(count) > 0.1))
    writer.write("edge_type", rng.integers(0, 3, count).astype(np.int16))
    writer.write("edge_feat", rng.standard_normal((count, 3)).astype(np.float32))
    writer.write("edge_feat_cat", rng.integers(0, 4, (count, 2)).astype(np.int32))
    writer.write("feat", rng.standard_normal((num_nodes, 7)).astype(np.float16))
    writer.write("feat_cat", rng.integers(0, 5, (num_nodes, 2)).astype(np.int32))
    writer.write("node_type", rng.integers(0, 2, num_nodes).astype(np.int16))
    writer.write("label", rng.integers(0, NUM_CLASSES, num_nodes).astype(np.int64))
    writer.write("node_ids", np.arange(num_nodes, dtype=np.int64))
    inner = np.sort(rng.choice(np.arange(1, num_nodes), num_parts - 1, replace=False))
    if task == "node":
        splits = _node_splits(writer, num_nodes, rng)
    else:
        edges = np.stack([matrix.indices, np.repeat(np.arange(num_nodes), np.diff(matrix.indptr))], 1)
        splits = _edge_splits(writer, edges.astype(np.int32), num_nodes, inner, rng)
    return finish(
        folder,
        writer,
        PartitionManifest,
        num_nodes=num_nodes,
        num_edges=count,
        num_classes=NUM_CLASSES,
        feature_dim=7,
        categories=(5, 5),
        edge_feature_dim=3,
        edge_categories=(4, 4),
        edge_types=("a", "b", "c"),
        node_types=("p", "q"),
        type_offsets=(0, num_nodes // 2, num_nodes),
        symmetric=False,
        task=task,
        task_type="multiclass" if task == "node" else "link",
        metric="accuracy" if task == "node" else "rocauc",
        splits=splits,
        partitioner="test",
        num_parts=num_parts,
        part_offsets=(0, *inner.tolist(), num_nodes),
        edge_cut=0.5,
        node_balance=1.0,
        train_balance=1.0,
    )


def _node_splits(writer: ArrayWriter, num_nodes: int, rng: np.random.Generator) -> dict[str, int]:
    order, third = rng.permutation(num_nodes).astype(np.int32), num_nodes // 3
    cuts = {"train": order[:third], "valid": order[third : 2 * third], "test": order[2 * third :]}
    for split, index in cuts.items():
        writer.write(f"{split}_idx", np.sort(index))
    return {split: len(index) for split, index in cuts.items()}


def _edge_splits(
    writer: ArrayWriter, edges: np.ndarray, num_nodes: int, inner: np.ndarray, rng: np.random.Generator
) -> dict[str, int]:
    """Some of the graph's edges to train on, by part of their targets, and pairs to measure by."""
    train = edges[rng.permutation(len(edges))[:200]]
    train = train[np.argsort(np.searchsorted(inner, train[:, 1], side="right"), kind="stable")]
    writer.write("train_edges", np.ascontiguousarray(train))
    write_ends(find_ends(lambda: iter([(train[:, 0], train[:, 1])]), num_nodes, directed=True), num_nodes, writer)
    for split in ("valid", "test"):
        writer.write(f"{split}_edges", edges[rng.permutation(len(edges))[:77]])
        writer.write(f"{split}_negative", rng.integers(0, edges.max() + 1, (77, 3, 2)).astype(np.int32))
    return {"train": len(train), "valid": 77, "test": 77}
