"""One self-contained `report.html` a run: no request leaves it, nothing in it is trusted as markup."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from configs.changes import all_options, changed_options
from configs.schema import Recipe
from tasks.publish import snapshots
from tasks.publish.champion import judge
from tasks.publish.plots import eval_plots, run_plots, snapshot_plots
from tasks.publish.plots.figures import Canvas, compact
from tasks.publish.tracking.records import read_records
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import class_names
from tasks.storage.manifests import CONTROLS, SPLITS, DatasetManifest, EvalReport, PartitionManifest

_TEMPLATE = "report.jinja"
_MAX_LABELS = 5_000_000


@dataclass(frozen=True)
class Published:
    """Where a run went: what the report says of MLflow and Prefect."""

    run_id: str = ""
    run_url: str = ""
    how_to_open: str = ""
    model_name: str = ""
    model_version: str = ""
    champion: bool = False
    gate: dict[str, Any] = field(default_factory=dict)
    """What the gate found (`PublishManifest.gate`)."""
    flow_run_id: str = ""
    flow_run_url: str = ""

    @property
    def gate_reason(self) -> str:
        """Why it is champion, or is not."""
        return str(self.gate.get("reason", ""))


@dataclass(frozen=True)
class Picture:
    """One figure."""

    caption: str
    svg: str


@dataclass(frozen=True)
class Table:
    """Rows of texts; the last columns are figures."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    figures: int = 0
    """How many of the last columns are flushed right."""


@dataclass
class Section:
    """A heading with facts, tables and figures."""

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)


def render(
    recipe: Recipe,
    parents: Mapping[str, Parent],
    published: Published,
    snapshot: snapshots.SnapshotSummary | None = None,
) -> str:
    """Return the page. Parts that a run lacks are left out; `snapshot` is what `snapshots.write_snapshot` returned."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["svg"] = Markup  # made by our own figures, all text escaped by matplotlib
    evaluation: EvalReport | None = parents["evaluate"].manifest if "evaluate" in parents else None
    stages = stage_rows(parents)
    shown = [*([] if snapshot is None else [snapshot_section(snapshot)]), *sections(parents)]
    shown.insert(0, champion_section(published))
    return environment.get_template(_TEMPLATE).render(
        recipe=recipe,
        published=published,
        headline=headline(evaluation),
        result=result_table(evaluation, published.gate),
        sections=[section for section in shown if section.pictures or section.facts],
        changed=changed_options(recipe),
        recipe_rows=recipe_rows(recipe),
        recipe_yaml=yaml.safe_dump(json.loads(recipe.model_dump_json()), sort_keys=False, allow_unicode=True),
        stages=stages,
        costs=list(filter(None, (picture(run_plots.stage_cost(stages, what), what) for what in run_plots.COSTS))),
        warnings=[(name, text) for name, parent in parents.items() for text in parent.manifest.warnings],
        lineage=lineage(parents),
        per_class=(evaluation.report.get("per_class", [])[:100] if evaluation else []),
    )


def headline(evaluation: EvalReport | None) -> list[tuple[str, str, str]]:
    """Return (split, metric, value) of the primary metric."""
    if evaluation is None:
        return []
    shown = [(s, evaluation.metric, evaluation.metrics[s].get(evaluation.metric)) for s in evaluation.metrics]
    return [(split, name, f"{value:.4f}") for split, name, value in shown if value is not None]


def result_table(evaluation: EvalReport | None, gate: Mapping[str, Any]) -> Table | None:
    """Return what the model scored on each split, and beside it the champion and the controls on the same rows."""
    if evaluation is None:
        return None
    names = list(dict.fromkeys(name for values in evaluation.metrics.values() for name in values))
    rows = []
    for split, own in evaluation.metrics.items():
        found = {"this model": own} | _champion_row(split, gate)
        found |= {CONTROLS[name].what: splits[split] for name, splits in evaluation.controls.items() if split in splits}
        for who, values in found.items():
            rows.append((split, who, *(f"{values[name]:.4f}" if name in values else "" for name in names)))
    beside = "; controls know nothing of the graph and were fitted to the training split" if evaluation.controls else ""
    return Table(f"Metrics of the best checkpoint{beside}", ("split", "scored by", *names), rows, figures=len(names))


def _champion_row(split: str, gate: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The champion that the gate compared with, where it was measured on this split."""
    gate_split, _, metric = str(gate.get("metric", "")).partition("/")
    if gate.get("champion") is None or gate_split != split:
        return {}
    word = "champion before" if gate["promoted"] else "champion"
    return {f"version {gate['against']}, the {word}": {metric: gate["champion"]}}


