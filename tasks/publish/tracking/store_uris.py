"""Where runs and models are kept, as addresses: of the store, of its artifacts, for people and for cache keys."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

from configs.errors import RecipeError
from tasks.storage.home import Home


def tracking_uri(home: Home) -> str:
    """Return where runs are kept: `MLFLOW_TRACKING_URI`, or SQLite under the home. Raises RecipeError for no URI."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or home_uri(home)
    public_uri(uri)
    return uri


def home_uri(home: Home) -> str:
    """Return the address of the SQLite file under the home."""
    return f"sqlite:///{home.mlflow / 'mlflow.db'}"


def sqlite_file(uri: str) -> Path | None:
    """Return the file of an SQLite store, without the options behind `?`; None for another store."""
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]) if uri.startswith("sqlite:///") else None


def local_path(uri: str) -> Path | None:
    """Return the path that a URI or plain path of artifacts names on this machine; None where it is elsewhere."""
    try:
        parts = urlsplit(uri)
        if parts.scheme.lower() not in ("", "file") or parts.netloc:
            return None
        return Path(url2pathname(parts.path)).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a zero byte
        return None


def public_uri(uri: str) -> str:
    """Return a URI without user name and password. Raises RecipeError for what is none."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        place = uri.rpartition("@")[2]
        raise RecipeError(f"{place!r} is no address: {error}; set MLFLOW_TRACKING_URI right, or unset it") from error
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else uri


def tracking_target() -> str:
    """Return what a cache key says about the store: the URI without credentials, or `home`.

    `GRAPHMILL_TRACKING` is set beside the address of a server that is not a store of its own: the one over the home's
    own SQLite file has the same runs as that file.
    """
    return os.environ.get("GRAPHMILL_TRACKING") or public_uri(os.environ.get("MLFLOW_TRACKING_URI") or "home")


def how_to_open(url: str) -> str:
    """Say in words how a run's URL is opened; a server's is a link as it is."""
    store, _, place = url.rpartition("#")  # a folder's name may have one too
    if store.startswith(("http://", "https://")):
        return url
    return f"mlflow ui --backend-store-uri {store}, then http://127.0.0.1:5000/#{place}"


def run_url(store: str, experiment_id: str, run_id: str) -> str:
    """Return a run's page in MLflow's view of trainings; its own choice would be the view of language models."""
    return run_url_in(store, f"#/experiments/{experiment_id}/runs/{run_id}")


def run_url_in(store: str, url: str) -> str:
    """Return the page of a run, known by its URL in any store, in this one."""
    place = url.rpartition("#")[2].partition("?")[0]
    page = f"{store.rstrip('/')}/" if store.startswith("http") else store
    return f"{page}#{place}?workflowType=machine_learning"
