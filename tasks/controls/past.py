"""Controls of computed targets: that all stays as it was, by the same figure of the time before the moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.controls.features import ControlledGraph
from tasks.evaluators.prediction import Prediction
from tasks.storage.controls import LAST_VALUE_CONTROL, OWN_MEAN_CONTROL

COLUMNS = (LAST_VALUE_CONTROL, OWN_MEAN_CONTROL)
"""Of the table of tasks."""


@dataclass(frozen=True)
class PastControl:
    """Scores tasks by a column that ingest computed; those without a value there by the training split's mean."""

    graph: ControlledGraph
    values: Array
    """float32 (N of the tasks' type, T)."""
    otherwise: Array
    """float32 (T,)."""

    def predict(self, split: str, prediction: Prediction) -> Prediction:
        """Score a split's rows."""
        nodes = np.asarray(self.graph.store[f"{split}_idx"], np.int64)
        return Prediction(scores=self.scores(nodes), label=prediction.label)

    def scores(self, nodes: Array) -> Array:
        """Score nodes, float32 (n, T); those of binary labels are above 0 where the value is above one half."""
        rows = self.graph.ids.rows(nodes)
        values = np.where(np.isnan(self.values[rows]), self.otherwise, self.values[rows])
        threshold = 0.5 if self.graph.store.manifest.label_type.is_yes_or_no else 0.0
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
        return cls(graph, values, otherwise)


def past_controls(graph: ControlledGraph) -> dict[str, PastControl]:
    """Return them, where the data set's targets are computed from its tables."""
    manifest = graph.store.manifest
    table = f"nodes/{manifest.target_type}"
    stored = graph.dataset.manifest.tables.get(table)
    if stored is None or COLUMNS[0] not in stored.columns:
        return {}
    train = np.asarray(graph.store["label"][np.asarray(graph.store["train_idx"])])
    otherwise = np.nan_to_num(np.nanmean(train, axis=0)) if len(train) else np.zeros(1)
    return {name: PastControl.of(graph, name, otherwise) for name in COLUMNS}