def sections(parents: Mapping[str, Parent]) -> list[Section]:
    """Return data, partition, training and evaluation, each as far as it exists."""
    made: list[Section] = []
    makers: list[tuple[str, Callable[[Mapping[str, Parent]], Section]]] = [
        ("ingest", data_section),
        ("partition", partition_section),
        ("train", training_section),
        ("evaluate", evaluation_section),
    ]
    for needed, make in makers:
        if needed in parents:
            made.append(make(parents))
    return made


def data_section(parents: Mapping[str, Parent]) -> Section:
    """Sizes, degrees, components and class balance."""
    data = parents["ingest"].manifest
    section = Section("The data")
    graph = next((parents[s] for s in ("partition", "components", "preprocess") if s in parents), None)
    taken = graph is not None and "snapshot" in graph.manifest.report  # the rest of the data set does not exist yet
    # Held-out pairs and components that went are in it no longer.
    splits = data.splits if graph is None else graph.manifest.splits
    section.facts = [
        ("data set", data.dataset),
        ("task", f"{data.task}, {data.task_type}" if data.task_type != data.task else data.task),
        ("nodes", f"{data.num_nodes:,}" + (" of all times" if taken else "")),
        ("edges", _edges_text(data, taken=taken)),
        *([("nodes that exist", f"{graph.manifest.num_nodes:,}")] if graph is not None and taken else []),
        *([("graphs", f"{data.num_graphs:,}")] if data.task == "graph" else []),
        *([("classes", f"{data.num_classes:,}")] if data.num_classes else []),
        ("split", ", ".join(f"{split} {count:,}" for split, count in splits.items() if split in SPLITS)),
    ]
    section.tables = _type_tables(data)
    if graph is None:
        return section
    report = graph.manifest.report
    section.facts += _held_out_facts(report)
    section.facts += [("edges for message passing", f"{graph.manifest.num_edges:,}"), *_degree_facts(report)]
    section.facts += _component_facts(report)
    _add(section, run_plots.degrees(report), "Degrees of the nodes, in powers of two")
    _add(section, run_plots.component_sizes(report), "Sizes of the connected components, in powers of two")
    _add(section, _label_picture(graph, parents["ingest"]), "Labels in each split")
    return section


def _type_tables(data: DatasetManifest) -> list[Table]:
    """Return nodes by type and edges by relation, where there are several."""
    tables = []
    if len(data.node_types) > 1:
        node_rows = []
        for kind in data.node_types:
            columns = ", ".join(f"{one.column} ({one.dim})" if one.dim > 1 else one.column for one in kind.features)
            name = f"{kind.name} (is predicted)" if kind.name == data.target_type else kind.name
            node_rows.append((name, columns, f"{kind.num_nodes:,}"))
        tables.append(Table("Nodes by type", ("type", "features", "nodes"), node_rows, figures=1))
    if len(data.edge_types) > 1:
        counts = {kind.name: kind.num_nodes for kind in data.node_types}
        edge_rows = [
            (one.source, one.relation, one.target, f"{one.num_edges:,}", _mean(one.num_edges, counts[one.target]))
            for one in data.edge_types
        ]
        head = ("source", "relation", "target", "edges", "edges a target")
        tables.append(Table("Edges by relation, as given", head, edge_rows, figures=2))
    return tables


def _mean(total: int, count: int) -> str:
    return f"{total / count:,.2f}" if count else ""


def _edges_text(data: DatasetManifest, *, taken: bool) -> str:
    """Say how many edges the data set has; its table of a link task's edges holds those of its own training split.

    Pairs that files of their own hold out may stand in that table too, so they are not added to it.
    """
    held = sum(data.splits.get(split, 0) for split in SPLITS if split != "train") if data.task == "link" else 0
    options = data.config.get("dataset", {})
    if held and options.get("name") == "tables" and options["split"]["by"] == "files":
        return f"{data.num_edges:,} as given, and {held:,} pairs that files of the split hold out"
    told = f"{data.num_edges + held:,} " + ("of all times" if taken else "as given")
    return f"{told}, {held:,} of them held out by the data set's own split" if held and not taken else told


