"""Which rows a model was trained on, so that another model's validation rows can be told from them.

A published model brings hashes of the ids of its training rows (`trained.npy`), up to some millions; of more the
artifacts tell, as long as they are in the home. Rows of data without ids of its own are known by their numbers, which
mean something within the very same data only.

Hashes distinguish a link from its reverse where the training did. Unless both trainings did, a link is looked up in
both directions: so hashes of both kinds can be compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configs.errors import IntegrityError
from tasks.kinds.of import kind_of
from tasks.stage import Parent
from tasks.storage.artifacts import ArtifactStore, write_atomic
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import tables_give_ids
from tasks.storage.manifests import DatasetManifest, PartitionManifest

HASHES, FACTS = "trained.npy", "trained.json"
MOST_ROWS = 1 << 22  # 32 MiB of hashes


class _TrainingRows(NamedTuple):
    names: str
    """See `row_names`."""
    directed: bool
    hashes: Array


def row_hashes(graph: Parent, ingest: Parent, split: str, *, reverse: bool = False) -> Array:
    """Return a hash of the users' id of each row of a split, uint64 (n,), in the order of the graph's array.

    A pair's is that of its two ends, in an order of their own where it and its reverse are one; with `reverse` the ends
    are taken the other way round. `graph` is a partition's artifact, `ingest` the data that it was made of.
    """
    store, dataset = GraphStore(graph.folder, graph.manifest), DatasetStore(ingest.folder, ingest.manifest)
    directed = is_directed(graph, ingest)
    return kind_of(graph.manifest).row_hashes(store, dataset, split, directed=directed, reverse=reverse)


def is_directed(graph: Parent, ingest: Parent) -> bool:
    """Return whether a pair and its reverse are two: as preprocess has it, which may add reverses."""
    return kind_of(graph.manifest).is_directed(ingest.manifest, symmetric=graph.manifest.symmetric)


def row_names(graph: Parent, ingest: Parent) -> str:
    """Return what the hashes are of: `ids`, or `numbers of DIGEST`, which mean something in that data only."""
    manifest: DatasetManifest = ingest.manifest
    tables = kind_of(graph.manifest).id_tables(manifest)
    named = tables_give_ids(manifest, manifest.target_type) or set(tables) <= manifest.tables.keys()
    return "ids" if named else f"numbers of {manifest.digest}"


def write_trained(folder: Path, graph: Parent, ingest: Parent) -> None:
    """Write down which rows a model was trained on, where they are not too many."""
    array = "train_edges" if kind_of(graph.manifest).pairs else "train_idx"
    rows = graph.manifest.arrays[array].shape[0]
    facts = {"rows": rows, "names": row_names(graph, ingest), "directed": is_directed(graph, ingest)}
    write_atomic(folder / FACTS, json.dumps(facts).encode())
    if rows <= MOST_ROWS:
        np.save(folder / HASHES, np.unique(row_hashes(graph, ingest, "train")))


def trained_on(files: Path, lineage: dict[str, Any], home: Home, graph: Parent, ingest: Parent) -> Array | None:
    """Return which validation rows of a graph a published model was trained on: bool (n,); None where nobody knows.

    Args:
        files: the model's.
        lineage: of the model: `key` and `digest` of the artifacts that it was made from, which `home` may still have.
        graph: the partition's artifact whose validation rows are asked about.
        ingest: the data that it was made of.
    """
    known = _published(files) or _in_home(lineage, home)
    if known is None or known.names != row_names(graph, ingest):
        return None
    found: Array = np.isin(row_hashes(graph, ingest, "valid"), known.hashes)
    if kind_of(graph.manifest).pairs and not (known.directed and is_directed(graph, ingest)):
        found |= np.isin(row_hashes(graph, ingest, "valid", reverse=True), known.hashes)
    return found


def _published(files: Path) -> _TrainingRows | None:
    try:
        facts = json.loads((files / FACTS).read_text(encoding="utf-8"))
        # An earlier graphmill did not record it: then a pair is looked up in both directions.
        directed = bool(facts.get("directed", False))
        return _TrainingRows(str(facts["names"]), directed, np.load(files / HASHES, allow_pickle=False))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, or damaged: not known then
        return None


def _in_home(lineage: dict[str, Any], home: Home) -> _TrainingRows | None:
    store, found = ArtifactStore(home), {}
    for stage, kind in (("ingest", DatasetManifest), ("partition", PartitionManifest)):
        try:
            key, digest = str(lineage[stage]["key"]), lineage[stage]["digest"]
            manifest = store.load(stage, key, kind)
        except (KeyError, TypeError, IntegrityError):
            return None
        if manifest is None or manifest.digest != digest:
            return None
        found[stage] = Parent(manifest, store.folder(stage, key))
    graph, ingest = found["partition"], found["ingest"]
    return _TrainingRows(row_names(graph, ingest), is_directed(graph, ingest), row_hashes(graph, ingest, "train"))
