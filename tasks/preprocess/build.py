"""What the preprocess stage does: Parquet tables to a graph in memory-mapped arrays.

Order: graphs and splits (small), edges (they decide the structure), node features (some come from the structure), and
what features and labels look like some hops away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from configs.registry import TRANSFORMS
from configs.schema import Recipe
from tasks.arrays import Array, blocks
from tasks.preprocess.edges.build import EdgeRules, build_edges, check_within_graphs
from tasks.preprocess.features import FeatureBuilder
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.label_profile import label_profile
from tasks.preprocess.neighbors import write_neighbors
from tasks.preprocess.node_arrays import write_edge_labels, write_graphs, write_nodes
from tasks.preprocess.splits import rows
from tasks.preprocess.splits.by_time import WrittenSplits
from tasks.preprocess.splits.held_out import HeldOut, PairRule, complete_negatives
from tasks.preprocess.splits.snapshot import Snapshot, take_snapshot
from tasks.preprocess.splits.write import write_splits
from tasks.preprocess.texts.encoding import EncodedTexts, TextColumns, older_rows
from tasks.preprocess.transforms.base import GraphView, ReadsAsTrained, TextsAsTrained
from tasks.preprocess.transforms.configs import from_models
from tasks.preprocess.transforms.hops import split_hops
from tasks.preprocess.vector_leaks import HeldOutHere, take_vectors
from tasks.sizes import BYTES_A_NODE, counts_of, disk_bytes, need_disk, need_memory
from tasks.stage import Parent, StageContext
from tasks.storage.dataset_store import DatasetStore, ShardRef
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import NEIGHBORS, DatasetManifest, TaskManifest

_CHUNK_ROWS = 1 << 20


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Write the graph's arrays and return the fields of GraphManifest.

    `report` holds `degrees` (`log2_bins`: number of nodes of in-degree 0, 1, 2-3, 4-7, ...; mean, max, isolated),
    `edges` (self-loops met, edges merged with others; not of a snapshot), `transforms` (what was fitted),
    of a snapshot `snapshot` (`times`: the oldest and newest of each split, in `unit`; `labels`: `label_profile`), of
    texts `texts` (column to the first of its numbers in `feat`, and the one behind the last), of link tasks `held_out`
    (`HeldOut.report`) and `negatives` (what they join, in words), and `vectors` (of registered models as features:
    `take_vectors`).

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
    transforms = [TRANSFORMS.create(one) for one in options.transforms]
    reading = next((one for one in transforms if isinstance(one, ReadsAsTrained)), None)
    if reading is not None:  # a registered model reads the data as its training did
        for note in reading.notes():
            context.warn(note)
        ingested = reading.relations_as_trained(ingested)
    store = DatasetStore(parents["ingest"].folder, ingested)
    source = ids = IdSpace(ingested, options.symmetrize, options.self_loops == "add")
    if not options.symmetrize and not ingested.directed:
        context.message("the data set's edges have no direction, and preprocess.symmetrize=false adds no reverses")
    writer = ArrayWriter(context.work)
    snapshot = take_snapshot(recipe, store, source)
    if snapshot is not None:  # from here on there is nothing but what exists
        store, ids = snapshot.store, snapshot.ids

    def view() -> GraphView:
        """Return the graph as far as it is written."""
        places = str(parents["ingest"].folder), str(context.home.root)
        return GraphView(str(context.work), dict(writer.entries), ids.num_nodes, ids.symmetrize, *places)

    write_nodes(store, ids, writer, snapshot)
    if ingested.relation_feature_dim:
        writer.write("relation_feat", store.column("relations", "feat").astype(np.float32))
    if "graphs" in store:
        write_graphs(store, ids, writer)
    if ingested.split_rows.are_edges:
        write_edge_labels(store, writer)
    trained = next((one.states for one in transforms if isinstance(one, TextsAsTrained)), None)
    texts = TextColumns(context, options.texts, trained)
    written = write_splits(recipe, store, ids, writer, snapshot)
    held_out = _hold_out(recipe, ingested, ids, writer)
    codes = {} if reading is None else reading.edge_codes
    existing = rows.left_out(store, ids, writer, context)
    if snapshot is not None:
        existing = snapshot.edges_up_to(written.messages)
    vectors = _take_vectors(context, recipe, view(), ingested, snapshot)

    def encode(column: str, shards: Sequence[ShardRef]) -> EncodedTexts:
        """Encode texts of edges, by what those say that may be learnt from."""
        until = ingested.fit_before if snapshot is None else snapshot.until + 1
        training = [(shard, older_rows(shard, until)) for shard in shards]
        return texts.encode(f"edges/{column}", column, shards, training)

    rules = EdgeRules(options, ids, source, existing, held_out, codes, encode, rows.scored_rows(ingested, ids))
    counts, data = build_edges(context, store, writer, rules)
    graph = view()
    indptr = graph["csc_indptr"]
    if "graphs" in store:
        check_within_graphs(indptr, graph["csc_indices"], graph["graph_offsets"])
    if held_out is not None:
        held_out.report_counts(context)
        names = [kind.relation for kind in ingested.edge_types[: ingested.num_relations]]
        negatives = complete_negatives(context, graph, writer, ingested, directed=held_out.directed, names=names)
    train_rows = rows.training_rows(ingested, graph)
    built = FeatureBuilder(context, store, ids, options, graph, train_rows, texts, snapshot).build(writer)
    if hops is not None:
        built = hops.widen(writer, store.manifest, options.symmetrize, train_rows, built)
    texts.write()
    num_edges, neighbors = counts.pop("num_edges"), None
    if recipe.neighbors is not None:
        neighbors = write_neighbors(context, writer, recipe.neighbors, recipe.preprocess.workers, ingested.num_edges)
        num_edges, indptr = neighbors.pop("num_edges"), view()["csc_indptr"]
    report = {"degrees": degree_report(indptr), "edges": counts, "transforms": built["transforms"]}
    report["columns"] = built["columns"] | data.columns()
    if held_out is not None:
        report |= {"held_out": held_out.report(), "negatives": negatives}
    if built["texts"]:
        report["texts"] = built["texts"]
    if vectors:
        report["vectors"] = vectors
    if neighbors is not None:
        report[NEIGHBORS] = neighbors
    num_rows = ingested.num_edges + ingested.num_nodes
    if snapshot is not None:
        report["snapshot"] = _snapshot_report(context, str(recipe.time_moment), snapshot, written, graph)
        num_rows = num_edges + ids.num_nodes  # what is to come must not show in the digest
    return {
        **ingested.own_fields(TaskManifest),
        "num_nodes": ids.num_nodes,
        "num_edges": num_edges,
        "symmetric": options.symmetrize,
        "node_types": ids.node_types,
        "edge_types": ids.edge_types,
        "type_offsets": ids.type_offsets if snapshot is None else snapshot.type_offsets,
        "feature_dim": built["feature_dim"],
        "categories": built["categories"],
        "edge_feature_dim": data.feature_dim,
        "edge_categories": data.categories,
        "relation_ends": ids.relation_ends,
        "own_keys": ids.own_keys,
        "type_columns": built["type_columns"] if hops is None else {},
        "relation_columns": data.relation_columns(),
        "splits": written.sizes if held_out is None else held_out.sizes,
        "arrays": writer.entries,
        "report": report,
        "rows": num_rows,
    }


def _take_vectors(
    context: StageContext, recipe: Recipe, graph: GraphView, manifest: DatasetManifest, snapshot: Snapshot | None
) -> list[dict[str, Any]]:
    """Check the vectors of registered models that come as features; the report says which they are."""
    if manifest.split_rows.are_graphs:
        return []  # the transform refuses it
    directed = manifest.directed and not graph.symmetric
    unit = "number" if snapshot is None else snapshot.unit
    held_out = HeldOutHere(recipe.name, manifest.split_rows, directed, recipe.time_moment, unit)
    return [take_vectors(context, config, graph, held_out) for config in from_models(recipe.preprocess.transforms)]


def _hold_out(recipe: Recipe, ingested: DatasetManifest, ids: IdSpace, writer: ArrayWriter) -> HeldOut | None:
    """Return what keeps a link task's held-out pairs out of the rest; None for other tasks."""
    if not ingested.split_rows.are_links:
        return None
    rule: PairRule = "keep" if ingested.ogb_name or ingested.keep_known_pairs else "hold_out"
    if recipe.time_moment is not None and recipe.snapshot.split == "time":
        rule = "first_split"
    directed = ingested.directed and not ids.symmetrize
    relations: Any = {"num_relations": ingested.num_relations, "has_context": ingested.has_context}
    return HeldOut(writer, ids.num_nodes, rule, directed=directed, **relations)