def _held_out_facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say of a link task's held-out pairs what became of them (`tasks.preprocess.splits.held_out.HeldOut.report`)."""
    told = report.get("held_out", {})
    if "pairs" not in told:
        return []
    texts = [f"{told['pairs']:,}"]
    if told["taken_out"]:
        texts.append(
            f"{told['taken_out']:,} of them stood among the edges that train or carry messages, and do no more"
        )
    if told["rule"] == "keep" and told["in_train"]:
        texts.append(f"{told['in_train']:,} of them train too")
    gone = ", ".join(f"{split} {count:,}" for split, count in told["left_out"].items() if count)
    return [("held-out pairs", "; ".join(texts + ([f"edges that left a split: {gone}"] if gone else [])))]


def champion_section(published: Published) -> Section:
    """What the gate compared and decided, and how far the data is from the champion's."""
    return Section("Champion and challenger", facts=judge.facts(published.model_version, published.gate))


def snapshot_section(told: snapshots.SnapshotSummary) -> Section:
    """What the snapshot holds, and how it differs from the one before it."""
    before = told["previous"]
    title = f"As of {told['snapshot']['as_of']}" + (f", against {before['as_of']}" if before else "")
    section = Section(title, facts=snapshots.facts(told))
    for caption, canvas in snapshot_plots.pictures(told):
        _add(section, canvas, caption)
    return section


def _degree_facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    told = report.get("degrees", {})
    if "mean" not in told:
        return []
    return [("degree", f"mean {told['mean']:,.2f}, largest {told['max']:,}, isolated nodes {told['isolated']:,}")]


def _component_facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    told = report.get("components", {})
    if "count" not in told:
        return []
    facts = [("connected components", f"{told['count']:,}, the largest of {told['largest']:,} nodes")]
    if told.get("dropped_nodes"):
        gone = ", ".join(f"{name} {count:,}" for name, count in told.get("dropped", {}).items())
        facts.append(("filtered out", f"{told['dropped_nodes']:,} nodes" + (f" ({gone})" if gone else "")))
    return facts


def _label_picture(graph: Parent, data: Parent) -> Canvas | None:
    """Class balance, or the distribution of a regression's label; None on link tasks and where it would be slow."""
    manifest = graph.manifest
    if manifest.task == "link":
        return None
    store = GraphStore(graph.folder, manifest)
    labels = store.get("label" if manifest.task == "node" else "graph_label")
    if labels is None:
        return None
    indices = {split: store.get(f"{split}_idx") for split in SPLITS}
    by_split = {s: np.asarray(labels[i[:_MAX_LABELS]]) for s, i in indices.items() if i is not None}
    if manifest.task_type == "regression":
        return run_plots.label_histogram({split: values.ravel() for split, values in by_split.items()})
    if manifest.task_type == "multilabel":
        return run_plots.positive_shares(by_split)
    names = class_names(DatasetStore(data.folder, data.manifest)) or [
        str(c) for c in range(max(2, manifest.num_classes))
    ]
    counts = {}
    for split, values in by_split.items():
        flat = values.ravel()
        flat = flat[~np.isnan(flat)] if flat.dtype.kind == "f" else flat[flat >= 0]
        counts[split] = np.bincount(flat.astype(np.int64), minlength=len(names)).tolist()
    longest = max((len(values) for values in counts.values()), default=0)
    names += [str(c) for c in range(len(names), longest)]
    counts = {split: values + [0] * (longest - len(values)) for split, values in counts.items()}
    return run_plots.class_balance(counts, names)


