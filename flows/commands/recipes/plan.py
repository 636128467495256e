"""`graphmill plan`: which stages would run and which keys changed, without running anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from configs.base import ConfigModel
from configs.changes import as_text
from configs.errors import GraphmillError, IntegrityError
from configs.schema import Recipe
from flows.records.run_record import all_runs
from flows.terminal.console import format_bytes, format_seconds, out, table
from flows.terminal.selection import Selection
from tasks.calls import ParentGoneError, StageRecord, find_stage, load_stage
from tasks.processes.memory import available_bytes
from tasks.publish.vectors import with_versions
from tasks.sizes import Counts, counts_of, disk_bytes, expected_counts, memory_bytes, refuse_excess_data
from tasks.storage.artifacts import ArtifactStore, artifact_key
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests
from tasks.storage.manifests import DatasetManifest, GraphManifest, PartitionManifest
from tasks.storage.snapshots import check_snapshot
from tasks.train.families import check_options, family_of

_SHOWN_CHANGES = 6
ReadingProgress = Callable[[str, float, float, str, str], None]
"""Hears stage, done, total, unit and a note."""


@dataclass(frozen=True)
class PlannedStage:
    """What would become of a stage."""

    stage: str
    status: str
    """`cached`, `runs`, `missing` (not selected, yet needed) or `skipped`."""
    reasons: list[str] = field(default_factory=list)
    key: str = ""
    """Empty where a stage before it runs: the key depends on what that makes."""
    num_bytes: int | None = None
    seconds: float | None = None
    size_from: str = ""
    """Where size and time are from: `artifact`, `last run` or `estimate`."""
    memory_bytes: int | None = None
    """Peak memory: estimated from what the recipe asks for now, else as it was measured."""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        values = {"name": self.stage, "bytes": self.num_bytes, **asdict(self)}
        del values["stage"], values["num_bytes"]
        return values | {"key": self.key or None, "size_from": self.size_from or None}


def make_plan(
    home: Home, recipe: Recipe, selection: Selection, progress: ReadingProgress = lambda *_: None
) -> list[PlannedStage]:
    """Look at each stage in order, as `run` would.

    Source files that this home has not read yet are read, to know them by their content; `progress` hears of it. Raises
    RecipeError: a snapshot that the data cannot give, data that no memory holds, options that cannot train, an unknown
    registered model; StageError: the registry that the recipe takes vectors from cannot be reached.
    """
    check_snapshot(recipe)
    refuse_excess_data(recipe)
    if "train" in selection.stages:
        check_options(recipe)
    recipe = with_versions(recipe, home)
    before: dict[str, StageRecord] = {}
    for run in all_runs(home, recipe.name):
        before = run.stages | before
    keys: dict[str, str] = {}
    steps: list[PlannedStage] = []
    counts, manifest = expected_counts(recipe), None
    for name in selection.all:
        digests = SourceDigests(home, partial(progress, name))
        step = _step(digests, recipe, selection, name, keys, before.get(name))
        if step.status == "cached":
            keys[name] = step.key
            manifest = ArtifactStore(home).load(name, step.key, load_stage(name).manifest)
            counts = counts_of(manifest) if isinstance(manifest, DatasetManifest | GraphManifest) else counts
        else:
            step = _estimated(home, step, recipe, counts, manifest)
        steps.append(step)
    return steps


def _estimated(home: Home, step: PlannedStage, recipe: Recipe, counts: Counts | None, manifest: Any) -> PlannedStage:
    if counts is None:
        return step
    if (size := disk_bytes(step.stage, recipe, counts)) is not None:  # the last run's may be that of a smaller graph
        step = replace(step, num_bytes=size, size_from="estimate")
    if step.stage != "train":
        needed = memory_bytes(step.stage, recipe, counts)
        return step if needed is None else replace(step, memory_bytes=needed)
    try:
        training = _training_size(home, recipe, counts, manifest)
    except GraphmillError as error:
        return replace(step, reasons=[f"it will fail: {error}", *step.reasons])
    if training is None:
        return step
    weights, needed = training
    return replace(step, reasons=[*step.reasons, weights], memory_bytes=needed)


def _step(
    digests: SourceDigests,
    recipe: Recipe,
    selection: Selection,
    name: str,
    keys: dict[str, str],
    old: StageRecord | None,
) -> PlannedStage:
    stage, home = load_stage(name), digests.home
    runs = "runs" if name in selection.stages else "missing"
    costs = (old.bytes, old.build_seconds, "last run", old.peak_bytes) if old else (None, None, "")
    config = stage.key_content(recipe, digests)
    changes = _changes(recipe, name, old.config, config) if old else []
    waiting = [parent for parent in stage.parents if parent not in keys]
    if waiting:
        verb = "run" if len(waiting) > 1 else "runs"
        names = " and ".join(filter(None, (", ".join(waiting[:-1]), waiting[-1])))
        return PlannedStage(name, runs, [f"since {names} {verb}", *changes], "", *costs)
    try:
        artifact = find_stage(name, recipe, {parent: keys[parent] for parent in stage.parents}, home)
    except (IntegrityError, ParentGoneError) as error:
        return PlannedStage(name, runs, [f"its stored artifact is damaged: {error}"], "", *costs)
    if artifact is not None and name not in selection.force:
        manifest = artifact.manifest
        costs = (manifest.num_bytes, manifest.seconds, "artifact", manifest.peak_bytes)
        told = manifest.report.get("negatives", []) if name == "preprocess" else []
        return PlannedStage(name, "cached", told, manifest.key, *costs)
    if artifact is not None:
        return PlannedStage(name, runs, ["forced"], artifact.manifest.key, *costs)
    reasons = [f"it will fail: {text}" for text in digests.missing]
    reasons += _reasons(old, stage.version, changes, home, name, keys)
    return PlannedStage(name, runs, reasons, "", *costs)


def _changes(recipe: Recipe, stage: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Name the options that differ; the threads that a machine has by itself are nobody's option."""
    changes = changed_keys(_keyed(recipe, stage, old), _keyed(recipe, stage, new))
    before, now = (flatten(config).get("train.threads") for config in (old, new))
    if before is None or before == now or recipe.train.threads:
        return changes
    others = [change for change in changes if not change.startswith("train.threads ")]
    return [f"trained with {before} threads, this machine would use {now} (train.threads={before} keeps it)", *others]


