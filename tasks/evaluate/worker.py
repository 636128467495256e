"""What the evaluation's own process runs (started by supervise.py).

A process of its own, so that the model, the graph's pages and OpenMP's threads leave with it, and the flow's process
stays small. It writes its outcome into the work folder and says on standard output how far it is.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from configs.errors import GraphmillError, UserError, error_of, kind_of
from configs.layout_options import LayoutOptions
from configs.registry import EVALUATORS
from tasks.evaluate.controls.several import SeveralControls
from tasks.evaluate.controls.suite import Controls
from tasks.evaluate.decisions import DecisionsSeen
from tasks.evaluate.degree_rule import DegreeRule
from tasks.evaluate.diagnostics import diagnose
from tasks.evaluate.intervals import SureOfEach
from tasks.evaluate.measuring import fitted_controls, measure, secondary_evaluators
from tasks.evaluate.ranked import diagnose_ranked
from tasks.evaluate.scored_splits import ScoredSplits
from tasks.evaluators.making import make_evaluator
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import SeveralTasks, of_head
from tasks.inference.opened import ScoringJob, open_model
from tasks.processes.mapped import rows_at_random
from tasks.storage.controls import CONSTANT_CONTROLS
from tasks.storage.graph_facts import relations_of
from tasks.storage.heads import HeadView, head_views
from tasks.storage.ids import relation_names
from tasks.supervise import ERROR_FILE, finish_job, read_job, report_progress, write_error


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
    layout: LayoutOptions | None = None
    """The map of the model's vectors; None: none."""
    seed: int = 0
    """Of the layout."""
    copies: bool = False
    """Whether each machine has a home of its own, and keeps a copy of the outcome."""