def _snapshot_report(
    context: StageContext, as_of: str, snapshot: Snapshot, written: WrittenSplits, graph: GraphView
) -> dict[str, Any]:
    """Say what exists, and return it for the report, with the distribution of the labels."""
    ids, manifest = snapshot.ids, snapshot.store.manifest
    splits = ", ".join(f"{name} {size:,}" for name, size in written.sizes.items())
    num_edges = len(graph["csc_indices"])
    context.message(f"as of {as_of}: {ids.num_nodes:,} nodes, {num_edges:,} edges for messages; {splits}")
    if snapshot.unit == "years" and "-" in as_of[1:]:
        context.warn(f"the data's times are whole years: as of {as_of} takes all of {as_of[:4]}, what came later too")
    label, profile = graph.get("label"), None
    if label is not None:
        first, last = ids.type_offsets[ids.type_index(manifest.target_type) :][:2]
        profile = label_profile(label[first:last], manifest)
    return {"unit": snapshot.unit, "times": written.times, "labels": profile}


def degree_report(indptr: Array) -> dict[str, Any]:
    """Count nodes by in-degree in bins of powers of two: bin 0 is degree 0, bin k holds 2^(k-1) to 2^k - 1."""
    bins = np.zeros(65, np.int64)
    largest, num_nodes = 0, len(indptr) - 1
    for some in blocks(num_nodes, _CHUNK_ROWS):
        degree = np.diff(indptr[some.start : some.stop + 1])
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
