"""What the publish stage does: MLflow, the model registry, and the report.

It can be repeated: a rerun after a crash goes on in the same MLflow run, and stores nothing twice.
"""

from __future__ import annotations

import datetime
import json
import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from configs.load import dump_recipe
from configs.schema import Recipe
from tasks.apply.model.files import model_digest, write_model
from tasks.apply.model.needs import DataNeeds
from tasks.apply.model.row_ids import write_row_ids
from tasks.processes import ending
from tasks.processes.code_version import code_version
from tasks.processes.run_context import current_run
from tasks.publish import profile, snapshots
from tasks.publish.champion.comparison import Challenge
from tasks.publish.champion.judge import Judge, candidate
from tasks.publish.champion.trained import write_trained
from tasks.publish.gate.rules import Candidate, Decision, controls_named, gate_name
from tasks.publish.map.of_run import write_maps
from tasks.publish.report.page import Published, render
from tasks.publish.tracking.description import describe, parameters
from tasks.publish.tracking.mlflow_store import RunStatus, Tracker
from tasks.publish.tracking.model_registry import ModelRegistry
from tasks.publish.tracking.records import flatten, metric_key, read_records, thin
from tasks.publish.tracking.store_uris import how_to_open
from tasks.publish.tracking.version_tags import gate_tags
from tasks.publish.vectors import vector_notes, vector_tags
from tasks.stage import Parent, StageContext
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.manifests import DatasetManifest, EvalReport, RunResult

REPORT = "report.html"
_STEPS = 6
_FILES = ".model"


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Log the training, register its model, decide on the champion, write the report.

    Raises:
        RecipeError: the gate metric was not measured.
        StageError: MLflow cannot be reached; running again publishes what is there.
    """
    run_context = current_run()
    files = context.work / _FILES
    # Before anything is stored: a mistake in the recipe must leave no half-published run.
    context.progress(0, _STEPS, "steps", "model")
    _write_files(context, recipe, parents, files)
    evaluation = parents["evaluate"].manifest
    metric = (
        f"all/{evaluation.metric}" if recipe.is_layout else gate_name(recipe.tracking.gate_metric, evaluation.metric)
    )
    challenge = Challenge(context, recipe, parents, files, metric)
    new = candidate(recipe, parents, challenge)
    context.progress(1, _STEPS, "steps", "connecting to MLflow")
    tracker = Tracker(context.home, recipe.tracking.experiment, on_wait=context.message)
    tracker.open_run(parents["train"].manifest.key, recipe.name, run_context, trains=False)
    try:
        with ending.closing(lambda: _close_quietly(tracker, "KILLED")), ending.undisguised():
            fields = _publish(challenge, tracker, new)
    except BaseException as error:
        _close_quietly(tracker, "FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    tracker.close("FINISHED")
    context.progress(_STEPS, _STEPS, "steps", "done")
    return fields


def _publish(challenge: Challenge, tracker: Tracker, new: Candidate) -> dict[str, Any]:
    context, recipe, parents = challenge.context, challenge.recipe, challenge.parents
    log_run(tracker, recipe, parents)
    context.progress(2, _STEPS, "steps", "model")
    model_id = _log_model(challenge, tracker)
    context.progress(3, _STEPS, "steps", "report")
    maps = write_maps(context.work, recipe, parents, context.warn)
    snapshot = _write_snapshot(context, recipe, parents)
    name = recipe.tracking.model_name or recipe.name
    judge = Judge(challenge, tracker, name, new, current_run().leave_champion)
    gate: dict[str, Any] = {}

    def report(version: str, decision: Decision) -> None:
        """Say all that is to be said: the champion's alias moves last, and then the run has its record of it."""
        gate.update(judge.record(version, decision))
        _tell(challenge, tracker, version, gate)
        published = _published(tracker, name, version, gate)
        page = render(recipe, parents, published, snapshot, [context.work / file for file in maps])
        (context.work / REPORT).write_text(page, encoding="utf-8")
        for file in (REPORT, *maps):
            tracker.log_artifact(context.work / file)
        context.progress(4, _STEPS, "steps", "registry")

    version, decision = _register(challenge, tracker, model_id, judge, report)
    shutil.rmtree(challenge.files)
    _say_outcome(context, f"{name} version {version}", decision, gate)
    return {
        "mlflow_run_id": tracker.run_id,
        "mlflow_run_url": tracker.run_url,
        "model_name": name,
        "model_version": version,
        "champion": gate["promoted"],
        "gate": gate,
        "report_file": REPORT,
        "maps": maps,
    }


def _published(tracker: Tracker, name: str, version: str, gate: dict[str, Any]) -> Published:
    run_context = current_run()
    return Published(
        run_id=tracker.run_id,
        run_url=tracker.run_url,
        how_to_open=how_to_open(tracker.run_url),
        model_name=name,
        model_version=version,
        champion=gate["promoted"],
        gate=gate,
        flow_run_id=run_context.flow_run_id,
        flow_run_url=run_context.flow_run_url,
    )


