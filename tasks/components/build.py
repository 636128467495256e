"""What the components stage does: number the weakly connected components, keep those that the recipe asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import RecipeError
from configs.schema import Recipe
from tasks.arrays import Array
from tasks.components.connected import number_components
from tasks.components.filtering import write_edges, write_graph, write_index, write_scored_edges
from tasks.ingest.labels import has_label
from tasks.stage import Parent, StageContext
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.manifests import LEFT_OUT, SPLITS, GraphManifest


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Write the kept part of the graph and return the fields of GraphManifest.

    `report["components"]` holds `count`, `largest`, `log2_sizes` (components of 1, 2-3, 4-7, ... nodes), `kept`,
    `dropped_nodes`, and `dropped`. Raises RecipeError: nothing would be left, or a split would be empty.
    """
    manifest: GraphManifest = parents["preprocess"].manifest
    store = GraphStore(parents["preprocess"].folder, manifest)
    writer = ArrayWriter(context.work)
    fields = manifest.own_fields(GraphManifest)
    keep = recipe.components.keep
    if manifest.split_rows.are_graphs:
        note = "" if keep == "all" else f"; components.keep={keep} has no use here"
        context.message(f"every graph of a set is a sample of its own and passes through whole{note}")
        return _pass_through(store, writer, fields)
    count, component = number_components(store)
    sizes = np.bincount(component, minlength=count)
    chosen = choose_components(sizes, keep)
    report = size_report(sizes) | {"kept": int(chosen.sum()), "dropped_nodes": 0, "dropped": {}}
    fields["report"] = {**manifest.report, "components": report}
    if chosen.all():
        context.message(f"{count:,} connected components, the largest of {report['largest']:,} nodes; all stay")
        return _pass_through(store, writer, fields)
    mask = chosen[component]
    del component
    if not mask.any():
        raise RecipeError(
            f"components.keep={keep} leaves no node: the largest component has {report['largest']:,} nodes; "
            "take a smaller min_size, or components.keep=largest"
        )
    return _filter(context, store, writer, fields, mask)


def choose_components(sizes: Array, keep: str) -> NDArray[np.bool_]:
    """Return bool (C,): which components stay. Of equally large ones those with smaller nodes come first."""
    rule, _, number = keep.partition("=")
    if rule == "all":
        return np.ones(len(sizes), np.bool_)
    if rule == "min_size":
        return np.asarray(sizes >= int(number))
    top = 1 if rule == "largest" else int(number)
    chosen = np.zeros(len(sizes), np.bool_)
    chosen[np.argsort(-sizes, kind="stable")[:top]] = True
    return chosen


def size_report(sizes: Array) -> dict[str, Any]:
    """Count components, and by size: bin k holds components of 2^k to 2^(k+1) - 1 nodes."""
    _, exponent = np.frexp(sizes.astype(np.float64))
    return {
        "count": len(sizes),
        "largest": int(sizes.max(initial=0)),
        "log2_sizes": np.bincount(exponent - 1).tolist() if len(sizes) else [],
    }


def _pass_through(store: GraphStore, writer: ArrayWriter, fields: dict[str, Any]) -> dict[str, Any]:
    writer.link_all(store)
    return {**fields, "arrays": writer.entries, "rows": store.manifest.num_edges}


def _filter(
    context: StageContext, store: GraphStore, writer: ArrayWriter, fields: dict[str, Any], mask: NDArray[np.bool_]
) -> dict[str, Any]:
    new_id, num_edges = write_graph(store, mask, writer)
    unit = {"link": "edges", "edge": "edges", "triple": "triples"}.get(store.manifest.task, "nodes")
    write_split = write_edges if store.manifest.split_rows.are_pairs else write_index
    if store.manifest.split_rows.are_edges:
        new_id = write_scored_edges(store, new_id, writer)  # from here on of what splits are of
    splits, dropped = {}, {}
    for split in SPLITS:
        splits[split], dropped[split] = write_split(store, new_id, writer, split)
        if dropped[split] and not splits[split]:
            raise RecipeError(
                f"the components that stay hold none of the {dropped[split]:,} {split} {unit}; take a smaller "
                "min_size, a larger top_k, or components.keep=all"
            )
    if f"{LEFT_OUT}_edges" in store:
        write_edges(store, new_id, writer, LEFT_OUT)
    label = store.get("label")
    if label is not None:
        dropped["labelled"] = int(np.count_nonzero(has_label(label[np.flatnonzero(~mask)])))
    report = fields["report"]["components"]
    num_nodes = int(np.count_nonzero(mask))
    report |= {"dropped_nodes": len(mask) - num_nodes, "dropped": dropped}
    context.message(
        f"{report['kept']:,} of {report['count']:,} connected components stay; {report['dropped_nodes']:,} nodes go, "
        + ", ".join(f"{number:,} {name}" for name, number in dropped.items())
    )
    for split in ("test", "valid"):
        if dropped[split]:
            total = dropped[split] + splits[split]
            context.warn(
                f"{dropped[split]:,} of {total:,} {split} {unit} ({dropped[split] / total:.2%}) lie in components that "
                f"are dropped: {split} metrics cover the other {splits[split]:,} only and are not comparable with "
                "published ones; components.keep=all keeps them"
            )
    return {
        **fields,
        "num_nodes": num_nodes,
        "num_edges": num_edges,
        "splits": splits,
        "arrays": writer.entries,
        "rows": store.manifest.num_edges,
    }
