"""The data: sizes, degrees, components and class balance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.kinds.of import kind_of
from tasks.publish.plots import run_plots
from tasks.publish.plots.figures import Canvas
from tasks.publish.report.parts import Facts, ReportedRun, ReportTable, Section
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import class_names
from tasks.storage.manifests import SPLITS, DatasetManifest

ORDER = 30
_MAX_LABELS = 5_000_000


def section(run: ReportedRun) -> Section | None:
    """Say what was ingested, and what of it became a graph."""
    parents = run.parents
    if "ingest" not in parents:
        return None
    data = parents["ingest"].manifest
    graph = next((parents[s] for s in ("partition", "components", "preprocess") if s in parents), None)
    taken = graph is not None and "snapshot" in graph.manifest.report  # the rest of the data set does not exist yet
    # Without held-out pairs and components that were filtered out.
    splits = data.splits if graph is None else graph.manifest.splits
    sizes = ", ".join(f"{split} {count:,}" for split, count in splits.items() if split in SPLITS)
    label_facts = [("classes", f"{data.num_classes:,}")] if data.num_classes else []
    if data.label_type.is_yes_or_no and not data.label_type.one_column:  # whose classes are the two of each column
        label_facts = [("label columns", f"{data.num_tasks:,}, each yes or no")]
    facts = [
        ("data set", data.dataset),
        ("task", f"{data.task}, {data.task_type}" if data.task_type != data.task else data.task),
        ("nodes", f"{data.num_nodes:,}" + (" of all times" if taken else "")),
        ("edges", _edges_text(data, taken=taken)),
        *([("nodes that exist", f"{graph.manifest.num_nodes:,}")] if graph is not None and taken else []),
        *([("graphs", f"{data.num_graphs:,}")] if data.split_rows.are_graphs else []),
        *label_facts,
        *([("split", sizes)] if sizes else []),
    ]
    made = Section("The data", facts, _type_tables(data))
    if graph is None:
        return made
    report = graph.manifest.report
    made.facts += _held_out_facts(report) + [("negatives", text) for text in report.get("negatives", [])]
    texts = []
    for array, kinds, of in (("feat", data.node_types, ""), ("edge_feat", data.edge_types, " of edges")):
        named = {one.column for kind in kinds for one in kind.features if one.kind == "text"}
        widths = report.get("columns", {}).get(array, {})
        texts += [f"{column}{of}, {width} numbers" for column, width in widths.items() if column in named]
    made.facts += [("texts", "; ".join(texts))] if texts else []
    for one in report.get("vectors", []):  # `tasks.preprocess.vector_leaks.take_vectors`
        share = f"{one['with_vector']:,} of {one['nodes']:,} nodes have one"
        text = f"{one['model']} (recipe {one['recipe']}), {one['dim']} numbers; {share}"
        made.facts.append(("vectors as features", text))
        made.facts += [("leak", f"{one['leak']}; the recipe allows it (allow_leak)")] if one["leak"] else []
    made.facts += [(kind_of(graph.manifest).edges_are, f"{graph.manifest.num_edges:,}"), *_structure_facts(report)]
    made.draw(run_plots.degrees(report), "Degrees of the nodes, in powers of two")
    made.draw(run_plots.component_sizes(report), "Sizes of the connected components, in powers of two")
    made.draw(_label_picture(graph, parents["ingest"]), "Labels in each split")
    return made


def _type_tables(data: DatasetManifest) -> list[ReportTable]:
    """Return nodes by type and edges by relation, where there are several."""
    tables = []
    predicted = None if kind_of(data).mixes_types else data.target_type
    if len(data.node_types) > 1:
        node_rows = []
        for kind in data.node_types:
            columns = ", ".join(f"{one.column} ({one.dim})" if one.dim > 1 else one.column for one in kind.features)
            name = f"{kind.name} (is predicted)" if kind.name == predicted else kind.name
            node_rows.append((name, columns, f"{kind.num_nodes:,}"))
        tables.append(ReportTable("Nodes by type", ("type", "features", "nodes"), node_rows, figures=1))
    if len(data.edge_types) > 1:
        counts = {kind.name: kind.num_nodes for kind in data.node_types}
        edge_rows = []
        for one in data.edge_types:
            mean = f"{one.num_edges / counts[one.target]:,.2f}" if counts[one.target] else ""
            edge_rows.append((one.source, one.relation, one.target, f"{one.num_edges:,}", mean))
        head = ("source", "relation", "target", "edges", "edges a target")
        tables.append(ReportTable("Edges by relation, as given", head, edge_rows, figures=2))
    return tables


def _edges_text(data: DatasetManifest, *, taken: bool) -> str:
    """Say how many edges the data set has, pairs that its own split holds out among them."""
    held = sum(data.splits.get(split, 0) for split in SPLITS if split != "train") if data.split_rows.are_links else 0
    options = data.config.get("dataset", {})
    if held and options.get("name") == "tables" and options["split"]["by"] == "files":
        return f"{data.num_edges:,} as given, and {held:,} pairs that files of the split hold out"
    text = f"{data.num_edges + held:,} " + ("of all times" if taken else "as given")
    return f"{text}, {held:,} of them held out by the data set's own split" if held and not taken else text


def _held_out_facts(report: Mapping[str, Any]) -> Facts:
    """Say what became of a link task's held-out pairs (`tasks.preprocess.splits.held_out.HeldOut.report`)."""
    held = report.get("held_out", {})
    if "pairs" not in held:
        return []
    texts = [f"{held['pairs']:,} pairs, an edge and its copies or reverse counted once"]
    if held["taken_out"]:
        texts.append(
            f"{held['taken_out']:,} of them were also among the edges that train or carry messages, and do no more"
        )
    if held["rule"] == "keep" and held["in_train"]:
        texts.append(f"{held['in_train']:,} of them train too")
    gone = ", ".join(f"{split} {count:,}" for split, count in held["left_out"].items() if count)
    return [("held-out pairs", "; ".join(texts + ([f"edges that left a split: {gone}"] if gone else [])))]