def _keyed(recipe: Recipe, stage: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return a stage's options under the names that a recipe has for them: some keep their own section's alone."""
    section = getattr(recipe, stage, None)
    fields = type(section).model_fields if isinstance(section, ConfigModel) else {}
    return {f"{stage}.{name}" if name in fields else name: value for name, value in config.items()}


def _reasons(
    old: StageRecord | None, version: int, changes: list[str], home: Home, name: str, keys: dict[str, str]
) -> list[str]:
    if old is None:
        return ["never ran for this recipe in this home"]
    reasons = [f"the stage itself changed (version {old.version} -> {version})"] if old.version != version else []
    reasons += changes
    for parent, digest in old.parents.items():
        if parent in keys:
            manifest = ArtifactStore(home).load(parent, keys[parent], load_stage(parent).manifest)
            if manifest is None or manifest.digest != digest:
                reasons.append(f"{parent} has other content")
    same = artifact_key(name, version, old.config, old.parents)
    return reasons or [f"its artifact {same[:8]} is no longer there"]


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested values as `section.key` to value; sections in a list as `section.0.key`."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat


def changed_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Name the options that differ: `train.learning_rate 0.003 -> 0.01`."""
    before, after = flatten(old), flatten(new)
    changes = []
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            texts = [shorten(as_text(one[name]), 60) if name in one else "(absent)" for one in (before, after)]
            changes.append(f"{name} {' -> '.join(texts)}")
    return changes


def shorten(text: str, width: int) -> str:
    """Return a text in at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _training_size(home: Home, recipe: Recipe, counts: Counts, manifest: Any) -> tuple[str, int] | None:
    """Return how many weights the model has, in words, and its training's peak memory; None: not known yet."""
    from models.facts import GraphFacts
    from tasks.storage.graph_facts import graph_facts

    num_parts = getattr(recipe.partition, "num_parts", 1)
    if isinstance(manifest, PartitionManifest):
        num_parts = manifest.num_parts
    if isinstance(manifest, GraphManifest):  # preprocess has made the graph: parts change none of this
        facts = graph_facts(manifest)
    else:  # a generated graph says it before it is there
        options = recipe.dataset.model_dump(mode="json")
        if options.get("task") is None or options.get("num_classes") is None:
            return None
        facts = GraphFacts(options["task"], options["num_classes"], counts.num_nodes, counts.feature_dim)
    return family_of(recipe.train).size(home, recipe, facts, counts, num_parts)


def plan_cluster(home: Home, recipe: Recipe, steps: Sequence[PlannedStage]) -> list[str]:
    """Say where the ranks of a training on a cluster would run, in lines; none: it is not on one, or is cached.

    Raises GraphmillError: the cluster does not answer.
    """
    training = next((step for step in steps if step.stage == "train" and step.status == "runs"), None)
    if recipe.cluster.address is None or training is None:
        return []
    from flows.cluster.machines import placement
    from tasks.cluster.survey import surveyed

    machines = surveyed(recipe.cluster, home)
    lines = placement(recipe, machines, (training.memory_bytes or 0) / recipe.train.num_ranks)
    return [*lines, *(f"it will fail: {one.unlike}" for one in machines if one.unlike)]


def show_plan(steps: list[PlannedStage], versions: list[tuple[str, str]], placed: Sequence[str] = ()) -> None:
    """Print the plan; `versions` of registered models that features come from, by the names that the recipe has.

    `placed`: lines about a cluster.
    """
    shown = table("stage", "", "why", "size", "memory", "time", right=("size", "memory", "time"))
    for step in steps:
        lines = step.reasons[:_SHOWN_CHANGES]
        if len(step.reasons) > len(lines):
            lines.append(f"and {len(step.reasons) - len(lines)} more")
        about = "~" if step.size_from in ("estimate", "last run") else ""
        size = f"{about}{format_bytes(step.num_bytes)}" if step.num_bytes is not None else "?"
        took = f"{about}{format_seconds(step.seconds)}" if step.seconds is not None else "?"
        sure = "" if step.status == "cached" else "~"
        memory = f"{sure}{format_bytes(step.memory_bytes)}" if step.memory_bytes is not None else "?"
        shown.add_row(step.stage, step.status, "\n".join(lines), size, memory, took if step.status != "cached" else "")
    console = out()
    console.print(shown, markup=False)
    for asked, version in versions:
        console.print(f"features  vectors of {version}" + (f", which is {asked} now" if asked != version else ""))
    for line in placed:
        console.print(line, markup=False, soft_wrap=True)
    if any(step.status == "missing" for step in steps):
        console.print("missing: not among the stages to run, but they build on it; run it first")
    free = available_bytes()
    for step in steps:
        if step.status == "runs" and (step.memory_bytes or 0) > free and not (placed and step.stage == "train"):
            console.print(
                f"{step.stage} takes about {format_bytes(step.memory_bytes or 0)} of memory, and "
                f"{format_bytes(free)} are free here",
                style="yellow",
            )
