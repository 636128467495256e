"""Snapshots of a recipe: whether its data can be taken as of a moment, and which earlier ones this home knows."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from configs.errors import IntegrityError, RecipeError, UserError
from configs.load import dump_recipe
from configs.moments import TimeUnit, is_earlier, last_time, normalise_as_of
from configs.registry import DATASETS
from configs.schema import Recipe
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.stored import of_kind, read_json


def check_snapshot(recipe: Recipe) -> None:
    """Refuse a snapshot that the recipe's data cannot give; looks at the first rows of its files at most.

    Raises RecipeError: the data has no times, or they do not compare with `snapshot.as_of`; DataError: a file or a
    column is missing.
    """
    moment = recipe.version_moment
    if moment is not None and re.fullmatch(r"[+-]?\d+", moment) and len(moment) != len("2026"):
        raise RecipeError(f"snapshot.as_of={moment}: versions of tables are made at dates; give one: 2026-06-30")
    if recipe.snapshot.as_of is not None:
        last_time(recipe.snapshot.as_of, time_unit(recipe))


def time_unit(recipe: Recipe) -> TimeUnit:
    """Return what the times of the recipe's data count. Raises as `check_snapshot` does."""
    if recipe.version_moment is not None:
        return "seconds"
    dataset = DATASETS.create(recipe.dataset)
    # A user's own data set need not have the method; preprocessing sees whether its tables have times.
    unit: TimeUnit | None = dataset.time_unit() if hasattr(dataset, "time_unit") else "number"
    if unit is None:
        raise no_times(recipe)
    return unit if recipe.snapshot.unit == "auto" else recipe.snapshot.unit


def no_times(recipe: Recipe) -> RecipeError:
    """Return the error of data without times."""
    return RecipeError(
        f"snapshot.as_of={recipe.snapshot.as_of}: the data of dataset.name={recipe.dataset.name} has no times of nodes "
        "or edges, so nothing tells what existed then; name a time column (dataset.time of triples, "
        "dataset.nodes.time or dataset.edges.time of tables), or leave snapshot.as_of out"
    )


@dataclass(frozen=True)
class SnapshotRun:
    """An earlier snapshot of a recipe, from its run's record."""

    as_of: str
    keys: dict[str, str]
    """Stage to key of its artifact."""
    same_split: bool
    """Whether it was split as the recipe splits now."""


@dataclass(frozen=True)
class _Stage:
    key: str


@dataclass(frozen=True)
class _Record:
    recipe: str
    config: dict[str, Any]
    stages: dict[str, _Stage]
    started_at: str


def earlier_snapshots(home: Home, recipe: Recipe, stage: str) -> list[SnapshotRun]:
    """Return the recipe's runs as of an earlier moment whose artifact of `stage` is there, the newest moment first.

    Recipes are told by name and model; of one moment those with the same options come first, then the latest.
    """
    if recipe.snapshot.as_of is None:
        return []
    options, store, unit = dump_recipe(recipe), ArtifactStore(home), _known_unit(recipe)
    snapshots: list[tuple[str, bool, str, SnapshotRun]] = []
    for path in home.runs.glob("*.json"):
        try:
            record = of_kind(_Record, read_json(path), path)
            as_of, model = record.config["snapshot"].get("as_of"), record.config["model"].get("name")
            if record.recipe != recipe.name or as_of is None or stage not in record.stages:
                continue
            earlier = is_earlier(normalise_as_of(as_of), recipe.snapshot.as_of, unit)
        except (IntegrityError, OSError, ValueError, LookupError, AttributeError):
            continue  # being written, or not the record of a run with snapshots
        keys = {name: entry.key for name, entry in record.stages.items()}
        if model != recipe.model.name or not earlier or not store.folder(stage, keys[stage]).is_dir():
            continue
        run = SnapshotRun(as_of, keys, _split(record.config) == _split(options))
        snapshots.append((as_of, _options(record.config) == _options(options), record.started_at, run))
    newer_first = functools.partial(_newer_first, unit)
    return [run for *_, run in sorted(snapshots, key=functools.cmp_to_key(newer_first))]


def _known_unit(recipe: Recipe) -> TimeUnit:
    """Return what the times count; `number` where the files are gone since they were ingested."""
    if recipe.snapshot.unit != "auto":
        return recipe.snapshot.unit
    try:
        return time_unit(recipe)
    except (UserError, OSError):
        return "number"


def _options(config: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe without its moment and what has no part in its result."""
    kept = {key: value for key, value in config.items() if key not in ("snapshot", "tracking", "description")}
    return kept | {"snapshot": {key: value for key, value in config["snapshot"].items() if key != "as_of"}}


def _split(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config["snapshot"].items() if key not in ("as_of", "warm_start")}


def _newer_first(
    unit: TimeUnit, first: tuple[str, bool, str, SnapshotRun], second: tuple[str, bool, str, SnapshotRun]
) -> int:
    if is_earlier(first[0], second[0], unit):
        return 1
    if is_earlier(second[0], first[0], unit):
        return -1
    return -1 if first[1:3] > second[1:3] else int(first[1:3] < second[1:3])
