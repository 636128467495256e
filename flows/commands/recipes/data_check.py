"""Read and check a recipe's data as ingest and preprocess do, without leaving anything behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import RecipeError, UserError
from configs.registry import TEXTS
from configs.schema import Recipe
from tasks.ingest.labels import has_label
from tasks.ingest.stage import checked_fields, open_dataset, refuse_too_large
from tasks.ingest.tables.batches import TableError
from tasks.kinds.measurable import check_graph, split_labels
from tasks.kinds.of import kind_of
from tasks.stage import Listener, Parent, StageContext
from tasks.storage.artifacts import describe_files
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.home_files.temporary import own_folder
from tasks.storage.ids import class_names
from tasks.storage.manifests import DatasetManifest, GraphManifest
from tasks.storage.snapshots import check_snapshot
from tasks.train.families import check_options, unread_edge_features


@dataclass
class DataCheck:
    """What was found. Everything behind a mistake that ends the reading is empty."""

    tables: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Of users' tables: files to column to `kind`, `rows`, `missing` (empty cells); of what was read of them."""
    unread: dict[str, list[str]] = field(default_factory=dict)
    """Of users' tables: files to the columns that the recipe does not name."""
    notes: list[str] = field(default_factory=list)
    """What was found out about the files by itself."""
    nodes: dict[str, int] = field(default_factory=dict)
    """Type to number of nodes."""
    edges: dict[str, int] = field(default_factory=dict)
    """Type to number of edges; on link tasks those that train."""
    adjusted: dict[str, int] = field(default_factory=dict)
    """What policies dropped, added or filled, to the number of rows."""
    splits: dict[str, int] = field(default_factory=dict)
    """Split to its size; of a snapshot, as of its moment."""
    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Class to its rows in each split."""
    relations: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of triple tasks: relation to its triples in each split, the most frequent first."""
    negatives: list[str] = field(default_factory=list)
    """Of link tasks: what negatives join, for each relation that links are predicted in."""
    unlabelled: int = 0
    """Nodes of the labelled type, or graphs, without a label."""
    graph: dict[str, Any] = field(default_factory=dict)
    """Of the graph for messages: nodes that no edge touches, connected components and the largest."""
    warnings: list[str] = field(default_factory=list)
    mistakes: list[dict[str, Any]] = field(default_factory=list)
    """`message` and `rows` of each cause."""

    @property
    def ok(self) -> bool:
        """Whether the first stages would take the data."""
        return not self.mistakes

    @contextmanager
    def recording_mistakes(self) -> Iterator[None]:
        """Go on behind the block where a user's mistake ends it, and record it."""
        try:
            yield
        except TableError as error:
            said = [{"message": one.message, "rows": one.count} for one in error.mistakes]
            if error.num_others:
                said.append({"message": "and more, of other kinds or columns", "rows": error.num_others})
            self.mistakes += [one for one in said if one not in self.mistakes]
        except UserError as error:
            self.mistakes.append({"message": str(error), "rows": 0})


class _CheckListener(Listener):
    """Passes progress on, and keeps warnings for the end, where the check says what was found."""

    def __init__(self, outer: Listener, warnings: list[str]) -> None:
        self.outer, self.warnings = outer, warnings

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        """Pass it on."""
        self.outer.progress(stage, done, total, unit, note)

    def message(self, stage: str, text: str) -> None:
        """Leave it."""

    def warning(self, stage: str, text: str) -> None:
        """Keep it."""
        self.warnings.append(text)


def check_data(recipe: Recipe, home: Home, listener: Listener) -> DataCheck:
    """Ingest and preprocess into a temporary folder of the home, which goes; return what was found, mistakes included.

    Disk and memory: as of these stages. Raises RecipeError: the home cannot be written; StageError: its disk is full.
    """
    check = DataCheck()
    with ExitStack() as stack:
        try:
            place = stack.enter_context(own_folder(home))
        except PermissionError as error:
            raise RecipeError(f"the home cannot be written ({error}); choose another with --home DIR") from error
        refuse_too_large(recipe, place)
        collector = _CheckListener(listener, check.warnings)
        with check.recording_mistakes():
            check_snapshot(recipe)
        with check.recording_mistakes():
            check_options(recipe)
        with check.recording_mistakes():
            ingested = _ingest(recipe, home, place, collector, check)
            if "relations" in ingested.manifest.tables and ingested.manifest.split_rows.are_pairs:
                check.relations = _relation_counts(DatasetStore(ingested.folder, ingested.manifest), None)
            if check.ok:
                _preprocess(recipe, home, place, collector, check, ingested)
    return check


def _context(stage: str, home: Home, place: Path, listener: Listener) -> StageContext:
    work = place / stage
    work.mkdir()
    return StageContext(stage, work, home, PickleCache(Home(place)), listener)


