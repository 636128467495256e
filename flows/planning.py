"""`graphmill plan`: which stages would run and which keys changed, without running anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from configs.errors import IntegrityError
from configs.schema import Recipe
from flows.console import format_bytes, format_seconds, out, table
from flows.runs import RunRecord, all_runs
from flows.selection import Selection
from tasks.artifacts import artifact_key
from tasks.calls import ParentGoneError, find_stage, load_stage
from tasks.home import Home
from tasks.snapshots import check_snapshot
from tasks.source_digests import SourceDigests

_SHOWN_CHANGES = 6
Told = Callable[[str, float, float, str, str], None]
"""Hears stage, done, total, unit and a note."""


@dataclass(frozen=True)
class Step:
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

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.stage,
            "status": self.status,
            "reasons": self.reasons,
            "key": self.key or None,
            "bytes": self.num_bytes,
            "seconds": self.seconds,
            "size_from": self.size_from or None,
        }


def _unheard(stage: str, done: float, total: float, unit: str, note: str) -> None:
    """Nobody listens."""


def make_plan(home: Home, recipe: Recipe, selection: Selection, progress: Told = _unheard) -> list[Step]:
    """Look at each stage in order, as `run` would. Raises RecipeError for a snapshot that the data cannot give.

    Source files that this home has not read yet are read, to know them by their content; `progress` hears of it.
    """
    check_snapshot(recipe)
    before = _latest_stages(home, recipe.name)
    keys: dict[str, str] = {}
    steps: list[Step] = []
    facts: dict[str, int] = dataset_facts(recipe)
    for name in selection.all:
        digests = SourceDigests(home, partial(progress, name))
        step = _step(digests, recipe, selection, name, keys, before.get(name))
        if step.status == "cached":
            keys[name] = step.key
            facts |= _facts_of(home, recipe, name, keys)
        elif step.num_bytes is None:
            estimate = estimated_bytes(name, recipe, facts)
            if estimate:
                step = Step(step.stage, step.status, step.reasons, step.key, estimate, None, "estimate")
        steps.append(step)
    return steps


def _step(
    digests: SourceDigests,
    recipe: Recipe,
    selection: Selection,
    name: str,
    keys: dict[str, str],
    old: dict[str, Any] | None,
) -> Step:
    stage, home = load_stage(name), digests.home
    runs = "runs" if name in selection.stages else "missing"
    size = (old["bytes"], old["build_seconds"], "last run") if old else (None, None, "")
    config = stage.key_content(recipe, digests)
    changes = changed_keys(old["config"], config) if old else []
    waiting = [parent for parent in stage.parents if parent not in keys]
    if waiting:
        return Step(name, runs, [f"since {' and '.join(waiting)} {_verb(waiting)}", *changes], "", *size)
    try:
        found = find_stage(name, recipe, {parent: keys[parent] for parent in stage.parents}, home)
    except (IntegrityError, ParentGoneError) as error:
        return Step(name, runs, [f"its stored artifact is damaged: {error}"], "", *size)
    if found is not None and name not in selection.force:
        manifest = found.manifest
        return Step(name, "cached", [], manifest.key, manifest.num_bytes, manifest.seconds, "artifact")
    if found is not None:
        return Step(name, runs, ["forced"], found.manifest.key, *size)
    reasons = _why(old, stage.version, changes, home, name, keys)
    return Step(name, runs, reasons, "", *size)


def _verb(names: list[str]) -> str:
    return "run" if len(names) > 1 else "runs"


def _why(
    old: dict[str, Any] | None, version: int, changes: list[str], home: Home, name: str, keys: dict[str, str]
) -> list[str]:
    """Say what differs from the latest run of the same recipe."""
    if old is None:
        return ["never ran for this recipe in this home"]
    reasons = list(changes)
    if old["version"] != version:
        reasons.append(f"the stage itself changed (version {old['version']} -> {version})")
    for parent, digest in old["parents"].items():
        if parent in keys and _digest(home, parent, keys[parent]) != digest:
            reasons.append(f"{parent} has other content")
    same = artifact_key(name, version, old["config"], old["parents"])
    return reasons or [f"its artifact {same[:8]} is no longer there"]


def _digest(home: Home, name: str, key: str) -> str:
    from tasks.artifacts import ArtifactStore

    manifest = ArtifactStore(home).load(name, key, load_stage(name).manifest)
    return manifest.digest if manifest is not None else ""


def _latest_stages(home: Home, recipe: str) -> dict[str, dict[str, Any]]:
    """Return the newest record of each stage in this recipe's runs."""
    found: dict[str, dict[str, Any]] = {}
    runs: list[RunRecord] = all_runs(home, recipe)
    for run in runs:
        for name, stage in run.stages.items():
            found.setdefault(name, stage)
    return found


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested values as `section.key` to value."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat


def changed_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Name the options that differ: `train.learning_rate 0.003 -> 0.01`."""
    before, after = flatten(old), flatten(new)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    lines = []
    for name in names:
        a, b = (_short(side[name]) if name in side else "(absent)" for side in (before, after))
        lines.append(f"{name} {a} -> {b}")
    return lines


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def dataset_facts(recipe: Recipe) -> dict[str, int]:
    """Return what a data set's options say of its size."""
    options = recipe.dataset.model_dump(mode="json")
    names = ("num_nodes", "num_edges", "feature_dim")
    return {name: options[name] for name in names if isinstance(options.get(name), int)}


def _facts_of(home: Home, recipe: Recipe, name: str, keys: dict[str, str]) -> dict[str, int]:
    if name not in ("ingest", "preprocess", "components", "partition"):
        return {}
    found = find_stage(name, recipe, {parent: keys[parent] for parent in load_stage(name).parents}, home)
    if found is None:
        return {}
    manifest = found.manifest
    facts = {"num_nodes": manifest.num_nodes, "num_edges": manifest.num_edges}
    if name == "ingest":
        facts["feature_dim"] = sum(f.dim for node_type in manifest.node_types for f in node_type.features)
    else:
        facts |= {"feature_dim": manifest.feature_dim, "whole": 1}
    return facts


def estimated_bytes(name: str, recipe: Recipe, facts: dict[str, int]) -> int | None:
    """Estimate the size of a stage's artifact from counts; None where nothing is known.

    Parquet takes about 0.8 of the raw ids; a graph has 4 bytes an edge (8 above 2^31 nodes), 8 bytes a node for the
    offsets and one for ids and labels each, and the features in the recipe's precision. Both directions count where
    the graph is symmetrised (`whole`: the count is of a graph that is made already).
    """
    if "num_nodes" not in facts or "num_edges" not in facts:
        return None
    nodes, edges, dim = facts["num_nodes"], facts["num_edges"], facts.get("feature_dim", 0)
    id_bytes = 4 if nodes < 2**31 else 8
    if name == "ingest":
        return int(edges * 2 * id_bytes * 0.8 + nodes * (4 * dim + 2))
    if name not in ("preprocess", "components", "partition"):
        return None
    if not facts.get("whole"):
        edges *= 2 if recipe.preprocess.symmetrize else 1
    width = 2 if recipe.preprocess.feature_dtype == "float16" else 4
    arrays = 1 if recipe.preprocess.symmetrize else 2
    return int(arrays * (edges * id_bytes + 8 * nodes) + nodes * (width * dim + 16))


def show_plan(steps: list[Step]) -> None:
    """Print the plan."""
    shown = table("stage", "", "why", "size", "time", right=("size", "time"))
    for step in steps:
        lines = step.reasons[:_SHOWN_CHANGES]
        if len(step.reasons) > len(lines):
            lines.append(f"and {len(step.reasons) - len(lines)} more")
        about = "~" if step.size_from in ("estimate", "last run") else ""
        size = f"{about}{format_bytes(step.num_bytes)}" if step.num_bytes is not None else "?"
        took = f"{about}{format_seconds(step.seconds)}" if step.seconds is not None else "?"
        shown.add_row(step.stage, step.status, "\n".join(lines), size, took if step.status != "cached" else "")
    console = out()
    console.print(shown, markup=False)
    if any(step.status == "missing" for step in steps):
        console.print("missing: not among the stages to run, but they build on it; run it first")
