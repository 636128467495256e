"""`graphmill versions | promote | rollback`: registered models, their versions, and the champion's alias."""

from __future__ import annotations

import datetime
import math
from dataclasses import asdict
from typing import Any

from configs.errors import RecipeError
from flows.console import out, table
from tasks.home import Home
from tasks.publish.gate import CHAMPION
from tasks.publish.model_registry import ModelRegistry
from tasks.publish.registered import ModelVersion, find_version, model_names, model_versions, open_registry


def list_versions(home: Home, name: str | None) -> dict[str, list[ModelVersion]]:
    """Return the versions of a model, or of all models. Raises RecipeError where there is none."""
    tracker = open_registry(home)
    names = model_names(tracker) if name is None else [name]
    return {one: model_versions(tracker, one) for one in names}


def champion_history(home: Home, name: str) -> list[dict[str, Any]]:
    """Return the moves of a model's champion, oldest first."""
    return [asdict(move) for move in ModelRegistry(open_registry(home), name).history()]


def promote(home: Home, reference: str) -> dict[str, Any]:
    """Make `NAME@VERSION` champion; says what changed. Raises RecipeError where there is none."""
    name, _, wanted = reference.partition("@")
    tracker = open_registry(home)
    if not wanted or wanted == CHAMPION:
        numbers = ", ".join(one.version for one in model_versions(tracker, name)[:8])
        raise RecipeError(f"promote which version of {name}? name one: {name}@VERSION ({numbers})")
    version = find_version(tracker, reference)
    change = ModelRegistry(tracker, name).promote(version.version)
    return {"model": name, **asdict(change), "changed": change.changed}


def roll_back(home: Home, name: str) -> dict[str, Any]:
    """Give the alias back to the champion before; says what changed. Raises RecipeError where that is not known."""
    tracker = open_registry(home)
    model_versions(tracker, name)  # names those that there are, where this one is not
    change = ModelRegistry(tracker, name).roll_back()
    return {"model": name, **asdict(change), "changed": change.changed}


def version_json(version: ModelVersion) -> dict[str, Any]:
    """Return a version as plain values."""
    gate = version.gate
    return {
        "version": version.version,
        "aliases": list(version.aliases),
        "champion": CHAMPION in version.aliases,
        "metric": gate.metric or None,
        "value": None if math.isnan(gate.value) else gate.value,
        "recipe": version.recipe or None,
        "created_at": _moment(version).isoformat(timespec="seconds"),
        "mlflow_run_id": version.run_id or None,
        "data_digest": gate.dataset or None,
    }


def _moment(version: ModelVersion) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(version.created_ms / 1000, datetime.UTC)


def show_versions(models: dict[str, list[ModelVersion]]) -> None:
    """Print a line a version."""
    shown = table("model", "version", "", "metric", "value", "made", "recipe", "mlflow run", right=("version", "value"))
    for name, versions in models.items():
        for one in versions:
            value = "" if math.isnan(one.gate.value) else f"{one.gate.value:.4f}"
            made = _moment(one).astimezone().strftime("%Y-%m-%d %H:%M")
            row = (name, one.version, " ".join(one.aliases), one.gate.metric, value, made, one.recipe, one.run_id[:8])
            shown.add_row(*row)
    out().print(shown, markup=False)


def show_history(moves: list[dict[str, Any]]) -> None:
    """Print when the champion changed, and how."""
    words = {"gate": "by its metric", "promote": "by hand", "rollback": "taken back"}
    shown = table("when", "champion", "before", "how", right=("champion", "before"))
    for move in moves:
        shown.add_row(move["at"].replace("T", " ")[:16], move["version"], move["before"] or "-", words[move["how"]])
    out().print(shown, markup=False)


def show_change(change: dict[str, Any]) -> None:
    """Say in a line what became of the champion."""
    before, after = change["before"], change["after"]
    moved = f"champion: version {before} -> {after}" if before else f"champion: version {after}"
    text = moved if change["changed"] else f"champion: version {after}, as before"
    out().print(f"{change['model']} {text} ({change['reason']})", markup=False, soft_wrap=True)
