"""The evaluate stage: metrics of the best checkpoint, what a report draws, and predictions under the users' ids."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from configs import errors
from configs.base import cache_view
from configs.errors import StageError, UserError
from configs.schema import Recipe
from tasks.artifacts import write_atomic
from tasks.evaluate.supervise import run_worker
from tasks.evaluate.worker import RESULT, EvaluateJob
from tasks.manifests import EvalReport
from tasks.stage import Parent, Stage, StageContext

_JOB = "job.json"


def config(recipe: Recipe) -> dict[str, Any]:
    """Return what is measured: evaluator, splits, whether predictions are written."""
    return {"evaluate": cache_view(recipe.evaluate)}


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Evaluate in a process of its own.

    Raises:
        UserError: the evaluator or a split does not fit the data, or training diverged.
        StageError: the process died; the message ends with what it said last.
    """
    train = parents["train"]
    job = EvaluateJob(
        checkpoint=str(train.folder / train.manifest.best_checkpoint),
        graph=str(parents["partition"].folder),
        dataset=str(parents["ingest"].folder),
        work=str(context.work),
        evaluator=recipe.evaluate.evaluator.model_dump(mode="json"),
        splits=list(recipe.evaluate.splits),
        batch_size=recipe.evaluate.batch_size,
        predictions=recipe.evaluate.predictions,
        device=recipe.train.device,
        threads=recipe.train.threads,
    )
    job_path, result_path = context.work / _JOB, context.work / RESULT
    write_atomic(job_path, json.dumps(dataclasses.asdict(job)).encode())
    run_worker("tasks.evaluate.worker", job_path, context)
    outcome = json.loads(result_path.read_text(encoding="utf-8"))
    for path in (job_path, result_path):  # they hold this machine's paths; the manifest says the rest
        path.unlink()
    if "error" in outcome:
        raise _user_error(outcome["error"], outcome["message"])
    fields: dict[str, Any] = outcome["fields"]
    for note in fields["report"].get("notes", []):
        context.message(note)
    _tell(context, fields)
    return fields


def _tell(context: StageContext, fields: dict[str, Any]) -> None:
    """Say the metrics, and warn where they are what a model that learnt nothing would get."""
    for split, values in fields["metrics"].items():
        context.message(f"{split}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
    confusion = fields["report"].get("confusion")
    if confusion is not None:
        predicted = [sum(column) for column in zip(*confusion["counts"], strict=True)]
        if sum(predicted) and max(predicted) == sum(predicted) and len(predicted) > 1:
            only = confusion["classes"][predicted.index(max(predicted))]
            context.warn(
                f"the model predicts class {only} for every row of {fields['report']['split']}: it learnt nothing "
                "beyond the majority; train longer, or look at the labels and the learning rate"
            )


def _user_error(kind: str, message: str) -> Exception:
    error_class = getattr(errors, kind, None)
    if isinstance(error_class, type) and issubclass(error_class, UserError):
        return error_class(message)
    return StageError(message)


def predictions_path(folder: Path, report: EvalReport) -> Path | None:
    """Return the predictions' file of an evaluation, or None."""
    return None if report.predictions is None else folder / report.predictions


STAGE: Stage[EvalReport] = Stage("evaluate", 1, EvalReport, ("train", "partition", "ingest"), config, build)
