from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.registry import DATASETS
from tasks.ingest.stage import STAGE
from tasks.stage import run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home

Ingest = Callable[..., DatasetStore]


@pytest.fixture
def ingest(home: Home) -> Ingest:
    """Run the stage on a dataset section; returns the store of what it wrote."""

    def run(**section: Any) -> DatasetStore:
        recipe: Any = SimpleNamespace(dataset=DATASETS.config(section), version_moment=None)
        outcome = run_stage(STAGE, recipe, {}, home)
        return DatasetStore(outcome.folder, outcome.manifest)

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is also the current one."""
    path = tmp_path / "data"
    path.mkdir()
    monkeypatch.chdir(path)
    return path
