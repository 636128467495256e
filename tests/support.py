"""Small graphs in the store's own format, for tests that start in the middle of the pipeline."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from models.dgl.adapter import NEWEST_PYTHON
from tasks.calls import StageRecord
from tasks.stage import Parent
from tasks.storage.artifacts import describe_files
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import GraphManifest, Manifest, PartitionManifest

# On a Python that DGL has no wheel for: everything else works, and its tests run.
WITHOUT_DGL = importlib.util.find_spec("dgl") is None and sys.version_info[:2] > NEWEST_PYTHON

COMMON = {"stage_version": 1, "key": "test", "config": {}, "parents": {}}


def planted_edges(num_nodes: int, num_classes: int, degree: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return (2, m) undirected edges (each once, no loops) that mostly join equal labels, and the labels."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, num_classes, num_nodes)
    m = int(num_nodes * degree)
    src, dst = rng.integers(0, num_nodes, (2, m))
    keep = (src != dst) & ((label[src] == label[dst]) | (rng.random(m) < 0.15))
    pairs = np.unique(np.sort(np.stack([src[keep], dst[keep]], 1), axis=1), axis=0)
    return pairs.T, label


def write_csc(writer: ArrayWriter, num_nodes: int, src: np.ndarray, dst: np.ndarray) -> int:
    """Write a symmetric graph's CSC; returns the number of (directed) edges."""
    matrix = sp.csr_matrix((np.ones(len(src)), (dst, src)), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    matrix.sort_indices()
    writer.write("csc_indptr", matrix.indptr.astype(np.int64))
    writer.write("csc_indices", matrix.indices.astype(np.int32))
    return len(matrix.indices)


def finish(folder: Path, writer: ArrayWriter, kind: type[Manifest] = GraphManifest, **fields: Any) -> Parent:
    """Fill in a manifest and write it."""
    defaults: dict[str, Any] = {
        "stage": "preprocess",
        "dataset": "test",
        "task": "node",
        "task_type": "multiclass",
        "num_classes": 0,
        "num_tasks": 1,
        "metric": "accuracy",
        "ogb_name": None,
        "symmetric": True,
        "node_types": ("node",),
        "edge_types": ("node__to__node",),
        "target_type": "node",
        "feature_dim": 0,
        "splits": {},
        "type_offsets": (0, fields["num_nodes"]),
    }
    manifest = kind(**COMMON, files=describe_files(folder), arrays=writer.entries, **{**defaults, **fields})
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Parent(manifest, folder)


def node_graph(folder: Path, num_nodes: int = 300, num_classes: int = 4, dim: int = 16, seed: int = 0) -> Parent:
    """A node-classification graph with informative, noisy features."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed + 1)
    edges, label = planted_edges(num_nodes, num_classes, 8, seed)
    writer = ArrayWriter(folder)
    num_edges = write_csc(writer, num_nodes, np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))
    centres = rng.standard_normal((num_classes, dim))
    writer.write("feat", (centres[label] + 2.0 * rng.standard_normal((num_nodes, dim))).astype(np.float32))
    writer.write("label", label.astype(np.int64))
    writer.write("node_ids", np.arange(num_nodes, dtype=np.int64))
    splits = write_split(writer, rng.permutation(num_nodes))
    return finish(
        folder,
        writer,
        num_nodes=num_nodes,
        num_edges=num_edges,
        num_classes=num_classes,
        feature_dim=dim,
        splits=splits,
    )


def write_split(writer: ArrayWriter, order: np.ndarray) -> dict[str, int]:
    """Write one half of some rows as `train_idx` and a quarter each as `valid_idx` and `test_idx`; return the sizes."""
    half, end = len(order) // 2, 3 * len(order) // 4
    cuts = {"train": order[:half], "valid": order[half:end], "test": order[end:]}
    for split, index in cuts.items():
        writer.write(f"{split}_idx", np.sort(index).astype(np.int32))
    return {split: len(index) for split, index in cuts.items()}


def link_graph(folder: Path, num_nodes: int = 200, dim: int = 0, seed: int = 0) -> Parent:
    """A link-prediction graph: planted communities, 10 % of edges held out for valid and test each."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed + 1)
    edges, label = planted_edges(num_nodes, 4, 25, seed)
    edges = edges[:, rng.permutation(edges.shape[1])].astype(np.int32)
    tenth = edges.shape[1] // 10
    cuts = {"valid": edges[:, :tenth], "test": edges[:, tenth : 2 * tenth], "train": edges[:, 2 * tenth :]}
    writer = ArrayWriter(folder)
    train = cuts["train"]
    num_edges = write_csc(writer, num_nodes, np.concatenate([train[0], train[1]]), np.concatenate([train[1], train[0]]))
    for split, pairs in cuts.items():
        writer.write(f"{split}_edges", np.ascontiguousarray(pairs.T))
        if split != "train":
            writer.write(f"{split}_negative", rng.integers(0, num_nodes, (500, 2)).astype(np.int32))
    if dim:
        feat = np.eye(4, dtype=np.float32)[label].repeat(dim // 4, 1)
        writer.write("feat", feat + rng.standard_normal((num_nodes, dim)).astype(np.float32))
    writer.write("node_ids", np.arange(num_nodes, dtype=np.int64))
    return finish(
        folder,
        writer,
        task="link",
        task_type="link",
        metric="hits@20",
        num_nodes=num_nodes,
        num_edges=num_edges,
        feature_dim=dim,
        splits={split: pairs.shape[1] for split, pairs in cuts.items()},
    )


def multiplex_graph(folder: Path, num_nodes: int = 150, seed: int = 0) -> Parent:
    """A graph with two relations, each with communities of its own; a tenth of the edges validates, a tenth tests.

    Pairs are asked about in a relation; those of `valid_negative` are drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed + 1)
    found = [planted_edges(num_nodes, classes, 30, seed + classes)[0] for classes in (3, 4)]
    edges = np.concatenate(found, 1)
    relation = np.repeat([0, 1], [one.shape[1] for one in found]).astype(np.int32)
    order = rng.permutation(edges.shape[1])
    edges, relation = edges[:, order].astype(np.int32), relation[order]
    tenth = len(relation) // 10
    cuts = {"valid": slice(0, tenth), "test": slice(tenth, 2 * tenth), "train": slice(2 * tenth, None)}
    writer = ArrayWriter(folder)
    (src, dst), kinds = edges[:, cuts["train"]], np.tile(relation[cuts["train"]], 2)
    src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    rows = np.unique(np.stack([dst, src, kinds], 1), axis=0)
    writer.write("csc_indptr", np.searchsorted(rows[:, 0], np.arange(num_nodes + 1)).astype(np.int64))
    writer.write("csc_indices", rows[:, 1].astype(np.int32))
    writer.write("edge_type", rows[:, 2].astype(np.int16))
    for split, part in cuts.items():
        writer.write(f"{split}_edges", np.ascontiguousarray(edges[:, part].T))
        writer.write(f"{split}_relation", relation[part])
        if split != "train":
            writer.write(f"{split}_negative", rng.integers(0, num_nodes, (300, 2)).astype(np.int32))
            writer.write(f"{split}_negative_relation", np.arange(300, dtype=np.int32) % 2)
    writer.write("node_ids", np.arange(num_nodes, dtype=np.int64))
    return finish(
        folder,
        writer,
        task="link",
        task_type="link",
        metric="rocauc",
        num_relations=2,
        edge_types=("node__likes__node", "node__knows__node"),
        num_nodes=num_nodes,
        num_edges=len(rows),
        splits={split: len(relation[part]) for split, part in cuts.items()},
    )


def molecule_graph(folder: Path, num_graphs: int = 120, seed: int = 0) -> Parent:
    """A graph-classification set: rings against paths, categorical node and edge features, a binary label."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 12, num_graphs)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    label = rng.integers(0, 2, num_graphs)
    src: list[int] = []
    dst: list[int] = []
    for g in range(num_graphs):
        base, n = int(offsets[g]), int(sizes[g])
        pairs = [(base + i, base + i + 1) for i in range(n - 1)] + ([(base + n - 1, base)] if label[g] else [])
        src += [a for a, b in pairs] + [b for a, b in pairs]
        dst += [b for a, b in pairs] + [a for a, b in pairs]
    num_nodes = int(offsets[-1])
    writer = ArrayWriter(folder)
    num_edges = write_csc(writer, num_nodes, np.array(src), np.array(dst))
    writer.write("feat_cat", rng.integers(0, 5, (num_nodes, 3)).astype(np.int32))
    writer.write("edge_feat_cat", rng.integers(0, 4, (num_edges, 2)).astype(np.int32))
    writer.write("graph_offsets", offsets)
    writer.write("graph_label", label.astype(np.float32)[:, None])
    writer.write("node_ids", np.arange(num_nodes, dtype=np.int64))
    splits = write_split(writer, rng.permutation(num_graphs))
    return finish(
        folder,
        writer,
        task="graph",
        task_type="binary",
        num_classes=2,
        metric="rocauc",
        num_nodes=num_nodes,
        num_edges=num_edges,
        num_graphs=num_graphs,
        categories=(5, 5, 5),
        edge_categories=(4, 4),
        splits=splits,
    )


def as_partition(parent: Parent) -> Parent:
    """The same graph as one part: what training reads."""
    fields = parent.manifest.model_dump()
    manifest = PartitionManifest(
        **{**fields, "stage": "partition"},
        partitioner="none",
        num_parts=1,
        part_offsets=(0, parent.manifest.num_nodes),
        edge_cut=0.0,
        node_balance=1.0,
        train_balance=1.0,
    )
    return Parent(manifest, parent.folder)


def stage_entry(name: str, **given: Any) -> StageRecord:
    """What a run's record has of a stage (`tasks.calls.StageRecord`)."""
    entry = {"name": name, "status": "ran", "key": "k", "digest": "", "version": 1, "config": {}, "parents": {}}
    entry |= {"seconds": 0.0, "build_seconds": 0.0, "peak_bytes": 0, "rows": 0, "bytes": 0, "folder": ""}
    return StageRecord.model_validate(entry | {"warnings": [], "repaired": ""} | given)
