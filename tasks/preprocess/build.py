"""What the preprocess stage does: Parquet tables to a graph in memory-mapped arrays.

Order: graphs and splits (small), edges (they decide the structure), node features (some come from the structure), and
what features and labels look like some hops away.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from configs.schema import PreprocessConfig, Recipe
from tasks.arrays import Array, blocks
from tasks.preprocess.edges.build import EdgeRules, build_edges, check_within_graphs
from tasks.preprocess.features import FeatureBuilder
from tasks.preprocess.layout import Layout
from tasks.preprocess.neighbors import write_neighbors
from tasks.preprocess.splits.arrays import training_rows, write_graphs, write_nodes, write_relations, write_splits
from tasks.preprocess.splits.held_out import HeldOut, Rule
from tasks.preprocess.splits.link_negatives import complete_negatives
from tasks.preprocess.splits.snapshot import Snapshot, take_snapshot
from tasks.preprocess.splits.snapshot_report import label_profile
from tasks.preprocess.splits.snapshot_splits import Dealt, write_snapshot_splits
from tasks.preprocess.transforms.base import ReadsAsTrained
from tasks.preprocess.transforms.configs import from_models
from tasks.preprocess.transforms.graph_view import GraphView
from tasks.preprocess.transforms.hops import split_hops
from tasks.preprocess.vector_leaks import HeldOutHere, take_vectors
from tasks.sizes import BYTES_A_NODE, counts_of, disk_bytes, need_disk, need_memory
from tasks.stage import Parent, StageContext
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import NEIGHBORS, DatasetManifest, TaskManifest


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Write the graph's arrays and return the fields of GraphManifest.

    `report` holds `degrees` (`log2_bins`: number of nodes of in-degree 0, 1, 2-3, 4-7, ...; mean, max, isolated),
    `edges` (self-loops met, entries merged away, reverses included; not of a snapshot), `transforms` (what was fitted),
    of a snapshot `snapshot` (`times`: the oldest and newest of each split, in `unit`; `labels`: `label_profile`), of
    link tasks `held_out` (`HeldOut.report`) and `negatives` (what they join, in words), and `vectors` (of registered
    models as features: `take_vectors`).

    Raises:
        DataError: what no single table shows: a split's ids out of range, columns that do not fit, edges across graphs.
        RecipeError: a transform's columns or options.
    """
    ingested: DatasetManifest = parents["ingest"].manifest
    need_disk(context.work, disk_bytes("preprocess", recipe, counts_of(ingested)), "the graph")
    need_memory(
        BYTES_A_NODE * ingested.num_nodes, f"a graph of {ingested.num_nodes:,} nodes", "take a data set of fewer nodes"
    )
    options, hops = split_hops(recipe.preprocess)
    reading = _reading(context, options)
    if reading is not None:
        ingested = reading.relations_as_trained(ingested)
    store = DatasetStore(parents["ingest"].folder, ingested)
    source = layout = Layout(ingested, options.symmetrize, options.self_loops == "add")
    if not options.symmetrize and not ingested.directed:
        context.message("the data set's edges have no direction, and preprocess.symmetrize=false adds no reverses")
    writer = ArrayWriter(context.work)
    snapshot = take_snapshot(recipe, store, source)
    if snapshot is not None and ingested.split_rows.are_links and ingested.num_relations:
        raise RecipeError(
            "snapshot.as_of is not for links that are predicted by relation; leave it out, and split by time with "
            "dataset.split.by=time"
        )
    if snapshot is not None:  # from here on there is nothing but what exists
        store, layout = snapshot.store, snapshot.layout
    write_nodes(store, layout, writer, snapshot)
    write_relations(store, writer)
    write_graphs(store, layout, writer)
    dealt = None if snapshot is None else write_snapshot_splits(recipe, snapshot, writer)
    splits = dealt.sizes if dealt else write_splits(store, layout, writer)
    held_out = _hold_out(recipe, ingested, layout, writer)
    codes = {} if reading is None else reading.edge_codes
    rules = EdgeRules(options, layout, source, dealt.edges if dealt else None, held_out, codes)
    taken = _take_vectors(context, recipe, _view(context, parents, writer, layout), ingested, snapshot)
    counts, data = build_edges(context, store, writer, rules)
    graph = _view(context, parents, writer, layout)
    indptr = graph["csc_indptr"]
    if ingested.split_rows.are_graphs:
        check_within_graphs(indptr, graph["csc_indices"], graph["graph_offsets"])
    negatives: list[str] = []
    if held_out is not None:
        splits = held_out.sizes
        held_out.report_counts(context)
        names = [kind.relation for kind in ingested.edge_types[: ingested.num_relations]]
        negatives = complete_negatives(context, graph, writer, ingested, directed=held_out.directed, names=names)
    train_rows = training_rows(ingested, graph)
    built = FeatureBuilder(context, store, layout, options, graph, train_rows, snapshot).build(writer)
    if hops is not None:
        built = hops.widen(writer, store.manifest, options.symmetrize, train_rows, built)
    num_edges = counts.pop("num_edges")
    near = None
    if recipe.neighbors is not None:
        near = write_neighbors(context, writer, recipe.neighbors, recipe.preprocess.workers, ingested.num_edges)
        num_edges, indptr = near.pop("num_edges"), _view(context, parents, writer, layout)["csc_indptr"]
    report = {"degrees": degree_report(indptr), "edges": counts, "transforms": built["transforms"]}
    if held_out is not None:
        report["held_out"] = held_out.report()
        report["negatives"] = negatives
    if taken:
        report["vectors"] = taken
    if near is not None:
        report[NEIGHBORS] = near
    rows = ingested.num_edges + ingested.num_nodes
    if dealt is not None:
        labels = label_profile(graph.get("label"), ingested, layout)
        report["snapshot"] = {"unit": dealt.unit, "times": dealt.times, "labels": labels}
        rows = num_edges + layout.num_nodes  # what is to come must not show in the digest
        _report_snapshot(context, str(recipe.time_moment), dealt, layout.num_nodes, num_edges)
    return {
        **ingested.own_fields(TaskManifest),
        "num_nodes": layout.num_nodes,
        "num_edges": num_edges,
        "symmetric": options.symmetrize,
        "node_types": layout.node_types,
        "edge_types": layout.edge_types,
        "type_offsets": layout.type_offsets if snapshot is None else snapshot.type_offsets,
        "feature_dim": built["feature_dim"],
        "categories": built["categories"],
        "edge_feature_dim": data.feature_dim,
        "edge_categories": data.categories,
        "relation_ends": layout.relation_ends,
        "own_keys": layout.own_keys,
        "type_columns": built["type_columns"] if hops is None else {},
        "relation_columns": data.relation_columns(),
        "splits": splits,
        "arrays": writer.entries,
        "report": report,
        "rows": rows,
    }


