from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.warm_python import forked_processes

ROOT = Path(__file__).resolve().parent.parent.parent

TINY: dict[str, Any] = {
    "name": "tiny",
    # Three steps are enough to beat a linear model of the features: the first version becomes champion.
    "description": "A generated graph that trains in a second",
    "dataset": {
        "name": "synthetic",
        "num_nodes": 400,
        "num_edges": 2500,
        "num_classes": 4,
        "community_size": 100,
        "feature_dim": 8,
        "feature_accuracy": 0.3,
    },
    "partition": {"name": "metis", "num_parts": 2},
    "model": {"name": "graphsage", "hidden_dim": 16, "num_layers": 2},
    "train": {"loader": "full", "epochs": 3, "learning_rate": 0.05},
    "tracking": {"system_metrics": False},
}


def write_recipe(folder: Path, **changes: Any) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({**TINY, **changes}))
    return path


def command(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "flows.cli", "--home", str(home), *arguments]


def environment() -> dict[str, str]:
    """The environment without what other tests (or the developer) set for Prefect and MLflow."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_", "GRAPHMILL_"))}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def called(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    usual = {"env": environment(), "cwd": ROOT, "timeout": 600}
    return subprocess.run(words, capture_output=True, text=True, **{**usual, **options})


def graphmill(home: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, only without waiting for its imports."""
    with forked_processes():
        return subprocess.run(
            command(home, *arguments), capture_output=True, text=True, env=environment(), timeout=240, **options
        )


class Shell:
    """Commands in a folder, with a home in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return graphmill(self.home, *arguments, cwd=self.folder)

    def json(self, *arguments: str) -> Any:
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
