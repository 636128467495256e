"""Champion and challenger on the same data: the challenger's validation rows, both through what serving does.

A champion that cannot read the data is a result (`Compared.why_not`). Where the store cannot be reached, the disk is
full or a process died, the stage fails, and a rerun compares again. `Judge` asks for what
the rules (`gate/rules.py`) want to know, and writes down what came of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import GraphmillError, IntegrityError, OtherGraphError, StageError, UntrustedCodeError, UserError
from configs.metric_names import EVEN_METRICS, metric_of
from configs.schema import Recipe
from tasks.apply.measure import Measured, MeasureJob
from tasks.apply.model.files import CONTROL_README, model_digest
from tasks.apply.model.needs import DataNeeds, label_columns
from tasks.apply.model.published import Published, read_published
from tasks.apply.run import prepare_for
from tasks.publish import profile
from tasks.publish.champion.trained import trained_on
from tasks.publish.gate.rules import (
    Candidate,
    Compared,
    Decision,
    best_control,
    controls_named,
    controls_of,
    counts,
    decide,
    higher_is_better,
)
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.registered import fetch_model, find_version
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.publish.vectors import provide_vectors
from tasks.stage import Parent, StageContext
from tasks.storage.artifacts import write_atomic
from tasks.storage.controls import CONTROLS
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.ids import class_names
from tasks.storage.outcomes import GateRecord
from tasks.storage.snapshots import check_snapshot
from tasks.supervise import run_job

_LEFT_OUT = "left_out.npy"


def data_text(recipe: Recipe) -> str:
    """Name the data, for people."""
    return f"the data of {recipe.name}" + ("" if recipe.snapshot.as_of is None else f" as of {recipe.snapshot.as_of}")


@dataclass(frozen=True)
class Challenge:
    """A trained model whose publication asks whether it is better than the champion."""

    context: StageContext
    recipe: Recipe
    parents: dict[str, Parent]
    files: Path
    """Folder of its files, as they are published."""
    metric: str
    """`split/metric`."""

    def measured_value(self) -> tuple[float, dict[str, float]]:
        """Return the gate metric on the validation split, and that of each control, those too that do not count.

        As evaluated, else measured now (`evaluate.splits=[test]`). Raises RecipeError: there is no such metric.
        """
        evaluation = self.parents["evaluate"].manifest
        split, _, name = self.metric.partition("/")
        if split in evaluation.metrics:
            value = metric_of(name, evaluation.metrics[split], split)
            return value, controls_of(self.metric, evaluation.controls)
        outcome = self.measure([self.own()], None, controls=True)
        measured = {control: {split: {name: value}} for control, value in outcome["controls"].items()}
        return float(outcome["models"][0]["value"]), controls_of(self.metric, measured)

    def publish_control(self, name: str) -> float:
        """Put the files of a control in the place of the model's; returns its value of the gate metric."""
        outcome = self.measure([self.own()], None, publish=name)
        readme = CONTROL_README.format(name=self.recipe.name, what=CONTROLS[name].what)
        write_atomic(self.files / "README.md", readme.encode())
        DataNeeds.of(self.context, self.recipe, self.parents, name).write(self.files)
        return float(outcome["models"][0]["value"])

    def against(self, tracker: Tracker, new: Candidate, champion: ModelVersion) -> Compared:
        """Compare with the champion, whose metric is the same.

        Raises StageError: the champion's files cannot be had now, or a process died; nothing is known then.
        """
        old = champion.gate
        if new.prepared and old.prepared == new.prepared and not np.isnan(old.value):
            rows = self.parents["partition"].manifest.splits["valid"]
            even = self.metric.rpartition("/")[2].rpartition(".")[2] in EVEN_METRICS
            telling = self.parents["evaluate"].manifest.report["telling_rows"].get("valid", rows) if even else rows
            return Compared(new.value, old.value, rows, telling, data_text(self.recipe), recorded=True)
        try:
            return self._compare(tracker, champion, new.value)
        except StageError as error:
            raise StageError(
                f"{error}\nSo the champion, {champion.reference}, was not compared with the new version {new.version}, "
                f"and stays for now. Run again; or choose by hand: graphmill promote {champion.name}@{new.version}"
            ) from error

    def _compare(self, tracker: Tracker, champion: ModelVersion, value: float) -> Compared:
        data = data_text(self.recipe)
        try:
            check_snapshot(self.recipe)
        except UserError as error:  # its source went away since it was ingested: that says nothing of the champion
            raise StageError(str(error)) from error
        try:
            published = champion_files(tracker, champion)
            provide_vectors(published.recipe, self.context.home, map_shards=self.context.map_shards)
            graph = prepare_for(published, self.recipe, self.parents["ingest"], self.context)
        except UntrustedCodeError as error:
            return Compared(value, None, 0, 0, data, why_not=str(error).partition("\n")[0] + ".", untrusted=True)
        except (UserError, IntegrityError) as error:
            other_graph = isinstance(error, OtherGraphError)
            return Compared(value, None, 0, 0, data, why_not=" ".join(str(error).split()), other_graph=other_graph)
        mask = trained_on(published.folder, self.parents["partition"], self.parents["ingest"])
        same_graph = graph.manifest.digest == published.lineage["partition"]["digest"]
        needs = published.needs
        theirs = Measured(published.folder, graph.folder, same_graph, needs.classes, needs.labels)
        outcome = self.measure([self.own(), theirs], mask)
        new, other = outcome["models"]
        return Compared(
            new=float(new["value"]),
            old=None if "why_not" in other else float(other["value"]),
            rows=outcome["rows"],
            telling=outcome["telling"],
            data=data,
            interval=other.get("interval"),
            why_not=other.get("why_not", ""),
            other_graph=other.get("other_graph", False),
            trained_on=None if mask is None else int(mask.sum()),
            left_out=outcome["left_out"],
        )

    def drift(self, tracker: Tracker, champion: ModelVersion) -> dict[str, Any] | None:
        """Return how this data differs from the champion's (see `profile.compare`); None where nobody knows."""
        try:
            before, now = profile.read(fetch_model(tracker, champion)), profile.read(self.files)
            return None if now is None or before is None else profile.compare(before, now)
        except (GraphmillError, KeyError, TypeError):  # no decision rests on it
            return None

    def own(self) -> Measured:
        """Return the new model on its own graph."""
        ingest, graph = self.parents["ingest"], self.parents["partition"].folder
        store = DatasetStore(ingest.folder, ingest.manifest)
        return Measured(self.files, graph, True, class_names(store), label_columns(store.manifest, store))

    def measure(
        self, models: list[Measured], mask: Any, *, controls: bool = False, publish: str = ""
    ) -> dict[str, Any]:
        """Measure in a process of its own; `mask`, bool (rows,) or None, tells rows to leave out.

        With `controls` also what the first model has to beat, on all rows; with `publish` that control takes the place
        of the first model. Returns: as `tasks.apply.measure.Measuring.run`.
        """
        work, recipe = self.context.work / ".measure", self.recipe
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        left_out = mask is not None and bool(mask.any())
        if left_out:
            np.save(work / _LEFT_OUT, mask)
        job = MeasureJob(
            models=tuple(models),
            dataset=self.parents["ingest"].folder,
            metric=self.metric.partition("/")[2],
            evaluator=recipe.evaluate.evaluator.model_dump(mode="json"),
            left_out=work / _LEFT_OUT if left_out else None,
            batch_size=recipe.evaluate.batch_size,
            device=recipe.train.device,
            threads=recipe.train.threads,
            work=work,
            controls=controls,
            publish=publish,
        )
        inner = replace(self.context, work=work)  # a folder of its own: what it leaves is no part of the artifact
        try:
            return run_job("tasks.apply.measure", job, inner)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def champion_files(tracker: Tracker, champion: ModelVersion) -> Published:
    """Return the champion's files, whole: a damaged copy is fetched anew.

    Raises IntegrityError, RecipeError: they are not what was published, or of another kind than this graphmill reads;
    StageError: the store cannot be reached.
    """
    for attempt in (1, 2):
        folder = fetch_model(tracker, champion)
        digest = tracker.published_digest(champion.model_id)
        if not digest or model_digest(folder) == digest:
            return read_published(folder, champion.reference)
        if attempt == 1:
            shutil.rmtree(folder)
    raise IntegrityError(f"the files of {champion.reference} are not those that were published")


