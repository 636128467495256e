"""What MLflow is told of a finished run: a description for people, parameters, lineage, curves, metrics."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence

from configs.changes import all_options, changed_options
from configs.schema import Recipe
from tasks.markdown import plain_markdown
from tasks.processes.code_version import code_version
from tasks.processes.run_context import RunContext
from tasks.publish.facts import metric_names, score_rows
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.records import flatten, read_records, thin
from tasks.publish.vectors import vector_notes, vector_tags
from tasks.stage import Parent
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest
from tasks.storage.outcomes import EvalReport, GateRecord

_MAIN = (
    "seed",
    "dataset.name",
    "model.name",
    "model.hidden_dim",
    "model.num_layers",
    "model.dropout",
    "train.loader.name",
    "train.loader.batch_size",
    "train.epochs",
    "train.learning_rate",
    "train.weight_decay",
    "train.num_ranks",
)
"""Options that runs are compared by, also where they are at their defaults."""


def parameters(recipe: Recipe) -> dict[str, str]:
    """Return the parameters of a run: the main options, and all that are not at their defaults.

    The others are in the report and beside the model; MLflow's table would show a hundred of them.
    """
    every, changed = all_options(recipe), changed_options(recipe)
    chosen = [key for key in every if key in _MAIN or key in changed]
    return {name: text for key in chosen for name, text in flatten(every[key], key).items()}


def describe(
    recipe: Recipe,
    parents: Mapping[str, Parent],
    notes: Sequence[str],
    version: str = "",
    gate: GateRecord | None = None,
) -> str:
    """Return a description in Markdown: what was trained on what, its metrics beside the controls', what differs.

    `notes` are sentences that a reader of the metrics has to know.
    """
    data: DatasetManifest = parents["ingest"].manifest
    evaluation: EvalReport = parents["evaluate"].manifest
    moment = f", as of {recipe.snapshot.as_of}" if recipe.snapshot.as_of else ""
    rows = score_rows(evaluation.metrics, evaluation.controls)
    names = metric_names(row for row in rows if not row.control)
    table = [f"| | {' | '.join(map(plain_markdown, names))} |", "|---|" + "--:|" * len(names)]
    table += [f"| {plain_markdown(row.label)} | {' | '.join(row.texts(names))} |" for row in rows]
    size = f"{data.num_nodes:,} nodes, {data.num_edges:,} edges"
    lines = [f"**{recipe.name}**{f': {recipe.description}' if recipe.description else ''}", ""]
    lines += [f"{recipe.model.name} on {plain_markdown(data.dataset)}{moment} ({size})", "", *table, ""]
    lines += [line for note in notes for line in (plain_markdown(note), "")]
    if gate is not None:
        champion = "champion" if gate.promoted else "not champion"
        lines += [f"Version {version}: {champion}, {plain_markdown(gate.reason)}", ""]
    changed = ", ".join(f"`{key}={value}`" for key, value in changed_options(recipe).items())
    return "\n".join([*lines, f"Not at their defaults: {changed}"])


def log_run(tracker: Tracker, recipe: Recipe, parents: dict[str, Parent]) -> None:
    """Parameters, lineage, the data set, and the curves of the training."""
    train, folder = parents["train"].manifest, parents["train"].folder
    tracker.log_params(parameters(recipe))
    moment = {} if recipe.snapshot.as_of is None else {"graphmill.as_of": recipe.snapshot.as_of}
    tags = {"graphmill.code": code_version(), "mlflow.source.name": "graphmill", "mlflow.source.type": "JOB"}
    commit = train.code_version.removesuffix("-dirty")
    if commit and all(c in "0123456789abcdef" for c in commit):
        tags["mlflow.source.git.commit"] = commit
    for name, parent in parents.items():
        tags[f"graphmill.{name}.key"] = parent.manifest.key
        tags[f"graphmill.{name}.digest"] = parent.manifest.digest
    tracker.set_tags({**tags, **moment, **vector_tags(parents)})
    data: DatasetManifest = parents["ingest"].manifest
    held = data if recipe.snapshot.as_of is None else parents["partition"].manifest
    splits = parents["partition"].manifest.splits  # held-out pairs that train elsewhere are taken out
    sizes = {"num_nodes": held.num_nodes, "num_edges": held.num_edges, "splits": splits, "task": data.task}
    schema = {name: table.columns for name, table in data.tables.items()}
    source = json.dumps({"artifact": f"ingest/{data.key}", "digest": data.digest, "options": data.config}, default=str)
    tracker.log_dataset(data.dataset, data.digest, source, json.dumps(sizes), json.dumps(schema))
    ended = datetime.datetime.fromisoformat(train.created_at).timestamp() if train.created_at else train.seconds
    tracker.log_curves(thin(read_records(folder / train.metrics_file)), ended - train.seconds)


def log_finals(tracker: Tracker, parents: dict[str, Parent], model_id: str | None = None) -> None:
    """The evaluation's metrics, also as the model's own where that is given."""
    evaluation: EvalReport = parents["evaluate"].manifest
    values: dict[str, float] = {}
    for row in score_rows(evaluation.metrics, evaluation.controls):
        # MLflow sorts by name: so the model's own metrics (final) stand first.
        prefix = f"simple_control/{row.control}/{row.split}" if row.control else f"final/{row.split}"
        values |= {"/".join((prefix, metric)): value for metric, value in row.values.items()}
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
