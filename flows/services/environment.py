"""The environment of Prefect and MLflow, which read it when they are imported. What the user has set stays."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flows.environment.quiet import QUIET
from flows.services.addresses import connect
from flows.terminal.options import open_home
from tasks.storage.home import Home


def prepare_environment(home: Home, *, verbose: bool = False) -> None:
    """Point Prefect at this home (or its lasting servers), with analytics off and a quiet console."""
    connect(home)
    for name, value in {
        **QUIET,
        "GRAPHMILL_HOME": str(home.root),
        "PREFECT_HOME": str(home.prefect),
        # Prefect prints a traceback for every failed task and flow; graphmill says once, in words, what went wrong.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO" if verbose else "CRITICAL",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    }.items():
        os.environ.setdefault(name, value)
    if "prefect" in sys.modules:  # a test or a worker: its settings are read already
        return
    home.prefect.mkdir(parents=True, exist_ok=True, mode=0o700)


def open_connected_home(home: Path | None) -> Home:
    """Open the home that a command names, and point this process at its servers. Raises RecipeError."""
    place = open_home(home)
    prepare_environment(place)
    return place


def own_server_url() -> str | None:
    """Return the address of the user's own Prefect server, or None where graphmill starts one for the run."""
    return os.environ.get("PREFECT_API_URL") or None
