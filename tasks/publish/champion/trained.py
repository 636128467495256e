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

from tasks.kinds.of import kind_of
from tasks.stage import Parent
from tasks.storage.artifacts import write_atomic
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.ids import tables_give_ids
from tasks.storage.manifests import DatasetManifest

HASHES, FACTS = "trained.npy", "trained.json"
MOST_ROWS = 1 << 22  # 32 MiB of hashes


def row_hashes(graph: Parent, ingest: Parent, split: str, *, reverse: bool = False) -> Array:
    """Return a hash of the users' id of each row of a split, see `Kind.row_hashes`.

    `graph` is a partition's artifact, `ingest` the data that it was made of.
    """
    store, dataset = GraphStore(graph.folder, graph.manifest), DatasetStore(ingest.folder, ingest.manifest)
    directed = is_directed(graph, ingest)
    return kind_of(graph.manifest).row_hashes(store, dataset, split, directed=directed, reverse=reverse)


def is_directed(graph: Parent, ingest: Parent) -> bool:
    """Return whether a pair and its reverse are two: as preprocess has it, which may add reverses."""
    return kind_of(graph.manifest).is_directed(ingest.manifest, symmetric=graph.manifest.symmetric)


def row_names(graph: Parent, ingest: Parent) -> str:
    """Return what the hashes are of (`Kind.hashed_by`); or `numbers of DIGEST`, which mean nothing in other data."""
    manifest: DatasetManifest = ingest.manifest
    kind = kind_of(graph.manifest)
    named = tables_give_ids(manifest, manifest.target_type) or set(kind.id_tables(manifest)) <= manifest.tables.keys()
    return kind.hashed_by(manifest) if named else f"numbers of {manifest.digest}"


def write_trained(folder: Path, graph: Parent, ingest: Parent) -> None:
    """Write down which rows a model was trained on, where they are not too many."""
    rows = graph.manifest.arrays[graph.manifest.split_rows.array("train")].shape[0]
    facts = {"rows": rows, "names": row_names(graph, ingest), "directed": is_directed(graph, ingest)}
    write_atomic(folder / FACTS, json.dumps(facts).encode())
    if rows <= MOST_ROWS:
        np.save(folder / HASHES, np.unique(row_hashes(graph, ingest, "train")))


def trained_on(files: Path, graph: Parent, ingest: Parent) -> Array | None:
    """Return which validation rows of a graph a published model was trained on: bool (n,); None where nobody knows.

    `files` are the model's; `graph` is a partition's artifact, `ingest` the data that it was made of.
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
    if graph.manifest.split_rows.are_pairs and not (directed and is_directed(graph, ingest)):
        trained |= np.isin(row_hashes(graph, ingest, "valid", reverse=True), hashes)
    return trained
