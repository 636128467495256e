"""What a model's data looked like, in a few numbers that are published with it, and how far other data is from that.

Sizes, in-degrees, labels, and each feature as it came (before any transform); drift is told as for snapshots.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.schema import Recipe
from tasks.apply.model.needs import category_names
from tasks.preprocess.label_profile import label_profile
from tasks.publish import snapshots
from tasks.publish.snapshots import SnapshotSummary
from tasks.stage import Parent
from tasks.storage.artifacts import write_atomic
from tasks.storage.dataset_store import DatasetStore, iter_row_groups, to_numpy
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.manifests import DatasetManifest, NodeType

FILE_NAME = "profile.json"
_MAX_ROWS = 100_000  # of each node type; the percentiles of more differ by thousandths
_MAX_GROUPS = 16  # pieces of a table that they are taken from
_MAX_COLUMNS = 64
_MAX_CATEGORIES = 50
_PERCENTILES = np.linspace(0, 1, 101)
_LISTED = 5


def describe(recipe: Recipe, parents: Mapping[str, Parent]) -> SnapshotSummary:
    """Return the profile of a run's data as plain values: what `snapshots.describe` and `of_data` do."""
    return snapshots.describe(recipe, parents) | {
        **of_data(recipe, parents),
        "metrics": parents["evaluate"].manifest.metrics,
    }


def of_data(recipe: Recipe, parents: Mapping[str, Parent]) -> SnapshotSummary:
    """Return what prepared data is like, whatever is made of it: sizes, rows of tables, degrees, labels, features.

    `parents` has `ingest`, `preprocess` and `partition`.
    """
    ingest, graph, sizes = parents["ingest"], parents["preprocess"], snapshots.sizes(parents)
    store, kept = DatasetStore(ingest.folder, ingest.manifest), None
    if recipe.snapshot.as_of is not None:
        kept = GraphStore(graph.folder, graph.manifest).get("node_ids")
    return {
        **sizes,
        "tables": table_rows(ingest.manifest),
        "labels": sizes["labels"] or _labels(ingest, graph),
        "metrics": {},
        "features": _features(store, kept),
    }


def table_rows(manifest: DatasetManifest) -> dict[str, int]:
    """Return how many nodes or edges each type has, by name, as ingested."""
    nodes = {one.name: one.num_nodes for one in manifest.node_types}
    return nodes | {one.name: one.num_edges for one in manifest.edge_types}


def write(folder: Path, profile: SnapshotSummary) -> None:
    """Write it among a model's files."""
    write_atomic(folder / FILE_NAME, json.dumps(profile).encode())


def read(folder: Path) -> SnapshotSummary | None:
    """Return what `write` wrote; None where it was not, or where it cannot be read: nothing rests on it."""
    try:
        profile: SnapshotSummary = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return profile if isinstance(profile, dict) and {"features", "tables"} <= profile.keys() else None


def _labels(ingest: Parent, graph: Parent) -> SnapshotSummary | None:
    store, manifest = GraphStore(graph.folder, graph.manifest), graph.manifest
    if manifest.split_rows.are_graphs:
        return label_profile(store["graph_label"], ingest.manifest)
    label = store.get("label")
    if label is None:
        return None
    number = manifest.node_types.index(manifest.target_type)
    first, last = manifest.type_offsets[number : number + 2]
    return label_profile(label[first:last], ingest.manifest)


# ---- features


def _features(store: DatasetStore, kept: Array | None) -> SnapshotSummary:
    """Describe the feature columns of all node types; `kept` are the nodes that exist, as the data set numbers them."""
    described: SnapshotSummary = {}
    first, names = 0, category_names(store)
    for node_type in store.manifest.node_types:
        existing = None if kept is None else kept[(kept >= first) & (kept < first + node_type.num_nodes)] - first
        first += node_type.num_nodes
        chosen, room = {}, _MAX_COLUMNS - len(described)
        for feature in [one for one in node_type.features if one.kind != "text"]:  # the first, while there is room
            if room > 0:
                chosen[feature] = min(feature.dim, room)
            room -= feature.dim
        sample = _sample(store, node_type, [feature.column for feature in chosen], existing)
        for feature, width in chosen.items():
            values = np.concatenate([part[feature.column] for part in sample]) if sample else np.empty((0, width))
            texts = names.get(f"{node_type.name}/{feature.column}")
            for column in range(width):
                name = f"{node_type.name}/{feature.column}" + (f"[{column}]" if feature.dim > 1 else "")
                described[name] = _described(values[:, column], feature.kind == "categorical", texts)
    return described


