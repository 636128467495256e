"""The evaluate stage: metrics of the best checkpoint, what a report draws, and predictions under the users' ids."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from configs.base import cache_view
from configs.metric_names import telling
from configs.schema import Recipe
from configs.training import TrainConfig
from tasks.evaluate.verdicts import (
    hardly_above_controls,
    lost_to_controls,
    one_class_predicted,
    secondary_below_controls,
    sureness,
)
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.outcomes import EvalReport
from tasks.train.ranks.evaluation import evaluates_together

if TYPE_CHECKING:
    from tasks.evaluate.worker import EvaluateJob

MOST_LABELLED = 50_000
"""Nodes of which F1 by share of labels is measured; as many are drawn where there are more. 20,000 of 128 numbers and
47 classes take 24 CPU seconds at the shares 0.1, 0.5 and 0.9 (Zen 5, November 2026), more of them in proportion."""


def config(recipe: Recipe) -> dict[str, Any]:
    """Return what is measured: evaluator, splits, whether predictions are written; of vectors how many nodes."""
    if recipe.is_layout:
        return {}
    options: dict[str, Any] = {"evaluate": cache_view(recipe.evaluate)}
    if not isinstance(recipe.train, TrainConfig):
        options["most_labelled"] = MOST_LABELLED
    return options


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Evaluate in a process of its own.

    Raises UserError: the evaluator or a split does not fit the data or the model, or training diverged; StageError: the
    process died, or one of several more often than train.max_restarts; the message ends with what it said last.
    """
    from tasks.evaluate.worker import EvaluateJob

    train = parents["train"]
    job = EvaluateJob(
        checkpoint=train.folder / train.manifest.best_checkpoint,
        graph=parents["partition"].folder,
        dataset=parents["ingest"].folder,
        work=context.work,
        evaluator=recipe.evaluate.evaluator.model_dump(mode="json"),
        splits=list(recipe.evaluate.splits),
        batch_size=recipe.evaluate.batch_size,
        memory=recipe.evaluate.memory,
        predictions=recipe.evaluate.predictions,
        label_shares=list(recipe.evaluate.label_shares or ()),
        most_labelled=MOST_LABELLED,
        costs=recipe.evaluate.costs,
        threshold=recipe.evaluate.threshold,
        groups=list(recipe.evaluate.groups),
        explain=None if recipe.evaluate.explain is None else recipe.evaluate.explain.model_dump(mode="json"),
        layout=recipe.evaluate.layout,
        seed=recipe.seed,
        device=recipe.train.device,
        threads=train.manifest.threads * (1 if evaluates_together(recipe) else recipe.train.num_ranks)
        or recipe.train.threads,
    )
    fields = _run(job, context, recipe)
    for note in fields["report"].get("notes", []):
        context.message(note)
    _report_outcome(context, fields)
    return fields


def _run(job: EvaluateJob, context: StageContext, recipe: Recipe) -> dict[str, Any]:
    """Run the evaluation's process, or all ranks': again where one of these dies."""
    from tasks.supervise import WorkerDiedError, machines_used, run_job
    from tasks.train.job import LOGS
    from tasks.train.ranks.evaluation import launcher

    restarts = recipe.train.max_restarts if evaluates_together(recipe) else 0
    for attempt in range(restarts + 1):
        try:
            fields = run_job("tasks.evaluate.worker", job, context, launcher(recipe, context.home, context.work))
            used = [machine["peak_bytes"] for machine in machines_used(context.work)]
            return {**fields, "peak_bytes": max(used, default=0)}
        except WorkerDiedError as error:
            if attempt == restarts:
                raise
            context.warn(f"a rank of the evaluation died; the evaluation starts again: {str(error).splitlines()[0]}")
        finally:
            shutil.rmtree(context.work / LOGS, ignore_errors=True)  # what the ranks of a cluster said
    raise AssertionError


def _report_outcome(context: StageContext, fields: dict[str, Any]) -> None:
    """Report the metrics; warn where the model is no better than one that learnt nothing."""
    intervals = fields["report"]["intervals"]
    for split, values in fields["metrics"].items():
        context.message(f"{split}: " + ", ".join(f"{name} {values[name]:.4f}" for name in telling(values)))
        if split in intervals:  # a layout has none
            context.message(sureness(split, fields["metric"], intervals[split]))
    lost = lost_to_controls(fields["metric"], fields["report"]["higher_is_better"], fields)
    one_class = one_class_predicted(fields, lost)
    below = secondary_below_controls(fields["metric"], fields)
    for text in [*lost.values(), *below, *([one_class] if one_class else [])]:
        context.warn(text)
    for text in [] if lost else hardly_above_controls(fields["metric"], fields):
        context.message(text)


STAGE: Stage[EvalReport] = Stage("evaluate", 17, EvalReport, ("train", "partition", "ingest"), config, build)
