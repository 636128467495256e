"""What the evaluation's own process runs (started by supervise.py).

A process of its own, so that the model, the graph's pages and OpenMP's threads leave with it, and the flow's process
stays small. It writes its outcome into the work folder and says on standard output how far it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from configs.errors import GraphmillError, RecipeError, UserError, error_of, kind_of
from configs.layout_options import LayoutOptions
from configs.values.deciding import CostsConfig, say_rule
from tasks.arrays import Array
from tasks.controls.suite import Controls, fitted_controls
from tasks.evaluate.decisions import can_decide, decided_metrics, decisions_of_tasks, threshold_by
from tasks.evaluate.intervals import Measuring
from tasks.evaluate.parts_of_split import in_groups, most_wrong
from tasks.evaluators.prediction import Prediction
from tasks.inference.opened import Opened, ScoringJob, open_model
from tasks.kinds.base import Kind, TaskRows
from tasks.kinds.diagnosis.classes import decided_at
from tasks.kinds.judged import FILE_NAME, PROBABILITY, Deciding, Threshold
from tasks.kinds.of import kind_named
from tasks.processes.mapped import rows_at_random
from tasks.storage.controls import CONSTANT_CONTROLS
from tasks.storage.graph_facts import relations_of
from tasks.storage.outputs.tables import ParquetOutput
from tasks.supervise import ERROR_FILE, finish_job, read_job, report_progress, write_error

_EXPLAINED = 5
"""Rows whose scores are explained, of those that the model is most wrong about."""
_REASONS = 2
"""Neighbours, edges and features each that are named for one."""


@dataclass(frozen=True, kw_only=True)
class EvaluateJob(ScoringJob):
    """What is evaluated, and where."""

    checkpoint: Path
    graph: Path
    """Folder of the partition's artifact."""
    evaluator: dict[str, Any]
    splits: list[str]
    predictions: bool
    label_shares: list[float]
    """Shares of labels at which vectors are measured; none: the usual ones."""
    most_labelled: int
    """Nodes of which they are measured, at most."""
    costs: CostsConfig | None = None
    threshold: str | None = None
    """Rule by which rows are called positive; None: the likelier class is predicted."""
    groups: list[str] = field(default_factory=list)
    """Columns by which the metric is told for groups of rows."""
    explain: dict[str, Any] | None = None
    """Options of the explainer of errors; None: neither these nor columns are explained."""
    layout: LayoutOptions | None = None
    """The map of the model's vectors; None: none."""
    seed: int = 0
    """Of the layout."""