def _sample(store: DatasetStore, node_type: NodeType, columns: list[str], kept: Array | None) -> list[dict[str, Array]]:
    """Read rows of a node type that exist, evenly spread over the table: column to values (n, dim)."""
    table = f"nodes/{node_type.name}"
    if not columns or table not in store:
        return []
    chosen = np.arange(node_type.num_nodes) if kept is None else np.sort(kept)
    chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, min(len(chosen), _MAX_ROWS)).astype(np.int64))]
    parts = []
    for first, rows in _pieces(store, table, columns):
        inside = chosen[(chosen >= first) & (chosen < first + rows.num_rows)] - first
        some = rows.take(inside)
        parts.append({name: to_numpy(some.column(name)).reshape(len(inside), -1) for name in columns})
    return parts


def _pieces(store: DatasetStore, table: str, columns: list[str]) -> Iterator[tuple[int, Any]]:
    """Yield (first row, rows) of at most so many row groups, from shards that are evenly spread."""
    shards = store.shards(table)
    spread = np.unique(np.linspace(0, len(shards) - 1, min(len(shards), _MAX_GROUPS)).astype(np.int64))
    left = _MAX_GROUPS
    for place, number in enumerate(spread):
        first = shards[number].first_row
        for taken, group in enumerate(iter_row_groups(shards[number], columns)):
            if taken >= max(1, left // (len(spread) - place)):
                break
            yield first, group
            first, left = first + group.num_rows, left - 1


def _described(values: Array, categorical: bool, names: list[str] | None) -> SnapshotSummary:
    if categorical:
        codes, counts = np.unique(values.astype(np.int64), return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_MAX_CATEGORIES]
        texts = [names[code] if names is not None and code < len(names) else str(code) for code in codes[order]]
        shares = {text: round(int(count) / len(values), 6) for text, count in zip(texts, counts[order], strict=True)}
        return {"kind": "categories", "rows": len(values), "shares": shares}
    values = values.astype(np.float64)
    values = values[np.isfinite(values)]
    shown = np.quantile(values, _PERCENTILES) if len(values) else np.empty(0)
    mean = float(values.mean()) if len(values) else None
    return {"kind": "numbers", "rows": len(values), "mean": mean, "values": [float(f"{v:.6g}") for v in shown]}


# ---- drift


def compare(before: SnapshotSummary, now: SnapshotSummary) -> SnapshotSummary:
    """Return how the data `now` differs from `before`: what `snapshots.compare` tells, and `drift.features`.

    `drift.features` has `psi` and `tvd` for each column that both have, and of numbers `mean`, [before, now].
    """
    compared = snapshots.compare(before, now)
    features = {}
    for name, new in now["features"].items():
        old = before["features"].get(name)
        if old is not None and old["kind"] == new["kind"] and (moved := _moved(old, new)) is not None:
            features[name] = moved
    return {"growth": compared["growth"], "drift": {**compared["drift"], "features": features}}


def _moved(old: SnapshotSummary, new: SnapshotSummary) -> SnapshotSummary | None:
    if not old["rows"] or not new["rows"]:
        return None
    if new["kind"] == "numbers":
        moved = snapshots.drift(*snapshots.decile_shares(old["values"], new["values"]))
        return None if moved is None else {**moved, "mean": [old["mean"], new["mean"]]}
    names = list(dict.fromkeys([*old["shares"], *new["shares"]]))
    shares = [[one["shares"].get(name, 0.0) for name in names] for one in (old, new)]
    return snapshots.drift(*([*one, max(0.0, 1 - sum(one))] for one in shares))


def facts(compared: SnapshotSummary) -> list[tuple[str, str]]:
    """Return rows of (name, text) for the report."""
    rows = [(name, snapshots.growth_text(*pair)) for name, pair in compared["growth"].items()]
    drift, features = compared["drift"], _most_moved(compared)
    rows += [(f"drift of {name}", snapshots.drift_text(drift[name])) for name in ("degrees", "labels") if drift[name]]
    shown = [(name, one) for name, one in features if one["psi"] >= snapshots.STABLE][:_LISTED]
    for name, one in shown:
        means = "".join(f", mean {mean[0]:.4g} -> {mean[1]:.4g}" for mean in [one.get("mean")] if mean)
        rows.append((f"drift of {name}", snapshots.drift_text(one) + means))
    if rest := features[len(shown) :]:
        name, one = rest[0]
        text = f"{len(rest):,}; most moved {name}: {snapshots.drift_text(one)}"
        rows.append((f"{'other' if shown else 'all'} features", text))
    return rows


def text(compared: SnapshotSummary) -> str:
    """Say the drift in a line."""
    nodes, drift = compared["growth"]["nodes"], compared["drift"]
    parts = [f"nodes {nodes[0]:,} -> {nodes[1]:,}"]
    parts += [f"{name} {drift[name]['psi']:.3f}" for name in ("degrees", "labels") if drift[name]]
    parts += [f"{name} {one['psi']:.3f}" for name, one in _most_moved(compared)[:1]]
    return "data against the champion's: " + ", ".join(parts) + " (stability index; above 0.25: another population)"


def _most_moved(compared: SnapshotSummary) -> list[tuple[str, SnapshotSummary]]:
    return sorted(compared["drift"]["features"].items(), key=lambda item: -item[1]["psi"])
