"""`graphmill versions | promote | rollback`: registered models, their versions, and the champion's alias."""

from __future__ import annotations

import datetime
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError
from flows.terminal.console import out, table
from flows.terminal.waiting import waiting
from tasks.publish.gate.rules import CHAMPION, TAG, happened, read_history
from tasks.publish.tracking.registered import find_version, model_versions
from tasks.publish.tracking.registry import open_registry, open_tracker
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.storage.home import Home

if TYPE_CHECKING:
    from tasks.publish.tracking.model_registry import ModelRegistry


def list_versions(home: Home, name: str | None) -> dict[str, list[ModelVersion]]:
    """Return the versions of a model, or of all models. Raises RecipeError where there is none."""
    registry = open_registry(home)
    names = registry.model_names() if name is None else [name]
    return {one: model_versions(registry, one) for one in names}


def champion_history(home: Home, name: str) -> list[dict[str, Any]]:
    """Return the moves of a model's champion, oldest first, each with its `reason`; empty where none is known."""
    registry = open_registry(home)
    reasons = {one.version: one.reason for one in model_versions(registry, name)}
    moves = happened(read_history(registry.model_tags(name).get(TAG)), registry.aliases(name).get(CHAMPION))
    return [asdict(move) | {"reason": reasons.get(move.version, "") if move.how == "gate" else ""} for move in moves]


def promote(home: Home, reference: str, *, force: bool = False) -> dict[str, Any]:
    """Make `NAME@VERSION` champion; says what changed.

    Raises RecipeError: there is none, or it does not beat its controls and `force` was not given.
    """
    name, _, wanted = reference.partition("@")
    registry = open_registry(home)
    if not wanted or wanted == CHAMPION:
        numbers = ", ".join(one.version for one in model_versions(registry, name)[:8])
        raise RecipeError(f"promote which version of {name}? name one: {name}@VERSION ({numbers})")
    version = find_version(registry, reference)
    unbeaten = version.gate.unbeaten
    below = version.gate.below_controls if unbeaten else ""
    if below and not force and CHAMPION not in version.aliases:
        raise RecipeError(
            f"{version.reference}: {below}; if it is to be champion: graphmill promote {reference} --force"
        )
    change = _model(home, name).promote(version.version, f", though {below}" if below else "")
    return {"model": name, **asdict(change), "changed": change.changed, "unbeaten": unbeaten}


def roll_back(home: Home, name: str) -> dict[str, Any]:
    """Give the alias back to the champion before; says what changed. Raises RecipeError where that is not known."""
    model_versions(open_registry(home), name)  # names those that there are, where this one is not
    change = _model(home, name).roll_back()
    return {"model": name, **asdict(change), "changed": change.changed}


def _model(home: Home, name: str) -> ModelRegistry:
    with waiting("loading MLflow"):
        from tasks.publish.tracking.model_registry import ModelRegistry

        return ModelRegistry(open_tracker(home), name)


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
        "controls": dict(gate.controls),
        "decision": version.decision or None,
        "reason": version.reason or None,
    }


def _moment(version: ModelVersion) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(version.created_ms / 1000, datetime.UTC)


def show_versions(models: dict[str, list[ModelVersion]]) -> None:
    """Print a line a version; what the gate compared it with was measured on its own validation rows."""
    names = ("model", "version", "", "metric", "value", "gate", "made", "recipe", "mlflow run")
    shown = table(*names, right=("version", "value"))
    for name, versions in models.items():
        for one in versions:
            value = "" if math.isnan(one.gate.value) else f"{one.gate.value:.4f}"
            made = _moment(one).astimezone().strftime("%Y-%m-%d %H:%M")
            row = (name, one.version, " ".join(one.aliases), one.gate.metric, value, one.decision, made, one.recipe)
            shown.add_row(*row, one.run_id[:8])
    out().print(shown, markup=False)


def show_history(moves: list[dict[str, Any]]) -> None:
    """Print when the champion changed, and how."""
    words = {"gate": "by the gate", "promote": "by hand", "rollback": "taken back"}
    shown = table("when", "champion", "before", "how", right=("champion", "before"))
    for move in moves:
        how = words[move["how"]] + (f": {move['reason']}" if move["reason"] else "")
        shown.add_row(move["at"].replace("T", " ")[:16], move["version"], move["before"] or "-", how)
    out().print(shown, markup=False)


def show_change(change: dict[str, Any]) -> None:
    """Say in a line what became of the champion."""
    before, after = change["before"], change["after"]
    moved = f"champion: version {before} -> {after}" if before else f"champion: version {after}"
    text = moved if change["changed"] else f"champion: version {after}, as before"
    style = "yellow" if change.get("unbeaten") else None
    out().print(f"{change['model']} {text} ({change['reason']})", markup=False, soft_wrap=True, style=style)
