from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.publish.tracking.mlflow_store import Tracker
from tasks.storage.home import Home
from tests.publish.line import in_this_process


@pytest.fixture(autouse=True)
def no_tracking_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="module")
def whole_line_in_this_process() -> Iterator[None]:
    """For fixtures of a whole module, which come before those of a test: see `in_this_process`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        in_this_process(patch)
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tables: making them takes seconds."""
    home = Home.open(tmp_path_factory.mktemp("mlflow") / "home")
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    tracker = Tracker(home, "Default")
    tracker.client.search_registered_models()
    return home.mlflow / "mlflow.db"


@pytest.fixture
def tracked_home(home: Home, empty_store: Path) -> Home:
    home.mlflow.mkdir(parents=True)
    shutil.copy(empty_store, home.mlflow / "mlflow.db")
    return home
