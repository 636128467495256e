"""What the publish stage does: MLflow, the model registry, and the report.

It can be repeated: a rerun after a crash goes on in the same MLflow run, and stores nothing twice.
"""

from __future__ import annotations

import math
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from configs.load import dump_recipe
from configs.schema import Recipe
from tasks.apply.model.files import model_digest, write_model
from tasks.apply.model.needs import DataNeeds, chosen_threshold
from tasks.apply.model.row_ids import write_row_ids
from tasks.processes import ending
from tasks.processes.run_context import current_run
from tasks.publish import profile, snapshots
from tasks.publish.champion.comparison import Challenge, Judge, candidate
from tasks.publish.champion.trained import write_trained
from tasks.publish.gate.rules import Candidate, Decision, controls_named
from tasks.publish.map.of_run import write_maps
from tasks.publish.report.page import render
from tasks.publish.report.parts import Publication, ReportedRun
from tasks.publish.run_log import describe, log_finals, log_run
from tasks.publish.tracking.mlflow_store import RunStatus, Tracker
from tasks.publish.tracking.model_registry import ModelRegistry
from tasks.publish.tracking.records import flatten, metric_key
from tasks.publish.tracking.version_tags import gate_tags
from tasks.publish.vectors import vector_notes, vector_tags
from tasks.stage import Parent, StageContext
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.outcomes import GateRecord, RunResult

REPORT = "report.html"
_STEPS = 6
_FILES = ".model"


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Log the training, register its model, decide on the champion, write the report.

    Raises RecipeError: the gate metric was not measured; StageError: MLflow cannot be reached; running again publishes
    what is there.
    """
    files = context.work / _FILES
    # Before anything is stored: a mistake in the recipe must leave no half-published run.
    context.progress(0, _STEPS, "steps", "model")
    _write_files(context, recipe, parents, files)
    primary = parents["evaluate"].manifest.metric
    metric = f"all/{primary}" if recipe.is_layout else recipe.tracking.gate_metric or f"valid/{primary}"
    challenge = Challenge(context, recipe, parents, files, metric)
    new = candidate(challenge)
    context.progress(1, _STEPS, "steps", "connecting to MLflow")
    tracker = Tracker(context.home, recipe.tracking.experiment, on_wait=context.message)
    tracker.open_run(parents["train"].manifest.key, recipe.name, current_run(), trains=False)

    def close_quietly(status: RunStatus) -> None:
        with suppress(Exception):  # an error of this must not hide the first one
            tracker.close(status)

    try:
        with ending.closing(lambda: close_quietly("KILLED")), ending.undisguised():
            fields = _publish(challenge, tracker, new)
    except BaseException as error:
        close_quietly("FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    tracker.close("FINISHED")
    context.progress(_STEPS, _STEPS, "steps", "done")
    return fields


def _write_files(context: StageContext, recipe: Recipe, parents: dict[str, Parent], files: Path) -> None:
    shutil.rmtree(files, ignore_errors=True)
    checkpoint = parents["train"].folder / parents["train"].manifest.best_checkpoint
    manifests = {name: parent.manifest for name, parent in parents.items()}
    lineage = {name: {"key": m.key, "digest": m.digest, "code": m.code_version} for name, m in manifests.items()}
    write_model(files, checkpoint, recipe.name, dump_recipe(recipe), lineage, vector_notes(parents))
    threshold = chosen_threshold(parents["evaluate"].manifest)
    replace(DataNeeds.of(context, recipe, parents), threshold=threshold).write(files)
    profile.write(files, profile.describe(recipe, parents))
    if not recipe.is_layout:  # no row of a layout is held out
        write_trained(files, parents["partition"], parents["ingest"])
    dataset = DatasetStore(parents["ingest"].folder, parents["ingest"].manifest)
    write_row_ids(files, recipe.model, graph_facts(parents["partition"].manifest), dataset)


def _publish(challenge: Challenge, tracker: Tracker, new: Candidate) -> dict[str, Any]:
    context, recipe, parents = challenge.context, challenge.recipe, challenge.parents
    log_run(tracker, recipe, parents)
    context.progress(2, _STEPS, "steps", "model")
    train: RunResult = parents["train"].manifest
    params = {**flatten(train.model, "model"), "dataset": parents["ingest"].manifest.dataset, "seed": str(train.seed)}
    model_id = tracker.log_model(challenge.files, recipe.name, model_digest(challenge.files), params)
    log_finals(tracker, parents, model_id)
    context.progress(3, _STEPS, "steps", "report")
    maps = write_maps(context.work, recipe, parents, context.warn)
    snapshot = None
    if recipe.snapshot.as_of is not None:
        now, earlier = snapshots.describe(recipe, parents), snapshots.previous(context.home, recipe)
        snapshot = snapshots.write_snapshot(context.work / snapshots.FILE_NAME, now, earlier)
    name, notes = recipe.tracking.model_name or recipe.name, vector_notes(parents)
    judge = Judge(challenge, tracker, name, new, current_run().leave_champion)
    records: list[GateRecord] = []

    def report(version: str, decision: Decision) -> None:
        """Say all that is to be said: the champion's alias moves last, and then the run has its record of it."""
        gate = judge.record(version, decision)
        records.append(gate)
        tracker.describe(describe(recipe, parents, notes, version, gate))
        tracker.set_tags({"graphmill.version": f"{name}@{version}", "graphmill.gate_reason": gate.reason})
        flow_run = current_run().flow_run_id, current_run().flow_run_url
        publication = Publication(tracker.run_id, tracker.run_url, name, version, gate, *flow_run)
        reported = ReportedRun(recipe, parents, publication, snapshot)
        page = render(reported, [context.work / file for file in maps], context.warn)
        (context.work / REPORT).write_text(page, encoding="utf-8")
        for file in (REPORT, *maps):
            tracker.log_artifact(context.work / file)
        context.progress(4, _STEPS, "steps", "registry")

    tags = {"graphmill.train_key": train.key, "graphmill.recipe": recipe.name, "graphmill.code": train.code_version}
    if not math.isnan(new.value):  # MLflow's list of versions has a column of tags, and none of metrics
        tags[metric_key(new.metric)] = f"{new.value:.4f}"
    tags |= vector_tags(parents) | gate_tags(new)
    text = recipe.description or f"{train.model.get('name', 'model')} trained by recipe {recipe.name}"
    if new.control:
        text = f"{controls_named([new.control])}: a control of recipe {recipe.name}, in place of its model"
    text = "\n\n".join([text, *notes])
    version, decision = ModelRegistry(tracker, name).publish(model_id, tags, text, judge, report)
    shutil.rmtree(challenge.files)
    gate = records[-1]
    outcome = f"{name} version {version}: {'champion' if decision.promote else 'not champion'}, {decision.reason}"
    (context.warn if decision.loud else context.message)(outcome)
    if decision.compared is not None and decision.compared.other_graph:
        # What it goes on to say is for who wants to predict with the old one.
        context.message(decision.compared.why_not.partition(". ")[0])
    if gate.drift is not None:
        context.message(profile.text(gate.drift))
    return {
        "mlflow_run_id": tracker.run_id,
        "mlflow_run_url": tracker.run_url,
        "model_name": name,
        "model_version": version,
        "champion": gate.promoted,
        "gate": gate,
        "report_file": REPORT,
        "maps": maps,
    }
