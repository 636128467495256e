"""The sections of a run's report: data, partition, training, evaluation, snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from configs.layout_options import LAYOUT
from tasks.publish import snapshots
from tasks.publish.plots import eval_plots, run_plots, snapshot_plots, triple_plots
from tasks.publish.plots.figures import Canvas, compact
from tasks.publish.report.evaluation_tables import Table, score_tables
from tasks.publish.tracking.records import read_records
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import class_names
from tasks.storage.manifests import SPLITS, DatasetManifest, EvalReport, PartitionManifest, is_at_once

_MAX_LABELS = 5_000_000
_FEW, _HARDEST = 5, 15
_MEASURES = {
    "mrr": "MRR",
    "mrr_head": "which head",
    "mrr_tail": "which tail",
    "hits@1": "Hits@1",
    "hits@10": "Hits@10",
    "hits@10_head": "which head",
    "hits@10_tail": "which tail",
}
"""Columns of tables of relations: those of an end stand behind those of both."""

Facts = list[tuple[str, str]]
"""Rows of (name, text)."""


@dataclass(frozen=True)
class Picture:
    """One figure."""

    caption: str
    svg: str


@dataclass
class Section:
    """A heading with facts, tables and figures."""

    title: str
    facts: Facts = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    def draw(self, canvas: Canvas | None, caption: str) -> None:
        """Add a figure, where there is one."""
        if canvas is not None:
            self.pictures.append(Picture(caption, canvas.svg(caption)))


def sections(parents: Mapping[str, Parent]) -> list[Section]:
    """Return data, partition, training and evaluation, each as far as it exists."""
    makers = {
        "ingest": data_section,
        "partition": partition_section,
        "train": training_section,
        "evaluate": evaluation_section,
    }
    return [make(parents) for stage, make in makers.items() if stage in parents]


def data_section(parents: Mapping[str, Parent]) -> Section:
    """Sizes, degrees, components and class balance."""
    data = parents["ingest"].manifest
    graph = next((parents[s] for s in ("partition", "components", "preprocess") if s in parents), None)
    taken = graph is not None and "snapshot" in graph.manifest.report  # the rest of the data set does not exist yet
    # Without held-out pairs and components that were filtered out.
    splits = data.splits if graph is None else graph.manifest.splits
    facts = [
        ("data set", data.dataset),
        ("task", f"{data.task}, {data.task_type}" if data.task_type != data.task else data.task),
        ("nodes", f"{data.num_nodes:,}" + (" of all times" if taken else "")),
        ("edges", _edges_text(data, taken=taken)),
        *([("nodes that exist", f"{graph.manifest.num_nodes:,}")] if graph is not None and taken else []),
        *([("graphs", f"{data.num_graphs:,}")] if data.task == "graph" else []),
        *_label_facts(data),
        *([] if data.task == LAYOUT else [("split", _sizes_of(splits))]),
    ]
    section = Section("The data", facts, _type_tables(data))
    if graph is None:
        return section
    report = graph.manifest.report
    section.facts += _held_out_facts(report) + [("negatives", text) for text in report.get("negatives", [])]
    section.facts += _vector_facts(report)
    words = "directed edges between entities" if graph.manifest.task == "triple" else "edges for message passing"
    section.facts += [(words, f"{graph.manifest.num_edges:,}"), *_degree_facts(report)]
    section.facts += _component_facts(report)
    section.draw(run_plots.degrees(report), "Degrees of the nodes, in powers of two")
    section.draw(run_plots.component_sizes(report), "Sizes of the connected components, in powers of two")
    section.draw(_label_picture(graph, parents["ingest"]), "Labels in each split")
    return section


def _sizes_of(splits: Mapping[str, int]) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in splits.items() if split in SPLITS)


def _label_facts(data: DatasetManifest) -> Facts:
    if data.task_type == "multilabel":  # whose classes are the two of each column
        return [("label columns", f"{data.num_tasks:,}, each yes or no")]
    return [("classes", f"{data.num_classes:,}")] if data.num_classes else []


def _type_tables(data: DatasetManifest) -> list[Table]:
    """Return nodes by type and edges by relation, where there are several."""
    tables = []
    predicted = None if data.task == "triple" else data.target_type
    if len(data.node_types) > 1:
        node_rows = []
        for kind in data.node_types:
            columns = ", ".join(f"{one.column} ({one.dim})" if one.dim > 1 else one.column for one in kind.features)
            name = f"{kind.name} (is predicted)" if kind.name == predicted else kind.name
            node_rows.append((name, columns, f"{kind.num_nodes:,}"))
        tables.append(Table("Nodes by type", ("type", "features", "nodes"), node_rows, figures=1))
    if len(data.edge_types) > 1:
        counts = {kind.name: kind.num_nodes for kind in data.node_types}
        edge_rows = []
        for one in data.edge_types:
            mean = f"{one.num_edges / counts[one.target]:,.2f}" if counts[one.target] else ""
            edge_rows.append((one.source, one.relation, one.target, f"{one.num_edges:,}", mean))
        head = ("source", "relation", "target", "edges", "edges a target")
        tables.append(Table("Edges by relation, as given", head, edge_rows, figures=2))
    return tables


def _edges_text(data: DatasetManifest, *, taken: bool) -> str:
    """Say how many edges the data set has; its table of a link task's edges holds those of its own training split.

    Pairs that files of their own hold out may stand in that table too, so they are not added to it.
    """
    held = sum(data.splits.get(split, 0) for split in SPLITS if split != "train") if data.task == "link" else 0
    options = data.config.get("dataset", {})
    if held and options.get("name") == "tables" and options["split"]["by"] == "files":
        return f"{data.num_edges:,} as given, and {held:,} pairs that files of the split hold out"
    text = f"{data.num_edges + held:,} " + ("of all times" if taken else "as given")
    return f"{text}, {held:,} of them held out by the data set's own split" if held and not taken else text


def _held_out_facts(report: Mapping[str, Any]) -> Facts:
    """Say what became of a link task's held-out pairs (`tasks.preprocess.splits.held_out.HeldOut.report`)."""
    found = report.get("held_out", {})
    if "pairs" not in found:
        return []
    texts = [f"{found['pairs']:,} pairs, an edge and its copies or reverse counted once"]
    if found["taken_out"]:
        texts.append(
            f"{found['taken_out']:,} of them stood among the edges that train or carry messages, and do no more"
        )
    if found["rule"] == "keep" and found["in_train"]:
        texts.append(f"{found['in_train']:,} of them train too")
    gone = ", ".join(f"{split} {count:,}" for split, count in found["left_out"].items() if count)
    return [("held-out pairs", "; ".join(texts + ([f"edges that left a split: {gone}"] if gone else [])))]


