"""The gate at work: asks for what the rule (`gate.py`) wants to know, and writes down what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from configs.schema import Recipe
from tasks.publish import profile
from tasks.publish.champion.comparison import Challenge, data_text, prepared_digest
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
from tasks.publish.tracking.registered import ModelVersion, find_version
from tasks.stage import Parent
from tasks.storage.manifests import EvalReport


def candidate(recipe: Recipe, parents: dict[str, Parent], challenge: Challenge) -> Candidate:
    """Return what the gate knows of a model before it has a version.

    Raises RecipeError: the gate metric was not measured.
    """
    evaluation = parents["evaluate"].manifest
    primary_higher = bool(evaluation.report.get("higher_is_better", True))
    # Snapshots of one data set hold different data.
    dataset = parents["ingest" if recipe.snapshot.as_of is None else "preprocess"].manifest.digest
    higher = higher_is_better(challenge.metric, evaluation.metric, primary_higher)
    value, controls = challenge.own_value()
    control, what = "", recipe.tracking.gate_controls
    if recipe.tracking.publish == "best":
        control = _better_control(challenge, higher, value, controls)
    counted = {name: bar for name, bar in controls.items() if counts(name, what)}
    if control:
        counted = {recipe.model.name: value} | {name: bar for name, bar in counted.items() if name != control}
        value = challenge.publish_control(control)
    return Candidate(
        version="",
        metric=challenge.metric,
        value=value,
        higher_is_better=higher,
        dataset=dataset,
        prepared=prepared_digest(recipe, parents),
        controls=counted,
        doubtful=frozenset() if control else _hardly_beaten(challenge.metric, evaluation, counted),
        control=control,
        as_of=recipe.snapshot.as_of or "",
        unit=parents["partition"].manifest.report.get("snapshot", {}).get("unit", "number"),
        is_layout=recipe.is_layout,
    )


def _hardly_beaten(gate: str, evaluation: EvalReport, controls: Mapping[str, float]) -> frozenset[str]:
    """Return the controls from which other rows of the same kind might not tell the model (`SureMetrics.intervals`)."""
    split, _, name = gate.partition("/")
    intervals = evaluation.report.get("intervals", {}).get(split) if name == evaluation.metric else None
    if intervals is None:
        return frozenset()
    own = intervals["metric"]
    of_constants = {} if own is None else {name: [end - bar for end in own] for name, bar in controls.items()}
    above = of_constants | intervals["above"]
    return frozenset(name for name, (low, high) in above.items() if low <= 0 <= high)


def _better_control(challenge: Challenge, higher: bool, value: float, controls: dict[str, float]) -> str:
    """Return the control that is to be published in place of the model; empty: none is better and can serve."""
    manifest = challenge.parents["partition"].manifest
    best, unable = best_control(challenge.metric, higher, value, controls, is_link=manifest.task == "link")
    if manifest.heads:
        best = None
    if unable:
        challenge.context.warn(
            f"{controls_named(unable)}: better than the model, and cannot be published in its place "
            "(tracking.publish), for it scores no rows of other data"
        )
    return best or ""


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

    def record(self, version: str, decision: Decision) -> dict[str, Any]:
        """Return plain values of a decision: for the manifest, the report and whoever is told."""
        compared, other = decision.compared, self.champion
        if other is not None and other.version == version:
            other = None
        found = {
            "promoted": decision.promote,
            "reason": decision.reason,
            "short": decision.short,
            "loud": decision.loud,
            "left_alone": self.leave_alone and not decision.promote,
            "metric": self.new.metric,
            "higher_is_better": self.new.higher_is_better,
            "value": None if math.isnan(self.new.value) else self.new.value,
            "controls": dict(self.new.controls),
            "control": self.new.control,
            "data": data_text(self.challenge.recipe),
            "against": None if other is None else other.version,
            "drift": None if other is None else self.challenge.drift(self.tracker, other),
        }
        if compared is None:
            return found
        return found | {
            "challenger": compared.new,
            "champion": compared.old,
            "rows": compared.rows,
            "recorded": compared.recorded,
            "trained_on": compared.trained_on,
            "why_not": compared.why_not,
        }


def facts(version: str, gate: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a decision (`Judge.record`) as rows of (name, text) for the report; none where there is none."""
    if not gate:
        return []
    this, other = f"version {version}", f"version {gate['against']}"
    control = gate.get("control", "")
    rows = [("published", f"{controls_named([control])}, a control, in place of the model")] if control else []
    rows += [("decision", f"{this} is {'' if gate['promoted'] else 'not '}champion: {gate['reason']}")]
    if gate.get("champion") is not None:
        rows += [
            (f"{this}, {gate['metric']}", f"{gate['challenger']:.4f}"),
            (f"{other}, {gate['metric']}", f"{gate['champion']:.4f}"),
            ("rows of both", f"{gate['rows']:,} of the validation split of {gate['data']}"),
        ]
    rows += [(f"control {name}", f"{value:.4f}") for name, value in gate["controls"].items()]
    if gate["against"] is not None:
        found = gate["drift"]
        unknown = [("its data", f"what data {other} was trained on is not known")]
        rows += profile.facts(found) if found else unknown
    return rows