class Evaluation:
    """One checkpoint on one graph."""

    def __init__(self, job: EvaluateJob, opened: Opened, kind: Kind) -> None:
        """Raises RecipeError: the evaluator does not fit the task."""
        self.job, self.opened, self.predictor = job, opened, opened.predictor
        self.manifest = opened.store.manifest
        self.kind = kind
        self.measuring = Measuring.of(job.evaluator, self.manifest)
        self.writer = ParquetOutput(job.work / FILE_NAME)
        self.notes: list[str] = []
        self.rows = 0
        self.threshold: Threshold | None = None
        """From which probability which class is predicted, once the validation split has been scored."""

    @property
    def _deciding(self) -> Deciding:
        return Deciding(self.opened.names, threshold=self.threshold)

    def run(self) -> dict[str, Any]:
        """Evaluate all splits; returns the fields of EvalReport."""
        splits, metric = self.job.splits, self.measuring.metric
        drawn = "test" if "test" in splits else splits[-1]
        metrics: dict[str, dict[str, float]] = {}
        of_controls: dict[str, dict[str, dict[str, float]]] = {}
        report: dict[str, Any] = {"telling_rows": {}, "intervals": {}}
        decided: dict[str, dict[str, Prediction]] = {}  # on the validation split itself nothing is shown
        places = {"valid": "valid", drawn: "shown"} if drawn != "valid" else {}
        fitted = fitted_controls(self.kind, self.opened, self.job.work)
        table = self.opened.model.table  # its rows, where it has one, are read as they are asked for
        reading = rows_at_random(table) if table is not None else nullcontext()
        with self.writer, reading, fitted as controls:
            for number, (rows, prediction) in enumerate(self._scored(), start=1):
                split = rows.split
                sure = self.measuring.sure(prediction)
                metrics[split] = sure.values
                for name, values in controls.measured(split, prediction, sure.compare):
                    of_controls.setdefault(name, {})[split] = values
                    sure.keep(name, values)
                report["intervals"][split] = sure.intervals()
                report["telling_rows"][split] = self.kind.judging(self.manifest, prediction).telling_rows
                if self.threshold is not None:
                    values = decided_metrics(prediction, self.threshold, self.measuring.measure)
                    report.setdefault("at_threshold", {})[split] = values
                if split == drawn:
                    report |= {"split": split, **self.kind.diagnose(self.opened, split, prediction)}
                    if self.threshold is not None:
                        report |= decided_at(prediction, self.threshold, self.opened.names)
                        report |= {"threshold": {"rule": say_rule(self.job.threshold or ""), **asdict(self.threshold)}}
                    report |= self._parts_of(rows, prediction)
                    report |= {} if self.job.explain is None else self._columns(rows)
                for task, label, one in self.kind.decided(self.manifest, prediction):
                    if split in places and can_decide(one, label):
                        decided.setdefault(task, {})[places[split]] = one
                for what, value in controls.facts(split).items():
                    report.setdefault(what, {})[split] = value
                self._tell_parts(report, split, prediction, controls)
                report_progress(number, len(splits), "splits", split)
        report |= decisions_of_tasks(decided, self.job.costs)
        self.notes += controls.notes
        report |= self._vectors()
        layout = self._layout()
        if self.notes:
            report["notes"] = self.notes
        return {
            "evaluator": self.measuring.evaluator.config.name,
            "metric": metric,
            "metrics": metrics,
            "controls": of_controls,
            "predictions": FILE_NAME if self.job.predictions else None,
            "layout": layout,
            "report": {**report, "higher_is_better": self.measuring.evaluator.higher_is_better},
            "rows": self.rows,
        }

    def _scored(self) -> Iterator[tuple[TaskRows, Prediction]]:
        """Yield the rows of splits and their scores, and write what is predicted of them and of the rest."""
        # The validation split chooses the threshold by which the others are written.
        splits = sorted(self.job.splits, key=lambda split: split != "valid") if self.job.threshold else self.job.splits
        parts = [self.kind.rows(self.predictor, split) for split in splits]
        rest = self.kind.rest(self.opened, self.notes.append) if self.job.predictions else None
        everything = parts if rest is None else [*parts, rest]
        scored = self.kind.score_all(self.predictor, self.opened.model, everything, self.measuring.metric)
        for rows, prediction in zip(everything, scored, strict=True):
            self.rows += self.kind.count(prediction)
            if self.job.threshold is not None and rows is not rest and rows.split == "valid":
                self.threshold = self._chosen(self.job.threshold, prediction)
            if self.job.predictions:
                for columns in self.kind.columns(self.opened, rows, prediction, self._deciding):
                    self.writer.write(pa.table(columns))
                left_out = self.kind.left_out(self.opened.store, rows, prediction)
                self.notes += [left_out] if left_out else []
            if rows is not rest:
                yield rows, prediction

    def _chosen(self, rule: str, valid: Prediction) -> Threshold | None:
        threshold = threshold_by(rule, valid, self.job.costs)
        if threshold is None:
            self.notes.append(
                f"evaluate.threshold={rule}: no threshold has {say_rule(rule)} on the validation split (of 20 rows or "
                "more): the likelier class is predicted"
            )
        return threshold

    def _parts_of(self, rows: TaskRows, prediction: Prediction) -> dict[str, Any]:
        """Return the metric in groups of a split's rows, and the rows that the model is most wrong about."""
        of_pairs = prediction.ranks_each_edge or self.kind.groups_lists
        if prediction.label is None and prediction.positive is None and not of_pairs:
            return {}
        metric, wanted = self.measuring.metric, self.job.groups
        opened = self.opened
        columns = self.kind.grouped_by(opened.store, opened.dataset, opened.ids, rows.items, wanted)
        groups = in_groups(
            columns,
            prediction,
            lambda some: self.measuring.evaluator(some)[metric],
            list(columns) if of_pairs else wanted,
            self.manifest.label_type,
        )
        if self.manifest.heads or (prediction.label is None and prediction.positive is None):
            return {"groups": groups}
        worst = most_wrong(prediction, self.manifest.label_type)
        taken, relations = prediction.taken(worst), None if rows.relations is None else rows.relations[worst]
        told = replace(rows, items=rows.items[worst], label=taken.label, relations=relations)
        worst_columns = next(self.kind.columns(self.opened, told, taken, self._deciding)) if len(worst) else {}
        shown = (name for name in worst_columns if name != "split" and not name.startswith(PROBABILITY))
        wrong = {name: worst_columns[name].to_pylist() for name in shown}
        return {"groups": groups, "most_wrong": wrong, **self._explained(told.items)}

    def _explained(self, items: Array) -> dict[str, Any]:
        """Say what moved the scores of the first of some rows, where that is asked for."""
        if self.job.explain is None:
            return {}
        if not self.kind.explained_by:
            self.notes.append("evaluate.explain: scores of such rows are not explained")
            return {}
        from tasks.explain.explained import explain

        try:
            answers = list(explain(self.opened, items[:_EXPLAINED], self.job.explain, self._deciding, None))
        except RecipeError as error:
            self.notes.append(f"evaluate.explain: {error}")
            return {}
        return {"explained": [{"score": answer.head, "why": answer.reasons(_REASONS)} for answer in answers]}

    def _columns(self, rows: TaskRows) -> dict[str, Any]:
        """Return by how much columns matter over all rows."""
        from tasks.explain.columns import columns_by_loss

        sign, metric = (1 if self.measuring.evaluator.higher_is_better else -1), self.measuring.metric
        try:
            columns = columns_by_loss(
                *(self.opened, self.kind, rows),
                lambda some: sign * self.measuring.evaluator(some)[metric],
                *(self.job.seed, self.job.work),
            )
        except UserError as error:  # a sample that the metric is not defined on, say
            self.notes.append(f"evaluate.explain: {error}")
            return {}
        return {"columns": columns}

    def _tell_parts(self, report: dict[str, Any], split: str, prediction: Prediction, controls: Controls) -> None:
        """Report the metrics of a split's parts, whose mean its own are: the model's and the controls'."""
        what, parts = self._by_part(prediction)
        if not parts:
            return
        by_model = {"model": parts}
        by_model |= {name: self._by_part(one)[1] for name, one in controls.predictions(split, prediction)}
        metric = self.measuring.metric
        for name, values in by_model.items():
            if name not in CONSTANT_CONTROLS:
                each = ", ".join(f"{part} {of_part[metric]:.4f}" for part, of_part in values.items())
                self.notes.append(f"{split}, {metric} {what.replace('_', ' ')}, {name}: {each}")
        report.setdefault(what, {})[split] = by_model

    def _by_part(self, prediction: Prediction) -> tuple[str, dict[str, dict[str, float]]]:
        """Return what the parts of a split are, and the metrics of each."""
        what, parts = "by_negatives", dict(prediction.by_kind())
        if prediction.relations is not None:
            names = relations_of(self.manifest)
            what, parts = "by_relation", {names[relation]: one for relation, one in prediction.by_relation()}
        return what, {name: self.measuring.measure(one) for name, one in parts.items()}

    def _vectors(self) -> dict[str, Any]:
        from models.vectors.base import VectorModel
        from tasks.evaluate.vectors import SHARES, describe_vectors

        opened, job = self.opened, self.job
        if not isinstance(opened.model, VectorModel):
            return {}
        shares, most = job.label_shares or SHARES, job.most_labelled
        described = describe_vectors(opened.model, opened.store, opened.names, shares=shares, most_labelled=most)
        self.notes += described.pop("notes", [])
        return {"vectors": described}

    def _layout(self) -> str | None:
        """Lay out the model's vectors, where that is asked for and can be; return the file's name."""
        if self.job.layout is None:
            return None
        from tasks.evaluate.model_layout import layout_of_model

        try:
            file, _, measured = layout_of_model(self.opened, self.job.layout, self.job.work, self.job.seed)
        except UserError as error:  # numbers too large to compare, say: hours of training shall not end with it
            self.notes.append(f"evaluate.layout: there is no map: {error}")
            return None
        if measured:
            self.notes.append("layout: " + ", ".join(f"{name} {value:.4f}" for name, value in measured.items()))
        return file