def _vector_facts(report: Mapping[str, Any]) -> Facts:
    """Say whose vectors are features (`tasks.preprocess.vector_leaks.take_vectors`)."""
    facts = []
    for one in report.get("vectors", []):
        share = f"{one['with_vector']:,} of {one['nodes']:,} nodes have one"
        facts.append(("vectors as features", f"{one['model']} (recipe {one['recipe']}), {one['dim']} numbers; {share}"))
        facts += [("leak", f"{one['leak']}; the recipe allows it (allow_leak)")] if one["leak"] else []
    return facts


def _degree_facts(report: Mapping[str, Any]) -> Facts:
    found = report.get("degrees", {})
    if "mean" not in found:
        return []
    return [("degree", f"mean {found['mean']:,.2f}, largest {found['max']:,}, isolated nodes {found['isolated']:,}")]


def _component_facts(report: Mapping[str, Any]) -> Facts:
    found = report.get("components", {})
    if "count" not in found:
        return []
    facts = [("connected components", f"{found['count']:,}, the largest of {found['largest']:,} nodes")]
    if found.get("dropped_nodes"):
        gone = ", ".join(f"{name} {count:,}" for name, count in found.get("dropped", {}).items())
        facts.append(("filtered out", f"{found['dropped_nodes']:,} nodes" + (f" ({gone})" if gone else "")))
    return facts


