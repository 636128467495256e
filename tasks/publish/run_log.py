"""What MLflow is told of a finished run: parameters, lineage, curves, metrics."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping

from configs.schema import Recipe
from tasks.processes.code_version import code_version
from tasks.processes.run_context import RunContext
from tasks.publish.facts import score_rows
from tasks.publish.tracking.description import describe, parameters
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.records import read_records, thin
from tasks.publish.vectors import vector_notes, vector_tags
from tasks.stage import Parent
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest
from tasks.storage.outcomes import EvalReport, RunResult


def log_run(tracker: Tracker, recipe: Recipe, parents: dict[str, Parent]) -> None:
    """Parameters, lineage, the data set, and the curves of the training."""
    train, folder = parents["train"].manifest, parents["train"].folder
    tracker.log_params(parameters(recipe))
    moment = {} if recipe.snapshot.as_of is None else {"graphmill.as_of": recipe.snapshot.as_of}
    tracker.set_tags({**lineage_tags(parents), **moment, **vector_tags(parents)})
    data: DatasetManifest = parents["ingest"].manifest
    held = data if recipe.snapshot.as_of is None else parents["partition"].manifest
    splits = parents["partition"].manifest.splits  # held-out pairs that train elsewhere are taken out
    sizes = {"num_nodes": held.num_nodes, "num_edges": held.num_edges, "splits": splits, "task": data.task}
    schema = {name: table.columns for name, table in data.tables.items()}
    source = json.dumps({"artifact": f"ingest/{data.key}", "digest": data.digest, "options": data.config}, default=str)
    tracker.log_dataset(data.dataset, data.digest, source, json.dumps(sizes), json.dumps(schema))
    tracker.log_curves(thin(read_records(folder / train.metrics_file)), started_at(train))


def log_finals(tracker: Tracker, parents: dict[str, Parent], model_id: str | None = None) -> None:
    """The evaluation's metrics, also as the model's own where that is given."""
    evaluation: EvalReport = parents["evaluate"].manifest
    values: dict[str, float] = {}
    for row in score_rows(evaluation.metrics, evaluation.controls):
        # MLflow sorts by name: so the model's own metrics (final) stand first.
        prefix = f"simple_control/{row.control}/{row.split}" if row.control else f"final/{row.split}"
        values |= {f"{prefix}/{name}": value for name, value in row.values.items()}
    tracker.log_metrics(values, parents["train"].manifest.best_epoch, model_id)


def log_found(
    home: Home, recipe: Recipe, parents: Mapping[str, Parent], published_in: str, context: RunContext
) -> tuple[str, str]:
    """Log a flow run that found all it asked for, publication too, as a run of its own; returns its id and URL.

    `parents` holds the artifacts that the publication is of, `published_in` is the MLflow run that made it. Raises
    StageError.
    """
    tracker = Tracker(home, recipe.tracking.experiment, pauses=(1.0,))
    tracker.open_run(parents["train"].manifest.key, recipe.name, context, trains=False)
    log_run(tracker, recipe, dict(parents))
    log_finals(tracker, dict(parents))
    tracker.describe(describe(recipe, parents, vector_notes(parents)))
    tracker.set_tags({"graphmill.published_in": published_in, "graphmill.cached": "true"})
    tracker.close("FINISHED")
    return tracker.run_id, tracker.run_url


def lineage_tags(parents: dict[str, Parent]) -> dict[str, str]:
    """Return the tags that say what a run was made from: key and digest of each artifact, and the code."""
    tags = {"graphmill.code": code_version(), "mlflow.source.name": "graphmill", "mlflow.source.type": "JOB"}
    commit = parents["train"].manifest.code_version.removesuffix("-dirty")
    if commit and all(c in "0123456789abcdef" for c in commit):
        tags["mlflow.source.git.commit"] = commit
    for name, parent in parents.items():
        tags[f"graphmill.{name}.key"] = parent.manifest.key
        tags[f"graphmill.{name}.digest"] = parent.manifest.digest
    return tags


def started_at(train: RunResult) -> float:
    """Return when a training began, in seconds since 1970; 0 where the manifest does not say."""
    try:
        ended = datetime.datetime.fromisoformat(train.created_at).timestamp()
    except ValueError:
        return 0.0
    return ended - train.seconds
