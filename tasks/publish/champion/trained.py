"""Which rows a model was trained on, so that another model's validation rows can be told from them.

A published model brings hashes of the ids of its training rows (`trained.npy`), up to some millions; of more nobody
knows. Rows of data without ids of its own are known by their numbers, which mean something within the same data only.

Hashes distinguish a link from its reverse where the training did. Unless both trainings did, a link is looked up in
both directions: so hashes of both kinds can be compared.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tasks.stage import Parent
from tasks.storage.artifacts import write_atomic
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.ids import IdMap, relation_names, tables_give_ids
from tasks.storage.manifests import PAIR_TASKS, DatasetManifest

HASHES, FACTS = "trained.npy", "trained.json"
MOST_ROWS = 1 << 22  # 32 MiB of hashes
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def is_directed_task(graph: Parent, ingest: Parent) -> bool:
    """Return whether a link and its reverse are two: as preprocess has it, which may add reverses; triples are."""
    if graph.manifest.task == "triple":
        return True
    return bool(ingest.manifest.directed and not graph.manifest.symmetric)


def row_hashes(graph: Parent, ingest: Parent, split: str, *, reverse: bool = False) -> Array:
    """Return a hash of the users' id of each row of a split, uint64 (n,), in the order of the graph's array.

    A link's is that of its two ends, in an order of their own where it and its reverse are one; with `reverse` the ends
    are taken the other way round. `graph` is a partition's artifact, `ingest` the data that it was made of.
    """
    from tasks.ingest.ids.id_index import hash_ids

    store = GraphStore(graph.folder, graph.manifest)
    ids_of = DatasetStore(ingest.folder, ingest.manifest)
    ids = IdMap(store, ids_of)
    if graph.manifest.task not in PAIR_TASKS:
        rows = np.asarray(store[f"{split}_idx"], np.int64)
        return hash_ids(ids.lookup_graphs(rows) if graph.manifest.task == "graph" else ids.lookup(rows))
    pairs = np.asarray(store[f"{split}_edges"], np.int64)
    ends = np.stack([hash_ids(ids.lookup(pairs[:, end])) for end in (0, 1)])
    if not is_directed_task(graph, ingest):
        ends.sort(axis=0)
    first, second = ends[::-1] if reverse else ends
    hashes: Array = first * _FACTOR ^ second
    if graph.manifest.task == "triple":
        names = hash_ids(relation_names(ids_of))
        hashes = hashes * _FACTOR ^ names[np.asarray(store[f"{split}_relation"])]
    return hashes


def row_names(graph: Parent, ingest: Parent) -> str:
    """Return what the hashes are of: `ids`, or `numbers of DIGEST`, which mean something in that data only."""
    manifest: DatasetManifest = ingest.manifest
    if tables_give_ids(manifest, manifest.target_type):
        return "ids"
    tables = ["ids/graphs"] if graph.manifest.task == "graph" else [f"ids/{t.name}" for t in manifest.node_types]
    if graph.manifest.task == "node":
        tables = [f"ids/{manifest.target_type}"]
    return "ids" if set(tables) <= manifest.tables.keys() else f"numbers of {manifest.digest}"


def write_trained(folder: Path, graph: Parent, ingest: Parent) -> None:
    """Write down which rows a model was trained on, where they are not too many."""
    split = "train_edges" if graph.manifest.task in PAIR_TASKS else "train_idx"
    rows = graph.manifest.arrays[split].shape[0]
    facts = {"rows": rows, "names": row_names(graph, ingest), "directed": is_directed_task(graph, ingest)}
    write_atomic(folder / FACTS, json.dumps(facts).encode())
    if rows <= MOST_ROWS:
        np.save(folder / HASHES, np.unique(row_hashes(graph, ingest, "train")))


def trained_on(files: Path, graph: Parent, ingest: Parent) -> Array | None:
    """Return which validation rows of a graph a published model was trained on: bool (n,); None where nobody knows.

    Args:
        files: the model's.
        graph: the partition's artifact whose validation rows are asked about.
        ingest: the data that it was made of.
    """
    try:
        facts = json.loads((files / FACTS).read_text(encoding="utf-8"))
        names, directed = str(facts["names"]), bool(facts["directed"])
        hashes = np.load(files / HASHES, allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged
        return None
    if names != row_names(graph, ingest):
        return None
    trained: Array = np.isin(row_hashes(graph, ingest, "valid"), hashes)
    if graph.manifest.task == "link" and not (directed and is_directed_task(graph, ingest)):
        trained |= np.isin(row_hashes(graph, ingest, "valid", reverse=True), hashes)
    return trained