def _ingest(recipe: Recipe, home: Home, place: Path, listener: Listener, check: DataCheck) -> Parent:
    context = _context("ingest", home, place, listener)
    dataset = open_dataset(recipe)
    try:
        fields = checked_fields(recipe, dataset.ingest(context), context.work)
    finally:
        intake = getattr(dataset, "intake", None)  # users' tables: also of what a mistake ended
        for files, columns in intake.survey.items() if intake is not None else ():
            seen = {name: column.as_json() for name, column in columns.items() if column.rows}
            if seen:  # of a table that could not be read there is nothing to show
                check.tables[files] = seen
        if intake is not None:
            check.unread, check.notes = intake.unread, intake.notes
    manifest = DatasetManifest(**_manifest_fields("ingest", context.work), **fields)
    check.nodes = {one.name: one.num_nodes for one in manifest.node_types}
    check.edges = {one.name: one.num_edges for one in manifest.edge_types}
    check.adjusted, check.splits = manifest.adjusted, {} if recipe.is_layout else manifest.splits
    return Parent(manifest, context.work)


def _preprocess(
    recipe: Recipe, home: Home, place: Path, listener: Listener, check: DataCheck, ingested: Parent
) -> None:
    from tasks.components.connected import number_components
    from tasks.preprocess.stage import STAGE
    from tasks.train.labels.class_weights import check_training

    context = _context("preprocess", home, place, listener)
    fields = STAGE.build(context, _without_slow_texts(recipe, ingested.manifest), {"ingest": ingested})
    graph = GraphStore(context.work, GraphManifest(**_manifest_fields("preprocess", context.work), **fields))
    check.splits = {} if recipe.is_layout else graph.manifest.splits
    unread = unread_edge_features(recipe, graph.manifest)
    if unread is not None:
        check.warnings.append(unread)
    check.negatives = graph.manifest.report.get("negatives", [])
    dataset = DatasetStore(ingested.folder, ingested.manifest)
    if check.relations and recipe.time_moment is not None:
        check.relations, check.edges = _relation_counts(dataset, graph), {}
    kind = kind_of(graph.manifest)
    label = kind.labels(graph)
    if label is not None and graph.manifest.label_type.one_decision:
        labels = {"rows": label} if recipe.is_layout else split_labels(graph, label)
        check.classes = _class_counts(labels, class_names(dataset), max(2, graph.manifest.num_classes))
    if not recipe.is_layout:
        with check.recording_mistakes():
            check_graph(recipe.evaluate, graph, dataset, check.warnings.append, recipe.tracking.gate_metric)
        with check.recording_mistakes():
            check_training(recipe, graph, class_names(dataset), check.notes.append)
    label = graph.get(graph.manifest.split_rows.labels)
    if label is not None:
        count, node_type = len(label), graph.get("node_type")
        if graph.manifest.split_rows.are_nodes and node_type is not None:
            names = [one.name for one in ingested.manifest.node_types]
            count = int(np.count_nonzero(node_type == names.index(ingested.manifest.target_type)))
        check.unlabelled = count - int(np.count_nonzero(has_label(label)))
    if not graph.manifest.split_rows.are_graphs:
        count, component = number_components(graph)
        largest = int(np.bincount(component).max(initial=0))
        isolated = int(graph.manifest.report["degrees"]["isolated"])
        check.graph = {"without_in_edge": isolated, "components": int(count), "largest_component": largest}


def _without_slow_texts(recipe: Recipe, manifest: DatasetManifest) -> Recipe:
    """Return the recipe with another encoder in the place of a slow one, which is opened. Raises RecipeError."""
    from tasks.preprocess.texts.base import make_encoder

    encoder = make_encoder(recipe.preprocess.texts)
    columns = [one for kind in manifest.node_types for one in kind.features]
    columns += [one for kind in manifest.edge_types for one in kind.features]
    if not encoder.is_slow or not any(one.kind == "text" for one in columns):
        return recipe
    encoder.learn(pa.array([], pa.large_string()))
    quick = recipe.preprocess.model_copy(update={"texts": TEXTS.config({"name": "tfidf", "dim": 1})})
    return recipe.model_copy(update={"preprocess": quick})


def _relation_counts(dataset: DatasetStore, graph: GraphStore | None) -> dict[str, dict[str, int]]:
    names = dataset.read("relations", ["name"])["name"].to_pylist()
    counts = {split: np.zeros(len(names), np.int64) for split in dataset.manifest.splits}
    for split, count in counts.items():
        if graph is not None:
            count += np.bincount(graph[f"{split}_relation"], minlength=len(names))
            continue
        for _, rows in dataset.row_groups(f"split/{split}", ["relation"]):
            count += np.bincount(rows["relation"].to_numpy(), minlength=len(names))
    order = np.argsort(-sum(counts.values(), np.zeros(len(names), np.int64)), kind="stable")
    return {names[r]: {split: int(count[r]) for split, count in counts.items()} for r in order.tolist()}


def _class_counts(labels: Mapping[str, Array], names: list[str] | None, num_classes: int) -> dict[str, dict[str, int]]:
    counts = {}
    for split, values in labels.items():
        flat = values.reshape(len(values), -1)[:, 0]
        counts[split] = np.bincount(flat[flat >= 0].astype(np.int64), minlength=num_classes)
    words = names or [str(code) for code in range(num_classes)]
    return {word: {split: int(count[code]) for split, count in counts.items()} for code, word in enumerate(words)}


def _manifest_fields(stage: str, work: Path) -> dict[str, Any]:
    common = {"stage": stage, "stage_version": 0, "key": "check", "config": {}, "parents": {}}
    return {**common, "files": describe_files(work)}