def evaluate(job: EvaluateJob) -> dict[str, Any]:
    """Return what rank 0 has found, on all ranks where there are several. Raises what it raised."""
    outcome = _outcome(job)
    if "kind" in outcome:
        raise error_of(outcome["kind"], outcome["message"])
    fields: dict[str, Any] = outcome["fields"]
    return fields


def _outcome(job: EvaluateJob) -> dict[str, Any]:
    """Evaluate; return rank 0's `fields`, or `kind` and `message` of its error once all have left in peace."""
    import torch

    from tasks.evaluate.ranks import together
    from tasks.train.ranks.collectives import from_main, joined
    from tasks.train.state.checkpoint import load_model
    from tasks.train.strategies.base import Ranks

    ranks = Ranks.here()
    opened = open_model(job, job.graph, lambda: load_model(job.checkpoint), ranks.local_rank)
    kind = kind_named(opened.model.evaluated_as or opened.store.manifest.kind)
    whole = kind.evaluated_whole(opened, job.work, job.seed)
    if whole is not None:
        return {"fields": whole}
    evaluation = Evaluation(job, opened, kind)
    if ranks.world_size == 1:
        return {"fields": evaluation.run()}
    outcome: dict[str, Any] = {}
    with joined(ranks, torch.device("cpu")):
        with together(opened, ranks) as predictor:
            if predictor is not None:
                evaluation.predictor = predictor
                try:
                    outcome = {"fields": evaluation.run()}
                except GraphmillError as error:
                    if predictor.interrupted:
                        raise
                    outcome = {"kind": kind_of(error), "message": str(error)}
        outcome = from_main(outcome)
    return outcome


def main(job_path: Path) -> int:
    """Evaluate; only rank 0 has something to say."""
    rank = int(os.environ.get("RANK", "0"))
    if rank == 0:
        return finish_job(job_path, EvaluateJob, evaluate)
    from tasks.train.ranks.failures import final_error

    try:
        _outcome(read_job(job_path, EvaluateJob))
    except Exception as error:
        final = final_error(error, rank)
        if final is None:
            raise
        write_error(job_path.with_name(ERROR_FILE), final)
        return 1
    return 0