def partition_section(parents: Mapping[str, Parent]) -> Section:
    """Edge cut, balance and who is cut from whom."""
    manifest: PartitionManifest = parents["partition"].manifest
    section = Section("Partition")
    if manifest.num_parts < 2:
        return section
    section.facts = [
        ("partitioner", manifest.partitioner),
        ("parts", str(manifest.num_parts)),
        ("edge cut", f"{100 * manifest.edge_cut:.2f} % of the edges join two parts"),
        (
            "balance",
            f"largest part {manifest.node_balance:.3f} x the mean; training nodes {manifest.train_balance:.3f} x",
        ),
    ]
    if manifest.halo_sizes:
        share = 100 * sum(manifest.halo_sizes) / max(1, manifest.num_nodes)
        section.facts.append(("halo", f"{sum(manifest.halo_sizes):,} copies of nodes, {share:.1f} % of the graph"))
    _add(section, run_plots.cut_matrix(manifest.report), "Edges between each pair of parts; the diagonal stays at home")
    _add(section, run_plots.part_sizes(manifest.report), "Nodes and training nodes of each part against the mean")
    return section


def training_section(parents: Mapping[str, Parent]) -> Section:
    """Curves and speed."""
    run, folder = parents["train"].manifest, parents["train"].folder
    records = read_records(folder / run.metrics_file)
    section = Section("Training")
    section.facts = [
        ("model", f"{run.model.get('name', '')}, {run.num_parameters:,} parameters"),
        ("ranks", f"{run.world_size} ({run.strategy})"),
        ("epochs", f"{run.epochs_run}, the best was {run.best_epoch}"),
        ("speed", f"{compact(run.seeds_per_second)} seeds/s, {compact(run.edges_per_second)} edges/s"),
        ("seed", str(run.seed)),
    ]
    if run.resumed_from_epoch or run.restarts:
        section.facts.append(("interruptions", f"resumed from epoch {run.resumed_from_epoch}, {run.restarts} restarts"))
    _add(section, run_plots.loss_curves(records), "Loss")
    _add(section, run_plots.metric_curves(records, run.best_epoch), "Validation metrics")
    return section


def evaluation_section(parents: Mapping[str, Parent]) -> Section:
    """What the evaluation drew."""
    evaluation: EvalReport = parents["evaluate"].manifest
    section = Section("Evaluation in detail")
    section.facts = [(f"note {n + 1}", note) for n, note in enumerate(evaluation.report.get("notes", []))]
    for _, caption, canvas in eval_plots.all_of(evaluation.report):
        _add(section, canvas, caption)
    return section


def stage_rows(parents: Mapping[str, Parent]) -> list[dict[str, Any]]:
    """Return time, memory, rows and bytes of each stage."""
    rows = []
    for name, parent in parents.items():
        m = parent.manifest
        speed = f"{compact(m.rows / m.seconds)}/s" if m.rows and m.seconds > 0 else ""
        rows.append(
            {
                "name": name,
                "seconds": m.seconds,
                "peak_bytes": m.peak_bytes,
                "rows": f"{m.rows:,}" if m.rows else "",
                "speed": speed,
                "size": f"{m.num_bytes / 1e6:,.1f} MB",
                "made": m.created_at,
            }
        )
    return rows


def lineage(parents: Mapping[str, Parent]) -> list[tuple[str, str, str, str]]:
    """Return (stage, key, digest, code version) of each artifact."""
    return [(name, p.manifest.key, p.manifest.digest, p.manifest.code_version) for name, p in parents.items()]


def recipe_rows(recipe: Recipe) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return all options by section as rows of (option, value), without what was left at null."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for key, value in all_options(recipe).items():
        section, _, option = key.partition(".")
        if value != "null" and (section != "snapshot" or recipe.snapshot.as_of is not None):
            sections.setdefault(section, []).append((option or section, value))
    return list(sections.items())


def picture(canvas: Canvas | None, caption: str) -> Picture | None:
    """Turn a canvas into a figure of the page."""
    return None if canvas is None else Picture(caption, canvas.svg(caption))


def _add(section: Section, canvas: Canvas | None, caption: str) -> None:
    made = picture(canvas, caption)
    if made is not None:
        section.pictures.append(made)


def write_report(
    path: Path,
    recipe: Recipe,
    parents: Mapping[str, Parent],
    published: Published,
    snapshot: snapshots.SnapshotSummary | None = None,
) -> None:
    """Write the page."""
    path.write_text(render(recipe, parents, published, snapshot), encoding="utf-8")