def _tell(challenge: Challenge, tracker: Tracker, version: str, gate: dict[str, Any]) -> None:
    """Write the decision where MLflow shows the run."""
    recipe, parents = challenge.recipe, challenge.parents
    notes, data, evaluation = vector_notes(parents), parents["ingest"].manifest, parents["evaluate"].manifest
    tracker.describe(describe(recipe, data, evaluation, version, gate, notes))
    name = recipe.tracking.model_name or recipe.name
    tracker.set_tags({"graphmill.version": f"{name}@{version}", "graphmill.gate_reason": gate["reason"]})


def _write_snapshot(
    context: StageContext, recipe: Recipe, parents: dict[str, Parent]
) -> snapshots.SnapshotSummary | None:
    """Write down what a snapshot holds, and how it differs from the one before it."""
    if recipe.snapshot.as_of is None:
        return None
    earlier = snapshots.previous(context.home, recipe)
    return snapshots.write_snapshot(context.work / snapshots.FILE_NAME, snapshots.describe(recipe, parents), earlier)


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


def _write_files(context: StageContext, recipe: Recipe, parents: dict[str, Parent], files: Path) -> None:
    shutil.rmtree(files, ignore_errors=True)
    checkpoint = parents["train"].folder / parents["train"].manifest.best_checkpoint
    manifests = {name: parent.manifest for name, parent in parents.items()}
    lineage = {name: {"key": m.key, "digest": m.digest, "code": m.code_version} for name, m in manifests.items()}
    write_model(files, checkpoint, recipe.name, dump_recipe(recipe), lineage, vector_notes(parents))
    DataNeeds.of(context, recipe, parents).write(files)
    profile.write(files, profile.describe(recipe, parents))
    if not recipe.is_layout:  # no row of a layout is held out
        write_trained(files, parents["partition"], parents["ingest"])
    dataset = DatasetStore(parents["ingest"].folder, parents["ingest"].manifest)
    write_row_ids(files, recipe.model, graph_facts(parents["partition"].manifest), dataset)


def _log_model(challenge: Challenge, tracker: Tracker) -> str:
    """Log the model's files, with the final metrics attached to them; return MLflow's id."""
    parents, files = challenge.parents, challenge.files
    train: RunResult = parents["train"].manifest
    params = {**flatten(train.model, "model"), "dataset": parents["ingest"].manifest.dataset, "seed": str(train.seed)}
    model_id = tracker.log_model(files, challenge.recipe.name, model_digest(files), params)
    log_finals(tracker, parents, model_id)
    return model_id


def log_finals(tracker: Tracker, parents: dict[str, Parent], model_id: str | None = None) -> None:
    """The evaluation's metrics, also as the model's own where that is given."""
    evaluation: EvalReport = parents["evaluate"].manifest
    values = {f"final/{split}/{key}": v for split, found in evaluation.metrics.items() for key, v in found.items()}
    for name, splits in evaluation.controls.items():
        # MLflow sorts by name: so the model's own metrics (final) stand first.
        for split, found in splits.items():
            values |= {f"simple_control/{name}/{split}/{key}": value for key, value in found.items()}
    tracker.log_metrics(values, parents["train"].manifest.best_epoch, model_id)


def _register(
    challenge: Challenge,
    tracker: Tracker,
    model_id: str,
    judge: Judge,
    report: Callable[[str, Decision], None],
) -> tuple[str, Decision]:
    """Register the model, let the gate decide on the version, `report` the decision, carry it out."""
    recipe, train = challenge.recipe, challenge.parents["train"].manifest
    tags = {"graphmill.train_key": train.key, "graphmill.recipe": recipe.name, "graphmill.code": train.code_version}
    tags |= vector_tags(challenge.parents)
    if not math.isnan(judge.new.value):  # MLflow's list of versions has a column of tags, and none of metrics
        tags[metric_key(judge.new.metric)] = f"{judge.new.value:.4f}"
    text = recipe.description or f"{train.model.get('name', 'model')} trained by recipe {recipe.name}"
    if judge.new.control:
        text = f"{controls_named([judge.new.control])}: a control of recipe {recipe.name}, in place of its model"
    text = "\n\n".join([text, *vector_notes(challenge.parents)])
    registry = ModelRegistry(tracker, judge.name)
    return registry.publish(model_id, {**tags, **gate_tags(judge.new)}, text, judge, report)


def _say_outcome(context: StageContext, name: str, decision: Decision, gate: dict[str, Any]) -> None:
    outcome = f"{name}: {'champion' if decision.promote else 'not champion'}, {decision.reason}"
    (context.warn if decision.loud else context.message)(outcome)
    if decision.compared is not None and decision.compared.other_graph:
        # What it goes on to say is for who wants to predict with the old one.
        context.message(decision.compared.why_not.partition(". ")[0])
    if gate["drift"] is not None:
        context.message(profile.text(gate["drift"]))


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


def _close_quietly(tracker: Tracker, status: RunStatus) -> None:
    """Mark the run as failed or killed; an error of this must not hide the first one."""
    with suppress(Exception):
        tracker.close(status)