def _reading(context: StageContext, options: PreprocessConfig) -> ReadsAsTrained | None:
    """Return what makes a registered model's data of this; None where no model asks for it."""
    made = (TRANSFORMS.create(one) for one in options.transforms)
    found = next((one for one in made if isinstance(one, ReadsAsTrained)), None)
    for note in () if found is None else found.notes():
        context.warn(note)
    return found


def _view(context: StageContext, parents: dict[str, Parent], writer: ArrayWriter, layout: Layout) -> GraphView:
    """Return the graph as far as it is written."""
    places = str(parents["ingest"].folder), str(context.home.root)
    return GraphView(str(context.work), dict(writer.entries), layout.num_nodes, layout.symmetrize, *places)


def _take_vectors(
    context: StageContext, recipe: Recipe, graph: GraphView, manifest: DatasetManifest, snapshot: Snapshot | None
) -> list[dict[str, Any]]:
    """Check the vectors of registered models that come as features; the report says which they are."""
    if manifest.split_rows.are_graphs:
        return []  # the transform refuses it
    held_out = HeldOutHere(
        recipe.name,
        manifest.split_rows,
        manifest.directed and not graph.symmetric,
        recipe.time_moment,
        "number" if snapshot is None else snapshot.unit,
    )
    chosen = from_models(recipe.preprocess.transforms)
    return [take_vectors(context, config, graph, held_out) for config in chosen]


def _hold_out(recipe: Recipe, ingested: DatasetManifest, layout: Layout, writer: ArrayWriter) -> HeldOut | None:
    """Return what keeps a link task's held-out pairs out of the rest; None for other tasks."""
    if not ingested.split_rows.are_links:
        return None
    rule: Rule = "keep" if ingested.ogb_name or ingested.keep_known_pairs else "hold_out"
    if recipe.time_moment is not None and recipe.snapshot.split == "time":
        rule = "first_split"
    directed = ingested.directed and not layout.symmetrize
    return HeldOut(writer, layout.num_nodes, rule, directed=directed, num_relations=ingested.num_relations)


def _report_snapshot(context: StageContext, as_of: str, dealt: Dealt, num_nodes: int, num_edges: int) -> None:
    splits = ", ".join(f"{name} {size:,}" for name, size in dealt.sizes.items())
    context.message(f"as of {as_of}: {num_nodes:,} nodes, {num_edges:,} edges for messages; {splits}")
    if dealt.unit == "years" and "-" in as_of[1:]:
        context.warn(f"the data's times are whole years: as of {as_of} takes all of {as_of[:4]}, what came later too")


def degree_report(indptr: Array) -> dict[str, Any]:
    """Count nodes by in-degree in bins of powers of two: bin 0 is degree 0, bin k holds 2^(k-1) to 2^k - 1."""
    bins = np.zeros(65, np.int64)
    largest, num_nodes = 0, len(indptr) - 1
    for rows in blocks(num_nodes, 1 << 20):
        degree = np.diff(indptr[rows.start : rows.stop + 1])
        _, exponent = np.frexp(degree.astype(np.float64))  # degree = m * 2^exponent with m in [0.5, 1); 0 has 0
        bins += np.bincount(exponent, minlength=65)
        largest = max(largest, int(degree.max(initial=0)))
    used = int(np.flatnonzero(bins)[-1]) + 1 if bins.any() else 0
    return {
        "log2_bins": bins[:used].tolist(),
        "mean": round(float(indptr[-1]) / max(num_nodes, 1), 3),
        "max": largest,
        "isolated": int(bins[0]),
    }
