"""Predictions as one Parquet file under the users' own ids.

| task | columns |
|---|---|
| node: multiclass | `id`, `split`, `label`, `prediction`, `score`: probability of the predicted class |
| node: two classes | the same, and the probability of each by its name: `probability_no`, `probability_yes` |
| node: binary | the same; `score` and `probability_1`: probability of class 1 |
| node: several labels | the same, with fixed-size lists |
| node: regression | `id`, `split`, `label`, `prediction` |
| node: several tasks | `id`, `split`, and of each task its columns: `TASK_label`, `TASK_prediction`, `TASK_score` ... |
| recommended | `id`, `split`, `place` from 1, `prediction`: what is recommended, `score` (raw), `label`: 1 if right |
| graph | as nodes, with `graph_id` and `row` in place of `id` |
| triple | `head`, `tail`, `relation`, `split`, `head_rank` and `tail_rank`: filtered, of each end among all entities |
| edge | as nodes, with `edge_id` (if edges have ids), `source`, `target` and `row` of their table in place of `id` |
| link | `source`, `target`, `split`, `label` (1: an edge), `score` (raw), `rank` among its negatives (edges only) |

Entities at moments have `id` (`ENTITY@MOMENT`), and `entity` and `moment` beside it.
`row` is the graph's number in the data set, from 0: ids of graphs may repeat (names of molecules do). Where ids of
nodes do, files have their `row` too, or `source_row` and `target_row`. A missing label is null. Nodes of no split have
`split` null: what a model is for. Pairs that somebody asks about have `source`, `target` and `score` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from configs.label_types import LabelType
from tasks.evaluators.metrics import Array, Floats, probabilities, sigmoid
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import SPLITS

FILE_NAME = "predictions.parquet"
PROBABILITY = "probability_"
"""What a column of a class's probability is called by, before the class."""


@dataclass(frozen=True)
class Threshold:
    """A class is predicted from a probability on; below it the likeliest of the others."""

    code: int
    """Of the class; 1 of a binary label."""
    probability: float


@dataclass(frozen=True)
class Deciding:
    """How scores become what a file of predictions says."""

    classes: list[str] | None = None
    """Names of the model's classes, where they are known."""
    data_classes: list[str] | None = None
    """Those of the data's, where they are others."""
    threshold: Threshold | None = None
    """From which probability a class is predicted; None: the likeliest is."""
    label_order: list[int] | None = None
    """Where among the model's scores those of each of the data's label columns stand; None: in the same places."""

    def ordered(self, scores: Floats) -> Floats:
        """Return scores (n, C) in the order of the data's label columns."""
        return scores if self.label_order is None else scores[:, self.label_order]

    def judged(self, kind: LabelType, label: Array, scores: Floats) -> dict[str, pa.Array]:
        """Return the columns `label`, `prediction` and, but for regression, `score` of nodes or graphs.

        Of two classes, and of one binary label, `probability_CLASS` too: `score` is not of the same class in each row.

        `kind`: type of the label, (n,) or (n, T); `scores`: raw outputs (n, C).
        """
        if label.ndim == 1 and np.issubdtype(label.dtype, np.integer):
            probability = probabilities(scores)
            predicted = self.predicted(scores, probability)
            names = (self.classes or ["0", "1"]) if scores.shape[1] == 2 else ()
            of_classes = {f"{PROBABILITY}{name}": probability[:, code] for code, name in enumerate(names)}
            label_names = self.classes if self.data_classes is None else self.data_classes
            return {
                "label": _classes(label_names, label, label < 0),
                "prediction": _classes(self.classes, predicted, None),
                "score": pa.array(probability[np.arange(len(scores)), predicted], pa.float32()),
                **{name: pa.array(one, pa.float32()) for name, one in of_classes.items()},
            }
        label = label.reshape(len(label), -1)
        if kind.is_number:
            return {"label": values_column(label, pa.float32()), "prediction": values_column(scores, pa.float32())}
        probability = sigmoid(scores)
        is_one = scores > 0 if self.threshold is None else probability >= self.threshold.probability
        of_one = values_column(probability, pa.float32())
        return {
            "label": values_column(label, pa.int8()),
            "prediction": values_column(is_one.astype(np.float32), pa.int8()),
            "score": of_one,
        } | ({f"{PROBABILITY}1": of_one} if label.shape[1] == 1 else {})

    def predicted(self, scores: Floats, probability: Floats) -> Array:
        """Return the predicted class of each row, int64 (n,); both are (n, C)."""
        if self.threshold is None:
            return scores.argmax(axis=1)
        code, others = self.threshold.code, scores.copy()
        others[:, code] = -np.inf
        return np.where(probability[:, code] >= self.threshold.probability, code, others.argmax(axis=1))


def _classes(names: list[str] | None, index: Array, missing: Array | None) -> pa.Array:
    if names is None:
        return pa.array(index, pa.int64(), mask=missing)
    if not names:  # of data without a label
        return pa.nulls(len(index), pa.string())
    codes = index if missing is None else np.where(missing, 0, index)
    return pa.array(np.array(names, object)[codes], pa.string(), mask=missing)


def split_column(split: Any, rows: slice, count: int) -> pa.Array:
    """Return the column `split` of some rows, `count` of them: see `tasks.kinds.base.TaskRows`."""
    if isinstance(split, np.ndarray):
        return pa.array([*SPLITS, None], pa.string()).take(pa.array(split[rows]))
    return pa.nulls(count, pa.string()) if split is None else pa.repeat(split, count)


def values_column(values: Array, kind: Any) -> pa.Array:
    """A column of numbers, NaN as null; fixed-size lists where there are several a row."""
    missing = np.isnan(values)
    flat = pa.array(np.where(missing, 0, values).ravel(), mask=missing.ravel()).cast(kind, safe=False)
    return flat if values.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def as_probabilities(kind: LabelType, scores: Array) -> Array:
    """Return a model's scores (n, C) as probabilities; a regression's as they are.

    Classes that exclude each other: softmax; labels of yes or no: of each by itself.
    """
    if kind.is_number:
        return scores
    return probabilities(scores) if kind.one_of_many else sigmoid(scores)


def splits_of(store: GraphStore, items: Array, count: int) -> Array:
    """Return the split of each of some nodes or graphs, `count` in all: int8 (n,), its place in SPLITS, or behind."""
    code = np.full(count, len(SPLITS), np.int8)
    for number, split in enumerate(SPLITS):
        index = store.get(f"{split}_idx")
        if index is not None:
            code[np.asarray(index)] = number
    return code[items]
