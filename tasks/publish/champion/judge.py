"""The gate at work: asks for what the rules (`gate/rules.py`) want to know, and writes down what came of it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace

from tasks.publish.champion.comparison import Challenge, data_text
from tasks.publish.gate.rules import (
    Candidate,
    Compared,
    Decision,
    best_control,
    controls_named,
    counts,
    decide,
    higher_is_better,
)
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.registered import find_version
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.storage.outcomes import GateRecord


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
        best, unable = best_control(gate, higher, value, measured, is_link=graph.split_rows.are_links)
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