def _label_picture(graph: Parent, data: Parent) -> Canvas | None:
    """Class balance, or the distribution of a regression's label; None on link tasks."""
    manifest = graph.manifest
    store = GraphStore(graph.folder, manifest)
    labels = store.get("graph_label" if manifest.task == "graph" else "label")
    if labels is None or manifest.task == "link":
        return None
    indices = {split: store.get(f"{split}_idx") for split in SPLITS}
    by_split = {s: np.asarray(labels[i[:_MAX_LABELS]]) for s, i in indices.items() if i is not None}
    if manifest.task_type in ("regression", "ranking"):
        return run_plots.label_histogram({split: values.ravel() for split, values in by_split.items()})
    if manifest.task_type == "multilabel":
        return run_plots.positive_shares(by_split)
    counts = {}
    for split, values in by_split.items():
        flat = values.ravel()
        flat = flat[~np.isnan(flat)] if flat.dtype.kind == "f" else flat[flat >= 0]
        counts[split] = np.bincount(flat.astype(np.int64))
    names = class_names(DatasetStore(data.folder, data.manifest)) or []
    size = max([2, manifest.num_classes, len(names), *map(len, counts.values())])
    names += [str(c) for c in range(len(names), size)]
    padded = {split: np.pad(found, (0, size - len(found))).tolist() for split, found in counts.items()}
    return run_plots.class_balance(padded, names)


def partition_section(parents: Mapping[str, Parent]) -> Section:
    """Edge cut, balance and who is cut from whom."""
    manifest: PartitionManifest = parents["partition"].manifest
    section = Section("Partition")
    if manifest.num_parts < 2:
        return section
    balance = f"largest part {manifest.node_balance:.3f} x the mean; training nodes {manifest.train_balance:.3f} x"
    section.facts = [
        ("partitioner", manifest.partitioner),
        ("parts", str(manifest.num_parts)),
        ("edge cut", f"{100 * manifest.edge_cut:.2f} % of the edges join two parts"),
        ("balance", balance),
    ]
    if manifest.halo_sizes:
        share = 100 * sum(manifest.halo_sizes) / max(1, manifest.num_nodes)
        section.facts.append(("halo", f"{sum(manifest.halo_sizes):,} copies of nodes, {share:.1f} % of the graph"))
    section.draw(
        run_plots.cut_matrix(manifest.report), "Edges between each pair of parts; the diagonal is within a part"
    )
    section.draw(run_plots.part_sizes(manifest.report), "Nodes and training nodes of each part against the mean")
    return section


def training_section(parents: Mapping[str, Parent]) -> Section:
    """Curves and speed."""
    run, folder = parents["train"].manifest, parents["train"].folder
    records = read_records(folder / run.metrics_file)
    section = Section("Training")
    at_once = is_at_once(run)
    section.facts = [
        ("model", f"{run.model.get('name', '')}, {run.num_parameters:,} parameters"),
        ("ranks", f"{run.world_size} ({run.strategy})" if run.strategy else str(run.world_size)),
        ("epochs", "none: computed at once" if at_once else f"{run.epochs_run}, the best was {run.best_epoch}"),
        ("seed", str(run.seed)),
    ]
    if run.edges_per_second and not at_once:
        speed = f"{compact(run.seeds_per_second)} seeds/s, {compact(run.edges_per_second)} edges/s"
        section.facts.append(("speed", speed))
    elif run.seeds_per_second and not at_once:  # rows of tables, which have no layers to sample for
        section.facts.append(("speed", f"{compact(run.seeds_per_second)} samples/s"))
    if run.resumed_from_epoch or run.restarts:
        section.facts.append(("interruptions", f"resumed from epoch {run.resumed_from_epoch}, {run.restarts} restarts"))
    section.draw(run_plots.loss_curves(records), "Loss")
    section.draw(run_plots.metric_curves(records, run.best_epoch), "Validation metrics")
    return section