def _structure_facts(report: Mapping[str, Any]) -> Facts:
    facts, degrees, components = [], report.get("degrees", {}), report.get("components", {})
    if "mean" in degrees:
        isolated = f"isolated nodes {degrees['isolated']:,}"
        facts.append(("degree", f"mean {degrees['mean']:,.2f}, largest {degrees['max']:,}, {isolated}"))
    if "count" in components:
        sizes = f"{components['count']:,}, the largest of {components['largest']:,} nodes"
        facts.append(("connected components", sizes))
    if components.get("dropped_nodes"):
        by_split = ", ".join(f"{name} {count:,}" for name, count in components.get("dropped", {}).items())
        text = f"{components['dropped_nodes']:,} nodes"
        facts.append(("filtered out", f"{text} ({by_split})" if by_split else text))
    return facts


def _label_picture(graph: Parent, data: Parent) -> Canvas | None:
    """Class balance, or the distribution of a regression's label; None on link tasks."""
    manifest = graph.manifest
    store = GraphStore(graph.folder, manifest)
    labels = store.get(manifest.split_rows.labels)
    if labels is None:
        return None
    indices = {split: store.get(f"{split}_idx") for split in SPLITS}
    by_split = {s: np.asarray(labels[i[:_MAX_LABELS]]) for s, i in indices.items() if i is not None}
    if not manifest.label_type.has_classes and not manifest.heads:
        return run_plots.label_histogram({split: values.ravel() for split, values in by_split.items()})
    if manifest.label_type.is_yes_or_no and not manifest.label_type.one_column:
        return run_plots.positive_shares(by_split)
    counts = {}
    for split, values in by_split.items():
        flat = values.ravel()
        flat = flat[~np.isnan(flat)] if flat.dtype.kind == "f" else flat[flat >= 0]
        counts[split] = np.bincount(flat.astype(np.int64))
    names = class_names(DatasetStore(data.folder, data.manifest)) or []
    size = max([2, manifest.num_classes, len(names), *map(len, counts.values())])
    names += [str(c) for c in range(len(names), size)]
    padded = {split: np.pad(count, (0, size - len(count))).tolist() for split, count in counts.items()}
    return run_plots.class_balance(padded, names)
