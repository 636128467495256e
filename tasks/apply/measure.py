"""What the gate's own process runs (started by `tasks.supervise`): models measured on the same rows.

The rows are those of one graph, the new model's. Each model reads a graph of the same data that was prepared as its own
training prepared it, where rows are found by the ids that the data set gave them: nodes, pairs of nodes or graphs. So
both score the same items, links the same negatives too, and both are judged by the new graph's labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError, IntegrityError, OtherGraphError, UserError
from configs.metric_names import EVEN_METRICS, metric_of
from tasks.apply.model.files import load_published, write_control
from tasks.apply.model.needs import check_facts, label_order, refuse_node_embeddings
from tasks.apply.model.row_ids import find_rows
from tasks.controls.suite import fitted_controls
from tasks.evaluate.intervals import Measuring, draw
from tasks.evaluators.prediction import Prediction
from tasks.inference.opened import Opened, ScoringJob, open_model
from tasks.kinds.base import MEASURED, TaskRows
from tasks.kinds.of import kind_of
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import Array, GraphStore
from tasks.supervise import finish_job, report_progress

_UNLIKELY = 50.0  # a class that a model does not know gets this much less than all that it knows together


@dataclass(frozen=True)
class Measured:
    """A model to measure, and the data as it reads it."""

    model: Path
    """Folder of the model's files."""
    graph: Path
    """Folder of a partition's artifact."""
    own_graph: bool
    """Whether it is the very graph that the model was trained on."""
    classes: list[str] | None
    """Names of the model's classes."""
    labels: list[str] | None = None
    """Names of the label columns that it predicts."""


@dataclass(frozen=True, kw_only=True)
class MeasureJob(ScoringJob):
    """Which models are measured, and on what."""

    models: tuple[Measured, ...]
    """The first one's graph has the rows; it must be measured, the others may not be able to score them."""
    metric: str
    evaluator: dict[str, Any]
    left_out: Path | None
    """`.npy` file, bool (rows,): rows that are left out, in the order of the first graph's split."""
    controls: bool = False
    """Whether the first model's controls are measured too; not where rows are left out."""
    publish: str = ""
    """A control that takes the place of the first model's files, and is measured by them."""


def find_nodes(store: GraphStore, ids: Array) -> Array:
    """Return the nodes of a graph that the data set calls `ids`, int64. Raises DataError where one is not there."""
    node_ids = store.get("node_ids")
    if node_ids is None:
        node_ids = np.arange(store.manifest.num_nodes)
    place = np.full(int(max(node_ids.max(initial=0), ids.max(initial=0))) + 1, -1, np.int64)
    place[node_ids] = np.arange(len(node_ids))
    places = place[ids]
    if (places < 0).any():
        raise DataError(f"prepared as its training was, the data lacks {int((places < 0).sum()):,} of the rows")
    return places


def predict(opened: Opened, rows: TaskRows, classes: list[str] | None, names: list[str] | None) -> Prediction:
    """Score rows by the data set's ids with a model.

    `classes` are the names of its classes, `names` those of the rows' labels.
    """
    kind = kind_of(opened.store.manifest)
    here = kind.named_rows(rows, lambda ids: find_nodes(opened.store, ids))
    prediction = kind.score(opened.predictor, opened.model, here)
    if prediction.scores is None or prediction.label is None or prediction.label.dtype.kind not in "iu":
        return prediction
    num_classes = len(names) if names else max(2, opened.store.manifest.num_classes)
    return replace(
        prediction, scores=as_classes(prediction.scores, classes, names, num_classes), num_classes=num_classes
    )


def as_classes(scores: Array, model_classes: list[str] | None, classes: list[str] | None, num_classes: int) -> Array:
    """Put a model's scores (n, C) in the order of the data's classes; classes without names are their numbers.

    A class that the model does not know gets a score that never wins; one that the data does not know stands behind.
    """
    known = model_classes or [str(number) for number in range(scores.shape[1])]
    asked = classes or [str(number) for number in range(num_classes)]
    if known == asked:
        return scores
    names = [*asked, *(name for name in known if name not in asked)]
    highest = scores.max(axis=1, keepdims=True)
    unknown = highest + np.log(np.exp(scores - highest).sum(axis=1, keepdims=True)) - _UNLIKELY
    columns = [scores[:, known.index(name), None] if name in known else unknown for name in names]
    return np.concatenate(columns, axis=1).astype(scores.dtype)