def evaluation_section(parents: Mapping[str, Parent]) -> Section:
    """Pictures of the evaluation."""
    evaluation: EvalReport = parents["evaluate"].manifest
    section = Section("Evaluation in detail")
    section.facts = [(f"note {n + 1}", note) for n, note in enumerate(evaluation.report.get("notes", []))]
    section.tables += score_tables(evaluation)
    for _, caption, canvas in eval_plots.all_of(evaluation.report):
        section.draw(canvas, caption)
    if "ranked" in evaluation.report:
        add_recommendations(section, evaluation.report["ranked"], evaluation.report.get("split", ""))
    found = evaluation.report.get("triples")
    if found is not None:
        add_triples(section, found, evaluation.report.get("split", ""))
    return section


def add_recommendations(section: Section, found: Mapping[str, Any], split: str) -> None:
    """Add what lists of other lengths are worth, and how much of what there is they recommend."""
    section.facts.append(("right for a row", f"{found['right']:.2f} on average"))
    section.facts.append(("place of the first that is right", f"{found['median_place']:,.0f} (median)"))
    if found.get("candidates"):
        share = 100 * found["recommended"] / found["candidates"]
        words = f"{found['recommended']:,} of {found['candidates']:,} ({share:.1f} %) stand in some list"
        section.facts.append(
            ("recommended", f"{words}; the ten most frequent have {100 * found['share_of_ten']:.1f} %")
        )
    rows = [(str(row["k"]), *(f"{row[name]:.4f}" for name in _OF_LISTS)) for row in found["lengths"]]
    section.tables.append(Table(f"Lists of other lengths ({split})", ("K", *_OF_LISTS), rows, figures=4))


_OF_LISTS = ("recall", "precision", "hits")


def add_triples(section: Section, found: Mapping[str, Any], split: str) -> None:
    """Add how triples were ranked: by relation and kind, the hardest ones, and without what training never saw."""
    section.facts += _unseen_facts(found["unseen"])
    for _, caption, canvas in triple_plots.all_of(found, split):
        section.draw(canvas, caption)
    kinds = found["categories"]
    if len(kinds) > 1:
        section.tables.append(_ranks_table(f"Kinds of relations ({split})", ("category",), kinds))
    hardest = sorted((row for row in found["relations"] if row["triples"] >= _FEW), key=lambda row: row["mrr"])
    if hardest:
        caption = f"The hardest relations ({split}), of those with {_FEW} triples or more"
        section.tables.append(_ranks_table(caption, ("relation", "category"), hardest[:_HARDEST]))


def _ranks_table(caption: str, names: tuple[str, ...], found: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (*(row[name] for name in names), f"{row['triples']:,}", *(f"{row[key]:.4f}" for key in _MEASURES))
        for row in found
    ]
    heads = tuple("kind" if name == "category" else name for name in names)
    return Table(caption, (*heads, "triples", *_MEASURES.values()), rows, figures=1 + len(_MEASURES))


def _unseen_facts(unseen: Mapping[str, Any]) -> Facts:
    if not unseen["entities"]:
        return []
    facts = [
        ("entities that training never saw", f"{unseen['entities']:,}; {unseen['triples']:,} triples have one"),
    ]
    if "metrics" in unseen:
        texts = ", ".join(f"{name} {unseen['metrics'][name]:.4f}" for name in ("mrr", "hits@1", "hits@3", "hits@10"))
        facts.append(("without them", texts))
    return facts


def snapshot_section(summary: snapshots.SnapshotSummary) -> Section:
    """What the snapshot holds, and how it differs from the one before it."""
    before = summary["previous"]
    title = f"As of {summary['snapshot']['as_of']}" + (f", against {before['as_of']}" if before else "")
    section = Section(title, snapshots.facts(summary))
    for caption, canvas in snapshot_plots.pictures(summary):
        section.draw(canvas, caption)
    return section
