from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tasks.home import Home
from tasks.publish.tracking import Tracker


@pytest.fixture(autouse=True)
def no_tracking_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


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