def candidate(challenge: Challenge) -> Candidate:
    """Return what the gate knows of a model before it has a version.

    Raises RecipeError: the gate metric was not measured.
    """
    recipe, parents, gate = challenge.recipe, challenge.parents, challenge.metric
    evaluation, graph = parents["evaluate"].manifest, parents["partition"].manifest
    higher = higher_is_better(gate, evaluation.metric, bool(evaluation.report.get("higher_is_better", True)))
    value, measured = challenge.measured_value()
    control = ""
    if recipe.tracking.publish == "best":
        of_ends = graph.split_rows.are_links or graph.split_rows.are_edges
        best, unable = best_control(gate, higher, value, measured, is_link=of_ends)
        control = "" if best is None or graph.heads else best
        if unable:
            challenge.context.warn(
                f"{controls_named(unable)}: better than the model, and cannot be published in its place "
                "(tracking.publish), for it scores no rows of other data"
            )
    controls = {name: bar for name, bar in measured.items() if counts(name, recipe.tracking.gate_controls)}
    if control:
        controls = {recipe.model.name: value} | {name: bar for name, bar in controls.items() if name != control}
        value = challenge.publish_control(control)
    # Controls from which other rows of the same kind might not tell the model (`SureMetrics.intervals`).
    split, _, name = gate.partition("/")
    intervals = evaluation.report.get("intervals", {}).get(split) if name == evaluation.metric else None
    above: dict[str, list[float]] = {}
    if intervals is not None and not control:
        ends = intervals["metric"]
        of_constants = {} if ends is None else {one: [end - bar for end in ends] for one, bar in controls.items()}
        above = of_constants | intervals["above"]
    # Equal ones are the same measurement: the prepared graph and split, and how they are evaluated.
    prepared = [graph.digest, evaluation.stage_version, recipe.evaluate.evaluator.model_dump(mode="json")]
    return Candidate(
        version="",
        metric=gate,
        value=value,
        higher_is_better=higher,
        # Snapshots of one data set hold different data.
        dataset=parents["ingest" if recipe.snapshot.as_of is None else "preprocess"].manifest.digest,
        prepared=hashlib.sha256(json.dumps(prepared, sort_keys=True).encode()).hexdigest(),
        controls=controls,
        doubtful=frozenset(one for one, (low, high) in above.items() if low <= 0 <= high),
        control=control,
        as_of=recipe.snapshot.as_of or "",
        unit=graph.report.get("snapshot", {}).get("unit", "number"),
        is_layout=recipe.is_layout,
    )