class ModelsMeasured:
    """All models on the rows of the first one's graph."""

    def __init__(self, job: MeasureJob) -> None:
        self.job = job
        self.first = self._open(job.models[0])
        self.manifest = self.first.store.manifest
        self.kind = kind_of(self.manifest)
        self.measuring = Measuring.of(job.evaluator, self.manifest)
        rows = self.kind.rows(self.first.predictor, MEASURED)
        self.rows = replace(self.kind.named_rows(rows, self.first.ids.dense), split=None)
        self.telling = 0

    def run(self) -> dict[str, Any]:
        """Measure; with `publish` that control alone.

        Returns: `rows`, how many of them are `telling`, `left_out` (whether rows were), for each model its `value`, of
        those behind the first with an `interval` (`Draws.interval`), or `why_not` and `other_graph`; `controls`.
        """
        if self.job.publish:
            # Fitted as evaluation did, and written in the place of the model.
            with fitted_controls(self.kind, self.first, self.job.work) as control:
                state, trees = control.state(self.job.publish, self.job.metric)
            facts = replace(graph_facts(self.manifest), out_dim=self.first.model.facts.out_dim)
            write_control(self.job.models[0].model, self.job.publish, facts, state, trees)
            self.first = self._open(self.job.models[0])
        value, left_out = self._first()
        outcomes: list[dict[str, Any]] = [{"value": value}]
        report_progress(1, len(self.job.models), "models", "measured")
        for number, model in enumerate(self.job.models[1:], start=2):
            try:
                prediction, value = self._value(self._open(model), model)
                outcomes.append({"value": value})
                if self.job.metric == self.measuring.metric:
                    outcomes[-1]["interval"] = draw(prediction, self._judged, value).interval()
            except (UserError, IntegrityError) as error:
                outcomes.append(
                    {"why_not": " ".join(str(error).split()), "other_graph": isinstance(error, OtherGraphError)}
                )
            report_progress(number, len(self.job.models), "models", "measured")
        controls: dict[str, float] = {}
        if self.job.controls:  # on all rows
            prediction, metric = self._predict(self.first, self.job.models[0]), self.job.metric
            with fitted_controls(self.kind, self.first, self.job.work) as fitted:
                for name, values in fitted.measured(MEASURED, prediction, self.measuring.measure):
                    controls |= {name: values[metric]} if metric in values else {}
        return {
            "models": outcomes,
            "rows": len(self.rows.items),
            "telling": self.telling,
            "left_out": left_out,
            "controls": controls,
        }

    def _first(self) -> tuple[float, bool]:
        """Measure the first model without the rows left out, or on all rows where the metric is not defined so."""
        if self.job.left_out is not None:
            everything, mask = self.rows, np.load(self.job.left_out, allow_pickle=False)
            self.rows = self.rows.without(mask)
            try:
                return self._value(self.first, self.job.models[0])[1], True
            except UserError:
                self.rows = everything
        return self._value(self.first, self.job.models[0])[1], False

    def _open(self, model: Measured) -> Opened:
        opened = open_model(self.job, model.graph, lambda: load_published(model.model))
        check_facts(opened.model, opened.store.manifest)
        if not model.own_graph:
            refuse_node_embeddings(opened.model)
            find_rows(opened.model, model.model, opened.dataset)
        return opened

    def _value(self, opened: Opened, model: Measured) -> tuple[Prediction, float]:
        prediction = self._predict(opened, model)
        value = float(metric_of(self.job.metric, self.measuring.measure(prediction)))
        if opened is self.first:
            self.telling = len(self.rows.items)
            if self.job.metric.rpartition(".")[2] in EVEN_METRICS:
                self.telling = self.kind.judging(self.manifest, prediction).telling_rows
        return prediction, value

    def _judged(self, prediction: Prediction) -> float:
        return self.measuring.evaluator(prediction)[self.job.metric]

    def _predict(self, opened: Opened, model: Measured) -> Prediction:
        order = label_order(model.labels, self.job.models[0].labels)
        prediction = predict(opened, self.rows, model.classes, self.first.names)
        if order is None or prediction.scores is None:
            return prediction
        return replace(prediction, scores=prediction.scores[:, order])


def main(job_path: Path) -> int:
    """Measure."""
    return finish_job(job_path, MeasureJob, lambda job: ModelsMeasured(job).run())
