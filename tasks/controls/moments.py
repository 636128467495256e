"""Controls of rows at moments: models that see an entity's row or what lies one key away, alone; and the past."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.errors import DataError
from models.kernels.threads import num_threads
from tasks.arrays import Array, blocks, sample_rows
from tasks.controls import boosting
from tasks.controls.entities import EntityRows
from tasks.controls.features import ControlledGraph, OwnFeatures, labelled, text_places, training_sample
from tasks.controls.linear import LinearControl
from tasks.controls.suite import FittedControl
from tasks.storage.controls import (
    BOOSTED_CONTROL,
    FEATURES_CONTROL,
    LAST_VALUE_CONTROL,
    OWN_MEAN_CONTROL,
    TEXTS_CONTROL,
)
from tasks.storage.graph_store import GraphStore, create_array
from tasks.storage.ids import IdMap
from tasks.storage.manifests import FeatureColumn

_MOST_ROWS = 200_000
"""Training rows that trees are fitted to: some seconds."""
_MOST_COLUMNS = 30
"""Labels a row, for each of which trees are fitted."""
_CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class BoostedControl(FittedControl):
    """Trees over the entity's own row and age, and what lies one key away."""

    store: GraphStore
    entities: EntityRows
    model: boosting.BoostedColumns

    def scores(self, rows: Array) -> Array:
        """Score rows, some at a time."""
        places = self.entities.places(rows)
        parts = blocks(max(1, len(places)), _CHUNK_ROWS)
        return np.concatenate([self.model(tree_features(self.entities, places[part])) for part in parts])

    def state(self) -> tuple[dict[str, Array], list[str]]:
        """Return LightGBM's texts of the trees, one a label, and the constants of labels that have none."""
        columns = self.model.columns
        constants = {f"constant-{i}": np.array(one.constant) for i, one in enumerate(columns) if one.trees is None}
        texts = ["" if one.trees is None else one.trees.model_to_string() for one in columns]
        return constants | {"num_scores": np.array([columns[0].num_scores])}, texts


def tree_features(entities: EntityRows, places: Array) -> Array:
    """Return codes of the rows and of their ends, then numbers, then the relations' columns: float32 (n, D)."""
    parts = [entities.codes, entities.end_codes, entities.numbers, entities.nearby]
    return np.concatenate([np.asarray(part[places], np.float32) for part in parts], axis=1)


def held_rows(store: GraphStore) -> Array:
    """Return the rows of all splits, int64 (n,), ascending."""
    names = [f"{split}_idx" for split in store.manifest.splits]
    return np.unique(np.concatenate([np.asarray(store[name], np.int64) for name in names if name in store]))


def moment_controls(graph: ControlledGraph, num_scores: int) -> dict[str, FittedControl]:
    """Fit all of them to the training split, the trees' number to the validation split."""
    store, manifest = graph.store, graph.store.manifest
    held = {split: np.asarray(store[f"{split}_idx"], np.int64) for split in manifest.splits if f"{split}_idx" in store}
    entities = graph.entities or EntityRows(store, held_rows(store), graph.scratch)
    controls: dict[str, FittedControl] = {FEATURES_CONTROL: _linear(graph, entities, held["train"], num_scores)}
    texts = np.flatnonzero(np.isin(entities.columns, text_places(manifest)))
    if len(texts) not in (0, len(entities.columns) + entities.codes.shape[1]):
        controls[TEXTS_CONTROL] = _linear(graph, entities, held["train"], num_scores, texts)
    if manifest.num_tasks <= _MOST_COLUMNS:
        goal = boosting.Goal(manifest.label_type, num_scores, manifest.metric, num_threads())
        samples = []
        for split in ("train", "valid"):
            rows = sample_rows(held.get(split, held["train"][:0]), _MOST_ROWS)
            x = tree_features(entities, entities.places(rows))
            samples.append(boosting.LabelledRows(x, np.asarray(store["label"][rows])))
        codes = entities.codes.shape[1] + entities.end_codes.shape[1]
        trees = boosting.fit_columns(samples[0], samples[1], list(range(codes)), goal)
        controls[BOOSTED_CONTROL] = BoostedControl(store, entities, trees)
    return controls


def _linear(
    graph: ControlledGraph, entities: EntityRows, train: Array, num_scores: int, only: Array | None = None
) -> LinearControl:
    """Fit it; `only`: to these numbers alone, int64 (n,)."""
    numbers, codes = entities.numbers, entities.codes
    if only is not None:
        numbers = create_array(graph.scratch / "entity-texts.npy", (len(numbers), len(only)), np.float32)
        for some in blocks(len(numbers), _CHUNK_ROWS):
            numbers[some] = entities.numbers[some][:, only]
        codes = codes[:, :0]
    features = OwnFeatures(numbers, codes)
    columns = [FeatureColumn(column="numbers", kind="numeric", dim=numbers.shape[1])]
    if codes.shape[1]:
        columns.append(FeatureColumn(column="codes", kind="categorical", dim=codes.shape[1]))
    sample = training_sample(labelled(train, graph.store["label"]), tuple(columns), num_scores)
    label = np.asarray(graph.store["label"][sample])
    return LinearControl.fit(graph.store, features, sample, label, num_scores, entities.places)


PAST_COLUMNS = (LAST_VALUE_CONTROL, OWN_MEAN_CONTROL)
"""Of the table of tasks."""


@dataclass(frozen=True)
class PastControl(FittedControl):
    """Scores tasks by a column that ingest computed; those without a value there by the training split's mean."""

    store: GraphStore
    ids: IdMap
    values: Array
    """float32 (N of the tasks' type, T)."""
    otherwise: Array
    """float32 (T,)."""

    def scores(self, rows: Array) -> Array:
        """Score nodes; those of binary labels are above 0 where the value is above one half."""
        values = self.values[self.ids.rows(rows)]
        values = np.where(np.isnan(values), self.otherwise, values)
        threshold = 0.5 if self.store.manifest.label_type.is_yes_or_no else 0.0
        return np.asarray(values - threshold, np.float32)

    def state(self) -> tuple[dict[str, Array], list[str]]:
        """Return what those without a value get."""
        return {"otherwise": np.asarray(self.otherwise)}, []

    @classmethod
    def of(cls, graph: ControlledGraph, name: str, otherwise: Array) -> PastControl:
        """Read the column of the table of tasks. Raises DataError: the data has none."""
        table = f"nodes/{graph.store.manifest.target_type}"
        stored = graph.dataset.manifest.tables.get(table)
        if stored is None or name not in stored.columns:
            raise DataError(f"{graph.dataset.manifest.dataset} has no earlier values of what is predicted ({name})")
        values = graph.dataset.column(table, name).reshape(stored.num_rows, -1)[:, graph.labels or slice(None)]
        return cls(graph.store, graph.ids, values, otherwise)


def past_controls(graph: ControlledGraph) -> dict[str, PastControl]:
    """Return them, where the data set's targets are computed from its tables."""
    manifest = graph.store.manifest
    table = f"nodes/{manifest.target_type}"
    stored = graph.dataset.manifest.tables.get(table)
    if stored is None or PAST_COLUMNS[0] not in stored.columns:
        return {}
    train = np.asarray(graph.store["label"][np.asarray(graph.store["train_idx"])])
    otherwise = np.nan_to_num(np.nanmean(train, axis=0)) if len(train) else np.zeros(1)
    return {name: PastControl.of(graph, name, otherwise) for name in PAST_COLUMNS}
