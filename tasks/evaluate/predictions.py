"""Predictions as one Parquet file under the users' own ids.

| task | columns |
|---|---|
| node: multiclass | `id`, `split`, `label`, `prediction`, `score`: probability of the predicted class |
| node: binary | the same; `score`: probability of class 1 |
| node: several labels | the same, with fixed-size lists |
| node: regression | `id`, `split`, `label`, `prediction` |
| node: several tasks | `id`, `split`, and of each task its columns, as `TASK_label`, `TASK_prediction`, `TASK_score` |
| recommended | `id`, `split`, `place` from 1, `prediction`: what is recommended, `score` (raw), `label`: 1 if right |
| graph | as nodes, with `graph_id` and `row` in place of `id` |
| triple | `head`, `tail`, `relation`, `split`, `head_rank` and `tail_rank`: filtered, of each end among all entities |
| link | `source`, `target`, `split`, `label` (1: an edge), `score` (raw), `rank` among its negatives (edges only) |

Entities at moments have `id` (`ENTITY@MOMENT`), and `entity` and `moment` beside it.
`row` is the graph's number in the data set, from 0: ids of graphs may repeat (names of molecules do). Where ids of
nodes do, files have their `row` too, or `source_row` and `target_row`. A missing label is null. Nodes of no split have
`split` null: what a model is for. Pairs that somebody asks about have `source`, `target` and `score` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.evaluate.threshold import Threshold
from tasks.evaluators.metrics import Array, Floats, probabilities, sigmoid
from tasks.inference.ranked import Lists
from tasks.storage.graph_store import slices
from tasks.storage.heads import HeadView
from tasks.storage.ids import IdMap
from tasks.storage.parquet_output import ParquetOutput

FILE_NAME = "predictions.parquet"
_ROWS_AT_A_TIME = 1 << 17


class PredictionWriter(ParquetOutput):
    """Writes predictions split by split; the file appears when it is closed without an error."""

    def __init__(
        self,
        folder: Path,
        task_type: str,
        names: list[str] | None = None,
        label_names: list[str] | None = None,
        heads: Sequence[HeadView] = (),
    ) -> None:
        """`names` are those of the model's classes, where the data set kept them, `label_names` those of the data's.

        `heads`: several tasks.
        """
        super().__init__(folder / FILE_NAME)
        self._heads = [(view, PredictionWriter(folder, view.head.task_type)) for view in heads]
        self._task_type = task_type
        self._names = None if names is None else np.array(names, object)
        self._label_names = self._names if label_names is None else np.array(label_names, object)
        self.threshold: Threshold | None = None
        """From which probability a class is predicted; None: the likeliest is."""

    def items(self, ids: dict[str, pa.Array], split: str | pa.Array | None, label: Array, scores: Floats) -> None:
        """Write nodes or graphs: ids (n,) by column, split one for all or (n,), label (n,) or (n, T), scores (n, C)."""
        for rows in slices(len(scores), _ROWS_AT_A_TIME):
            splits = split[rows] if isinstance(split, pa.Array) else _constant(split, len(scores[rows]))
            columns = {**{name: column[rows] for name, column in ids.items()}, "split": splits}
            columns.update(self._judged(label[rows], scores[rows]))
            self.write(pa.table(columns))

    def edges(self, ends: dict[str, pa.Array], split: str, label: int, score: Floats, rank: Array | None) -> None:
        """Write node pairs: columns of their ends (n,); `rank` (n,) for true edges."""
        for rows in slices(len(score), _ROWS_AT_A_TIME):
            num_rows = len(score[rows])
            ranks = pa.nulls(num_rows, pa.float64()) if rank is None else pa.array(rank[rows], pa.float64())
            columns = {
                **{name: column[rows] for name, column in ends.items()},
                "split": _constant(split, num_rows),
                "label": pa.array(np.full(num_rows, label, np.int8)),
                "score": pa.array(score[rows], pa.float32()),
                "rank": ranks,
            }
            self.write(pa.table(columns))

    def triples(
        self, ends: dict[str, pa.Array], relation: pa.Array, split: str, head_rank: Floats, tail_rank: Floats
    ) -> None:
        """Write triples: columns of their ends, relations and filtered ranks, (n,) each."""
        columns = {
            **ends,
            "relation": relation,
            "split": _constant(split, len(head_rank)),
            "head_rank": pa.array(head_rank, pa.float64()),
            "tail_rank": pa.array(tail_rank, pa.float64()),
        }
        for rows in slices(len(head_rank), _ROWS_AT_A_TIME):
            self.write(pa.table({name: column[rows] for name, column in columns.items()}))

    def lists(self, ids: dict[str, pa.Array], split: str | pa.Array | None, names: IdMap, lists: Lists) -> None:
        """Write what is recommended to nodes, a row each; ids (n,) by column, split one for all or (n,)."""
        for part in slices(len(lists.candidates), max(1, _ROWS_AT_A_TIME // max(1, lists.candidates.shape[1]))):
            candidates = lists.candidates[part]
            row, place = np.nonzero(candidates >= 0)
            taken, right = pa.array(row + part.start), lists.right[part][row, place]
            splits = split.take(taken) if isinstance(split, pa.Array) else _constant(split, len(row))
            columns = {name: column.take(taken) for name, column in ids.items()} | {
                "split": splits,
                "place": pa.array(place + 1, pa.int32()),
                "prediction": names.lookup(candidates[row, place]),
                "score": pa.array(lists.scores[part][row, place], pa.float32()),
                "label": _values(right[:, None], pa.int8()),
            }
            self.write(pa.table(columns))

    def pairs(self, ids: dict[str, pa.Array], score: Floats) -> None:
        """Write node pairs that somebody asks about."""
        self.write(pa.table({**ids, "score": pa.array(score, pa.float32())}))

    def _judged(self, label: Array, scores: Floats) -> dict[str, pa.Array]:
        if not self._heads:
            return judged(self._task_type, label, scores, self._names, self._label_names, self.threshold)
        found: dict[str, pa.Array] = {}
        for view, writer in self._heads:
            own = writer._judged(view.label_of(label), scores[:, view.scores])
            found |= {f"{view.head.name}_{column}": values for column, values in own.items()}
        return found


def judged(
    task_type: str,
    label: Array,
    scores: Floats,
    names: Array | None = None,
    label_names: Array | None = None,
    threshold: Threshold | None = None,
) -> dict[str, pa.Array]:
    """Return the columns `label`, `prediction` and, but for regression, `score` of nodes or graphs.

    Args:
        task_type: of the label.
        label: (n,) or (n, T).
        scores: raw outputs (n, C).
        names: of the model's classes, texts (C,); None: their numbers.
        label_names: of the data's classes; None: those of the model.
        threshold: from which probability a class is predicted; None: the likeliest is.
    """
    if label.ndim == 1 and np.issubdtype(label.dtype, np.integer):
        if scores.shape[1] > 1:
            predicted, probability = scores.argmax(axis=1), probabilities(scores)
            if threshold is not None:
                others = scores.copy()
                others[:, threshold.code] = -np.inf
                predicted = np.where(
                    probability[:, threshold.code] >= threshold.probability, threshold.code, others.argmax(axis=1)
                )
            score = probability[np.arange(len(scores)), predicted]
        else:
            predicted, score = _from(scores[:, 0], threshold).astype(np.int64), sigmoid(scores[:, 0])
        return {
            "label": _classes(names if label_names is None else label_names, label, label < 0),
            "prediction": _classes(names, predicted, None),
            "score": pa.array(score, pa.float32()),
        }
    label = label.reshape(len(label), -1)
    if task_type == "regression":
        return {"label": _values(label, pa.float32()), "prediction": _values(scores, pa.float32())}
    if scores.shape[1] == 2 and label.shape[1] == 1:
        scores = scores[:, 1:] - scores[:, :1]
    return {
        "label": _values(label, pa.int8()),
        "prediction": _values(_from(scores, threshold).astype(np.float32), pa.int8()),
        "score": _values(sigmoid(scores), pa.float32()),
    }


def _from(scores: Floats, threshold: Threshold | None) -> Array:
    """Return where a label is predicted to be 1."""
    return scores > 0 if threshold is None else sigmoid(scores) >= threshold.probability


def _classes(names: Array | None, index: Array, missing: Array | None) -> pa.Array:
    if names is None:
        return pa.array(index, pa.int64(), mask=missing)
    if not len(names):  # of data without a label
        return pa.nulls(len(index), pa.string())
    known = index if missing is None else np.where(missing, 0, index)
    return pa.array(names[known], pa.string(), mask=missing)


def _constant(text: str | None, num_rows: int) -> pa.Array:
    return pa.nulls(num_rows, pa.string()) if text is None else pa.repeat(text, num_rows)


def _values(values: Array, kind: Any) -> pa.Array:
    """A column of numbers, NaN as null; fixed-size lists where there are several a row."""
    missing = np.isnan(values)
    flat = pa.array(np.where(missing, 0, values).ravel(), mask=missing.ravel()).cast(kind, safe=False)
    return flat if values.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
