"""Which servers a command talks to, and the pages of a run there: the environment's, else `graphmill up`'s.

A run's own temporary server has no pages, and is gone when the command ends: nothing links to it.
"""

from __future__ import annotations

import os
import time

from configs.errors import StageError
from flows.environment.proxies import reach_directly
from flows.environment.quiet import TEMPORARY
from flows.services.commands import client_environment
from flows.services.health import answers
from flows.services.settings import read_settings
from flows.services.state import is_up
from flows.terminal.console import err
from tasks.storage.home import Home

_START_SECONDS, _LOOK_SECONDS = 180.0, 0.2
_connected: dict[str, Home] = {}
"""The home whose services an address of Prefect is of."""


def connect(home: Home) -> None:
    """Point this process at the home's services where they are up and the user has not named others."""
    if "PREFECT_API_URL" in os.environ or not is_up(home):
        return
    settings = read_settings(home)
    if settings is None:
        return
    for name, value in client_environment(home, settings).items():
        os.environ.setdefault(name, value)
    os.environ.update(reach_directly(settings.reachable_host))
    _connected[os.environ["PREFECT_API_URL"]] = home


def prefect_page(place: str) -> str:
    """Return the address of a page, such as `runs/flow-run/ID`; empty where no server has lasting pages."""
    if TEMPORARY in os.environ or not os.environ.get("PREFECT_API_URL"):
        return ""
    pages = os.environ.get("PREFECT_UI_URL") or os.environ["PREFECT_API_URL"].rstrip("/").removesuffix("/api")
    return f"{pages.rstrip('/')}/{place}"


def mlflow_page(run_url: str) -> str:
    """Return the page of a run (`RunRecord.mlflow_run_url`) on MLflow's server now; empty where there is none."""
    from tasks.publish.tracking.store_uris import public_uri, run_url_in

    store = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not run_url or not store.startswith("http"):
        return ""
    return run_url_in(os.environ.get("GRAPHMILL_MLFLOW_PAGES") or public_uri(store), run_url)


def check_answers(url: str) -> None:
    """Raise StageError unless a lasting server answers; one that `graphmill up` is about to start is waited for."""
    home = _connected.get(url)
    trouble = _trouble(url)
    if trouble and home is not None:
        err().print("waiting for graphmill up's Prefect server", style="dim")
        deadline = time.monotonic() + _START_SECONDS
        while trouble and is_up(home) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            trouble = _trouble(url)
    if not trouble:
        return
    server = f"{url.rpartition('@')[2]} {trouble}"
    if home is None:
        raise StageError(
            f"the Prefect server at PREFECT_API_URL={server}; start it (prefect server start) or unset "
            "PREFECT_API_URL: each run then brings its own"
        )
    if is_up(home):
        raise StageError(f"graphmill up's Prefect server at {server}; graphmill status says more, and where its log is")
    raise StageError(f"graphmill up's Prefect server at {server}: it has just stopped; run again, with or without it")


def check_tracking_store() -> None:
    """Raise StageError where no server of runs answers, before hours of training; `graphmill up`'s is not asked."""
    store = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not store.lower().startswith("http") or os.environ.get("PREFECT_API_URL") in _connected:
        return
    trouble = _trouble(store)
    if trouble.startswith("does not answer"):  # whatever answers may be a store: not all have a page of health
        raise StageError(
            f"the MLflow server at MLFLOW_TRACKING_URI={store.rpartition('@')[2]} {trouble}; start it (mlflow server) "
            "or unset MLFLOW_TRACKING_URI: runs are then kept in the home"
        )


def _trouble(url: str) -> str:
    return answers(f"{url.rstrip('/')}/health", 10, by_proxy=True)


def is_away(error: Exception) -> bool:
    """Whether an error of Prefect's client (httpx.HTTPError) means that its server, asked again and again, is away."""
    response = getattr(error, "response", None)
    return response is None or response.status_code >= 500


def server_went_away() -> str:
    """Say what to do about a server that was there and is no longer."""
    url = os.environ.get("PREFECT_API_URL", "").rpartition("@")[2]
    return (
        f"the Prefect server at {url} went away and did not come back while it was asked again; start it "
        "(graphmill up, or prefect server start) and run again: what is done is found"
    )