@dataclass
class Judge:
    """Decides on the version that a challenge becomes."""

    challenge: Challenge
    tracker: Tracker
    name: str
    """Of the registered model."""
    new: Candidate
    leave_alone: bool
    """The run was not asked to choose a champion."""
    champion: ModelVersion | None = None
    """Whom the last decision was made against."""

    def __call__(self, version: str, champion: str | None) -> Decision:
        """Decide; see `ModelRegistry.publish`."""
        self.champion = None if champion is None else find_version(self.tracker, f"{self.name}@{champion}")
        old = None if self.champion is None else self.champion.gate
        reason = old.promoted_because if old is not None and champion == version else ""
        new = replace(self.new, version=version, promoted_because=reason)

        def compare() -> Compared:
            assert self.champion is not None
            return self.challenge.against(self.tracker, new, self.champion)

        return decide(new, old, compare, name=self.name, leave_alone=self.leave_alone)

    def record(self, version: str, decision: Decision) -> GateRecord:
        """Return a decision for the manifest, the report and whoever is told."""
        compared, other = decision.compared, self.champion
        if other is not None and other.version == version:
            other = None
        new = self.new
        record = GateRecord(
            promoted=decision.promote,
            reason=decision.reason,
            short=decision.short,
            loud=decision.loud,
            left_alone=self.leave_alone and not decision.promote,
            metric=new.metric,
            higher_is_better=new.higher_is_better,
            value=None if math.isnan(new.value) else new.value,
            controls=dict(new.controls),
            control=new.control,
            data=data_text(self.challenge.recipe),
            against=None if other is None else other.version,
            drift=None if other is None else self.challenge.drift(self.tracker, other),
        )
        if compared is None:
            return record
        scored = {"challenger": compared.new, "champion": compared.old}
        same = {name: getattr(compared, name) for name in ("rows", "recorded", "trained_on", "why_not")}
        return record.model_copy(update=scored | same)