class Evaluation:
    """One checkpoint on one graph."""

    def __init__(self, job: EvaluateJob, local_rank: int = 0) -> None:
        """Open the graph and the model; `local_rank`: see `open_model`."""
        from tasks.evaluate.predictions import PredictionWriter
        from tasks.train.state.checkpoint import load_model

        self.job = job
        self.opened = opened = open_model(job, job.graph, lambda: load_model(job.checkpoint), local_rank)
        self.store, self.ids, self.names = opened.store, opened.ids, opened.names
        self.model, self.predictor = opened.model, opened.predictor
        manifest = self.store.manifest
        self.evaluator = make_evaluator(EVALUATORS.config(job.evaluator), manifest)
        self._measure = partial(measure, self.evaluator, secondary_evaluators(manifest, self.evaluator))
        self.heads = head_views(manifest)
        self.writer = PredictionWriter(job.work, manifest.task_type, self.names, heads=self.heads)
        metric = self.evaluator.metric
        self.scored = ScoredSplits(opened, job.splits, metric, self.writer if job.predictions else None)
        self.notes: list[str] = []

    def run(self) -> dict[str, Any]:
        """Evaluate all splits; returns the fields of EvalReport."""
        measured: dict[str, dict[str, float]] = {}
        controlled: dict[str, dict[str, dict[str, float]]] = {}
        report: dict[str, Any] = {}
        by_part: dict[str, dict[str, Any]] = {}
        telling: dict[str, int] = {}
        intervals: dict[str, dict[str, Any]] = {}
        splits = self.job.splits
        degrees = DegreeRule(self.store) if self.store.manifest.task == "link" else None
        drawn = "test" if "test" in splits else splits[-1]
        decided = self._deciding(drawn)
        judges = self.evaluator.heads if isinstance(self.evaluator, SeveralTasks) else [self.evaluator]
        with self.writer, self._reading(), fitted_controls(self.opened, self.job.work) as controls:
            for number, (split, prediction) in enumerate(self.scored, start=1):
                sure = SureOfEach(self._measure, judges, prediction)
                measured[split] = sure.values
                telling[split] = self._of_first(prediction).telling_rows
                for name, values in controls.measured(split, prediction, sure.compare):
                    controlled.setdefault(name, {})[split] = values
                    sure.keep(name, values)
                intervals[split] = sure.intervals()
                if split == drawn:
                    report |= {"split": split, **self._diagnosed(split, prediction)}
                for view, one in decided:
                    one.see(split, prediction if view is None else of_head(prediction, view))
                if degrees is not None:
                    value = degrees.rocauc(*self.predictor.link_pairs(split))
                    report.setdefault("degree_rule", {})[split] = value
                    self.notes.append(degrees.note(split, value))
                for what, found in self._tell_parts(split, prediction, controls).items():
                    by_part.setdefault(what, {}).update(found)
                report_progress(number, len(splits), "splits", split)
        report.update(self._decisions(decided))
        report.update(by_part)
        self.notes += self.scored.notes + controls.notes
        report.update(self._vectors())
        layout = self._layout()
        if self.notes:
            report["notes"] = self.notes
        return {
            "evaluator": self.evaluator.config.name,
            "metric": self.evaluator.metric,
            "metrics": measured,
            "controls": controlled,
            "predictions": self.writer.path.name if self.job.predictions else None,
            "layout": layout,
            "report": {
                **report,
                "higher_is_better": self.evaluator.higher_is_better,
                "telling_rows": telling,
                "intervals": intervals,
            },
            "rows": self.scored.rows,
        }

    def score_by(self, predictor: Any) -> None:
        """Score by several ranks together."""
        self.predictor = self.scored.predictor = predictor

    def _of_first(self, prediction: Prediction) -> Prediction:
        """Return what is said of the task that judges the model."""
        return of_head(prediction, self.heads[0]) if self.heads else prediction

    def _deciding(self, drawn: str) -> list[tuple[HeadView | None, DecisionsSeen]]:
        """Return what finds thresholds and temperatures, for each task."""
        if not self.heads:
            return [(None, DecisionsSeen(self.store.manifest.task_type, drawn))]
        return [(view, DecisionsSeen(view.head.task_type, drawn)) for view in self.heads]

    @staticmethod
    def _decisions(decided: list[tuple[HeadView | None, DecisionsSeen]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for view, one in decided:
            found |= one.found if view is None else {}
        by_task = {view.head.name: one.found for view, one in decided if view is not None and one.found}
        return found | ({"tasks": by_task} if by_task else {})

    def _by_part(self, split: str, prediction: Prediction) -> tuple[str, dict[str, dict[str, float]]]:
        """Return the metrics of a split's parts, whose mean its own are, and what these are."""
        what, parts = "by_negatives", dict(prediction.by_kind())
        if prediction.relations is not None:
            names = relations_of(self.store.manifest)
            what, parts = "by_relation", {names[relation]: own for relation, own in prediction.by_relation()}
        return what, {name: self._measure(own) for name, own in parts.items()}

    def _tell_parts(
        self, split: str, prediction: Prediction, controls: Controls | SeveralControls
    ) -> dict[str, dict[str, Any]]:
        """Return the metrics of a split's parts, the model's and the controls', and note the first one's."""
        if isinstance(controls, SeveralControls):
            return {}
        what, parts = self._by_part(split, prediction)
        if not parts:
            return {}
        found = {"model": parts}
        found |= {name: self._by_part(split, own)[1] for name, own in controls.predictions(split, prediction)}
        metric = self.evaluator.metric
        for name, values in found.items():
            if name not in CONSTANT_CONTROLS:
                each = ", ".join(f"{part} {own[metric]:.4f}" for part, own in values.items())
                self.notes.append(f"{split}, {metric} {what.replace('_', ' ')}, {name}: {each}")
        return {what: {split: found}}

    def _reading(self) -> AbstractContextManager[None]:
        """Read the rows of a model's table, where it has one, as they are asked for."""
        return rows_at_random(self.model.table) if self.model.table is not None else nullcontext()

    def _vectors(self) -> dict[str, Any]:
        """Describe the vectors of a model that is these."""
        from models.vectors.base import VectorModel
        from tasks.evaluate.vectors import SHARES, describe_vectors

        if not isinstance(self.model, VectorModel):
            return {}
        job = self.job
        found = describe_vectors(
            self.model, self.store, self.names, shares=job.label_shares or SHARES, most_labelled=job.most_labelled
        )
        self.notes += found.pop("notes", [])
        return {"vectors": found}

    def _layout(self) -> str | None:
        """Lay out the model's vectors, where that is asked for and can be; return the file's name."""
        if self.job.layout is None:
            return None
        from tasks.evaluate.layouts.of_model import layout_of_model

        def say(done: int, total: int) -> None:
            report_progress(done, total, "steps", "layout")

        try:
            file, _, measured = layout_of_model(self.opened, self.job.layout, self.job.work, self.job.seed, say)
        except UserError as error:  # numbers too large to compare, say: hours of training shall not end with it
            self.notes.append(f"evaluate.layout: there is no map: {error}")
            return None
        if measured:
            self.notes.append("layout: " + ", ".join(f"{name} {value:.4f}" for name, value in measured.items()))
        return file

    def _diagnosed(self, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return what there is to draw about a split."""
        from models.knowledge.base import KnowledgeModel
        from tasks.evaluate.triples import diagnose_triples

        manifest = self.store.manifest
        if prediction.ranked is not None:
            return {"ranked": diagnose_ranked(prediction.ranked) | self.scored.covered.get(split, {})}
        if manifest.task != "triple":
            kind = self.heads[0].head.task_type if self.heads else manifest.task_type
            return diagnose(self._of_first(prediction), kind, self.names)
        assert isinstance(self.model, KnowledgeModel)
        splits, names = self.predictor.triple_splits, relation_names(self.opened.dataset)
        return diagnose_triples(self.model, splits, split, prediction.true_ranks(), names.to_pylist())


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

    from tasks.evaluate.ranks import send_files, together
    from tasks.train.ranks.collectives import from_main, joined
    from tasks.train.strategies.base import Ranks

    ranks = Ranks.here()
    evaluation = Evaluation(job, ranks.local_rank)
    if ranks.world_size == 1:
        return {"fields": evaluation.run()}
    outcome: dict[str, Any] = {}
    with joined(ranks, torch.device("cpu")):
        with together(evaluation.opened, ranks) as predictor:
            if predictor is not None:
                evaluation.score_by(predictor)
                try:
                    outcome = {"fields": evaluation.run()}
                except GraphmillError as error:
                    if predictor.interrupted:
                        raise
                    outcome = {"kind": kind_of(error), "message": str(error)}
        outcome = from_main(outcome)
        if job.copies and job.predictions and "fields" in outcome:
            send_files(job.work, [outcome["fields"]["predictions"]], writes=ranks.local_rank == 0)
    return outcome


def main(job_path: Path) -> int:
    """Evaluate; only rank 0 has something to say, and the first rank of each home."""
    rank = int(os.environ.get("RANK", "0"))
    job = read_job(job_path, EvaluateJob)
    if rank == 0 or (job.copies and os.environ["LOCAL_RANK"] == "0"):
        return finish_job(job_path, EvaluateJob, evaluate)
    from tasks.train.ranks.failures import final_error

    try:
        _outcome(job)
    except Exception as error:
        final = final_error(error, rank)
        if final is None:
            raise
        write_error(job_path.with_name(ERROR_FILE), final)
        return 1
    return 0
