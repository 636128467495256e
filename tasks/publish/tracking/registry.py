"""Connections to the model registry, for commands that no training has opened one for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.errors import RecipeError
from tasks.publish.tracking.store_uris import sqlite_file, tracking_uri
from tasks.storage.home import Home

if TYPE_CHECKING:
    from tasks.publish.tracking.mlflow_store import Tracker

_ANY_EXPERIMENT = "Default"  # every store has it: nothing is made by looking


def open_registry(home: Home) -> Tracker:
    """Connect to the store of registered models for reading, without making one.

    Raises RecipeError: the home has none; StageError: it cannot be reached.
    """
    file = sqlite_file(tracking_uri(home))
    if file is not None and not file.exists():
        raise RecipeError(
            f"no model is registered in {home.root}; train one: graphmill run RECIPE (or name another --home)"
        )
    return open_tracker(home)


def open_tracker(home: Home) -> Tracker:
    """Connect to the store of registered models for changes. Raises StageError."""
    from tasks.publish.tracking.mlflow_store import Tracker

    return Tracker(home, _ANY_EXPERIMENT)
