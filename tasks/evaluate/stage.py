"""The evaluate stage: metrics of the best checkpoint, what a report draws, and predictions under the users' ids."""

from __future__ import annotations

from typing import Any

from configs.base import cache_view
from configs.schema import Recipe
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.manifests import CONTROLS, EvalReport


def config(recipe: Recipe) -> dict[str, Any]:
    """Return what is measured: evaluator, splits, whether predictions are written."""
    return {"evaluate": cache_view(recipe.evaluate)}


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Evaluate in a process of its own.

    Raises:
        UserError: the evaluator or a split does not fit the data or the model, or training diverged.
        StageError: the process died; the message ends with what it said last.
    """
    from tasks.evaluate.worker import EvaluateJob
    from tasks.supervise import run_job

    train = parents["train"]
    job = EvaluateJob(
        checkpoint=train.folder / train.manifest.best_checkpoint,
        graph=parents["partition"].folder,
        dataset=parents["ingest"].folder,
        work=context.work,
        evaluator=recipe.evaluate.evaluator.model_dump(mode="json"),
        splits=list(recipe.evaluate.splits),
        batch_size=recipe.evaluate.batch_size,
        predictions=recipe.evaluate.predictions,
        device=recipe.train.device,
        threads=train.manifest.threads * recipe.train.num_ranks or recipe.train.threads,  # as validation had
    )
    fields = run_job("tasks.evaluate.worker", job, context)
    for note in fields["report"].get("notes", []):
        context.message(note)
    _report_outcome(context, fields)
    return fields


def _report_outcome(context: StageContext, fields: dict[str, Any]) -> None:
    """Report the metrics; warn where the model is no better than one that learnt nothing."""
    for split, values in fields["metrics"].items():
        context.message(f"{split}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
    for text in lost_to_controls(fields["metric"], fields["report"]["higher_is_better"], fields):
        context.warn(text)
    confusion = fields["report"].get("confusion")
    if confusion is not None:
        predicted = [sum(column) for column in zip(*confusion["counts"], strict=True)]
        if sum(predicted) and max(predicted) == sum(predicted) and len(predicted) > 1:
            only = confusion["classes"][predicted.index(max(predicted))]
            context.warn(
                f"the model predicts class {only} for every row of {fields['report']['split']}: it learnt nothing "
                "beyond the majority; train longer, or look at the labels and the learning rate"
            )


def lost_to_controls(metric: str, higher_is_better: bool, report: dict[str, Any]) -> list[str]:
    """Say of each control where the model does not beat it; `report` has `metrics` and `controls` of EvalReport."""
    lines = []
    for name, splits in report["controls"].items():
        lost = []
        for split, values in splits.items():
            own, bar = report["metrics"][split][metric], values[metric]
            if not (own > bar if higher_is_better else own < bar):
                lost.append(f"{split} {metric} {own:.4f} against {bar:.4f}")
        if lost:
            lines.append(f"the model does not beat {CONTROLS[name].what}: {', '.join(lost)}")
    return lines


STAGE: Stage[EvalReport] = Stage("evaluate", 4, EvalReport, ("train", "partition", "ingest"), config, build)
